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
# # 3g · Checkpoints and reproducibility
#
# A run is killed at night and resumed in the morning. Is it still the same run? You will cut runs
# in two and compare them bit by bit, kill a process while it writes its checkpoint, see what a file
# from somebody else can do to your machine, and learn what a seed promises and what it does not.
#
# The lecture, its essay and the engineering module are the texts behind this course. A code after
# *read* above an exercise stands for an item in them: in a terminal, `course ledger T25` says which
# one, `course claims F108` tests a claim, and `course museum B39` shows a bug.
# `worked.compute("N49")` computes a worked number.
#
# *Read a question, make a guess, then run the cell below it. Every cell may be run twice. Stuck?
# `hint("03g.missing")` gives three hints.*

# %%
import copy
import io
import itertools
import os
import random
import tempfile
from pathlib import Path

# %%
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from autograde import ask, check, failing, guess, hint, ready, reveal, scorecard, student

# %%
from course import worked
from course.analysis.instants import instants, killed_while_saving
from course.analysis.resuming import PARTS, Training, distances_without, repeated
from course.debug import museum
from course.engine import Trainer, choose_device, compare, read_run, seed_everything
from course.plots.checkpoints import (plot_distances, plot_instants, plot_repeats,
                                      plot_sizes)

device = choose_device()  # a GPU where there is one: data and models go there

# %%
student("")  # your name or id, as you hand in

# %% [markdown]
# ## 3g.1 A run, cut in two
#
# Our run uses digits, dropout, Adam, a cosine schedule and a new shuffle of the images in every
# epoch. It trains for four epochs without a stop. A second run is cut after two: its weights go
# into a file, and a new process, which starts with another seed, loads them and trains the other
# two epochs. Do both runs end with the same weights?

# %%
whole = Training(seed=3)
whole.train(2)
state = whole.state()
whole.train(2)
resumed = Training(seed=4)
resumed.load({"model": state["model"]}, without=list(PARTS)[1:])
resumed.train(2)
print(f"largest difference of a weight: {resumed.distance(whole):.3f}")
print(f"accuracy {whole.accuracy():.1%} uncut, {resumed.accuracy():.1%} resumed")

# %% [markdown]
# No: it is a different run. Here it even ends better, because its learning rate jumped back to a
# value that the schedule had already left. But it is not the run you planned. The file lacks four
# things that the next update reads: Adam's averages, the position in the schedule, the generator
# that dropout draws from, and the loader's generator, which draws the order. **Guess:** if just one
# of them is left out and everything else is restored, which one makes the run end farthest away?

# %%
guess("03g.farthest", ...)

# %%
without = {f"without {PARTS[part]}": distances_without(part) for part in list(PARTS)[1:]}
without["with everything"] = distances_without()
for name, distances in without.items():
    print(f"{name:31} {distances[-1]:.4f}")
ends = {part: without[f"without {PARTS[part]}"][-1] for part in list(PARTS)[1:]}
reveal("03g.farthest", max(ends, key=ends.get))
plot_distances(without)

# %% [markdown]
# With everything restored the difference is 0 after every update: not small, but the same bits.
# Without the schedule the first update is still right, because its learning rate is in the
# optimizer's state; then the cosine starts again at the full rate. Without Adam's averages the
# first update differs most. Without a generator you get another run of the same kind.

# %% exercise 03g.missing

# %% [markdown]
# The museum shows the same bug next to the healthy run. For a few dozen steps the loss has some
# spikes. Then the two curves look alike again, and nobody looks twice. But the weights stay apart,
# so compare weights, not curves.

# %%
museum.exhibit("B27").plot()

# %% [markdown]
# ## 3g.2 The same bits
#
# You can test for "the same": make two runs, kill one of them, and call `torch.equal` on every
# tensor. One question tells you what must be in the file: what does the next update read that an
# earlier one has written?

# %% exercise 03g.equal

