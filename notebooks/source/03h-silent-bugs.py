# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 3h · Silent bugs
#
# A bug that raises an error is found in a minute. The silent ones train, print a falling loss, and
# cost you a week. You will read logs before code, recognise six bugs by their signatures, fix
# scripts that run without an error, and write a probe that finds a bug in programs you have never
# seen.
#
# The lecture, its essay and the engineering module are the texts behind this course. A code after
# *read* above an exercise stands for an item in them: in a terminal, `course ledger B17` says which
# one, `course claims F72` tests a claim, and `course museum B04` shows a bug. `worked.compute("N62")`
# computes a worked number.
#
# *Read a question, replace the `...` of its `guess`, then run the cell below it. Every cell may be run
# twice. Stuck? `hint("03h.six-logs")` gives three hints.*

# %%
import copy

import torch
from torch import nn

from autograde import ask, check, failing, guess, hint, ready, reveal, scorecard, student
from course import worked
from course.debug import museum
from course.debug.signatures import SIGNATURES, case_log, healthy_log, lineup, logged_run
from course.plots.suspects import plot_experiment, plot_lineup, plot_log

# %%
student("")  # your name or id, as you hand in

# %% [markdown]
# ## 3h.1 The log before the code
#
# Code shows what somebody meant; a log shows what happened. A small network learns 240 digits, 15 %
# of them with a wrong label. Its log records more than the loss: the gradient norm, how many
# tensors did not change, validation computed twice, and the memory that stays in use.

# %%
healthy = logged_run()
healthy

# %% [markdown]
# Learn what a log without a bug looks like: the loss falls, the norm keeps its size, every tensor
# changes, both validations of the same weights agree, and no memory stays in use. Validation
# accuracy is below 85 %, the share of labels that are right. The validation loss rises after a few
# epochs: the run overfits, as in 3a, but that is not a bug in the program.
#
# Now somebody replaces the network's head *after* building the optimizer. **Guess:** what does the
# gradient norm do?

# %%
guess("03h.stale-norm", ...)

# %%
stale = logged_run({"stale-head"})
norms = stale.column("grad_norm")
reveal("03h.stale-norm", "grows" if norms[-1] > 10 * norms[0] else "same")
plot_log(stale.columns, healthy.columns, title="head replaced too late", ceiling=0.85)

# %% [markdown]
# It grows, although `zero_grad()` is called where it should be. But the optimizer clears only the
# tensors that *it* holds, and the new head is not one of them. Loss and accuracy look fine, because
# a random head on trained features is not bad. Only columns that few people log reveal the bug.

# %%
print("tensors that did not change, by epoch:", stale.column("still"))
museum.exhibit("B17")

# %% [markdown]
# ## 3h.2 Six signatures
#
# Each of these six runs has one bug; data, seed and batches are the same. Blue is the healthy run,
# orange is the run with the bug, and the dotted line is the share of labels that are right.
#
# **Guess:** one of the bugs puts near copies of training images into validation. What validation
# accuracy does that run show after 16 epochs, as a share?

# %%
guess("03h.leak", ...)

# %%
runs = lineup()
shown = {letter: log.columns for letter, log in runs.items()}
plot_lineup(shown, healthy.columns, ceiling=0.85)

# %% [markdown]
# Look at the curves first, then at the other columns, and only then form a suspicion:

# %%
for letter, log in runs.items():
    print(letter)
    print(log, end="\n\n")
reveal("03h.leak", runs["A"].column("val_accuracy")[-1])

# %% [markdown]
# A score can be too good. Only 85 % of the labels are right, so a model that has not seen the
# answers cannot agree with more of them. What does *not* change matters just as much: in which runs
# does the loss match the healthy run to the last digit?

# %%
for letter, log in runs.items():
    same = log.column("loss") == healthy.column("loss")
    print(letter, "the healthy loss, to the last digit" if same else "another loss")

# %% [markdown]
# Another loss need not be a worse one. Even a bug in validation can change the training loss: if dropout
# is left on there, it draws random numbers, and every later training step gets others.

# %%
SIGNATURES

# %% exercise 03h.six-logs

# %% [markdown]
# ## 3h.3 Two at once
#
# Real programs have more than one bug, and one bug may hide another. Go column by column: every
# column that differs from the healthy run needs a bug that explains it, and every bug you suspect
# must show all of its traces.

# %%
both = logged_run({"leak", "kept-graphs"})
plot_log(both.columns, healthy.columns, title="a leak, and graphs kept", ceiling=0.85)

