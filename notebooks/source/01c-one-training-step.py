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
# # 1c · One training step
#
# Training is one step, repeated. You will do that step on paper, then in code without autograd,
# then in torch. You will put its lines in the wrong place to see what breaks, and then debug a
# script with five bugs: fix one, look for the next symptom, and keep a log.
#
# *Read each question, make a guess, then run the cell below it. Any cell can be run again. Stuck?
# `hint("01c.one-update")` gives three hints, `failing("01c.one-update")` the smallest failing case.*
#
# *The lecture, its chapter on training loops and its engineering module make the claims that are
# tested here; you need not know them. A code such as N09 or F28 names an item in them: in a
# terminal, `course ledger N09` says which one, and `course claims F28` tests a claim.*

# %%
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import nn

from autograde import ask, check, failing, guess, hint, ready, reveal, scorecard, student
from course import worked
from course.data import load
from course.debug.orders import train_in_order
from course.plots.one_step import plot_runs, plot_touched
from course.widgets import StepAnatomy

# %%
from course.engine import choose_device

device = choose_device()  # a GPU where there is one: data and models go there

# %% [markdown]
# Enter your name as your instructor knows it. Some exercises draw their numbers from it, so yours
# are your own.

# %%
student("")

# %% [markdown]
# ## 1c.1 Six operations
#
# `zero_grad()` clears the gradients, the model computes outputs, the criterion turns them into one
# number, `backward()` computes gradients, `step()` applies the optimizer's rule, and the schedule sets the
# next learning rate. Walk through an update, and watch the column of tensors rather than the code.

# %%
StepAnatomy()

# %% [markdown]
# Each line changes only a few tensors. **Guess** before you see the table: how many of the six
# operations change a weight?

# %%
guess("01c.moving", ...)

# %%
from course.widgets.anatomy.state import touched

table = touched()
plot_touched(table)

# %%
reveal("01c.moving", sum(row["weight"] == "changed" for row in table.values()))

# %% [markdown]
# Only one. `backward()` fills `.grad` and leaves the weights alone; `step()` moves the weights and
# leaves `.grad` alone, so it is still there when the next update begins. Both facts will come back
# as bugs below.

# %% exercise 01c.what-changed
# You see what was different after a line, but not the line itself. Which operation was it?

# %% [markdown]
# ## 1c.2 On paper
#
# Take a layer with two outputs, weights [[0.5, −0.3], [0.2, 0.8]] and bias 0, and one example [1,
# 2] with the target [1, 0]. The loss is *half* the sum of the squared errors, ½ Σ (y − t)²; the
# optimizer is plain SGD with learning rate 0.01. Follow the numbers with a pencil.

# %%
worked.compute("N09")

# %% [markdown]
# Row 0 of the gradient is residual 0 (an output minus its target) times the input, and the gradient
# of the bias is the residual itself. Now repeat the step at other learning rates. **Guess:** above
# which rate does the loss of this one example grow instead of falling?

# %%
guess("01c.limit", ...)

# %%
def losses_at(lr, steps=12):
    weight, bias = torch.tensor([[0.5, -0.3], [0.2, 0.8]]), torch.zeros(2)
    inputs, targets, losses = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0]), []
    for _ in range(steps + 1):
        error = weight @ inputs + bias - targets
        losses.append(0.5 * error.square().sum().item())
        weight, bias = weight - lr * torch.outer(error, inputs), bias - lr * error
    return losses

# %%
rates = (0.01, 0.1, 0.3, 0.35)
plot_runs({f"lr = {lr}": losses_at(lr) for lr in rates}, ylabel="loss", log=True, first=0)

# %%
second = {step.what: step.computed for step in worked.compute("N10").steps}
print(f"lr = 0.01: the loss after one step is {second['loss after one step']:.5f}")
reveal("01c.limit", second["stable for lr below"])

# %% [markdown]
# The lines are straight on a logarithmic axis: each step multiplies the loss by the same factor. It
# multiplies the residuals by 1 − lr · (1² + 2² + 1), where the last 1 is for the bias. Once that is
# below −1, each step overshoots further than the last. Now try it with your own numbers.

# %% exercise 01c.second-loss
### BEGIN SOLUTION
from course.worked.one_step import on_paper

second_loss = on_paper(**dict(q))
### END SOLUTION

