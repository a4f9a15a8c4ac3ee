"""Progress: where a run is, and the sums of the epoch that is under way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


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
    updates_per_epoch: int | None = None
    """Updates that an epoch will make; None where the loader has no length."""
    skipped: int = 0
    """Windows of this epoch that made no update because something was not finite."""
    stopped: str | None = None
    """Why the run should end; None while it should go on."""
    sums: dict[str, Any] = field(default_factory=dict)
    """This epoch's sums, on the device: losses, their weights, gradient norms."""

    def add(self, name: str, value: Tensor | float) -> None:
        """Add to one of the epoch's sums, without waiting for the device."""
        self.sums[name] = self.sums.get(name, 0.0) + value

    def mean(self, name: str, count: str) -> float | None:
        """One sum over another; waits for the device."""
        total = float(self.sums.get(count, 0.0))
        return float(self.sums[name]) / total if total else None

    def next_epoch(self) -> None:
        """Forget this epoch's sums and go on to the next: nothing leaks over."""
        self.epoch += 1
        self.micro_batch = self.update_in_epoch = self.skipped = 0
        self.sums = {}
