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
# A training loop is only as good as the batches that reach it. You will follow a batch from a file to the
# model: how its examples are read, ordered, cut into batches, padded and delivered in time. On the way,
# loaders will repeat examples, skip others and draw the same noise in every epoch, without ever raising
# an error.
#
# The lecture, its essay and the engineering module are the texts behind this course. A code such as T12 or
# F87 names an item in them: in a terminal, `course ledger T12` says which one, `course claims F87` tests a
# claim, and `course museum B30` shows a bug.
#
# *Read a question, make a guess, then run the cell below it. You can run any cell again.*

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

device = choose_device()  # a GPU if there is one; data and models go there

# %%
student("")  # your name or id, as you hand in

# %% [markdown]
# ## 3c.1 The path of a batch
#
# A batch passes through six stages (T11). Most are set by an argument of the `DataLoader`:
#
# | stage | what it does | you choose it by |
# | --- | --- | --- |
# | data set | returns the example at an index | `dataset[i]` |
# | sampler | decides which indices are drawn, and in which order | `shuffle`, `sampler` |
# | batch sampler | splits that order into batches | `batch_size`, `drop_last` |
# | workers | fetch the examples of a batch | `num_workers` |
# | collation | combines the examples into a batch | `collate_fn` |
# | model | takes the batch | your loop |

# %% [markdown]
# Go through these stages once by hand, with the digits of chapter 3a. Do you get the same batch as from a
# loader? Each section below changes one of these stages.

# %%
from torch.utils.data import BatchSampler, SequentialSampler, default_collate

digits = load("digits")
examples = digits.train_dataset
rows = next(iter(BatchSampler(SequentialSampler(examples), 64, drop_last=False)))
inputs, targets = default_collate([examples[row] for row in rows])
theirs = next(iter(DataLoader(examples, batch_size=64)))
print(list(inputs.shape), "same as the loader's:", torch.equal(inputs, theirs[0]))

# %% [markdown]
# ## 3c.2 A data set over arrays
#
# A data set needs two methods: one returns the number of examples, the other the example at a given
# position. A good data set also rejects at once what would only fail an hour later: lists of different
# lengths, or labels of the wrong dtype.

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
# The model and the loss expect batches in an agreed form, their contract (T04): inputs in float32, with a
# batch dimension and roughly centred, and one class index per example, in long. `check_batch` tests this;
# give it the range you expect, since without one it reports only values as large as those of raw bytes.
# Take the digits as scikit-learn stores them, with pixels from 0 to 16, and labels as floats. A float64
# model would train on them without complaint, but badly. Which breaches are reported?

# %%
from sklearn.datasets import load_digits

from course.data import check_batch

raw = load_digits()
pixels, wanted = torch.tensor(raw.images[:64]), dict(num_classes=10, value_range=(-3, 3))
display(check_batch((pixels, torch.tensor(raw.target[:64]).float()), **wanted))
arrays = Arrays(digits.train_inputs, digits.train_targets)
check_batch(next(iter(DataLoader(arrays, 64))), **wanted)

# %% [markdown]
# ## 3c.3 A folder of image files
#
# Real images usually come as files, in one folder per class. To have some, write twenty digits as PNG
# files.

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
# The label comes from the folder's place in the sorted list: digit 3 has the index 3 only because all ten
# folders exist. Without a folder of threes, the index of every later class would drop by one. So save
# `classes` with the model.
#
# A single bad file among thousands can end a run after hours. Cut one in half, and let a scan find it
# before training:

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
# Text often comes as one large file, with one example per line. If it does not fit into memory, store
# only where each line begins, and read a line when it is needed. Our file holds the lines of the
# course's own ledger, repeated a hundred times; each is labelled with the list it comes from.

# %%
from course.ledger import rows as ledger_rows

lines = [f"{row.id[0]}\t{row.line}\n" for row in ledger_rows().values()]
text_path = folder / "lines.txt"
text_path.write_text("".join(100 * lines), encoding="utf-8", newline="")
size = text_path.stat().st_size
print(f"{100 * len(lines):,} lines, {size / 1e6:.1f} MB, e.g. {lines[0][:40]!r}")