# %% [markdown]
# ## 1c.3 Half a sum, or a mean?
#
# The chapter on training loops writes half the sum of the squared errors but calls `MSELoss`, which
# is a mean. With two outputs these are the same number. **Guess:** with `MSELoss(reduction="sum")`
# instead, how many times as long is the gradient here?

# %%
guess("01c.sum", ...)

# %%
rules = {step.what: step.computed for step in worked.compute("N11").steps}
reveal("01c.sum", rules["gradient of 'sum' / gradient of 'mean'"][0])

# %%
worked.compute("N11")

# %% [markdown]
# So `reduction` is a learning rate in disguise. With ten outputs, or a batch of 64, half the sum and
# the mean are no longer the same: a learning rate that suits the mean is far too large for half the
# sum, and one that suits half the sum is far too small for the mean.

# %% exercise 01c.step-by-hand
# Write the step without autograd, for any batch size and any number of outputs. The slope of a mean
# of squares is 2 · error, divided by the number of squares.
def step_by_hand(weight, bias, inputs, targets, lr):
    """One step of SGD on the mean squared error of a linear layer, by matrix arithmetic.

    The outputs are inputs · weightᵀ + bias. The layer's two tensors are moved in place; nothing
    else changes. Do not use autograd.

    Args:
        weight: [outputs, features], float32 or float64, without requires_grad; moved in place.
        bias: [outputs], likewise.
        inputs: [B, features], a batch of B examples.
        targets: [B, outputs].
        lr: The learning rate, a float.

    Returns:
        The loss before the step, the mean of all B · outputs squared errors: a float, or a
        one-element tensor without a graph.
    """
    ### BEGIN SOLUTION
    error = inputs @ weight.T + bias - targets
    slope = 2 * error / error.numel()
    weight -= lr * slope.T @ inputs
    bias -= lr * slope.sum(dim=0)
    return error.square().mean().item()
    ### END SOLUTION

# %% [markdown]
# Is that enough to read digits? There are 64 pixels and ten outputs, and the target is 1 for the
# right digit and 0 for the others. Here is your function, called three hundred times on the whole
# training set:

# %%
data = load("digits").to(device)
inputs, labels = data.train_inputs.flatten(1), data.train_targets
targets = nn.functional.one_hot(labels, 10).float()
weight, bias = torch.zeros(10, 64, device=device), torch.zeros(10, device=device)
if ready(step_by_hand):
    losses = [step_by_hand(weight, bias, inputs, targets, 0.2) for _ in range(300)]
    said = (data.val_inputs.flatten(1) @ weight.T + bias).argmax(dim=1)
    print(f"validation accuracy {(said == data.val_targets).float().mean():.1%}")
    display(plot_runs({"step_by_hand": losses}, ylabel="mean squared error", log=True))

# %% [markdown]
# ## 1c.4 In torch
#
# Now the same step for any model. While it runs, three numbers are worth logging: the loss, the
# learning rate, and the **norm of the gradient**, its length if all `.grad` are joined into one
# vector. **Guess:** a weight's gradient has norm 3, and a bias's has norm 4. What is the norm of
# both together?

# %%
guess("01c.joined", ...)

# %%
joined = torch.cat([torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])])
reveal("01c.joined", joined.norm().item())
worked.compute("N56")

# %% [markdown]
# The engineering module prints the *sum* of the tensors' norms, which is a third too large in its
# own example, and would be even larger with more tensors (F42, `course claims F42`). Squares add
# up; norms do not.

# %% exercise 01c.one-update
# Do all six operations, and report on them. The model comes in train mode; gradients from an
# earlier update may still be there, and a frozen parameter has `.grad = None` (not all are frozen).
# What `.grad` holds after the update is up to you.
def one_update(model, inputs, targets, criterion, optimizer, scheduler):
    """One update: clear, forward, loss, backward, step, schedule.

    Args:
        model: Returns logits [B, classes] for inputs [B, ...], a batch of B examples.
        inputs, targets: One batch; targets are class indices [B].
        criterion: Any loss of logits and targets that returns one number.
        optimizer: Any optimizer of the model's parameters; it may have several groups, and its
            step() may clear the gradients. It needs no closure.
        scheduler: It counts updates: one scheduler.step() per update, after the weights have moved.

    Returns:
        {"loss": the number that backward() started from,
         "grad_norm": the norm of all gradients as one vector, as optimizer.step() found them,
         "lr": the learning rate of the first group, which this update used}: floats, or
        one-element tensors without a graph.
    """
    ### BEGIN SOLUTION
    optimizer.zero_grad()
    loss = criterion(model(inputs), targets)
    loss.backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    norm = torch.stack([grad.square().sum() for grad in grads]).sum().sqrt()
    lr = optimizer.param_groups[0]["lr"]
    optimizer.step()
    scheduler.step()
    return {"loss": loss.item(), "grad_norm": norm.item(), "lr": lr}
    ### END SOLUTION

