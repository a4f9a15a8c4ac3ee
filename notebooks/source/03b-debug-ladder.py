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
# # 3b · The debug ladder
#
# A run that does not learn rarely says why. The ladder asks in an order in which every answer can be
# trusted: data, dumb baseline, one batch, a small subset, the learning rate, the full run, the errors.
# **Fix the lowest rung that fails; what is above it only shows the same fault in a more confusing
# way.** You climb it once by hand, fix two planted bugs, and end with a broken project.
#
# *Read a question, replace the `...` of its `guess`, then run the cell below it. Every cell may be run
# twice. Stuck? `hint("03b.baseline")` gives three hints, `failing("03b.baseline")` the smallest failing
# case.*

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F

from autograde import ask, check, failing, guess, hint, ready, reveal, scorecard, student
from course.analysis.curves import read_curves
from course.data import load
from course.debug import climb, diagnose
from course.debug.hunt import FaultHunt
from course.engine import Trainer, choose_device, seed_everything

# %%
from course.lr_finder import lr_find

device = choose_device()  # a GPU where there is one: data and models go there
data = load("digits").to(device)
train_loader, val_loader = data.loaders(batch_size=64)
print(data)

# %%
student("")

# %% [markdown]
# ## Rung 1 · Inspect the data
#
# Two batches come from a colleague. Look at them before any model does. **Guess:** which of them makes
# the loss `nan` in the first step, and which one raises?

# %%
guess("03b.torn-or-renamed", ...)

# %%
inputs, targets = (part.cpu() for part in next(iter(train_loader)))
torn, renamed = inputs.clone(), targets.clone()
torn[17, 0, 3, 3] = float("inf")
renamed[5] = 10
print("sound  ", inputs.min().item(), inputs.max().item(), targets.unique().tolist())
print("torn   ", torn.min().item(), torn.max().item(), torn.mean().item())
print("renamed", renamed.unique().tolist())

# %%
probe, silent = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), []
for name, batch in {"torn": (torn, targets), "renamed": (inputs, renamed)}.items():
    try:
        loss = F.cross_entropy(probe(batch[0]), batch[1])
        silent += [] if loss.isfinite() else [name]
        print(f"{name}: the loss is {loss.item()}")
    except IndexError as fault:
        print(f"{name}: {fault}")
reveal("03b.torn-or-renamed", silent[0])

# %% [markdown]
# The label raises on the CPU; on a GPU the same label ends the whole process, without saying which. The
# `inf` says nothing at all: every weight is `nan` after one step.
#
# So look before the first step, at four things: do inputs and targets have the same length, are the targets
# `torch.long`, is every input finite, does every label lie between 0 and C − 1 (C classes)?

# %% exercise 03b.inspect-batch
# Name every fault that you find, in these words: `"sizes"` (inputs and targets have different lengths),
# `"dtype"` (targets are not `torch.long`), `"non-finite"` (an input is inf or nan), `"labels"` (a label
# outside 0 … C − 1). A sound batch gives an empty list.
def inspect_batch(inputs, targets, num_classes):
    """Names of the faults of one batch, which is left as it is.

    Args:
        inputs: [B, ...], of any float dtype, B at least 1.
        targets: Class indices [B'], which should be torch.long, with B' = B; whole numbers, B' at
            least 1.
        num_classes: C.

    Returns:
        A list (or a set) of "sizes", "dtype", "non-finite", "labels", each at most once, in any
        order; empty for a sound batch.
    """
    ### BEGIN SOLUTION
    faults = []
    if len(inputs) != len(targets):
        faults.append("sizes")
    if targets.dtype != torch.long:
        faults.append("dtype")
    if not torch.isfinite(inputs).all():
        faults.append("non-finite")
    if targets.min() < 0 or targets.max() >= num_classes:
        faults.append("labels")
    return faults
    ### END SOLUTION

# %%
if ready(inspect_batch):
    print(inspect_batch(torn, targets, 10), inspect_batch(inputs, renamed, 10))
    assert inspect_batch(inputs, targets, 10) == [], "the sound batch is sound"

