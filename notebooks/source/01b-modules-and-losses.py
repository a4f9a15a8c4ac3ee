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
# # 1b · Modules and losses
#
# A network is a module that owns numbers, and a loss says how wrong they are. Both can fail
# quietly: a layer is never trained, or a loss cannot fall. You will see where such mistakes hide,
# and write your own linear layer and cross-entropy. At the end they will learn to read handwritten
# digits.
#
# *Read each question, make a guess, then run the cell below it. Any cell can be run again. Stuck?
# `hint("01b.linear")` gives three hints, `failing("01b.linear")` the smallest failing case.*
#
# *"The lecture" is the one whose claims this course tests; you need not have heard it. A code such
# as N42 or F71 names an item in it: in a terminal, `course ledger N42` says which one, and
# `course claims F71` tests a claim.*

# %%
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from autograde import ask, check, failing, guess, hint, ready, reveal, scorecard, student
from course import worked
from course.data import load
from course.engine import choose_device
from course.plots import modules as plots

device = choose_device()  # a GPU where there is one: data and models go there

# %%
student("")

# %% [markdown]
# ## 1b.1 From images to logits
#
# A classifier turns an image into one number per class, the **logits**. The largest one wins, and
# they do not have to add up to 1. Each image is first flattened into a row, and every layer maps
# rows to rows. **Guess:** a batch of 64 images of 1 × 28 × 28 goes through 784-128-10. What shape
# do the logits have?

# %%
guess("01b.logits", ...)

# %%
worked.compute("N42")

# %% [markdown]
# The batch dimension stays in front all the way through. Our digits are smaller, 8 × 8, but the
# shapes change in the same way. A `Sequential` calls its layers in order; let us look over its
# shoulder.

# %%
data = load("digits")
there = data.to(device)  # for training; everything else here stays on the CPU
torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
values = data.train_inputs[:32]
for layer in model:
    before, values = list(values.shape), layer(values)
    print(f"{type(layer).__name__:8} {before!s:15} -> {list(values.shape)}")

# %% [markdown]
# What does such a network learn? Every output of a linear layer has one weight per input, and a
# bias. **Guess:** how many numbers does 784-128-10 learn? Work it out on paper, layer by layer.

# %%
guess("01b.numbers", ...)

# %%
worked.compute("N43")

# %% [markdown]
# It is 785 · 128 + 129 · 10. Almost all of them are in the first layer, because it is connected to
# every pixel. Such a count is worth the minute: a wrong one is often the first sign that a layer is
# not where you think it is.
#
# Walk the same batch through the lecture's classifier. What grows with the batch size, and what
# with the width? Then go through the ranks, and read what torch says about the usual mistake with
# each one.

# %%
from course.widgets.shapes.widget import ShapesAndRanks

ShapesAndRanks()

# %% [markdown]
# More examples make the tensors larger, but do not add a single parameter. Five of the mistakes
# raise an error for any batch; a loss that was not averaged raises one too, unless the batch holds
# a single example.

# %% [markdown]
# ## 1b.2 What a module knows about
#
# How does `model.parameters()` find the layers? A module watches what is assigned to its
# attributes: a `Parameter` goes into one register, a sub-module into another, and a **buffer**
# (moved and saved, but not trained) into a third. Anything else is just a Python attribute. Here
# are seven ways to keep a tensor.

# %%
class Seven(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("mask", torch.ones(4), persistent=False)
        self.layer = nn.Linear(4, 4)
        self.offset = torch.zeros(4, requires_grad=True)
        self.blocks = [nn.Linear(4, 4), nn.Linear(4, 4)]

# %% [markdown]
# The model is trained, `model.state_dict()` is saved, and a new process loads it. **Guess:** how
# many of the seven attributes does the file bring back?

# %%
guess("01b.saved", ...)

# %%
from course.analysis.reach import reach

reached = reach(Seven())
reveal("01b.saved", sum(way.saved for way in reached.values()))
plots.plot_reach(reached)

# %% [markdown]
# Four. The mask is moved but not saved, which is what `persistent=False` asks for. The last two
# rows are the trap: a plain tensor and a list are silently neither trained, nor moved, nor saved,
# whatever `requires_grad` says. The lecture's claims about this hold when tested (F01, F02, F03).
#
# Take one such module through its life: it is built, runs backward, takes a step, is moved, saved
# and loaded. Which tensors does each operation reach? Choose how the module keeps a scale and two
# layers; ● means reached.

# %%
from course.widgets.registry.widget import ModuleRegistry

ModuleRegistry()

# %% [markdown]
# Watch the second column: layers in a list do get a gradient, because autograd follows the tensors
# and not the registers. But the step that should use this gradient never sees the layers, and
# `zero_grad()` never clears it.

# %% exercise 01b.registers

# %% [markdown]
# Now for a network whose layers are in a list. It runs, its loss has a gradient, and nothing looks
# wrong. **Guess:** how many numbers will its optimizer be given?

# %%
guess("01b.listed", ...)

# %%
class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(64, 64), nn.Linear(64, 10)]

    def forward(self, images):
        first, last = self.layers
        return last(torch.relu(first(images.flatten(1))))