# %% exercise 03g.resume
# Train. After each epoch, save to `path` everything that the next epoch reads. If that file already
# exists, continue from it. Before it calls your function, each process builds its own
# model, optimizer, schedule and loader, with different random numbers. Two generators are in use:
# torch's global one on the CPU, where the check runs, and `loader.generator`, from which the loader
# draws its order. (On a GPU dropout draws from the GPU's own generator: there the file also needs
# `torch.cuda.get_rng_state_all()`.)
def train_to(model, optimizer, scheduler, loader, criterion, epochs, path):
    """Train to `epochs` epochs in total, including those of earlier, killed processes.

    Per batch: clear, forward, loss, backward, step; at the end of an epoch scheduler.step(), then
    save the file. If a process was killed inside an epoch, the next one continues after the last
    finished epoch; one killed inside the first leaves no file, and the next starts from the
    beginning. The last process ends with the same bits as one that was never killed.

    Args:
        model: In train mode; may contain dropout.
        optimizer, scheduler: Any; the scheduler counts epochs, and has a state_dict.
        loader: A DataLoader with its own generator, `loader.generator`.
        criterion: Any mean-reduced loss of logits and targets.
        epochs: Of the whole run; an existing file never holds more.
        path: A pathlib.Path. Either there is no file yet, or one that your function has written. It
            must be readable with torch.load(path, weights_only=True).

    Returns:
        A list with, for each epoch of the whole run, the mean of its batch losses, in which every
        batch counts alike: floats, or one-element tensors without a graph.
    """
    ### BEGIN SOLUTION
    losses, things = [], {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    if path.exists():
        state = torch.load(path, weights_only=True)
        for name, thing in things.items():
            thing.load_state_dict(state[name])
        losses = state["losses"]
        torch.set_rng_state(state["torch"])
        loader.generator.set_state(state["order"])
    while len(losses) < epochs:
        total = 0.0
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        losses.append(total / len(loader))
        state = {name: thing.state_dict() for name, thing in things.items()}
        random = {"torch": torch.get_rng_state(), "order": loader.generator.get_state()}
        torch.save({**state, **random, "losses": losses}, path)
    return losses
    ### END SOLUTION


# %% [markdown]
# Try your function on the digits, with three processes: one that is never interrupted, one that
# dies in its third epoch, and one that continues from the dead one's file.


# %%
def process(path, seed, dies_at=None):
    run, calls = Training(seed=seed), itertools.count(1)
    rows = TensorDataset(run.data.train_inputs, run.data.train_targets)
    loader = DataLoader(rows, 128, shuffle=True, generator=run.order)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(run.optimizer, 4)

    def criterion(logits, targets):
        if next(calls) == dies_at:
            raise InterruptedError
        return nn.functional.cross_entropy(logits, targets)

    return run, train_to(run.model, run.optimizer, schedule, loader, criterion, 4, path)


# %%
if ready(train_to):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "last.pt"
        never_killed, losses = process(path.with_name("whole.pt"), seed=3)
        try:
            process(path, seed=3, dies_at=30)
        except InterruptedError:
            resumed, losses_again = process(path, seed=4)
    print("same bits:", torch.equal(never_killed.weights(), resumed.weights()))
    print("same losses:", losses == losses_again)

# %% [markdown]
# ## 3g.3 How large is a checkpoint?
#
# Saving more than the weights takes more space. **Guess:** a model trains with Adam. How many times
# as large is a file with model and optimizer as a file with the model alone?

# %%
guess("03g.factor", ...)

# %%
def sizes(make):
    model = nn.Linear(400, 400)
    optimizer = make(model.parameters(), lr=0.1)
    model(torch.ones(1, 400)).sum().backward()
    optimizer.step()
    files = io.BytesIO(), io.BytesIO()
    torch.save(model.state_dict(), files[0])
    torch.save(optimizer.state_dict(), files[1])
    return {"weights": files[0].tell(), "optimizer": files[1].tell()}


# %%
display(worked.compute("N49"))
momentum = lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=0.9)
plot_sizes({"SGD": sizes(torch.optim.SGD), "with momentum": sizes(momentum),
            "Adam": sizes(torch.optim.Adam)})

