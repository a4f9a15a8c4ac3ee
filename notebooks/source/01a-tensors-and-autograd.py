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
# # 1a · Tensors and autograd
#
# Everything a network does is done to tensors, and everything it learns comes back through
# autograd. You will name every dimension of a batch, track down device and dtype bugs, and write
# the tape that torch keeps: a class of forty lines that computes the same gradients as torch. At
# the end you will ask a trained network which pixels its answer depends on.
#
# *Read each question, make a guess, then run the cell below it. Any cell can be run again. Stuck?
# `hint("01a.tape")` gives three hints, `failing("01a.tape")` the smallest failing case.*
#
# *"The lecture" is the one whose claims this course tests; you need not have heard it. A code such
# as N41 or F46 names an item in it: in a terminal, `course ledger N41` says which one, and
# `course claims F46` tests a claim.*

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

from autograde import ask, check, failing, guess, hint, ready, reveal, scorecard, student
from course import worked
from course.data import load
from course.plots.style import BLUE, GREEN, GREY, ORANGE, RED
from course.widgets import GraphExplorer, StepAnatomy

# %%
student("")

# %% [markdown]
# ## 1a.1 Every dimension has a name
#
# A tensor is a block of numbers with a **shape**; the number of its dimensions is its **rank**. A
# loss has rank 0. A batch of labels has shape `[B]`, a table `[B, features]`, a batch of images
# `[B, channels, height, width]`. The numbers in a shape do not say what each dimension means, so
# you have to know. Here is a batch of eight handwritten digits.

# %%
data = load("digits")
images, labels = data.train_inputs[:8], data.train_targets[:8]
loss = nn.functional.cross_entropy(torch.zeros(8, 10), labels)
for name, tensor in {"loss": loss, "labels": labels, "images": images}.items():
    print(f"{name:7} rank {tensor.ndim}  {list(tensor.shape)}  {tensor.dtype}")

# %% [markdown]
# A linear layer expects one row per example, so each image has to become a row:
# `images.flatten(1)`.

# %%
flat = images.flatten(1)
figure, axes = plt.subplots(2, 1, figsize=(8, 3.2), layout="constrained")
axes[0].imshow(torch.cat(list(images[:, 0]), dim=1), cmap="gray_r")
axes[0].set(xticks=[8 * i + 3.5 for i in range(8)], xticklabels=range(8), yticks=[])
axes[0].set(xlabel="position in the batch, from 0", title="images: 8 squares of 8 × 8")
axes[1].imshow(flat, cmap="gray_r", aspect="auto")
axes[1].set(xlabel="pixels 0 to 63: the image row by row", ylabel="batch")
axes[1].set(title="flat: 8 rows of 64")
print("flat:", list(flat.shape))

# %% [markdown]
# Dimension 0 is still the batch: row 3 is image 3. `flatten()` without the 1 would flatten the
# batch dimension too, into one row of 512 numbers, and no layer could tell the images apart any
# more.
#
# A letter followed by a number is a reference that you can look up. For example, *read N42* below
# points to a worked example: `worked.compute("N42")` shows it. F20, further down, is a claim from
# the lecture that has been tested: `course claims F20` in a terminal prints how.

# %% exercise 01a.flat-shape
### BEGIN SOLUTION
pixels = q.c * q.h * q.w
flat_shape = {"rows": q.b, "columns": pixels, "bytes": 4 * q.b * pixels}
### END SOLUTION

# %% [markdown]
# ## 1a.2 What a number is made of
#
# The **dtype** says how each number is stored. Weights are float32; labels are long (int64),
# because they are indices; pixels in a file are uint8, from 0 to 255. float16 and bfloat16 use half
# as many bits as float32: that buys speed, and costs either precision or range. **Guess:** torch
# raises no error for 200 + 100 in uint8; which number comes out?

# %%
guess("01a.overflow", ...)

# %%
pixel = torch.tensor([200], dtype=torch.uint8)
total = (pixel + 100).item()
print("uint8 200 + 100 =", total, "   as float:", (pixel.float() + 100).item())
reveal("01a.overflow", total)

# %% [markdown]
# It silently wraps around at 256, so convert pixels to float before you compute with them. Floats
# do not wrap around. Instead there are gaps between neighbouring floats, and the gaps grow with the
# size of the number.

