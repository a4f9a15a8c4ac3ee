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
# # 3d · Precision, accumulation, clipping
#
# Sixteen bits instead of thirty-two, a large batch from small ones, a ceiling for the gradient: three
# tools that make a run fit and keep it alive, and that go wrong without a word. You will see what each
# format loses, write the scaler that FP16 needs, count bytes, prove that a window of micro-batches
# equals its batch, and find where it does not.
#
# *Read a question, make a guess, then run the cell below it. Every cell may be run twice, on a CPU.
# What only a GPU can show is said where it comes up.*

# %%
import torch
from torch import nn

from autograde import ask, check, failing, guess, hint, ready, reveal, scorecard, student
from course import worked
from course.claims.lab import saved_bytes
from course.data import InMemoryLoader, load
from course.engine import Trainer, choose_device, seed_everything
from course.from_scratch.deep import DeepNet
from course.plots import precision as plots

device = choose_device()  # a GPU where there is one: data and models go there

# %%
student("")

# %%
data, criterion = load("digits").to(device), nn.CrossEntropyLoss()
inputs, targets = data.train_inputs[:64], data.train_targets[:64]
print(data)


def loaders(dtype, seed):
    train = InMemoryLoader(data.train_inputs.to(dtype), data.train_targets,
                           batch_size=64, shuffle=True, seed=seed)
    val = InMemoryLoader(data.val_inputs.to(dtype), data.val_targets, batch_size=512)
    return train, val

# %% [markdown]
# ## 3d.1 What sixteen bits hold
#
# A floating-point number is a sign, an exponent and a mantissa: the exponent sets how large it can be,
# the mantissa how exact. FP32 spends 8 and 23 bits on them. **Guess:** in BF16, with 8 and 7 bits, what
# is 256 + 1?

# %%
guess("03d.bf16-sum", ...)

# %%
display(worked.compute("N35"))
formats = {"FP32": torch.float32, "FP16": torch.float16, "BF16": torch.bfloat16}
plots.plot_spacing({name: torch.finfo(dtype) for name, dtype in formats.items()})

# %% [markdown]
# Still 256: above 256 its numbers are 2 apart, and a tie goes to the even one. FP16 counts on to 2,048,
# but ends at 65,504. The figure has both properties at once: range from left to right, coarseness
# upwards. BF16 is FP32 with the mantissa cut off: as far from left to right, 65,536 times as coarse.

# %% [markdown]
# FP16 is eight times as fine as BF16, over a small window, and below 6e-5 it gets coarser with every halving
# until nothing is left.
#
# | format | its hardware (T35) | in training |
# | --- | --- | --- |
# | FP32 | everything | weights, gradients, moments, loss |
# | FP16 | GPUs from Volta on | products, with a loss scaler |
# | BF16 | A100 and later, MI200, TPU | products, without one |

# %% exercise 03d.formats

# %% [markdown]
# ## 3d.2 Autocast
#
# Mixed precision mixes: within `torch.autocast` each operation runs in the format that suits it. Matrix
# products take 16 bits; a softmax, a norm or a loss stays in FP32. The weights are FP32 all along: a
# product gets a 16-bit copy. **Guess:** in which format is the `.grad` of a weight after `backward()`?

# %%
guess("03d.grad-dtype", ...)

# %%
def make_model():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    return model.to(device)


seed_everything(3)
model = make_model()
with torch.autocast(device.type, torch.bfloat16):
    logits = model(inputs)
    loss = criterion(logits, targets)
loss.backward()

# %%
weight = model[1].weight
seen = {"logits": logits, "loss": loss, "weight": weight, ".grad": weight.grad}
for name, value in seen.items():
    print(f"{name:7}{value.dtype}")
reveal("03d.grad-dtype", str(weight.grad.dtype).removeprefix("torch."))

# %% [markdown]
# Backward multiplied in BF16, too (F139), but what it adds to `.grad` is FP32 (F112), as wide as the
# weight. `backward()` stands outside the `with`: it takes for each operation the format that forward took.
#
# Why not simply make the whole model BF16, weights and all? It would be half as large. Three runs per
# way, Adam at a rate of 1e-4, the same batches. **Guess:** FP32 gets to about 78 % in eight epochs. Where
# do BF16 weights get to?

