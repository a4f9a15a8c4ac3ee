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
# # 2a · Signals and initialisation
#
# Thirty layers, a loop without a bug, and the loss does not move. The signal has shrunk to nothing
# on its way through the network, or the gradients have on their way back. You will measure both,
# draw weights that keep them alive, and write two layers that work differently in training and
# evaluation: BatchNorm and dropout.
#
# *Read each question, make a guess, then run the cell below it. Any cell can be run again. Stuck?
# `hint("02a.initialise")` gives three hints, `failing("02a.initialise")` the smallest failing case.*
#
# *"The lecture" is the one whose claims this course tests; you need not have heard it. A code such
# as N39 or F81 names an item in it: in a terminal, `course ledger N39` says which one, and
# `course claims F81` tests a claim.*

# %%
import torch
from torch import nn

from autograde import ask, check, failing, guess, hint, ready, reveal, scorecard, student
from course import worked
from course.data import load
from course.debug.signals import read_signals
from course.engine import choose_device
from course.from_scratch.deep import DeepNet, Layer
from course.plots.signals import plot_depth, plot_histograms

device = choose_device()  # a GPU where there is one: data and models go there

# %%
student("")

# %% [markdown]
# ## 2a.1 What arrives at layer 30?
#
# Digits go through a first linear map, then through 30 identical layers: a linear map, then relu.
# A head turns the result into ten logits. The weights are as torch draws them, and the biases are
# 0. `read_signals` runs one batch forward and backward and looks at the output of every layer.

# %%
data, criterion = load("digits").to(device), nn.CrossEntropyLoss()
inputs, targets = data.train_inputs[:256], data.train_targets[:256]


def deep(depth=30, **about):
    torch.manual_seed(0)
    model = DeepNet(64, 10, width=64, depth=depth, **about)
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            layer.bias.data.zero_()
    return model

# %%
def signals(model):
    return read_signals(model.to(device), inputs, targets, criterion, kinds=(Layer,))


layers = signals(deep())
for number in (0, 1, 2, 3):
    print(f"layer {number + 1}: standard deviation {layers[number].std:.3g}")

# %% [markdown]
# Every layer makes the signal smaller, by about the same factor. **Guess:** what is the standard
# deviation after layer 30? Continue the sequence above; within a power of ten is close enough.

# %%
guess("02a.default", ...)

# %%
reveal("02a.default", layers[-1].std)
plot_depth({"signal": [layer.std for layer in layers]})

# %% [markdown]
# A straight line on a logarithmic axis means a constant factor per layer. What reaches the head no
# longer distinguishes one digit from another, so the loss stays at ln 10. No learning rate can fix
# that. Where does the factor come from?

# %% [markdown]
# ## 2a.2 One layer, with pencil
#
# One unit adds up n products of an input and a weight. If the weights are independent with mean 0
# and variance v, the mean squares of the products add up: the **mean square** (the mean of the
# squares) of the output is n·v times that of the input. **Guess:** there are n = 64 inputs, the
# weights have standard deviation 0.25, and the input has mean square 1. What is the mean square of
# the output?

# %%
guess("02a.one-layer", ...)

# %%
torch.manual_seed(0)
x = torch.randn(10_000, 64)
y = x @ (0.25 * torch.randn(64, 64)).T
print(f"in {x.square().mean():.3f}, out {y.square().mean():.2f}, "
      f"after relu {y.relu().square().mean():.2f}")
reveal("02a.one-layer", 64 * 0.25**2)

# %% [markdown]
# It is four times as large, and relu removes half of it: the outputs are negative as often as
# positive, and the squares of the negative ones are gone. So a layer with relu multiplies the mean
# square by n·v/2, and many layers multiply it by a power of that.

# %% exercise 02a.depth
### BEGIN SOLUTION
linear = q.n * q.v
depth = {"linear": linear**q.d, "relu": (linear / 2) ** q.d,
         "std": (2 / q.n) ** 0.5, "residual": 2**q.d}
### END SOLUTION

