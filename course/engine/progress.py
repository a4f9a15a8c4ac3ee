"""Progress: how long a run should be, where it is, and the sums of the current epoch.

Reports of single updates are collected and read together at log points: reading them one by one
would make the loop wait for the accelerator after every update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor

from course.engine.errors import EngineError
from course.engine.nonfinite import POLICIES

ON_CHANGE = ("refuse", "accept")


class StepReport(NamedTuple):
    """The result of one update. Reading `loss` or `grad_norm` waits for the accelerator."""

    mean_loss: Tensor | float
    """Mean loss over all micro-batches; 0-d, on the device, or read already."""
    weight: float | Tensor
    """What the mean divides by: examples, unmasked targets or their class weights."""
    norm: Tensor | float | None
    """Joint L2 norm of the gradients before clipping, alike; None where it was not measured."""
    found_nonfinite: bool | Tensor
    """True: a loss or gradient was inf or nan, and the step was not taken."""
    numbers: dict[str, Tensor] | None = None
    """More losses by name, from the user's own step."""

    @property
    def loss(self) -> float:
        """Mean loss per example (unmasked target, class weight) over all micro-batches."""
        return float(self.mean_loss)

    @property
    def grad_norm(self) -> float | None:
        """Joint L2 norm of the gradients before clipping."""
        return None if self.norm is None else float(self.norm)


@dataclass(kw_only=True)
class Sums:
    """Sums over a stretch of updates."""

    loss: float = 0.0
    """Sum of loss × weight."""
    weight: float = 0.0
    """Sum of the weights."""
    norm: float = 0.0
    """Gradient norms before clipping."""
    norms: int = 0
    """How many norms were measured."""
    skipped: int = 0
    """Windows that made no update because of a non-finite value."""

    @property
    def mean_loss(self) -> float | None:
        """Mean loss per example; None where nothing was counted."""
        return self.loss / self.weight if self.weight else None

    @property
    def mean_norm(self) -> float | None:
        """Mean of the measured gradient norms."""
        return self.norm / self.norms if self.norms else None


