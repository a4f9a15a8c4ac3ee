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
# Training a network means repeating one loop. You will write its parts yourself (an epoch, evaluation,
# accumulation, clipping, early stopping), and each `check(...)` tests your code at once, on freshly drawn
# cases. At the end you write the whole training script from memory.
#
# The lecture, its essay and the engineering module are the texts behind this course. A code such as N20 or
# F84 names an item in them: in a terminal, `course ledger N20` says which one, `course claims F84` tests a
# claim, and `course museum B02` shows a bug.
#
# *Read a question, replace the `...` in its `guess` with your answer, then run the cell below it. You can
# run any cell again. Stuck? `hint("03a.clip")` gives three hints, and `failing("03a.clip")` shows the
# smallest failing case. Enter your name once, in `student("")`: some exercises use it to draw numbers
# just for you.*

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

from autograde import ask, check, failing, guess, hint, ready, reveal, scorecard, student
from course import worked
from course.analysis.curves import read_curves
from course.data import InMemoryLoader, load
from course.engine import Trainer, choose_device, seed_everything

device = choose_device()  # a GPU if there is one; data and models go there
criterion = nn.CrossEntropyLoss()

# %%
student("")  # your name or id, as you hand in

# %% [markdown]
# ## 3a.1 The data
#
# We use 1,797 images of 8 × 8 pixels in ten classes, split into a training set and a validation set. The
# pixels are normalised with statistics of the training set alone: nothing from validation may leak into
# anything that is fitted.

# %%
data = load("digits").to(device)
images = [data.train_inputs[data.train_targets == digit][0, 0] for digit in range(10)]
figure, axis = plt.subplots(figsize=(9, 1.2))
axis.imshow(torch.cat(images, dim=1).cpu(), cmap="gray_r")
axis.set_xticks([8 * digit + 3.5 for digit in range(10)], range(10))
axis.set_yticks([])
print(data)

# %% [markdown]
# The loss expects batches in an agreed form, their *contract*: inputs `[B, C, H, W]` in float32, and
# targets `[B]`, class indices in long, where B is the number of examples, C the number of channels, and H
# and W the height and width. One pass over all training examples is an *epoch*. **Guess:** how many
# batches of 64 make up an epoch, and how many examples are in the last one?

# %%
guess("03a.batches", ...)

# %%
train_loader, val_loader = data.loaders(batch_size=64)
inputs, targets = next(iter(train_loader))
last = len(data.train_targets) % 64
print(f"inputs {list(inputs.shape)} {inputs.dtype}, targets {list(targets.shape)}")
print(f"{len(train_loader)} batches per epoch, {last} examples in the last")
reveal("03a.batches", [len(train_loader), last])

# %% [markdown]
# ## 3a.2 One step, by hand
#
# Take a linear layer with two outputs, one example and one step of SGD: the weights move against the
# gradient of the loss, by the learning rate times the gradient. The first table below is such a step, with
# all its numbers. Work out on paper what it does to the loss: the second table shows that once you have
# guessed. **Guess:** by what factor is the loss multiplied?

# %%
guess("03a.loss-factor", ...)

# %%
display(worked.compute("N09"))
worked.compute("N10")

# %% [markdown]
# Each step multiplies both residuals (output minus target) by 0.94, and therefore the loss by 0.94² =
# 0.8836: the same factor every time. A network repeats this step for every batch, but there the factor
# changes as it learns.

# %% [markdown]
# ## 3a.3 One epoch
#
# An update has five operations: **clear** the gradients, **forward** (from inputs to logits, one number
# per class), **loss** (one number for the batch), **backward** (a gradient for each weight), and **step**
# (move the weights). A *schedule*, if there is one, is a sixth: it sets the next learning rate. It and
# clipping, which come later, also have their place in this order.
# Move the slider to see which tensors each operation touches.

# %%
from course.widgets.anatomy.widget import StepAnatomy

StepAnatomy()

# %% [markdown]
# `backward()` *adds* to `.grad`, `step()` reads it, and only `zero_grad()` clears it. These three facts
# determine the order. Try it on paper first:

# %% exercise 03a.order