# %% [markdown]
# A batch can be sound and the split wrong. Rows of one person, one writer, one patient belong on one
# side: otherwise validation asks about people whom the model has met, and its accuracy is too good.

# %% exercise 03b.split-by-group
# Groups come in the order in which they were drawn. Take whole groups into validation until it holds at
# least its share of the *examples*; the rest is for training.
def split_by_group(groups, order, val_share):
    """Indices of training and validation, no group on both sides.

    Args:
        groups: Group of each example [N], long.
        order: The groups in the order in which validation takes them.
        val_share: Share of the examples that validation holds at least; for 0 it takes no group.

    Returns:
        (training indices, validation indices): lists or tensors of ints, both ascending.
    """
    ### BEGIN SOLUTION
    in_val = torch.zeros(len(groups), dtype=torch.bool, device=groups.device)
    for name in order:
        if in_val.double().mean() >= val_share:
            break
        in_val |= groups == name
    return torch.where(~in_val)[0], torch.where(in_val)[0]
    ### END SOLUTION

# %% [markdown]
# ## Rung 2 · The dumb baseline
#
# What is the best answer without looking at the input? In a data set of 95 % cats, a model that is
# right 95 % of the time has learned nothing. **Guess:** how often is the most common of ten digits right?

# %%
guess("03b.baseline", ...)

# %% exercise 03b.baseline
# Find the most common class of the training part, and how often it is right on validation.
def dumb_baseline(train_targets, val_targets):
    """The most common training class, and how often it is right on validation.

    Args:
        train_targets: Class indices [N]; not every class needs to occur.
            One occurs more often than any other.
        val_targets: Class indices [M].

    Returns:
        (the class, an int; its accuracy on validation between 0 and 1, a float): both may also be
        one-element tensors.
    """
    ### BEGIN SOLUTION
    label = train_targets.bincount().argmax()
    return label, (val_targets == label).double().mean()
    ### END SOLUTION

# %%
if ready(dumb_baseline):
    label, bar = dumb_baseline(data.train_targets, data.val_targets)
    print(f"always {int(label)}: right in {bar:.1%} of the validation examples")
    reveal("03b.baseline", bar)

# %% [markdown]
# ## Rung 3 · Overfit one batch
#
# A loop that cannot memorise one batch cannot learn anything; most bugs fall here. But the rung
# must not pass for nothing: a batch of *one class* is "learned" by answering that class.

