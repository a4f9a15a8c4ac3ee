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
# A run that does not learn rarely says why. The ladder asks questions in an order in which every answer
# can be trusted: data, dumb baseline, one batch, a small subset, the learning rate, the full run, the
# errors. **Fix the lowest rung that fails; the rungs above it only show the same fault in a more
# confusing way.** You will climb it once by hand, fix two planted bugs, and finally repair a broken
# project.
#
# The lecture, its essay and the engineering module are the texts behind this course. A code such as F99 or
# T21 names an item in them: in a terminal, `course ledger T21` says which one, `course claims F99` tests a
# claim, and `course museum B08` shows a bug.
#
# *Read a question, replace the `...` in its `guess` with your answer, then run the cell below it. You can
# run any cell again. Stuck? `hint("03b.baseline")` gives three hints, and `failing("03b.baseline")` shows
# the smallest failing case.*

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

device = choose_device()  # a GPU if there is one; data and models go there
data = load("digits").to(device)
train_loader, val_loader = data.loaders(batch_size=64)
print(data)

# %%
student("")  # your name or id, as you hand in

# %% [markdown]
# ## Rung 1 · Inspect the data
#
# A colleague sends you two batches: in `torn`, one pixel is `inf`; in `renamed`, one label is 10. Inspect
# them before any model sees them. **Guess:** one of them raises an error, and one silently makes the loss
# `nan` in the first step. Which one is silent?

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
# On the CPU the label raises an error. On a GPU the error comes late and does not say which label it was,
# and nothing more runs on that GPU until you restart the kernel. The `inf` raises nothing at all, but after
# one step every weight is `nan`.
#
# So check four things before the first step. Do inputs and targets have the same length? Are the targets
# `torch.long`? Is every input finite? Does every label lie between 0 and C − 1 (C classes)?

# %% exercise 03b.inspect-batch
# Return the name of every fault you find: `"sizes"` (inputs and targets have different lengths),
# `"dtype"` (targets are not `torch.long`), `"non-finite"` (an input is inf or nan), `"labels"` (a label
# is outside 0 … C − 1). For a sound batch, return an empty list.
def inspect_batch(inputs, targets, num_classes):
    """Names of the faults of one batch, which is not changed.

    Args:
        inputs: [B, ...], of any float dtype, B at least 1.
        targets: Class indices [B'], which should be torch.long, with B' = B; always whole numbers,
            B' at least 1.
        num_classes: The number of classes, C.

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
    assert inspect_batch(inputs, targets, 10) == [], "this batch has no fault"

# %% [markdown]
# Every batch can be sound while the split is wrong. All rows from one person, one writer or one patient
# belong on the same side. Otherwise validation tests the model on people it has already seen, and the
# accuracy looks better than it is.

# %% exercise 03b.split-by-group
# The groups are given in the order in which they were drawn. Put whole groups into validation until it
# holds at least its share of the *examples*; the rest is for training.
def split_by_group(groups, order, val_share):
    """Indices of training and validation, with no group on both sides.

    Args:
        groups: The group of each example [N], long.
        order: A list of ints, which is not changed: the groups in the order in which validation
            takes them.
        val_share: The minimum share of the examples for validation; if it is 0, validation takes
            no group.

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
# What is the best answer you can give without looking at the input? In a data set of 95 % cats, a model
# that is right 95 % of the time may have learned nothing. **Guess:** if you always answer the most common
# of the ten digits, how often are you right, as a fraction from 0 to 1?

# %%
guess("03b.baseline", ...)

