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
# A correct run that takes a week is hardly better than none. There are a dozen switches that promise
# speed; some of them help on your machine, some do nothing, and one made a step twenty times slower on the
# CPU on which this page was written. You will measure before you believe, and end with a note that says
# whether a run is ready to be made larger.
#
# *Read a question, make a guess, then run the cell below it. Every cell may be run twice. Times are those
# of your machine: with a GPU the cells use it, without one they show what the CPU does.*

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
student("")

# %% [markdown]
# ## 3i.1 One reading is no measurement
#
# How long does a training step take? Call it once, read the clock, done. Here is a convolution on images,
# forward and backward, with every single call on record, the very first one too. **Guess:** how many times
# as long as a later call does the first one take?

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
# A first call may have to choose algorithms, ask for memory, on a GPU load the kernels; later ones find all that
# ready. The repeats scatter too: other programs run on the same cores. So: a **warm-up** that is not
# counted, several repeats, and their **median**, which a few slow calls do not move. Give the spread
# with it.

# %% [markdown]
# One more trap waits on an accelerator: a call only *queues* its work and returns. A clock that is read then
# has measured the queueing. `torch.accelerator.synchronize()` waits until the device is idle. Read off the
# pattern of C34:
#
# | step | why |
# | --- | --- |
# | call it a few times | caches, algorithms, compilation |
# | wait, read the clock | nothing older runs |
# | call it | |
# | wait, read the clock | all of its work is in |
# | repeat, take the median | single calls scatter |