# %% [markdown]
# "Twice the model", says the lecture's essay. For SGD with momentum, that is right for the whole
# file. With Adam, two models' sizes are only what it adds: the file is three times the model
# (F56). Schedule, counters and generators take almost no space by comparison. So keep only a
# few whole checkpoints, and for the best epoch only the weights:

# %% exercise 03g.size
### BEGIN SOLUTION
size = {"full": 12 * q.p / 1000, "folder": 28 * q.p / 1000, "peak": 40 * q.p / 1000}
### END SOLUTION

# %% [markdown]
# ## 3g.4 Whole, or not at all
#
# The checkpoint of epoch 1 is on the disk. Another process overwrites it with that of epoch 2, by
# `torch.save(state, path)`, and is killed in the middle. **Guess:** what does `torch.load(path)`
# give then?

# %%
guess("03g.after-the-kill", ...)

# %%
left = {}
for how in ("direct", "renamed"):
    with tempfile.TemporaryDirectory() as folder:
        left[how] = killed_while_saving(how, Path(folder) / "last.pt")
    print(f"{how:8}", left[how])
found = left["direct"].get("epoch", "nothing")
reveal("03g.after-the-kill", {1: "old", 2: "new"}.get(found, "nothing"))

# %% [markdown]
# Opening a file for writing empties it, so both epochs are lost: the old one at once, the new one
# by the kill. `renamed` writes next to the old file, under another name, and renames the file when
# it is finished. A rename happens at one instant or not at all, so a kill only cuts off
# `last.pt.partial`. Here is what is under the name `last.pt` at every line, for two ways of saving:


# %%
def direct(state, path):
    torch.save(state, path)


def remove_first(state, path):
    torch.save(state, path.with_name("new.pt"))
    path.unlink(missing_ok=True)
    path.with_name("new.pt").rename(path)


# %%
def watched(save):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "last.pt"
        torch.save({"epoch": torch.tensor(1)}, path)
        return instants(save, {"epoch": torch.tensor(2)}, path)


plot_instants({"torch.save(state, path)": watched(direct),
               "delete, then rename": watched(remove_first)})

# %% [markdown]
# The second way has a gap too: after `unlink` and before `rename` there is no checkpoint at all.
# `os.replace` closes this gap, because it replaces the old file by the new one in a single system
# operation. Both files must be on the same disk, so write the new one into the same folder.

# %% exercise 03g.save
# Write the new file next to the old one, in the same folder, and let a single system operation put
# it in the old one's place. A rename can reach the disk before the bytes of the file do: after a
# power cut the name is there, but its content is not. So sync the bytes first: `os.fsync` waits until
# what the system has is on the disk. `torch.save` does the writing, and passes all of it to the
# system; after a `write()` of your own, `flush()` does that.
def save(state, path):
    """Save a checkpoint; a kill at any instant leaves either the old or the new file under path.

    Afterwards torch.load(path, weights_only=True) gives the state, and the folder holds no other
    new file. If writing fails, e.g. on a full disk, the exception, an OSError or one that torch
    raises, reaches the caller, the old file is unchanged, and no part of the new one is left.

    Args:
        state: A dictionary that torch.save can write; it is saved as it is.
        path: A pathlib.Path, with or without a checkpoint. Other files in the folder stay. A killed
            earlier save may have left a partial file: overwrite it, or leave it alone.
    """
    ### BEGIN SOLUTION
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    ### END SOLUTION

# %%
if ready(save):
    ways = {"torch.save(state, path)": direct, "your save": save}
    display(plot_instants({name: watched(way) for name, way in ways.items()}))

# %% [markdown]
# ## 3g.5 What a file may do
#
# A pickle is a small program: it can name any function of any module, and loading it calls that
# function. Here is a "model" that somebody sends you. It only prints a line, but it could just as
# well have read your keys.


# %%
class Payload:
    def __reduce__(self):
        return print, ("   this line was printed by loading",)


# %%
file = io.BytesIO()
torch.save({"weights": Payload()}, file)
for safely in (False, True):
    file.seek(0)
    print(f"weights_only={safely}")
    try:
        torch.load(file, weights_only=safely)
    except Exception as error:
        print(f"   {type(error).__name__}")