# %%
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)).to(device)
optimizer, loss_of = torch.optim.SGD(model.parameters(), lr=0.5), nn.CrossEntropyLoss()
lrs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=150)
rows = [slice(64 * (i % 22), 64 * (i % 22) + 64) for i in range(150)]
if ready(one_update):
    log = [one_update(model, inputs[r], labels[r], loss_of, optimizer, lrs) for r in rows]
    names = {"loss": "loss", "grad_norm": "norm of the gradient", "lr": "learning rate"}
    curves = {names[key]: [line[key] for line in log] for key in names}
    display(plot_runs(curves, ylabel="", log=True))

# %% [markdown]
# Loss and norm fall together at first. The rate falls to 0 along half a cosine wave, whose end looks
# like a cliff on a logarithmic axis. When something goes wrong, the norm is usually the first of the
# three to show it, as the next section demonstrates.

# %% [markdown]
# ## 1c.5 A line in the wrong place
#
# `zero_grad()` has three legal places: before the forward pass, between it and `backward()`, and
# after `step()`. One wrong place looks just as tidy: between `backward()` and `step()`. **Guess:** if
# it is there, how far does the first update move the weights?

# %%
guess("01c.late-clear", ...)

# %%
RIGHT = ("clear", "forward", "loss", "backward", "step")
orders = {
    "right": RIGHT,
    "cleared after the step": ("forward", "loss", "backward", "step", "clear"),
    "cleared too late": ("forward", "loss", "backward", "clear", "step"),
    "never cleared": ("forward", "loss", "backward", "step"),
}
runs = {name: train_in_order(order, updates=200) for name, order in orders.items()}
reveal("01c.late-clear", runs["cleared too late"].moved[0])

# %% [markdown]
# Nothing is left for `step()` to use, in the first update or in any other. The lecture's table says
# that batches *accumulate* here, but that does not hold (F28). Now for the loop that never clears.
# **Guess:** what does the loss of a linear layer on digits do in 200 such updates?

# %%
guess("01c.never-cleared", ...)

# %%
plot_runs({name: run.losses for name, run in runs.items()}, ylabel="loss of the batch")

# %%
for name, run in runs.items():
    late = run.losses[100:]
    print(f"{name:23} second half: mean {sum(late) / 100:.2f}, highest {max(late):.2f}")
falls = sum(runs["never cleared"].losses[100:]) / 100 < 0.5
reveal("01c.never-cleared", "jumps" if falls else "explodes")

# %% [markdown]
# It falls, at first faster than in the right order, and ends about as low, but on single batches it
# jumps to several times that. A mean over an epoch would not give this bug away. Nor does the loss
# have to explode or end in nan, as the lecture says (F32): in our tests it did so only where the
# loss is unbounded, as a squared error is, or where momentum adds to the pile. So look at the other
# number, the norm.

# %%
plot_runs({name: runs[name].norms for name in ("right", "never cleared")},
          ylabel="norm of .grad at step()", log=True)

# %% [markdown]
# In the right order the norm falls with the loss. In the other it rises at once and stays high,
# because `.grad` is the sum over all batches so far, not one batch's slope. According to the
# chapter it grows without end, in proportion to the number of updates. For that, the gradient would
# have to stay constant:

# %% exercise 01c.uncleared
### BEGIN SOLUTION
uncleared = {
    "grad": q.n * q.g,
    "moved": q.lr * q.g * q.n * (q.n + 1) / 2,
    "ratio": (q.n + 1) / 2,
    "windows": q.lr * q.g * q.n * (q.k + 1) / 2,
}
### END SOLUTION

# %%
worked.compute("N58")

# %% [markdown]
# In a bowl the sum starts to swing back as soon as the weight has passed the bottom, so the weight
# neither settles nor explodes. Here are a line and a bowl, with a learning rate of 0.01 and nothing
# cleared:

