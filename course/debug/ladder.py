"""The debug ladder: seven rungs from the data to the errors; fix the lowest that fails.

    report = climb(dict(model=model, loss_fn=criterion, optimizer=optimizer,
                        train_loader=train_loader, val_loader=val_loader))

    1 inspect the data      5 learning-rate finder
    2 dumb baseline         6 full run with regularisation
    3 overfit one batch     7 error analysis
    4 small subset

Climbing stops at the first rung that fails: what lies above would only show the same fault in a
more confusing way. Where the rung itself cannot say why, the doctor (`course.debug.diagnose`) is
asked. Budgets count steps, so a busy machine finds the same as an idle one. Everything passed in is
left as it was; the trained copy of the model is in the report.

Source: Lecture 1, "The debug ladder"; ledger S16, T21, C25.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from course.debug.climbed import LadderReport, Rung
from course.debug.diagnose import diagnose
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.setup import Setup, as_setup
from course.debug.rungs import RUNGS, Climb, Fall, Outcome
from course.debug.rungs.small import MOST_STEPS


def climb(
    setup: Any,
    *,
    epochs: int = 10,
    subset: float = 0.05,
    top: int = 7,
    seed: int = 0,
    steps: int = MOST_STEPS,
    explain: bool = True,
) -> LadderReport:
    """Climb the seven rungs in order and stop at the first that fails, with the reason.

    If the set-up has a `train_step(batch)`, rungs 3, 4 and 6 train with it; otherwise they train
    with the course's engine, which then also uses `scheduler` and what `declared` says about
    accumulation, clipping and the scheduler's unit.

    Args:
        setup: What `diagnose` takes: a mapping, dataclass or object with `model`, `loss_fn`,
            `optimizer`, `train_loader`, `val_loader` and, if available, `train_step, scheduler,
            num_classes, task, groups, declared`.
        epochs: Passes over the data on rung 6.
        subset: Share of the training data on rung 4.
        top: Last rung to climb.
        seed: Draws the subset.
        steps: Most steps that overfitting one batch may take.
        explain: Whether the doctor is asked about a rung that fails, which takes about as long
            again.

    Returns:
        The rungs climbed and, if one failed, the doctor's diagnosis. The set-up, its random numbers
        included, is as before.

    Raises:
        ValueError: The set-up lacks a needed part, a loader can be read only once, or an argument
            is out of range.

    Source: Lecture 1, "The debug ladder"; ledger T21.
    """
    _check_arguments(epochs, subset, top, steps)
    session = Session(_readable(as_setup(setup)))
    ascent = Climb(session, epochs=epochs, subset=subset, seed=seed, steps=steps)
    rungs: list[Rung] = []
    try:
        for number, title, rung in _numbered()[:top]:
            rungs.append(_climb_one(number, title, rung, ascent))
            if rungs[-1].passed is False:
                break
    finally:
        session.kept.restore()
    failed = rungs[-1].passed is False
    diagnosis = diagnose(session.setup) if failed and explain else None
    return LadderReport(tuple(rungs), tuple(RUNGS)[:top], diagnosis, ascent.trained)


def _numbered() -> list[tuple[int, str, Callable[[Climb], Outcome]]]:
    return [(i, title, rung) for i, (title, rung) in enumerate(RUNGS.items(), start=1)]


def _climb_one(number: int, title: str, rung: Callable[[Climb], Outcome], ascent: Climb) -> Rung:
    started = time.perf_counter()
    passed: bool | None = True
    fix = cause = ""
    try:
        outcome = rung(ascent)
    except Fall as fall:
        passed, outcome, fix, cause = False, fall.outcome, fall.fix, fall.cause
    except NotChecked as reason:
        passed, outcome = None, Outcome(str(reason))
    except Exception as error:
        passed = False
        outcome = Outcome(f"{type(error).__name__}: {str(error)[:300]}")
    return Rung(
        number, title, passed, outcome.message, outcome.evidence, outcome.warnings, fix, cause,
        outcome.picture, time.perf_counter() - started,
    )  # fmt: skip


def _readable(setup: Setup) -> Setup:
    for name in ("train_loader", "val_loader"):
        if hasattr(getattr(setup, name), "__next__"):  # before a batch is drawn
            raise ValueError(
                f"{name} is a {type(getattr(setup, name)).__name__}, which can be read only once, "
                "and each rung reads it from the start. Pass in a DataLoader or a list."
            )
    return setup


def _check_arguments(epochs: int, subset: float, top: int, steps: int) -> None:
    if epochs < 1:
        raise ValueError(f"epochs = {epochs}: rung 6 needs at least 1.")
    if not 0 < subset <= 1:
        raise ValueError(
            f"subset = {subset}: give a share of the training data above 0 and up to "
            "1, e.g. 0.05 for 5 %."
        )
    if not 1 <= top <= len(RUNGS):
        raise ValueError(f"top = {top}: the ladder has rungs 1 to {len(RUNGS)}.")
    if steps < 1:
        raise ValueError(f"steps = {steps}: overfitting one batch needs at least 1.")