# %% [markdown]
# With `weights_only=True`, torch's default since 2.6, only tensors, numbers, strings and plain
# containers are loaded; anything else is refused before it is called (F107). So put nothing else
# into a checkpoint. **Guess:** which of the following is refused?

# %%
guess("03g.refused", ...)

# %%
def loads(content):
    file = io.BytesIO()
    torch.save({"best": content}, file)
    file.seek(0)
    try:
        return bool(torch.load(file, weights_only=True))
    except Exception:
        return False


# %%
contents = {"float": 0.5, "numpy": np.float64(0.5), "list": [1, (2, 3)],
            "rng": torch.get_rng_state()}
refused = [name for name, content in contents.items() if not loads(content)]
print("refused:", refused)
reveal("03g.refused", refused[0])
for id in ("B28", "B29"):
    with_bug, without_bug = museum.exhibit(id).both
    print(f"{id} {with_bug:.0f} of {without_bug:.0f} updates: {museum.exhibit(id).title}")

# %% [markdown]
# A mean computed by NumPy looks like a float, but it is a NumPy object: save `float(best)`. The
# last two lines come from the museum and show the price of such a mistake: hours later, at the
# first resume, the file is refused (B28). And if you save a *whole model*, the file holds the name
# of its class: rename the class, and the file is lost (B29).

# %% [markdown]
# ## 3g.6 The best epoch
#
# `best = model.state_dict()` looks like a copy. **Guess:** validation was best after epoch 2, and
# training continues to epoch 4. From which epoch are the weights in `best` at the end?

# %%
guess("03g.best-is", ...)

# %%
run = Training(seed=3)
run.train(2)
best, copied = run.model.state_dict(), run.state()["model"]
run.train(2)
last = run.model.state_dict()["1.weight"]
print("by reference: equal to the last epoch's", torch.equal(best["1.weight"], last))
print("by value:     equal to the last epoch's", torch.equal(copied["1.weight"], last))
reveal("03g.best-is", 4 if torch.equal(best["1.weight"], last) else 2)
museum.exhibit("B39").plot()

# %% [markdown]
# `state_dict()` returns the tensors themselves, and every update writes into them. Saving to a file
# makes a copy; in memory you have to make one yourself. In the museum (B39) both losses are the
# same, but the "best" that was kept has changed by the end.

# %% exercise 03g.best-file
# *Symptom:* the run writes two files, and in the end both hold the last epoch. `save(name,
# checkpoint)` writes a file immediately. In `best` all four entries should be as they were at the
# end of the epoch with the best validation loss. `last`, the returned history and the model are
# already right. Losses are finite. Change as little as you can.

# %% exercise 03g.stopper
# The best epoch consists of more than its weights: there is also the loss to beat, and the number
# of epochs since it was set. If these two numbers are not in the checkpoint, the first epoch after
# a resume counts as the best ever, and patience starts again every morning. So write early stopping
# as in 3a, without the weights, but with a state that a checkpoint can hold.
class Stopper:
    """Say when `patience` epochs in a row have brought no improvement of more than min_delta.

    Args:
        patience: 1 or more.
        min_delta: An epoch improves if its loss is lower than the best by more than this.
            The best is the loss of the last epoch that improved.

    A loss of nan or inf is not an improvement; -inf does not occur. Once the answer is True, it
    stays True until a loss improves, which restarts the count.
    """

    def __init__(self, patience, min_delta):
        ### BEGIN SOLUTION
        self.patience, self.min_delta = patience, min_delta
        self.best, self.waited = float("inf"), 0
        ### END SOLUTION

    def update(self, val_loss):
        """Count one epoch, with its loss as a Python or NumPy float; True if it is time to stop."""
        ### BEGIN SOLUTION
        if val_loss < self.best - self.min_delta:
            self.best, self.waited = float(val_loss), 0
        else:
            self.waited += 1
        return self.waited >= self.patience
        ### END SOLUTION

    def state_dict(self):
        """A dictionary that weights_only=True can read and that no later update() changes."""
        ### BEGIN SOLUTION
        return {"best": self.best, "waited": self.waited}
        ### END SOLUTION

    def load_state_dict(self, state):
        """Continue from what state_dict() gave; keep this object's own patience and min_delta."""
        ### BEGIN SOLUTION
        self.best, self.waited = state["best"], state["waited"]
        ### END SOLUTION


