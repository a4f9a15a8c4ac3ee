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
# Sixteen bits instead of thirty-two, a large batch built from small ones, a ceiling for the gradient:
# these three tools make a run fit into memory and keep it stable, but they can go wrong without any
# error. You will see what each format loses, write the scaler that FP16 needs, count bytes, prove that a
# window of micro-batches equals its batch, and find where it does not.
#
# The lecture, its essay and the engineering module are the texts behind this course. A code such as F112 or
# T35 names an item in them: in a terminal, `course ledger T35` says which one, `course claims F112` tests a
# claim, and `course museum B26` shows a bug.
#
# *Read a question, make a guess, then run the cell below it. You can run any cell again, and a CPU is
# enough. If something can only be seen on a GPU, the text says so.*

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

device = choose_device()  # a GPU if there is one; data and models go there

# %%
student("")  # your name or id, as you hand in

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
# A floating-point number consists of a sign, an exponent and a mantissa. The exponent determines how
# large it can be, the mantissa how precise. FP32 has 8 exponent bits and 23 mantissa bits. **Guess:** in
# BF16, with 8 and 7 bits, what is 256 + 1?

# %%
guess("03d.bf16-sum", ...)

# %%
display(worked.compute("N35"))
dtypes = {"FP32": torch.float32, "FP16": torch.float16, "BF16": torch.bfloat16}
plots.plot_spacing({name: torch.finfo(dtype) for name, dtype in dtypes.items()})

# %% [markdown]
# It is still 256: above 256, BF16 numbers are 2 apart, and a tie is rounded to the even mantissa. FP16
# counts exactly up to 2,048, but its largest number is 65,504. The figure shows both properties at once:
# range from left to right, with a tick where a format ends, and spacing from bottom to top. BF16 is FP32
# with a shorter mantissa: nearly the same range, but 65,536 times as coarse.

# %% [markdown]
# FP16 is eight times as fine as BF16, but only in a small range. Below 6e-5 it loses a bit of precision
# with every halving, until nothing is left.
#
# | format | hardware (T35) | used in training for |
# | --- | --- | --- |
# | FP32 | all | weights, gradients, moments, loss |
# | FP16 | GPUs since Volta | matrix products, with a loss scaler |
# | BF16 | A100 and later, MI200, TPU | matrix products, without a scaler |

# %% exercise 03d.formats

# %% [markdown]
# ## 3d.2 Autocast
#
# Mixed precision mixes formats: within `torch.autocast`, each operation runs in the format that suits it.
# Matrix products use 16 bits; softmax, norms and losses stay in FP32. The weights themselves are always
# FP32; a product works on a 16-bit copy of them. **Guess:** which format does a weight's `.grad` have
# after `backward()`?

# %%
guess("03d.grad-dtype", ...)

# %%
def make_model():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    return model.to(device)


seed_everything(3)
mixed = make_model()
with torch.autocast(device.type, torch.bfloat16):
    logits = mixed(inputs)
    loss = criterion(logits, targets)
loss.backward()

# %%
weight = mixed[1].weight
seen = {"logits": logits, "loss": loss, "weight": weight, ".grad": weight.grad}
for name, value in seen.items():
    print(f"{name:7}{value.dtype}")
reveal("03d.grad-dtype", str(weight.grad.dtype).removeprefix("torch."))

# %% [markdown]
# Backward also multiplied in BF16 (F139), but what it adds to `.grad` is FP32 (F112), like the weight.
# `backward()` is called outside the `with`: for each operation it uses the format that forward used.
#
# Why not simply store the whole model in BF16, including the weights? It would be half the size. We
# compare three variants with three runs each, using Adam at a rate of 1e-4 and the same batches.
# **Guess:** FP32 reaches about 78 % in eight epochs. How far do BF16 weights get?

# %%
guess("03d.bf16-weights", ...)