# %% exercise 03c.lines
# `seek()` jumps to a position in the file, counted in bytes: a letter such as ü is one character but two
# bytes. Later each worker gets a copy of the data set, and an open file cannot be pickled for it.
#
# A line is a label, a tab and the text, in UTF-8: "3\tA text.\n". The text may contain further tabs;
# blanks at its ends belong to it, and so does "\r", since only "\n" ends a line. The last line may lack
# its "\n".
class LineDataset(Dataset):
    """The lines of a text file, each read when it is asked for.

    __init__ finds once where each line begins. A line is then read from its place in the file each
    time it is asked for: neither lines nor an open file are kept.

    Args:
        path: The path of a file with at least one line.

    `len(dataset)` is the number of lines. `dataset[i]`, with i from 0 to len - 1, is a pair (text,
    label): the text without the line's newline, and the label as an int.
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
# Now your data set can read all these lines, in any order. (The ledger's labels are letters, so the code
# numbers them first.) Only one number per line stays in memory. A Python list takes 8 bytes for each,
# plus 28 or 32 for the number itself; an `array`, as in [course/data/lines.py](../course/data/lines.py),
# takes only the 8.

# %%
from course.data import LineFile

kinds, numbered_path = sorted({line[0] for line in lines}), folder / "numbered.txt"
numbered = [f"{kinds.index(line[0])}{line[1:]}" for line in lines]
numbered_path.write_text("".join(100 * numbered), encoding="utf-8", newline="")
if ready(LineDataset):
    texts = LineDataset(numbered_path)
    print(len(texts), "lines; the last one:", texts[len(texts) - 1])

size, places = numbered_path.stat().st_size, LineFile(numbered_path).index_bytes
print(f"the file {size / 1e6:.1f} MB, in memory {places / 1e6:.2f} MB")

# %% [markdown]
# ## 3c.5 An epoch, counted
#
# The vocabulary (T12, T13): N examples, a batch size B, and K batches per update. An *iteration* is one
# batch, an *epoch* is one pass over all examples, and K·B is the *effective batch size*.
#
# | name | batch | updates per epoch |
# | --- | --- | --- |
# | full batch | all N | 1 |
# | mini-batch | B of them | N / B, rounded up |
# | stochastic | one | N |
#
# In everyday use, "batch" and "SGD" refer to mini-batches. **Guess:** how many iterations make an epoch
# of 50,000 examples in batches of 256?

# %%
guess("03c.iterations", ...)

# %%
worked.compute("N04")

# %% [markdown]
# The short last batch counts as a batch, unless `drop_last` leaves it out. It is the first thing to check
# when a count is off by one. **Guess:** take 20,000 examples in batches of 64, with K = 4, for ten
# epochs; the last group of each epoch makes an update even if it is incomplete. How many updates are
# there?

# %%
guess("03c.updates", ...)

# %%
worked.compute("N05")

# %% [markdown]
# The lecture's quiz expects 790, which the formula gives. But a loop that steps only when `(i + 1) % K ==
# 0` makes 780, because in each epoch one micro-batch is left over. With a counter that is never reset, it
# makes 782. Change K and B, and step through the end of an epoch:

# %%
from course.widgets.arithmetic.widget import TrainingArithmetic

TrainingArithmetic()

# %% exercise 03c.counts
### BEGIN SOLUTION
batches = -(-q.n // q.b)
counts = {"all": batches, "last": q.n - (batches - 1) * q.b, "a": q.e * -(-batches // q.k),
          "b": q.e * (batches // q.k), "one": q.e * q.n}
### END SOLUTION

# %% [markdown]
# **Question why-780 · ten updates fewer**  
# ●●○ · 5 min · 2 points, read by a person
#
# Loop B clears `.grad` only after a step. Take 20,000 examples, batches of 64 and K = 4.
# Which micro-batches make up the ten updates by which the formula's 790 exceeds the loop's 780? What
# happens to their gradients, and which update do they disturb? Answer in three sentences.

# %% [markdown] nbgrader={"grade": true, "grade_id": "why-780", "locked": false, "points": 2, "schema_version": 3, "solution": true, "task": false}
# ### BEGIN SOLUTION
# 313 micro-batches per epoch make 78 groups of four and leave one micro-batch over, which the formula
# counts as a separate update, once per epoch. The loop does not step for it, so its gradient stays in
# .grad and is added to the first group of the next epoch, whose update then sums five gradients. The one
# left over from the last epoch is never used.
# ### END SOLUTION

# %% [markdown]
# ## 3c.6 Flags
#
# The most common flags of a `DataLoader` (T09):
#
# | flag | default | when |
# | --- | --- | --- |
# | `batch_size` | 1 | as memory allows |
# | `shuffle` | False | training, not validation |
# | `drop_last` | False | BatchNorm and a tiny rest |
# | `num_workers` | 0 | examples are slow to make |
# | `persistent_workers` | False | epochs are short |
# | `prefetch_factor` | None, 2 with workers | batches take unequal time |
# | `pin_memory` | False | a GPU copies faster from locked pages |
# | `generator` | None | an order that a seed repeats |
#
# What does `drop_last` cost with a hundred examples in batches of 16? And in batches of 128?

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
# In batches of 16, four examples are skipped per epoch: different ones each time if the order changes,
# always the same if it does not. A batch size larger than the data set leaves no batch at all, without
# any warning; `make_loader` raises an error instead. The defaults are as listed (F98). Some flags
# contradict each other: which combinations does torch refuse?

# %% exercise 03c.flags

# %% [markdown]
# ## 3c.7 Which example comes next?
#
# | sampler | draws | for |
# | --- | --- | --- |
# | sequential | 0, 1, 2, ... | validation, test |
# | random | a new permutation per epoch | training |
# | weighted | by weight, with replacement | rare classes |
# | distributed | one share per rank | several devices |
#
# (T10.) Take 900 examples of class 0 and 100 of class 1, sorted by class, as files often are. What do
# batches of 32 contain?

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
# Sequential batches contain a single class, so a model forgets one class while it learns the other.
# Random batches hold about three minority examples; in weighted ones half the examples are from the
# minority. But drawing with replacement repeats examples. **Guess:** how many of the 900 are never drawn
# in one weighted epoch?

# %%
guess("03c.never", ...)

# %%
weighted = samplers["weighted"]
coverages = {name: count_draws(samplers[name], labels) for name in ("random", "weighted")}
reveal("03c.never", coverages["weighted"].classes[0].num_never)
display(coverages["weighted"], plot_draws(coverages))
worked.compute("N07")

# %% [markdown]
# More than half of the majority is not seen in the epoch, while each minority example is seen about five
# times. So use a weighted sampler for training, never for validation; "an epoch" no longer means "each
# example once" (F87). The table shows the expectation.
#
# Several processes share an epoch by rank, numbered from 0: rank r of R takes every R-th example. The
# lecture's quiz calls these shards disjoint (X31). **Guess:** of 10 examples on 3 ranks, how many are
# held by two ranks?

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
# All ranks must make the same number of steps, so short shards are filled up with examples from the
# start. The shards are disjoint only if R divides N (F88). Below the table, torch's own sampler divides
# seven examples between two ranks (this needs no second process). The order depends only on the seed and
# the epoch, so without `set_epoch` every epoch has the same order. Now use your own numbers:

# %% exercise 03c.drawn
### BEGIN SOLUTION
total = q.big + q.small
drawn = {"plain": q.b * q.small / total, "seen": q.big * (1 - (1 - 0.5 / q.big) ** total),
         "twice": -(total + 1) % q.r}
### END SOLUTION

# %% [markdown]
# ## 3c.8 Examples of different lengths
#
# Default collation stacks the examples, so they must all have the same shape (F89). Sequences differ in
# length; therefore they are padded to the longest in the batch, and a mask says which cells are real.
# **Guess:** with lengths 12 and 47, what percentage of the cells is padding?

# %%
guess("03c.padding", ...)

# %%
worked.compute("N08")

# %% [markdown]
# More than a third is padding. The longest sequence sets the length, so batches of similar lengths waste
# less. Here are the lines of our file, as bytes, in batches of 16:

# %%
from course.data import by_length

lengths = [len(line.encode()) for line in lines]
order = torch.randperm(len(lengths), generator=own()).tolist()
alike = list(by_length(lengths, 16))
plot_padding({"random order": [lengths[row] for row in order[:16]],
              "similar lengths": [lengths[row] for row in alike[len(alike) // 2]]})

# %% [markdown]
# As cut here, batches come shortest first: fine for evaluation. For training, shuffle the batches or
# sort within random chunks, since length is rarely independent of the label.
#
# Follow the whole pipeline with fifty sequences, five of them from a rare class: which examples are
# drawn, into which batch, and with how much padding. Which order repeats examples, which needs the least
# padding, and what does `drop_last` lose in each epoch?

# %%
from course.widgets.collate.widget import SamplingAndCollation

SamplingAndCollation()

# %% exercise 03c.collate
# `DataLoader(data, 16, collate_fn=partial(collate, pad_value=0))` would call your function with a list of
# the batch's examples. You may use `torch`, but nothing from `course` may do the work.
def collate(examples, pad_value):
    """One batch of sequences, each padded after its end to the length of the longest.

    Args:
        examples: A list of pairs (sequence, target): a tensor [T_i] or [T_i, ...] and a whole number.
            The sequences differ only in their length T_i; one may be empty. Nothing is changed.
        pad_value: Fills the padded cells. Real cells may hold it, too.

    Returns:
        inputs, targets, mask, where row i is example i:
        inputs: [B, T, ...], where T is the largest T_i, in the sequences' dtype.
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
def of_bytes(examples):  # your data set and your collation in one loader
    pairs = [(torch.tensor(list(text.encode())), label) for text, label in examples]
    return collate(pairs, pad_value=0)


