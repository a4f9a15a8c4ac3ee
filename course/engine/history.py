"""History: what was measured in every epoch, and which epoch was best."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from course.engine.errors import EngineError
from course.engine.improvement import better, check_mode
from course.tables import html_table


@dataclass
class History:
    """One dictionary per epoch: epoch, train_loss, val_loss, val_accuracy, lr, grad_norm ..."""

    monitor: str = "val_loss"
    """The number that says which epoch is best."""
    mode: str = "min"
    """`min` if lower is better, `max` if higher is."""
    epochs: list[dict[str, Any]] = field(default_factory=list)
    """From the first epoch to the last."""
    best_index: int | None = None
    """The best epoch: the first of equals, never one whose monitored number is nan."""

    def __post_init__(self) -> None:
        check_mode(self.mode)

    def add(self, epoch: dict[str, Any]) -> bool:
        """Append the numbers of one epoch; the same moment measured again takes its line's place.

        That happens where a run ended with the last batch of a loader without a length.

        Returns:
            Whether it took a line's place.
        """
        if self.monitor not in epoch:
            raise EngineError(
                f"monitor = {self.monitor!r}: no such number; an epoch has {', '.join(epoch)}."
            )
        if self.epochs and "updates" in epoch and _moment(self.epochs[-1]) == _moment(epoch):
            self.epochs[-1] = epoch  # the same weights: the best or not, as before
            return True
        best = None if self.best_index is None else self.epochs[self.best_index][self.monitor]
        self.epochs.append(epoch)
        if better(epoch[self.monitor], best, mode=self.mode):
            self.best_index = len(self.epochs) - 1
        return False

    @property
    def best(self) -> dict[str, Any]:
        """The best epoch's numbers."""
        if self.best_index is None:
            raise LookupError(
                f"no epoch has a finite {self.monitor}: "
                + ("nothing was trained yet." if not self.epochs else "look at `.epochs`.")
            )
        return self.epochs[self.best_index]

    @property
    def best_is_last(self) -> bool:
        """Whether the last epoch is the best."""
        return self.best_index is not None and self.best_index == len(self.epochs) - 1

    def column(self, name: str) -> list[Any]:
        """One number over the epochs; None if an epoch lacks it."""
        return [epoch.get(name) for epoch in self.epochs]

    def to_json(self) -> str:
        """The whole history as JSON text."""
        return json.dumps(
            {"monitor": self.monitor, "mode": self.mode, "epochs": self.epochs}, indent=2
        )

    def state_dict(self) -> dict[str, Any]:
        """The part that a checkpoint holds."""
        return {"epochs": [dict(epoch) for epoch in self.epochs], "best_index": self.best_index}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self.epochs, self.best_index = list(state["epochs"]), state["best_index"]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.epochs)

    def __len__(self) -> int:
        return len(self.epochs)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.epochs[index]

    def _table(self) -> tuple[list[str], list[list[str]]]:
        names = list(dict.fromkeys(name for epoch in self.epochs for name in epoch))
        return names, [[_cell(epoch.get(name)) for name in names] for epoch in self.epochs]

    def __repr__(self) -> str:
        if not self.epochs:
            return "History: no epoch yet"
        names, rows = self._table()
        widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in [names, *rows]
        )

    def _repr_html_(self) -> str:
        return html_table(*self._table())


def _moment(epoch: dict[str, Any]) -> tuple[Any, Any]:
    return epoch.get("epoch"), epoch.get("updates")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