# %%
hidden = Listed()
count = sum(p.numel() for p in hidden.parameters())
print("logits", list(hidden(data.train_inputs[:32]).shape), "  numbers to learn:", count)
reveal("01b.listed", count)
try:
    torch.optim.SGD(hidden.parameters(), lr=0.1)
except ValueError as error:
    print("SGD:", error)

# %% [markdown]
# With *nothing* registered the optimizer complains, and that is lucky. One layer outside the list
# is enough to keep it quiet: the layers in the list then keep their initial weights, and the
# network trains a little worse than it should (F04). So count the parameters.

# %% exercise 01b.parameters
# Counting also proves that a fix worked: count before, and count after.
### BEGIN SOLUTION
hidden_numbers = (q.n + 1) * q.h + (q.h + 1) * q.k + (q.m - 1) * (q.k + 1) * q.k
last = (q.k + 1) * q.c
parameters = {"tensors": 2 * (q.m + 2), "numbers": hidden_numbers + last, "listed": last}
### END SOLUTION

# %% exercise 01b.hidden-layers
# A colleague hands you a classifier that normalises its inputs and scales its logits. On their
# laptop it runs. This is what it should do: layers and `scale` are trained, moved and saved; `mean`
# and `std` are moved and saved, but are not parameters and are never trained. Keep the names
# `layers`, `scale`, `mean`, `std` (a checkpoint has `layers.0.weight`, `layers.1.weight`, ...), and
# the outputs. Change as little as you can.

# %%
repaired = make_classifier([64, 32, 10], torch.zeros(64), torch.ones(64))
plots.plot_reach(reach(repaired))

# %% [markdown]
# ## 1b.3 A layer of your own
#
# `nn.Linear` is only a few lines: two parameters and x Wᵀ + b. The initial weights are not
# arbitrary. Each output is a sum with one term per input, so the weights are drawn between ±1/√in:
# the more terms there are to add, the smaller each weight.

# %%
widths = (4, 16, 256)
layers = {f"{width} inputs": nn.Linear(width, 4000) for width in widths}
drawn = {name: layer.weight[:, 0].tolist() for name, layer in layers.items()}
plots.plot_first_weights(drawn, [width**-0.5 for width in widths])

# %% exercise 01b.linear
# The weight has the shape [out, in], and the bias, if there is one, [out]. Names and shapes are
# those of torch's layer, so that a checkpoint made by one fits the other. Do not use `nn.Linear` or
# derive from it; everything else in torch is allowed. Every layer draws its own numbers from
# torch's global generator, and sets no seed.
class Linear(nn.Module):
    """y = x Wᵀ + b, for inputs [..., in] of any number of dimensions.

    Args:
        in_features: Columns of the input.
        out_features: Columns of the output.
        bias: Whether there is one; if not, `state_dict()` holds only the weight, and it does not
            matter what `layer.bias` is.

    `weight` and `bias` are parameters; both are drawn uniformly between -1/√in and 1/√in.
    The layer works on any dtype and device that it is moved to, and does not change its input.
    """

    def __init__(self, in_features, out_features, bias):
        ### BEGIN SOLUTION
        super().__init__()
        bound = in_features**-0.5
        self.weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        drawn = torch.empty(out_features).uniform_(-bound, bound)
        self.bias = nn.Parameter(drawn) if bias else None
        ### END SOLUTION

    def forward(self, x):
        ### BEGIN SOLUTION
        out = x @ self.weight.T
        return out if self.bias is None else out + self.bias
        ### END SOLUTION