# %% exercise 03a.train-one-epoch
# Write the loop over the batches: clear, forward, loss, backward, step. The model may arrive in eval
# mode. Return the mean loss over all *examples* of the epoch, as a plain number: each example counts
# once, so a short last batch counts for less. A batch's mean loss times its number of examples is the sum
# of its losses.
def train_one_epoch(model, loader, criterion, optimizer):
    """One pass over the loader, with one optimizer step per batch.

    Args:
        model: Returns logits [B, C] for inputs [B, ...]; arrives in train or eval mode, without
            gradients.
        loader: Yields pairs of inputs [B, ...] and class indices [B]; it may be a plain list.
        criterion: Any loss of logits and targets that is a plain mean over the examples.
        optimizer: Any optimizer of the model's parameters; it may have several parameter groups.

    Returns:
        The mean loss over the examples: a float, or a one-element tensor without a graph.

    Training may change the weights (not those with requires_grad False), buffers, .grad, the
    optimizer's state and the mode. Everything else stays as it is, and the loop itself neither
    draws nor seeds random numbers.
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
# Measuring a model must not change it. Three things ensure that: `eval()` (dropout is off, BatchNorm uses
# its running statistics), `torch.no_grad()` (no graph, so less memory), and no `step()`. Afterwards, put
# every module back into the mode it was in: a frozen layer may have been in eval mode on purpose.

# %% exercise 03a.evaluate
# Return a dictionary with `loss` and `accuracy`, both over all examples. Leave the model, and each module
# in it, in the mode it arrived in.
def evaluate(model, loader, criterion):
    """Mean loss and accuracy over a loader, without a graph; changes nothing.

    Afterwards the weights, buffers, .grad and requires_grad, the mode of every module inside the
    model, the data, the random numbers (apart from what the loader draws) and torch's grad mode
    are what they were before.

    Args:
        model: Returns logits [B, C]; in any mode, and some of its modules may be in another.
        loader: Yields pairs of inputs [B, ...] and class indices [B].
        criterion: Any loss of logits and targets that is a plain mean over the examples.

    Returns:
        {"loss": mean loss, "accuracy": share of correct predictions}: floats, or one-element
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
# Your two functions are all the recipe needs. **Guess** before training starts: what is the mean loss of
# an untrained network? The loss is minus the natural logarithm of the probability that the right class
# gets, a number of *nats*; which probability does it get from a network that knows nothing?

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
# The loss is close to ln 10 = 2.30, but the accuracy is 3 %, far below the 10 % of pure chance. Is that a
# bug? Compare it with two hundred other untrained networks.

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
# It is not a bug. Their mean is 10 %, but a single untrained network predicts a few favourite digits for
# most images, so its accuracy depends on which digits these are. Here the loss is more informative than
# the accuracy.
#
# Now train for ten epochs. **Guess:** how many of the 359 validation images will the model still get
# wrong?

# %%
guess("03a.missed", ...)

# %%
model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
train_loader, _ = data.loaders(batch_size=64, seed=3)
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
# Both curves fall together: what the model learns still carries over to new images. The validation loss
# is even *below* the training loss. That is because the training loss is a mean over an epoch in which
# the model was still getting better, while the validation loss is measured at its end. So what does the
# model still get wrong?

# %%
with torch.no_grad():
    predicted = model(data.val_inputs).argmax(dim=1)
wrong = (predicted != data.val_targets).nonzero().flatten()
figure, axes = plt.subplots(1, 8, figsize=(9, 1.6))
for axis, row in zip(axes, wrong.tolist(), strict=False):
    axis.imshow(data.val_inputs[row, 0].cpu(), cmap="gray_r")
    axis.set_title(f"{data.val_targets[row]} read as {predicted[row]}", fontsize=10)
    axis.set(xticks=[], yticks=[])
reveal("03a.missed", len(wrong))

# %% [markdown]
# Look at the strokes, not just at the count: some of these digits would puzzle a human, too. Sorting
# mistakes by kind and counting each kind is the last rung of the ladder in 3b.
#
# This run went well, and might go on to do better. Most first runs do not, and then the order in which you
# ask your questions decides how long you search. [3b](03b-debug-ladder.ipynb) is about that order; try its
# first question now:

# %% exercise 03a.what-next

# %% [markdown]
# ## 3a.6 A big batch from small ones
#
# What if sixty-four examples do not fit into memory? Send them through in K *micro-batches*, let the
# gradients add up, then step once. Each loss is a mean over its micro-batch. **Guess:** if nothing is
# done about that, how many times too large is the gradient of two equal micro-batches?

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
# The sum of K gradients is K times too large, so each loss is divided by K. That is right only if all
# micro-batches have the same size, and the last one of an epoch is often smaller. In general, each loss
# must be weighted by its micro-batch's *share of the examples*.

# %% exercise 03a.accumulate
# Make one update from a list of micro-batches. It must equal the update from the joined batch, even when
# the last micro-batch is shorter. Return the mean loss over all examples.
def accumulate(model, micro_batches, criterion, optimizer):
    """One optimizer step from several micro-batches, as from one joined batch.

    Args:
        model: Is in train mode and stays in it; returns logits [B, C]. Each micro-batch goes through
            it separately. When one goes through, at most one earlier graph may still be held, not
            yet freed by backward().
        micro_batches: A list of pairs of inputs [B, ...] and class indices [B]; B may differ. The
            list and its contents are not changed.
        criterion: Any loss of logits and targets that is a plain mean over the examples.
        optimizer: Any optimizer of the model's parameters; an earlier step may have left
            gradients behind.

    Returns:
        The mean loss over all examples: a float, or a one-element tensor without a graph.
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
# **Question who-counts-more · a divisor of K**  
# ●●○ · 5 min · 2 points, read by a person
#
# You train on 100 examples, in micro-batches of 32 with K = 4. A friend divides every
# loss by K. Which examples count for more than the others, by what factor, and how does that affect the
# update? Answer in three sentences.

# %% [markdown] nbgrader={"grade": true, "grade_id": "who-counts-more", "locked": false, "points": 2, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# The last micro-batch holds 4 examples and counts as much as one of 32, so each of its examples counts 8
# times as much as any other. So those four examples influence the update more than they would in the
# joined batch. Weighting each loss by its micro-batch's share of the examples fixes this.
# ### END SOLUTION

# %% exercise 03a.windows
# A schedule needs to know how many updates a run will make.
### BEGIN SOLUTION
batches = -(-q.n // q.b)
windows = {"batches": batches, "updates": q.e * -(-batches // q.k)}
### END SOLUTION

# %% [markdown]
# ## 3a.7 A ceiling for the gradient
#
# One bad batch can throw the weights far off course. Clipping by the global norm treats all gradients as
# one long vector. If it is longer than a ceiling (`max_norm`), it is shortened to that length and keeps
# its direction. **Guess:** what becomes of the gradient [3, 4] under a ceiling of 1?

# %%
guess("03a.clipped", ...)

# %%
worked.compute("N20")

# %% [markdown]
# Clipping each number separately would give [1, 1], which points in another direction. Compare the two
# methods:

# %%
from course.widgets.clipping.widget import ClippingPlane

ClippingPlane()

# %% exercise 03a.clip
# Clip the gradients of all parameters together, without torch's own function for it; `.grad` holds the
# result. The parameters may come as a generator, and some may have no gradient. Return the norm *before*
# clipping: it is the one worth logging.
def clip_by_global_norm(parameters, max_norm):
    """Scale all gradients by one factor, so that their joint norm is at most max_norm.

    Afterwards each parameter's .grad holds the result; None stays None, and nothing else changes.

    Args:
        parameters: A list or a generator of tensors. At least one has a .grad; for the others it
            is None.
        max_norm: The ceiling for the joint L2 norm.

    Returns:
        The joint norm before clipping: a float, or a one-element tensor without a graph.
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
# Clipping goes between `backward()` and `step()`. What else may go there?

# %% [markdown]
# ## 3a.8 The learning rate
#
# The run above used 1e-3 because everybody does. The learning-rate finder measures instead: it sweeps
# once over the rates, from far too small to far too large, then makes short trial runs around the best
# one. **Guess:** which rate will it suggest for Adam and our network? Rates differ by powers of ten, so a
# guess within half a power of ten is close.

