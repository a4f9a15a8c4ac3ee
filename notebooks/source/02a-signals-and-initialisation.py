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
# Thirty layers, a loop without a bug, and the loss does not move. The numbers on their way through
# the network have shrunk to nothing, or their gradients have on the way back. You will measure both,
# draw weights that keep them alive, and write the layers that repair them: BatchNorm and dropout, each
# with its two modes.
#
# *Read a question, make a guess, then run the cell below it. Every cell may be run twice. Stuck?
# `hint("02a.initialise")` gives three hints, `failing("02a.initialise")` the smallest failing case.*

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
# Digits go into a network of 30 equal layers: a linear map, then relu. The weights are as torch draws
# them, the biases 0. `read_signals` runs one batch forward and backward and looks at every layer.

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
# Every layer makes it smaller, by about the same factor. **Guess:** what is the standard deviation
# after layer 30? Continue the row above; within a power of ten is close.

# %%
guess("02a.default", ...)

# %%
reveal("02a.default", layers[-1].std)
plot_depth({"signal": [layer.std for layer in layers]})

# %% [markdown]
# A straight line on a logarithmic axis: a constant factor per layer. What the head receives no longer
# tells one digit from another, and the loss stays at ln 10. No learning rate repairs that. Where does
# the factor come from?

# %% [markdown]
# ## 2a.2 One layer, with pencil
#
# One unit adds up n products of an input and a weight. If the weights are independent with mean 0 and
# variance v, the products' mean squares add up: the **mean square** (the mean of the squares) of the
# output is n·v times that of the input. **Guess:** n = 64 inputs, weights of standard deviation 0.25,
# and an input of mean square 1. What mean square comes out?

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
# Four times as large, and relu takes half of it: the outputs are as often negative as positive, and the
# squares of the negative ones are gone. So a layer with relu multiplies by n·v/2, and depth makes a
# power of it.

# %% exercise 02a.depth
### BEGIN SOLUTION
linear = q.n * q.v
depth = {"linear": linear**q.d, "relu": (linear / 2) ** q.d,
         "std": (2 / q.n) ** 0.5, "residual": 2**q.d}
### END SOLUTION

# %% [markdown]
# torch draws a linear layer's weights with variance 1/(3n), so that n·v/2 is 1/6: the standard deviation
# falls by √6 ≈ 2.4 per layer. That is the slope of the line above. And if the weights were larger?
# Three networks, whose factor n·v/2 is below 1, exactly 1, and above.

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
# Only the middle line stays: variance 2/n, the rule of **He**. The lower one dies, the upper one
# explodes. It is not perfectly flat, since 64 units are few: each layer's factor is drawn too, and the
# errors multiply.

# %% [markdown]
# ## 2a.3 And backwards?
#
# A gradient takes the same road from the end: each layer multiplies it by the transposed weights, and
# relu lets half of it pass. **Guess:** which of the three networks has the largest gradient in layer 1,
# compared with its gradient in layer 30?

# %%
guess("02a.backward", ...)

# %%
ratios = {name: found[0].grad_std / found[-1].grad_std for name, found in read.items()}
print({name: f"{ratio:.2g}" for name, ratio in ratios.items()})
keys = dict(zip(ratios, ("small", "he", "large"), strict=True))
reveal("02a.backward", keys[max(ratios, key=ratios.get)])
plot_depth({name: [layer.grad_std for layer in found] for name, found in read.items()},
           ylabel="gradient, standard deviation")

# %% [markdown]
# The curves turn over: the gradient is large where it starts, at the last layer, and each step back
# multiplies by the same n·v/2. Backwards, n is the number of *outputs*. **Xavier** takes the mean of
# both, variance 2/(inputs + outputs), a compromise; for a square layer without relu that is 1/n.