# %% exercise 03b.overfit-batch
# Take the first batch with at least two classes, and stay with it for all steps. Return the losses.
def overfit_one_batch(model, batches, criterion, optimizer, steps):
    """Train on one and the same batch.

    Args:
        model: In train mode, which it stays in, and without gradients; gives logits [B, C].
        batches: A list of pairs of inputs and targets, which stays as it is; at least one of them
            holds two classes.
        criterion: Any mean-reduced loss of logits and targets.
        optimizer: Any optimizer of the model's parameters; weights, buffers, .grad and its state may
            change, and nothing else.
        steps: How many updates, each from one forward pass.

    Returns:
        The losses that the steps were computed from, a list of `steps` floats
        (no tensors that hold a graph).
    """
    ### BEGIN SOLUTION
    inputs, targets = next(batch for batch in batches if len(batch[1].unique()) > 1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
    ### END SOLUTION

# %%
def make_model():
    seed_everything(3)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    return model.to(device)

# %%
model, batches = make_model(), list(train_loader)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
if ready(overfit_one_batch):
    healthy = overfit_one_batch(model, batches, nn.CrossEntropyLoss(), optimizer, 120)
    print(f"loss {healthy[0]:.2f} to {healthy[-1]:.4f}")
    assert healthy[-1] < 0.05, "rung 3: one batch is not learned"

# %% [markdown]
# ### A planted bug: the plateau
#
# The same model, the same batch, another step: its loss falls from 2.30 to about 1.5 and stays there. Read the
# step. **Guess** before you see the curve: too small a rate, no step at all, or a loss that cannot fall?

# %%
def planted_step(model, inputs, targets, optimizer):
    optimizer.zero_grad()
    probabilities = model(inputs).softmax(dim=1)
    loss = F.cross_entropy(probabilities, targets)
    loss.backward()
    optimizer.step()
    return loss.item()

# %%
guess("03b.plateau", ...)

# %%
model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
inputs, targets = batches[0]
planted = [planted_step(model, inputs, targets, optimizer) for _ in range(120)]

# %%
figure, axis = plt.subplots(figsize=(5, 3))
if ready(overfit_one_batch):
    axis.plot(healthy, label="healthy", color="#0072b2")
axis.plot(planted, "--", label="planted", color="#d55e00")
axis.axhline(1.4612, color="#7f7f7f", linestyle=":", label="ln(1 + 9/e)")
axis.set(xlabel="step", ylabel="loss of the batch", ylim=(0, 2.5))
axis.legend();

# %% [markdown]
# A rate that is too small gives a straight, slow line, no step at all a level one at ln 10 = 2.30. This
# curve falls and then levels off, far from 0. With a probability of 1 for the right class a *second* softmax sees a one
# and nine zeros, so the loss can only reach ln(1 + 9/e) = 1.46 for ten classes.

# %% exercise 03b.plateau
# Fix the step; all else stays as it is, also that it calls the model once.
def fixed_step(model, inputs, targets, optimizer):
    """The planted step without its bug.

    Args:
        model: Gives logits [B, C]; in train mode or eval mode, which it stays in.
        inputs: [B, ...].
        targets: Class indices [B].
        optimizer: Holds the model's parameters; an earlier step may have left
            gradients.

    Returns:
        The mean loss that the step was computed from, a float (no tensor that
        holds a graph).
    """
    ### BEGIN SOLUTION
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()
    ### END SOLUTION

# %% [markdown]
# The doctor watches such a step as a black box and names the bug from what it sees. It needs nothing
# but your parts.

# %%
model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
setup = dict(model=model, optimizer=optimizer, train_loader=train_loader,
             loss_fn=lambda out, y: F.cross_entropy(out.softmax(dim=1), y))
finding = diagnose(setup).findings[0]
print(finding.id, "-", finding.message)
stuck = planted[-1] < planted[0] - 0.5 and min(planted) > 1.46
reveal("03b.plateau", "loss" if stuck else "rate")

# %% [markdown]
# ## Rung 4 · A small subset
#
# Five in a hundred examples, a minute of training: is the model better than the dumb baseline on
# validation? The ladder does rungs 1 to 4 in one call and says what it saw.

# %%
model = make_model()
setup = dict(
    model=model, loss_fn=nn.CrossEntropyLoss(), num_classes=10,
    optimizer=torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01),
    train_loader=train_loader, val_loader=val_loader,
)
climb(setup, top=4)

# %% [markdown]
# ## Rung 5 · The learning rate
#
# One sweep from far too small to far too large: first the loss is flat (too small to learn), then it falls,
# then it explodes. **Guess** from the sweep alone, before the suggestion is shown: which rate would you take?

# %%
curve = lr_find(model, setup["loss_fn"], setup["optimizer"], train_loader)
figure, axis = plt.subplots(figsize=(5, 3))
axis.plot(curve.lrs, curve.smoothed, color="#0072b2")
axis.set(xscale="log", xlabel="learning rate", ylabel="loss, smoothed", ylim=(0, 3));

# %%
guess("03b.rate", ...)

# %%
print(curve.suggestion)
reveal("03b.rate", curve.suggestion.lr)

# %%
curve.plot()

# %% [markdown]
# The lecture reads the rate a decade before the minimum of *one* sweep, which wanders by half a decade
# from seed to seed; `rule="decade"` reads it off the median of three, which holds still. A sweep
# gives each rate one or two updates, too few to see what it is worth over a run. So by default
# `lr_find` sweeps once, then trains for a while with five rates around the lecture's (the green
# diamonds), 300 updates in all, and takes the lowest that trains as well as any.

# %% [markdown]
# Try rates yourself: the sweep, and next to it what each rate is worth after 40 updates. How far from the best
# does the lecture's rule land, with SGD and with Adam?

# %%
from course.widgets import RateFinder

RateFinder(optimizer="Adam", rate=0.003)

