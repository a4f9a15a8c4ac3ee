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
# A network learns by repeating one loop. You write its four stations yourself, and each
# `check(...)` answers at once, on cases nobody has seen before. At the end your own code reads
# handwritten digits with more than 95 % accuracy, and the course's engine does it in one line.
#
# *Read a question, make a guess, then run the cell below it. Every cell may be run twice.*

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

from autograde import check
from course import worked
from course.data import InMemoryLoader, load
from course.engine import Trainer, seed_everything

# %% [markdown]
# ## 3.1 The data
#
# 1,797 images of 8 × 8 pixels, ten classes, split into a training and a validation part. The
# pixels are normalised by the training part alone. **Guess:** which digits will the model
# confuse?

# %%
data = load("digits")
images = [data.train_inputs[data.train_targets == digit][0, 0] for digit in range(10)]
figure, axis = plt.subplots(figsize=(9, 1.2))
axis.imshow(torch.cat(images, dim=1), cmap="gray_r")
axis.set_xticks([8 * digit + 3.5 for digit in range(10)], range(10))
axis.set_yticks([])
print(data)

# %% [markdown]
# A batch has a contract with the loss: inputs `[B, C, H, W]` in float32, targets `[B]` with class
# indices in long. **Guess:** how many batches of 64 make an epoch, and how long is the last?

# %%
train_loader, val_loader = data.loaders(batch_size=64)
inputs, targets = next(iter(train_loader))
last = len(data.train_targets) % 64
print(f"inputs {list(inputs.shape)} {inputs.dtype}, targets {list(targets.shape)}")
print(f"{len(train_loader)} batches an epoch, the last of {last}")

# %% [markdown]
# That short last batch will matter twice below: in the mean loss, and when batches are made of
# micro-batches.

# %% [markdown]
# ## 3.2 One step, by hand
#
# A linear layer with two outputs, one example, one step of SGD. Cover the columns *computed* and
# *lecture*, work the numbers out on paper from what is given, then compare. **Guess:** by which factor
# does the loss fall?

# %%
worked.compute("N09")

# %%
worked.compute("N10")

# %% [markdown]
# Each step multiplies both residuals by 0.94, so the loss by 0.8836: the same factor every time.

# %% [markdown]
# ## 3.3 One epoch
#
# Write the loop over the batches: clear, forward, loss, backward, step. The model may come in eval
# mode. Return the mean loss over all *examples* of the epoch, as a plain number.

# %% nbgrader={"grade": false, "grade_id": "train-one-epoch", "locked": false, "schema_version": 3, "solution": true, "task": false}
def train_one_epoch(model, loader, criterion, optimizer):
    """One pass over the loader: an optimizer step for each batch.

    Args:
        model: Gives logits [B, C] for inputs [B, ...]; in any mode when it comes.
        loader: Gives pairs of inputs [B, ...] and class indices [B].
        criterion: Mean-reduced loss of logits and targets.
        optimizer: Holds the model's parameters.

    Returns:
        The mean loss over the examples, a float.
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

# %% nbgrader={"grade": true, "grade_id": "train-one-epoch-check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check("03a.train-one-epoch", train_one_epoch)

# %% [markdown]
# ## 3.4 Evaluation
#
# Three switches: eval mode, no graph, no step. Return a dictionary with `loss` and `accuracy`, both
# over all examples, and give the model back in the mode in which it came.

# %% nbgrader={"grade": false, "grade_id": "evaluate", "locked": false, "schema_version": 3, "solution": true, "task": false}
def evaluate(model, loader, criterion):
    """Mean loss and accuracy over a loader; changes nothing in the model.

    Args:
        model: Gives logits [B, C]; in any mode when it comes, and in the same when it leaves.
        loader: Gives pairs of inputs [B, ...] and class indices [B].
        criterion: Mean-reduced loss of logits and targets.

    Returns:
        {"loss": mean loss, "accuracy": share of right classes}, floats.
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

# %% nbgrader={"grade": true, "grade_id": "evaluate-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("03a.evaluate", evaluate)

# %% nbgrader={"grade": true, "grade_id": "evaluate-hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# More cases of 03a.evaluate are tried here when the notebook is graded.
### BEGIN HIDDEN TESTS
check("03a.evaluate", evaluate, parts="hidden")
### END HIDDEN TESTS

# %% [markdown]
# ## 3.5 Train
#
# Your two functions make the whole recipe. **Guess:** what accuracy does the model have before the
# first epoch, and what is its loss? (Ten classes, no knowledge: ln 10 = 2.30.)