# %%
if ready(Linear):
    theirs, mine = nn.Linear(64, 10), Linear(64, 10, True)
    print(mine.load_state_dict(theirs.state_dict()))
    rows = data.train_inputs[:32].flatten(1)
    print("largest difference:", (mine(rows) - theirs(rows)).abs().max().item())

# %% [markdown]
# ## 1b.4 A gate, and the way back through it
#
# Two linear layers in a row amount to one linear layer. Something between them must bend, and
# **ReLU** bends as little as possible: max(0, x). On the way back it is a gate. Where x was
# positive, the arriving gradient passes unchanged, whatever its sign; elsewhere nothing passes.

# %%
x = torch.linspace(-3, 3, 121, requires_grad=True)
arriving = torch.cos(2 * x.detach())
y = torch.relu(x)
y.backward(arriving)
plots.plot_gate(x.tolist(), y.tolist(), arriving.tolist(), x.grad.tolist())

# %% [markdown]
# Exactly at 0 there is a corner, where any slope between 0 and 1 could be justified. torch chooses
# 0. That choice is part of the definition here, so your function should make it too.

# %% exercise 01b.relu
# Write it in NumPy, without torch. The forward pass returns two things: the values, and a
# *function* for the way back. That function has to remember which gates were open: before
# calling it, the caller may call `relu` again, or overwrite `x` but not `y`.
def relu(x):
    """max(x, 0), and the way back through it.

    Args:
        x: A NumPy array of any shape, of finite numbers; it is not changed.

    Returns:
        y, backward: the values, a new array; and a function that may be called more than once.
        `backward(grad_output)` takes the gradient of the loss with respect to y, does not change
        it, and returns the one with respect to x, a new array; at x = 0 the slope is 0.
    """
    ### BEGIN SOLUTION
    is_open = x > 0

    def backward(grad_output):
        return np.where(is_open, grad_output, 0.0)

    return np.where(is_open, x, 0.0), backward
    ### END SOLUTION

# %%
x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
torch.relu(x).backward(torch.ones(4, 3))
if ready(relu):
    values, backward = relu(x.detach().numpy())
    print("same as torch:", np.array_equal(backward(np.ones((4, 3))), x.grad.numpy()))

# %% [markdown]
# ## 1b.5 From logits to probabilities
#
# **Softmax** turns logits into shares that add up to 1, in proportion to exp(z). Only differences
# matter: adding 5 to all logits multiplies every exp(z) by the same factor, so the shares stay the
# same. On paper, then, [1000, 1001, 1002] gives the same as [0, 1, 2]. **Guess:** what does the
# formula give in NumPy?

# %%
guess("01b.overflow", ...)

# %%
z = np.array([1000.0, 1001.0, 1002.0])
with np.errstate(all="ignore"):
    shares = np.exp(z) / np.exp(z).sum()
print("exp(z) / Σ exp(z) =", shares)
reveal("01b.overflow", "nan" if np.isnan(shares).all() else "shares")

# %% [markdown]
# exp(1000) is beyond the largest float64 and becomes inf; inf / inf is nan. Far below zero, all
# exponentials round to 0, and 0 / 0 is nan again. The property above is the way out: subtract the
# largest logit from all of them *before* exp, and nothing can overflow.

# %%
shifts = np.linspace(-1200, 1200, 241)
z = shifts[:, None] + np.array([0.0, 1.0, 2.0])
largest = z.max(axis=1)
with np.errstate(all="ignore"):
    naive = np.log(np.exp(z).sum(axis=1))
shifted = largest + np.log(np.exp(z - largest[:, None]).sum(axis=1))
plots.plot_overflow(shifts, {"naive": naive, "largest subtracted first": shifted})

# %% [markdown]
# The naive line ends on both sides, near ±710 to ±745. In float32 it would end near ±90, well
# within what a network may output after a step that was too long. `log Σ exp` has a name,
# **log-sum-exp**, and libraries that compute it shift first.

# %% exercise 01b.softmax
# Write it in NumPy, without torch and without `scipy.special`. The axis is an argument; each slice
# along it is a separate distribution.
def softmax(x, axis):
    """Shares that add up to 1 along an axis, in proportion to exp(x).

    Args:
        x: A NumPy array of floats; it is not changed. Entries may be in the thousands, or -inf
            for a class that is ruled out (its share is 0); every slice has a finite entry.
        axis: The axis along which the shares add up; it may be negative.

    Returns:
        A new array of the same shape, at least as precise as x: float64 stays float64.
    """
    ### BEGIN SOLUTION
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)
    ### END SOLUTION