# %%
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
shown = {"float32": (BLUE, "-"), "bfloat16": (ORANGE, "--"), "float16": (GREEN, ":")}
for name, (color, style) in shown.items():
    about = torch.finfo(getattr(torch, name))
    values = 10 ** torch.linspace(-8, 8, 1000, dtype=torch.float64)
    values = values[values <= about.max]
    gap = about.eps * 2 ** values.clamp(min=about.smallest_normal).log2().floor()
    axis.loglog(values, gap, style, color=color, label=name, lw=2)
axis.set(xlabel="number", ylabel="gap to the next number")
axis.legend();

# %% [markdown]
# bfloat16 has about the same range as float32, but its gaps are 65,536 times as wide. float16 has
# gaps an eighth as wide as bfloat16's, but it ends at 65,504: a gradient of 100,000 becomes inf,
# and one of 10⁻⁸ becomes 0. `worked.compute("N35")` shows the exact numbers.

# %% [markdown]
# ## 1a.3 Who else holds these numbers?
#
# `torch.from_numpy(array)` makes a tensor that shares the array's memory; `torch.tensor(array)`
# copies the numbers. Start with an array [1, 2, 3]. First make a shared tensor, then set
# `array[0] = 99`, then make a copy, then set `array[1] = -5`. **Guess:** what does the shared
# tensor hold in the end?

# %%
guess("01a.shared", ...)

# %%
worked.compute("N41")

# %% [markdown]
# The shared tensor sees both changes; the copy has only the one made before it. So the lecture's
# claim holds (F20, `course claims F20`). The same happens within torch: slices, `view` and
# `detach()` share memory, while `clone()` copies. After `row = whole[0]`, the line `row += 7`
# changes `whole` as well.

# %% [markdown]
# ## 1a.4 Where a tensor lives
#
# Every tensor lives on one **device**, and an operation on tensors from two devices raises an
# error; nothing is moved behind your back (F15). The usual culprit is a tensor created *inside* a
# function, which lands on the CPU as float32. You do not need a GPU to find it: the device `meta`
# keeps shapes without any numbers, and like a GPU it refuses to mix with the CPU.

# %%
elsewhere = torch.zeros(2, 1, 4, 4, device="meta")
for made in (torch.ones(4), torch.ones(4, device=elsewhere.device), torch.tensor(2.0)):
    try:
        print(list(made.shape), made.device, "->", (elsewhere + made).device)
    except RuntimeError as error:
        print(list(made.shape), made.device, "->", str(error)[:60])

# %% [markdown]
# The last line is the one exception: a CPU tensor with no dimensions counts as a plain number. Now
# for a function with three bugs of this kind.

# %% exercise 01a.coordinates
# A convolution does not know *where* it is looking. `with_coordinates(images)` tells it: float
# images `[B, C, H, W]` become `[B, C + 2, H, W]`. First come their own channels, unchanged, then a
# channel with each pixel's row, from 0 (top) to 1 (bottom), then one with its column, from 0 (left)
# to 1 (right). The result has the images' device and dtype. Find the three bugs, and change as
# little as you can.

# %%
channels = with_coordinates(images[:1])[0]
figure, axes = plt.subplots(1, 3, figsize=(6, 2), layout="constrained")
for axis, channel, name in zip(axes, channels, ("image", "row", "column"), strict=True):
    axis.imshow(channel, cmap="gray_r" if name == "image" else "cividis")
    axis.set(xticks=[], yticks=[])
    axis.set_title(name, fontsize="medium")

# %% [markdown]
# ## 1a.5 The tape
#
# Ask for a gradient with `requires_grad=True`, and torch writes down every operation. That record
# is the **tape**, or graph. `backward()` reads it from the end to the start, multiplying slopes as
# it goes. Take (w·x + b)² at w = 3, x = 2, b = 1, where it is 49. **Guess:** what is its slope with
# respect to w?

# %%
guess("01a.tape-slope", ...)

# %%
worked.compute("N15")

# %%
worked.compute("N15").plot()

# %% [markdown]
# Values (blue) are computed from left to right, slopes (orange) from right to left. At every node the
# incoming slope is multiplied by the local one: by 2h = 14 at the square, by 1 on both sides of the
# sum, and by the *other* factor at the product. In torch the record is the result's `grad_fn`. A
# tensor that you created yourself is a **leaf** and has no `grad_fn`; on the tape an
# `AccumulateGrad` stands for it, which adds what arrives to its `.grad`.