# %%
if ready(Stopper):
    losses = [1.0, 0.9, 0.95, 0.96, 0.97]
    evening, morning = Stopper(3, 0.0), Stopper(3, 0.0)
    for loss in losses[:3]:
        evening.update(loss)
    morning.load_state_dict(evening.state_dict())
    print("stops after the fifth epoch:", [morning.update(loss) for loss in losses[3:]])

# %% [markdown]
# ## 3g.7 For use elsewhere
#
# If you give a model to somebody else, it needs no optimizer. It needs the settings it was built
# with, its weights, and something to check it by: a few inputs and the outputs that the original
# gave for them in eval mode. Put all four into one file:


# %%
def export(model, settings, inputs, path):
    with torch.no_grad():
        outputs = model.eval()(inputs)
    torch.save({"settings": settings, "model": model.state_dict(),
                "inputs": inputs, "outputs": outputs}, path)


def build(width):
    body = nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.2)
    return nn.Sequential(*body, nn.Linear(width, 10))

# %% exercise 03g.load
# Trust nothing about such a file: not that it is harmless, not that all weights are there, and not
# that the model gives the outputs stored with it.
def load_for_use(path, make_model):
    """Load the model of an exported file, ready for use and checked against the original.

    The file has `settings` (a dictionary), `model` (a state_dict), and the tensors `inputs` and
    `outputs`: what the original gave for the inputs in eval mode. The shape of `outputs` is right
    in every file. Code in the file must not run.

    Args:
        path: The path of the file.
        make_model: make_model(**settings) builds the model, with random weights.

    Returns:
        The model: every module in eval mode, and no parameter that requires a gradient.

    Raises:
        ValueError: If an output differs from the file's by more than 1e-4, or is nan.
        Exception: Of any kind, if weights are missing or too many, or the file is not safe.
    """
    ### BEGIN SOLUTION
    file = torch.load(path, weights_only=True)
    model = make_model(**file["settings"])
    model.load_state_dict(file["model"])
    model.eval().requires_grad_(False)
    apart = (model(file["inputs"]) - file["outputs"]).abs().max()
    if not apart <= 1e-4:
        raise ValueError(f"outputs are apart by {apart:.2g}")
    return model
    ### END SOLUTION


# %%
if ready(load_for_use):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.pt"
        export(whole.model, {"width": 64}, whole.data.val_inputs[:8], path)
        loaded = load_for_use(path, build)
    with torch.no_grad():
        read = loaded(whole.data.val_inputs).argmax(dim=1)
    hits = (read == whole.data.val_targets).float().mean()
    print(f"accuracy {hits:.1%}, original {whole.accuracy():.1%}")

# %% [markdown]
# The check costs only eight images, and it catches what names and shapes do not: a different
# activation, a different normalisation of the inputs, a layer in train mode.

# %% [markdown]
# ## 3g.8 What a seed promises
#
# Now make the same run twice, from the beginning. With the same seed it gives the same bits. Then
# change one thing at a time, each in a different *layer* of reproducibility: seed, data,
# configuration, code, and environment. For the environment, we let the network's last layer process
# each batch in two halves. On paper that changes nothing; the gradients are only summed in a
# different order. **Guess:** how far apart do the weights end from this alone?

# %%
guess("03g.rounding", ...)

# %%
changes = {"nothing": {}, "environment: order of sums": {"halves": True},
           "seed 4": {"seed": 4}, "data: another split": {"split": 1},
           "configuration: lr + 20 %": {"lr": 6e-3},
           "code: GELU": {"activation": nn.GELU}}
again = {name: repeated(**change) for name, change in changes.items()}
for name, (distance, gain) in again.items():
    print(f"{name:27} weights {distance:.1g}, accuracy {100 * gain:+.1f} points")
reveal("03g.rounding", again["environment: order of sums"][0])
plot_repeats({name: distance for name, (distance, _) in again.items()})

