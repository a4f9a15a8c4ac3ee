"""Progress: where a run is, and the sums of the epoch that is under way.

Reports of single updates are kept as they come and read together at log points: reading one by one
would make the loop wait for the accelerator after every update.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from course.data.loading import length_of

if TYPE_CHECKING:
    from course.engine.trainer import StepReport


@dataclass(kw_only=True)
class Sums:
    """What the updates of one stretch add up to."""

    loss: float = 0.0
    """Losses, each times what it counts."""
    weight: float = 0.0
    """What they counted."""
    norm: float = 0.0
    """Gradient norms before clipping."""
    norms: int = 0
    """How many norms were measured."""
    skipped: int = 0
    """Windows that made no update because something was not finite."""

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
    """All that the loop counts. A checkpoint holds it, so that a resumed run counts on."""

    epoch: int = 1
    """The epoch under way, from 1."""
    micro_batch: int = 0
    """Micro-batches of this epoch that are done."""
    update_in_epoch: int = 0
    """Updates of this epoch that are done."""
    update: int = 0
    """Updates of the whole run that are done."""
    recorded: int = 0
    """Updates that were done when the history last got a line."""
    micro_batches_per_epoch: int | None = None
    """Micro-batches an epoch; None before the first one ends, where the loader has no length."""
    accum_steps: int = 1
    """Micro-batches an update."""
    stopped: str | None = None
    """Why the run should end; None while it should go on."""
    sums: Sums = field(default_factory=Sums)
    """This epoch's sums so far."""
    since_log: Sums = field(default_factory=Sums)
    """The same since the last log line."""
    pending: list[StepReport] = field(default_factory=list, repr=False)
    """Reports that are not yet read."""

    @classmethod
    def of(cls, loader: Any, accum_steps: int) -> Progress:
        """The start of a run over `loader`."""
        return cls(micro_batches_per_epoch=length_of(loader), accum_steps=accum_steps)

    @property
    def updates_per_epoch(self) -> int | None:
        """Updates that an epoch will make, a trailing window's included."""
        batches = self.micro_batches_per_epoch
        return None if batches is None else -(-batches // self.accum_steps)

    def add(self, report: StepReport, num_micro_batches: int) -> None:
        """Count one window, without waiting for the device."""
        self.micro_batch += num_micro_batches
        if report.found_nonfinite is not True:
            self.update += 1
            self.update_in_epoch += 1
        if report.mean_loss.is_cpu:  # there is nothing to wait for
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
            sums.loss += loss * weight
            sums.weight += weight
            if norm is not None:
                sums.norm += norm
                sums.norms += 1

    def log_line(self) -> dict[str, Any] | None:
        """What was measured since the last line, which it starts anew; None where nothing was."""
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
        """Forget this epoch's sums and go on to the next: nothing leaks over."""
        self.epoch += 1
        self.micro_batch = self.update_in_epoch = 0
        self.sums = Sums()

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers, everything read."""
        self.read()
        return {**self.__dict__, "sums": asdict(self.sums), "since_log": asdict(self.since_log)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Count on from where `state_dict` was taken."""
        self.__dict__.update(state)
        self.sums, self.since_log = Sums(**state["sums"]), Sums(**state["since_log"])
        self.pending = []


def _numbers(values: list[Tensor | float]) -> list[float]:
    """The values as Python numbers, after one wait for all of them."""
    if values and isinstance(values[0], Tensor):
        return torch.stack([torch.as_tensor(value) for value in values]).double().tolist()
    return [float(value) for value in values]