# %%
guess("03d.bf16-weights", ...)

# %%
def accuracy(how, seed):
    seed_everything(seed)
    dtype = torch.bfloat16 if how == "BF16 weights" else torch.float32
    model = make_model().to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    precision = "bf16" if how == "BF16 autocast" else "fp32"
    trainer = Trainer(model, criterion, optimizer, precision=precision, seed=seed,
                      device=device)
    return 100 * trainer.fit(*loaders(dtype, seed), epochs=8)[-1]["val_accuracy"]


# %%
ways = ("FP32", "BF16 autocast", "BF16 weights")
scores = {how: [accuracy(how, seed) for seed in range(3)] for how in ways}
for how, values in scores.items():
    spread = max(values) - min(values)
    print(f"{how:14} mean {sum(values) / 3:.1f} %, from seed to seed {spread:.1f} points")
reveal("03d.bf16-weights", sum(scores["BF16 weights"]) / 3)
plots.plot_seeds(scores, xlabel="validation accuracy after 8 epochs, %")

# %% [markdown]
# Autocast is within the noise of FP32. With BF16 weights most updates never arrive: a step of 1e-4 on a
# weight of 0.1 is a thousandth of it, and BF16 rounds what is below 1/512 away. The loss falls a little,
# nothing is `nan`, and no message comes.

# %%
weight = torch.tensor(0.1, dtype=torch.bfloat16)
for _ in range(100):
    weight -= 1e-4
print(f"0.1 in BF16, minus 100 times 0.0001: {weight.item():.4f}")

# %% [markdown]
# ## 3d.3 Faster is not better
#
# On a GPU with tensor cores 16 bits are faster; how much depends on the sizes (`course claims F118`, which
# needs one). On our CPU they are slower, so here nobody is tempted. Where they are faster, the question
# of the last figure, and of the lines above it, still comes first: what do the seeds say about the metric?

# %% exercise 03d.faster-worse

# %% [markdown]
# ## 3d.4 What FP16 loses
#
# FP16's smallest number is 6e-8. Are gradients that small? In a shallow network hardly any; behind eight
# sigmoid layers the first ones get about a quarter of a quarter of a quarter. **Guess:** which share of this
# network's gradients becomes 0 under FP16 autocast? (Torch runs it on a CPU, too.)

# %%
guess("03d.lost", ...)

# %%
def gradients(scale=1.0, dtype=torch.float16):
    seed_everything(3)
    model = DeepNet(64, 10, depth=8, activation="sigmoid").to(device)
    with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
        loss = criterion(model(inputs), targets)
    (scale * loss).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


true = gradients(dtype=torch.float32)

# %%
for dtype, scale in ((torch.float16, 1), (torch.float16, 2**16), (torch.bfloat16, 1)):
    found = gradients(scale, dtype)
    lost = (found == 0)[true != 0].double().mean().item()
    print(f"{dtype}, loss times {scale:6}: {lost:7.2%} became 0")
reveal("03d.lost", (gradients() == 0)[true != 0].double().mean().item())
half, sizes = torch.finfo(torch.float16), true.abs().double()
panels = {"the loss as it is": sizes, "the loss times 65,536": 2**16 * sizes}
panels = {name: values.tolist() for name, values in panels.items()}
plots.plot_gradient_sizes(panels, low=half.smallest_normal * half.eps, high=half.max)

# %% [markdown]
# Grey is what FP16 has no number for. A factor on the loss is a factor on every gradient, by the chain
# rule, and moves the whole heap to the right. A power of two costs no digit. Then backward's gradients
# are divided by it, in FP32, and nobody further down knows. BF16 lost nothing, without a scale.
#
# Follow a single number along that road: its bits in each format, what is lost, and what comes back after the
# division. Which numbers can no scale save?

# %%
from course.widgets.precision.widget import NumberFormats

display(NumberFormats())
worked.compute("N34")

