"""Six bugs as switches of one small run, alone or together, and the log that each leaves.

    log = logged_run({"no-clear"})
    log.epochs[3].grad_norm
    log                     # in a notebook: the log as a table
    case_log(17)            # two bugs at once; the number says which, and the log shows it

None of the six can be found only by reading code: each shows in a column of the log, and three of
them do not change the training loss. That is why a log needs more columns than the loss. About 15 %
of the labels are wrong, as from human annotators, so an honest accuracy has a ceiling.

Source: Training-loop chapter, c5 and c9; ledger S06, T19, X45, B01, B04, B07, B15, B17, B22.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection
from dataclasses import dataclass, fields
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.data.datasets import load
from course.debug.switched import SwitchedLoop
from course.tables import code, html_table

BATCH = 24
PART = 240
"""Examples in each of training and validation: few, so that a net can memorise them."""
NOISE = 0.15
"""Share of wrong labels: about the share that no honest model predicts."""
NEAR = 0.05
"""Standard deviation of the noise that tells a leaked image from its original."""
EPOCHS = 16


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What one bug shows in the log, in our own words."""

    bug: str
    """Key of the switch."""
    exhibit: str
    """Id of its exhibit in the museum."""
    title: str
    column: str
    """The column in which it shows; empty if the run ends before the first row."""
    shows: str
    """What that column shows."""
    looks_fine: str
    """What looks healthy, and misleads."""
    fix: str


class SignatureTable(tuple):
    """Signatures, as a table in a notebook."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        heads = ("exhibit", "bug", "column", "what shows there", "what misleads", "fix")
        cells = [(s.exhibit, s.title, code(s.column), s.shows, s.looks_fine, s.fix) for s in self]
        return html_table(heads, cells)


SIGNATURES = SignatureTable(
    Signature(bug=bug, exhibit=exhibit, title=title, column=column, shows=shows, looks_fine=fine,
              fix=fix)
    for bug, exhibit, title, column, shows, fine, fix in (
        ("no-clear", "B01", "gradients never cleared", "grad_norm",
         "more than ten times the healthy norm within four epochs; the loss climbs above ln 10",
         "nothing: loss and accuracy are bad, too", "optimizer.zero_grad() per update"),
        ("train-mode", "B04", "validation in train mode", "again",
         "the same weights give a different validation loss the second time",
         "training loss and norm, which differ only because dropout draws other numbers, and a "
         "validation loss that is only a little worse",
         "model.eval() before validation, model.train() after it"),
        ("kept-graphs", "B07", "validation losses kept with their graphs", "held_kb",
         "memory grows by the same amount in every epoch",
         "every loss, norm and accuracy, to the last digit",
         "torch.no_grad(), and loss.item() for the record"),
        ("stale-head", "B17", "head replaced after the optimizer was built", "still",
         "two tensors, weight and bias of the head, never move; their gradient is never cleared, "
         "so the norm grows", "both losses fall, the accuracy is as good as that of the healthy "
                              "run",
         "build the optimizer after the last change of the model"),
        ("leak", "B22", "near copies of training images in validation", "val_accuracy",
         "accuracy above the share of correct labels; it follows the training accuracy",
         "loss and norm; validation looks better than healthy",
         "split by what belongs together, before anything is copied"),
        ("wrong-device", "B15", "batches left on another device", "",
         "no row at all: the first step raises", "nothing", "move batches to the model's device"),
    )
)  # fmt: skip
"""T19 in our words, with what was seen in `logged_run`; tests check every `shows`."""
BUGS = tuple(signature.bug for signature in SIGNATURES)
EXHIBITS = {signature.bug: int(signature.exhibit[1:]) for signature in SIGNATURES}
"""The museum's number of each bug."""
LINEUP = dict(zip("ABCDEF", ("leak", "stale-head", "no-clear", "train-mode", "wrong-device",
                             "kept-graphs"), strict=True))  # fmt: skip