# %% [markdown]
# torch draws a linear layer's weights with variance 1/(3n), so that n·v/2 is 1/6: the standard
# deviation falls by √6 ≈ 2.4 per layer. That is the slope of the line above. And what if the
# weights were larger? Here are three networks, whose factor n·v/2 is below 1, exactly 1, and above
# 1.

# %%
def drawn(variance, **about):
    model = deep(**about)
    for layer in list(model)[1:-1]:
        linear = layer if isinstance(layer, nn.Linear) else layer.linear
        linear.weight.data.normal_(0, variance**0.5)
    return model


factors = {"n·v/2 = 0.5": 1 / 64, "n·v/2 = 1": 2 / 64, "n·v/2 = 2": 4 / 64}
read = {name: signals(drawn(variance)) for name, variance in factors.items()}

# %%
plot_depth({name: [layer.std for layer in found] for name, found in read.items()})

# %% [markdown]
# Only the middle line keeps its size: it has variance 2/n, which is **He**'s rule. The lower one
# dies, and the upper one explodes. The middle one is not perfectly flat either, because 64 units
# are few: each layer's factor is itself random, and the errors multiply.

# %% [markdown]
# ## 2a.3 And backwards?
#
# A gradient takes the same path from the end: each layer multiplies it by the transposed weights,
# and relu lets half of it pass. Here we mean the loss's gradient with respect to a layer's
# *output*, not to its weights. **Guess:** which of the three networks has the largest gradient at
# layer 1, compared with its gradient at layer 30?

# %%
guess("02a.backward", ...)

# %%
ratios = {name: found[0].grad_std / found[-1].grad_std for name, found in read.items()}
print({name: f"{ratio:.2g}" for name, ratio in ratios.items()})
keys = dict(zip(ratios, ("small", "he", "large"), strict=True))
reveal("02a.backward", keys[max(ratios, key=ratios.get)])
plot_depth({name: [layer.grad_std for layer in found] for name, found in read.items()},
           ylabel="gradient of the output, std")

# %% [markdown]
# Now read the curves from right to left: the gradient starts at the last layer, and each step back
# multiplies its mean square by the same n·v/2. Going backwards, n is the number of *outputs*.
# **Xavier**'s rule is a compromise that uses the mean of the two, variance 2/(inputs + outputs).
# For a square layer without relu that is 1/n.

# %% exercise 02a.initialise
# Draw the weights of a whole model. In every `nn.Linear` and `nn.Conv2d`, at any depth, the weights
# become independent random numbers around 0 with standard deviation gain/√inputs, and the biases
# become 0. *Inputs* are the numbers that one unit adds up; for a convolution, channels times
# the kernel's height and width. The gain makes up for the activation: 1 for "linear", √2 for "relu",
# 5/3 for "tanh". Use a normal or a uniform distribution, as you like, but not torch's kaiming and
# xavier functions.
def initialise(model, activation):
    """Fill the weights in place: an optimizer may already hold the parameters.

    Args:
        model: It has Linear and Conv2d layers at any depth, some without a bias, some frozen; it
            may be such a layer itself. It may also have other modules, whose parameters and
            buffers stay as they are.
        activation: "linear", "relu" or "tanh".

    Modes, dtypes, requires_grad, .grad and the Parameter objects are the same as before. What
    the function returns does not matter.
    """
    ### BEGIN SOLUTION
    gain = {"linear": 1.0, "relu": 2**0.5, "tanh": 5 / 3}[activation]
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                inputs_of_a_unit = layer.weight[0].numel()
                layer.weight.normal_(0, gain / inputs_of_a_unit**0.5)
                if layer.bias is not None:
                    layer.bias.zero_()
    ### END SOLUTION

# %%
curves = {"torch's own": [layer.std for layer in layers]}
if ready(initialise):
    for activation in ("relu", "tanh"):
        model = deep(activation=activation)
        initialise(model, activation)
        curves[f"yours, {activation}"] = [layer.std for layer in signals(model)]
plot_depth(curves)

# %% [markdown]
# Over 30 layers, both of your curves stay within a small factor of where they began.