# %% exercise 03b.baseline
# Find the most common class in the training set, and how often it is right on validation.
def dumb_baseline(train_targets, val_targets):
    """The most common training class, and how often it is right on validation.

    Args:
        train_targets: Class indices [N]; some classes may be missing, and one class is more
            common than any other.
        val_targets: Class indices [M].

    Returns:
        (the class, an int; its accuracy on validation, a float between 0 and 1): both may also be
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
# A loop that cannot memorise one batch cannot learn anything, and most bugs are caught here. But the test
# must not be too easy: a batch of *one class* is "learned" by always answering that class.

# %% exercise 03b.overfit-batch
# Take the first batch with at least two classes, and use it in every step. Return the losses.
def overfit_one_batch(model, batches, criterion, optimizer, steps):
    """Train on the same batch in every step.

    Args:
        model: Is in train mode and stays in it; without gradients; returns logits [B, C].
        batches: A list of pairs of inputs and targets, which is not changed; at least one of them
            holds two classes.
        criterion: Any mean-reduced loss of logits and targets.
        optimizer: Any optimizer of the model's parameters. Weights, buffers, .grad and its state
            may change, and nothing else.
        steps: The number of updates, each from one forward pass.

    Returns:
        The losses that the steps were computed from, a list of `steps` floats
        (not tensors with a graph).
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
    assert healthy[-1] < 0.05, "rung 3: the model cannot memorise one batch"

# %% [markdown]
# ### A planted bug: the plateau
#
# Here are the same model and the same batch with a different step: its loss falls from 2.30 to about 1.5
# and stays there. Read the code of the step. **Guess** before you see the curve: is the rate too small,
# is no step made, or can the loss fall no further?

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
planted = [planted_step(model, *batches[0], optimizer) for _ in range(120)]

# %%
figure, axis = plt.subplots(figsize=(5, 3))
if ready(overfit_one_batch):
    axis.plot(healthy, label="healthy", color="#0072b2")
axis.plot(planted, "--", label="planted", color="#d55e00")
axis.axhline(1.4612, color="#7f7f7f", linestyle=":", label="ln(1 + 9/e)")
axis.set(xlabel="step", ylabel="loss of the batch", ylim=(0, 2.5))
axis.legend();

# %% [markdown]
# A rate that is too small gives a straight, slowly falling line; without any step the line is flat at ln
# 10 = 2.30. This curve falls and then levels off, far from 0. Even if the right class has probability 1,
# a *second* softmax sees a one and nine zeros, so with ten classes the loss cannot go below ln(1 + 9/e) =
# 1.46.

# %% exercise 03b.plateau
# Fix the step. Everything else stays as it is; in particular, it still calls the model once.
def fixed_step(model, inputs, targets, optimizer):
    """The planted step without its bug.

    Args:
        model: Returns logits [B, C], which may lie hundreds apart (the loss is still finite); is
            in train or eval mode and stays in it.
        inputs: [B, ...].
        targets: Class indices [B].
        optimizer: Holds the model's parameters; an earlier step may have left gradients behind.

    Returns:
        The mean loss that the step was computed from, a float (not a tensor with a graph).
    """
    ### BEGIN SOLUTION
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()
    ### END SOLUTION

# %% [markdown]
# The doctor, `diagnose`, treats such a step as a black box and names the bug from its behaviour. It needs
# only your model, optimizer, data and loss.

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
# Train on five per cent of the examples for a minute: does the model beat the dumb baseline on
# validation? `climb` runs rungs 1 to 4 in one call and reports what it saw.

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
# Sweep the rate once, from far too small to far too large: first the loss is flat (too small to learn),
# then it falls, then it explodes. **Guess** from the sweep alone, before you see the suggestion: which
# rate would you take?

# %%
curve = lr_find(setup["model"], setup["loss_fn"], setup["optimizer"], train_loader)
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
# The lecture takes the rate a decade below the minimum of *one* sweep, but this varies by half a decade
# from seed to seed. `rule="decade"` uses the median of three sweeps, which is stable. A sweep gives each
# rate one or two updates, too few to show how it does over a run. So by default `lr_find` sweeps
# once, then trains briefly with five rates around the lecture's and longer with the best three (the green
# diamonds), and picks the lowest that trains as well as any: 300 updates.

# %% [markdown]
# Try rates yourself. Next to the sweep you see what loss each rate reaches after 40 updates. How far from
# the best rate does the lecture's rule land, with SGD and with Adam?

