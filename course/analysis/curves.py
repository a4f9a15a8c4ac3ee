"""Reading training curves: which state is this run in, and what is the cheapest thing to try?

    reading = read_curves(history)        # or a run directory
    print(reading)                        # the state, the numbers, interventions by cost

The states are the lecture's (underfit, sweet spot, overfit) and two in which the curve is not worth
reading further (diverged, not learning). If numbers are missing or too few, the state is
`undecided`, with the reason.

Source: Lecture 3, "Reading training curves"; ledger S15, X06.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from course.engine.history import History
from course.engine.record import read_run
from course.tables import html_table

LEAST_EPOCHS = 4
NOT_LEARNED = 0.05
"""If the training loss falls by less than this share of its start, nothing was learned."""
BLOWN_UP = 0.5
"""If the training loss rises above its start by this share of it, the run diverged."""
CAME_BACK = 0.25
"""Share of its start by which a training loss may rise again after falling."""
RISE = 0.05
"""A rise of the validation loss above its best that is more than wobbling."""
GAP = 0.15
"""Share of the start by which the training loss may fall further than the validation loss."""
HIGH = 0.4
"""A training loss that levels off above this share of its start is too high."""
STILL = 0.1
"""A falling loss above this share of its start still has some way to go."""
FALLING = 0.02
"""A fall per epoch, as a share of the current loss, that promises further progress."""

INTERVENTIONS: dict[str, tuple[str, ...]] = {
    "diverged": (
        "a learning rate 10 times smaller, or the one lr_find suggests",
        "clip the gradient's norm at 1",
        "a warm-up of a few hundred updates",
        "look at the data of the batch before the explosion; use fp32 instead of fp16",
    ),
    "not learning": (
        "overfit one batch (course.debug.climb, rung 3); diagnose(setup)",
        "look at five inputs and their targets by eye",
        "the learning rate that lr_find suggests",
        "check that the optimizer holds model.parameters() and that nothing is frozen",
    ),
    "underfit": (
        "train longer, with the same settings",
        "a larger learning rate, up to what lr_find suggests",
        "less weight decay, dropout, augmentation",
        "a larger model, or better features",
    ),
    "overfit": (
        "stop at the best validation epoch and keep its weights",
        "more weight decay, dropout or label smoothing",
        "augmentation",
        "a smaller model",
        "more data",
    ),
    "sweet spot": (
        "keep the best epoch's weights",
        "look at the errors (course.analysis.errors)",
        "change one thing at a time, over three seeds (course.analysis.ablation)",
    ),
    "undecided": ("train for more epochs, with a val_loader",),
}


@dataclass(frozen=True)
class CurveReading:
    """The state that the curves show."""

    verdict: str
    """`underfit`, `sweet spot`, `overfit`, `diverged`, `not learning` or `undecided`."""
    reason: str
    """The reason in a sentence, with the numbers that decided."""
    evidence: dict[str, float] = field(default_factory=dict)
    history: History | None = None

    @property
    def interventions(self) -> tuple[str, ...]:
        """What to try, cheapest first."""
        return INTERVENTIONS[self.verdict]

    def plot(self) -> Any:
        """A Figure of losses, metric, learning rate and gradient norm."""
        from course.plots.curves import plot_history

        return plot_history(self.history.epochs if self.history else [], title=self.verdict)

    def to_json(self) -> dict[str, Any]:
        """Plain values; nan and inf as strings."""
        numbers = {k: v if math.isfinite(v) else str(v) for k, v in self.evidence.items()}
        return {
            "verdict": self.verdict, "reason": self.reason, "evidence": numbers,
            "interventions": list(self.interventions),
        }  # fmt: skip

    def __str__(self) -> str:
        numbers = [f"  {name} = {value:.4g}" for name, value in self.evidence.items()]
        tries = [f"  {i}. {what}" for i, what in enumerate(self.interventions, start=1)]
        return "\n".join(
            [f"{self.verdict}: {self.reason}", *numbers, "try, cheapest first:", *tries]
        )

    def _repr_html_(self) -> str:
        rows = ((name, f"{value:.4g}") for name, value in self.evidence.items())
        tries = "".join(f"<li>{escape(what)}</li>" for what in self.interventions)
        return (
            f"<p><b>{escape(self.verdict)}</b>: {escape(self.reason)}</p>"
            f"{html_table((), rows)}<p>Try, cheapest first:</p><ol>{tries}</ol>"
        )


def read_curves(source: History | Path | str | Sequence[Mapping[str, Any]]) -> CurveReading:
    """The state of a run, read from its losses.

    Args:
        source: What `fit` returns, a run directory, or one dictionary per epoch with `train_loss`
            and, if available, `val_loss`, a metric, `lr`, `grad_norm`.

    Raises:
        EngineError: The directory is not a run.
        ValueError: Epochs have no `train_loss`, a loss is not a number, or the source does not hold
        epochs.

    Source: Lecture 3, "Reading training curves"; ledger S15.
    """
    history = _history(source)
    if (stopped := _stopped_at_nonfinite(source)) is not None:
        return CurveReading("diverged", f"the run stopped: {stopped}", {}, history)
    train = _column(history, "train_loss")
    val = _column(history, "val_loss")
    if history.epochs and not train:
        raise ValueError(
            f"an epoch holds {', '.join(history.epochs[0])}: there is no train_loss, so there is "
            "no curve to read."
        )
    verdict, reason, evidence = _state(train, val)
    return CurveReading(verdict, reason, evidence, history)


def _history(source: Any) -> History:
    if isinstance(source, History):
        return source
    if isinstance(source, (str, Path)):
        lines = read_run(source).metrics()
        epochs = [line for line in lines if line.get("kind") == "epoch"]
    else:
        epochs = [_epoch(epoch) for epoch in _listed(source)]
    return History(
        "val_loss" if epochs and "val_loss" in epochs[0] else "train_loss", "min", epochs
    )


def _listed(source: Any) -> list[Any]:
    if isinstance(source, Mapping) or not isinstance(source, Iterable):
        raise ValueError(
            f"source is a {type(source).__name__}: expected what fit() returns, a run directory, "
            "or a list with one dictionary per epoch, e.g. [{'train_loss': 2.1, 'val_loss': "
            "2.2}, ...]."
        )
    return list(source)


def _epoch(epoch: Any) -> dict[str, Any]:
    if not isinstance(epoch, Mapping):
        raise ValueError(
            f"an epoch is {epoch!r}: expected a dictionary, e.g. {{'train_loss': 2.1}}."
        )
    return dict(epoch)


def _stopped_at_nonfinite(source: Any) -> str | None:
    """What stopped a recorded run, if it was an inf or nan loss or gradient."""
    if not isinstance(source, (str, Path)):
        return None
    reason = str(read_run(source).content.get("reason") or "")
    kind, _, text = reason.partition(": ")
    return text if kind == "NonFiniteError" else None


def _column(history: History, name: str) -> list[float]:
    """One number per epoch; nan if it is missing, as in a record, because JSON cannot hold nan."""
    if not any(name in epoch for epoch in history.epochs):
        return []
    return [_number(name, value, at) for at, value in enumerate(history.column(name), start=1)]


def _number(name: str, value: Any, epoch: int) -> float:
    try:
        return math.nan if value is None else float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} of epoch {epoch} is {value!r}: expected a number; for a tensor use "
            "loss.item()."
        ) from error


def epochs_in_words(count: int) -> str:
    """`1 epoch`, `2 epochs`."""
    return "1 epoch" if count == 1 else f"{count} epochs"


Found = tuple[str, str, dict[str, float]]


def _state(train: list[float], val: list[float]) -> Found:
    lost = next((i for i, v in enumerate(train) if not math.isfinite(v)), None)
    if lost is not None:
        return "diverged", f"the training loss is {train[lost]} in epoch {lost + 1}.", {}
    if len(train) < LEAST_EPOCHS:
        seen = epochs_in_words(len(train))
        return "undecided", f"{seen}; a curve can only be read from {LEAST_EPOCHS} epochs.", {}
    start, end = train[0], median(train[-_tail(train) :])
    top = max(abs(start), start - min(train), 1e-12)  # a negative log-likelihood may fall below 0
    slope = relative_slope(train)
    evidence = {"first training loss": start, "current training loss": end,
                "its relative change per epoch": slope}  # fmt: skip
    lowest = min(map(median, zip(train, train[1:], train[2:], strict=False)))
    if end - start > BLOWN_UP * top:
        return "diverged", f"the training loss rose from {start:.3g} to {end:.3g}.", evidence
    if end - lowest > CAME_BACK * top:
        return (
            "diverged",
            f"the training loss fell to {lowest:.3g} and is back at {end:.3g}.",
            evidence,
        )
    if start - end < NOT_LEARNED * top or _is_noise(train, start - end):
        return (
            "not learning",
            f"the training loss went from {start:.4g} to {end:.4g}: a fall of less than "
            f"{NOT_LEARNED:.0%}, or no more than its noise. (Unless everything was learned before "
            "the end of the first epoch: compare with the loss of a constant prediction.)",
            evidence,
        )
    if not val or not any(map(math.isfinite, val)):
        return (
            "undecided",
            "the training loss falls; without a validation loss, it is unclear when to stop.",
            evidence,
        )
    if not math.isfinite(val[-1]):
        return (
            "undecided",
            f"the training loss falls, but the validation loss is {val[-1]} in epoch {len(val)}: "
            "look at the validation batches and their outputs first.",
            evidence,
        )
    return _with_validation(train, val, start, end, slope, evidence)


def _with_validation(
    train: list[float], val: list[float], start: float, end: float, slope: float,
    evidence: dict[str, float],
) -> Found:  # fmt: skip
    best = min(range(len(val)), key=lambda i: val[i] if math.isfinite(val[i]) else math.inf)
    val_end = median(filter(math.isfinite, val[-_tail(val) :]))
    top = max(abs(start), abs(val[0]), start - min(train), 1e-12)
    rise = (val_end - val[best]) / max(abs(val[best]), 1e-12) if best < len(val) - 1 else 0.0
    gap = (val_end - end) / top
    evidence |= {"current validation loss": val_end, "best validation loss": val[best],
                 "best epoch": best + 1, "rise since then": rise, "gap / start": gap}  # fmt: skip
    fell_on = train[best] - end > 0.02 * top or train[best] > 1.25 * end
    if rise > max(RISE, 3 * _wobble(val, best)) and fell_on and best < len(val) - 1:
        return (
            "overfit",
            f"the validation loss was best in epoch {best + 1} ({val[best]:.3g}) and is now "
            f"{val_end:.3g}, while the training loss fell from {train[best]:.3g} to {end:.3g}.",
            evidence,
        )
    if gap > GAP:
        return (
            "overfit",
            f"the training loss is {end:.3g} but the validation loss {val_end:.3g}: the model does "
            "not generalise.",
            evidence,
        )
    still = -slope > FALLING and end > STILL * start and _surely_falls(train)
    if still and best >= len(val) - 1 - _tail(val):
        return (
            "underfit",
            f"the training loss still falls by {-slope:.1%} per epoch, and the validation loss "
            "with it: stopped too early.",
            evidence,
        )
    if end > HIGH * start:
        return (
            "underfit",
            f"the training loss has levelled off at {end:.3g}, {end / start:.0%} of its start, and "
            "the validation loss is as high: the model is too small or too constrained.",
            evidence,
        )
    rest = f"; the training loss still falls, but only {end / start:.1%} of its start is left"
    return (
        "sweet spot",
        f"the training loss ({end:.3g}) and the validation loss ({val_end:.3g}) are close"
        f"{rest if -slope > FALLING and start > 0 else ' and have levelled off'}.",
        evidence,
    )


def _tail(values: Sequence[float]) -> int:
    """Number of epochs that count as current: a fifth of the run, 1 to 5."""
    return min(5, max(1, len(values) // 5))


def relative_slope(values: Sequence[float]) -> float:
    """Change per epoch over the last third, as a share of the current value (Theil-Sen).

    >>> round(relative_slope([2.0, 1.8, 1.6, 1.4, 1.2, 1.0]), 2)
    -0.2
    """
    from scipy.stats import theilslopes

    last = _last_third(values)
    return float(theilslopes(last).slope) / max(abs(last[-1]), 1e-12)


def _last_third(values: Sequence[float]) -> list[float]:
    return list(values[-max(3, len(values) // 3) :])


def _surely_falls(values: Sequence[float]) -> bool:
    """Whether the last third falls by more than noise; with 3 or 4 epochs, any fall counts."""
    from scipy.stats import theilslopes

    last = _last_third(values)
    return len(last) < 5 or theilslopes(last, alpha=0.9).high_slope < 0


def _is_noise(train: Sequence[float], fall: float) -> bool:
    """Whether the fall from the first epoch to the last ones is no larger than single jumps."""
    from scipy.stats import median_abs_deviation, theilslopes

    jumps = [b - a for a, b in pairwise(train)]
    noise = median_abs_deviation(jumps, scale="normal") / math.sqrt(2)  # two epochs in each jump
    error = noise * math.sqrt(1 + 1.57 / _tail(train))  # 1.57 = pi / 2: the variance of a median
    return fall < 3 * error and theilslopes(train, alpha=0.99).high_slope >= 0


def _wobble(val: Sequence[float], best: int) -> float:
    """How far the validation loss jumps from epoch to epoch, as a share of its best."""
    jumps = sorted(abs(b - a) for a, b in pairwise(val[1:]))
    middle = jumps[len(jumps) // 2] if jumps else 0.0
    return middle / max(abs(val[best]), 1e-12)