# %% exercise 02a.initialise
# Draw the weights of a whole model. In every `nn.Linear` and `nn.Conv2d`, at any depth, the weights
# become independent random numbers around 0 with the standard deviation gain/√inputs, and the biases 0.
# *Inputs* are the numbers that one unit adds up: of a convolution (without groups), channels times
# the kernel's height and width. The gain makes up for the activation: 1 for "linear", √2 for "relu", 5/3 for "tanh".
# Normal or uniform, as you like, but without torch's kaiming and xavier functions.
def initialise(model, activation):
    """Fill the weights in place: an optimizer may already hold the parameters.

    Args:
        model: Linear and Conv2d layers at any depth, some without a bias, some frozen; it may be
            one itself. Also other modules, whose parameters and buffers stay as they are.
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
# Both of your curves stay within a small factor over 30 layers.

# %% [markdown]
# ## 2a.4 Saturated
#
# A tanh cannot explode: it ends at ±1. But what happens to a unit that sits there? Its slope,
# 1 − tanh², is nearly 0. **Guess:** of a gradient of 1, how much passes a tanh whose output is 0.99?

# %%
guess("02a.saturated", ...)

# %%
reveal("02a.saturated", 1 - 0.99**2)
rows = {}
for name, std in {"0.3 / √n": 0.3 / 8, "1 / √n": 1 / 8, "5 / √n": 5 / 8}.items():
    read[name] = signals(drawn(std**2, activation="tanh"))
    rows[name] = {f"layer {i}": read[name][i - 1].output for i in (1, 5, 10, 20, 30)}
plot_histograms(rows, xlabel="output of the tanh", limit=1.0)

# %% [markdown]
# Read a row from left to right. Small weights: everything gathers at 0, the network answers the same to
# every digit. Large ones: everything piles up at −1 and 1. In the middle row the histogram keeps its
# shape for long. These pictures are what a debugger looks at first; the second are the gradients.

# %%
names = [name for name in read if "√n" in name]
plot_depth({name: [layer.grad_std for layer in read[name]] for name in names},
           ylabel="gradient, standard deviation")

# %% [markdown]
# Each row has its own signature. At 0.3/√n the gradient dies on its way to layer 1. At 5/√n a saturated
# unit passes next to nothing, but large weights multiply what does pass: here the second wins, and
# the gradient of layer 1 is far the largest. A sigmoid is worse than tanh: its slope is at most ¼.

# %% [markdown]
# ## 2a.5 Dead units
#
# A relu whose input is negative for every example passes no gradient, so its weights never move. One
# step that is too large can do that to many at once. First write the instrument.

# %% exercise 02a.dead-units
# Count, for each `nn.ReLU`, the units that give 0 for *every* example of *all* batches. A unit is a
# column of an output [batch, units]; of images [batch, channels, height, width] it is a channel, dead
# if it is 0 at every position of every example. Forward hooks see the outputs; some layers work in place,
# relus among them, but none of them on the inputs: a hook runs before a later layer changes what it sees.
def dead_units(model, loader):
    """How many units of each ReLU never fire, measured in eval mode.

    Args:
        model: ReLUs at any depth, each used once per forward pass; it may be one itself. Each
            module in any mode.
        loader: Gives pairs of inputs and targets, one or more; each call may iterate it once.

    Returns:
        {name as in named_modules(): number of dead units, an int or a tensor that holds
        one}; {} if there is no ReLU.

    Afterwards all is as it was: weights, buffers, .grad, each module's mode, hooks, the data.
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
# Now train a small network with He's weights for 100 updates, at a usual rate and at one that is far too
# large. **Guess:** how many of the 64 units of its *second* relu are dead after the large rate?

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
# The lecture says that a dead relu never recovers. Tried, that holds in the *first* layer, whose inputs
# never change: its gradient is exactly 0. In a later layer the one below can move, and most units that
# were dead by a small margin came back (`course claims F81`). Smaller rates, He's weights, or a leaky
# relu prevent it.