# %%
from course.widgets import RateFinder

RateFinder(optimizer="Adam", rate=0.003)

# %% [markdown]
# ### A planted bug: the curve that freezes
#
# This schedule is meant to multiply the rate by 0.3 after every fourth epoch. But the loss falls a little
# in the first epoch, and then nothing moves any more. **Guess** from the loop: what does the learning rate
# do?

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
frozen, criterion = make_model(), nn.CrossEntropyLoss()
sgd = torch.optim.SGD(frozen.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(sgd, step_size=4, gamma=0.3)

# %%
lrs, losses = [], []
for epoch in range(11):  # epoch 0: before training
    if epoch > 0:
        lrs += planted_fit(frozen, train_loader, criterion, sgd, scheduler, 1)
    with torch.no_grad():
        losses.append(criterion(frozen(data.train_inputs), data.train_targets).item())

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.plot(range(11), losses, "o-", color="#0072b2")
left.set(xlabel="epoch", ylabel="training loss after the epoch", ylim=(0, 2.4))
right.plot(range(1, 11), lrs, "o-", color="#d55e00")
right.set(xlabel="epoch", ylabel="learning rate", yscale="log")
reveal("03b.frozen-rate", "falls" if lrs[-1] < 0.01 * lrs[0] else "same")

# %% [markdown]
# The schedule counts *epochs* but is moved 23 times in each. The rate was meant to drop to 0.3 of its
# first value after four epochs; instead it does so after four batches, and after two epochs it is down to
# a millionth.

# %% exercise 03b.early-freeze
# Fix the loop, and return the learning rate that each epoch was trained with.
def fixed_fit(model, loader, criterion, optimizer, scheduler, epochs):
    """The planted loop without its bug.

    Args:
        model: Is in train mode and stays in it.
        loader: A list of pairs of inputs and targets.
        criterion: Any mean-reduced loss of logits and targets.
        optimizer: Any optimizer of the model's parameters.
        scheduler: Counts epochs; may already have counted some.
        epochs: The number of epochs.

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
# ## Rung 6 · The full run, with regularisation
#
# Now train in full, with the weight decay and the rate of rung 4, and use the validation loss to find the
# best epoch. Then read the curves: underfit, sweet spot or overfit? (Rung 5's rate was chosen in short
# runs. Over twelve epochs, a constant rate that large lets the losses jump; try it.)

# %%
model = make_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, seed=3, device=device)
history = trainer.fit(train_loader, val_loader, epochs=12)
accuracy = history.best["val_accuracy"]
if ready(dumb_baseline):
    print(f"validation accuracy {accuracy:.1%}, baseline {bar:.1%}")
    assert accuracy > bar + 0.5, "rung 6: hardly better than the baseline"
reading = read_curves(history)
reading.plot()

# %%
reading

# %% [markdown]
# ## Rung 7 · The errors
#
# Count before you act, and look before you count. These are our own model's mistakes on validation, each
# with the true digit and the predicted one. They are too few to sort; in 3f there are more.

# %%
with torch.no_grad():
    predicted = model(data.val_inputs).argmax(dim=1)
misread = (predicted != data.val_targets).nonzero().flatten().tolist()
figure, axes = plt.subplots(1, max(2, min(8, len(misread))), figsize=(9, 1.6))
for axis, row in zip(axes, misread, strict=False):
    axis.imshow(data.val_inputs[row, 0].cpu(), cmap="gray_r")
    axis.set_title(f"{data.val_targets[row]} read as {predicted[row]}", fontsize=10)
for axis in axes:
    axis.set_axis_off()

# %%
pairs = [f"{data.val_targets[row]} read as {predicted[row]}" for row in misread]
for pair in sorted(set(pairs), key=pairs.count, reverse=True):
    print(f"{pair}: {pairs.count(pair)} of {len(pairs)} mistakes")

# %% [markdown]
# Sort the mistakes into buckets, so that one intervention could empty a bucket (here: which digit is read
# as which). Then compute the most that this intervention can gain, in points of accuracy: 100 × mistakes
# in the bucket / *all* examples.

# %% exercise 03b.next-intervention
# Somebody has looked at a model's mistakes and put each one into a bucket; `"?"` marks those not looked
# at yet, which belong to no bucket. Return the largest bucket, the most that fixing its mistakes can gain,
# and what helps against it.
def next_intervention(buckets, num_examples, actions):
    """The largest named bucket, the most it can gain, and what to do about it.

    Args:
        buckets: The bucket of each mistake, a list of names, which is not changed; "?" where
            nobody has looked yet. Among the names other than "?", one occurs most often.
        num_examples: The number of validation examples, both right and wrong.
        actions: A dictionary: for each bucket's name, what helps against it.

    Returns:
        {"bucket": name, "gain": points of accuracy if all mistakes counted in it were fixed, not
        rounded, "action": text}.
    """
    ### BEGIN SOLUTION
    named = [bucket for bucket in buckets if bucket != "?"]
    largest = max(set(named), key=named.count)
    gain = 100 * named.count(largest) / num_examples
    return {"bucket": largest, "gain": gain, "action": actions[largest]}
    ### END SOLUTION

# %% [markdown]
# **Question larger-lever · which bucket first**  
# ●●○ · 5 min · 2 points, read by a person
#
# Your two largest buckets hold 32 and 28 of 100 mistakes that were looked at. A friend
# says: the first is the larger lever, so let us start there. What do you answer? Think about how many
# mistakes were counted (the 95 % interval of a share p of n extends about 1.96 √(p(1 − p)/n) to each
# side) and what each intervention costs. Answer in three sentences.

# %% [markdown] nbgrader={"grade": true, "grade_id": "larger-lever", "locked": false, "points": 2, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# With 100 mistakes counted, a share of 32 % has a half-width of about 9 points, so 32 and 28 cannot
# be told apart. The cheaper intervention comes first, and both are ceilings: no intervention fixes a
# whole bucket. More mistakes should be counted if the choice is expensive.
# ### END SOLUTION

# %% [markdown]
# ## Twelve climbs to read
#
# Here are twelve set-ups from the bug museum, each broken in one place. Choose a case, play its climb,
# and work out what is broken from the rung and from the curve of one batch. Then tick *name the bug*, and
# *fix* it.

# %%
from course.widgets import DebugLadder

DebugLadder(named=False)

# %% [markdown]
# A flat line and weights that do not move mean that no step reaches them. A plateau means that the model
# or the loss cannot go lower. A curve that falls only late means that part of the model does not learn;
# case 12 shows that all rungs may still pass.

# %% [markdown]
# ## A broken project
#
# This project has four faults. Run the ladder, fix the fault it stops at *in the cell of the project*,
# and run all three cells again, rung by rung, until you reach the top. Nothing is graded here, but note
# each symptom for the post-mortem below.

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
# `course.debug.climb` and `course.debug.diagnose` also accept your own set-ups. When one of your runs
# does not learn, climb first, and fix the lowest rung that fails.

# %% exercise 03b.postmortem

# %% [markdown]
# ## What to keep
#
# - Ask in the ladder's order: data, baseline, one batch, small subset, rate, full run, errors.
# - Fix the lowest rung that fails; the rungs above it show the same fault in a more confusing way.
# - A loss that stops at a *known number* (2.30, 1.46) tells you more than one that stops just anywhere.
# - Before an intervention, ask how many mistakes it can fix, and what it costs.
#
# **Read on:** Lecture 3, "The debug ladder" and "Error analysis"; `course museum` in a terminal, one exhibit
# per bug; [course/debug/ladder.py](../course/debug/ladder.py).
#
# **Challenge, ungraded.** Plant a bug in `planted_step` that passes `climb`, that `diagnose` cannot name,
# and that costs at least ten points of accuracy. What would have caught it?

# %%
scorecard("03b-debug-ladder")