# %% [markdown]
# Differences in the last digit grow during training, to a few millionths: the bits differ, but the
# accuracy does not. Another GPU, another number of threads or another version of
# torch start in the same way, which is why nobody promises the same bits across machines. Over many
# thousand updates such differences can grow until the run is as far off as with another seed.
# Changing any other layer makes a different run at once: its accuracy differs by half a point or
# more.

# %% [markdown]
# Seeds have to be set before anything is drawn, and for every generator in use: Python's, NumPy's,
# and torch's on every device. `seed_everything` does all of these. **Guess:** we make four draws,
# from Python, NumPy, torch, and `np.random.default_rng()`. How many of them repeat under the same
# seed?

# %%
guess("03g.come-again", ...)

# %%
def draws():
    seed_everything(0)
    return [random.random(), np.random.rand(), torch.rand(()).item(),
            np.random.default_rng().random()]


print([round(number, 3) for number in draws()])
print([round(number, 3) for number in draws()])
reveal("03g.come-again", sum(a == b for a, b in zip(draws(), draws(), strict=True)))

# %% [markdown]
# A generator made without a seed asks the operating system for one (F103). And in a loader's
# workers?
#
# | generator | in a worker |
# | --- | --- |
# | torch's, NumPy's and Python's global ones | seeded by torch, differently per worker and epoch (F94) |
# | the same, with `np.random.seed(42 + id)` in `worker_init_fn` | the same in every epoch, under every seed (F95) |
# | one that the data set holds | a copy of it, the same in every worker and epoch (B33) |
# | one made per example, from seed, epoch and index | the same in any worker |

# %% exercise 03g.noise
# Write a data set whose noise depends on three numbers only. Your code must not touch global
# generators: do not seed them or draw from them, unless you restore their state.
class KeyedNoise:
    """Inputs with normal noise that is drawn when an example is fetched.

    The noise of an example depends on the seed, the epoch and its index, and on nothing else: not
    on the order in which examples are fetched, and not on workers, which have copies of the data
    set. A different seed, epoch or index gives different noise, at least for all values from 0
    to 1000. No index is negative.

    Args:
        inputs: [N, ...], floating point. They are not changed.
        seed: 0 or more.
        sd: Standard deviation of the noise. Its mean is 0, and every entry gets its own draw.
    """

    def __init__(self, inputs, seed, sd):
        ### BEGIN SOLUTION
        self.inputs, self.seed, self.sd, self.epoch = inputs, seed, sd, 0
        ### END SOLUTION

    def set_epoch(self, epoch):
        """Use the noise of this epoch from now on; before the first call, that of epoch 0."""
        ### BEGIN SOLUTION
        self.epoch = epoch
        ### END SOLUTION

    def __len__(self):
        ### BEGIN SOLUTION
        return len(self.inputs)
        ### END SOLUTION

    def __getitem__(self, index):
        """inputs[index] with its noise: a tensor of the same shape and dtype."""
        ### BEGIN SOLUTION
        clean = self.inputs[index]
        own = np.random.default_rng([self.seed, self.epoch, index])
        return clean + self.sd * torch.from_numpy(own.standard_normal(clean.shape)).to(clean)
        ### END SOLUTION

# %%
if ready(KeyedNoise):
    noisy = KeyedNoise(torch.zeros(6, 1), seed=3, sd=1.0)
    workers = [copy.deepcopy(noisy) for _ in range(2)]  # as each worker of a loader gets
    print("alone:    ", [round(noisy[i].item(), 2) for i in range(6)])
    print("2 workers:", [round(workers[i % 2][i].item(), 2) for i in range(6)])

# %% [markdown]
# On a GPU some kernels sum in whatever order their threads finish.
# `use_deterministic_algorithms(True)` asks for kernels that do not, and raises an error if there is
# none. With `torch.backends.cudnn.benchmark = True`, cuDNN also times several kernels and takes the
# fastest, which may be another one next time; torch's default is False.

# %%
torch.use_deterministic_algorithms(True)
try:
    torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))
    print("the operation has a deterministic kernel here")