# %% [markdown]
# ## 2a.6 A road around every layer
#
# A **residual** block adds its input to its result: x + f(x). The signal, and the gradient, have a road
# on which nothing multiplies them. Say that f(x) is as large as x. **Guess:** by which factor
# do ten such blocks multiply the mean square, if f(x) is independent of x with mean 0?

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
           ylabel="gradient, standard deviation")

# %% [markdown]
# The same small weights, with and without the shortcut: without it signal and gradient die, with it both
# keep their size. At 1/√n each block adds a signal of its own size to begin with; tanh holds it below 1,
# or else 30 blocks would make 2³⁰. Small branches let a network begin near the identity: that is how
# very deep ones are started.

# %% [markdown]
# ## 2a.7 BatchNorm: two modes
#
# Instead of hoping that the size stays right, a **norm** sets it: subtract the mean, divide by the
# standard deviation. BatchNorm takes both over the batch, per feature, and remembers a running average
# for later. The column 1, 2, 3, 4 goes through a new one, momentum 0.1. **Guess:** what is the running
# *variance* afterwards? It began at 1.

# %%
guess("02a.running-var", ...)

# %%
worked.compute("N39")

# %% [markdown]
# Two variances in one layer: the output is divided by the root of the *biased* one (5/4), the memory takes
# the *unbiased* one (5/3): 0.9 · 1 + 0.1 · 5/3. In eval mode the same column comes out quite different,
# since one batch has moved the memory by a tenth only.

# %% exercise 02a.batch-norm
# Write it by hand (no `nn.BatchNorm1d`, no `F.batch_norm`), for rows [batch, channels] and for images
# [batch, channels, height, width], where a channel's mean and variance go over examples and pixels. `weight` (ones at first) and `bias` (zeros) are learnt, one number per channel;
# `running_mean` (zeros) and `running_var` (ones) are remembered, saved with the model, and not learnt.
class BatchNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) · weight + bias, per channel (dimension 1).

    Args:
        channels: Size of dimension 1.
        momentum: Share of the new batch in running_mean and running_var.
        eps: Added to the variance.

    Train mode: mean and biased variance of the batch, through which the gradient flows; the running
    ones move, also under no_grad(), running_var towards the *unbiased* variance. One number per
    channel alone, e.g. one row, raises a ValueError before they move. Eval mode: the running ones,
    and nothing changes. x is never changed.
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
# Statistics of a batch are estimates, and a small batch gives bad ones. Numbers of standard deviation 1
# in batches of 4. **Guess:** what is the standard deviation of the batches' *means*?

# %%
guess("02a.batch-mean", ...)

# %%
reveal("02a.batch-mean", 1 / 4**0.5)
worked.compute("N61")

# %% [markdown]
# The deviation is 1/√B for B examples: at batch 4 the mean is off by half a standard deviation, typically. So a short last batch brings
# noise, and a batch of one raises; `drop_last=True` avoids both. The claim holds (`course claims F96`).
# What does the norm do for thirty layers drawn badly?

# %%
norms = {"none": "none", "BatchNorm": "batch", "LayerNorm": "layer"}
normed = {name: signals(drawn(0.1 / 64, norm=norm)) for name, norm in norms.items()}
plot_depth({name: [layer.std for layer in found] for name, found in normed.items()})

# %% [markdown]
# The weights are far too small, and after a norm that does not matter: whatever comes in goes out with
# size 1, before relu. A norm is no cure for everything: it makes each example's output depend on its
# neighbours.

# %% [markdown]
# ## 2a.8 Without neighbours
#
# **LayerNorm** normalises each example over its own features, **GroupNorm** over groups of its own
# channels: neither looks at the batch, neither has a memory, and both do the same in either mode.

# %%
x = torch.randn(4, 6, 3, 3, generator=torch.Generator().manual_seed(0))
changed = torch.cat([x[:3], 5 * x[3:]])
for norm in (nn.BatchNorm2d(6), nn.GroupNorm(2, 6), nn.LayerNorm([6, 3, 3])):
    moved = (norm(x)[0] - norm(changed)[0]).abs().max().item()
    print(f"{type(norm).__name__:12} example 3 changes, example 0 moves by {moved:.3f}")