# %% [markdown]
# ## 3d.5 A scaler of your own
#
# How large may the scale be? As large as nothing overflows, and that changes as the model learns. So it
# is tried: on `inf` or `nan` the update is skipped and the scale made smaller; after many good updates in a
# row it is made larger.

# %% exercise 03d.loss-scaler
# Write the class; `torch.amp.GradScaler` may not do the work. An update calls `scaled(loss).backward()`,
# perhaps `unscale`, `step` and `update`, in this order. Some parameters may have no gradient.
class LossScaler:
    """A loss scale that finds its own size.

    Args:
        scale: The first scale; kept as the attribute `scale`, a number.
        growth: `scale` is multiplied by it after `interval` good updates in a row, and the
            count begins again.
        backoff: `scale` is multiplied by it after an update that was skipped, and the count
            begins again.
        interval: Good updates in a row for a growth.
    """

    def __init__(self, scale, growth, backoff, interval):
        ### BEGIN SOLUTION
        self.scale, self.growth, self.backoff, self.interval = scale, growth, backoff, interval
        self.good, self.finite = 0, None
        ### END SOLUTION

    def scaled(self, loss):
        """The loss times the scale, with its graph; of a float16 loss a float32 product, of any
        other a product of its own dtype. The loss itself stays as it is."""
        ### BEGIN SOLUTION
        return (loss.float() if loss.dtype == torch.float16 else loss) * self.scale
        ### END SOLUTION

    def unscale(self, optimizer):
        """Divide the .grad of every parameter of the optimizer by the scale, at most once per
        update, and note whether all of them are finite (not inf, -inf or nan) now."""
        ### BEGIN SOLUTION
        grads = [p.grad for group in optimizer.param_groups for p in group["params"]]
        grads = [grad for grad in grads if grad is not None]
        for grad in grads:
            grad /= self.scale
        self.finite = all(grad.isfinite().all().item() for grad in grads)
        ### END SOLUTION

    def step(self, optimizer):
        """Unscale, if this update has not yet; then optimizer.step(), but only if all gradients
        were finite when they were unscaled. True if it stepped, else False."""
        ### BEGIN SOLUTION
        if self.finite is None:
            self.unscale(optimizer)
        if self.finite:
            optimizer.step()
        return self.finite
        ### END SOLUTION

    def update(self):
        """Set `scale` for the next update."""
        ### BEGIN SOLUTION
        self.good = self.good + 1 if self.finite else 0
        if not self.finite:
            self.scale *= self.backoff
        elif self.good == self.interval:
            self.scale, self.good = self.scale * self.growth, 0
        self.finite = None
        ### END SOLUTION

# %%
# your scaler in FP16, from a scale that is far too large, growing after 25 good updates
seed_everything(3)
model = DeepNet(64, 10, depth=4, activation="tanh").to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
train_loader, _ = loaders(torch.float32, seed=3)


def update(batch):
    optimizer.zero_grad()
    with torch.autocast(device.type, torch.float16):
        loss = criterion(model(batch[0]), batch[1])
    scaler.scaled(loss).backward()

# %%
if ready(LossScaler):
    scaler, scales, skipped = LossScaler(2.0**24, 2.0, 0.5, 25), [], []
    for batch in (batch for _ in range(6) for batch in train_loader):
        update(batch)
        scales.append(scaler.scale)
        if not scaler.step(optimizer):
            skipped.append(len(scales) - 1)
        scaler.update()
    print(f"{len(scales)} updates, {len(skipped)} of them skipped")
    display(plots.plot_scale(scales, skipped))

# %% [markdown]
# The first updates are lost while the scale comes down; then every growth is one too many, and within a few
# updates costs one. With torch's interval of 2,000 that is one update in 2,000. A scale that falls and falls, though,
# says something else: the gradients themselves are `inf` or `nan`.

# %% [markdown]
# ## 3d.6 Who comes first?
#
# Clipping wants true gradients. **Guess:** a gradient of norm 0.5, a scale of 65,536, a ceiling of 1. Somebody
# clips first and unscales then. How long is the gradient that the step gets?

# %%
guess("03d.early-clip", ...)