# %% [markdown]
# ## 1b.6 The price of a probability
#
# **Cross-entropy** charges −log p, where p is the probability given to the right class: nothing for
# a right answer given with certainty, and more without limit as p goes to 0. Written with logits it
# is log-sum-exp minus the right logit, so no probability is ever computed. **Guess:** what is the
# loss of [1000, 1001, 1002] if class 2 is right? The shares are about 0.09, 0.24, 0.67.

# %%
guess("01b.loss", ...)

# %%
worked.compute("N36")

# %% [markdown]
# Its gradient is as simple as a gradient can be: the probabilities, minus 1 for the right class.
# Below, class 3 is right. Every other class is pushed down by the probability it was given, and the
# right one is pushed up by what it lacks.

# %%
logits = torch.tensor([[1.0, -0.5, 2.0, 0.3, -1.0]], requires_grad=True)
F.cross_entropy(logits, torch.tensor([3])).backward()
shares = logits.detach().softmax(1)[0].tolist()
pulls = logits.grad[0].tolist()
panels = {"probability": shares, "gradient of the logits": pulls}
plots.plot_targets(panels, label="", right=3)

# %% [markdown]
# No finite logit reaches a target of 1, so the weights keep growing for ever. **Label smoothing**
# asks for a little less. It keeps 1 − ε for the right class and spreads ε evenly over *all* C
# classes, including the right one. **Guess:** for ε = 0.1 and three classes, what are the two
# targets?

# %%
guess("01b.smoothed", ...)

# %%
display(worked.compute("N37"))
smoothed = {f"ε = {e:g}": [e / 5] * 3 + [1 - e + e / 5, e / 5] for e in (0.0, 0.1, 0.5)}
plots.plot_targets(smoothed)

# %% [markdown]
# Look at the last row of the table: with smoothed targets the loss of a *perfect* model is not 0.
# For ten classes and ε = 0.1 it stops at 0.50.
#
# There are two more arguments. `ignore_index` leaves out examples, such as the padding of a text;
# `weight` makes some classes count more. Both change what "mean" means. **Guess:** there are 32
# examples with classes 0, 1, 2, 0, 1, 2, … and class weights 1, 2, 5. What is the sum of the losses
# divided by?

# %%
guess("01b.divisor", ...)

# %%
logits = torch.randn(32, 3, generator=torch.Generator().manual_seed(0))
targets, weight = torch.arange(32) % 3, torch.tensor([1.0, 2.0, 5.0])
total = F.cross_entropy(logits, targets, weight=weight, reduction="sum")
divisor = (total / F.cross_entropy(logits, targets, weight=weight)).item()
print(f"sum / mean = {divisor:.1f}; weights of the targets: {weight[targets].sum():.0f}")
reveal("01b.divisor", divisor)

# %% [markdown]
# Not by 32, but by the sum of the weights of the targets. With ignored targets it is the number of
# targets that are left, and if none are left, 0 / 0 is nan. The lecture's "divided by the batch
# size" holds only if you use neither argument (F71). That matters as soon as you average over
# batches.

# %% exercise 01b.cross-entropy
# Use torch this time, so that gradients flow. `F.cross_entropy` and `F.nll_loss` are what you are
# writing, so they are not allowed; `logsumexp` and `log_softmax` are. The target distribution of an
# example is q = (1 − ε) · one-hot + ε/C.
def cross_entropy(logits, targets, weight, label_smoothing, ignore_index):
    """Mean cross-entropy, as `F.cross_entropy` computes it; it does not change its arguments.

    Args:
        logits: [N, C], float32 or float64; finite, though they may be in the thousands.
        targets: Class indices [N], long; those equal to `ignore_index` do not count.
        weight: None, or a weight per class [C] in the logits' dtype; the term of class c is
            -q[c] · weight[c] · log p[c].
        label_smoothing: ε, from 0 to 1.
        ignore_index: Any number: -100, -1, or one of the classes.

    Returns:
        One number with its graph, a tensor without dimensions, of the logits' dtype: the sum of
        all terms that count, divided by the sum of weight[target] over the examples that count
        (by their number, if weight is None). If nothing counts: nan, with or without a graph.
    """
    ### BEGIN SOLUTION
    counts = targets != ignore_index
    logits, targets = logits[counts], targets[counts]
    log_p = logits - logits.logsumexp(dim=1, keepdim=True)
    weight = logits.new_ones(logits.shape[1]) if weight is None else weight
    q = label_smoothing / logits.shape[1] + (1 - label_smoothing) * F.one_hot(
        targets, logits.shape[1]
    )
    return -(q * weight * log_p).sum() / weight[targets].sum()
    ### END SOLUTION

