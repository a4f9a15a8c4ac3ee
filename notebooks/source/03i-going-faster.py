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
# # 3i · Going faster
#
# A correct run that takes a week is hardly better than none. A dozen switches promise speed. Some
# of them help on your machine, some do nothing, and some slow it down. You will measure before you believe, and end with a note that says
# whether a run is ready to be scaled up.
#
# The lecture, its essay and the engineering module are the texts behind this course. A code after
# *read* above an exercise stands for an item in them: in a terminal, `course ledger C34` says which
# one, and `course claims F119` tests a claim. `worked.compute("N52")` computes a worked number.
#
# *Read a question, make a guess, then run the cell below it. Every cell may be run twice. The times
# are those of your machine: if there is a GPU, the cells use it; otherwise they show what the CPU
# does.*

# %%
import torch
from torch import nn

from autograde import ask, check, failing, guess, hint, ready, reveal, scorecard, student
from course import worked
from course.analysis.timing import time_in_turn, waiter
from course.engine import choose_device
from course.plots import speed as plots

device = choose_device()  # a GPU where there is one: data and models go there
wait = waiter(device)
print(device)

# %%
student("")  # your name or id, as you hand in

# %% [markdown]
# ## 3i.1 One reading is not a measurement
#
# How long does a training step take? Just call it once and read the clock? Here is a convolution on
# images, forward and backward, with every single call recorded, even the very first. **Guess:** how
# many times as long as a later call does the first call take?

# %%
guess("03i.first-call", ...)

# %%
torch.manual_seed(3)
images = torch.randn(8, 3, 28, 28, device=device)
layers = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(),
                       nn.Conv2d(64, 64, 3, padding=1)).to(device)


def conv_step():
    layers(images).square().mean().backward()


alone = time_in_turn({"step": conv_step}, warmup=2, repeats=15, synchronize=wait)["step"]
reveal("03i.first-call", alone.first / alone.median)
print(alone)
plots.plot_timings({"convolution": alone})

# %% [markdown]
# The first call may have to choose algorithms, allocate memory and, on a GPU, load the kernels;
# later calls find all that ready. The repeats vary too, because other programs run on the same
# cores. So use a **warm-up** that is not counted, several repeats, and their **median**, which a
# few slow calls do not move. Report the spread with it.

# %% [markdown]
# An accelerator adds one more trap: a call only *queues* its work and returns. If you read the
# clock at that moment, you have measured the queueing. `torch.accelerator.synchronize()` waits
# until the device is idle. The pattern (C34):
#
# | step | why |
# | --- | --- |
# | call it a few times | caches, algorithms, compilation |
# | wait, read the clock | nothing older runs |
# | call it | |
# | wait, read the clock | all of its work is in |
# | repeat, take the median | single calls vary |

