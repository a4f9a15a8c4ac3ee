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
# **Mend the lowest rung that fails; what is above it only shows the same fault in a more confusing
# way.** You climb it once by hand, mend two planted bugs, and end with a broken project.
#
# *Read a question, make a guess, then run the cell below it. Every cell may be run twice.*

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F

from autograde import check
from course.analysis.curves import read_curves
from course.data import load
from course.debug import climb, diagnose
from course.engine import Trainer, seed_everything

# %%
from course.lr_finder import lr_find

data = load("digits")
train_loader, val_loader = data.loaders(batch_size=64)
print(data)

# %% [markdown]
# ## Rung 1 · Inspect the data
#
# Two batches come from a colleague. Look at them before any model does. **Guess:** which of them makes
# the loss `nan` in the first step, and which one raises?

# %%
inputs, targets = next(iter(train_loader))
torn, renamed = inputs.clone(), targets.clone()
torn[17, 0, 3, 3] = float("inf")
renamed[5] = 10
print("sound  ", inputs.min().item(), inputs.max().item(), targets.unique().tolist())
print("torn   ", torn.min().item(), torn.max().item(), torn.mean().item())
print("renamed", renamed.unique().tolist())

# %%
probe = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
print("torn:    loss", nn.functional.cross_entropy(probe(torn), targets).item())
try:
    nn.functional.cross_entropy(probe(inputs), renamed)
except IndexError as fault:
    print("renamed:", fault)

# %% [markdown]
# The label raises on the CPU; on a GPU the same label ends the whole process, without saying which. The
# `inf` says nothing at all: every weight is `nan` after one step.

# %% [markdown]
# Write the inspection. Name every fault that you find, in these words: `"sizes"` (inputs and targets
# are not as many), `"dtype"` (targets are no `torch.long`), `"non-finite"` (a value is inf or nan),
# `"labels"` (a label outside 0 … C − 1). A sound batch gives an empty list.