# %%
def at_the_end(how, seed):
    seed_everything(seed)
    dtype = torch.bfloat16 if how == "BF16 weights" else torch.float32
    model = make_model().to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    precision = "bf16" if how == "BF16 autocast" else "fp32"
    trainer = Trainer(model, criterion, optimizer, precision=precision, seed=seed,
                      device=device)
    last = trainer.fit(*loaders(dtype, seed), epochs=8)[-1]
    return 100 * last["val_accuracy"], last["val_loss"]


# %%
ways = ("FP32", "BF16 autocast", "BF16 weights")
ended = {how: [at_the_end(how, seed) for seed in range(3)] for how in ways}
scores = {how: [score for score, _ in ends] for how, ends in ended.items()}
for how, values in scores.items():
    spread = max(values) - min(values)
    print(f"{how:13} mean {sum(values) / 3:.1f} %, range over seeds {spread:.1f} points;",
          "losses", *(f"{loss:.4f}" for _, loss in ended[how]))
reveal("03d.bf16-weights", sum(scores["BF16 weights"]) / 3)
plots.plot_seeds(scores, xlabel="validation accuracy after 8 epochs, %")

# %% [markdown]
# Autocast is within the noise of FP32: the losses show that it rounds, but on so few images the accuracies
# may even be equal. With BF16 weights, most updates have no effect: a step of 1e-4 is a thousandth of a
# weight of 0.1, and BF16 rounds away any relative change below 1/512. The loss falls a little, nothing is
# `nan`, and there is no error message.

# %%
weight = torch.tensor(0.1, dtype=torch.bfloat16)
for _ in range(100):
    weight -= 1e-4
print(f"0.1 in BF16, minus 100 times 0.0001: {weight.item():.4f}")

# %% [markdown]
# ## 3d.3 Faster is not better
#
# On a GPU with tensor cores, 16 bits are faster; how much depends on the sizes (`course claims F118`,
# which needs such a GPU). On a CPU they may well be slower. But even where they are faster, the question
# behind the last figure comes first: what do several seeds say about the metric?

# %% exercise 03d.faster-worse

# %% [markdown]
# ## 3d.4 What FP16 loses
#
# FP16's smallest positive number is 6e-8. Are gradients ever that small? In a shallow network, hardly any
# are. But each sigmoid multiplies the gradient on its way back by at most a quarter, and here there are
# eight of them in a row. **Guess:** what fraction of this network's gradients, from 0 to 1, becomes 0 under
# FP16 autocast? (It runs on a CPU, too.)

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
# The grey region marks sizes that FP16 cannot represent. By the chain rule, a factor on the loss
# multiplies every gradient, and so moves the whole histogram to the right. A power of two costs no
# precision. After backward, the gradients are divided by the same factor in FP32, so the optimizer never
# notices. BF16 lost nothing, even without a scale.
#
# Follow a single number through these steps: its bits in each format, what is lost, and what is recovered
# by the division. Which numbers can no scale save?

# %%
from course.widgets.precision.widget import NumberFormats

display(NumberFormats())
worked.compute("N34")

# %% [markdown]
# ## 3d.5 Your own scaler
#
# How large may the scale be? As large as possible without overflow, and that limit changes as the model
# learns. So it is found by trial: if a gradient is `inf` or `nan`, the update is skipped and the scale is
# reduced; after many good updates in a row, the scale is increased.