# %% exercise 03i.median-time
# Write it for any clock and any device. The check uses its own clock and device, and only
# `synchronize()` waits for that device's work. Do not use anything from `course`.
def median_time(work, synchronize, clock, warmup, repeats):
    """Median time of one call of `work`, including all the work it queues on the device.

    Args:
        work: Called without arguments; may return while the device is still busy with it.
        synchronize: Returns when the device has finished everything it was given. You may call it
            any number of times; the device may be busy with other work when median_time starts.
        clock: Returns seconds; it may start from any value.
        warmup: How many calls to make first without counting them; 0 or more.
        repeats: How many calls to make after that, each timed separately; 1 or more.

    Returns:
        The median of the repeats in seconds; if their number is even, the mean of the middle two.
        `work` is called warmup + repeats times.
    """
    ### BEGIN SOLUTION
    times = []
    for _ in range(warmup + repeats):
        synchronize()
        start = clock()
        work()
        synchronize()
        times.append(clock() - start)
    times = sorted(times[warmup:])
    return (times[(repeats - 1) // 2] + times[repeats // 2]) / 2
    ### END SOLUTION

# %%
import time

if ready(median_time):
    for warmup, repeats in ((0, 1), (2, 1), (2, 9)):
        readings = [median_time(conv_step, wait, time.perf_counter, warmup, repeats)
                    for _ in range(4)]
        shown = [f"{1e3 * seconds:.1f}" for seconds in readings]
        print(f"warm-up {warmup}, repeats {repeats}:", shown)

# %% [markdown]
# You see four readings of each setting. If even the medians of nine differ by much, the machine is
# busy: repeat more often, and quote the spread. To compare two candidates, call them *in turn*, so that a slow minute of the machine hits both;
# `time_in_turn` does that.

# %% [markdown]
# ## 3i.2 Is there enough arithmetic?
#
# A product of two matrices with n rows and columns takes 2n³ operations (N57). **Guess:** with
# 2,048 instead of 1,024 rows, how many times as long does it take?

# %%
guess("03i.doubling", ...)

# %%
from functools import partial


def products(place):
    torch.manual_seed(3)
    sizes = (16, 64, 256, 512, 1024, 2048)
    pairs = {n: torch.randn(2, n, n, device=place) for n in sizes}
    works = {n: partial(torch.matmul, *pair) for n, pair in pairs.items()}
    timings = time_in_turn(works, warmup=1, repeats=3, synchronize=waiter(place))
    return {n: timing.median for n, timing in timings.items()}



# %%
seconds = {place: products(place) for place in dict.fromkeys(("cpu", device.type))}
reveal("03i.doubling", seconds["cpu"][2048] / seconds["cpu"][1024])
for place, by_size in seconds.items():
    print(place, {n: f"{2 * n**3 / s / 1e9:.3g}" for n, s in by_size.items()}, "GFLOP/s")
columns = {place: list(by_size.values()) for place, by_size in seconds.items()}
display(plots.plot_products(list(seconds["cpu"]), columns))
worked.compute("N57")

# %% [markdown]
# Near the grey line the arithmetic determines the time: eight times as much for each doubling. On
# the left, points lie far above the line. There the call itself costs more than its arithmetic,
# because launching an operation takes microseconds on every device. (A point below the line may
# come from matrices that still fit into a cache.) Only on the right is there something that a GPU
# can make faster (F120).

# %% [markdown]
# **Question which-size · worth a GPU?**  
# ●●○ · 5 min · 2 points, read by a person
#
# Use your own times (X27). From which size on would you send a product to a GPU (without one: from
# which size on does arithmetic set the CPU's time), and why is a network of 64-by-128 layers with batches of 32 not a candidate? What would you have to measure
# besides the product? Three sentences with two numbers.

# %% [markdown] nbgrader={"grade": true, "grade_id": "which-size", "locked": false, "points": 2, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# Here a product of 16 rows takes a few microseconds and one of 2,048 rows about 200 ms; from a few
# hundred rows on, the time follows n³, so arithmetic dominates and a GPU helps. A layer of 64 by
# 128 with a batch of 32 is half a million operations, less than the launch costs. I would also have
# to measure the copy to the device and the whole step with its loader: a fast product does not help
# a run that waits for data.
# ### END SOLUTION

# %% [markdown]
# ## 3i.3 Who waits for whom?
#
# In 3c you measured loaders; now you predict. Without workers, the time to make a batch and the
# time of the step add up. With workers, batches are made during the step, and the *slower side sets
# the pace*. **Guess:** one process takes 16 ms to make a batch, and the step takes 6 ms. From how
# many workers on does one more worker gain nothing?

# %%
guess("03i.enough-workers", ...)

# %%
from course.analysis.overlap import seconds_per_batch, speedup

paces = {n: seconds_per_batch(0.016, 0.006, n) for n in range(6)}
print({n: f"{1e3 * s:.1f} ms" for n, s in paces.items()})
reveal("03i.enough-workers", min(n for n, s in paces.items() if s == min(paces.values())))

# %% [markdown]
# Here are the same two sides on a timeline. Add workers until the model has no gaps left. Then let
# one batch in seven take eight times as long. The average is then that of a slower loader, but now
# it matters how far ahead the workers load.

# %%
from course.widgets import DataPipeline

DataPipeline(load_ms=20, step_ms=5)

# %% [markdown]
# Does a real loader follow this model? Here each item takes 2 ms to arrive, as from a slow disk; a
# batch has eight items, and the step takes 6 ms:

# %%
from torch.utils.data import DataLoader

from course.claims.loaders import Numbers


def pace(num_workers, batches=24):
    loader = DataLoader(Numbers(8 * batches, delay=0.002), 8, num_workers=num_workers)
    rows = iter(loader)
    next(rows), time.sleep(0.006)  # the first one starts the workers
    started = time.perf_counter()
    for _ in rows:
        time.sleep(0.006)
    return (time.perf_counter() - started) / (batches - 1)

# %%
try:
    measured = {n: pace(n) for n in (0, 1, 2)}
except OSError as fault:
    measured = {}
    print("Worker processes cannot be started here:", fault)
for factor in (2, 10, 1000):
    print(f"30 % made {factor} times as fast: overall {speedup(0.3, factor):.2f}")
plots.plot_pace(partial(seconds_per_batch, 0.016, 0.006), measured, 0.006)

# %% [markdown]
# More workers pay off until the step is the slower side. From then on only a faster step helps;
# before that, it does not help at all. The general rule is Amdahl's law, shown in the lines above
# the figure: speeding up one part can never save more than that part's share of the time, however
# fast it becomes.

# %% exercise 03i.epoch-time
### BEGIN SOLUTION
epoch_time = {
    "serial": q.n * (q.m + q.s) / 1000, "workers": q.n * max(q.m / q.w, q.s) / 1000,
    "faster": q.n * max(q.m / q.w, q.s / q.f) / 1000, "enough": -(-q.m * q.f // q.s)}
### END SOLUTION

# %% [markdown]
# ## 3i.4 The same result, computed differently
#
# Some switches change only how the same numbers are computed. AdamW can update its tensors one
# after the other (`foreach=False`), apply each operation to all of them together (`foreach=True`),
# or do everything in one pass over each tensor (`fused=True`). **Guess:** for 200 small tensors,
# how many times as fast is fused as one by one?

# %%
guess("03i.fused", ...)

# %%
def adamw(**how):
    torch.manual_seed(3)
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(100))).to(device)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    return torch.optim.AdamW(model.parameters(), **how)


ways = {"one by one": adamw(foreach=False), "foreach": adamw(foreach=True),
        "fused": adamw(fused=True)}

# %%
updates = {name: optimizer.step for name, optimizer in ways.items()}
steps = time_in_turn(updates, repeats=9, synchronize=wait)
reveal("03i.fused", steps["one by one"].median / steps["fused"].median)
first, *others = ([p for g in o.param_groups for p in g["params"]] for o in ways.values())
for name, other in zip(("foreach", "fused"), others, strict=True):
    most = max((a - b).abs().max().item() for a, b in zip(first, other, strict=True))
    print(f"{name}: weights differ by {most:.1e} after ten steps")
plots.plot_timings(steps)

# %% [markdown]
# Up to rounding the weights are the same, so this switch is free. It matters if there are many
# small tensors, as here; with one large matrix the arithmetic hides the difference. The memory
# layout of images is another such switch: `channels_last` stores the channels of a pixel side by
# side, while the shape stays `[B, C, H, W]`.

# %%
from copy import deepcopy

as_rows = images.to(memory_format=torch.channels_last)
turned = deepcopy(layers).to(memory_format=torch.channels_last)
print("same values:", torch.allclose(turned(as_rows), layers(images), atol=1e-5))
layouts = time_in_turn({
    "channels first": lambda: layers(images).square().mean().backward(),
    "channels last": lambda: turned(as_rows).square().mean().backward(),
}, repeats=7, synchronize=wait)
for name, timing in layouts.items():
    print(f"{name}: {timing}")

# %% [markdown]
# ## 3i.5 Compile
#
# `torch.compile` traces a function once into a graph of tensor operations and lets a compiler fuse
# them. Tracing and compiling are slow, but later calls use the result. Here it runs on your device.
# Without a GPU the graph is only traced, because generating code for a CPU takes long and needs a
# compiler.

# %%
from course.analysis.graph_breaks import compile_here, fits_one_graph
from course.analysis.graph_breaks import graph_breaks as find_breaks

torch.manual_seed(3)
blocks = [(nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU()) for _ in range(4)]
network = nn.Sequential(*(layer for block in blocks for layer in block)).to(device)
rows = torch.randn(256, 64, device=device)
compiled, backend, first_s = compile_here(network, rows)
print(f"backend {backend}, first call {1e3 * first_s:.0f} ms")

# %%
both = time_in_turn({"plain": lambda: network(rows), backend: lambda: compiled(rows)},
                    repeats=9, synchronize=wait)
for name, timing in both.items():
    print(f"{name}: {timing}")
print("compiled:", next(iter(compiled.state_dict())))
print("model:   ", next(iter(network.state_dict())))
network.compile(backend="eager")
print("in place:", next(iter(network.state_dict())))

# %% [markdown]
# The backend `eager` only traces, so it can save nothing. Even `inductor` pays off only over many
# calls of one shape (`course claims F119`). Checkpoints should not depend on compiling:
# `torch.compile(model)` returns a wrapper whose parameter names begin differently (C33), but
# `model.compile()` keeps the names.
#
# A graph ends wherever Python needs the value of a number in a tensor. Operations before and after
# this **graph break** cannot be fused with each other. Ask the tracer where the breaks are; it
# calls an `if` on a tensor a `generic_jump`:

# %%
def by_python(x):
    y = 2 * x
    return y + 1 if y.mean() > 0 else y - 1


def by_where(x):
    y = 2 * x
    return torch.where(y.mean() > 0, y + 1, y - 1)


for function in (by_python, by_where):
    print(f"{function.__name__:14}", find_breaks(function, torch.randn(4)))
    print(" " * 14, "in one graph:", fits_one_graph(function, torch.randn(4)))

# %% exercise 03i.graph-breaks

# %% [markdown]
# ## 3i.6 What each switch costs
#
# The chapter on training loops has a table of costs: accumulation saves 60 % of the memory at the
# same speed; mixed precision saves 40 % and halves the time of a step. Measure it: one network, one
# batch of 512 digits, and several ways to compute its gradient. **Guess:** with BF16 autocast on
# your device, what happens to the time of a step?

# %%
guess("03i.bf16", ...)

# %%
from torch.utils.checkpoint import checkpoint

from course.data import load

data = load("digits")
inputs = data.train_inputs[:512].flatten(1).to(device)
targets = data.train_targets[:512].to(device)
torch.manual_seed(3)
deep = [layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.ReLU())]
mlp = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), *deep, nn.Linear(256, 10)).to(device)