"""The letter under which `lineup` shows each bug."""
PAIRS = (
    ("no-clear", "train-mode"), ("no-clear", "kept-graphs"), ("train-mode", "kept-graphs"),
    ("train-mode", "stale-head"), ("kept-graphs", "stale-head"), ("kept-graphs", "leak"),
    ("train-mode", "leak"),
)  # fmt: skip
"""Pairs of bugs whose log shows both: a run that never clears, or does not train its head, can hide
a leak."""
SEEDS = 5
"""Seeds of the cases: few, so that a test can check all of them."""


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One row of the log."""

    epoch: int
    loss: float
    """Mean training loss of the epoch's batches."""
    grad_norm: float
    """Median over the batches of the joint gradient norm that step() used."""
    still: int
    """Parameter tensors that are bit for bit the same as one epoch earlier."""
    val_loss: float
    again: float
    """The validation loss of the same weights, computed a second time."""
    val_accuracy: float
    held_kb: float
    """Memory held by kept graphs after the epoch, in kB."""


@dataclass(frozen=True, kw_only=True)
class RunLog:
    """What a run logged, and what ended it."""

    epochs: tuple[Epoch, ...]
    error: str = ""
    """Type and text of the exception that ended the run."""

    def column(self, name: str) -> list[float]:
        """One quantity over the epochs."""
        return [getattr(epoch, name) for epoch in self.epochs]

    @property
    def columns(self) -> dict[str, list[float]]:
        """All quantities by name, for a figure."""
        return {field.name: self.column(field.name) for field in fields(Epoch)}

    def rows(self, every: int = 1) -> list[tuple[str, ...]]:
        """The log's rows as text: the first, every so many, and the last."""
        last = len(self.epochs) - 1
        kept = [e for i, e in enumerate(self.epochs) if i % every == 0 or i == last]
        return [tuple(_text(f.name, getattr(e, f.name)) for f in fields(Epoch)) for e in kept]

    def __str__(self) -> str:
        heads = [f.name for f in fields(Epoch)]
        lines = ["  ".join(f"{cell:>12}" for cell in row) for row in (heads, *self.rows(3))]
        return "\n".join([*lines, self.error] if self.error else lines)

    def _repr_html_(self) -> str:
        table = html_table([f.name for f in fields(Epoch)], self.rows(3))
        return table + (html_table(["ended by"], [[self.error]]) if self.error else "")


def _text(name: str, value: float) -> str:
    if name in ("epoch", "still"):
        return str(int(value))
    if name == "val_accuracy":
        return f"{value:.1%}"
    return f"{value:.1f}" if name == "held_kb" else f"{value:.3g}"


def logged_run(bugs: Collection[str] = (), *, seed: int = 0, epochs: int = EPOCHS) -> RunLog:
    """Train on digits with some of the six bugs switched on, and log every epoch.

    Args:
        bugs: Keys of `BUGS`; none for the healthy run.
        seed: Seed of data, weights and batches; runs with one seed differ only in their bugs.
        epochs: How many.

    Raises:
        ValueError: There is no such bug.
    """
    if unknown := sorted(set(bugs) - set(BUGS)):
        raise ValueError(f"bugs = {unknown}: there are {', '.join(BUGS)}. Name some of these.")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        run = _Run(frozenset(bugs), seed)
        done: list[Epoch] = []
        try:
            for epoch in range(1, epochs + 1):
                done.append(run.epoch(epoch))
        except (RuntimeError, NotImplementedError) as fault:
            text = " ".join(str(fault).split())
            return RunLog(epochs=tuple(done), error=f"{type(fault).__name__}: {text[:120]}")
    return RunLog(epochs=tuple(done))


def lineup() -> dict[str, RunLog]:
    """One run of each bug, by letter: the logs show which is which."""
    return {letter: logged_run({bug}) for letter, bug in LINEUP.items()}


def case_bugs(case: int) -> tuple[str, str]:
    """The two bugs of a numbered case."""
    return PAIRS[case % len(PAIRS)]


def case_log(case: int) -> RunLog:
    """The log of a numbered case: two bugs at once, not named."""
    return logged_run(case_bugs(case), seed=_seed_of(case))


def healthy_log(case: int) -> RunLog:
    """The log of the same run without its bugs: the same data, batches and weights at the start."""
    return logged_run(seed=_seed_of(case))


