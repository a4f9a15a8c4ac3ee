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
# # 3c · The data pipeline
#
# A training loop is as good as the batches that reach it. You will follow one batch from a file to the
# model: read it, order it, cut it, pad it, hand it over in time. On the way loaders will repeat examples,
# skip others, draw the same noise in every epoch, and never raise an error.
#
# *Read a question, make a guess, then run the cell below it. Every cell may be run twice.*

# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, WeightedRandomSampler

from autograde import ask, check, failing, guess, hint, ready, reveal, scorecard, student
from course import worked
from course.data import (NoisyInputs, class_weights, count_draws, find_fashion_mnist,
                         load, make_loader, time_stages)
from course.engine import choose_device
from course.plots.loaders import plot_compositions, plot_draws, plot_padding, plot_stages

device = choose_device()  # a GPU where there is one: data and models go there

# %%
student("")

# %% [markdown]
# ## 3c.1 The road of a batch
#
# Six stages lie between the data and the model (T11), and each has its place in the call of a loader:
#
# | stage | what it does | you choose it by |
# | --- | --- | --- |
# | data set | gives one example for a number | `dataset[i]` |
# | sampler | says which numbers come, in which order | `shuffle`, `sampler` |
# | batch sampler | cuts that order into batches | `batch_size`, `drop_last` |
# | workers | fetch the examples of a batch | `num_workers` |
# | collation | makes one batch of the examples | `collate_fn` |
# | model | takes the batch | your loop |

# %% [markdown]
# Walk it by hand, once, with the digits of chapter 3a. Is that what a loader gives? Everything below is one of
# these stages, done in another way.

# %%
from torch.utils.data import BatchSampler, SequentialSampler, default_collate

digits = load("digits")
examples = digits.train_dataset
rows = next(iter(BatchSampler(SequentialSampler(examples), 64, drop_last=False)))
inputs, targets = default_collate([examples[row] for row in rows])
theirs = next(iter(DataLoader(examples, batch_size=64)))
print(list(inputs.shape), "the loader's own:", torch.equal(inputs, theirs[0]))

# %% [markdown]
# ## 3c.2 A data set over arrays
#
# A data set is two methods: how many examples there are, and the example at a position. A good one also
# refuses, at once, what would fail an hour later: lists of different lengths, labels of the wrong dtype.

# %%
class Arrays(Dataset):
    def __init__(self, inputs, targets):
        if len(inputs) != len(targets):
            raise ValueError(f"{len(inputs)} inputs, {len(targets)} targets")
        self.inputs, self.targets = inputs, torch.as_tensor(targets, dtype=torch.long)

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.inputs[index], self.targets[index]

# %% [markdown]
# A batch has a contract with model and loss (T04): inputs with a batch dimension, in float32, about centred;
# one class index per example, in long. `check_batch` reads it to you. Here are digits as
# scikit-learn has them, pixels from 0 to 16, and labels as floats. A model would train on these pixels without a
# word, in float64 if asked to, and badly: check one batch per data set, before anything else. Which breaches
# does it name?

# %%
from sklearn.datasets import load_digits

from course.data import check_batch

raw = load_digits()
pixels = torch.tensor(raw.images[:64])
display(check_batch((pixels, torch.tensor(raw.target[:64]).float()), num_classes=10))
check_batch(next(iter(DataLoader(Arrays(digits.train_inputs, digits.train_targets), 64))))

# %% [markdown]
# ## 3c.3 A folder of image files
#
# Real images lie in files, one folder per class. Let us have some: twenty digits, written as PNG.

# %%
import tempfile
from pathlib import Path

from PIL import Image

folder = Path((scratch := tempfile.TemporaryDirectory()).name)
for row in range(20):
    path = folder / str(raw.target[row]) / f"{row:02d}.png"
    path.parent.mkdir(exist_ok=True)
    Image.fromarray((raw.images[row] * 15).astype("uint8")).save(path)
print(len(list(folder.glob("*/*.png"))), "files; folders",
      sorted(path.name for path in folder.iterdir()))

# %%
from course.data import ImageFiles

files = ImageFiles.from_folder(folder, mode="L")
inputs, targets = next(iter(DataLoader(files, batch_size=20)))
print(list(inputs.shape), inputs.dtype, f"{inputs.min():g} to {inputs.max():.2g}")
print("classes", files.classes)
print("labels ", targets.tolist())