# %% [markdown]
# The detector trains another small network, on other images, with six switches of its own. Five are
# bugs from the table; the sixth, no `train()` after a validation, is new. Switch them on one at a time,
# then in pairs, and look for the trace of each:

# %%
from course.widgets.detector.widget import BugDetector

BugDetector()

# %% [markdown]
# A leak and kept graphs change different columns. Not every pair of bugs does: a run that never
# clears its gradients learns so little that a leak does not show. So fix what you have found, run
# again, and read the new log.

# %%
hidden = logged_run({"leak", "no-clear"})
accuracy = max(hidden.column("val_accuracy"))
print(f"a leak under uncleared gradients: at most {accuracy:.0%} on validation")

# %% exercise 03h.two-bugs
# The table above lacks the candidates 5, 6 and 16: `museum.exhibit("B05")` shows the first of them.
# `plot_log(case_log(q.case).columns, healthy_log(q.case).columns)` plots your run next to the healthy one.
### BEGIN SOLUTION
log, clue = case_log(q.case), []
clue += [1] if log.column("loss")[-1] > 3 else []
clue += [4] if log.column("val_loss") != log.column("again") else []
clue += [7] if log.column("held_kb")[-1] > 0 else []
clue += [17] if log.column("still")[-1] == 2 else []
clue += [22] if log.column("val_accuracy")[-1] > 0.85 else []
two_bugs = {"first": clue[0], "second": clue[1]}
### END SOLUTION

# %% [markdown]
# Back to the detector, now with a mystery. Read its four traces, and set the switches until both runs
# agree in every number. Mysteries 1 and 2 have one bug, the other three have two.

# %%
from course.widgets import BugDetector

BugDetector(asleep=False, beside="mystery 1")

# %% [markdown]
# ## 3h.4 One batch, and what it cannot see
#
# In 3b, overfitting one batch was the third rung of the ladder: a loop that cannot memorise a dozen
# examples learns nothing. How reliable is this test? Here is a healthy loop over 200 seeds; eight
# broken loops follow:

# %%
worked.compute("N62")

# %% [markdown]
# **Guess** from experience: the batch holds twelve points, and the inputs are 255 times too large,
# like raw pixels. Where does the loss of this one batch end?

# %%
guess("03h.raw", ...)

# %%
from course.debug.one_batch import ONE_BATCH_BUGS, one_batch_losses
from course.plots.suspects import plot_one_batch_bugs

curves = {bug: one_batch_losses(bug) for bug in ONE_BATCH_BUGS}
memorised = curves.pop("none")
for bug, losses in curves.items():
    print(f"{bug:20} {ONE_BATCH_BUGS[bug]:46} {losses[-1]:.3f}")
reveal("03h.raw", "zero" if curves["raw inputs"][-1] < 0.01 else "level")

# %%
plot_one_batch_bugs(curves, memorised)

# %% [markdown]
# Orange is the loop with the bug. Flat from the start: no step, dead units or a tiny learning rate.
# With a second softmax the loss levels off because it cannot go any lower; at rate 5 it first leaves
# the figure, then levels off because no unit responds to some points. Noise around 1.10 (ln 3) means
# that there is nothing to memorise. The frozen layer is easy to miss: it only slows learning
# down. Raw inputs pass: after some wild updates the batch is memorised.

# %% exercise 03h.unseen

# %% [markdown]
# What do you do if the batch is *not* memorised? Each check relies on earlier ones, so the order
# matters.

# %% exercise 03h.which-first

# %% [markdown]
# ## 3h.5 Five experiments, as they came out
#
# The chapter on training loops predicts how five experiments end. You will run them, on the same
# spirals and from the same start as Adam at 0.01, with one change each:
#
# | | change | predicted |
# | --- | --- | --- |
# | 1 | Adam's learning rate is 1 | nan at once |
# | 2 | SGD at the same rate, and at 0.3 | three to five times slower |
# | 3 | gradients not cleared | the norm grows linearly |
# | 4 | no `no_grad()` in evaluation | each adds memory |
# | 5 | a cosine schedule | ends lower |

# %% [markdown]
# **Guess** two of the results first. How does Adam end with a learning rate of 1 instead of 0.01?

# %%
guess("03h.adam-one", ...)

# %% [markdown]
# Evaluating without `no_grad()` builds a graph each time. **Guess:** how much memory is still in
# use after the evaluation, as a multiple of the usual amount?

# %%
guess("03h.held", ...)

