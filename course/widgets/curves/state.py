"""Six recorded runs, read epoch by epoch: which state is each in, and where should it stop?

The runs are real (`course.analysis.recorded`), the reading is that of `read_curves` for the epochs
seen so far, the stop is that of `EarlyStopping`, and the interval of an accuracy is Wilson's for
the run's number of validation images.

Source: Lecture 3, "Reading training curves"; ledger S15.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from course.analysis.curves import CurveReading, read_curves
from course.analysis.recorded import RUNS, recorded
from course.analysis.scores.intervals import wilson_interval
from course.engine.stopping import EarlyStopping
from course.widgets.base.settings import Checked, choice, slider, steps, toggle

LONGEST = max(recipe.epochs for recipe in RUNS.values())
NOBODY = "nothing"
HIDDEN = {"verdict": "hidden", "reason": "", "tries": ["name the state first"]}
"""Shown instead of a reading that is hidden."""
NEVER = 0
"""The patience if a run is not stopped."""


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """Which run, next to which other, how much of it is shown, and when it would stop."""

    run: str = choice("run 3", tuple(RUNS), "run")
    other: str = choice(NOBODY, (NOBODY, *RUNS), "compare with")
    epochs: int = slider(LONGEST, steps(1, LONGEST, 1), "seen up to epoch")
    patience: int = choice(
        5, (NEVER, 1, 3, 5, 10), "stop after",
        names=("never", "1 bad epoch", "3 bad epochs", "5 bad epochs", "10 bad epochs"),
        hint="consecutive epochs without a new best validation loss",
    )  # fmt: skip
    log_axis: bool = toggle(False, "logarithmic loss axis")
    reading: bool = toggle(True, "show the reading", hint="untick it to name the state yourself")


def frame(settings: Settings) -> dict[str, Any]:
    """All curves, and for each shown run, what can be said by that epoch."""
    shown = [settings.run]
    if settings.other not in (NOBODY, settings.run):
        shown.append(settings.other)
    return {
        "runs": curves(),
        "axis": "log" if settings.log_axis else "linear",
        "shown": [
            _seen(name, settings.epochs, settings.patience) | ({} if settings.reading else HIDDEN)
            for name in shown
        ],
    }


@cache
def curves() -> dict[str, Any]:
    """The columns of every run, and the interval of each accuracy."""
    return {name: _columns(name) for name in RUNS}


def _columns(name: str) -> dict[str, Any]:
    epochs, count = recorded(name), RUNS[name].num_val
    accuracies = [epoch["val_accuracy"] for epoch in epochs]
    intervals = [wilson_interval(round(one * count), count) for one in accuracies]
    return {
        "train": [epoch["train_loss"] for epoch in epochs],
        "val": [epoch["val_loss"] for epoch in epochs],
        "accuracy": accuracies,
        "low": [interval.low for interval in intervals],
        "high": [interval.high for interval in intervals],
        "num_val": count,
    }


@cache
def _seen(name: str, epochs: int, patience: int) -> dict[str, Any]:
    """What is known about a run after some epochs."""
    seen = recorded(name)[:epochs]
    reading = read_curves(seen)
    losses = [epoch["val_loss"] for epoch in seen]
    best = min(range(len(losses)), key=losses.__getitem__)
    return {
        "name": name,
        "seen": len(seen),
        "of": RUNS[name].epochs,
        "train": seen[-1]["train_loss"],
        "val": losses[-1],
        "best": losses[best],
        "best_epoch": best + 1,
        "stop": stopped_at(losses, patience),
        **_words(reading),
    }


def _words(reading: CurveReading) -> dict[str, Any]:
    return {
        "verdict": reading.verdict,
        "reason": reading.reason,
        "tries": list(reading.interventions),
    }


def stopped_at(losses: list[float], patience: int) -> int | None:
    """The epoch in which early stopping ends the run; None if it has not by then."""
    if patience == NEVER:
        return None
    rule = EarlyStopping(patience)
    for epoch, loss in enumerate(losses, start=1):
        if rule.update(loss, epoch=epoch):
            return epoch
    return None


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """State, best and current validation loss of each shown run."""
    return " ".join(
        f"{one['name'].capitalize()}, {one['seen']} of {one['of']} epochs: {one['verdict']}; "
        f"validation loss {float(one['val']):.3g}, best {float(one['best']):.3g} in epoch "
        f"{one['best_epoch']}."
        for one in frame["shown"]
    )