except RuntimeError as error:
    print(str(error).split(". ")[0])
finally:
    torch.use_deterministic_algorithms(False)

# %% [markdown]
# Such flags promise the same bits on the *same* hardware and *same* versions, at a cost on a
# GPU (F104). On the CPU our run repeats its bits without them. There are five layers:
# environment, seed, data, configuration, code. Record all, or you cannot say which has changed.
#
# The widget trains another recipe twice. Tick all five, then untick one at a time: from which update
# on do the losses differ, and by how much? 1 apart are neighbouring float32 numbers; 2ᵏ apart, about
# the last k bits differ.

# %%
from course.widgets import FiveLayers

FiveLayers()

# %% exercise 03g.layers

# %% [markdown]
# ## 3g.9 The record of a run
#
# The engine writes a record for each run that is given a folder: `run.json` says what was run,
# `metrics.jsonl` holds the results, and the checkpoints are next to them.


# %%
def train(folder, lr, seed=3, epochs=2):
    run = Training(seed=seed)
    optimizer = torch.optim.Adam(run.model.parameters(), lr=lr)
    trainer = Trainer(run.model, nn.CrossEntropyLoss(), optimizer, seed=seed,
                      run_dir=folder, device=device)
    train_loader, val_loader = run.data.loaders(batch_size=128, seed=seed)
    return trainer, trainer.fit(train_loader, val_loader, epochs=epochs, resume="auto")


# %%
work = tempfile.TemporaryDirectory()
runs = Path(work.name)
train(runs / "first", lr=1e-3)
record = read_run(runs / "first").content
for field in ("settings", "seed", "data", "code", "hardware", "versions", "best"):
    print(f"{field:9} {str(record[field])[:66]}")

# %% [markdown]
# The record stores data and split as a hash over every example, and the code as a git commit plus a
# note (`dirty`) whether anything differed from it; outside a git repository both are None. Two records can be compared field by field. **Guess:** a
# second run has twice the learning rate and another seed, and ends better. What can the gain be
# attributed to?

# %%
guess("03g.verdict", ...)

# %%
train(runs / "second", lr=2e-3, seed=4)
difference = compare(read_run(runs / "first"), read_run(runs / "second"))
print(difference.changed)
print(difference.verdict)
reveal("03g.verdict", "neither" if len(difference.changed) > 1 else "rate")

# %% [markdown]
# Two things changed, so the difference cannot be attributed to either of them alone (3f). The
# folder also lets a run continue: `resume="auto"` starts from the last complete checkpoint. Compare
# two epochs plus two more with four at once:

# %%
trainer, history = train(runs / "first", lr=1e-3, epochs=4)
uninterrupted, _ = train(None, lr=1e-3, epochs=4)
pairs = zip(trainer.model.parameters(), uninterrupted.model.parameters(), strict=True)
print("same bits:", all(torch.equal(one, other) for one, other in pairs))
print("epochs in the history:", [line["epoch"] for line in history])
work.cleanup()

# %%
scorecard("03g-checkpoints-and-reproducibility")

# %% [markdown]
# ## What to keep
#
# - Save whatever the next update reads that an earlier one has written. Test it by comparing bits.
# - Write next to the old file, flush, sync, then `os.replace`; a kill at any instant leaves a
#   complete file.
# - Save plain values and load with `weights_only=True`: a file from somebody else must not call
#   anything.
# - The best epoch is a copy of the weights, with its loss and its count, and it survives a resume.
# - A seed promises the same draws; the same bits also need the same machine, versions and data.
# - A record needs a field for each layer, or you cannot explain a difference between two runs.
#
# **Further reading.** Lecture 3, "Five layers of reproducibility" and "Minimal experiment record";
# [course/engine/checkpoint.py](../course/engine/checkpoint.py),
# [course/engine/resume.py](../course/engine/resume.py); `course claims F108` in a terminal; torch's note
# "Reproducibility".
#
# **Challenge, ungraded.** Kill a run at a random instant, a hundred times, and resume it each time.
# Show that it ends with the same bits as a run that was never killed. What did you have to add for
# a kill inside an epoch?
