"""Early stopping: end the run when the monitored number has not improved for `patience` epochs.

    epoch       0    1    2    3    4    5
    val_loss    1   .9   .8  .81  .82  .83      patience 3: the third without improvement is epoch 5

Source: Lecture 3, "Training and validation curves"; the training-loop chapter, "Early stopping";
ledger C11, C13, N53, F111, K29, B39.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from course.engine.callbacks import Callback
from course.engine.errors import EngineError
from course.engine.improvement import better, check_mode, direction, listed

if TYPE_CHECKING:
    from course.engine.trainer import Trainer


class EarlyStopping(Callback):
    """Stop after `patience` epochs in a row without improvement.

    Args:
        patience: Epochs to wait for an improvement; 0 stops at the first epoch without one.
        min_delta: An improvement is more than this.
        monitor: A number of the history; the trainer's monitored one by default.
        mode: `"min"` where lower is better; the trainer's by default.

    nan is not an improvement, and an epoch in which a run ends does not count. The state goes into
    checkpoints, so a resumed run continues counting.
    """

    compared_settings = ("patience", "min_delta", "monitor", "mode")

    def __init__(
        self,
        patience: int = 5,
        *,
        min_delta: float = 0.0,
        monitor: str | None = None,
        mode: str | None = None,
    ) -> None:
        if not all(_is_number(n) and n >= 0 for n in (patience, min_delta)):
            raise EngineError(
                f"patience = {patience!r}, min_delta = {min_delta!r}: expected numbers from 0 up."
            )
        if mode is not None:
            check_mode(mode)
        self.patience, self.min_delta = patience, min_delta
        self.monitor, self.mode = monitor, mode
        self.best: float | None = None
        self.best_epoch: int | None = None
        self.waited = 0

    def reset(self) -> None:
        """Forget an earlier run."""
        self.best = self.best_epoch = None
        self.waited = 0

    def check(self, trainer: Trainer, names: Sequence[str]) -> None:
        """Check that the monitored number is one that an epoch has."""
        name = self.monitor or trainer.history.monitor
        if name not in names:
            raise EngineError(f"EarlyStopping: no {name!r} in the history; it has {listed(names)}.")
        self._mode(trainer)

    def update(self, value: float, *, epoch: int = 0, mode: str = "min") -> bool:
        """Count one epoch's number; True when it is time to stop."""
        if better(value, self.best, mode=mode, min_delta=self.min_delta):
            self.best, self.best_epoch, self.waited = value, epoch, 0
            return False
        self.waited += 1
        return self.waited >= max(self.patience, 1)

    def on_epoch_end(self, trainer: Trainer) -> None:
        if not trainer.progress.epoch_is_whole:
            return
        history, line = trainer.history, trainer.history[-1]
        name = self.monitor or history.monitor
        if self.update(line[name], epoch=line["epoch"], mode=self._mode(trainer)):
            best = "never finite" if self.best is None else f"best {self.best:.4g}"
            trainer.stop(
                f"{name} has not improved for {self.waited} epochs ({best}, "
                f"epoch {self.best_epoch})"
            )

    def _mode(self, trainer: Trainer) -> str:
        if self.mode is not None or self.monitor is None:
            return self.mode or trainer.history.mode
        return direction(self.monitor)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "best_epoch": self.best_epoch, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best, self.best_epoch = state["best"], state["best_epoch"]
        self.waited = state["waited"]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class KeepBest(Callback):
    """Keep the best epoch's weights in memory; `restore` loads them into the model again.

    They are copies: a state_dict itself aliases the weights, which keep training (B39).
    """

    def __init__(self) -> None:
        self.weights: dict[str, Tensor] | None = None

    def reset(self) -> None:
        """Forget an earlier run."""
        self.weights = None

    def rehearse(self, trainer: Trainer) -> None:
        """Check before the first update that the model's state can be copied."""
        try:
            copy.deepcopy(trainer.model.state_dict())
        except Exception as error:
            raise EngineError(
                "KeepBest copies the model's state_dict, but what is in it cannot be copied "
                f"({type(error).__name__}: {error}). Let get_extra_state return plain values."
            ) from error

    def on_epoch_end(self, trainer: Trainer) -> None:
        if trainer.history.best_is_last:
            self.weights = copy.deepcopy(trainer.judged_model.state_dict())

    def restore(self, trainer: Trainer) -> None:
        """Load the best epoch's weights into the trainer's model."""
        if self.weights is None:
            raise LookupError(f"no epoch had a finite {trainer.history.monitor}: nothing was kept.")
        trainer.model.load_state_dict(self.weights)

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights = state["weights"]
