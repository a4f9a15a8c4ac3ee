"""Callbacks: seven moments of a run at which something may be added without touching the loop."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course.engine.trainer import Trainer


class Callback:
    """Does nothing at seven moments; override those you need.

    Each hook gets the trainer, whose `progress` says where the run is and whose `stop(reason)` ends
    it after the current update.
    """

    def on_fit_start(self, trainer: Trainer) -> None:
        """Before the first update; everything was checked."""

    def on_epoch_start(self, trainer: Trainer) -> None:
        """Before the first window of an epoch."""

    def on_update_end(self, trainer: Trainer) -> None:
        """After each weight update. The hot path: read no tensor here."""

    def on_epoch_end(self, trainer: Trainer) -> None:
        """After validation; `trainer.history[-1]` is this epoch."""

    def on_fit_end(self, trainer: Trainer) -> None:
        """After the last update, also where the run failed."""


class ProgressBar(Callback):
    """A tqdm bar over the updates of each epoch, in a terminal or a notebook."""

    def __init__(self) -> None:
        self.bar = None

    def on_epoch_start(self, trainer: Trainer) -> None:
        from tqdm.auto import tqdm

        self.bar = tqdm(
            total=trainer.progress.updates_per_epoch,
            initial=trainer.progress.update_in_epoch,
            desc=f"epoch {trainer.progress.epoch}",
            unit="update",
            leave=False,
        )

    def on_update_end(self, trainer: Trainer) -> None:
        self.bar.update()

    def on_epoch_end(self, trainer: Trainer) -> None:
        self.bar.close()

    def on_fit_end(self, trainer: Trainer) -> None:
        if self.bar is not None:
            self.bar.close()


def somebody_is_watching() -> bool:
    """Whether standard error is a terminal, or this is a notebook."""
    if sys.stderr.isatty():
        return True
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == "ZMQInteractiveShell"