# %%
weight = nn.Parameter(torch.zeros(2))
optimizer = torch.optim.SGD([weight], lr=0.1)
if ready(LossScaler):
    scaler = LossScaler(2.0**16, 2.0, 0.5, 2000)
    scaler.scaled((weight * torch.tensor([0.3, 0.4])).sum()).backward()
    nn.utils.clip_grad_norm_([weight], 1.0)
    scaler.unscale(optimizer)
    reveal("03d.early-clip", weight.grad.norm().item())
    print(f"instead of 0.5: {weight.grad.norm().item():.2e}")

# %% [markdown]
# Nothing raises, and the loss even falls a little, with Adam as fast as ever: Adam hardly knows a
# gradient's length. Put the lines of a whole update in order:

# %% exercise 03d.scaled-update

# %% [markdown]
# ## 3d.7 What is in memory?
#
# Whatever the batch, training holds weights, gradients, and what the optimizer keeps. **Guess:** how many bytes
# per parameter are that with AdamW, all in FP32?

# %%
guess("03d.per-parameter", ...)

# %%
from course.analysis.footprint import footprint


def per_parameter(make, dtype=torch.float32, **options):
    model = nn.Linear(64, 64, bias=False).to(dtype)
    optimizer = make(model.parameters(), lr=0.1, **options)
    model(torch.ones(1, 64, dtype=dtype)).sum().backward()
    optimizer.step()
    return {name: size / 64**2 for name, size in footprint(model, optimizer).items()}

# %%
SGD, AdamW = torch.optim.SGD, torch.optim.AdamW
setups = {"SGD": per_parameter(SGD), "SGD, momentum": per_parameter(SGD, momentum=0.9)}
setups |= {"AdamW": per_parameter(AdamW),
           "AdamW, all BF16": per_parameter(AdamW, torch.bfloat16)}
reveal("03d.per-parameter", round(sum(setups["AdamW"].values())))
billions = {name: {part: 7 * size for part, size in sizes.items()}
            for name, sizes in setups.items()}
display(plots.plot_memory(billions, unit="GB for 7 billion parameters"))
worked.compute("N13")

# %% [markdown]
# 112 GB before a single activation. Autocast saves nothing of this: weights, gradients and moments stay in
# FP32. All in BF16 would halve it, and you have seen what becomes of the updates. The lecture's chapter counts 14
# GB for 7 billion weights "without a graph"; that is the weights in 16 bits.
#
# What grows with the batch is what forward keeps for backward: the activations. There autocast saves half,
# but it also keeps a 16-bit copy of every weight that it multiplies, whatever the batch:

# %%
def kept(batch, dtype):
    model = DeepNet(64, 10, width=256, depth=8).to(device)
    rows, half = torch.randn(batch, 64, device=device), dtype == "BF16 autocast"
    with torch.autocast(device.type, torch.bfloat16, enabled=half):
        return saved_bytes(lambda: model(rows), without=model.parameters()) / 1e6


for batch in (128, 256, 512):
    sizes = {dtype: f"{kept(batch, dtype):.2f} MB" for dtype in ("FP32", "BF16 autocast")}
    print(f"batches of {batch}: {sizes}")

# %% [markdown]
# With 128 examples the copies cost more than the activations save; from 256 on autocast wins. "Half the
# memory" holds for activations alone (F55).