# %% [markdown]
# The folder's name is the label: digit 3 has the index 3 only because all ten folders are there. In a
# folder without threes every later class moves up by one, so save `classes` with the model.
#
# One bad file among thousands ends a run after hours. Cut one in half, and let a scan look first:

# %%
from course.data import scan_images

path = files.paths[7]
whole = Path(path).read_bytes()
Path(path).write_bytes(whole[: len(whole) // 2])
scan = scan_images(files.paths, mode="L")
Path(path).write_bytes(whole)
print(scan.reasons, "file number", scan.faults[0].index)

# %% [markdown]
# ## 3c.4 A file that does not fit
#
# Text often comes as one large file, a line per example. If it does not fit into memory, remember only where
# each line begins, and read a line when it is asked for. Here are the 469 lines of the course's own
# ledger, labelled by the list that they come from, a hundred times over.

# %%
from course.ledger import rows as ledger_rows

lines = [f"{row.id[0]}\t{row.line}\n" for row in ledger_rows().values()]
text_path = folder / "lines.txt"
text_path.write_text("".join(100 * lines), encoding="utf-8", newline="")
size = text_path.stat().st_size
print(f"{100 * len(lines):,} lines, {size / 1e6:.1f} MB, e.g. {lines[0][:40]!r}")

# %% exercise 03c.lines
# `seek()` goes to a place in the file, and counts bytes: a letter such as ü is one letter and two bytes. A
# worker later gets a copy of the data set, and an open file cannot be copied.
#
# A line is a label, a tab, and the text, in UTF-8: "3\tA text.\n". The text may hold further tabs,
# and blanks at its ends belong to it, as does "\r": only "\n" ends a line. The last line may lack it.
class LineDataset(Dataset):
    """The lines of a text file, read when they are asked for.

    Where the lines begin is found once, in __init__. A line is then read from its place in the file
    each time it is asked for, so that neither lines nor an open file are kept.

    Args:
        path: Of a file with at least one line.

    `len(dataset)` is the number of lines; `dataset[i]`, with i from 0 to len - 1, is a pair (text,
    label): the text without the line's newline, and a whole number.
    """

    def __init__(self, path):
        ### BEGIN SOLUTION
        self.path, self.starts, at = path, [], 0
        with open(path, "rb") as file:
            for line in file:
                self.starts.append(at)
                at += len(line)
        ### END SOLUTION

    def __len__(self):
        ### BEGIN SOLUTION
        return len(self.starts)
        ### END SOLUTION

    def __getitem__(self, index):
        ### BEGIN SOLUTION
        with open(self.path, "rb") as file:
            file.seek(self.starts[index])
            line = file.readline().decode("utf-8")
        label, _, text = line.removesuffix("\n").partition("\t")
        return text, int(label)
        ### END SOLUTION

# %% [markdown]
# Your data set on all the lines, in any order; the ledger's labels are letters, so number them first. What
# stays in memory is a number per line. As a Python list these take 8 bytes each and the numbers themselves
# 28 or 32 more; an `array`, as in [course/data/lines.py](../course/data/lines.py), keeps the 8.

# %%
from course.data import LineFile

kinds = sorted({line[0] for line in lines})
numbered = [f"{kinds.index(line[0])}{line[1:]}" for line in lines]
text_path.write_text("".join(100 * numbered), encoding="utf-8", newline="")
if ready(LineDataset):
    texts = LineDataset(text_path)
    print(len(texts), "lines; the last one:", texts[len(texts) - 1])

size, places = text_path.stat().st_size, LineFile(text_path).index_bytes
print(f"the file {size / 1e6:.1f} MB, in memory {places / 1e6:.2f} MB")

# %% [markdown]
# ## 3c.5 An epoch, counted
#
# The words (T12, T13): N examples, a batch size B, K batches to an update. An *iteration* is one
# batch, an *epoch* one pass over all examples, K·B the *effective batch*.
#
# | name | batch | updates per epoch |
# | --- | --- | --- |
# | full batch | all N | 1 |
# | mini-batch | B of them | N / B, rounded up |
# | stochastic | one | N |
#
# Everyday "batch", and everyday "SGD", mean the mini-batch. **Guess:** how many iterations make an epoch
# of 50,000 examples in batches of 256?

# %%
guess("03c.iterations", ...)

# %%
worked.compute("N04")

# %% [markdown]
# The short last batch is a batch. It is the first thing to check when a count is off by one; `drop_last`
# leaves it out. **Guess:** 20,000 examples in batches of 64, K = 4, ten epochs, and the last group of an
# epoch steps with what is there. How many updates?

# %%
guess("03c.updates", ...)

# %%
worked.compute("N05")

# %% [markdown]
# The lecture's quiz expects 790, the formula's count. A loop that steps only when `(i + 1) % K == 0` makes 780: one
# micro-batch per epoch fills no group. And a counter that never resets makes 782. Move K and B, and walk through the
# end of an epoch:

# %%
from course.widgets.arithmetic.widget import TrainingArithmetic

TrainingArithmetic()

# %% exercise 03c.counts
### BEGIN SOLUTION
batches = -(-q.n // q.b)
counts = {"last": q.n - (batches - 1) * q.b, "a": q.e * -(-batches // q.k),
          "b": q.e * (batches // q.k), "one": q.e * q.n}
### END SOLUTION

# %% [markdown]
# **Question.** Loop B never clears `.grad` except after a step. 20,000 examples, batches of 64, K = 4: which
# micro-batches does the formula's 790 count that the loop's 780 does not, what happens to their gradients,
# and which update do they disturb? Three sentences.

# %% [markdown] nbgrader={"grade": true, "grade_id": "why-780", "locked": false, "points": 2, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# 313 micro-batches per epoch are 78 groups of four and one micro-batch over, which the formula counts as
# an update of its own, once per epoch. The loop does not step for it, so its gradient stays in .grad and is
# added to the first group of the next epoch, whose update sums five. That of the last epoch is never
# used.
# ### END SOLUTION

# %% [markdown]
# ## 3c.6 Flags
#
# The usual ones (T09):
#
# | flag | default | when |
# | --- | --- | --- |
# | `batch_size` | 1 | as memory allows |
# | `shuffle` | False | training, not validation |
# | `drop_last` | False | BatchNorm and a tiny rest |
# | `num_workers` | 0 | examples are slow to make |
# | `persistent_workers` | False | epochs are short |
# | `prefetch_factor` | None, 2 with workers | bursts |
# | `pin_memory` | False | an accelerator |
# | `generator` | None | an order that a seed repeats |
#
# What does `drop_last` cost on a hundred examples in batches of 16, and what in batches of 128?

# %%
display(worked.compute("N06"))
few = Arrays(torch.randn(100, 4), torch.zeros(100))
silent = DataLoader(few, batch_size=128, drop_last=True)
print("batches:", len(silent), list(silent))
try:
    make_loader(few, 128, drop_last=True)
except ValueError as fault:
    print(fault)

# %% [markdown]
# Of batches of 16, four examples per epoch are skipped, others in each epoch if the order changes, always the
# same ones if it does not. A batch longer than the data leaves nothing, without a word; `make_loader` refuses. The
# defaults are as listed (F98). Some flags contradict each other: which mixes does torch refuse?

# %% exercise 03c.flags

# %% [markdown]
# ## 3c.7 Who comes next
#
# | sampler | draws | for |
# | --- | --- | --- |
# | sequential | 0, 1, 2, ... | validation, test |
# | random | a new permutation per epoch | training |
# | weighted | by weight, with replacement | rare classes |
# | distributed | each rank its share | several devices |
#
# (T10.) Take the digits 0 and 1 and make them 900 to 100, sorted by class, as files often are. What do
# batches of 32 hold?

# %%
labels = torch.arange(2).repeat_interleave(torch.tensor([900, 100]))
weights = class_weights(labels)


def own():
    return torch.Generator().manual_seed(3)


samplers = {"sequential": SequentialSampler(labels),
            "random": RandomSampler(labels, generator=own()),
            "weighted": WeightedRandomSampler(weights, 1000, generator=own())}
cut = {name: BatchSampler(order, 32, drop_last=False) for name, order in samplers.items()}
compositions = {name: [labels[rows].tolist() for rows in cut[name]] for name in cut}
plot_compositions(compositions, ["majority", "minority"])

# %% [markdown]
# Sequential batches hold one class, so a model forgets one while it learns the other. Random ones hold about
# three of the minority, weighted ones half. But what is drawn with replacement repeats. **Guess:** of the 900,
# how many does one weighted epoch never draw?

# %%
guess("03c.never", ...)

# %%
weighted = samplers["weighted"]
coverages = {name: count_draws(samplers[name], labels) for name in ("random", "weighted")}
reveal("03c.never", coverages["weighted"].classes[0].num_never)
display(coverages["weighted"], plot_draws(coverages))
worked.compute("N07")

# %% [markdown]
# More than half of the majority is not seen in an epoch, and each of the minority about five times. So a
# weighted sampler is for training, never for validation, and "an epoch" no longer means "each example
# once" (F87). The table has the expectation.
#
# Several processes share an epoch by ranks, numbered from 0: rank r of R takes every R-th example. The lecture's quiz
# says that their shards are disjoint (X31). **Guess:** of 10 examples on 3 ranks, how many do two ranks hold?

# %%
guess("03c.twice", ...)

# %%
from torch.utils.data import DistributedSampler

display(worked.compute("N52"))
shards = [DistributedSampler(range(7), 2, rank, seed=3) for rank in (0, 1)]
for epoch in (0, 0, 1):
    for shard in shards:
        shard.set_epoch(epoch)
    print("epoch", epoch, [list(shard) for shard in shards])

# %% [markdown]
# All ranks must make as many steps, so short shards are filled up with examples from the start: disjoint
# holds only where R divides N (F88). Below the table, torch's own sampler shares seven examples between two
# ranks, without any other process. The order depends on seed and epoch alone: without `set_epoch` every epoch
# has the same one. Now your own numbers:

# %% exercise 03c.drawn
### BEGIN SOLUTION
total = q.big + q.small
drawn = {"plain": q.b * q.small / total, "seen": q.big * (1 - (1 - 0.5 / q.big) ** total),
         "twice": -(total + 1) % q.r}
### END SOLUTION

# %% [markdown]
# ## 3c.8 Examples of unlike length
#
# Default collation stacks, and what is stacked must have one shape (F89). Sequences differ in length, so they
# are padded up to the longest of the batch, and a mask says which cells are real. **Guess:** lengths 12 and
# 47, what share of the cells is padding?

# %%
guess("03c.padding", ...)

# %%
worked.compute("N08")

# %% [markdown]
# More than a third. The longest decides, so batches of like length waste less. The lines of our
# file, as bytes, in batches of 16:

# %%
from course.data import by_length

lengths = [len(line.encode()) for line in lines]
order = torch.randperm(len(lengths), generator=own()).tolist()
alike = list(by_length(lengths, 16))
plot_padding({"drawn": [lengths[row] for row in order[:16]],
              "of like length": [lengths[row] for row in alike[len(alike) // 2]]})

# %% [markdown]
# Batches of like length are for scoring. In training they would come shortest first, in every epoch, and
# length is seldom independent of the label.
#
# The whole road on fifty sequences, five of them of a rare class: which examples come, in which batch, and
# how much of it is padding. Which order repeats examples, which pads least, and what does `drop_last`
# lose in each epoch?

# %%
from course.widgets.collate.widget import SamplingAndCollation

SamplingAndCollation()

# %% exercise 03c.collate
# `DataLoader(data, 16, collate_fn=partial(collate, pad_value=0))` would call it with the list of a
# batch's examples. Nothing of `course` may do the work; `torch` may.
def collate(examples, pad_value):
    """One batch of sequences, padded behind their ends up to the longest of them.

    Args:
        examples: A list of pairs (sequence, target): a tensor [T_i] or [T_i, ...] and a whole number.
            Of the sequences only the length T_i differs; one may be empty. All stay as they are.
        pad_value: Stands in the padded cells. Real cells may hold it as well.

    Returns:
        inputs, targets, mask, where row i is example i:
        inputs: [B, T, ...] with the longest T, in the sequences' dtype.
        targets: [B], long.
        mask: [B, T], bool, True where a cell is real.
    """
    ### BEGIN SOLUTION
    lengths = torch.tensor([len(sequence) for sequence, _ in examples])
    first, longest = examples[0][0], int(lengths.max())
    inputs = first.new_full((len(examples), longest, *first.shape[1:]), pad_value)
    for row, (sequence, _) in zip(inputs, examples, strict=True):
        row[: len(sequence)] = sequence
    mask = torch.arange(longest) < lengths[:, None]
    return inputs, torch.tensor([target for _, target in examples]), mask.to(inputs.device)
    ### END SOLUTION

# %%
def of_bytes(examples):  # your data set and your collation, in one loader
    pairs = [(torch.tensor(list(text.encode())), label) for text, label in examples]
    return collate(pairs, pad_value=0)


if ready(LineDataset, collate):
    loader = DataLoader(texts, 16, shuffle=True, generator=own(), collate_fn=of_bytes)
    inputs, targets, mask = next(iter(loader))
    print(list(inputs.shape), f"{(~mask).float().mean():.0%} of the cells are padding")
    print(bytes(inputs[0][mask[0]].tolist()).decode())

# %% [markdown]
# ## 3c.9 Wire it
#
# Two loaders, and each decision once: training is shuffled in every epoch, from a generator of its own, so
# that a seed repeats it whatever else draws. Validation comes whole and in order. And a last training batch
# of a *single* example goes, since BatchNorm cannot train on it (B30); a longer one stays.

# %% exercise 03c.loaders
# Return two `DataLoader`s without workers. The orders are yours: the check compares them with each
# other.
def make_loaders(train_set, val_set, batch_size, seed):
    """A training and a validation loader.

    Args:
        train_set, val_set: Data sets with a length, longer than a batch.
        batch_size: Of both, at least 2.
        seed: The same seed gives the same training orders, epoch by epoch, whatever else seeds or
            draws random numbers or passes over validation in between; another gives other ones.

    Returns:
        train_loader: Each example once per epoch, in an order drawn for it. A last, short batch
            stays, unless it holds one example: that one is left out, another in each epoch.
        val_loader: All examples, in order.

    Neither making them nor a pass over them draws from torch's global generator.
    """
    ### BEGIN SOLUTION
    def own():
        return torch.Generator().manual_seed(seed)

    single = len(train_set) % batch_size == 1
    train_loader = DataLoader(
        train_set, batch_size, shuffle=True, drop_last=single, generator=own())
    return train_loader, DataLoader(val_set, batch_size, generator=own())
    ### END SOLUTION

# %%
if ready(make_loaders):
    train_loader, val_loader = make_loaders(examples, digits.val_dataset, 64, seed=3)
    for epoch in (1, 2):
        rows = torch.cat([targets for _, targets in train_loader])
        print(f"epoch {epoch}: {len(rows)} examples, first labels {rows[:8].tolist()}")

# %% [markdown]
# ## 3c.10 Workers and their noise
#
# A worker is a process with a copy of the data set. If the data set holds a generator for its noise, every
# copy holds the same one. Two workers fetch four batches of noise per epoch, for two epochs.
# **Guess:** how many of these eight batches hold noise that no earlier one had?

# %%
guess("03c.noise", ...)

# %%
def different_batches(own_seed):
    noisy = NoisyInputs(torch.zeros(8, 1), own_seed=own_seed)
    loader = DataLoader(noisy, batch_size=2, num_workers=2, generator=own())
    return len({tuple(b.flatten().tolist()) for _ in range(2) for b in loader})


try:
    held, global_ones = different_batches(3), different_batches(None)
    print("held by the data set:", held, "| the workers' own:", global_ones)
    reveal("03c.noise", held)
except OSError as fault:
    print("No processes may be started here:", fault)

# %% [markdown]
# Two of eight: both workers draw the same, in every epoch (B33). Drawn from the workers' global generators,
# all eight differ: torch seeds those per worker and epoch (F94). The essay's `np.random.seed(42 + id)` brings
# the fault back (F95).
#
# Another number of workers still gives examples other noise. `make_loader` keys it by seed, epoch and index:
# it does not matter who fetches, and a run killed in epoch 2 goes on with the very batches it would have had.
# Turn each image by up to 15 degrees:

# %%
from torch.nn import functional as F

def turned(images, degrees=15.0):
    """Images [B, C, H, W], each turned by an angle of its own."""
    angles = torch.deg2rad((2 * torch.rand(len(images)) - 1) * degrees)
    cos, sin, zero = angles.cos(), angles.sin(), torch.zeros(len(images))
    turns = torch.stack([cos, -sin, zero, sin, cos, zero], dim=1).view(-1, 2, 3)
    grid = F.affine_grid(turns, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)

# %%
def turn_one(image):
    return turned(image[None])[0]


how = dict(shuffle=True, seed=3, augment=turn_one)
loader, other = make_loader(examples, 64, **how), make_loader(examples, 64, **how)
first, second = (next(iter(loader))[0] for _ in range(2))
other.batch_sampler.set_position(1)  # enters the second epoch at once
entered = next(iter(other))[0]
print("epochs differ:", not torch.equal(first, second))
print("entered, the second is the same:", torch.equal(second, entered))

# %% [markdown]
# ## 3c.11 How fast is it?
#
# A loader is timed by reading batches. The lecture's loop stops at the hundredth, and divides 100 by the
# seconds. **Guess:** how many times too fast does that call a loader of only 10 batches?

# %%
guess("03c.too-fast", ...)

# %%
import time

started, read = time.perf_counter(), 0
for _ in DataLoader(examples, batch_size=144):
    read += 1
    if read == 100:
        break
seconds = time.perf_counter() - started
print(f"printed {100 / seconds:,.0f} batches/s, really {read / seconds:,.0f}")
reveal("03c.too-fast", (100 / seconds) / (read / seconds))

# %% [markdown]
# Divide by what was read (F97). Two more things spoil such a number: the first batches start workers and open
# files, and a short batch is not a batch like any other. On a GPU the clock must also wait for the device:
# operations are only queued. `measure_loader` repeats the passes and gives their spread. Here is a loop with
# all three faults:

# %% exercise 03c.throughput
# It should return the examples per second of at most `most` batches that come after `warmup` batches,
# which are in neither count nor time; `warmup` may be 0. The loader may be a stream without a length that ends
# earlier, though never before one batch counts, and ending takes no time; it is asked for no more than
# warmup + most batches. Targets are [B] or [B, 2]. `clock()` gives seconds.
# Three bugs: one in the time, one in how many batches count, one in their sizes. Change as little as
# you can.

# %%
# batches of one are slower: each pays for its own collation
rates = [examples_per_second(DataLoader(examples, size), 2, 20, time.perf_counter)
         for size in (1, 16, 64)]
print([f"{rate:,.0f} examples/s" for rate in rates])

# %% [markdown]
# ## 3c.12 Where the time goes
#
# Turn every image in the data set, one after another, and train on it. Fashion-MNIST if it is here, digits
# otherwise. **Guess:** which stage takes longest?

# %%
pictures = load("fashion-mnist" if find_fashion_mnist() else "digits", num_examples=1500)
print(pictures)


class Turned(Dataset):
    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        image, target = self.dataset[index]
        return turn_one(image), target

# %%
torch.manual_seed(3)
model = nn.Sequential(nn.Flatten(), nn.LazyLinear(64), nn.ReLU(), nn.Linear(64, 10))
model(pictures.train_inputs[:2])
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train_step(batch):
    inputs, targets = (part.to(device) for part in batch)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()

# %%
guess("03c.slowest", ...)

# %%
def timed(dataset, step):
    return time_stages(DataLoader(dataset, 64, shuffle=True, generator=own()), step)


data = pictures.train_dataset
times = {"turned one by one": timed(Turned(data), train_step)}
times["turned as a batch"] = timed(data, lambda b: train_step((turned(b[0]), b[1])))
times["not turned"] = timed(data, train_step)
for name, stages in times.items():
    print(f"{name:18} {stages}")
reveal("03c.slowest", times["turned one by one"].slowest)
plot_stages(times)

# %% [markdown]
# The same turns for a whole batch at once, in the step, cost a fraction: each call of torch has a price of its own,
# and one by one it is paid 64 times. Turning once and keeping the result would be cheaper still, and
# would no longer be augmentation. So the first cure here is not a flag. Which symptom asks for which (T08)?

# %% [markdown]
# | symptom | first try |
# | --- | --- |
# | the device is idle between batches | `num_workers`, from 2 upward |
# | each epoch begins slowly | `persistent_workers` |
# | the copy to the device takes long | `pin_memory`, `non_blocking` |
# | the data set takes long for an example | cache, or work on whole batches |
# | the tensors are in memory already | cut batches from them, no workers (F90) |

# %%
from course.data import is_waiting

slow = DataLoader(Turned(data), 64, shuffle=True, generator=own())
# the loader alone, the step alone, both as a loop: the difference is waiting
print(is_waiting(slow, train_step, restore=[model, optimizer], num_batches=10, repeats=2))

# %% exercise 03c.cures
# Now decide for a machine with a GPU.

# %% [markdown]
# ## What to keep
#
# - A batch walks from the data set over sampler, batch sampler, workers and collation to the model.
# - A data set is two methods; check one batch against its contract before anything else.
# - Count the short last batch, and say what becomes of micro-batches that fill no group.
# - Weighted draws repeat and miss, distributed shards are filled up: count what is drawn.
# - A mask is made of lengths. A loader has its own generator, a data set has none.
# - Measure the loader alone, the step alone, and both; then change one thing.
#
# **Further reading.** Lecture 3, "Is the GPU waiting?"; [course/data/loading.py](../course/data/loading.py);
# `course claims F88` and `course claims F95` in a terminal.
#
# **Challenge, ungraded.** Feed a run from the twenty thousand lines of a file as fast as from memory. How
# many workers does that take, and how long does `time_stages` say an example takes?

# %%
scorecard("03c-data-pipeline")