# %% nbgrader={"grade": false, "grade_id": "inspect-batch", "locked": false, "schema_version": 3, "solution": true, "task": false}
def inspect_batch(inputs, targets, num_classes):
    """Names of the faults of one batch.

    Args:
        inputs: [B, ...], float.
        targets: Class indices [B'], which should be as many and torch.long.
        num_classes: C.

    Returns:
        A list of "sizes", "dtype", "non-finite", "labels"; empty for a sound batch.
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

# %% nbgrader={"grade": true, "grade_id": "inspect-batch-check", "locked": true, "points": 3.5, "schema_version": 3, "solution": false, "task": false}
check("03b.inspect-batch", inspect_batch)

# %% nbgrader={"grade": true, "grade_id": "inspect-batch-hidden", "locked": true, "points": 0.5, "schema_version": 3, "solution": false, "task": false}
# More cases of 03b.inspect-batch are tried here when the notebook is graded.
### BEGIN HIDDEN TESTS
check("03b.inspect-batch", inspect_batch, parts="hidden")
### END HIDDEN TESTS

# %%
print(inspect_batch(torn, targets, 10), inspect_batch(inputs, renamed, 10))
assert inspect_batch(inputs, targets, 10) == [], "the sound batch is sound"

# %% [markdown]
# A batch can be sound and the split wrong. Rows of one person, one writer, one patient belong on one
# side: else validation asks about people whom the model has met. Groups come in the order in which they
# were drawn; take whole groups into validation until it holds at least its share of the *examples*.

# %% nbgrader={"grade": false, "grade_id": "split-by-group", "locked": false, "schema_version": 3, "solution": true, "task": false}
def split_by_group(groups, order, val_share):
    """Indices of training and validation, no group on both sides.

    Args:
        groups: Group of each example [N], long.
        order: The groups in the order in which validation takes them.
        val_share: Share of the examples that validation holds at least.

    Returns:
        (training indices, validation indices), both ascending.
    """
    ### BEGIN SOLUTION
    in_val = torch.zeros(len(groups), dtype=torch.bool, device=groups.device)
    for name in order:
        if in_val.double().mean() >= val_share:
            break
        in_val |= groups == name
    return torch.where(~in_val)[0], torch.where(in_val)[0]
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "split-by-group-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("03b.split-by-group", split_by_group)

# %% nbgrader={"grade": true, "grade_id": "split-by-group-hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# More cases of 03b.split-by-group are tried here when the notebook is graded.
### BEGIN HIDDEN TESTS
check("03b.split-by-group", split_by_group, parts="hidden")
### END HIDDEN TESTS

# %% [markdown]
# ## Rung 2 · The dumb baseline
#
# What is the best answer without looking at the input? In a data set of 95 % cats, a model that is
# right 95 % of the time has learned nothing. **Guess:** the baseline of ten digits.

# %% nbgrader={"grade": false, "grade_id": "baseline", "locked": false, "schema_version": 3, "solution": true, "task": false}
def dumb_baseline(train_targets, val_targets):
    """The most common training class, and how often it is right on validation.

    Args:
        train_targets: Class indices [N]; not every class needs to occur.
        val_targets: Class indices [M].

    Returns:
        (the class, its accuracy on validation between 0 and 1).
    """
    ### BEGIN SOLUTION
    label = train_targets.bincount().argmax()
    return label, (val_targets == label).double().mean()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "baseline-check", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check("03b.baseline", dumb_baseline)

# %% nbgrader={"grade": true, "grade_id": "baseline-hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# More cases of 03b.baseline are tried here when the notebook is graded.
### BEGIN HIDDEN TESTS
check("03b.baseline", dumb_baseline, parts="hidden")
### END HIDDEN TESTS

# %%
label, bar = dumb_baseline(data.train_targets, data.val_targets)
print(f"always {int(label)}: right in {bar:.1%} of the validation examples")

# %% [markdown]
# ## Rung 3 · Overfit one batch
#
# A loop that cannot learn one batch by heart cannot learn anything; most bugs fall here. But the rung
# must not pass for nothing: a batch of *one class* is "learned" by answering that class. Take the first
# batch with at least two classes, and stay with it.

# %% nbgrader={"grade": false, "grade_id": "overfit-batch", "locked": false, "schema_version": 3, "solution": true, "task": false}
def overfit_one_batch(model, batches, criterion, optimizer, steps):
    """Train on one and the same batch.

    Args:
        model: In train mode; gives logits [B, C].
        batches: A list of pairs of inputs and targets; the first may hold one class only.
        criterion: Mean-reduced loss of logits and targets.
        optimizer: Holds the model's parameters.
        steps: How many updates.

    Returns:
        The losses that the steps were computed from, a list of `steps` floats.
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

# %% nbgrader={"grade": true, "grade_id": "overfit-batch-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("03b.overfit-batch", overfit_one_batch)

# %% nbgrader={"grade": true, "grade_id": "overfit-batch-hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# More cases of 03b.overfit-batch are tried here when the notebook is graded.
### BEGIN HIDDEN TESTS
check("03b.overfit-batch", overfit_one_batch, parts="hidden")
### END HIDDEN TESTS