# %%
options = {"weight": weight, "label_smoothing": 0.1, "ignore_index": 2}
if ready(cross_entropy):
    mine = cross_entropy(1000 * logits, targets, **options)
    theirs = F.cross_entropy(1000 * logits, targets, **options)
    print(f"yours {mine:.3f}, torch's {theirs:.3f}")

# %% [markdown]
# ## 1b.7 A loss and its targets
#
# So far, exactly one of several classes was right. Other tasks ask for a yes or a no, for several
# labels, or for a number; outputs, targets and loss have to fit together. **BCE**, binary
# cross-entropy, is the price of a yes or no: −log p if the target is 1, −log(1 − p) if it is 0.
# `F.binary_cross_entropy_with_logits` computes p from the logit z: the *sigmoid*, 1/(1 + exp(−z)).
# For B examples in a batch, C classes and L labels:

# %% [markdown]
# | task | outputs | targets | loss |
# | --- | --- | --- | --- |
# | one of many | logits [B, C] | class indices [B], long | cross-entropy |
# | yes or no | one logit, [B] or [B, 1] | 0 or 1, float, same shape | BCE with logits |
# | many labels | logits [B, L] | 0 or 1, float [B, L] | BCE with logits |
# | a number | [B] or [B, 1] | float, same shape | squared error, or absolute |
# | a ranking (not used here) | a score per item | which of two ranks higher | a margin between them |

# %% [markdown]
# A loss and targets that do not fit sometimes raise an error, and sometimes compute something else.
# **Guess:** the predictions [[0], [1], [2], [3]] are perfect for the targets [0, 1, 2, 3]. What is
# their mean squared error?

# %%
guess("01b.broadcast", ...)

# %%
wanted = torch.arange(4.0)
outputs = wanted[:, None]  # the shape that a layer with one output returns: [4, 1]
squares = (outputs - wanted).square()
print(list(outputs.shape), "minus", list(wanted.shape), "is", list(squares.shape))
print(squares)
reveal("01b.broadcast", squares.mean().item())

# %% [markdown]
# [4, 1] minus [4] is [4, 4]: every output was compared with every target. Now nothing looks better
# than the best constant answer, the mean of all targets, and the loss never falls. `F.mse_loss` at
# least warns. Trained on two classes this way, a network ends more than five points of accuracy
# below one trained with BCE; with equal shapes it nearly keeps up (F12).

# %% [markdown]
# BCE with logits raises an error unless the shapes are *equal* and the targets are floats (F13).
# Cross-entropy is said to break on one-hot floats, but when tested it does not: floats [B, C] are
# read as probabilities, and give the same loss as indices (F08). One-hot *integers* do raise an
# error.

# %% exercise 01b.task-loss
# You get outputs as a model returns them and targets as a loader returns them: make them fit. You
# may use torch's own losses, and you are meant to.
def task_loss(task, outputs, targets):
    """The mean loss that fits the task, with its graph; it does not change its arguments.

    Args:
        task, outputs, targets: One of four tasks; B may be 1.
            "one of many": logits [B, C]; one-hot [B, C], long.
            "yes or no": a logit [B, 1]; 0 or 1, [B], long.
            "many labels": logits [B, L]; 0 or 1, [B, L], long or bool.
            "a number": a number [B, 1]; numbers [B], float64.

        Outputs are float32 or float64, without a softmax or sigmoid.

    Returns:
        One number, a tensor without dimensions, of the outputs' dtype. The mean is over
        examples; for many labels, over all B · L entries. For a number it is the mean *squared*
        error.
    """
    ### BEGIN SOLUTION
    if task == "one of many":
        return F.cross_entropy(outputs, targets.argmax(dim=1))
    targets = targets.to(outputs.dtype).view_as(outputs)
    if task == "a number":
        return F.mse_loss(outputs, targets)
    return F.binary_cross_entropy_with_logits(outputs, targets)
    ### END SOLUTION