# %% exercise 03i.median-time
# Write it for any clock and any device: the check brings its own, whose work takes time that only
# `synchronize()` waits for. Nothing of `course` may do the work.
def median_time(work, synchronize, clock, warmup, repeats):
    """Median time of one call of `work`, all that it gives the device included.

    Args:
        work: Called without arguments; may return while the device still works on it.
        synchronize: Returns when the device has done all that it was given. May be called any
            number of times; the device may be busy with other work when median_time begins.
        clock: Gives seconds; it may begin anywhere.
        warmup: Calls that are made first and not counted; 0 or more.
        repeats: Calls after them that are, each timed by itself; 1 or more.

    Returns:
        The median of the repeats in seconds; of an even number the mean of the two in the middle.
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
# Four readings of each: a median of nine is what you could quote. Two candidates are compared *in turn*, one
# call each, so that a slow minute of the machine hits both; `time_in_turn` does that.

# %% [markdown]
# ## 3i.2 Is there enough arithmetic?
#
# A product of two matrices with n rows and columns takes 2n³ operations (N57). **Guess:** 2,048 instead of
# 1,024 rows, how many times as long does it take?

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
# Near the grey line arithmetic sets the time, eight times as much for each doubling. Where a point lies far above
# it, on the left, the call itself costs more than its arithmetic: launching an operation takes microseconds
# on every device. Only on the right is there something that a GPU could make faster (F120).

# %% [markdown]
# **Question.** From your own times (X27): from which size on would you send a product to a GPU, and why is a
# network of 64-by-128 layers with batches of 32 no candidate? What would you have to measure besides the
# product? Three sentences with two numbers.

# %% [markdown] nbgrader={"grade": true, "grade_id": "which-size", "locked": false, "points": 2, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# A product of 16 rows takes a few microseconds here and one of 2,048 some 200 ms; from some hundred rows on
# the time follows n³, so arithmetic is what takes long, and a GPU can help. A layer of 64 by 128 with a batch of
# 32 is half a million operations, less than the launch costs. The copy to the device and the whole step, with
# its loader, have to be measured too: a fast product does not help a run that waits for data.
# ### END SOLUTION

# %% [markdown]
# ## 3i.3 Who waits for whom?
#
# 3c measured loaders. Now predict: without workers, making a batch and the step add up. With workers batches are made
# meanwhile, and the *slower side sets the pace*. **Guess:** 16 ms to make a batch in one process, a step of 6
# ms: from how many workers on does one more bring nothing?

# %%
guess("03i.enough-workers", ...)

# %%
from course.analysis.overlap import seconds_per_batch, speedup

paces = {n: seconds_per_batch(0.016, 0.006, n) for n in range(6)}
print({n: f"{1e3 * s:.1f} ms" for n, s in paces.items()})
reveal("03i.enough-workers", min(n for n, s in paces.items() if s == min(paces.values())))

# %% [markdown]
# The same two sides on a clock. Add workers until the model has no gap left. Then let one batch in seven take
# eight times as long: the average is what it was with a slower loader, and now it matters how far ahead is loaded.

# %%
from course.widgets import DataPipeline

DataPipeline(load_ms=20, step_ms=5)

# %% [markdown]
# Does a real loader keep to it? Items that take 2 ms to arrive, as from a slow disk, eight to a batch, and a step
# of 6 ms:

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
    print("No processes may be started here:", fault)
for factor in (2, 10, 1000):
    print(f"30 % of the time, {factor} times as fast: in all {speedup(0.3, factor):.2f}")
plots.plot_pace(partial(seconds_per_batch, 0.016, 0.006), measured, 0.006)

# %% [markdown]
# Workers pay until the step is the slower side. From then on only a faster step helps, and before that it does
# not help at all. The general form is Amdahl's law, in the lines above the figure: a part that takes a share of
# the time can save no more than that share, however fast it becomes.

# %% exercise 03i.epoch-time
### BEGIN SOLUTION
epoch_time = {
    "serial": q.n * (q.m + q.s) / 1000, "workers": q.n * max(q.m / q.w, q.s) / 1000,
    "faster": q.n * max(q.m / q.w, q.s / q.f) / 1000, "enough": -(-q.m * q.f // q.s)}
### END SOLUTION

# %% [markdown]
# ## 3i.4 The same result in another layout
#
# Some switches change nothing but the way to the same numbers. AdamW can move its tensors one after the other
# (`foreach=False`), step by step for all of them together (`foreach=True`), or in one pass over each
# (`fused=True`). **Guess:** 200 small tensors, how many times as fast is fused as one by one?

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
works = {name: optimizer.step for name, optimizer in ways.items()}
steps = time_in_turn(works, repeats=9, synchronize=wait)
reveal("03i.fused", steps["one by one"].median / steps["fused"].median)
first, *others = ([p for g in o.param_groups for p in g["params"]] for o in ways.values())
for name, other in zip(("foreach", "fused"), others, strict=True):
    most = max((a - b).abs().max().item() for a, b in zip(first, other, strict=True))
    print(f"{name}: weights differ by {most:.1e} after ten steps")
plots.plot_timings(steps)

# %% [markdown]
# Up to rounding the weights are the same, so the switch is free. It matters where tensors are many and small, as
# here; in one large matrix the arithmetic hides it. The memory layout of images is such a switch as well:
# `channels_last` stores the channels of a pixel side by side, the shape stays `[B, C, H, W]`.

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
# `torch.compile` traces a function once, into a graph of tensor operations, and lets a compiler fuse them. Tracing
# and compiling take long, later calls use the result. Here it is on your device; without a GPU the graph is
# only traced, since generating code for a CPU takes long and needs a compiler.

# %%
from course.analysis.graph_breaks import compile_here, fits_one_graph, graph_breaks

torch.manual_seed(3)
blocks = [(nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU()) for _ in range(4)]
network = nn.Sequential(*(layer for block in blocks for layer in block)).to(device)
rows = torch.randn(256, 64, device=device)
compiled, backend, first_s = compile_here(network, rows)
print(f"backend {backend}, first call {1e3 * first_s:.0f} ms")

# %%
both = time_in_turn({"plain": lambda: network(rows), "compiled": lambda: compiled(rows)},
                    repeats=9, synchronize=wait)
for name, timing in both.items():
    print(f"{name}: {timing}")
print("compiled:", next(iter(compiled.state_dict())))
print("model:   ", next(iter(network.state_dict())))
network.compile(backend="eager")
print("in place:", next(iter(network.state_dict())))

# %% [markdown]
# So compiling pays after many calls with the same shapes, if at all: another shape is traced again. The gain on a
# GPU is what `course claims F119` tries. What you save should not know of it: `torch.compile(model)` returns a
# wrapper, whose names begin differently (C33); `model.compile()` changes nothing of them.
#
# A graph ends where Python has to know a number that is in a tensor: that is a **graph break**. What comes before
# and after cannot be fused. Ask the tracer where:

# %%
def by_python(x):
    y = 2 * x
    return y + 1 if y.mean() > 0 else y - 1


def by_where(x):
    y = 2 * x
    return torch.where(y.mean() > 0, y + 1, y - 1)


for function in (by_python, by_where):
    print(f"{function.__name__:14}", graph_breaks(function, torch.randn(4)))
    print(" " * 14, "in one graph:", fits_one_graph(function, torch.randn(4)))

# %% exercise 03i.graph-breaks

# %% [markdown]
# ## 3i.6 What each switch costs
#
# The chapter on training loops has a table of costs: accumulation saves 60 % of the memory at the same speed,
# mixed precision 40 %, and makes steps half as long. Measure it. One network, one batch of 512 digits, four ways to its gradient.
# **Guess:** BF16 autocast on your device, what happens to the time of a step?

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
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), *deep, nn.Linear(256, 10)).to(device)


def recomputed(x):
    return model[8:](checkpoint(model[:8], x, use_reentrant=False))

# %%
from course.claims.lab import peak_bytes


def gradient(forward=model, parts=1, half=False):
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
    model.zero_grad()
    return peak_bytes(work, device)


times = time_in_turn(works, repeats=3, synchronize=wait)
change = times["BF16 autocast"].median / times["plain"].median
reveal("03i.bf16", "faster" if change < 0.9 else "slower" if change > 1.1 else "alike")
memory = {name: peak(work) for name, work in works.items()}
plain_s, plain_bytes = times["plain"].median, memory["plain"]
costs = {n: (times[n].median / plain_s, memory[n] / plain_bytes) for n in works}
plots.plot_costs(costs)

# %% [markdown]
# Memory is the most that lives at once, gradients included. Recomputation gives back part of it for a second
# forward; micro-batches give back more, until weights and gradients are what is left; BF16 halves what is kept
# between forward and backward, not the weights. Its time depends on the device: without units for 16 bits the
# CPU imitates them. So the chapter's table, as measured (T33):

# %% [markdown]
# | component | the chapter says | measured |
# | --- | --- | --- |
# | checkpoint file | twice the model | 1, 2 or 3 times (N49) |
# | early stopping | no cost | one comparison per epoch (F111) |
# | accumulation | 60 % less memory | 27 % more to 87 % less (F54) |
# | | same speed | same arithmetic, six times the calls (F138) |
# | mixed precision | 40 % less memory | activations times 0.55 (F55) |
# | | 1.5 to 2 times as fast | a question to your GPU (F118) |

# %% [markdown]
# | component | what it prevents |
# | --- | --- |
# | checkpoints | a crash that costs the run |
# | early stopping | epochs that only overfit |
# | accumulation | a batch that does not fit |
# | mixed precision | slow steps, on a device made for it |
# | seeds | a result that nobody can repeat |
# | a log | searching in the dark |
# | clipping | one batch that throws the weights away |
#
# A switch is worth its place if you can name what it prevents in *your* run.
#
# Where does each stand in the loop? Try clipping before `unscale_()`.

# %%
from course.widgets import ProductionLoop

ProductionLoop()

# %% [markdown]
# ## 3i.7 Two processes
#
# Several devices share a batch: each *rank* runs a copy of the model on its own part, and
# `DistributedDataParallel` takes the mean of their gradients. Which mean? The plain one. **Guess:** two ranks with
# 12 and 4 examples, each with the mean loss of its own: how many times as much does an example of the second
# rank count?

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
# An example counts a half divided by the number in its share: three times as much in the short one. That is the
# short micro-batch of 3a again. **Guess** the other case: equal shares, and a BatchNorm in the model. Is the
# ranks' mean gradient that of the joined batch?

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
# Equal shares give the joined gradient up to rounding. Unequal ones do if each counts by its examples. BatchNorm
# never does: a rank normalises by its own examples, and no mean afterwards brings the batch's statistics
# back. `SyncBatchNorm` exchanges them, GroupNorm needs none. So far the ranks were played one after
# another; here they are two real processes:

# %%
try:
    ranks = run_ranks(with_norm, criterion, shares(batch, [12, 4]))
    played = mean_gradient(play_ranks(with_norm, criterion, shares(batch, [12, 4])))
    print(f"gradients, played and real, differ by {gap(ranks[0].grads, played):.1e}")
    for number, rank in enumerate(ranks):
        print(f"rank {number}: loss {rank.loss:.3f}, "
              f"running mean {rank.buffers['1.running_mean'][:3].tolist()}")
except RuntimeError as fault:
    print("Two processes could not be started here:", fault)
worked.compute("N52")

# %% [markdown]
# Each rank prints the loss of its own examples: a log of rank 0 is a log of a part. Each has its own running
# mean, too: before each forward the wrapper copies rank 0's to all, so the others' are lost.
#
# The sampler decides who gets what; the table has ten examples for three ranks. In training two extra examples do
# little harm. In *validation* they are counted twice: the accuracy is not that of the set. Gather what each rank
# counted, over shares without padding, and join:

# %% exercise 03i.join-ranks
# Each rank reports means over its own examples. Give what one process would have on all of them. Nothing of
# `course` may do the work; `torch` may.
def join_ranks(ranks):
    """Loss, accuracy and gradients of the whole batch, from the reports of its ranks.

    Args:
        ranks: A list of dictionaries, one per rank, which stay as they are:
            "count": how many examples it had; 0 is possible, though not on every rank.
            "loss": the mean loss over its examples, a number; nan if it had none.
            "correct": how many of them were right.
            "grads": by name of the parameter, the same names on every rank, the gradient of its
                mean loss: a tensor, or None if no gradient arrived there, which counts as 0.
                Tensors of nan if it had no examples.

    Returns:
        {"loss": mean loss over all examples, "accuracy": share of right ones,
         "grads": by name, the gradient of that mean loss}. A gradient is None where it is None on
        every rank that had examples. A nan that examples gave is not hidden: it stays nan.
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
    print(f"loss {told['loss']:.4f}, of the joined batch {joined.loss:.4f}")
    print(f"gap of the gradient {gap(told['grads'], joined.grads):.1e}")