# %% exercise 03d.memory
### BEGIN SOLUTION
fixed = 16 * q.p / 1000
memory = {"moments": 8 * q.p / 1000, "fixed": fixed}
memory["batch"] = int((q.g - fixed) * 1000 // (2 * q.a))
### END SOLUTION

# %% [markdown]
# ## 3d.8 Compute it twice
#
# Activation checkpointing keeps a block's inputs alone: forward runs without a graph, and backward runs the
# block once more, with one (C30, F51). Torch has it as `torch.utils.checkpoint`. Written out it shows
# what it takes: the same random numbers, gradients for the inputs *and* the weights.

# %% exercise 03d.recompute
# `torch.utils.checkpoint` may not do the work; a `torch.autograd.Function` can. Everything is on the CPU's
# random numbers, and the block has no BatchNorm.
def recomputed(block, inputs):
    """What block(inputs) gives, with the same gradients, for less kept in between.

    The block runs once now, without its activations being kept for backward(), and once more in
    backward(). Only the inputs (or a copy), the block's parameters and the state of the random
    numbers may be kept for it.

    Args:
        block: A module of one tensor, which uses all of its parameters; it may hold dropout, and
            frozen ones.
        inputs: [B, features], with or without requires_grad; not changed.

    Returns:
        The output, with a graph. backward() through it adds to the .grad of the block's
        parameters, and of the inputs if they ask for it, what it would add to block(inputs)'s.

    Dropout uses the same mask both times. The state of the random numbers is as block(inputs)
    leaves it, and backward() leaves it as it is.
    """
    ### BEGIN SOLUTION
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, inputs, *parameters):
            ctx.random = torch.get_rng_state()
            ctx.save_for_backward(inputs, *parameters)
            return block(inputs)

        @staticmethod
        def backward(ctx, slope):
            inputs, *parameters = ctx.saved_tensors
            inputs = inputs.detach().requires_grad_()
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                torch.set_rng_state(ctx.random)
                outputs = block(inputs)
            return torch.autograd.grad(outputs, [inputs, *parameters], slope)

    return Twice.apply(inputs, *[p for p in block.parameters() if p.requires_grad])
    ### END SOLUTION

# %% [markdown]
# Four blocks of three layers, 64 numbers wide at their ends and 256 inside. **Guess:** which share of the
# bytes that were kept for backward is still kept?

# %%
guess("03d.recomputed", ...)

# %%
def make_block():
    wide = nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()
    return nn.Sequential(*wide, nn.Linear(256, 64))


def forward(apply, through):
    for block in blocks:
        through = apply(block, through)
    return through

# %%
seed_everything(3)
blocks = nn.ModuleList(make_block() for _ in range(4))
weights, rows = list(blocks.parameters()), torch.randn(128, 64)
plain = saved_bytes(lambda: forward(lambda block, x: block(x), rows), without=weights)
if ready(recomputed):
    twice = saved_bytes(lambda: forward(recomputed, rows), without=weights)
    print(f"for backward: {plain / 1e6:.2f} MB, with recomputation {twice / 1e6:.2f} MB")
    reveal("03d.recomputed", twice / plain)

# %% [markdown]
# A ninth, for one more forward pass: about a third more computation, as backward costs about two forward
# passes. While one block is computed again its activations are there too, so the peak falls by less.

# %% [markdown]
# ## 3d.9 A window equals its batch
#
# 3a had you accumulate. Now the proof, and its limits. A window has K micro-batches; micro-batch k has
# size n, with an index k, and the mean loss over its own examples. **Guess:** in float64, how large is the relative
# gap between the accumulated gradient and the joined batch's, for four micro-batches of 16, each loss times
# a quarter?

# %%
guess("03d.gap", ...)

# %%
from course.analysis.window_gap import window_gap


def net(*middle):
    seed_everything(3)
    layers = nn.Flatten(), nn.Linear(64, 32), *middle, nn.ReLU(), nn.Linear(32, 10)
    return nn.Sequential(*layers).double().to(device)


def window(*sizes):
    rows = data.train_inputs[: sum(sizes)].double(), data.train_targets[: sum(sizes)]
    return list(zip(*(row.split(sizes) for row in rows), strict=True))

# %%
equal, quarters = window(16, 16, 16, 16), [1 / 4] * 4
gap = window_gap(net(), criterion, equal, quarters)
single = [(x.float(), y) for x, y in equal]
in_single = window_gap(net().float(), criterion, single, quarters)
print(f"float64: {gap:.1e}, float32: {in_single:.1e}")
reveal("03d.gap", gap)

# %% [markdown]
# Rounding, and nothing else: a different order of summation. That is why a proof by experiment is done in
# float64. In float32 a gap of 1e-7 is rounding as well, but a mistake of that size could hide in it.
#
# **Question (X05).** Prove it: K micro-batches of equal size, each with its mean loss times 1/K. Show that the sum of
# their gradients is the joined batch's gradient. Then say which steps need equal sizes, and which need that no
# example's loss depends on another example.