# %% [markdown]
# ## 1b.8 The loss that cannot fall
#
# A softmax in front of cross-entropy is the most common mismatch of all: the shapes fit, no error
# is raised, the loss falls. But a probability is at most 1, and such small *logits* can never
# express certainty. **Guess:** there are ten classes, and a perfect model ends with a softmax. What
# is the lowest loss that it can reach?

# %%
guess("01b.floor", ...)

# %%
perfect = F.one_hot(torch.tensor([3]), 10).float()  # what a certain softmax outputs
floor = F.cross_entropy(perfect, torch.tensor([3])).item()
print(f"{floor:.4f}, and guessing gives ln 10 = {np.log(10):.4f}")
reveal("01b.floor", floor)
worked.compute("N38")

# %%
def train(model, loss, updates=150):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(updates):
        optimizer.zero_grad()
        value = loss(model(there.train_inputs), there.train_targets)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses

# %%
curves = {}
for name, last in (("logits", nn.Identity()), ("softmax first", nn.Softmax(dim=1))):
    torch.manual_seed(0)
    layers = nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10), last
    model = nn.Sequential(nn.Flatten(), *layers).to(device)
    curves[name] = train(model, F.cross_entropy)
    hits = model(there.val_inputs).argmax(dim=1) == there.val_targets
    print(f"{name:14} loss {curves[name][-1]:.3f}, accuracy {hits.float().mean():.1%}")
plots.plot_floors(curves, {"chance": float(np.log(10)), "floor": floor})

# %% [markdown]
# That is the signature to remember: a loss that flattens out above 1.46, while the model reads most
# of the digits correctly (F06). The gradients are weaker, so it learns more slowly and still makes
# many more mistakes. The accuracy alone does not say why: without the right run next to it, it looks
# like that of a mediocre model.

# %% [markdown]
# ## 1b.9 Everything of your own
#
# Your layer, your loss and a loop, with no `nn.Linear` and no `F.cross_entropy`. Does it read
# digits?

# %%
torch.manual_seed(0)
if ready(Linear, cross_entropy):
    layers = Linear(64, 64, True), nn.ReLU(), Linear(64, 10, True)
    model = nn.Sequential(nn.Flatten(), *layers).to(device)
    losses = train(model, lambda z, y: cross_entropy(z, y, None, 0.1, -100))
    hits = model(there.val_inputs).argmax(dim=1) == there.val_targets
    print(f"accuracy {hits.float().mean():.1%}, loss {losses[-1]:.3f} (the floor: 0.500)")

# %% [markdown]
# It does. So why use the framework's versions? Both ways have a price (S29):
#
# | | written yourself | the framework's |
# | --- | --- | --- |
# | derivatives | yours to get wrong | autograd's |
# | speed, other devices | a lot of work | one line |
# | loaders, checkpoints | yours to write | ready |
# | what happens inside | in sight | out of sight: check shapes, modes, what is registered |
#
# Write it once to understand it, then use the framework's and keep the checks.

# %%
scorecard("01b-modules-and-losses")

# %% [markdown]
# ## What to keep
#
# - A module knows its parameters, buffers and sub-modules. What is in a list or a plain tensor is
#   not trained, moved or saved, and no error says so: count the parameters.
# - Cross-entropy takes logits. Log-sum-exp with the largest logit subtracted is what makes it safe.
# - A mean has a divisor: the number of examples, unless weights or an ignored index change it.
# - Every loss expects certain shapes and dtypes. Broadcasting and a second softmax raise no error;
#   what gives them away is a loss that stops at a floor.
#
# **Further reading.** *Modules* in PyTorch's documentation; Szegedy et al., *Rethinking the Inception
# Architecture* (2016), section 7, on label smoothing; [course/from_scratch/losses.py](../course/from_scratch/losses.py)
# and [layers.py](../course/from_scratch/layers.py).
#
# **Challenge, ungraded.** Give your `cross_entropy` a temperature: divide the logits by T > 0. Find
# the T that gives your trained network the lowest validation loss on the digits, without training
# it again. Is it above or below 1, and what does that say about how sure the network is of itself?
