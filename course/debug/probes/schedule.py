"""Probes on the schedule: it moves after the optimizer, in the unit its length is given in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from course.data.loading import length_of
from course.debug.probes.loop import is_nonzero, own_loop, steppers_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, as_list
from course.debug.probes.thresholds import LEAST_STEPS, MOST

SELDOM = 0.5
"""Scheduler steps per update below which a schedule that counts updates falls behind."""
NEARLY_TWICE = 1.8
"""Scheduler steps per update from which they come with every micro-batch: two at least, and fewer
where the last window is cut off."""

SMALL_RATE = 0.1
"""First rates from it on are left alone: who lets the function compute the rate itself, e.g. from
the inverse square root of the step, hands in a first rate of 1."""
ALIKE = 1.05
"""Ratio of the largest factor and the first rate up to which they are the same number: of a long
schedule not each step is looked at."""
DENSE, SPARSE, LAST = 200, 1.05, 100_000
"""Steps at which a factor is computed: each of the first 200, then one every 5 %, to the last."""


def schedule(session: Session) -> Iterator[Finding]:
    """The scheduler moves after the optimizer, in the unit in which its length is given."""
    scheduler = session.setup.scheduler
    if scheduler is None:
        raise NotChecked("no scheduler")
    loop = own_loop(session)
    tape = loop.tape
    ticks, steps = tape.of("schedule"), tape.of("step")
    unit = str(session.declared.get("scheduler_unit", "")).lower()
    units = "batches" if unit == "batch" else f"{unit}s"
    fix = "optimizer.step()\nscheduler.step()  # in the unit in which T_max or step_size counts"
    counted = unit in ("batch", "update", "step", "iteration")
    if counted and 0 < len(ticks) < SELDOM * len(steps) and len(steps) >= LEAST_STEPS:
        yield Finding(
            "scheduler-misplaced", "error",
            f"The schedule counts in {units} and is stepped {len(ticks)} times in {len(steps)} "
            "updates: it will hardly have begun when training ends.",
            {"updates": len(steps), "scheduler_steps": len(ticks)}, fix,
        )  # fmt: skip
        return
    if not ticks:
        if loop.unit == "step" and counted and steps:
            yield Finding(
                "scheduler-misplaced", "error",
                f"The schedule counts in {units} and is never stepped in {len(steps)} updates.",
                {"updates": len(steps), "scheduler_steps": 0}, fix,
            )  # fmt: skip
        return
    first_tick = next(i for i, e in enumerate(tape.events) if e.kind == "schedule")
    first_step = next((i for i, e in enumerate(tape.events) if e.kind == "step"), None)
    if first_step is None or first_tick < first_step:
        yield Finding(
            "scheduler-misplaced", "error",
            "scheduler.step() runs before the first optimizer.step(): the first value of the "
            "schedule is skipped.",
            {"updates_before": 0}, fix,
        )  # fmt: skip
        return
    yield from _too_often(session, len(ticks), len(steps), unit, fix)


def _too_often(session: Session, ticks: int, steps: int, unit: str, fix: str) -> Iterator[Finding]:
    """A schedule stepped by micro-batch, or by batch where it counts epochs."""
    if ticks >= NEARLY_TWICE * steps and steps >= 2 and unit not in ("micro", "micro-batch"):
        yield Finding(
            "scheduler-misplaced", "warning",
            f"{ticks} scheduler steps for {steps} updates: it counts micro-batches.",
            {"scheduler_steps": ticks, "updates": steps}, fix,
        )  # fmt: skip
        return
    per_batch = ticks >= MOST * steps and ticks >= 4
    length = length_of(session.setup.train_loader)
    if unit == "epoch" and per_batch and length != 1:
        yield Finding(
            "scheduler-misplaced", "error",
            "The schedule counts in epochs and is stepped after every batch.",
            {"scheduler_steps": ticks, "updates": steps}, fix,
        )  # fmt: skip
    elif per_batch and not unit and length and length > 1:
        yield from _too_short(session.setup.scheduler, length, ticks, fix)


def _too_short(scheduler: object, length: int, ticks: int, fix: str) -> Iterator[Finding]:
    """A schedule stepped by batch that has run out, or decayed away, within one epoch."""
    span, name = None, type(scheduler).__name__
    if name == "CosineAnnealingLR":
        span = scheduler.T_max
    elif name == "StepLR":
        span = scheduler.step_size
    elif name == "MultiStepLR":
        span = max(scheduler.milestones, default=None)
    elif name == "ExponentialLR" and 0 < scheduler.gamma < 1:
        span = math.log(1e-3) / math.log(scheduler.gamma)
    elif name in ("LinearLR", "PolynomialLR"):
        span = getattr(scheduler, "total_iters", None) if name == "PolynomialLR" else None
    if span is not None and span < length:
        yield Finding(
            "scheduler-misplaced", "warning",
            f"{name} is stepped after every batch and ends after {span:.3g} of the {length} "
            "batches of one epoch: its length was given in epochs.",
            {"length_of_schedule": float(span), "batches_per_epoch": length, "seen": ticks}, fix,
        )  # fmt: skip


def of_another(session: Session) -> Iterator[Finding]:
    """The scheduler turns the rates of the optimizer that makes the steps.

    Of another one only if that trains none of the steps and holds the same parameters, as the
    optimizer of an earlier phase does: a stand-in may hold a parameter of its own, and its rate be
    copied.
    """
    schedulers = [s for s in as_list(session.setup.scheduler) if hasattr(s, "optimizer")]
    if not schedulers:
        raise NotChecked("no scheduler that holds an optimizer")
    steppers = steppers_of(own_loop(session).tape)
    if not steppers:
        raise NotChecked("no step was seen")
    driven = {id(group) for o in [*steppers, *session.optimizers] for group in _groups(o)}
    moved = {id(p) for o in steppers for group in _groups(o) for p in group["params"]}
    rates = [tuple(e.lrs) for e in session.loop.tape.of("step")]
    for scheduler in schedulers:
        groups = _groups(scheduler.optimizer)
        shared = [p for group in groups for p in group["params"] if id(p) in moved]
        if not shared or any(id(group) in driven for group in groups):
            continue
        if len(steppers) == 1 and len(set(rates)) > 1:
            continue  # somebody else turns them, or copies them
        yield Finding(
            "scheduler-misplaced", "error",
            f"The scheduler turns the rates of an optimizer that makes none of the {len(rates)} "
            f"steps, though it holds {len(shared)} of the parameters that they move: the rate of "
            f"the one that steps stays at {rates[-1][0]:.3g}. It was made for the optimizer of an "
            "earlier phase.",
            {"steps": len(rates), "parameters_of_both": len(shared), "rate": rates[-1][0]},
            "scheduler = CosineAnnealingLR(optimizer, T_max)  # again, after a new optimizer",
        )  # fmt: skip
        return


def _groups(optimizer: object) -> list[dict]:
    return list(getattr(optimizer, "param_groups", ()))


def factor(session: Session) -> Iterator[Finding]:
    """LambdaLR gets a factor for the learning rate, not the rate itself."""
    scheduler = session.setup.scheduler
    if type(scheduler).__name__ != "LambdaLR":
        raise NotChecked("the scheduler is not a LambdaLR")
    for function, rate in zip(scheduler.lr_lambdas, scheduler.base_lrs, strict=True):
        with session.observe():
            largest = _largest(function)
        if 0 < rate < SMALL_RATE and rate / ALIKE < largest < rate * ALIKE:
            yield Finding(
                "lr-too-small", "warning",
                f"LambdaLR multiplies the first rate, {rate:g}, by what its function returns, but "
                f"that is at most {largest:.3g}, the rate itself: the largest rate is then "
                f"{rate * largest:.2g}.",
                {"first_rate": rate, "largest_factor": largest, "largest_rate": rate * largest},
                "scheduler = LambdaLR(optimizer, lambda step: rate(step) / lr)  # 1 at the peak",
            )  # fmt: skip
            return


def at_rest(session: Session) -> Iterator[Finding]:
    """Updates that are made while a schedule warms up move the weights.

    A first update at rate 0 is common. Where one group of several waits, the others learn.
    """
    scheduler = session.setup.scheduler
    if type(scheduler).__name__ != "LambdaLR":
        raise NotChecked("the scheduler is not a LambdaLR")
    loop = own_loop(session)
    steps, ticks = loop.tape.of("step"), loop.tape.of("schedule")
    if min(len(steps), len(ticks)) < LEAST_STEPS or len(steppers_of(loop.tape)) != 1:
        raise NotChecked("no single optimizer steps as the schedule moves")
    if any(any(e.lrs) or not any(map(is_nonzero, e.gradient)) for e in steps):
        raise NotChecked("there is a rate, or there is no gradient")
    with session.observe():
        waits, jumps_to = _wait(scheduler.lr_lambdas)
    if waits is None or not all(map(torch.equal, loop.start, loop.end)):
        raise NotChecked("the schedule does not begin with 0, or the weights move")
    rate = jumps_to * max(scheduler.base_lrs)
    yield Finding(
        "lr-too-small", "warning",
        f"The learning rate is 0 in all of the first {len(steps)} updates, which move no weight, "
        f"although the schedule moved {len(ticks)} times: its factor stays 0 for {waits} steps and "
        f"then jumps to {jumps_to:.3g} (a rate of {rate:.3g}). That is no warm-up; a division "
        "with // gives whole numbers.",
        {"updates": len(steps), "schedule_steps": len(ticks), "steps_at_0": waits,
         "factor_after": jumps_to},
        "scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup))  # not //",
    )  # fmt: skip


def _wait(functions: list[Callable[[int], float]]) -> tuple[int | None, float]:
    """How many steps the factors of all groups are 0, and the largest after them."""
    for step in range(LAST):
        try:
            factor = max(float(function(step)) for function in functions)
        except Exception:  # e.g. a table that has come to its end
            break
        if factor > 0:
            return (step if step >= LEAST_STEPS else None), factor
    return None, 0.0


def _largest(function: Callable[[int], float]) -> float:
    """The largest factor of all steps looked at, until one is none."""
    largest, step = 0.0, 0
    while step < LAST:
        try:
            largest = max(largest, float(function(step)))
        except Exception:  # e.g. a table that has come to its end
            break
        step = step + 1 if step < DENSE else int(step * SPARSE)
    return largest