def recomputed(x):
    return mlp[8:](checkpoint(mlp[:8], x, use_reentrant=False))

# %%
from course.claims.lab import peak_bytes


def gradient(forward=mlp, parts=1, half=False):
    for x, y in zip(inputs.chunk(parts), targets.chunk(parts), strict=True):
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            loss = nn.functional.cross_entropy(forward(x), y) / parts
        loss.backward()


works = {"plain": gradient, "BF16 autocast": partial(gradient, half=True),
         "recomputed": partial(gradient, recomputed),
         "4 micro-batches": partial(gradient, parts=4),
         "16 of them": partial(gradient, parts=16)}

# %%
def peak(work):
    mlp.zero_grad()
    return peak_bytes(work, device)


times = time_in_turn(works, repeats=3, synchronize=wait)
change = times["BF16 autocast"].median / times["plain"].median
reveal("03i.bf16", "faster" if change < 0.9 else "slower" if change > 1.1 else "alike")
memory = {name: peak(work) for name, work in works.items()}
plain_s, plain_bytes = times["plain"].median, memory["plain"]
costs = {n: (times[n].median / plain_s, memory[n] / plain_bytes) for n in works}
plots.plot_costs(costs)

# %% [markdown]
# Memory here is the peak, gradients included. Recomputation saves part of it at the cost of a
# second forward pass. Micro-batches save more, until only weights and gradients are left. BF16
# halves what is kept between forward and backward, but not the weights. Its speed depends on the
# device: a CPU without 16-bit units has to emulate them. Here is the chapter's table next to what
# the course's tests measured on other networks (T33); compare both with your figure:

# %% [markdown]
# | component | the chapter says | measured |
# | --- | --- | --- |
# | checkpoint file | twice the model | 1, 2 or 3 times (N49) |
# | early stopping | no cost | one comparison per epoch (F111) |
# | accumulation | 60 % less memory | 27 % more to 87 % less (F54) |
# | | same speed | same arithmetic, six times the calls (F138) |
# | mixed precision | 40 % less memory | activations times 0.55 (F55) |
# | | 1.5 to 2 times as fast | ask your GPU (F118) |

# %% [markdown]
# | component | what it prevents |
# | --- | --- |
# | checkpoints | a crash that costs the run |
# | early stopping | epochs that only overfit |
# | accumulation | a batch that does not fit |
# | mixed precision | slow steps, where 16-bit is fast |
# | seeds | results nobody can repeat |
# | a log | searching in the dark |
# | clipping | one bad batch that ruins the weights |
#
# Which of these does *your* run need?
#
# Where does each belong? Try clipping before `unscale_()`. The bare loop ends lower: it makes more
# updates, unclipped and at the full rate. (In legal order two curves coincide.)

# %%
from course.widgets import ProductionLoop

ProductionLoop()

# %% [markdown]
# ## 3i.7 Two processes
#
# If several devices share a batch, each process, called a *rank*, runs a copy of the model on its
# own part, and `DistributedDataParallel` averages the gradients of all ranks. It takes the plain
# mean. **Guess:** two ranks have 12 and 4 examples, and each uses the mean loss of its own
# examples. How many times as much as an example of the first rank does one of the second count?