# %%
w, x, b = (torch.tensor(v, requires_grad=True) for v in (3.0, 2.0, 1.0))
node = ((w * x + b) ** 2).grad_fn
while node is not None:
    print(node.name(), "<-", [source.name() for source, _ in node.next_functions])
    node = node.next_functions[0][0] if node.next_functions else None

# %% exercise 01a.tape
# Now write the tape yourself, for single numbers. When a value is used twice, slopes arrive from
# two sides: that is where most first attempts go wrong, and where you learn what the tape is for.
class Value:
    """A number that remembers how it was made.

    Args:
        data: A float.

    `data` is the number, a float. `grad` starts at 0.0. A value made by `Value(data)` is a leaf.
    The operands of + and * are Values, and their `data` never changes later. Graphs are small
    enough for recursion. Do not use torch.
    """

    def __init__(self, data):
        ### BEGIN SOLUTION
        self.data, self.grad, self.sources = data, 0.0, []
        ### END SOLUTION

    def __add__(self, other):
        """A new Value: the sum of two."""
        ### BEGIN SOLUTION
        return self._made(self.data + other.data, (self, 1.0), (other, 1.0))
        ### END SOLUTION

    def __mul__(self, other):
        """A new Value: the product of two."""
        ### BEGIN SOLUTION
        return self._made(self.data * other.data, (self, other.data), (other, self.data))

    def _made(self, data, *sources):
        made = Value(data)
        made.sources = sources
        return made
        ### END SOLUTION

    def relu(self):
        """A new Value: max(0, data); its slope is 1 above 0, and 0 elsewhere, including at 0."""
        ### BEGIN SOLUTION
        return self._made(max(0.0, self.data), (self, float(self.data > 0)))
        ### END SOLUTION

    def backward(self):
        """Add the slope of this value with respect to each leaf to that leaf's grad.

        A leaf's slope with respect to itself is 1. A second call, on this or another value, adds
        to grad again. What grad holds in values that are not leaves is up to you.
        """
        ### BEGIN SOLUTION
        order, seen = [], set()

        def visit(value):
            if id(value) not in seen:
                seen.add(id(value))
                for source, _ in value.sources:
                    visit(source)
                order.append(value)

        visit(self)
        slopes = {id(value): 0.0 for value in order}
        slopes[id(self)] = 1.0
        for value in reversed(order):
            if not value.sources:
                value.grad += slopes[id(value)]
            for source, local in value.sources:
                slopes[id(source)] += slopes[id(value)] * local
        ### END SOLUTION

# %% [markdown]
# ## 1a.6 The tape is written again every time
#
# An `if` in your code needs no special layer: only the branch that ran is on the tape. Here the
# branch depends on the sign of the mean.

# %%
for numbers in ([1.0, 2.0], [-1.0, -2.0]):
    x = torch.tensor(numbers, requires_grad=True)
    y = 0.5 * x.square().sum() if x.mean() > 0 else -0.5 * x.sum()
    y.backward()
    print(numbers, "-> gradient", x.grad.tolist())

# %% [markdown]
# The slope of ½Σx² is x itself; in the other branch it is −½ everywhere. The condition leaves no
# trace on the tape, because no gradient flows through a comparison.

# %% [markdown]
# ## 1a.7 Through two layers
#
# A network is the same thing with more nodes. Take (relu(w₂ · relu(w₁ · x)) − y)² at x = 2, y = 1,
# with both weights 0.5. The prediction is 0.5 and the loss 0.25. Work backwards on paper.
# **Guess:** what is the slope with respect to w₁?

# %%
guess("01a.first-weight", ...)

# %%
worked.compute("N16")

# %% [markdown]
# It is negative: a larger w₁ lowers the loss, so a step *against* the gradient raises w₁. Both relu
# gates are open here. What if one closes? Below, w₁ goes from −1 to 2: look at both slopes.

# %%
w1 = torch.linspace(-1, 2, 301, requires_grad=True)
w2 = torch.full_like(w1, 0.5, requires_grad=True)
losses = (torch.relu(w2 * torch.relu(w1 * 2)) - 1) ** 2
losses.sum().backward()  # 301 networks at once, and no two of them share a weight
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
axis.plot(w1.detach(), losses.detach(), color=GREY, label="loss")
axis.plot(w1.detach(), w1.grad, color=BLUE, label="slope with respect to w₁")
axis.plot(w1.detach(), w2.grad, "--", color=RED, label="slope with respect to w₂")
axis.set(xlabel="w₁ (w₂ = 0.5)")
axis.legend();