# %% [markdown]
# ### A planted bug: the curve that freezes
#
# A schedule that multiplies the rate by 0.3 after every fourth epoch; the loss falls for one epoch, and
# then nothing moves any more. **Guess** from the loop: what does the learning rate do?

# %%
def planted_fit(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for _ in range(epochs):
        lrs.append(optimizer.param_groups[0]["lr"])
        for inputs, targets in loader:
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            optimizer.step()
            scheduler.step()
    return lrs

# %%
guess("03b.frozen-rate", ...)

# %%
model = make_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.3)

# %%
lrs, losses = [], []
for _ in range(10):
    lrs += planted_fit(model, train_loader, criterion, optimizer, scheduler, 1)
    with torch.no_grad():
        losses.append(criterion(model(data.train_inputs), data.train_targets).item())

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.plot(range(1, 11), losses, "o-", color="#0072b2")
left.set(xlabel="epoch", ylabel="training loss after it", ylim=(0, 2.4))
right.plot(range(1, 11), lrs, "o-", color="#d55e00")
right.set(xlabel="epoch", ylabel="its learning rate", yscale="log")
reveal("03b.frozen-rate", "falls" if lrs[-1] < 0.01 * lrs[0] else "same")

# %% [markdown]
# The schedule counts *epochs* and is moved 23 times in each: the rate that was meant to be 0.3 of the
# first after four epochs is that after four batches, and a millionth of it after two epochs.

# %% exercise 03b.early-freeze
# Fix the loop; return the rates with which the epochs were trained.
def fixed_fit(model, loader, criterion, optimizer, scheduler, epochs):
    """The planted loop without its bug.

    Args:
        model: In train mode, which it stays in.
        loader: A list of pairs of inputs and targets.
        criterion: Any mean-reduced loss of logits and targets.
        optimizer: Any optimizer of the model's parameters.
        scheduler: Counts epochs; may have counted some before.
        epochs: How many.

    Returns:
        The learning rate of each epoch (of the optimizer's first group), a list of floats.
    """
    ### BEGIN SOLUTION
    lrs = []
    for _ in range(epochs):
        lrs.append(optimizer.param_groups[0]["lr"])
        for inputs, targets in loader:
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            optimizer.step()
        scheduler.step()
    return lrs
    ### END SOLUTION

# %% [markdown]
# ## Rung 6 · The full run, with something that holds overfitting back
#
# Weight decay, and the best epoch is known by its validation loss. Then the curves are read: underfit,
# sweet spot or overfit? The rate stays the 3e-3 that has climbed the rungs below: one change at a time.

# %%
model = make_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, seed=3, device=device)
history = trainer.fit(train_loader, val_loader, epochs=12)
accuracy = history.best["val_accuracy"]
if ready(dumb_baseline):
    print(f"validation accuracy {accuracy:.1%}, baseline {bar:.1%}")
    assert accuracy > bar + 0.5, "rung 6: hardly better than not looking"
reading = read_curves(history)
reading.plot()

# %%
reading

# %% [markdown]
# ## Rung 7 · The errors
#
# Count before acting. First look: these are our own model's mistakes on validation, the true digit and what
# was read.

# %%
with torch.no_grad():
    read = model(data.val_inputs).argmax(dim=1)
misread = (read != data.val_targets).nonzero().flatten().tolist()
figure, axes = plt.subplots(1, 8, figsize=(9, 1.6))
for axis, row in zip(axes, misread, strict=False):
    axis.imshow(data.val_inputs[row, 0].cpu(), cmap="gray_r")
    axis.set_title(f"{data.val_targets[row]} read {read[row]}")
for axis in axes:
    axis.set_axis_off()

# %%
pairs = [f"{data.val_targets[row]} read {read[row]}" for row in misread]
for pair in sorted(set(pairs), key=pairs.count, reverse=True):
    print(f"{pair}: {pairs.count(pair)} of {len(pairs)} mistakes")

# %% [markdown]
# Put each mistake into a bucket that one intervention could empty (here: which digit is read as which), and
# compute the most that the intervention can give. In points of accuracy: 100 × mistakes of the bucket /
# *all* examples.