# %% [markdown]
# ## 2a.4 Saturated
#
# A tanh cannot explode, because its output stays within ±1. But what happens to a unit whose output
# is close to that limit? Its slope, 1 − tanh², is nearly 0. **Guess:** how much of a gradient of 1
# passes through a tanh whose output is 0.99?

# %%
guess("02a.saturated", ...)

# %%
reveal("02a.saturated", 1 - 0.99**2)
rows = {}
for name, std in {"0.3 / √n": 0.3 / 8, "(5/3) / √n": 5 / 3 / 8, "5 / √n": 5 / 8}.items():
    read[name] = signals(drawn(std**2, activation="tanh"))
    rows[name] = {f"layer {i}": read[name][i - 1].output for i in (1, 5, 10, 20, 30)}
plot_histograms(rows, xlabel="output of the tanh", limit=1.0)

# %% [markdown]
# Read each row from left to right. With small weights everything gathers at 0, and the network
# gives every digit the same answer. With large ones everything piles up at −1 and 1. The middle row
# has tanh's gain: after the first layers, its histogram keeps its shape. These histograms are the
# first thing to look at when you debug; the gradients of the outputs are the second.

# %%
names = [name for name in read if "√n" in name]
plot_depth({name: [layer.grad_std for layer in read[name]] for name in names},
           ylabel="gradient of the output, std")

# %% [markdown]
# Each row has its own signature. At 0.3/√n the gradient dies on its way to layer 1. At (5/3)/√n it
# stays within about a power of ten. At 5/√n a saturated unit passes almost nothing, but large
# weights multiply what does pass. Here the second effect wins, and the gradient at layer 1 is by
# far the largest. A sigmoid is worse than tanh: its slope is at most ¼.

# %% [markdown]
# ## 2a.5 Dead units
#
# A relu whose input is negative for every example passes no gradient, so its weights never move. A
# single step that is too large can do that to many units at once. First write a function to measure
# it.

# %% exercise 02a.dead-units
# For each `nn.ReLU`, count the units that output 0 for *every* example of *all* batches. For an
# output [batch, units], a unit is a column; for images [batch, channels, height, width] it is a
# channel, which is dead if it is 0 at every position of every example. Forward hooks see the
# outputs. Some layers work in place and overwrite the output of the layer before them, so look at
# an output inside the hook. No layer overwrites the loader's inputs.
def dead_units(model, loader):
    """How many units of each ReLU never fire, measured in eval mode.

    Args:
        model: It has ReLUs at any depth, each used once per forward pass, or is a ReLU itself.
            Each module may be in any mode.
        loader: Yields one or more pairs of inputs and targets; iterate it only once per call.

    Returns:
        {name as in named_modules(): number of dead units, an int or a tensor that holds
        one}; {} if there is no ReLU.

    Afterwards everything is as it was: weights, buffers, .grad, modes, hooks, the data.
    """
    ### BEGIN SOLUTION
    alive, hooks = {}, []

    def watch(name):
        def hook(module, args, output):
            fired = (output > 0).transpose(0, 1).flatten(1).any(dim=1)
            alive[name] = alive[name] | fired if name in alive else fired

        return hook

    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            hooks.append(module.register_forward_hook(watch(name)))
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    with torch.no_grad():
        for inputs, _ in loader:
            model(inputs)
    for hook in hooks:
        hook.remove()
    for module, training in modes:
        module.training = training
    return {name: int((~fired).sum()) for name, fired in alive.items()}
    ### END SOLUTION

# %% [markdown]
# Now train a small network with He's weights for 100 updates, once at a normal rate and once at one
# that is far too large. **Guess:** how many of the 64 units of its *second* relu are dead after
# training at the large rate?

# %%
guess("02a.dead", ...)

# %%
def network():
    torch.manual_seed(0)
    hidden = nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(64, 10))

# %%
def trained(lr):
    model = network()
    initialise(model, "relu")
    optimizer = torch.optim.SGD(model.to(device).parameters(), lr)
    for _ in range(100):
        optimizer.zero_grad()
        criterion(model(inputs), targets).backward()
        optimizer.step()
    return model