# %% [markdown]
# Below 0 the gate is shut: the loss is 1, and both slopes are exactly 0. On this example, plain SGD
# will never move these weights again. A ReLU that is shut for *every* example is *dead*, and that is
# how a loss can stay flat even though every line of the loop is right.

# %% [markdown]
# ## 1a.8 `.grad` adds up
#
# Let x = 2 be a leaf. You call `(3 * x).backward()`, then `(5 * x).backward()`, and clear nothing
# in between. **Guess:** what does `x.grad` hold?

# %%
guess("01a.added", ...)

# %%
worked.compute("N17")

# %% [markdown]
# `x.grad` is three plus five (claim F26 holds). Your `Value` did the same, and it had to: a weight
# that is used twice gets its slope in two pieces. The price is that a training loop has to clear
# `.grad` itself.

# %% exercise 01a.four-gradients
### BEGIN SOLUTION
four_gradients = {"square": 2 * q.a, "mean": 1 / q.n, "max": 1 / q.k, "twice": 1 + 2 * q.a}
### END SOLUTION

# %% [markdown]
# The lecture's lab asks the same questions for x = [1, 2, 3]. Look at the last three lines: when
# two entries tie for the largest, `max()` and `amax` split the slope between them, while
# `max(dim=0)` gives all of it to one.

# %%
worked.compute("N18")

# %% [markdown]
# Now torch's own backward, node by node. Step through it twice: which tensors get a `.grad` at all, and
# what does the second pass add? Then send the second pass through the *same* graph, and try a·x + b.

# %%
GraphExplorer()

# %% [markdown]
# Only leaves keep a gradient. In a·x + b the product saved x and freed it after the first pass, so
# the second pass raises an error there. By then the sum, which saves nothing, has already added to
# `b.grad`.

# %% [markdown]
# ## 1a.9 What `backward()` leaves alone
#
# A training step has six operations, and each one changes something different. Walk through one
# step: which tensors does `backward()` touch? Then remove `zero_grad()` and walk through two
# updates.

# %%
StepAnatomy()

# %% exercise 01a.backward-leaves

# %% [markdown]
# The lecture says, without any condition, that the graph is gone after `backward()`. When tested,
# this holds if the graph has saved tensors; a plain sum saves none, so `backward()` runs on it
# twice (`course claims F35`).

# %% [markdown]
# ## 1a.10 Off the tape
#
# Evaluation needs no gradients, and a log needs plain numbers. `detach()` gives the same numbers
# outside the graph; `torch.no_grad()` records nothing inside its block; `torch.inference_mode()`
# goes further: tensors made in its block can never join a graph that must save them. **Guess:** y
# is [2, 4]. After `copy = y.detach()`, you write `copy[0] = 99`. What is `y[0]` now?

# %%
guess("01a.detached", ...)

# %%
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x * 2
copy = y.detach()
copy[0] = 99
print("y:", y.tolist(), "   requires_grad:", y.requires_grad, copy.requires_grad)
reveal("01a.detached", y[0].item())

# %% [markdown]
# `detach()` leaves the graph but shares the memory: write `detach().clone()` for numbers that
# nothing else can change. Now for the two modes. Which of these results can later be multiplied by
# a weight?

# %%
values, weight = torch.tensor([1.0, 2.0]), torch.ones(2, requires_grad=True)
with torch.no_grad():
    quiet = values * 2
with torch.inference_mode():
    locked = values * 2
for name, made in [("no_grad", quiet), ("inference", locked), ("clone", locked.clone())]:
    try:
        print(f"{name:10} {torch.autograd.grad((weight * made).sum(), weight)}")
    except RuntimeError as error:
        print(f"{name:10} {str(error)[:50]}")

# %% [markdown]
# The product must save `made` for its backward pass, but an inference tensor cannot be saved; a
# clone of it is an ordinary tensor again. A *sum* saves nothing, so `weight + locked` works: the
# lecture's "outputs cannot enter backward" holds only where they must be saved (F53). Its "10 %
# faster" holds for many small operations, and disappears for large ones (F52). And the claim that
# validation without `no_grad` takes more memory with every batch does not hold (F46): it costs one
# batch's graph, unless you keep the losses.

# %% [markdown]
# ## 1a.11 A gradient of a gradient
#
# A gradient is itself computed by operations, and operations can be recorded: `create_graph=True`
# puts the backward pass on the tape. **Guess:** what is the second derivative of x³ at x = 2?