# %%
guess("03i.counts-more", ...)

# %%
from course.analysis.ranks import gap, mean_gradient, play_ranks, run_ranks, shares

batch = inputs[:16].cpu(), targets[:16].cpu()
criterion = nn.CrossEntropyLoss()
torch.manual_seed(3)
plain = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
with_norm = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(),
                          nn.Linear(32, 10))
reveal("03i.counts-more", (1 / 2 / 4) / (1 / 2 / 12))

# %% [markdown]
# The weight of an example is one half divided by the size of its share, so an example of the short
# share counts three times as much. This is the short micro-batch of 3a again. **Guess** another
# case: the shares are equal, but the model contains BatchNorm. Is the mean of the ranks' gradients
# the gradient of the joined batch?

# %%
guess("03i.batch-norm", ...)

# %%
def gaps(model, sizes):
    (joined,) = play_ranks(model, criterion, [batch])
    steps = play_ranks(model, criterion, shares(batch, sizes))
    return {"plain mean": gap(mean_gradient(steps), joined.grads),
            "by examples": gap(mean_gradient(steps, by_count=True), joined.grads)}


found = {"8 + 8": gaps(plain, [8, 8]), "12 + 4": gaps(plain, [12, 4]),
         "8 + 8,\nBatchNorm": gaps(with_norm, [8, 8])}
