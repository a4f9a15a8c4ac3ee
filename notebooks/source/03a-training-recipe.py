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
# # 3a · The training recipe
#
# A network learns by repeating one loop. You write its stations yourself (an epoch, evaluation,
# accumulation, clipping, early stopping), and each `check(...)` answers at once, on cases nobody has
# seen before. At the end you write the whole training script from memory.
#
# *Read a question, replace the `...` of its `guess`, then run the cell below it. Every cell may be run
# twice. Stuck? `hint("03a.clip")` gives three hints, `failing("03a.clip")` the smallest failing case. Type
# your name once, in `student("")`, as your instructor knows it: it draws the numbers of some exercises for
# you alone.*

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

from autograde import ask, check, failing, guess, hint, ready, reveal, scorecard, student
from course import worked
from course.data import InMemoryLoader, load
from course.engine import Trainer, choose_device, seed_everything

device = choose_device()  # a GPU where there is one: data and models go there
criterion = nn.CrossEntropyLoss()

# %%
student("")

# %% [markdown]
# ## 3a.1 The data
#
# 1,797 images of 8 × 8 pixels, ten classes, split into a training and a validation part. The
# pixels are normalised by the training part alone: validation must not leak into anything that is fitted.

# %%
data = load("digits").to(device)
images = [data.train_inputs[data.train_targets == digit][0, 0] for digit in range(10)]
figure, axis = plt.subplots(figsize=(9, 1.2))
axis.imshow(torch.cat(images, dim=1).cpu(), cmap="gray_r")
axis.set_xticks([8 * digit + 3.5 for digit in range(10)], range(10))
axis.set_yticks([])
print(data)

# %% [markdown]
# A batch has a contract with the loss: inputs `[B, C, H, W]` in float32, targets `[B]` with class
# indices in long, where B is the number of examples, C the channels, H and W height and width. One pass
# over all of them is an *epoch*. **Guess:** how many batches of 64 make an epoch, and how long is the last?

# %%
guess("03a.batches", ...)

# %%
train_loader, val_loader = data.loaders(batch_size=64)
inputs, targets = next(iter(train_loader))
last = len(data.train_targets) % 64
print(f"inputs {list(inputs.shape)} {inputs.dtype}, targets {list(targets.shape)}")
print(f"{len(train_loader)} batches per epoch, the last of {last}")
reveal("03a.batches", [len(train_loader), last])

# %% [markdown]
# ## 3a.2 One step, by hand
#
# A linear layer with two outputs, one example, one step of SGD: the weights move against the gradient of
# the loss, by the learning rate times the gradient. Work the numbers out on paper from what is given; the
# tables wait for your guess. **Guess:** by which factor is the loss multiplied?

# %%
guess("03a.loss-factor", ...)

# %%
display(worked.compute("N09"))
worked.compute("N10")

# %% [markdown]
# Each step multiplies both residuals (output minus target) by 0.94, so the loss by 0.94² = 0.8836: the same
# factor every time. A network repeats this step for every batch, and its factor changes as it learns.

# %% [markdown]
# ## 3a.3 One epoch
#
# Five operations make an update: **clear** the gradients, **forward** (inputs to logits, one number per
# class), **loss** (one number for the batch), **backward** (a gradient for each weight), **step** (the
# weights move). Clipping and a schedule, which come later, have their places among them too. Move the
# slider and see which tensors each operation touches.

# %%
from course.widgets.anatomy.widget import StepAnatomy

StepAnatomy()

# %% [markdown]
# `backward()` *adds* to `.grad`, `step()` reads it, and nothing but `zero_grad()` clears it. That alone
# fixes the order. Try it on paper first:

# %% exercise 03a.order