# %%
guess("03a.rate", ...)

# %%
from course.lr_finder import lr_find

swept = make_model()
optimizer = torch.optim.Adam(swept.parameters(), lr=1e-3)
found = lr_find(swept, criterion, optimizer, InMemoryLoader(
    data.train_inputs, data.train_targets, batch_size=64, shuffle=True, seed=3))
print(found.suggestion)
reveal("03a.rate", found.suggestion.lr)
found.plot()

# %% [markdown]
# The green band is where the smoothed loss falls most steeply, the dot its lowest point. Around it a few
# rates were tried out (diamonds; hollow: given up early); the suggestion is the lowest that trained about
# as well as any.
#
# A suggestion is a hypothesis, so test it. We train for four epochs each with our 1e-3, with the
# suggestion, and with thirty times the suggestion, from the same weights and on the same batches:

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
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
rates = [1e-3, found.suggestion.lr, 30 * found.suggestion.lr]
for lr, style in zip(rates, ("-", "--", ":"), strict=True):
    history = train_for(lr, epochs=4)
    val_losses = [line["val_loss"] for line in history]
    axis.plot(range(1, 5), val_losses, style, label=f"{lr:.1e}")
    print(f"lr {lr:.1e}: {history[-1]['val_accuracy']:.1%} on validation after 4 epochs")
axis.set(xlabel="epoch", ylabel="validation loss", yscale="log", xticks=range(1, 5))
figure.legend(title="learning rate", loc="outside right upper");

# %% [markdown]
# The suggestion is well above our usual rate, and gets as far in one epoch as 1e-3 does in four. Thirty
# times the suggestion is too much: it ends with the highest loss of the three. From here on we use 1e-2, a
# round number near the suggestion. It is meant for this model, this optimizer and this batch size: if you
# change one of them, run the finder again.

# %% [markdown]
# ## 3a.9 A schedule
#
# A schedule changes the rate during the run: large steps early, small ones late. A cosine schedule falls
# from the full rate to 0 along half a wave. (`warmup=0` below: it begins at the full rate, without a slow
# rise, which 4a adds.) **Guess:** what fraction of the full rate is left after a quarter of the run?

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
# The cosine still has 85 % of its full rate after a quarter of the run, and half of it in the middle.
# Did it help? This is one seed, and with others the constant rate often ends lower: so short and easy a
# run does not decide it.
#
# Here the schedule counts *epochs*, so `scheduler.step()` is called once per epoch, after the last
# `optimizer.step()`. Called after every batch, it would be over before the first epoch is. You will meet
# that bug in 3b.

# %% [markdown]
# ## 3a.10 The best epoch
#
# Trained on all the data, our network hardly overfits. With 100 images and 40 epochs it does: it
# memorises the images, and what it learns after that does not carry over to new ones. **Guess:** in which
# of the 40 epochs is the validation loss lowest?

# %%
guess("03a.best-epoch", ...)

# %%
history = train_for(1e-2, 40, rows=100)
figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
for axis, scale in zip(axes, ({"yscale": "log"}, {"ylim": (0, 0.6)}), strict=True):
    for name, style in (("train_loss", "-"), ("val_loss", "--")):
        axis.plot(range(1, 41), [line[name] for line in history], style, label=name)
    axis.axvline(history.best["epoch"], color="#7f7f7f", linestyle=":", label="best")
    axis.set(xlabel="epoch", ylabel="mean loss", **scale)
    axis.legend()
reveal("03a.best-epoch", history.best["epoch"])
read_curves(history)

# %% [markdown]
# `read_curves` knows three states. **Underfitting**: both curves still fall (keep training), or are flat
# and *high* (try a larger model; flat at ln 10, nothing was learned). **Overfitting**: training falls while
# validation rises. **Sweet spot**: both are flat, close together and *low*.
#
# Two habits. *Keep the best*: copy the weights whenever validation is better than ever before (a
# copy, since training goes on changing the tensors that `state_dict()` returns). *Stop early*: end the
# run after `patience` epochs in a row without improvement.