# %% [markdown]
# ## 3i.8 Which path?
#
# Six execution paths, and the question that each has to pass first (T30):
#
# | path | for | ask first |
# | --- | --- | --- |
# | CPU | small models, tests, CI | is it right? |
# | one GPU | large products | is the batch large enough? |
# | mixed precision | devices with 16-bit units | is the metric kept? |
# | compile | stable models and shapes | how many graph breaks? |
# | accumulation | batches that do not fit | is the effective batch right? |
# | several devices | one that is full | is it right on one? |

# %% [markdown]
# Is there enough arithmetic, does it fit, does the loader keep up (S28)? Turn the numbers of a step until the
# answer is a CPU, then until it is the loader:

# %%
from course.widgets.device.widget import DeviceDecision

DeviceDecision()

# %% [markdown]
# With correctness before it and the other paths behind it, the chain is longer. The first answer that is short of
# something decides:

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
# What is dear is seldom the step alone. Six costs (T31), each with its own meter:
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
# A switch that halves the second and doubles the fourth is not a bargain.

# %% exercise 03i.order

# %% [markdown]
# ## 3i.9 Ready for more?
#
# A long run should fail in its first second, not in its last hour (T41). Things that are wrong, and what looks at
# them before the first update:

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
model, criterion = small(), nn.CrossEntropyLoss()
print(first_words(lambda: torch.optim.Adam([])))
other = torch.optim.Adam(small().parameters())
print(first_words(lambda: Trainer(model, criterion, other)))