# %%
def make_model():
    seed_everything(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


model, batches = make_model(), list(train_loader)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
healthy = overfit_one_batch(model, batches, nn.CrossEntropyLoss(), optimizer, 120)
print(f"loss {healthy[0]:.2f} to {healthy[-1]:.4f}")
assert healthy[-1] < 0.05, "rung 3: one batch is not learned"

# %% [markdown]
# ### A planted bug: the plateau
#
# The same model, the same batch, another step. **Guess** from the curve alone: too small a rate, no
# step at all, or a loss that cannot fall further? (Ten classes: ln(1 + 9/e) = 1.46.)

# %%
def planted_step(model, inputs, targets, optimizer):
    optimizer.zero_grad()
    probabilities = model(inputs).softmax(dim=1)
    loss = F.cross_entropy(probabilities, targets)
    loss.backward()
    optimizer.step()
    return loss.item()

# %%
model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
inputs, targets = batches[0]
planted = [planted_step(model, inputs, targets, optimizer) for _ in range(120)]
figure, axis = plt.subplots(figsize=(5, 3))
axis.plot(healthy, label="healthy", color="#0072b2")
axis.plot(planted, "--", label="planted", color="#d55e00")
axis.axhline(1.4612, color="#7f7f7f", linestyle=":", label="ln(1 + 9/e)")
axis.set(xlabel="step", ylabel="loss of the batch", ylim=(0, 2.5))
axis.legend();

# %% nbgrader={"grade": false, "grade_id": "plateau", "locked": false, "schema_version": 3, "solution": true, "task": false}
def mended_step(model, inputs, targets, optimizer):
    """The planted step without its bug.

    Args:
        model: Gives logits [B, C].
        inputs: [B, ...].
        targets: Class indices [B].
        optimizer: Holds the model's parameters; gradients of somebody else may be left.

    Returns:
        The mean loss that the step was computed from, a float.
    """
    ### BEGIN SOLUTION
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "plateau-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("03b.plateau", mended_step)

# %% nbgrader={"grade": true, "grade_id": "plateau-hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# More cases of 03b.plateau are tried here when the notebook is graded.
### BEGIN HIDDEN TESTS
check("03b.plateau", mended_step, parts="hidden")
### END HIDDEN TESTS

# %% [markdown]
# The doctor watches such a step as a black box and names the bug from what it sees. It needs nothing
# but your parts.

# %%
model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
setup = dict(model=model, optimizer=optimizer, train_loader=train_loader,
             loss_fn=lambda out, y: F.cross_entropy(out.softmax(dim=1), y))
report = diagnose(setup)
print(report.findings[0].id, "-", report.findings[0].message)

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
# One sweep from far too small to far too large. **Guess** from the picture before you read the
# suggestion: where is the rate too small to learn, where does it explode?

# %%
curve = lr_find(model, setup["loss_fn"], setup["optimizer"], train_loader)
print(curve.suggestion)
curve.plot()

# %% [markdown]
# The lecture reads the rate a decade before the minimum of *one* sweep. One sweep is one throw of the
# dice: its minimum wanders by half a decade from seed to seed. `lr_find` reads the same rule off the
# median of three sweeps, which holds still (`rule="decade"`), and does not stop there: a sweep gives
# each rate one or two updates, too few to see what a rate is worth over a run. So it trains for 100
# updates with nine rates around the lecture's, from the same weights on the same batches (the green
# diamonds), and takes the lowest that trains as well as any.
#
# ### A planted bug: the curve that freezes
#
# A schedule that multiplies the rate by 0.3 after every fourth epoch; the loss falls for one epoch, and
# then nothing moves any more. **Guess:** what does the learning rate do?

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
print("learning rate of each epoch:", " ".join(f"{lr:.0e}" for lr in lrs))
print("training loss after it:     ", " ".join(f"{loss:.3f}" for loss in losses))

# %% [markdown]
# The schedule counts *epochs* and is moved 23 times in each: the rate that was meant to be 0.3 of the
# first after four epochs is that after four batches, and a millionth of it after two epochs. Mend the
# loop; return the rates with which the epochs were trained.

# %% nbgrader={"grade": false, "grade_id": "early-freeze", "locked": false, "schema_version": 3, "solution": true, "task": false}
def mended_fit(model, loader, criterion, optimizer, scheduler, epochs):
    """The planted loop without its bug.

    Args:
        model: In train mode.
        loader: A list of pairs of inputs and targets.
        criterion: Mean-reduced loss of logits and targets.
        optimizer: Holds the model's parameters.
        scheduler: Counts epochs.
        epochs: How many.

    Returns:
        The learning rate of each epoch, a list of floats.
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

# %% nbgrader={"grade": true, "grade_id": "early-freeze-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("03b.early-freeze", mended_fit)

# %% nbgrader={"grade": true, "grade_id": "early-freeze-hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# More cases of 03b.early-freeze are tried here when the notebook is graded.
### BEGIN HIDDEN TESTS
check("03b.early-freeze", mended_fit, parts="hidden")
### END HIDDEN TESTS

# %% [markdown]
# ## Rung 6 · The full run, with something that holds overfitting back
#
# Weight decay, and the best epoch is known by its validation loss. Then the curves are read: underfit,
# sweet spot or overfit? The rate stays the 3e-3 that has climbed the rungs below: one change at a time.

# %%
model = make_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, seed=3)
history = trainer.fit(train_loader, val_loader, epochs=12)
accuracy = history.best["val_accuracy"]
print(f"validation accuracy {accuracy:.1%}, baseline {bar:.1%}")
assert accuracy > bar + 0.5, "rung 6: hardly better than not looking"
read_curves(history)

# %% [markdown]
# ## Rung 7 · The errors
#
# Count before acting. Somebody has looked at the mistakes of a model and put each into a bucket; `"?"`
# marks those not looked at yet. What is the most that one intervention can give? In points of accuracy:
# 100 × mistakes of the bucket / *all* examples.

# %% nbgrader={"grade": false, "grade_id": "next-intervention", "locked": false, "schema_version": 3, "solution": true, "task": false}
def next_intervention(buckets, num_examples, actions):
    """The largest bucket with a name, the ceiling of its gain, what to do about it.

    Args:
        buckets: The bucket of each mistake, a list of names; "?" where nobody has looked yet.
        num_examples: Validation examples, right ones and wrong ones.
        actions: What helps against a bucket, by its name.

    Returns:
        {"bucket": name, "gain": points of accuracy if all of it were mended, "action": text}.
    """
    ### BEGIN SOLUTION
    named = [bucket for bucket in buckets if bucket != "?"]
    largest = max(set(named), key=named.count)
    gain = 100 * named.count(largest) / num_examples
    return {"bucket": largest, "gain": gain, "action": actions[largest]}
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "next-intervention-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("03b.next-intervention", next_intervention)

# %% nbgrader={"grade": true, "grade_id": "next-intervention-hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# More cases of 03b.next-intervention are tried here when the notebook is graded.
### BEGIN HIDDEN TESTS
check("03b.next-intervention", next_intervention, parts="hidden")
### END HIDDEN TESTS

# %% [markdown]
# **Question.** Your two largest buckets hold 32 and 28 of 100 mistakes that were looked at. A friend
# says: the first is the larger lever, let us start there. What do you answer? Think of how many
# mistakes were counted and of what each intervention costs. Three sentences.

# %% [markdown] nbgrader={"grade": true, "grade_id": "larger-lever", "locked": false, "points": 2, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# With 100 mistakes counted, a share of 32 % has a half-width of about 9 points, so 32 and 28 cannot
# be told apart. The cheaper intervention comes first, and both are ceilings: no intervention mends a
# whole bucket. More mistakes should be counted if the choice is dear.
# ### END SOLUTION

# %% [markdown]
# ## A broken project
#
# Here is a project with more than one fault. Run the ladder, mend the rung at which it stops *in the
# cell below*, run it again: rung by rung to the top. Nothing is graded here; the last line tells whether
# you are through.

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
report = climb(broken_project(), epochs=5)
report

# %%
print("through!" if report.passed else f"next: rung {report.failed.number}")

# %% [markdown]
# `course.debug.climb` and `course.debug.diagnose` take your own set-ups as well. When a run of yours
# does not learn: climb first, and mend the lowest rung.