# %% exercise 03a.train-one-epoch
# Write the loop over the batches: clear, forward, loss, backward, step. The model may come in eval
# mode. Return the mean loss over all *examples* of the epoch, as a plain number: each counts once, so a
# short last batch counts for less. A batch's mean loss times its number of examples is its sum.
def train_one_epoch(model, loader, criterion, optimizer):
    """One pass over the loader: an optimizer step for each batch.

    Args:
        model: Gives logits [B, C] for inputs [B, ...]; in train or eval mode, and without gradients.
        loader: Gives pairs of inputs [B, ...] and class indices [B]; it may be a plain list.
        criterion: Any loss of logits and targets that is a plain mean over the examples.
        optimizer: Any optimizer of the model's parameters; it may have several groups.

    Returns:
        The mean loss over the examples: a float, or a one-element
        tensor without a graph.

    Training may change the weights (not those with requires_grad False), buffers, .grad, the
    optimizer's state and the mode; all else stays, and the loop itself draws and seeds no random numbers.
    """
    ### BEGIN SOLUTION
    model.train()
    total, num_examples = 0.0, 0
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(targets)
        num_examples += len(targets)
    return total / num_examples
    ### END SOLUTION

# %% [markdown]
# ## 3a.4 Evaluation
#
# Measuring must change nothing. Three switches do that: `eval()` (dropout off, BatchNorm uses what it has
# learnt), `torch.no_grad()` (no graph, less memory), and no `step()`. Afterwards every module is put back
# into the mode in which it came: a frozen layer may have been in eval mode on purpose.

# %% exercise 03a.evaluate
# Return a dictionary with `loss` and `accuracy`, both over all examples, and give the model back in the
# mode in which it came, each of its modules.
def evaluate(model, loader, criterion):
    """Mean loss and accuracy over a loader, without a graph; changes nothing.

    Neither weights, buffers, .grad and requires_grad, nor the mode of any module inside the model,
    nor the data, the random numbers (but for what the loader draws) and torch's grad mode are
    others afterwards.

    Args:
        model: Gives logits [B, C]; any mode, and some of its modules may be in another.
        loader: Gives pairs of inputs [B, ...] and class indices [B].
        criterion: Any loss of logits and targets that is a plain mean over the examples.

    Returns:
        {"loss": mean loss, "accuracy": share of right classes}: floats, or one-element
        tensors without a graph.
    """
    ### BEGIN SOLUTION
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    loss, correct, num_examples = 0.0, 0, 0
    with torch.no_grad():
        for inputs, targets in loader:
            logits = model(inputs)
            loss += criterion(logits, targets).item() * len(targets)
            correct += (logits.argmax(dim=1) == targets).sum().item()
            num_examples += len(targets)
    for module, training in modes:
        module.training = training
    return {"loss": loss / num_examples, "accuracy": correct / num_examples}
    ### END SOLUTION

# %% [markdown]
# ## 3a.5 Train
#
# Your two functions make the whole recipe. **Guess** before it starts: what is the mean loss of an untrained
# network? With ten classes and no knowledge each class gets a probability of about 1/10, and the loss is
# minus the logarithm of it.

# %%
guess("03a.first-loss", ...)

# %%
def network():
    layers = nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)
    return nn.Sequential(nn.Flatten(), *layers).to(device)


def make_model():
    seed_everything(3)
    return network()


if ready(evaluate):
    before = evaluate(make_model(), val_loader, criterion)
    print(before)
    reveal("03a.first-loss", before["loss"])

# %% [markdown]
# The loss is close to ln 10 = 2.30, but the accuracy is 3 %, far below the chance of 10 %. Is that a bug?
# Ask two hundred other untrained networks.

# %%
torch.manual_seed(0)
fresh = [network() for _ in range(200)]
if ready(evaluate):
    chances = [evaluate(other, val_loader, criterion)["accuracy"] for other in fresh]
    figure, axis = plt.subplots(figsize=(5, 2.5))
    axis.hist(chances, bins=20, color="#0072b2")
    axis.axvline(before["accuracy"], color="#d55e00", label="ours")
    axis.set(xlabel="accuracy before training", ylabel="networks")
    axis.legend()

# %% [markdown]
# No bug: their mean is 10 %, but one untrained network answers the same two or three digits for almost
# every image, and is right or wrong with all of them at once. The loss says more than the accuracy here.
#
# Now train for ten epochs. **Guess:** how many of the 359 validation images will be wrong after them?