# %%
def make_model():
    seed_everything(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


model, criterion = make_model(), nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
train_loader, val_loader = data.loaders(batch_size=64, seed=3)
print(evaluate(model, val_loader, criterion))

# %%
model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
train_loader, val_loader = data.loaders(batch_size=64, seed=3)
train_losses, val_scores = [], []
for _ in range(10):
    train_losses.append(train_one_epoch(model, train_loader, criterion, optimizer))
    val_scores.append(evaluate(model, val_loader, criterion))
print(f"validation accuracy {val_scores[-1]['accuracy']:.1%}")

# %%
figure, axis = plt.subplots(figsize=(5, 3))
axis.plot(train_losses, label="training", color="#0072b2")
axis.plot([s["loss"] for s in val_scores], "--", label="validation", color="#d55e00")
axis.set(xlabel="epoch", ylabel="mean loss", yscale="log")
axis.legend();

# %% [markdown]
# Both curves fall together: the model is still learning what carries over. Where the dashed one turns
# up while the other falls, overfitting begins. Here validation even lies *below* training: the
# training loss is a mean over an epoch in which the model was still getting better, the validation
# loss is measured after it.

# %% [markdown]
# ## 3.6 A big batch from small ones
#
# Sixty-four examples do not fit? Send them through in micro-batches and let the gradients add up:
# `backward()` *adds* to `.grad`. First the numbers by hand; **guess** what happens without the
# division by K.

# %%
worked.compute("N19")

# %% [markdown]
# Now your turn: one update from a list of micro-batches, equal to the update of the joined batch,
# also when the last micro-batch is shorter. Return the mean loss over all its examples.

# %% nbgrader={"grade": false, "grade_id": "accumulate", "locked": false, "schema_version": 3, "solution": true, "task": false}
def accumulate(model, micro_batches, criterion, optimizer):
    """One optimizer step from several micro-batches, as from one joined batch.

    Args:
        model: Gives logits [B, C]; each micro-batch goes through it on its own.
        micro_batches: A list of pairs of inputs [B, ...] and class indices [B]; B may differ.
        criterion: Mean-reduced loss of logits and targets.
        optimizer: Holds the model's parameters; gradients of an earlier step may be left.

    Returns:
        The mean loss over all examples, a float.
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

# %% nbgrader={"grade": true, "grade_id": "accumulate-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("03a.accumulate", accumulate)

# %% nbgrader={"grade": true, "grade_id": "accumulate-hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# More cases of 03a.accumulate are tried here when the notebook is graded.
### BEGIN HIDDEN TESTS
check("03a.accumulate", accumulate, parts="hidden")
### END HIDDEN TESTS

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

# %% [markdown]
# ## 3.7 A ceiling for the gradient
#
# One bad batch can throw the weights far off. Clipping by the global norm shortens the gradient and
# keeps its direction. **Guess:** what do [3, 4] and a ceiling of 1 give?

# %%
worked.compute("N20")

# %% [markdown]
# Write it for all parameters at once, in place. Parameters may come as a generator, and some may
# have no gradient. Return the norm *before* clipping: it is what you want to see in a log.

# %% nbgrader={"grade": false, "grade_id": "clip", "locked": false, "schema_version": 3, "solution": true, "task": false}
def clip_by_global_norm(parameters, max_norm):
    """Scale all gradients by one factor so that their joint norm is at most max_norm.

    Args:
        parameters: Tensors with .grad (or None there); a list or a generator.
        max_norm: The ceiling of the joint L2 norm.

    Returns:
        The joint norm before clipping.
    """
    ### BEGIN SOLUTION
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.stack([grad.norm() for grad in grads]).norm()
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for grad in grads:
        grad.mul_(factor)
    return norm
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "clip-check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("03a.clip", clip_by_global_norm)

# %% nbgrader={"grade": true, "grade_id": "clip-hidden", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# More cases of 03a.clip are tried here when the notebook is graded.
### BEGIN HIDDEN TESTS
check("03a.clip", clip_by_global_norm, parts="hidden")
### END HIDDEN TESTS

# %% [markdown]
# ## 3.8 The same with the engine
#
# The course's `Trainer` is these four functions in the lecture's order, with checkpoints, schedules
# and a record around them. Micro-batches of 16, four to an update, clipped at 1. The images are in
# memory anyway, so `InMemoryLoader` cuts whole batches out of them; a `DataLoader` would fetch
# image by image.

# %%
model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
inputs, targets = data.train_inputs, data.train_targets
train_loader = InMemoryLoader(inputs, targets, batch_size=16, shuffle=True, seed=3)
trainer = Trainer(model, criterion, optimizer, accum_steps=4, max_norm=1.0, seed=3)
history = trainer.fit(train_loader, val_loader, epochs=10)
print(f"best validation accuracy {history.best['val_accuracy']:.1%}")

# %% [markdown]
# Open `course/engine/trainer.py` and read it aloud: you have written every station of it.