# %%
from course.widgets.simulator.state import OTHERS, Settings, SimulatedRun


def experiment(other, updates=320):
    run = SimulatedRun(Settings(other=other))
    for _ in range(updates):
        run.step()
    return {frame["name"]: frame for frame in run.frame()["learners"]}

# %% [markdown]
# Each row of the table is a run; "graph kept" is experiment 4 once more, with the losses kept as well.
# `reached` is the update after which 90 % of the validation points were right (inf: never), `norm` the
# last gradient's. `live_kb` is the memory in use at the end and `peak_kb` the most at any time, in kB.

# %%
results = {other: experiment(other) for other in OTHERS if other != "nothing"}
learners = {name: frame for pair in results.values() for name, frame in pair.items()}
keys = ("loss", "accuracy", "reached", "norm", "live_kb", "peak_kb")
print(" " * 20, *(f"{key:>10}" for key in keys))
for name, frame in learners.items():
    row = [frame[key] if frame[key] is not None else float("inf") for key in keys]
    print(f"{name:20}", *(f"{value:10.4g}" for value in row))

# %%
usual, graph = learners["Adam 0.01"], learners["Adam 0.01, graph"]
ended = "nan" if learners["Adam 1"]["loss"] != learners["Adam 1"]["loss"] else "chance"
reveal("03h.adam-one", ended)
reveal("03h.held", round(graph["live_kb"] / usual["live_kb"], 2))

# %%
plot_experiment(results["uncleared"])

# %% [markdown]
# Only two of the five predictions get even the direction right. But one seed is an anecdote:
# `course claims F72` to `F76` try the predictions over several seeds and settings. The simulator
# runs each experiment live, with any learning rate, batch size or bug:

# %%
from course.widgets.simulator.widget import TrainingSimulator

TrainingSimulator()

# %% exercise 03h.experiments

# %% [markdown]
# ## 3h.6 Scripts that run
#
# The table lists eight mistakes that nearly everybody makes once, with their symptoms. Each of them
# is a museum exhibit that you can run: `course museum B08` in a terminal, or
# `museum.exhibit("B08")` here.

# %%
from course.debug.casebook import MISTAKES, PROBES, STOPS

MISTAKES

# %% [markdown]
# Only now do we read code. Each script below runs without an error and has *one* bug. Start from
# its symptom, decide which column of a log would show it, and then read the script. Change as
# little as you can: rewriting a script replaces a known bug by unknown ones, and one of the three
# points is for changing little.

# %% exercise 03h.regressor
# *Symptom:* the training loss falls to about 1, the variance of the scaled prices, and stays there.
# The network predicts nearly the same price for every house.

# %% exercise 03h.best
# *Symptom:* if you validate the model again after the script, you get the last loss of `history`,
# not `best_loss`. At the end the model should have the weights of its best epoch. Every loss is
# finite, so there is a best epoch.

# %% exercise 03h.pairs
# *Symptom:* the loss of every batch stays near ln(classes), but a single batch is memorised without
# trouble. The shuffling uses `generator`: one permutation per epoch, the one
# that the rows already get.

# %% [markdown]
# Two of these three bugs are invisible to the one-batch probe: it never saves anything, and it
# never shuffles. The next scripts need other probes.

# %% exercise 03h.resume
# *Symptom:* the losses of the second sitting differ from those of a run that never stopped.
# `make()` returns a model with the initial weights, and its optimizer. `save(checkpoint)` writes a
# dictionary to disk, and `load()` reads it back: nothing else from Monday is left on Tuesday. No
# step draws random numbers.

# %% exercise 03h.pooling
# *Symptom:* the answer for a sentence changes with the other sentences in its batch. Inputs are
# tokens `[B, T]`, padded with 0 after the end of each sentence, where B counts sentences and T
# their words. `model` holds an embedding, a layer that scores words, and a head. An answer should
# depend only on its own sentence: the weights remain a softmax of the scores, over its own words.

# %% exercise 03h.finetune
# *Symptom:* two tensors that should learn never change. The first layer is frozen on purpose; the
# middle layers learn at a tenth of the learning rate; the new head, one linear layer, learns at the
# full rate. Keep it that way. Do not rely on a default rate in `make_optimizer`: every group must
# give its own.

# %% exercise 03h.clipping
# *Symptom:* `largest_norm` is 0 in every epoch, and no gradient is ever clipped to `max_norm`. The
# log should show norms *before* clipping.

# %% exercise 03h.dropout
# *Symptom:* two validations of the same weights differ. `p` is the share of hidden values dropped
# in training.