# %% exercise 03a.early-stopping
# Write the class that does both. `update(val_loss, model)` is called after each epoch. It returns True
# as soon as, and as long as, none of the last `patience` epochs improved on the best by more than
# `min_delta`. `restore(model)` copies the `state_dict()` of the last epoch that improved, weights and
# buffers, into the tensors of the model it is given.
class EarlyStopping:
    """Stop after `patience` epochs in a row without improvement; keep the best weights.

    Args:
        patience: Epochs in a row to wait, 1 or more.
        min_delta: An epoch is an improvement if its loss is lower than the best by more than this.

    `best` is the loss of the last epoch that improved, a float, as val_loss is. A loss is finite
    or nan, and nan is not an improvement. `best` is only read, and restore() only called, after an
    improvement. Both methods may be called again: an improvement after True starts the count again,
    and the model may train on after restore().
    """

    def __init__(self, patience, min_delta=0.0):
        ### BEGIN SOLUTION
        self.patience, self.min_delta = patience, min_delta
        self.best, self.waited, self.weights = float("inf"), 0, None
        ### END SOLUTION

    def update(self, val_loss, model):
        """Count one epoch; True if it is time to stop, else False. The model is not changed."""
        ### BEGIN SOLUTION
        if val_loss < self.best - self.min_delta:
            self.best, self.waited = val_loss, 0
            self.weights = {k: v.clone() for k, v in model.state_dict().items()}
        else:
            self.waited += 1
        return self.waited >= self.patience
        ### END SOLUTION

    def restore(self, model):
        """Put the best epoch's weights into the model; nothing else changes, not even `best`."""
        ### BEGIN SOLUTION
        model.load_state_dict(self.weights)
        ### END SOLUTION

# %% [markdown]
# Now use your class and your two functions on the 100 images. What does restoring the best epoch change?

# %%
if ready(EarlyStopping, evaluate, train_one_epoch):
    stopped, stopper = make_model(), EarlyStopping(patience=5)
    optimizer = torch.optim.Adam(stopped.parameters(), lr=1e-2)
    inputs, targets = data.train_inputs[:100], data.train_targets[:100]
    few = InMemoryLoader(inputs, targets, batch_size=64, shuffle=True, seed=3)
    for epoch in range(1, 41):
        train_one_epoch(stopped, few, criterion, optimizer)
        if stopper.update(evaluate(stopped, val_loader, criterion)["loss"], stopped):
            break
    print(f"stopped after epoch {epoch}")

# %%
if ready(EarlyStopping, evaluate, train_one_epoch):
    last = evaluate(stopped, val_loader, criterion)
    stopper.restore(stopped)
    best = evaluate(stopped, val_loader, criterion)
    for name, scores in (("last epoch", last), ("best epoch", best)):
        print(f"{name}: loss {scores['loss']:.3f}, accuracy {scores['accuracy']:.1%}")

# %% [markdown]
# The model is back at the loss of its best epoch, for a fraction of the 40 epochs. That this loss is lower
# is no surprise, since it chose the epoch; the accuracy did not, and need not be higher. A longer
# patience costs more epochs, but a shorter one may stop at a mere wobble.

# %% [markdown]
# ## 3a.11 Three bugs
#
# A loop with a bug rarely raises an error; it just trains a little worse. The next one runs without an
# error, yet three of its lines are wrong or in the wrong place. Read it as the machine would: what is in
# `.grad`, which mode is the model in, and what does each number count?

# %% exercise 03a.fix-the-loop
# Fix the three bugs in place: one is in the updates, one between two epochs, and one in the validation
# loss. The function should return the mean validation loss over the *examples* after each epoch, whatever
# mode the model arrives in, and validate in eval mode, without a graph. (The model arrives without
# gradients, and may be left in either mode.) Change as little as you can.

# %% [markdown]
# ## 3a.12 The same with the engine
#
# The course's `Trainer` puts your functions together in the lecture's order, and adds checkpoints,
# schedules and a record. Open [course/engine/trainer.py](../course/engine/trainer.py) and find the parts
# that you have written. The next run uses micro-batches of 16, four per update, clips at 1, moves a cosine
# schedule once per epoch and keeps the best epoch. Validation chose that epoch, so
# this accuracy flatters, if only a little:

# %%
from course.engine import KeepBest

clipped, keep = make_model(), KeepBest()
optimizer = torch.optim.Adam(clipped.parameters(), lr=1e-2)
loader, _ = data.loaders(batch_size=16, seed=3)
cosine = warmup_cosine(optimizer, warmup=0, total=10)
trainer = Trainer(clipped, criterion, optimizer, accum_steps=4, max_norm=1.0, seed=3,
                  scheduler=cosine, callbacks=[keep], device=device)
best = trainer.fit(loader, val_loader, epochs=10).best
keep.restore(trainer)
print(f"best epoch {best['epoch']}: {best['val_accuracy']:.1%} on validation")

# %% [markdown]
# ## 3a.13 The arena
#
# How few updates does a small network need to reach 95 %? One lucky run does not count: the median over
# three seeds does. Your tools are the finder, the optimizers and what you know about learning rates. Each
# threshold earns its points separately.

# %% exercise 03a.arena

# %% [markdown]
# ## 3a.14 From memory
#
# Close the sections above. A script that you can write without looking is one that you can debug: the
# order of the operations, the two modes, the best epoch and the check for `nan` each have their place.
# Your script is graded by what it does, not by how it is written.

# %% exercise 03a.training-script
# Write the whole training script in one function, from memory: everything the docstring asks for, in the
# order you know. You may use `torch`, but nothing from `course` may do the work.
def train_model(
    model, train_loader, val_loader, criterion, optimizer, scheduler, max_epochs, patience
):
    """Train, validate after each epoch, stop early, leave the best epoch's weights in the model.

    Per batch, in train mode: clear, forward, loss, backward, clip the joint norm of all gradients to
    1, step. A training loss that is not finite raises a FloatingPointError before the weights move.
    Per epoch, after its batches: one scheduler.step(), and one pass over val_loader in eval mode,
    without a graph.
    A validation loss is never nan, and the first is finite. A later one may be inf: such an epoch is
    not an improvement.

    Args:
        model: Returns logits [B, C]; arrives in any mode; may hold BatchNorm and dropout.
        train_loader, val_loader: Yield pairs of inputs [B, ...] and class indices [B].
        criterion: Mean-reduced loss of logits and targets.
        optimizer: Holds the model's parameters; gradients of an earlier step may be left over.
        scheduler: Counts epochs.
        max_epochs: Train for at most this many.
        patience: Stop after this many epochs in a row without a lower validation loss.

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
scripted = make_model()
optimizer = torch.optim.Adam(scripted.parameters(), lr=1e-2)
train_loader, _ = data.loaders(batch_size=64, seed=3)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=15)
if ready(evaluate, train_model):
    options = criterion, optimizer, cosine, 15, 3
    result = train_model(scripted, train_loader, val_loader, *options)
    accuracy = evaluate(scripted, val_loader, criterion)["accuracy"]
    print(f"your script: {accuracy:.1%} on validation, best epoch {result['best_epoch']}")

# %% [markdown]
# ## What to keep
#
# - An update is clear, forward, loss, backward, (clip,) step; the schedule moves after it.
# - A mean over an epoch, over micro-batches or over validation counts *examples*, not batches.
# - `eval()` and `no_grad()` are two different switches; measuring leaves everything as it was.
# - Measure a learning rate, do not inherit it; a schedule counts epochs *or* updates.
# - Keep a copy of the best epoch; stop when validation has not improved for a while.
# - Validation chose epochs and rates here, so its scores flatter. A number that others rely on needs a third
#   set of images, the *test* set, which no choice has used (3e).
#
# **Read on:** Lecture 3, "The training recipe"; [course/engine](../course/engine/__init__.py), one module
# per part; `course claims F28` (does the order matter?) and `course claims F84` (the arena) in a
# terminal.
#
# **Challenge, ungraded.** Reach 99 % on validation with only 200 training images. Try augmentation,
# weight averaging (`course.engine.EMA`), an ensemble: which of them, over five seeds, helps by more than
# the noise?

# %%
scorecard("03a-training-recipe")