# %%
guess("01a.second", ...)

# %%
x = torch.tensor(2.0, requires_grad=True)
(first,) = torch.autograd.grad(x**3, x, create_graph=True)
(second,) = torch.autograd.grad(first, x)
print(f"3x² = {first.item():g}, 6x = {second.item():g}")
reveal("01a.second", second.item())

# %% [markdown]
# ## 1a.12 What does an answer depend on?
#
# Gradients are not only for weights. The slope of one score with respect to every *pixel* is a map of
# where a small change would move the answer most. Here is a network that reads digits. Its outputs
# are **logits**, one score per class; a *softmax* (1b) would turn them into probabilities. Its
# **dropout** sets random values to 0 while it trains: it is on in train mode, into which
# `model.train()` puts every module, and off in eval mode, after `model.eval()` (3a).

# %%
torch.manual_seed(0)
layers = nn.Linear(64, 64), nn.Tanh(), nn.Dropout(0.2), nn.Linear(64, 10)
model = nn.Sequential(nn.Flatten(), *layers)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(100):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(data.train_inputs), data.train_targets).backward()
    optimizer.step()
hits = model.eval()(data.val_inputs).argmax(dim=1) == data.val_targets
print(f"validation accuracy {hits.float().mean():.1%}")

# %% exercise 01a.saliency
# The model may come in any mode and may contain dropout, and the function may be called inside
# `no_grad` (but not `inference_mode`). Nothing that is passed in may be different afterwards: no
# module's mode, no `.grad`, no image.
def saliency(model, images, labels):
    """How strongly each pixel moves the score of its image's label, in eval mode.

    Args:
        model: Returns logits [B, C] and does not change its input; after the call each module is
            in the mode it was in before.
        images: [B, channels, H, W], float; requires_grad is False, and must be False afterwards.
        labels: Class indices [B], not always the model's own prediction.

    Returns:
        [B, H, W] without a graph: for each pixel, the magnitude of the slope of the label's logit
        (before any softmax); of the pixel's channels, the steepest counts.
    """
    ### BEGIN SOLUTION
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    with torch.enable_grad():
        pixels = images.detach().clone().requires_grad_()
        scores = model(pixels).gather(1, labels[:, None]).sum()
        (slopes,) = torch.autograd.grad(scores, pixels)
    for module, training in modes:
        module.training = training
    return slopes.abs().amax(dim=1)
    ### END SOLUTION

# %%
shown, answers = data.val_inputs[:6], data.val_targets[:6]
if ready(saliency):
    maps = saliency(model, shown, answers)
    figure, axes = plt.subplots(2, 6, figsize=(8, 2.8), layout="constrained")
    for column, (image, found) in enumerate(zip(shown[:, 0], maps, strict=True)):
        axes[0, column].imshow(image, cmap="gray_r")
        axes[0, column].set_title(f"a {answers[column]}", fontsize="medium")
        axes[1, column].imshow(found, cmap="cividis")
    plt.setp(axes, xticks=[], yticks=[])

# %% [markdown]
# Bright pixels move the score most, whether they hold ink or not: an empty spot matters where ink
# would turn the digit into another one. The map shows what the *model* uses, which is not always
# what you would look at; that is why it can reveal a shortcut in the data.

# %%
scorecard("01a-tensors-and-autograd")

# %% [markdown]
# ## What to keep
#
# - Dimension 0 is the batch; `flatten(1)` joins the rest. A tensor made inside a function should
#   take its dtype and device from the data, or the function breaks on other data.
# - `from_numpy`, views and `detach()` share memory; `torch.tensor` and `clone()` copy.
# - The tape is a record of local slopes. Backward goes through it in reverse order, adds slopes up
#   wherever they meet, and keeps adding to `.grad` until you clear it. It does not move any weight.
# - `detach`, `no_grad` and `inference_mode` leave the tape, each for its own purpose.
#
# **Further reading.** *Autograd mechanics* in PyTorch's documentation; Baydin et al., *Automatic
# Differentiation in Machine Learning: a Survey* (2018); [course/from_scratch/tape.py](../course/from_scratch/tape.py),
# a tape without recursion.
#
# **Challenge, ungraded.** Give your `Value` a `tanh`, a subtraction and a power, and use it to
# train a network with two inputs, four hidden units and one output on XOR. How many backward passes
# does it need?