# %% exercise 03d.loss-scaler
# Write the class without using `torch.amp.GradScaler`. An update calls `scaled(loss).backward()`,
# sometimes `unscale`, then `step` and `update`, in this order. Some parameters may have no gradient.
class LossScaler:
    """A loss scale that adjusts its own size.

    Args:
        scale: The first scale; the attribute `scale`, a number, holds the current one.
        growth: `scale` is multiplied by it after `interval` good updates in a row, and the
            count starts again.
        backoff: `scale` is multiplied by it after an update that was skipped, and the count
            starts again.
        interval: The number of good updates in a row before the scale grows.
    """

    def __init__(self, scale, growth, backoff, interval):
        ### BEGIN SOLUTION
        self.scale, self.growth, self.backoff, self.interval = scale, growth, backoff, interval
        self.good, self.finite = 0, None
        ### END SOLUTION

    def scaled(self, loss):
        """The loss times the scale, with its graph. The product is float32 if the loss is float16;
        otherwise it has the loss's dtype. The loss itself is not changed."""
        ### BEGIN SOLUTION
        return (loss.float() if loss.dtype == torch.float16 else loss) * self.scale
        ### END SOLUTION

    def unscale(self, optimizer):
        """Divide the .grad of every parameter of the optimizer by the scale, at most once per
        update, and note whether, after the division, all are finite (not inf, -inf or nan)."""
        ### BEGIN SOLUTION
        grads = [p.grad for group in optimizer.param_groups for p in group["params"]]
        grads = [grad for grad in grads if grad is not None]
        for grad in grads:
            grad /= self.scale
        self.finite = all(grad.isfinite().all().item() for grad in grads)
        ### END SOLUTION

    def step(self, optimizer):
        """Unscale, unless this update already has; then call optimizer.step(), but only if all
        gradients were finite when they were unscaled. True if it stepped, else False."""
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
def start():
    seed_everything(3)
    model = DeepNet(64, 10, depth=4, activation="tanh").to(device)
    train_loader, _ = loaders(torch.float32, seed=3)
    return model, torch.optim.Adam(model.parameters(), lr=1e-3), train_loader


def half_loss(model, batch):
    with torch.autocast(device.type, torch.float16):
        return criterion(model(batch[0]), batch[1])

# %%
if ready(LossScaler):
    model, optimizer, train_loader = start()
    scaler, scales, skipped = LossScaler(2.0**24, 2.0, 0.5, 25), [], []
    for batch in (batch for _ in range(6) for batch in train_loader):
        optimizer.zero_grad()
        scaler.scaled(half_loss(model, batch)).backward()
        scales.append(scaler.scale)
        skipped += [] if scaler.step(optimizer) else [len(scales) - 1]
        scaler.update()
    display(plots.plot_scale(scales, skipped))

# %% [markdown]
# The first updates are skipped while the scale comes down. After that, every growth makes the scale too
# large, and within a few updates one is skipped. With torch's interval of 2,000, that costs one update in
# 2,000. But a scale that keeps falling means something else: the gradients themselves are `inf` or `nan`.

# %% [markdown]
# ## 3d.6 Which comes first?
#
# Clipping needs the true, unscaled gradients. **Guess:** take a gradient of norm 0.5, a scale of 65,536
# and a ceiling of 1. Someone clips first and unscales afterwards. What is the norm of the gradient that
# reaches the step?

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
# No error is raised: the step is merely far too short. Adam hides it, since it is almost insensitive to the
# length of a gradient, as long as the gradient's numbers stay well above its eps of 1e-8. Now put the lines
# of a complete update in order:

# %% exercise 03d.scaled-update

# %% [markdown]
# ## 3d.7 What is in memory?
#
# Whatever the batch size, training keeps the weights, the gradients and the optimizer's state in memory.
# **Guess:** with AdamW and everything in FP32, how many bytes per parameter is that?

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
# That is 112 GB before a single activation. Autocast saves none of it: weights, gradients and moments
# stay in FP32. Storing everything in BF16 would halve it, but you have seen what happens to the updates.
# The lecture's chapter gives 14 GB for 7 billion weights "without a graph"; that is just the weights, in
# 16 bits.
#
# What grows with the batch is what forward keeps for backward: the activations. Autocast halves them, but
# it also keeps a 16-bit copy of every weight that it multiplies, whatever the batch size:

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
# With 128 examples, the copies cost more than the smaller activations save; from 256 on, autocast wins.
# "Half the memory" is true only of activations (F55).