if ready(LineDataset, collate):
    loader = DataLoader(texts, 16, shuffle=True, generator=own(), collate_fn=of_bytes)
    inputs, targets, mask = next(iter(loader))
    print(list(inputs.shape), f"{(~mask).float().mean():.0%} of the cells are padding")
    print(bytes(inputs[0][mask[0]].tolist()).decode())

# %% [markdown]
# ## 3c.9 Put the loaders together
#
# Now build the two loaders, and make each decision on purpose. Training is shuffled in every epoch by
# its own generator, so that the seed repeats the order, whatever else draws random numbers. Validation
# is complete and in order. A `DataLoader` without a `generator` takes a seed from torch's global
# generator in every pass, even unshuffled and without workers. A last training batch of a *single*
# example is dropped, since BatchNorm cannot train on it (B30); a larger one is kept.

# %% exercise 03c.loaders
# Return two `DataLoader`s without workers, made with nothing from `course`. There is no prescribed order:
# the check only compares your orders with each other.
def make_loaders(train_set, val_set, batch_size, seed):
    """A training and a validation loader.

    Args:
        train_set, val_set: Data sets with a length, which is greater than batch_size.
        batch_size: Of both loaders, at least 2.
        seed: The same seed gives the same training orders, epoch by epoch, even if other code seeds
            or draws random numbers or passes over validation in between. Another seed gives others.

    Returns:
        train_loader: Each example once per epoch, in a new order. A short last batch stays, unless
            it holds a single example, which is then left out: not always the same one.
        val_loader: All examples, in order.

    Neither making the loaders nor a pass over them draws from torch's global generator.
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
# A worker is a process with its own copy of the data set. If the data set holds a generator for its
# noise, every copy starts with the same generator. Two workers fetch four batches of noise per epoch, for
# two epochs. **Guess:** how many of these eight batches contain noise that no earlier batch had?

# %%
guess("03c.noise", ...)

# %%
def different_batches(own_seed):
    noisy = NoisyInputs(torch.zeros(8, 1), own_seed=own_seed)
    loader = DataLoader(noisy, batch_size=2, num_workers=2, generator=own())
    return len({tuple(b.flatten().tolist()) for _ in range(2) for b in loader})


try:
    held, global_ones = different_batches(3), different_batches(None)
    print("held by the data set:", held, "| global to the worker:", global_ones)
    reveal("03c.noise", held)
except OSError as fault:
    print("Worker processes cannot be started here:", fault)

# %% [markdown]
# Only two: both workers draw the same noise, in every epoch (B33). With the workers' global generators
# all eight differ: torch seeds them per worker and epoch (F94). The essay's `np.random.seed(42 + id)`
# brings the bug back (F95).
#
# But even so, another number of workers changes the noise. `make_loader` derives it from seed, epoch and
# index: it does not matter who fetches, and a run killed in epoch 2 continues with exactly the batches it
# would have had. Rotate each image by up to 15 degrees:

# %%
from torch.nn import functional as F

def rotated(images, degrees=15.0):
    """Images [B, C, H, W], each rotated by its own random angle."""
    angles = torch.deg2rad((2 * torch.rand(len(images)) - 1) * degrees)
    cos, sin, zero = angles.cos(), angles.sin(), torch.zeros(len(images))
    rotations = torch.stack([cos, -sin, zero, sin, cos, zero], dim=1).view(-1, 2, 3)
    grid = F.affine_grid(rotations, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)

# %%
def rotate_one(image):
    return rotated(image[None])[0]


how = dict(shuffle=True, seed=3, augment=rotate_one)
loader, other = make_loader(examples, 64, **how), make_loader(examples, 64, **how)
first, second = (next(iter(loader))[0] for _ in range(2))
other.batch_sampler.set_position(1)  # jumps straight to the second epoch
entered = next(iter(other))[0]
print("epochs differ:", not torch.equal(first, second))
print("second epoch, entered directly, is the same:", torch.equal(second, entered))

# %% [markdown]
# ## 3c.11 How fast is it?
#
# To time a loader, read batches from it. The lecture's loop stops at the hundredth batch, and divides 100
# by the seconds. **Guess:** for a loader of only 10 batches, by what factor is the result too fast?

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
print(f"printed {100 / seconds:,.0f} batches/s, actually {read / seconds:,.0f}")
reveal("03c.too-fast", (100 / seconds) / (read / seconds))

# %% [markdown]
# Divide by the number of batches that were actually read (F97). Two more things distort such a number:
# the first batches include starting workers and opening files, and a short batch is not a full batch. On
# a GPU, the clock must also wait for the device, because operations are only queued. `measure_loader`
# repeats the passes and reports their spread. Here is a loop with all three faults:

# %% exercise 03c.throughput
# The function should return the examples per second over at most `most` batches. These come after
# `warmup` batches, which count neither as examples nor as time; `warmup` may be 0. The loader may be a
# stream without a length. It may end before `most` batches, but at least one that counts always comes;
# you may assume that noticing its end takes no time. Read no more than warmup + most batches from it.
# Targets are [B] or [B, 2]. `clock()` returns seconds. There are three bugs: one in the time, one in the
# number of batches that count, one in their sizes. Change as little as you can.

# %%
# each batch pays for its own collation; so few batches vary, so run it twice
rates = [examples_per_second(DataLoader(examples, size), 2, 20, time.perf_counter)
         for size in (1, 16, 64)]
print([f"{rate:,.0f} examples/s" for rate in rates])

# %% [markdown]
# ## 3c.12 Where the time goes
#
# Rotate every image inside the data set, one at a time, and train on the result. The images are
# Fashion-MNIST if it is installed, digits otherwise. **Guess:** which stage takes longest?

# %%
pictures = load("fashion-mnist" if find_fashion_mnist() else "digits", num_examples=1500)
print(pictures)


class Rotated(Dataset):
    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        image, target = self.dataset[index]
        return rotate_one(image), target

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
times = {"rotated one by one": timed(Rotated(data), train_step)}
times["rotated as a batch"] = timed(data, lambda b: train_step((rotated(b[0]), b[1])))
times["not rotated"] = timed(data, train_step)
for name, stages in times.items():
    print(f"{name:18} {stages}")
reveal("03c.slowest", times["rotated one by one"].slowest)
plot_stages(times)

# %% [markdown]
# Rotating a whole batch at once, in the step, takes a fraction of the time: each call to torch has a
# fixed cost, and one image at a time pays it 64 times. Rotating once and keeping the result would be
# cheaper still, but it would no longer be augmentation. So here the first cure is not a flag. Which
# symptom calls for which cure (T08)?

# %% [markdown]
# | symptom | first try |
# | --- | --- |
# | the device is idle between batches | `num_workers`, from 2 upwards |
# | each epoch begins slowly | `persistent_workers` |
# | the copy to the device takes long | `pin_memory`; `non_blocking`, a copy during other work |
# | the data set takes long per example | cache, or work on whole batches |
# | the tensors are already in memory | slice batches from them, no workers (F90) |

# %%
from course.data import is_waiting

slow = DataLoader(Rotated(data), 64, shuffle=True, generator=own())
# the loader alone, the step alone, then both in a loop: the difference is waiting
print(is_waiting(slow, train_step, restore=[model, optimizer], num_batches=10, repeats=2))

# %% exercise 03c.cures
# Now make the decision for a machine with a GPU.

# %% [markdown]
# ## What to keep
#
# - A batch comes from the data set, by way of sampler, batch sampler, workers and collation, to the
#   model.
# - A data set needs two methods; check one batch against its contract before anything else.
# - Count the short last batch, and decide what happens to micro-batches that do not fill a group.
# - Weighted draws repeat and miss examples, and distributed shards are filled up: count what is drawn.
# - Compute masks from lengths. Give the loader its own generator, and the data set none.
# - Measure the loader alone, the step alone, and both together; then change one thing.
#
# **Further reading.** Lecture 3, "Is the GPU waiting?"; [course/data/loading.py](../course/data/loading.py);
# `course claims F88` and `course claims F95` in a terminal.
#
# **Challenge, ungraded.** Feed a run from a file of twenty thousand lines as fast as from memory. How
# many workers does that take, and how long does one example take according to `time_stages`?

# %%
scorecard("03c-data-pipeline")