# %% [markdown] nbgrader={"grade": true, "grade_id": "prove-the-window", "locked": false, "points": 3, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# (1) With n examples per micro-batch its mean loss is (1/n) Σ ℓ over its own examples, if each ℓ depends on
# its own example alone. (2) Times 1/K and summed over the window: (1/(K·n)) Σ ℓ over all K·n examples,
# the joined batch's mean loss. (3) The gradient is linear, so the sum of the K gradients is the gradient
# of that mean, and backward() forms the sum as it adds to .grad. Equal sizes are used in (2): with sizes
# that differ the factor is the micro-batch's share of the examples (or of the targets that count). That no
# example sees another is used in (1): BatchNorm in train mode breaks it.
# ### END SOLUTION

# %% [markdown]
# ## 3d.10 Where it does not
#
# Each of these windows is accumulated in float64 and compared with its joined batch. The dotted line is
# 1e-12: left of it is rounding, right of it a different update.

# %%
short, shares = window(16, 16, 16, 4), [16 / 52] * 3 + [4 / 52]
ignoring = nn.CrossEntropyLoss(ignore_index=0)
counts = [(targets != 0).sum().item() for _, targets in equal]
counted = [count / sum(counts) for count in counts]
gaps = {
    "short last, 1/K": window_gap(net(), criterion, short, quarters),
    "short last, share of examples": window_gap(net(), criterion, short, shares),
    "ignored targets, share of examples": window_gap(net(), ignoring, equal, quarters),
    "ignored targets, share of those left": window_gap(net(), ignoring, equal, counted),
}

# %%
gaps["BatchNorm"] = window_gap(net(nn.BatchNorm1d(32)), criterion, equal, quarters)
gaps["LayerNorm"] = window_gap(net(nn.LayerNorm(32)), criterion, equal, quarters)
plots.plot_gaps(gaps, rounding=1e-12)

# %% [markdown]
# A loss's mean is over what it counts: examples, or the targets that are not ignored. Weigh by that number,
# over the whole window, and the update is the batch's. No weight helps a BatchNorm, whose mean and variance
# are the micro-batch's; a LayerNorm looks at one example.
#
# Now with everything at once: windows that may be short, targets that may be ignored, a ceiling. Three things
# are wrong below, and it trains.

# %% exercise 03d.fix-the-window
# The loop should make one update per window of up to `accum_steps` micro-batches, equal to the update of the
# joined batch with its gradient clipped once to the joint norm `max_norm`, and list each window's mean loss.
# The criterion is a mean over the targets that are not `ignore_index`; every micro-batch has at least one.
# Fix three bugs, change as little as you can.

# %% [markdown]
# ## 3d.11 Three ways to clip
#
# By norm: one factor for everything, and the direction stays. By value: each number by itself. By layer: each
# tensor has the ceiling for itself. **Guess:** two layers have the gradients [300, 400] and [0.3, 0.4], the
# ceiling is 1, clipping is by norm. How long is the second layer's gradient after it?

# %%
guess("03d.starved", ...)

# %%
from course.widgets.clipping.widget import ClippingPlane

reveal("03d.starved", 0.5 / 500)
display(worked.compute("N51"))
ClippingPlane()

# %% [markdown]
# A healthy layer is starved by a loud one. Here is a network in which that happens: weights six times as large
# as usual behind tanh, so that gradients grow on their way back. The early layers blow up, the late ones do
# not. What does each way leave?

# %%
def loud(seed=3):
    seed_everything(seed)
    model = DeepNet(64, 10, depth=10, activation="tanh")
    with torch.no_grad():
        for p in model.parameters():
            p *= 6 if p.shape == (64, 64) else 1
    return model.to(device)

# %%
from course.engine import clip_by_global_norm, clip_by_value, clip_per_layer