# %%
counts = {}
if ready(dead_units, initialise):
    for lr in (0.1, 3.0):
        model = trained(lr)
        counts[lr] = dead_units(model, [(data.train_inputs, data.train_targets)])
        print(f"lr {lr}: loss {criterion(model(inputs), targets):.3f}, dead {counts[lr]}")
    reveal("02a.dead", counts[3.0]["4"])

# %% [markdown]
# The lecture says that a dead relu never recovers. When tested, this holds in the *first* layer,
# whose inputs never change: its gradient is exactly 0. But the layer below a later one can still
# move, so most later units that were dead by a small margin came back (`course claims F81`).
# Smaller rates, He's weights or a leaky relu prevent dead units.

# %% [markdown]
# ## 2a.6 A road around every layer
#
# A **residual** block adds its input to its result: x + f(x). This gives the signal and the
# gradient a path on which nothing multiplies them. Suppose that f(x) is as large as x, and
# independent of x with mean 0. **Guess:** by what factor do ten such blocks multiply the mean
# square?

# %%
guess("02a.residual", ...)

# %%
reveal("02a.residual", 2**10)
def residual(scale):
    model = deep(activation="tanh", residual=True)
    for layer in list(model)[2:-1]:
        layer.linear.weight.data.normal_(0, scale / 8)
    return model


shown = {"plain, 0.3/√n": signals(drawn(0.09 / 64, activation="tanh"))}
shown |= {f"residual, {scale}/√n": signals(residual(scale)) for scale in (0.3, 1.0)}

# %%
plot_depth({name: [layer.std for layer in found] for name, found in shown.items()})

# %%
plot_depth({name: [layer.grad_std for layer in found] for name, found in shown.items()},
           ylabel="gradient of the output, std")

# %% [markdown]
# Compare the same small weights with and without the shortcut: without it, signal and gradient die;
# with it, both keep their size. At 1/√n the first blocks each add a signal as large as their input;
# only because tanh keeps it below 1 do 30 blocks not make 2³⁰. Small branches let a network begin
# near the identity, and this is how very deep networks are initialised.

# %% [markdown]
# ## 2a.7 BatchNorm: two modes
#
# Instead of hoping that the size stays right, a **norm** sets it: it subtracts the mean and divides
# by the standard deviation. BatchNorm computes both over the batch, per feature, and keeps running
# averages for later. The column 1, 2, 3, 4 goes through a new BatchNorm with momentum 0.1.
# **Guess:** what is the running *variance* afterwards? It started at 1.

# %%
guess("02a.running-var", ...)

# %%
worked.compute("N39")

# %% [markdown]
# There are two variances in one layer. The output is divided by the root of the *biased* one (5/4),
# but the running average uses the *unbiased* one (5/3): 0.9 · 1 + 0.1 · 5/3. In eval mode the same
# column comes out quite differently, because one batch has moved the running statistics by only a
# tenth of the way.

