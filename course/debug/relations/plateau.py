"""Relation on ReduceLROnPlateau: its mode matches the number it is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from course.debug.probes.modes import close, evaluation_of
from course.debug.probes.report import Finding
from course.debug.probes.session import MAX_BATCHES, NotChecked, Session, as_metrics, clone
from course.debug.probes.tape import Tape
from course.debug.relations.direction import NOT, WORDS

MOST_TOLD = 3
"""Numbers that a scheduler is handed around one epoch: one told in every step is of the batch."""
TRAINED = "the mean training loss"
ROUNDED = 1e-5
"""Relative difference of two means of the same losses."""
LOWER = ("loss", "err", "perplexity", "nll", "mse", "mae")
"""Words of metrics that are better the lower they are."""


def told(session: Session) -> Iterator[Finding]:
    """ReduceLROnPlateau has mode "min" for what should fall, and "max" for what should rise.

    The last number it was given is looked up among those of evaluate() at that time, else among the
    losses on which backward was called since the previous one.
    """
    scheduler = session.setup.scheduler
    if type(scheduler).__name__ != "ReduceLROnPlateau":
        raise NotChecked("the scheduler is not a ReduceLROnPlateau")
    evaluation_of(session)
    told, metrics, losses = _told_to(session)
    names = [k for k, v in metrics.items() if close(v, told)]
    if not names and any(close(loss, told, ROUNDED) for loss in losses):
        names = [TRAINED]
    high = [k for k in names if _has(k, WORDS) and not _has(k, NOT)]
    low = [k for k in names if _has(k, LOWER)]
    wrong = (scheduler.mode == "min" and high) or (scheduler.mode == "max" and low)
    if wrong and not (high and low):
        better = "higher" if scheduler.mode == "min" else "lower"
        yield Finding(
            "scheduler-misplaced", "error",
            f"ReduceLROnPlateau is in mode {scheduler.mode!r} but is given {wrong[0]} = "
            f"{told:.4g}, which is better the {better} it is: the rate is cut while training goes "
            "well.",
            {"mode": scheduler.mode, "told": told, "patience": int(scheduler.patience)},
            f'ReduceLROnPlateau(optimizer, mode="{"max" if high else "min"}")',
        )  # fmt: skip


def _told_to(session: Session) -> tuple[float, dict[str, float], list[float]]:
    """The number that the scheduler was handed last, the metrics of that moment, and means of the
    losses that it may be.

    One step more than an epoch: many loops tell it where the next epoch begins.
    """
    setup, batches = session.setup, session.epoch.batches
    if not session.epoch.whole or len(batches) > MAX_BATCHES:
        raise NotChecked("the loader is too long for an epoch")
    tape = _Told(session)
    with session.observe():
        try:
            with tape.running():
                if setup.train is not None:
                    setup.train(len(batches) + 1)
                else:
                    for batch in [*batches, batches[0]]:
                        (setup.train_step or session.plain_step)(clone(batch))
        except NotChecked:
            raise
        except Exception as error:
            raise NotChecked(f"the loop raises {type(error).__name__}") from error
    if not tape.told or len(tape.told) > MOST_TOLD:
        raise NotChecked(
            "the scheduler is given no number at the end of an epoch, or one at every step"
        )
    return tape.told[-1]


class _Told(Tape):
    """A tape that evaluates whenever the scheduler is handed a number."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.model, session.optimizers, session.setup.scheduler)
        self.session = session
        self.told: list[tuple[float, dict[str, float], list[float]]] = []
        self._heard = 0

    def _scheduler_step(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        value = args[0] if args else kwargs.get("metrics")
        if value is not None and len(self.told) <= MOST_TOLD:
            modes = [(part, part.training) for part in self.session.model.modules()]
            losses = self._losses()  # before evaluate() adds its own
            self.told.append((float(value), as_metrics(self.session.setup.evaluate()), losses))
            for part, training in modes:
                part.training = training
            self._heard = len(self.events)
        return super()._scheduler_step(original, *args, **kwargs)

    def _losses(self) -> list[float]:
        """The mean, the sum and the last of the losses that went backward since the last time."""
        found = [e.loss for e in self.events[self._heard :] if e.kind == "backward"]
        return [sum(found) / len(found), sum(found), found[-1]] if found else []


def _has(name: str, words: tuple[str, ...]) -> bool:
    return any(word in name.lower() for word in words)