far = found["8 + 8,\nBatchNorm"]["plain mean"]
reveal("03i.batch-norm", "same" if far < 1e-5 else "other")
plots.plot_gaps(found)

# %% [markdown]
# Equal shares give the joined gradient up to rounding. Unequal shares do so if each rank is
# weighted by its number of examples. With BatchNorm neither works: each rank normalises by its own
# examples, and no averaging afterwards restores the statistics of the whole batch. `SyncBatchNorm`
# exchanges these statistics; GroupNorm needs none. So far we simulated the ranks one after another;
# here are two real processes:

# %%
try:
    ranks = run_ranks(with_norm, criterion, shares(batch, [12, 4]))
    played = mean_gradient(play_ranks(with_norm, criterion, shares(batch, [12, 4])))
    print(f"simulated and real gradients differ by {gap(ranks[0].grads, played):.1e}")
    for number, rank in enumerate(ranks):
        print(f"rank {number}: loss {rank.loss:.3f}, "
              f"running mean {rank.buffers['1.running_mean'][:3].tolist()}")
except RuntimeError as fault:
    print("Two processes could not be started here:", fault)
worked.compute("N52")

# %% [markdown]
# Each rank prints the loss of its own examples, so the log of rank 0 covers only part. Each also
# has its own running mean, but before each forward pass the wrapper copies rank 0's to all, so the
# others are lost.
#
# The sampler decides who gets which examples; the table has ten examples on three ranks. In training, two
# extra examples do little harm. In *validation* they count twice, so the accuracy is not that of
# the set. Instead, split without padding, collect all ranks' counts, and join them:

# %% exercise 03i.join-ranks
# Each rank reports means over its own examples. Return what a single process would get on all of
# them. You may use `torch`, but nothing from `course`.
def join_ranks(ranks):
    """Compute loss, accuracy and gradients of the whole batch from the reports of its ranks.

    Args:
        ranks: A list of dictionaries, one per rank, which you must not change:
            "count": how many examples it had; may be 0, but not on every rank.
            "loss": the mean loss over its examples, a number; nan if it had none.
            "correct": how many of them were right.
            "grads": a dictionary from parameter name (the same on every rank) to the gradient of
                its mean loss: a tensor, or None if no gradient arrived there, which counts as 0.
                Tensors of nan if it had no examples.

    Returns:
        {"loss": mean loss over all examples, "accuracy": share of right ones,
         "grads": by name, the gradient of that mean loss}. A gradient is None if it is None on
        every rank that had examples. A nan that comes from examples is not hidden: it stays nan.
    """
    ### BEGIN SOLUTION
    ranks = [rank for rank in ranks if rank["count"] > 0]
    total = sum(rank["count"] for rank in ranks)
    grads = {}
    for name in ranks[0]["grads"]:
        parts = [rank["count"] / total * rank["grads"][name]
                 for rank in ranks if rank["grads"][name] is not None]
        grads[name] = sum(parts) if parts else None
    return {"loss": sum(rank["count"] * rank["loss"] for rank in ranks) / total,
            "accuracy": sum(rank["correct"] for rank in ranks) / total, "grads": grads}
    ### END SOLUTION

# %%
(joined,) = play_ranks(plain, criterion, [batch])
steps = play_ranks(plain, criterion, shares(batch, [12, 4]))
reports = [{"count": s.count, "loss": s.loss, "correct": 0, "grads": s.grads}
           for s in steps]
if ready(join_ranks):
    told = join_ranks(reports)
    print(f"loss {told['loss']:.4f}, joined batch {joined.loss:.4f}")
    print(f"the gradients differ by {gap(told['grads'], joined.grads):.1e}")

# %% [markdown]
# ## 3i.8 Which path?
#
# There are six execution paths. Each comes with a question to answer first (T30):
#
# | path | for | ask first |
# | --- | --- | --- |
# | CPU | small models, tests, CI | is it correct? |
# | one GPU | large products | is the batch large enough? |
# | mixed precision | devices with 16-bit units | is the metric kept? |
# | compile | stable models and shapes | how many graph breaks? |
# | accumulation | batches that do not fit | is the effective batch right? |
# | several devices | runs that one device cannot handle | is it correct on one? |