# %% exercise 02a.group-norm
# A GroupNorm with three bugs. x is [batch, channels] or [batch, channels, ...]; its channels form
# `groups` groups of equal size, neighbours in a group; each group of each example is normalised by its
# own mean and its own *biased* variance, over channels and pixels, with eps under the root; then come
# weight and bias, one number per channel. Change as little as you can.

# %% exercise 02a.neighbours

# %% [markdown]
# The lecture says that `eval()` changes dropout and BatchNorm only. Tried, six other kinds of layer change
# as well, among them RReLU and an LSTM with dropout between its layers (`course claims F23`). That
# LayerNorm and GroupNorm do not holds (`course claims F134`).

# %% [markdown]
# ## 2a.9 Dropout: two modes
#
# In train mode **dropout** sets each activation to 0 with probability p, so that no unit can rely on
# another one. Four activations 0.8, 1.2, 0.3, 0.9 and p = 0.5; entries 1 and 3 (from 0) are dropped.
# **Guess:** what comes out?

# %%
guess("02a.dropped", ...)

# %%
worked.compute("N12")

# %% [markdown]
# What is kept is doubled, so that the mean over all masks is the input. That is why eval mode has nothing
# to do. The factor for other rates, from `worked.compute("N40")`: 1.25 for p = 0.2, 2 for 0.5. The
# lecture's numbers agree.

# %% exercise 02a.dropout
# Write it by hand (no `nn.Dropout`, no `F.dropout`). Every call draws a new mask from torch's usual
# random numbers, for each entry by itself.
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
# The mean stays, and the size? **Guess:** by which factor does dropout with p = 0.5 multiply the mean
# *square* of a signal?

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
# Half of the squares vanish, the others count four times: 1/(1 − p). A BatchNorm after a dropout
# therefore remembers a variance that eval mode never sees: the two modes disagree, and validation suffers.
# Put dropout after the last norm.
#
# Now both layers in one network, in two copies: one in train mode, one in eval mode, asked the same thing
# again and again. Which of `train()`, `eval()` and `no_grad()` changes the output, which the running
# mean, and which the memory?

# %%
from course.widgets.modes.widget import TrainAgainstEval

TrainAgainstEval()

# %% [markdown]
# Three switches, three effects. `eval()` stops the masks and the statistics; `no_grad()` keeps nothing for
# backward and stops neither of them (`course claims F25`). Validation wants both.

# %% [markdown]
# ## 2a.10 Thirty layers that learn
#
# All your tools at once: the scale of the weights, a norm, shortcuts. No rate alone saves the plain
# network of section 2a.1. Which road needs the fewest updates?

# %% exercise 02a.deep-net

# %%
scorecard("02a-signals-and-initialisation")

# %% [markdown]
# ## What to keep
#
# - A layer multiplies the mean square by inputs times variance; relu halves it; depth makes a power of it.
# - He: gain/√inputs. Xavier: a compromise with the way back. Shortcuts and norms forgive a bad draw.
# - Look at the signal and at the gradient, layer by layer, before you turn the learning rate.
# - BatchNorm and dropout have two modes; LayerNorm and GroupNorm have one, and no neighbours.
# - A dead relu in the first layer stays dead; count such units over all the data.
#
# **Further reading.** Glorot and Bengio (2010) and He et al. (2015) on initialisation; Ioffe and Szegedy
# (2015) on BatchNorm; Li et al. (2019), on dropout in front of it;
# [course/debug/signals.py](../course/debug/signals.py), the instruments of this chapter.
#
# **Challenge, ungraded.** Draw nothing by a rule: run a batch through the network and scale each layer's
# weights, from first to last, until its output has standard deviation 1. Does that beat He's rule at
# depth 100, with a sigmoid?