# %% exercise 03d.memory
### BEGIN SOLUTION
fixed = 16 * q.p / 1000
memory = {"moments": 8 * q.p / 1000, "fixed": fixed}
memory["batch"] = int((q.g - fixed) * 1000 // (2 * q.a))
### END SOLUTION

# %% [markdown]
# ## 3d.8 Compute the activations twice
#
# Activation checkpointing keeps only a block's inputs: forward runs without a graph, and backward runs
# the block once more, with a graph (C30, F51). Torch provides this as `torch.utils.checkpoint`. Write it
# yourself to see what it takes: the same random numbers, and gradients for the inputs *and* the weights.

# %% exercise 03d.recompute
# Do not use `torch.utils.checkpoint`; a `torch.autograd.Function` can do the work. All random numbers
# come from the CPU's generator, and the block has no BatchNorm. Neither autocast nor a second
# derivative has to work.
def recomputed(block, inputs):
    """What block(inputs) returns, with the same gradients, but less kept in between.

    The block runs once now, without keeping its activations for backward(), and once more in
    backward(). Only the inputs (or a copy), the block with its parameters, and the state of the
    random number generator may be kept for that, on ctx or anywhere else.

    Args:
        block: A module that takes one tensor and uses all of its parameters. It may hold dropout
            and frozen parameters.
        inputs: [B, features], with or without requires_grad; not changed.

    Returns:
        The output, with a graph. backward() through it adds to the .grad of the block's parameters,
        and of the inputs if they require gradients, what backward() through block(inputs) would.

    Dropout uses the same mask both times. Afterwards the random number generator is in the state
    in which block(inputs) leaves it, and backward() does not change that state.
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
# Take four blocks of three layers each, 64 numbers wide at both ends and 256 inside. **Guess:** what
# fraction (0 to 1) of the bytes kept for backward without recomputation is still kept with it?

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
# Only a ninth is kept, at the price of one more forward pass. That is about a third more computation, as
# backward costs about as much as two forward passes. While a block is recomputed, its activations are in
# memory too, so the peak falls by less.

# %% [markdown]
# ## 3d.9 A window equals its batch
#
# In 3a you wrote gradient accumulation. Now come the proof and its limits. A window has K micro-batches;
# micro-batch k holds n_k examples, and its loss is the mean over them. **Guess:** for four micro-batches
# of 16, each loss times a quarter, how large is the relative gap between the accumulated gradient and the
# joined batch's in float64?

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
# The gap is only rounding: the sums are taken in a different order. This is why such an experiment uses
# float64. In float32 a gap of 1e-7 is rounding as well, but a mistake of that size could hide in it.
#
# **Question (X05).** Prove it: given K micro-batches of equal size, each with its mean loss times 1/K,
# show that the sum of their gradients is the joined batch's gradient. Then say which steps require equal
# sizes, and which require that no example's loss depends on another example.

# %% [markdown] nbgrader={"grade": true, "grade_id": "prove-the-window", "locked": false, "points": 3, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# (1) With n examples per micro-batch, its mean loss is (1/n) Σ ℓ over its own examples, if each ℓ depends
# on its own example alone. (2) Times 1/K and summed over the window: (1/(K·n)) Σ ℓ over all K·n examples,
# the joined batch's mean loss. (3) The gradient is linear, so the sum of the K gradients is the gradient
# of that mean, and backward() forms the sum as it adds to .grad. Equal sizes are used in (2): if sizes
# differ, the factor is the micro-batch's share of the examples (or of the targets that count). That no
# example depends on another is used in (1): BatchNorm in train mode breaks it.
# ### END SOLUTION

# %% [markdown]
# ## 3d.10 Where a window differs from its batch
#
# Each of these windows is accumulated in float64 and compared with its joined batch. The dotted line is
# at 1e-12: gaps to the left of it are rounding, gaps to the right mean a different update.

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
# A loss takes its mean over what it counts: examples, or targets that are not ignored. Weight each
# micro-batch by its share of that count in the whole window, and the update equals the joined batch's. No
# weight helps with BatchNorm, which uses the mean and variance of the micro-batch; LayerNorm looks at a
# single example.
#
# Now put everything together: windows that may be short, targets that may be ignored, and a ceiling. The
# loop below has three bugs, and still it trains.

# %% exercise 03d.fix-the-window
# The loop should make one update per window of up to `accum_steps` micro-batches. It should equal the
# update from the joined batch, with the gradient clipped once to the joint norm `max_norm`, although
# each micro-batch goes through the model separately. The loop returns a list with the
# joined batch's mean loss for each window. The criterion is a mean over the targets that are not
# `ignore_index`; every micro-batch has at least one. Fix the three bugs, and change as little as you
# can.

# %% [markdown]
# ## 3d.11 Three ways to clip
#
# Clipping by norm scales everything by one factor and keeps the direction. Clipping by value limits each
# number separately. Clipping by layer applies the ceiling to each tensor separately. **Guess:** two
# layers have the gradients [300, 400] and [0.3, 0.4]. After clipping by norm with a ceiling of 1, what is
# the norm of the second layer's gradient?

# %%
guess("03d.starved", ...)

# %%
from course.widgets.clipping.widget import ClippingPlane

reveal("03d.starved", 0.5 / 500)
display(worked.compute("N51"))
ClippingPlane()

# %% [markdown]
# One layer with huge gradients starves a healthy one. Here is a network in which that happens: in a tanh
# network, we make the weights six times as large as usual, so that gradients grow on their way back. They
# explode in the early layers, but not in the late ones. What does each kind of clipping leave of them?

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
    "unclipped": lambda parameters: None,
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
    cosines[name] = torch.cosine_similarity(grads[name], grads["unclipped"], dim=0).item()
print({k: f"cosine {cosines[k]:.3f}, norm {grads[k].norm():.3g}" for k in ways})
plots.plot_layer_norms(norms, [str(number) for number in range(1, 13)])

# %% [markdown]
# Clipping by norm scales all layers down together, and the cosine stays 1. By layer, the early ones come
# down to 1 and the others keep their step, which changes the direction. By value, a tensor of 4,096
# numbers may keep a norm of 6.4. Is keeping the direction more important than moving the late layers?
# Train each for four epochs with plain SGD and three seeds:

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
# A joint ceiling of 1 is worse than none: the factor that holds two layers down stops the other ten.
# Clipping by layer has the lowest mean, and not because its step is longer (its norm is printed above): a
# joint ceiling of 3 gives a step of about the same length, and does not help. The price is the direction,
# and the cause remains: weights initialised as in 2a need no ceiling.

# %% exercise 03d.three-clips

# %% [markdown]
# ## 3d.12 Everything in one update
#
# The course's `Trainer` does everything in this chapter, in the order you have found: autocast,
# micro-batches weighted by what they count, unscaling, one clipping per window, the step, the update of
# the scale. The code is in two short files: [course/engine/precision.py](../course/engine/precision.py)
# shows where the scaler comes in, [window.py](../course/engine/window.py) how micro-batches are weighted.

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
# - Judge by the metric, over several seeds, before you judge by speed.
# - AdamW in FP32: 16 bytes per parameter; activations grow with the batch and can be computed twice.
# - A window equals its batch if each loss is weighted by what it counts; BatchNorm is the exception.
# - Unscale, then clip, once per window. Clipping by norm keeps the direction; clipping by layer keeps
#   layers with small gradients learning.
#
# **Further reading.** Micikevicius et al., *Mixed precision training* (2018); Chen et al., *Training deep nets
# with sublinear memory cost* (2016); Pascanu et al., *On the difficulty of training recurrent neural networks*
# (2013); `course claims F112`, `F114`, `F51` in a terminal.
#
# **Challenge, ungraded.** BF16 loses small updates because it rounds to the nearest number. Write a step
# that rounds up or down at random, with probabilities that make it right on average, and train with BF16
# weights. How much of FP32's accuracy do you recover, over three seeds?