# %% exercise 02a.batch-norm
# Write it by hand (no `nn.BatchNorm1d`, no `F.batch_norm`), for rows [batch, channels] and for
# images [batch, channels, height, width], where a channel's mean and variance are taken over
# examples and pixels. `weight` (initially ones) and `bias` (initially zeros) are learnt, with one
# number per channel; `running_mean` (initially zeros) and `running_var` (initially ones) are
# updated in train mode and saved with the model, but not learnt.
class BatchNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) · weight + bias, per channel (dimension 1).

    Args:
        channels: Size of dimension 1.
        momentum: Share of the new batch in running_mean and running_var.
        eps: Added to the variance.

    Train mode uses the mean and biased variance of the batch, through which the gradient flows.
    The running ones move, even under no_grad(). running_var moves towards the *unbiased* variance.
    With only one number per channel, e.g. one row, it raises a ValueError, and they stay.
    Eval mode uses the running ones, and changes nothing. x is never changed.
    """

    def __init__(self, channels, momentum=0.1, eps=1e-5):
        ### BEGIN SOLUTION
        super().__init__()
        self.eps = eps
        self.momentum = momentum
        for name, start in (("weight", 1.0), ("bias", 0.0)):
            setattr(self, name, nn.Parameter(torch.full((channels,), start)))
        for name, start in (("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((channels,), start))
        ### END SOLUTION

    def forward(self, x):
        """The normalised x, of the same shape."""
        ### BEGIN SOLUTION
        rows = x.transpose(0, 1).flatten(1)  # a row per channel
        centre, spread = self.running_mean, self.running_var
        if self.training:
            n = rows.shape[1]
            if n == 1:
                raise ValueError(f"shape {list(x.shape)}: one number per channel has no variance")
            centre, spread = rows.mean(1), rows.var(1, correction=0)
            with torch.no_grad():
                self.running_mean.lerp_(centre, self.momentum)
                self.running_var.lerp_(rows.var(1, correction=1), self.momentum)
        scale = self.weight * (spread + self.eps).rsqrt()
        rows = (rows - centre[:, None]) * scale[:, None] + self.bias[:, None]
        return rows.view(x.transpose(0, 1).shape).transpose(0, 1)
        ### END SOLUTION

# %% [markdown]
# The statistics of a batch are estimates, and a small batch gives poor ones. Draw numbers with
# standard deviation 1, in batches of 4. **Guess:** what is the standard deviation of the batches'
# *means*?

# %%
guess("02a.batch-mean", ...)

# %%
reveal("02a.batch-mean", 1 / 4**0.5)
worked.compute("N61")

# %% [markdown]
# It is 1/√B for B examples: in a batch of 4 the mean is typically off by half a standard deviation.
# So a short last batch brings noise, and a batch of one raises an error; `drop_last=True` avoids
# both. The claim holds (`course claims F96`). What does a norm do for thirty badly initialised
# layers?

# %%
norms = {"none": "none", "BatchNorm": "batch", "LayerNorm": "layer"}
normed = {name: signals(drawn(0.1 / 64, norm=norm)) for name, norm in norms.items()}
plot_depth({name: [layer.std for layer in found] for name, found in normed.items()})

# %% [markdown]
# The weights are far too small, but after a norm that does not matter: whatever comes in, it goes
# out with size 1, before relu. Still, BatchNorm has a price: it makes each example's output depend
# on its neighbours.

# %% [markdown]
# ## 2a.8 Without neighbours
#
# **LayerNorm** normalises each example over its own features, and **GroupNorm** over groups of its
# own channels. Neither looks at the batch, neither has a memory, and both do the same thing in
# either mode.

# %%
x = torch.randn(4, 6, 3, 3, generator=torch.Generator().manual_seed(0))
changed = torch.cat([x[:3], 5 * x[3:]])
for norm in (nn.BatchNorm2d(6), nn.GroupNorm(2, 6), nn.LayerNorm([6, 3, 3])):
    moved = (norm(x)[0] - norm(changed)[0]).abs().max().item()
    print(f"{type(norm).__name__:12} example 3 changes, example 0 moves by {moved:.3f}")

# %% exercise 02a.group-norm
# Here is a GroupNorm with three bugs. x is [batch, channels] or [batch, channels, ...]. Its
# channels form `groups` groups of equal size, each made of adjacent channels. Each group of each
# example is normalised by its own mean and its own *biased* variance, over channels and pixels,
# with eps under the root; then come weight and bias, one number per channel. Change as little as
# you can, and do not call torch's own `group_norm`.

# %% exercise 02a.neighbours

# %% [markdown]
# The lecture says that `eval()` changes only dropout and BatchNorm. When tested, six other kinds of
# layer change as well, among them RReLU and an LSTM with dropout between its layers
# (`course claims F23`). The claim that LayerNorm and GroupNorm do not change holds
# (`course claims F134`).

# %% [markdown]
# ## 2a.9 Dropout: two modes
#
# In train mode **dropout** sets each activation to 0 with probability p, so that no unit can rely
# on another one. There are four activations, 0.8, 1.2, 0.3, 0.9, and p = 0.5; entries 1 and 3
# (counted from 0) are dropped. **Guess:** what comes out?

# %%
guess("02a.dropped", ...)

# %%
worked.compute("N12")

# %% [markdown]
# What is kept is doubled, so that the mean over all masks is the input. That is why eval mode has
# nothing to do. For other rates, `worked.compute("N40")` shows the factor: 1.25 for p = 0.2, 2 for
# 0.5. The lecture's numbers agree.

# %% exercise 02a.dropout
# Write it by hand (no `nn.Dropout`, no `F.dropout`). Every call draws a new mask from torch's
# default random numbers, independently for each entry.
def dropout(x, p, training):
    """Zero entries with probability p, scale the others so that the mean over all masks is x.

    Eval mode: x.

    Args:
        x: A finite float tensor of any shape; it is not changed.
        p: Probability of being dropped, from 0 to 1, both included; 1 gives zeros, not nan.
        training: True in train mode.

    Returns:
        A tensor of x's shape and dtype, through which the gradient flows where entries are kept.
    """
    ### BEGIN SOLUTION
    if training:
        kept = torch.empty_like(x).bernoulli_(1 - p).bool()
        scale = 1 / (1 - p) if p < 1 else 0.0
        return torch.where(kept, x * scale, torch.zeros_like(x))
    return x
    ### END SOLUTION

# %% [markdown]
# The mean stays the same, but what about the size? **Guess:** by what factor does dropout with p =
# 0.5 multiply the mean *square* of a signal?

# %%
guess("02a.dropout-square", ...)

# %%
torch.manual_seed(0)
x = torch.randn(1000, 1000)
if ready(dropout):
    factor = dropout(x, 0.5, True).square().mean() / x.square().mean()
    print(f"mean square times {factor:.3f}")
reveal("02a.dropout-square", 2.0)

# %% [markdown]
# Half of the squares vanish, and the others count four times: in all, 1/(1 − p). A BatchNorm after
# a dropout therefore remembers a variance that never occurs in eval mode: the two modes disagree,
# and validation suffers. Put dropout after the last norm.
#
# Now put both layers into one network, in two copies: one in train mode, one in eval mode, given
# the same input again and again. Which of `train()`, `eval()` and `no_grad()` changes the output,
# which the running mean, and which the memory use?

# %%
from course.widgets.modes.widget import TrainAgainstEval

TrainAgainstEval()

# %% [markdown]
# Three switches, three effects. `eval()` stops the masks and the statistics; `no_grad()` keeps
# nothing for backward, but stops neither of them (`course claims F25`). Validation needs both.

# %% [markdown]
# ## 2a.10 Thirty layers that learn
#
# Now use all your tools at once: the scale of the weights, a norm, shortcuts. No learning rate
# alone saves the plain network of section 2a.1. Which way needs the fewest updates?

# %% exercise 02a.deep-net

# %%
scorecard("02a-signals-and-initialisation")

# %% [markdown]
# ## What to keep
#
# - A layer multiplies the mean square by inputs times variance; relu halves it; depth raises this
#   factor to a power.
# - He, for relu: variance 2/inputs; in general, standard deviation gain/√inputs. Xavier: a
#   compromise with the backward pass. Shortcuts and norms forgive a bad initialisation.
# - Look at the signal and the gradient, layer by layer, before you change the learning rate.
# - BatchNorm and dropout have two modes; LayerNorm and GroupNorm have one, and ignore the other
#   examples.
# - A dead relu in the first layer stays dead; count such units over all the data.
#
# **Further reading.** Glorot and Bengio (2010) and He et al. (2015) on initialisation; Ioffe and Szegedy (2015) on BatchNorm; Li et al. (2019) on dropout before it;
# [course/debug/signals.py](../course/debug/signals.py), the measuring tools of this chapter.
#
# **Challenge, ungraded.** Use no rule at all: run a batch through the network and scale each
# layer's weights, from first to last, until its output has standard deviation 1. Does that beat
# He's rule at depth 100, with a sigmoid?