ways = {
    "as it is": lambda parameters: None,
    "by norm, 1": lambda parameters: clip_by_global_norm(parameters, 1.0),
    "by layer, 1": lambda parameters: clip_per_layer(parameters, 1.0),
    "by value, 0.1": lambda parameters: clip_by_value(parameters, 0.1),
}

# %%
norms, cosines, grads = {}, {}, {}
for name, clip in ways.items():
    model = loud()
    criterion(model(inputs), targets).backward()
    clip(model.parameters())
    norms[name] = [p.grad.norm().item() for p in model.parameters() if p.ndim == 2]
    grads[name] = torch.cat([p.grad.flatten() for p in model.parameters()])
    cosines[name] = torch.cosine_similarity(grads[name], grads["as it is"], dim=0).item()
print({name: round(cosine, 3) for name, cosine in cosines.items()})
plots.plot_layer_norms(norms, [str(number) for number in range(1, 13)])

# %% [markdown]
# By norm, all layers go down together and the cosine stays 1. By layer, the early ones come down to 1 and the
# others keep their step, which turns the direction. By value a tensor of 4,096 numbers may keep a norm of 6.4.
# Does the direction matter more than the late layers? Four epochs of plain SGD each, three seeds:

# %%
def val_loss(max_norm, seed):
    model = loud(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = Trainer(model, criterion, optimizer, max_norm=max_norm, seed=seed,
                      device=device)
    return trainer.fit(*loaders(torch.float32, seed), epochs=4)[-1]["val_loss"]

# %%
ceilings = {"no ceiling": None, "by norm, 1": 1.0, "by norm, 3": 3.0}
ceilings["by layer, 1"] = ways["by layer, 1"]
losses = {name: [val_loss(ceiling, seed) for seed in range(3)]
          for name, ceiling in ceilings.items()}
plots.plot_seeds(losses, xlabel="validation loss after 4 epochs")

# %% [markdown]
# A joint ceiling of 1 is worse than none: what holds two layers down stops the other ten. By layer has the
# lowest mean, and not because its step is longer: a joint ceiling of 3 is about as long, and helps
# nobody. The price is the direction, and the cause is untouched: weights drawn as in 2a need no ceiling.

# %% exercise 03d.three-clips

# %% [markdown]
# ## 3d.12 All of it in one update
#
# The course's `Trainer` does the whole chapter in the order that you found: autocast, micro-batches weighed by
# what they count, unscaling, one ceiling per window, the step, the scale. Two short files have it: read
# [course/engine/precision.py](../course/engine/precision.py) for the scaler's place,
# [window.py](../course/engine/window.py) for what a micro-batch weighs.

# %%
seed_everything(3)
model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
options = dict(precision="bf16", accum_steps=4, max_norm=1.0)
trainer = Trainer(model, criterion, optimizer, seed=3, device=device, **options)
small, val_loader = data.loaders(batch_size=16, seed=3)
history = trainer.fit(small, val_loader, epochs=6)
print(f"{history[-1]['val_accuracy']:.1%} on validation, from micro-batches of 16")

# %%
scorecard("03d-precision-accumulation-clipping")

# %% [markdown]
# ## What to keep
#
# - FP16 lacks range and needs a scaler; BF16 lacks digits and needs FP32 weights.
# - Autocast: products in 16 bits, weights, `.grad` and moments in FP32.
# - Judge by the metric, over seeds, before speed.
# - AdamW in FP32: 16 bytes per parameter; activations grow with the batch and can be computed twice.
# - A window equals its batch if each loss is weighed by what it counts; BatchNorm is the exception.
# - Unscale, then clip, once per window. By norm keeps the direction, by layer keeps the quiet layers alive.
#
# **Further reading.** Micikevicius et al., *Mixed precision training* (2018); Chen et al., *Training deep nets
# with sublinear memory cost* (2016); Pascanu et al., *On the difficulty of training recurrent neural networks*
# (2013); `course claims F112`, `F114`, `F51` in a terminal.
#
# **Challenge, ungraded.** Round to the nearest is what loses BF16's small updates. Write a step that rounds up or
# down at random, with odds that make it right on average, and train with BF16 weights. How much of FP32's accuracy
# comes back, over three seeds?