# %% [markdown]
# Is there enough arithmetic, does it fit, does the loader keep up (S28)? Change the numbers of a
# step until the answer is a CPU, and then until it is the loader:

# %%
from course.widgets.device.widget import DeviceDecision

DeviceDecision()

# %% [markdown]
# The full chain is longer: correctness comes before these questions, the other paths after them.
# The first bottleneck in the chain decides:

# %%
from course.analysis.execution import Situation, advise

step_ms = 1e3 * times["plain"].median
of_40_ms = dict(right_on_one=True, step_ms=40, has_gpu=True)
runs = {"this notebook's network": Situation(right_on_one=True, step_ms=step_ms,
                                             has_gpu=device.type != "cpu"),
        "a GPU that waits": Situation(**of_40_ms, waiting=0.6),
        "an unproven loop": Situation(**of_40_ms | {"right_on_one": False}),
        "fed, on the GPU": Situation(**of_40_ms, on_gpu=True)}
for name, situation in runs.items():
    print(f"{name:24} {advise(situation)}")

# %% exercise 03i.path

# %% [markdown]
# The step is seldom the only cost. There are six costs (T31), and each is measured in its own way:
#
# | cost | read it from |
# | --- | --- |
# | development | days to the first validated run |
# | computation | examples per second, price per epoch |
# | recovery | work lost by a crash |
# | debugging | time to isolate a fault |
# | deployment | the gap between validation and use |
# | the team | how well others can review it |
#
# A switch that halves the second cost and doubles the fourth is not a bargain.

# %% exercise 03i.order

# %% [markdown]
# ## 3i.9 Ready for more?
#
# A long run should fail in its first second, not in its last hour (T41). Here are some faults, and
# the checks that catch them before the first update:

# %%
from course.data import check_batch
from course.engine import Trainer, evaluate, warmup_cosine

some, labels = data.train_inputs[:8], data.train_targets[:8]
bad = some.clone()
bad[0, 0, 0, 0] = float("inf")
batches = {"a feature that is inf": (bad, labels),
           "labels from 9 to 18": (some, labels + 9),
           "labels as floats": (some, labels.float())}
for name, pair in batches.items():
    print(f"{name:22}", check_batch(pair, num_classes=10).breaches[0].id)

# %%
def small():
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2),
                         nn.Linear(128, 10))


def first_words(call):
    try:
        call()
    except Exception as fault:
        return f"{type(fault).__name__}: {str(fault)[:60]} ..."
    return "not noticed"

# %%
print(first_words(lambda: torch.optim.Adam([])))
other = torch.optim.Adam(small().parameters())
print(first_words(lambda: Trainer(small(), criterion, other)))

# %% [markdown]
# The last fault is a silent one: an optimizer that holds *other* weights, which `step()` would
# update without any error. Two more checks belong on the list: try to write a checkpoint before the
# first epoch, and stop the run if the metric is far below the baseline.
#
# Now the candidate: a network with dropout, Adam with a cosine schedule, a shuffled loader, and
# checkpoints:

# %%
import tempfile
from pathlib import Path

scratch = tempfile.TemporaryDirectory()
model, run_dir = small(), Path(scratch.name)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
train_loader, val_loader = data.loaders(batch_size=64, seed=3)
cosine = warmup_cosine(optimizer, warmup=1, total=6)
trainer = Trainer(model, criterion, optimizer, scheduler=cosine, seed=3, device=device,
                  run_dir=run_dir)
history = trainer.fit(train_loader, val_loader, epochs=6)

# %% [markdown]
# Its probes are: loss and accuracy on both parts, the first rungs of the ladder on a fresh copy,
# and whether the step waits for data. Read the numbers; you need them for the note.

