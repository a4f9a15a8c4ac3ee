"""Schedules: the learning rate over the run, and a check that the scheduler counts the right unit.

Each shape has a closed form, the factor at step t, and a constructor for a torch scheduler of that
shape. A step is whatever the trainer's `schedule_per` says: an update or an epoch, never a
micro-batch. A schedule of 100 steps that is stepped 3,200 times does not decay: the cosine rises
again, sixteen times (N27).

Source: Lecture 3, "Learning-rate schedules"; the essay on the annotated loop, operation 8; ledger
C31, N26-N29, N54, F59-F63, K01, B24.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingLR,
    LRScheduler,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from course.engine.errors import EngineError
from course.engine.several import Several

if TYPE_CHECKING:
    from course.engine.history import History
    from course.engine.progress import Plan, Progress

UNITS = ("epoch", "update", "metric")


def warmup_cosine_factor(step: int, *, warmup: int, total: int, floor: float = 0.0) -> float:
    """Linear rise over `warmup` steps, then half a cosine down to `floor` at `total`.

        (t + 1) / warmup                                   t < warmup
        floor + (1 − floor) · ½(1 + cos(π · done))         done = (t − warmup) / (total − warmup)

    The rise starts at 1 / warmup: a factor of 0 would make a first step that moves nothing (N28).
    From `total` on it stays at `floor`.
    """
    if step < warmup:
        return (step + 1) / warmup
    done = min((step - warmup) / (total - warmup), 1.0)
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))


def step_factor(step: int, *, every: int, gamma: float = 0.1) -> float:
    """gamma to the power of (t // every)."""
    return gamma ** (step // every)


def one_cycle_factor(
    step: int, *, total: int, rise: float = 0.3, start: float = 1 / 25, end: float = 1e-4 / 25
) -> float:
    """Half a cosine from `start` up to 1 during the first `rise` of the steps, then down to `end`.

    Factors of the highest learning rate; the last step, total − 1, is at `end`.
    """
    top = rise * total - 1
    if step <= top:
        return _half_cosine(start, 1.0, step / top)
    return _half_cosine(1.0, end, (step - top) / (total - 1 - top))


def _half_cosine(first: float, last: float, done: float) -> float:
    return last + (first - last) * 0.5 * (1 + math.cos(math.pi * done))


class WarmupCosine(LRScheduler):
    """`warmup_cosine_factor` times each group's learning rate; normally stepped once per update.

    Args:
        optimizer: Its learning rates are the peak rates.
        warmup: Steps of the linear rise; 0 for none.
        total: Steps of the whole schedule.
        floor: The factor at the end.
    """

    def __init__(
        self, optimizer: Optimizer, *, warmup: int, total: int, floor: float = 0.0
    ) -> None:
        if not 0 <= warmup < total:
            raise EngineError(
                f"warmup = {warmup}, total = {total}: the rise must end before the schedule does. "
                f"Usual is warmup = {max(total // 20, 1)}."
            )
        self.warmup, self.total, self.floor = warmup, total, floor
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        factor = warmup_cosine_factor(
            self.last_epoch, warmup=self.warmup, total=self.total, floor=self.floor
        )
        return [base * factor for base in self.base_lrs]


def warmup_cosine(optimizer: Optimizer, *, warmup: int, total: int, floor: float = 0.0) -> Any:
    """Warm-up, then cosine, over `total` steps."""
    return WarmupCosine(optimizer, warmup=warmup, total=total, floor=floor)


def one_cycle(optimizer: Optimizer, *, max_lr: float, total: int) -> OneCycleLR:
    """Up to `max_lr` and far down again, over `total` steps; momentum moves the other way."""
    return OneCycleLR(optimizer, max_lr=max_lr, total_steps=total)


def step_decay(optimizer: Optimizer, *, every: int, gamma: float = 0.1) -> StepLR:
    """Multiply the rate by `gamma` every `every` steps."""
    return StepLR(optimizer, step_size=every, gamma=gamma)


def plateau(optimizer: Optimizer, *, patience: int = 5, factor: float = 0.1, mode: str = "min"):
    """Multiply the rate by `factor` after `patience` epochs without improvement."""
    return ReduceLROnPlateau(optimizer, mode=mode, factor=factor, patience=patience)


def each_of(scheduler: Any) -> list[Any]:
    """The schedulers: several by name, one, or none."""
    if scheduler is None:
        return []
    return list(scheduler.parts.values()) if isinstance(scheduler, Several) else [scheduler]


def check_scheduler(scheduler: Any, schedule_per: str, optimizer: Any) -> None:
    """Check that each scheduler counts the right unit and sets the rate of what trains.

    Raises:
        EngineError: The unit does not fit, or the scheduler was built with another optimizer.
    """
    if schedule_per not in UNITS:
        raise EngineError(f"schedule_per = {schedule_per!r}: expected {', '.join(UNITS)}.")
    for one in each_of(scheduler):
        _check_unit(one, schedule_per)
        _check_owner(one, optimizer)


def _check_owner(scheduler: Any, optimizer: Any) -> None:
    """A scheduler sets the rates in its optimizer's groups, which a wrapper may share."""
    owner = getattr(scheduler, "optimizer", optimizer)
    groups = {id(group) for group in optimizer.param_groups}
    if owner is optimizer or any(id(group) in groups for group in owner.param_groups):
        return
    name = type(scheduler).__name__
    raise EngineError(
        f"{name} was built with another {type(owner).__name__} than the one that trains, so the "
        f"learning rate would never change. Build it with that one: {name}(optimizer, ...)."
    )


def _check_unit(scheduler: Any, schedule_per: str) -> None:
    """A plateau scheduler needs a metric, every other one counts steps."""
    name = type(scheduler).__name__
    if isinstance(scheduler, ReduceLROnPlateau) and schedule_per != "metric":
        raise EngineError(
            f"{name} needs a metric, but schedule_per = {schedule_per!r} gives it none. Use "
            "schedule_per='metric'."
        )
    if not isinstance(scheduler, ReduceLROnPlateau) and schedule_per == "metric":
        raise EngineError(
            f"{name} counts steps and cannot use a metric. Use schedule_per='epoch' or 'update'."
        )


def check_length(scheduler: Any, schedule_per: str, plan: Plan, progress: Progress) -> None:
    """Check that a schedule of fixed length is as long as the run, in the unit that it counts.

    Raises:
        EngineError: It is not; the message shows the arithmetic.
    """
    for one in each_of(scheduler):
        _check_length(one, schedule_per, plan, progress)


def _check_length(scheduler: Any, schedule_per: str, plan: Plan, progress: Progress) -> None:
    length = schedule_length(scheduler)
    if length is None or schedule_per == "metric":
        return
    per_epoch = progress.updates_per_epoch
    updates = plan.num_updates(per_epoch)
    planned = updates if schedule_per == "update" else plan.epochs
    done = progress.update if schedule_per == "update" else progress.epoch - 1
    ends = {planned, plan.max_updates} if schedule_per == "update" else {planned}
    left = length - _steps_made(scheduler)
    if planned is None or left in {end - done for end in ends if end is not None}:
        return
    if length == planned:
        raise EngineError(
            f"{type(scheduler).__name__} has made {_steps_made(scheduler)} of its {length} steps, "
            f"but the run has made {done}: a second fit needs a new scheduler."
        )
    product = f"{plan.epochs} epochs"
    if plan.epochs is not None and per_epoch is not None:
        micro, k = progress.micro_batches_per_epoch, progress.accum_steps
        each = f"ceil({micro} batches / {k})" if k > 1 else f"{micro} batches"
        product = f"{plan.epochs} epochs × {each} = {updates} updates"
    elif plan.epochs is None:
        product = f"max_updates = {updates}"
    other = "update" if schedule_per == "epoch" else "epoch"
    if length == {"update": updates, "epoch": plan.epochs}[other]:
        cure = f"It is as long as the run in {other}s: use schedule_per={other!r}."
    else:
        cure = f"Build it with {planned} steps" + (
            f", or with {updates} and schedule_per='update'."
            if schedule_per == "epoch" and updates
            else "."
        )
    raise EngineError(
        f"{type(scheduler).__name__} is {length} steps long and schedule_per={schedule_per!r} "
        f"steps it {planned} times ({product}). {cure} If the length is intended, use Trainer(..., "
        "check_schedule=False)."
    )


def schedule_length(scheduler: Any) -> int | None:
    """Steps of a schedule that has an end; None for one that can continue for ever."""
    if isinstance(scheduler, (WarmupCosine,)):
        return scheduler.total
    if isinstance(scheduler, OneCycleLR):
        return scheduler.total_steps
    if isinstance(scheduler, CosineAnnealingLR):
        return scheduler.T_max
    if isinstance(scheduler, PolynomialLR):
        return scheduler.total_iters
    if isinstance(scheduler, SequentialLR):
        last = schedule_length(scheduler._schedulers[-1])
        return None if last is None else scheduler._milestones[-1] + last
    if isinstance(scheduler, ChainedScheduler):
        lengths = [schedule_length(part) for part in scheduler._schedulers]
        return max((length for length in lengths if length is not None), default=None)
    return None


def check_mode(scheduler: Any, schedule_per: str, history: History) -> None:
    """Check that a schedule that uses the monitored number agrees on which direction is better.

    Raises:
        EngineError: It expects the number to fall while the run wants it to rise, or the reverse.
    """
    for mode in (getattr(one, "mode", None) for one in each_of(scheduler)):
        if schedule_per == "metric" and mode in ("min", "max") and mode != history.mode:
            raise EngineError(
                f"the scheduler has mode='{mode}' but fit has mode='{history.mode}' for "
                f"{history.monitor}: it would lower the rate while the run improves. Build it with "
                f"mode='{history.mode}'."
            )


def _steps_made(scheduler: Any) -> int:
    """How often it was stepped; a ChainedScheduler has no count of its own."""
    if hasattr(scheduler, "last_epoch"):
        return scheduler.last_epoch
    return _steps_made(scheduler._schedulers[0])