# %%
guess("03a.missed", ...)

# %%
model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
train_loader, val_loader = data.loaders(batch_size=64, seed=3)
train_losses, val_scores = [], []
if ready(evaluate, train_one_epoch):
    for _ in range(10):
        train_losses.append(train_one_epoch(model, train_loader, criterion, optimizer))
        val_scores.append(evaluate(model, val_loader, criterion))
    print(f"validation accuracy {val_scores[-1]['accuracy']:.1%}")

# %%
if ready(evaluate, train_one_epoch):
    figure, axis = plt.subplots(figsize=(5, 3))
    epochs, val_losses = range(1, 11), [scores["loss"] for scores in val_scores]
    axis.plot(epochs, train_losses, label="training", color="#0072b2")
    axis.plot(epochs, val_losses, "--", label="validation", color="#d55e00")
    axis.set(xlabel="epoch", ylabel="mean loss", yscale="log")
    axis.legend()

# %% [markdown]
# Both curves fall together: the model is still learning what carries over. Validation even lies *below*
# training: the training loss is a mean over an epoch in which the model was still getting better, the
# validation loss is measured after it. And what does the model still get wrong?

# %%
with torch.no_grad():
    said = model(data.val_inputs).argmax(dim=1)
wrong = (said != data.val_targets).nonzero().flatten()
figure, axes = plt.subplots(1, 8, figsize=(9, 1.6))
for axis, row in zip(axes, wrong.tolist(), strict=False):
    axis.imshow(data.val_inputs[row, 0].cpu(), cmap="gray_r")
    axis.set(title=f"{data.val_targets[row]} read {said[row]}", xticks=[], yticks=[])
reveal("03a.missed", len(wrong))

# %% [markdown]
# Look at the strokes, not at the count: most of them are hard for you, too. Counting by kind of mistake is
# the last rung of the ladder in 3b.
#
# This run went well. Most first runs do not, and then the order of your questions decides how long you search:

# %% exercise 03a.what-next

# %% [markdown]
# ## 3a.6 A big batch from small ones
#
# Sixty-four examples do not fit into memory? Send them through in K *micro-batches* and let the gradients
# add up, then step once. If each loss is a mean, the sum of K gradients is K times too long, so each loss
# is divided by K. **Guess:** how long is the gradient of K = 2 micro-batches without that division?

# %%
guess("03a.no-division", ...)

# %%
worked.compute("N19")

# %%
def gradient(losses):
    model = make_model()
    sum(loss(model) for loss in losses).backward()
    return model[1].weight.grad.norm().item()


inputs, targets = data.train_inputs[:64], data.train_targets[:64]
halves = [lambda model, at=at: criterion(model(inputs[at]), targets[at])
          for at in (slice(0, 32), slice(32, 64))]
joined = gradient([lambda model: criterion(model(inputs), targets)])
reveal("03a.no-division", round(gradient(halves) / joined, 4))

# %% [markdown]
# Dividing by K is right only while all micro-batches are equally long. The last of an epoch seldom is:
# then each loss must enter with its micro-batch's *share of the examples*.

# %% exercise 03a.accumulate
# Make one update from a list of micro-batches, equal to the update of the joined batch, also when the last
# micro-batch is shorter. Return the mean loss over all its examples.
def accumulate(model, micro_batches, criterion, optimizer):
    """One optimizer step from several micro-batches, as from one joined batch.

    Args:
        model: In train mode, which it stays in; gives logits [B, C]. Each micro-batch goes through it
            on its own, and backward() has freed its graph before the one after next comes.
        micro_batches: A list of pairs of inputs [B, ...] and class indices [B]; B may differ. The
            list and what is in it stay as they are.
        criterion: Any loss of logits and targets that is a plain mean over the examples.
        optimizer: Any optimizer of the model's parameters; an earlier step may have left
            gradients.

    Returns:
        The mean loss over all examples: a float, or a one-element
        tensor without a graph.
    """
    ### BEGIN SOLUTION
    num_examples = sum(len(targets) for _, targets in micro_batches)
    total = 0.0
    optimizer.zero_grad()
    for inputs, targets in micro_batches:
        share = len(targets) / num_examples
        loss = criterion(model(inputs), targets) * share
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total
    ### END SOLUTION