# %% [markdown]
# The last one is the quiet kind: an optimizer full of *other* weights, which `step()` would move without a word.
# Two more belong on the list: a checkpoint that cannot be written, tried before the first epoch, and a metric far
# below the baseline, which ends the run.
#
# Now the candidate. A network with dropout, Adam under a cosine, a shuffled loader, and checkpoints:

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
# Its probes: loss and accuracy on both parts, the ladder's first rungs on a fresh copy, and whether the step waits
# for data. Read the numbers; the note needs them.

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
# The review asks five things (T39): what the run is made of; at least three probes, with evidence; how training and
# validation differ; whether the checkpoint carries everything that the next update reads; at least two risks of the
# larger scale, each with the sign that would show it.

# %% [markdown]
# ## What to keep
#
# - Warm up, repeat in turn, wait for the device, take the median, give the spread.
# - The slower side sets the pace. Find out which it is before you speed up either.
# - Fused and channels last change nothing but time. Precision, accumulation and ranks change the run: compare it.
# - A graph ends where Python needs a tensor's value.
# - Ranks are averaged plainly; unequal shares, BatchNorm and the printed loss are not what one process has.
# - Right on one device first. Then whatever is short, one change, one measurement.
#
# Habits for a GPU (T40), each with the guard that goes with it:
#
# | habit | guard |
# | --- | --- |
# | model and batch on one device | compare their `.device` once |
# | `non_blocking=True` | only from pinned memory |
# | BF16 autocast | compare the metric |
# | a few workers, prefetch 2 | measure; in memory none |
# | `cudnn.benchmark` | fixed shapes only |
# | compile, `max-autotune` | count the calls that pay for it |
# | sizes in multiples of 8 | F123 |
# | synchronise when timing | nowhere else |
#
# The whole course on one page (T29): **build**: every layer registered; **feed**: loader and step measured; **train**:
# five calls in order; **debug**: overfit, rate, ablation; **analyse**: buckets before effort.
#
# What was promised (X09, X11), and where you showed it:
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
# And the frameworks around (T32):
#
# | framework | reach for it |
# | --- | --- |
# | PyTorch | by default: it can be debugged line by line |
# | TensorFlow | where the platform is built on it |
# | JAX | for transformations of functions, for TPUs |
# | NumPy | to write the inside by hand |
# | wrappers around PyTorch | once you have written the plain loop |
#
# **Further reading.** Engineering module, §5; [course/data/throughput.py](../course/data/throughput.py);
# [course/engine/distributed.py](../course/engine/distributed.py), where the `Trainer` sums the weights of a window
# over all ranks before it divides, and so makes the joined batch's update under `torchrun` as well;
# `course claims F119` and `course claims F54` in a terminal; Amdahl, *Validity of the single processor approach* (1967).
#
# **Challenge, ungraded.** Halve the time of the candidate to 96 % on validation, on your machine, over five
# seeds. Which switch helped by more than its own spread?

# %%
scorecard("03i-going-faster")