# %% exercise 03b.next-intervention
# Somebody has looked at the mistakes of a model and put each into a bucket; `"?"` marks those not looked at
# yet. Name the largest bucket, the ceiling of its gain, and what helps against it.
def next_intervention(buckets, num_examples, actions):
    """The largest bucket with a name, the ceiling of its gain, what to do about it.

    Args:
        buckets: The bucket of each mistake, a list of names that stays as it is; "?" where
            nobody has looked yet.
            One name occurs more often than any other.
        num_examples: Validation examples, right ones and wrong ones.
        actions: What helps against a bucket, by its name.

    Returns:
        {"bucket": name, "gain": points of accuracy if all of it were fixed, "action": text}.
    """
    ### BEGIN SOLUTION
    named = [bucket for bucket in buckets if bucket != "?"]
    largest = max(set(named), key=named.count)
    gain = 100 * named.count(largest) / num_examples
    return {"bucket": largest, "gain": gain, "action": actions[largest]}
    ### END SOLUTION

# %% [markdown]
# **Question.** Your two largest buckets hold 32 and 28 of 100 mistakes that were looked at. A friend
# says: the first is the larger lever, let us start there. What do you answer? Think of how many
# mistakes were counted and of what each intervention costs. Three sentences.

# %% [markdown] nbgrader={"grade": true, "grade_id": "larger-lever", "locked": false, "points": 2, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# With 100 mistakes counted, a share of 32 % has a half-width of about 9 points, so 32 and 28 cannot
# be told apart. The cheaper intervention comes first, and both are ceilings: no intervention fixes a
# whole bucket. More mistakes should be counted if the choice is expensive.
# ### END SOLUTION

# %% [markdown]
# ## Twelve climbs to read
#
# Twelve set-ups of the bug museum, each broken in one place. Choose a case, play its climb, and say from the
# rung and from the curve of one batch what is broken. Then tick *name the bug*, and *fix* it.

# %%
from course.widgets import DebugLadder

DebugLadder(named=False)

# %% [markdown]
# A level line and weights that do not move: no step arrives. A plateau: the model or the loss cannot go lower. A
# curve that only falls late: part of the model does not learn, and case 12 shows that all rungs may pass
# with it.

# %% [markdown]
# ## A broken project
#
# Here is a project with four faults. Run the ladder, fix what it stops at *in the cell of the project*, run
# all three cells again: rung by rung to the top. Nothing is graded here; keep a note of each symptom for
# the post-mortem below.

# %%
hunt = FaultHunt(4)

# %%
def broken_project():
    model = make_model()
    model.append(nn.Softmax(dim=1))
    order = data.train_targets.argsort()
    rows = torch.utils.data.Subset(data.train_dataset, order.tolist())
    loader = torch.utils.data.DataLoader(rows, batch_size=64)
    optimizer = torch.optim.SGD(model[1].parameters(), lr=1e-6)
    return dict(model=model, loss_fn=nn.CrossEntropyLoss(), optimizer=optimizer,
                train_loader=loader, val_loader=val_loader, num_classes=10)

# %%
report = hunt.climb(broken_project(), epochs=5)
report

# %%
print(hunt)

# %% [markdown]
# `course.debug.climb` and `course.debug.diagnose` take your own set-ups as well. When a run of yours
# does not learn: climb first, and fix the lowest rung.

# %% exercise 03b.postmortem

# %% [markdown]
# ## What to keep
#
# - Ask in the ladder's order: data, baseline, one batch, small subset, rate, full run, errors.
# - Fix the lowest rung that fails; what is above it shows the same fault in a more confusing way.
# - A loss that stops at a *number* (2.30, 1.46) says more than one that stops somewhere.
# - Before an intervention: how many mistakes can it reach, and what does it cost?
#
# **Read on:** Lecture 3, "The debug ladder" and "Error analysis"; `course museum` in a terminal, one exhibit
# per bug; [course/debug/ladder.py](../course/debug/ladder.py).
#
# **Challenge, ungraded.** Plant a bug in `planted_step` that `climb` passes and `diagnose` does not name, and
# that costs at least ten points of accuracy. Say what would have caught it.

# %%
scorecard("03b-debug-ladder")