# %% [markdown]
# **Question.** A class has 100 examples, micro-batches of 32 and K = 4. A friend divides every loss
# by K. Which examples count for more than the others, by what factor, and what does that do to the
# update? Answer in three sentences.

# %% [markdown] nbgrader={"grade": true, "grade_id": "who-counts-more", "locked": false, "points": 2, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# The last micro-batch holds 4 examples and counts as much as one of 32, so each of its examples
# counts 8 times as much as any other. The update follows those four examples more than the joined
# batch would. Weighing each loss by its share of the examples puts it right.
# ### END SOLUTION

# %% exercise 03a.windows
# A schedule needs the number of updates that a run makes.
### BEGIN SOLUTION
batches = -(-q.n // q.b)
windows = {"batches": batches, "updates": q.e * -(-batches // q.k)}
### END SOLUTION

# %% [markdown]
# ## 3a.7 A ceiling for the gradient
#
# One bad batch can throw the weights far off. Clipping by the global norm takes all gradients as one long
# vector: if it is longer than a ceiling (`max_norm`), it is shortened to it and keeps its direction.
# **Guess:** what do the gradient [3, 4] and a ceiling of 1 give?

# %%
guess("03a.clipped", ...)

# %%
worked.compute("N20")

# %% [markdown]
# Clipping each number by itself would give [1, 1], which points elsewhere. Compare the two ways:

# %%
from course.widgets.clipping.widget import ClippingPlane

ClippingPlane()

# %% exercise 03a.clip
# Write it for all parameters at once, without torch's own function for it: `.grad` holds the result.
# Parameters may come as a generator, and some may have no gradient. Return the norm *before* clipping,
# which a log should show.
def clip_by_global_norm(parameters, max_norm):
    """Scale all gradients by one factor so that their joint norm is at most max_norm.

    Afterwards each parameter's .grad holds the result; None stays None, and nothing else changes.

    Args:
        parameters: Tensors with .grad, at least one; the others have None there. A list or a
            generator.
        max_norm: The ceiling of the joint L2 norm.

    Returns:
        The joint norm before clipping: a float, or a one-element
        tensor without a graph.
    """
    ### BEGIN SOLUTION
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.stack([grad.norm() for grad in grads]).norm()
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for grad in grads:
        grad.mul_(factor)
    return norm
    ### END SOLUTION

# %% exercise 03a.legal
# Clipping stands between `backward()` and `step()`. What else may stand there?

# %% [markdown]
# ## 3a.8 The learning rate
#
# The run above took 1e-3 because everybody does. The learning-rate finder looks: one sweep over the rates,
# from far too small to far too large, then short trial runs around the best. **Guess:** which rate will it
# suggest for Adam and our network? Rates differ by powers of ten, so a guess within half of one is close.

# %%
guess("03a.rate", ...)

# %%
from course.lr_finder import lr_find

model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
found = lr_find(model, criterion, optimizer, InMemoryLoader(
    data.train_inputs, data.train_targets, batch_size=64, shuffle=True, seed=3))
print(found.suggestion)
reveal("03a.rate", found.suggestion.lr)
found.plot()

# %% [markdown]
# A suggestion is a hypothesis: judge it. Four epochs each with our 1e-3, with the suggestion, and with
# thirty times the suggestion, from the same weights on the same batches:

# %%
def train_for(lr, epochs, *, rows=None, schedule=None, **options):
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    loader = InMemoryLoader(data.train_inputs[:rows], data.train_targets[:rows],
                            batch_size=64, shuffle=True, seed=3)
    options |= {"scheduler": schedule(optimizer)} if schedule else {}
    trainer = Trainer(model, criterion, optimizer, seed=3, device=device, **options)
    return trainer.fit(loader, val_loader, epochs=epochs)

# %%
figure, axis = plt.subplots(figsize=(5, 3))
rates = [1e-3, found.suggestion.lr, 30 * found.suggestion.lr]
for lr, style in zip(rates, ("-", "--", ":"), strict=True):
    history = train_for(lr, epochs=4)
    val_losses = [line["val_loss"] for line in history]
    axis.plot(range(1, 5), val_losses, style, label=f"{lr:.0e}")
    print(f"lr {lr:.1e}: {history[-1]['val_accuracy']:.1%} on validation after 4 epochs")
axis.set(xlabel="epoch", ylabel="validation loss", yscale="log", xticks=range(1, 5))
axis.legend(title="learning rate");

# %% [markdown]
# The suggestion is several times our habit, and gets as far in one epoch as 1e-3 in four. Thirty times more
# ends in a loss no better than the untrained network's. So the suggestion is accepted, for this model,
# this optimizer and this batch size: change one of them, and look again.

# %% [markdown]
# ## 3a.9 A schedule
#
# Large steps early, small ones late: a schedule changes the rate during the run. A cosine falls from the
# full rate to 0 along half a wave. **Guess:** what share of the full rate is left after a quarter of the run?

# %%
guess("03a.quarter", ...)

# %%
from functools import partial

from course.engine import warmup_cosine

runs = {"constant": train_for(1e-2, 12)}
cosine = partial(warmup_cosine, warmup=0, total=12)
runs["cosine"] = train_for(1e-2, 12, schedule=cosine)
for name, history in runs.items():
    print(f"{name}: last validation loss {history[-1]['val_loss']:.4f}")
reveal("03a.quarter", runs["cosine"][3]["lr"] / 1e-2)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
for (name, history), style in zip(runs.items(), ("-", "--"), strict=True):
    left.plot(range(1, 13), [line["lr"] for line in history], style, label=name)
    right.plot(range(1, 13), [line["val_loss"] for line in history], style, label=name)
left.set(xlabel="epoch", ylabel="learning rate")
right.set(xlabel="epoch", ylabel="validation loss", yscale="log")
left.legend();

# %% [markdown]
# The cosine still has 85 % of its rate after a quarter and half of it in the middle. It counts *epochs* here, so
# it is moved once per epoch, after the last `optimizer.step()`. Moved after every batch it would be over
# before the first epoch is: 3b has that bug for you.

# %% [markdown]
# ## 3a.10 The best epoch
#
# With all the data our network hardly overfits. Give it 100 images and 40 epochs, and it does: it memorises
# them, and what it learns after that does not carry over. **Guess:** in which of the 40 epochs is
# the validation loss lowest?

# %%
guess("03a.best-epoch", ...)

# %%
from course.analysis.curves import read_curves

history = train_for(1e-2, 40, rows=100)
figure, axis = plt.subplots(figsize=(5, 3))
axis.plot(range(1, 41), [line["train_loss"] for line in history], label="training")
axis.plot(range(1, 41), [line["val_loss"] for line in history], "--", label="validation")
axis.axvline(history.best["epoch"], color="#7f7f7f", linestyle=":", label="best epoch")
axis.set(xlabel="epoch", ylabel="mean loss", yscale="log")
axis.legend()
reveal("03a.best-epoch", history.best["epoch"])
read_curves(history)

# %% [markdown]
# Three shapes to know: both curves still falling is **underfitting** (go on), training falling while
# validation rises is **overfitting** (stop, or get more data), both flat and close together is the sweet
# spot. `read_curves` says which, and what to try first.
#
# Two habits follow. *Keep the best*: copy the weights whenever validation is better than ever before (a copy:
# `state_dict()` hands out the tensors that go on training). *Stop early*: end the run after `patience`
# epochs in a row without an improvement.

# %% exercise 03a.early-stopping
# Write the class that does both. `update(val_loss, model)`, called after each epoch, returns True when
# the last `patience` epochs or more brought no improvement of more than `min_delta`; `restore(model)` puts the
# `state_dict()` of the last epoch that improved, weights and buffers, into the tensors of the model it is
# given.
class EarlyStopping:
    """Stop after `patience` epochs in a row without improvement; keep the best weights.

    Args:
        patience: Epochs in a row to wait, 1 or more.
        min_delta: An epoch improves if its loss is lower than the best by more than this.

    `best` is the loss of the last epoch that improved, a float; so is val_loss. A loss that is nan is no
    improvement. restore() comes after an improvement. Both methods may be called again: an improvement
    after True starts the count again, and the model may train on after restore().
    """

    def __init__(self, patience, min_delta=0.0):
        ### BEGIN SOLUTION
        self.patience, self.min_delta = patience, min_delta
        self.best, self.waited, self.weights = float("inf"), 0, None
        ### END SOLUTION

    def update(self, val_loss, model):
        """Count one epoch; True if it is time to stop, else False. The model stays as it is."""
        ### BEGIN SOLUTION
        if val_loss < self.best - self.min_delta:
            self.best, self.waited = val_loss, 0
            self.weights = {k: v.clone() for k, v in model.state_dict().items()}
        else:
            self.waited += 1
        return self.waited >= self.patience
        ### END SOLUTION

    def restore(self, model):
        """Put the best epoch's weights into the model; nothing else changes, `best` neither."""
        ### BEGIN SOLUTION
        model.load_state_dict(self.weights)
        ### END SOLUTION

# %% [markdown]
# Your class and your two functions on the 100 images. Does restoring the best epoch help?

# %%
if ready(EarlyStopping, evaluate, train_one_epoch):
    model, stopper = make_model(), EarlyStopping(patience=5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    inputs, targets = data.train_inputs[:100], data.train_targets[:100]
    few = InMemoryLoader(inputs, targets, batch_size=64, shuffle=True, seed=3)
    for epoch in range(1, 41):
        train_one_epoch(model, few, criterion, optimizer)
        if stopper.update(evaluate(model, val_loader, criterion)["loss"], model):
            break
    print(f"stopped after epoch {epoch}")

# %%
if ready(EarlyStopping, evaluate, train_one_epoch):
    last = evaluate(model, val_loader, criterion)["loss"]
    stopper.restore(model)
    best = evaluate(model, val_loader, criterion)["loss"]
    print(f"validation loss of the last epoch {last:.3f}, of the best {best:.3f}")

# %% [markdown]
# The loss is that of the best epoch again, for a fraction of the 40 epochs. A longer patience costs
# epochs, a shorter one may stop at a mere wobble.

# %% [markdown]
# ## 3a.11 Three bugs
#
# A loop with a bug seldom raises: it trains a little worse. The next one runs without an error, and three
# of its lines are wrong or in the wrong place. Read it as a machine would: what is in `.grad`, in which mode is the
# model, what does the number count?

# %% exercise 03a.fix-the-loop
# Fix the three bugs in place: one sits in the updates, one between two epochs, one in the validation loss.
# It should return the mean validation loss over the *examples* after each epoch, whatever mode the model
# comes in (without gradients; the mode it is left in is free). Change as little as you can.

# %% [markdown]
# ## 3a.12 The same with the engine
#
# The course's `Trainer` is your functions in the lecture's order, with checkpoints, schedules and a record
# around them. Open [course/engine/trainer.py](../course/engine/trainer.py) and read it aloud: you have
# written every station of it. Now micro-batches of 16, four to an update, clipped at 1, a cosine per epoch,
# the best epoch kept:

# %%
from course.engine import KeepBest

model, keep = make_model(), KeepBest()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
loader, _ = data.loaders(batch_size=16, seed=3)
cosine = warmup_cosine(optimizer, warmup=1, total=10)
trainer = Trainer(model, criterion, optimizer, accum_steps=4, max_norm=1.0, seed=3,
                  scheduler=cosine, callbacks=[keep], device=device)
best = trainer.fit(loader, val_loader, epochs=10).best
keep.restore(trainer)
print(f"best epoch {best['epoch']}: {best['val_accuracy']:.1%} on validation")

# %% [markdown]
# ## 3a.13 The arena
#
# How few updates bring a small network to 95 %? One lucky run counts for nothing: the median over three
# seeds does. The finder, the optimizers and what you know of schedules are your tools; each threshold is paid
# separately.

# %% exercise 03a.arena

# %% [markdown]
# ## 3a.14 From memory
#
# Close the sections above. A script that you can write without looking is one that you can debug: the order
# of the operations, the two modes, the best epoch, the check for `nan` each have their place. It is
# graded by what it does, not by how it is written.

# %% exercise 03a.training-script
# Write the whole of training in one function, from memory: everything in the docstring, in the order that
# you know. Nothing of `course` may do the work; `torch` may.
def train_model(
    model, train_loader, val_loader, criterion, optimizer, scheduler, max_epochs, patience
):
    """Train, validate after each epoch, stop early, leave the best epoch's weights in the model.

    Per batch, in train mode: clear, forward, loss, backward, clip the joint norm of all gradients to
    1, step. A training loss that is not finite raises a FloatingPointError before the weights move.
    Per epoch: one scheduler.step(), then one pass over val_loader in eval mode, without a graph.
    From the second epoch on a validation loss may be inf (never nan), which is no lower than any other.

    Args:
        model: Gives logits [B, C]; in any mode when it comes; may hold BatchNorm and dropout.
        train_loader, val_loader: Give pairs of inputs [B, ...] and class indices [B].
        criterion: Mean-reduced loss of logits and targets.
        optimizer: Holds the model's parameters; gradients of an earlier step may be left.
        scheduler: Counts epochs.
        max_epochs: At most so many.
        patience: Stop after so many epochs in a row without a lower validation loss.

    Returns:
        {"best_epoch": counted from 0, "val_losses": mean over the examples, one float per epoch}.
    """
    ### BEGIN SOLUTION
    best, best_epoch, waited, weights, val_losses = float("inf"), None, 0, None, []
    for epoch in range(max_epochs):
        model.train()
        for inputs, targets in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            if not torch.isfinite(loss):
                raise FloatingPointError(f"epoch {epoch}: the loss is {loss.item()}")
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        scheduler.step()
        model.eval()
        total, num_examples = 0.0, 0
        with torch.no_grad():
            for inputs, targets in val_loader:
                total += criterion(model(inputs), targets).item() * len(targets)
                num_examples += len(targets)
        val_losses.append(total / num_examples)
        if val_losses[-1] < best:
            best, best_epoch, waited = val_losses[-1], epoch, 0
            weights = {name: value.clone() for name, value in model.state_dict().items()}
        else:
            waited += 1
            if waited >= patience:
                break
    model.load_state_dict(weights)
    return {"best_epoch": best_epoch, "val_losses": val_losses}
    ### END SOLUTION

# %%
model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
train_loader, val_loader = data.loaders(batch_size=64, seed=3)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=15)
if ready(evaluate, train_model):
    options = criterion, optimizer, cosine, 15, 3
    told = train_model(model, train_loader, val_loader, *options)
    accuracy = evaluate(model, val_loader, criterion)["accuracy"]
    print(f"your script: {accuracy:.1%} on validation, best epoch {told['best_epoch']}")

# %% [markdown]
# ## What to keep
#
# - An update is clear, forward, loss, backward, (clip,) step; the schedule moves after it.
# - A mean over an epoch, over micro-batches, over validation counts *examples*, not batches.
# - `eval()` and `no_grad()` are two switches; measuring leaves everything as it was.
# - A learning rate is measured, not inherited; a schedule is counted in epochs *or* updates.
# - Keep a copy of the best epoch; stop when validation has been no better for a while.
#
# **Read on:** Lecture 3, "The training recipe"; [course/engine](../course/engine/__init__.py), one module
# per station; `course claims F28` (does the order matter?) and `course claims F84` (the arena) in a terminal.
#
# **Challenge, ungraded.** Reach 99 % on validation with 200 training images. Augment, average weights
# (`course.engine.EMA`), ensemble: what helps, over five seeds, by more than its own noise?

# %%
scorecard("03a-training-recipe")