# %%
def way(slope, updates=150, w=1.0):
    positions, grad = [w], 0.0
    for _ in range(updates):
        grad += slope(w)  # what backward() does
        w -= 0.01 * grad  # what step() does
        positions.append(w)
    return positions


bowl = {"bowl ½w²": way(lambda w: w), "a line, slope 0.02": way(lambda w: 0.02)}
plot_runs(bowl, ylabel="the weight w", first=0)

# %% [markdown]
# Last, put `step()` before `backward()`. With one layer there is no error, and each update uses the
# gradient of the batch before it; with a hidden layer torch refuses:

# %%
early = ("forward", "loss", "step", "clear", "backward")
linear, deep = (train_in_order(early, updates=3, hidden=hidden) for hidden in (0, 32))
print("one layer, moved:", [round(distance, 3) for distance in linear.moved])
print("with a hidden layer:", deep.error.partition(":")[0])

# %% [markdown]
# A step changes weights in place, but `backward()` needs them as they were in the forward pass.
# With one layer it needs only the inputs, so the mistake stays silent.

# %% [markdown]
# ## 1c.6 First move the model, then build the optimizer
#
# An optimizer holds *objects*: the parameters that it was given. Suppose Adam has taken a step in
# float32; then the model, and its batches, are converted to float64. **Guess:** what does the next
# step do?

# %%
guess("01c.double", ...)

# %%
def after_double(kind, steps_before):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = kind(model.parameters(), lr=0.1)
    for dtype in [torch.float32] * steps_before + [torch.float64]:
        before = model.to(dtype).weight.detach().clone()
        optimizer.zero_grad()
        model(torch.ones(1, 3, dtype=dtype)).sum().backward()
        optimizer.step()
    return f"moved by {(model.weight - before).norm():.2f}"

# %%
for kind, before in ((torch.optim.SGD, 0), (torch.optim.Adam, 0), (torch.optim.Adam, 1)):
    try:
        said = after_double(kind, before)
    except RuntimeError as error:
        said = f"raises: {error}"
    print(f"{kind.__name__}, {before} steps before: {said}")
reveal("01c.double", "raises" if "raises" in said else "trains")

# %% [markdown]
# Converting a model keeps the Parameter objects and changes the numbers inside them, so the
# lecture's "the optimizer updates dead tensors" does not hold (F16). But what an optimizer has
# *computed* is not converted with them: Adam's averages stay float32. And if a layer is replaced,
# its parameters are new objects.

# %%
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model[2] = nn.Linear(4, 5)  # a new head, for five classes
before = [p.detach().clone() for p in model.parameters()]
model(torch.ones(1, 3)).sum().backward()
optimizer.step()
moves = [(p - b).norm().item() for p, b in zip(model.parameters(), before, strict=True)]
print("moved by", [round(move, 3) for move in moves])

# %% [markdown]
# The new head has gradients but never moves, and no error is raised. Neither fault can occur if the
# model is complete, on its device and in its dtype before its optimizer is built. The lecture says
# that this order is always needed (F17); in our tests it mattered only in these two cases.

# %% exercise 01c.misplaced

# %% [markdown]
# ## 1c.7 A check that can fail
#
# Before you debug a script, ask one question: is this the Python environment that you think it is?
# The lecture's lab begins with a check that can never say no. Write one that can, for packages and
# their versions.

# %% exercise 01c.check-workspace
# `version_of(name)` returns the installed version as a string, e.g. `"2.11.0+cu128"`, and raises
# `PackageNotFoundError` if the package is not installed. `needs` gives the lowest version of each
# package that will do.
def check_workspace(needs, version_of):
    """What is wrong with the packages, by name; empty if nothing is.

    Versions are one to three numbers separated by dots, compared number by number: 2.10 is newer than
    2.9, and 2.11 is the same as 2.11.0. What follows a + in an installed version does not count.

    Args:
        needs: Lowest version by name, e.g. {"torch": "2.11", "numpy": "2.0"}.
        version_of: A function of a name; it may raise PackageNotFoundError.

    Returns:
        A dictionary: "missing" or "too old" by name, only for packages with a problem.
    """
    ### BEGIN SOLUTION
    def numbers(release):
        parts = [int(part) for part in release.split("+")[0].split(".")]
        return parts + [0] * (4 - len(parts))

    found = {}
    for name, least in needs.items():
        try:
            if numbers(version_of(name)) < numbers(least):
                found[name] = "too old"
        except PackageNotFoundError:
            found[name] = "missing"
    return found
    ### END SOLUTION