# %%
from course.data import is_waiting
from course.debug import climb

fresh = small()
setup = dict(model=fresh, loss_fn=criterion, num_classes=10,
             train_loader=train_loader, val_loader=val_loader,
             optimizer=torch.optim.Adam(fresh.parameters(), lr=3e-3))
for part, loader in (("train", train_loader), ("val", val_loader)):
    print(part, evaluate(model, loader, criterion, device=device))
climb(setup, top=3)

# %%
def train_step(batch):
    x, y = (part.to(device) for part in batch)
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()


print(is_waiting(train_loader, train_step, device=device, restore=[model, optimizer],
                 repeats=2))
state = torch.load(run_dir / "last.pt", weights_only=True)
print(list(state))
print("per process:", list(state["processes"][0]))

# %% exercise 03i.readiness
# The review asks for five things (T39): what the run consists of; at least three probes, with
# evidence; how training and validation differ; whether the checkpoint holds everything that the
# next update reads; and at least two risks of the larger scale, each with the sign that would
# reveal it.

# %% [markdown]
# ## What to keep
#
# - Warm up, call candidates in turn, wait for the device, take the median, report the spread.
# - The slower side sets the pace. Find out which it is before you speed up either.
# - Fused and channels last change only the time. Precision, accumulation and ranks change the run,
#   so compare results.
# - A graph ends where Python needs a tensor's value.
# - Ranks are averaged with equal weights; with unequal shares or BatchNorm the result, and in any
#   case the printed loss, differs from that of one process.
# - Get it right on one device first. Then work on the bottleneck: one change, one measurement.
#
# Habits for a GPU (T40), each with its safeguard:
#
# | habit | safeguard |
# | --- | --- |
# | model and batch on one device | compare their `.device` once |
# | `non_blocking=True` | only from pinned memory |
# | BF16 autocast | compare the metric |
# | a few workers, prefetch 2 | measure; no workers for data in memory |
# | `cudnn.benchmark` | fixed shapes only |
# | compile, `max-autotune` | count the calls it takes to pay off |
# | sizes in multiples of 8 | F123 |
# | synchronise when timing | nowhere else |
#
# The whole course on one page (T29): **build**: register every layer; **feed**: measure loader and
# step; **train**: five calls in order; **debug**: overfit one batch, learning rate, ablation;
# **analyse**: buckets before effort.
#
# What the course promised (X09, X11), and where you showed it:
#
# | outcome | exercises |
# | --- | --- |
# | tensors, autograd, modules | 01a, 01b |
# | the training loop | 03a.train-one-epoch, 03a.training-script |
# | seven rungs | 03b |
# | LR finder, curves | 03a, 03f.curves |
# | autocast | 03d |
# | leakage and shift | 03e |
# | ablation | 03f.fix-the-ablation, 03f.study |
# | a data pipeline | 03c |
# | execution paths, readiness | 03i.path, 03i.readiness |
#
# And other frameworks (T32):
#
# | framework | use it |
# | --- | --- |
# | PyTorch | by default: it can be debugged line by line |
# | TensorFlow | if the platform is built on it |
# | JAX | for transformations of functions, for TPUs |
# | NumPy | to write the internals by hand |
# | wrappers around PyTorch | once you have written the plain loop |
#
# **Further reading.** Engineering module, §5;
# [course/data/throughput.py](../course/data/throughput.py);
# [course/engine/distributed.py](../course/engine/distributed.py), where the `Trainer` sums the
# weights of a window over all ranks before it divides, so that under `torchrun` it also makes the
# update of the joined batch; `course claims F119` and `course claims F54` in a terminal; Amdahl,
# *Validity of the single processor approach* (1967).
#
# **Challenge, ungraded.** On your machine and over five seeds, halve the time the candidate takes
# to reach 96 % on validation. Which switch helped by more than its own spread?

# %%
scorecard("03i-going-faster")