def _seed_of(case: int) -> int:
    return case // len(PAIRS) % SEEDS


class _Run:
    """The run itself: six places to go wrong, of which the loop has three."""

    def __init__(self, bugs: frozenset[str], seed: int) -> None:
        self.bugs = bugs
        self.train, self.val = _parts(seed, leak="leak" in bugs)
        self.order = torch.Generator().manual_seed(seed)
        self.model = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 96), nn.ReLU(), nn.Dropout(0.2), nn.Linear(96, 10)
        )
        self.loop = SwitchedLoop(
            self.model,
            nn.Linear(96, 10),  # the head for this data
            partial(torch.optim.SGD, lr=0.1, momentum=0.9),
            stale="stale-head" in bugs,
            uncleared="no-clear" in bugs,
            elsewhere="wrong-device" in bugs,
        )
        self.held = HeldBytes(self.model)
        self.kept: list[Tensor] = []

    def epoch(self, number: int) -> Epoch:
        """Train over all batches, validate, and write a row."""
        before = [p.detach().clone() for p in self.model.parameters()]
        with self.held.counting():
            order = torch.randperm(PART, generator=self.order).split(BATCH)
            steps = [self._step(rows) for rows in order]
            val_loss, accuracy = self._validate()
            held = self.held.bytes
            again, _ = self._validate(keep=False)
        pairs = zip(before, self.model.parameters(), strict=True)
        return Epoch(
            epoch=number,
            loss=sum(loss for loss, _ in steps) / len(steps),
            grad_norm=float(torch.tensor([norm for _, norm in steps]).median()),
            still=sum(torch.equal(old, new) for old, new in pairs),
            val_loss=val_loss, again=again, val_accuracy=accuracy, held_kb=held / 1e3,
        )  # fmt: skip

    def _step(self, rows: Tensor) -> tuple[float, float]:
        self.model.train()
        loss, norm = self.loop.update(*(part[rows] for part in self.train))
        return loss.item(), norm

    def _validate(self, *, keep: bool = True) -> tuple[float, float]:
        inputs, targets = self.val
        self.model.train("train-mode" in self.bugs)
        with torch.set_grad_enabled("kept-graphs" in self.bugs):
            logits = self.model(inputs)
            loss = F.cross_entropy(logits, targets)
        if "kept-graphs" in self.bugs and keep:
            self.kept.append(loss)
        return loss.item(), (logits.argmax(1) == targets).float().mean().item()


class HeldBytes:
    """Counts bytes of tensors that graphs have saved and not yet released, without the weights."""

    def __init__(self, model: nn.Module) -> None:
        self.bytes = 0
        self.own = {p.data_ptr() for p in model.parameters()}

    def counting(self) -> torch.autograd.graph.saved_tensors_hooks:
        """Inside, what graphs save is counted until they release it."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, lambda box: box.tensor)

    def _pack(self, tensor: Tensor) -> _Box:
        box = _Box(tensor)
        if tensor.untyped_storage().data_ptr() not in self.own:
            self.bytes += tensor.nbytes
            weakref.finalize(box, self._release, tensor.nbytes)
        return box

    def _release(self, count: int) -> None:
        self.bytes -= count


class _Box:
    """A saved tensor in something that tells when it goes."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


Part = tuple[Tensor, Tensor]


def _parts(seed: int, *, leak: bool) -> tuple[Part, Part]:
    """Training and validation: inputs [240, 1, 8, 8] and labels, some of them wrong."""
    data, draw = load("digits"), torch.Generator().manual_seed(seed + 1)
    rows = torch.randperm(len(data.train_targets), generator=draw)[: 2 * PART]
    targets = data.train_targets[rows]
    wrong = torch.rand(2 * PART, generator=draw) < NOISE
    shift = torch.randint(1, 10, (2 * PART,), generator=draw)
    targets = torch.where(wrong, (targets + shift) % 10, targets)
    inputs = data.train_inputs[rows]
    (train, val), (train_y, val_y) = inputs.split(PART), targets.split(PART)
    if leak:
        val = train + NEAR * torch.randn(train.shape, generator=draw)
        val_y = train_y
    return (train, train_y), (val, val_y)