@dataclass(kw_only=True)
class Progress:
    """All that the loop counts. Checkpoints hold it, so that a resumed run continues counting."""

    epoch: int = 1
    """The current epoch, from 1."""
    micro_batch: int = 0
    """Micro-batches of this epoch that are done."""
    update_in_epoch: int = 0
    """Updates of this epoch that are done."""
    update: int = 0
    """Updates of the whole run that are done."""
    recorded: int = 0
    """Updates that were done when the history last got an epoch."""
    micro_batches_per_epoch: int | None = None
    """Micro-batches per epoch; None before the end of the first one if the loader has no length."""
    accum_steps: int = 1
    """Micro-batches per update."""
    stopped: str | None = None
    """Why the run should end; None as long as it should continue."""
    sums: Sums = field(default_factory=Sums)
    """This epoch's sums so far."""
    since_log: Sums = field(default_factory=Sums)
    """The sums since the last log line."""
    named: dict[str, float] = field(default_factory=dict)
    """Sums of this epoch's named losses × weight."""
    pending: list[StepReport] = field(default_factory=list, repr=False)
    """Reports not yet read."""

    @classmethod
    def of(cls, micro_batches_per_epoch: int | None, accum_steps: int) -> Progress:
        """The start of a run."""
        return cls(micro_batches_per_epoch=micro_batches_per_epoch, accum_steps=accum_steps)

    @property
    def updates_per_epoch(self) -> int | None:
        """Updates that an epoch will make, including that of a trailing window."""
        batches = self.micro_batches_per_epoch
        return None if batches is None else -(-batches // self.accum_steps)

    @property
    def epoch_is_whole(self) -> bool:
        """Whether all of this epoch's micro-batches are done; False where a run ends inside it."""
        return self.micro_batch == self.micro_batches_per_epoch

    def add(self, report: StepReport, num_micro_batches: int) -> None:
        """Count one window, without waiting for the device."""
        self.micro_batch += num_micro_batches
        if report.numbers and report.found_nonfinite is not True:
            for name, value in report.numbers.items():
                self.named[name] = self.named.get(name, 0.0) + float(value) * float(report.weight)
        if report.found_nonfinite is not True:
            self.update += 1
            self.update_in_epoch += 1
        if isinstance(report.mean_loss, float):
            self._count(report.mean_loss, float(report.weight), report.norm, report.found_nonfinite)
        elif report.mean_loss.is_cpu:  # there is nothing to wait for
            norm = None if report.norm is None else report.norm.item()
            weight = float(report.weight)
            self._count(report.mean_loss.item(), weight, norm, report.found_nonfinite)
        else:
            self.pending.append(report)

    def read(self) -> int | None:
        """Read the pending reports into the sums.

        Returns:
            The number of the first update that a fused optimizer skipped by itself, if any did.
        """
        reports, self.pending = self.pending, []
        if not reports:
            return None
        losses = _numbers([report.mean_loss for report in reports])
        weights = _numbers([report.weight for report in reports])
        found = _numbers([report.found_nonfinite for report in reports])
        norms = [report.norm for report in reports if report.norm is not None]
        norms = dict(zip(map(id, norms), _numbers(norms), strict=True))
        first_skipped = None
        for index, report in enumerate(reports):
            self._count(losses[index], weights[index], norms.get(id(report.norm)), found[index])
            if found[index] and report.found_nonfinite is not True and first_skipped is None:
                first_skipped = self.update - len(reports) + index + 1
        return first_skipped

    def _count(self, loss: float, weight: float, norm: float | None, skipped: bool | float) -> None:
        """Add one window to the sums of the epoch, and to those since the last line."""
        for sums in (self.sums, self.since_log):
            if skipped:
                sums.skipped += 1
                continue
            if weight:  # else the mean may be 0/0
                sums.loss += loss * weight
            sums.weight += weight
            if norm is not None:
                sums.norm += norm
                sums.norms += 1

    def log_line(self) -> dict[str, Any] | None:
        """What was measured since the last log line; None if nothing was. Starts the next line."""
        sums, self.since_log = self.since_log, Sums()
        if not (sums.weight or sums.skipped):
            return None
        return {
            "update": self.update,
            "epoch": self.epoch,
            "train_loss": sums.mean_loss,
            "grad_norm": sums.mean_norm,
            "skipped": sums.skipped,
        }

    def next_epoch(self) -> None:
        """Clear this epoch's sums and go on to the next: nothing carries over."""
        self.epoch += 1
        self.micro_batch = self.update_in_epoch = 0
        self.sums = Sums()
        self.named = {}

    def named_means(self) -> dict[str, float]:
        """Means of this epoch's named losses, as `train_<name>`."""
        weight = self.sums.weight
        names = (name for name in self.named if name != "loss")
        return {f"train_{name}": self.named[name] / weight for name in names if weight}

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers, everything read."""
        self.read()
        return {**self.__dict__, "sums": asdict(self.sums), "since_log": asdict(self.since_log)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue counting from where `state_dict` was taken."""
        self.__dict__.update(state)
        self.sums, self.since_log = Sums(**state["sums"]), Sums(**state["since_log"])
        self.pending = []


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long a run lasts and what it does meanwhile; checked when created."""

    epochs: int | None
    """Passes over the data; None if only `max_updates` ends the run."""
    max_updates: int | None
    """Weight updates; None if only `epochs` ends the run."""
    checkpoint_every: int | None
    """Updates between two checkpoints; None for checkpoints only after each epoch."""
    log_every: int
    """Updates between two log lines."""
    on_nonfinite: str
    """`raise` or `skip`."""
    metrics: Mapping[str, Any] | None
    """More numbers for validation."""
    on_change: str = "refuse"
    """`refuse` or `accept` settings that differ from a checkpoint's."""

    def __post_init__(self) -> None:
        if self.epochs is None and self.max_updates is None:
            raise EngineError(
                "epochs and max_updates are both None, so the run would never end. Use e.g. "
                "epochs=10."
            )
        for name in ("epochs", "max_updates", "checkpoint_every", "log_every"):
            value = getattr(self, name)
            if value is None and name != "log_every":
                continue
            if not isinstance(value, Integral) or isinstance(value, bool):
                raise EngineError(f"{name} = {value!r}: expected a whole number, such as 10.")
            if value < 1:
                raise EngineError(f"{name} = {value}: expected 1 or more.")
        for name, allowed in (("on_nonfinite", POLICIES), ("on_change", ON_CHANGE)):
            if getattr(self, name) not in allowed:
                raise EngineError(
                    f"{name} = {getattr(self, name)!r}: expected {' or '.join(allowed)}."
                )
        if self.metrics is not None and not isinstance(self.metrics, Mapping):
            raise EngineError(
                f"metrics = {self.metrics!r:.60}: expected a dictionary by name, such as "
                "{'mae': nn.L1Loss()}."
            )

    def is_reached(self, progress: Progress) -> bool:
        """Whether all the requested updates are made."""
        if self.max_updates is not None and progress.update >= self.max_updates:
            return True
        return self.epochs is not None and progress.epoch > self.epochs

    def wants_norm(self, progress: Progress) -> bool:
        """Whether the next update is the first since a log line or an epoch began.

        A norm takes time, so without clipping only one per log line is measured.
        """
        return progress.update % self.log_every == 0 or progress.update_in_epoch == 0

    def wants_checkpoint(self, update: int) -> bool:
        """Whether a checkpoint is due after this update."""
        return self.checkpoint_every is not None and update % self.checkpoint_every == 0

    def num_updates(self, updates_per_epoch: int | None) -> int | None:
        """Updates of the whole run; None if the loader has no length."""
        if self.epochs is None:
            return self.max_updates
        return None if updates_per_epoch is None else self.epochs * updates_per_epoch


def _numbers(values: list[Tensor | float]) -> list[float]:
    """The values as Python numbers, after one wait for all of them."""
    if values and isinstance(values[0], Tensor):
        return torch.stack([torch.as_tensor(value) for value in values]).cpu().double().tolist()
    return [float(value) for value in values]