# %% [markdown]
# **Question which-probe · eight bugs, and what finds them**  
# ●●○ · 6 min · 2 points, read by a person
#
# Which of the eight bugs would overfitting one batch have found? For each of the others,
# which column of a log, or which other probe, would have shown it? Four sentences.

# %% [markdown] nbgrader={"grade": true, "grade_id": "which-probe", "locked": false, "points": 2, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# One batch is not memorised if each output is compared with every target (1). Shuffled labels (3)
# spoil it only if the batch is drawn through the shuffling. A head that is not trained (6) makes it
# slow, and `still` shows that. The norm in the log shows the clipping bug (7), validating twice the
# dropout (8), validating after loading the best weights (2), saving and reloading the resumed run
# (4), and one sentence alone and in a batch the pooling (5).
# ### END SOLUTION

# %% [markdown]
# ## 3h.7 A probe of your own
#
# A bug that you find twice deserves a probe: a question to a program that its healthy twin answers
# differently. Here are six that take a minute each:

# %%
PROBES

# %% [markdown]
# Now write one that is not in the table. The bug: a step uses gradients that an earlier step left
# behind. Healthy programs may clear at the start or at the end, to zeros or to None, and may use
# momentum; none of that is the bug. Here are three programs, and whether they leave anything in
# `.grad`:

# %%
from course.debug.twins import program

torch.manual_seed(0)
batches = [(torch.randn(6, 3), torch.arange(6) % 3) for _ in range(3)]
for cleared in ("start", "end", "never"):
    step, model, optimizer = program(cleared, kind="momentum")()
    losses = [step(batch) for batch in batches]
    print(cleared, "-> .grad left:", model[0].weight.grad is not None)

# %% [markdown]
# So looking at `.grad` does not tell them apart. Ask instead what should *not* matter to a healthy
# program, change that, and check whether its weights change.

# %% exercise 03h.probe
# Decide whether any update of a program uses gradients that an earlier step has left behind. Your
# probe is graded on programs that you have not seen; each buggy one comes with healthy twins.
def uses_old_gradients(make, batches):
    """Check whether a program's updates depend on gradients left by earlier steps.

    Args:
        make: make() returns the program as (step, model, optimizer), every time with the same
            initial weights. step(batch) makes one update, with a gradient for every parameter, and
            returns the loss, a float. Dropout draws from torch's global generator, so seed that
            before you compare two runs.
        batches: A list of pairs of inputs and class indices, for one step each, in this order.
            A bug may show only in the last step.

    Returns:
        True or False. Neither the list nor its batches are changed.
    """
    ### BEGIN SOLUTION
    ends = []
    for clear in (False, True):
        torch.manual_seed(0)
        step, model, _ = make()
        for batch in batches:
            for parameter in model.parameters() if clear else ():
                parameter.grad = None
            step(batch)
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    return not torch.equal(*ends)
    ### END SOLUTION

# %%
if ready(uses_old_gradients):
    for cleared in ("start", "end", "never", "third"):
        make = program(cleared, kind="adam", dropout=0.5)
        print(cleared, uses_old_gradients(make, batches))

# %% [markdown]
# A probe that gives no false alarms is worth keeping: `course.debug.diagnose` is made of such
# questions. And some conditions need no probe, only the courage to stop at once:

# %%
STOPS

# %% [markdown]
# ## 3h.8 The arena
#
# Here one number sums up what you know about learning rates and batches: the updates needed until
# 90 % of the validation points are right, as the median over five seeds. One lucky run is worth
# nothing here.

# %% exercise 03h.arena

# %%
scorecard("03h-silent-bugs")

# %% [markdown]
# ## What to keep
#
# - Log more than the loss: the norm, which tensors do not change, two validations of the same
#   weights, memory.
# - Ask what is *the same* as in a healthy run: the bug is not there.
# - A score can be too good. Know the ceiling before you look.
# - Memorising one batch proves that the step works. It never touches validation, saving or the
#   order of the data.
# - Fix one bug, run again and read the new log: one bug may hide another.
#
# **Further reading.** Lecture 3, "Debug checklist"; Andrej Karpathy, *A recipe for training neural networks*
# (2019); `course museum` in a terminal; [course/debug](../course/debug/__init__.py).
#
# **Challenge, ungraded.** Add a seventh switch to [signatures.py](../course/debug/signatures.py)
# whose log does not differ from the healthy one in any column. Which column would you have to add
# to see it?