# %% [markdown]
# Try it on this notebook, and then make it fail, twice. A check that has never said no has not been
# tested.

# %%
if ready(check_workspace):
    print(check_workspace({"torch": "2.11", "numpy": "2.0"}, version))
    print(check_workspace({"torch": "99.0", "no-such-package": "1.0"}, version))

# %% [markdown]
# ## 1c.8 Five bugs
#
# Below is a whole script in one function: a model made of the layers that are passed in, a training
# loop, and a validation loss for each epoch. It has five bugs. Three stop it, one after the other;
# two do not. Read it first, without running it, then come back here. **Guess:** what does the first
# run raise?

# %%
guess("01c.first-symptom", ...)

# %% exercise 01c.five-bugs
# Fix one bug, run your function's cell, then the run below `observe`, note what you see, and only
# then fix the next one. Leave the check for the end: it names bugs before you have met them. The
# last two raise nothing: they show up in the norms, and in a run with a learning rate of 0. The
# layers come without gradients, the targets are class indices, and each loss is a mean over
# examples. Change as little as you can.

# %%
def observe(lr, epochs=3):
    torch.manual_seed(0)
    first, last, norms = nn.Linear(64, 32).to(device), nn.Linear(32, 10).to(device), []
    layers = [first, nn.ReLU(), nn.Dropout(0.5), last]
    note = lambda p: norms.append(p.grad.norm().item())  # noqa: E731
    last.weight.register_post_accumulate_grad_hook(note)
    batches = [(inputs[i:][:32], labels[i:][:32]) for i in range(0, 640, 32)]
    held_out = [(data.val_inputs.flatten(1), data.val_targets)]
    return debug_script(layers, batches, held_out, lr, epochs), norms

# %%
try:
    val_losses, norms = observe(lr=0.1)
    print("validation losses", [round(loss, 3) for loss in val_losses])
    print(f"norms: first {norms[0]:.2f}, last {norms[-1]:.2f}")
    print("with lr = 0:", [round(loss, 4) for loss in observe(lr=0.0)[0]])
except Exception as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# With a learning rate of 0 no weight moves, so if the validation loss differs from epoch to epoch,
# it is not because of the weights: dropout was on. Now back to your guess. Here is the first of the
# five bugs on its own:

# %%
class Forgetful(nn.Module):
    def __init__(self):
        self.layers = [nn.Linear(2, 2)]


try:
    list(Forgetful().parameters())
except Exception as error:
    print(f"{type(error).__name__}: {error}")
    known = isinstance(error, AttributeError)
    reveal("01c.first-symptom", "attribute" if known else "other")

# %% [markdown]
# Creating the model raises nothing: the error comes from the first line that *needs* the module's
# registers (F19). According to the lecture, the forward pass would run, with layers silently
# dropped.

# %% exercise 01c.bug-log
# Write one line per bug while you remember what you saw: a symptom, a suspicion, a fix, and what
# changed. This habit will shorten every later search.

# %%
scorecard("01c-one-training-step")

# %% [markdown]
# ## What to keep
#
# - Clear, forward, loss, backward, step, schedule. Weights move in only one of them; `.grad` lives
#   until it is cleared.
# - Clearing has three legal places. Between `backward()` and `step()` it stops all learning. If it
#   is missing, the norm shows the bug; the loss may not.
# - A mean, a sum and half a sum differ by a factor in the gradient: a learning rate in disguise.
# - The norm of a gradient is the root of the sum of all squares, not a sum of norms.
# - A model should be complete, on its device and in its dtype before its optimizer is built.
# - Fix one bug at a time, and write down what showed it.
#
# **Further reading.** `course claims F28`, `F32` and `F17` in a terminal, for what was measured;
# [course/engine/step.py](../course/engine/step.py), the course's own step;
# [course/debug/museum](../course/debug/museum/__init__.py), 41 bugs, each with a switch.
#
# **Challenge, ungraded.** Find an order of the operations, each used once or twice, that trains on
# digits to a lower loss in 100 updates than the right order does, and explain what it really
# computes.
