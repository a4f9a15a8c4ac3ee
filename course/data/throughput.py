"""Throughput: how fast the loader is on its own, and whether the accelerator waits for it.

Three times per batch decide: that of the loader when nothing else runs, that of a training step on
a batch that is already there, and that of both in a loop. If the loop is slower than the step
alone, the difference is waiting, and no faster model will gain it back.

The first batch of a pass is kept apart: it starts the workers, and would make a short measurement
look slow (F97). Rates are over the batches actually read; medians are over repeated passes.

Source: Lecture 1, "Is the GPU waiting?"; ledger C23, T08, T09, F90-F92, F97.
"""

from __future__ import annotations

import html
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.data import TensorDataset, default_collate

from course.data.loading import length_of
from course.data.stopwatch import Work, seconds, waiter
from course.state import kept, left_as_found, moved, num_examples

WAITING = 0.1
"""Share of the time above which an accelerator is called waiting."""
Step = Callable[[Any], object]


@dataclass(frozen=True, kw_only=True)
class LoaderSpeed:
    """How fast a loader is when nothing else runs."""

    seconds_per_batch: float
    """Median over the passes, without the first batches."""
    low: float
    """The same for the fastest pass."""
    high: float
    """The same for the slowest pass."""
    first_batch_s: float
    """Median time from `iter(loader)` to the first batch."""
    pass_s: float
    """Median time of a whole pass, including the first batch."""
    examples_per_batch: float
    num_batches: int
    """Batches read in each pass."""
    num_passes: int
    num_workers: int

    @property
    def batches_per_s(self) -> float:
        """Steady rate, after the first batch."""
        return 1 / self.seconds_per_batch

    @property
    def examples_per_s(self) -> float:
        """Steady rate, after the first batch."""
        return self.examples_per_batch / self.seconds_per_batch

    def to_json(self) -> dict[str, float]:
        """Numbers only."""
        rates = {"batches_per_s": self.batches_per_s, "examples_per_s": self.examples_per_s}
        return rates | asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.batches_per_s:,.1f} batches/s, {self.examples_per_s:,.0f} examples/s "
            f"({_time(self.seconds_per_batch)} per batch, {_time(self.low)} to "
            f"{_time(self.high)}), first batch after {_time(self.first_batch_s)}; median of "
            f"{self.num_passes} passes over {self.num_batches} batches, {self.num_workers} workers"
        )


@dataclass(frozen=True, kw_only=True)
class StepSpeed:
    """How long a training step takes on a batch that is already there."""

    seconds_per_step: float
    """Median, measured until the device has finished its work."""
    copy_s: float
    """Median time to move the batch to the device; 0 on the CPU."""
    num_steps: int

    def to_json(self) -> dict[str, float]:
        """Numbers only."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Whether the accelerator is waiting, why, and what to try first."""

    waiting: bool
    share: float
    """Share of the loop's time in which no step ran, after the first batch."""
    startup_share: float
    """Share of an epoch that passes before its first batch."""
    loop_s: float
    """Seconds per batch of the whole loop."""
    loader: LoaderSpeed
    step: StepSpeed
    device: str
    remedy: str

    @property
    def evidence(self) -> str:
        """The times behind the verdict, in words."""
        return (
            f"loader alone {_time(self.loader.seconds_per_batch)} per batch, step alone "
            f"{_time(self.step.seconds_per_step)}, both in a loop {_time(self.loop_s)}: "
            f"{self.share:.0%} of the time no step runs. The first batch takes "
            f"{_time(self.loader.first_batch_s)}, {self.startup_share:.0%} of an epoch."
        )

    def to_json(self) -> dict[str, Any]:
        """Numbers and strings only."""
        nested = {"loader": self.loader.to_json(), "step": self.step.to_json()}
        return asdict(self) | nested | {"evidence": self.evidence}

    def __str__(self) -> str:
        return f"{self._verdict()}\n  {self.evidence}\n  first try: {self.remedy}"

    def _repr_html_(self) -> str:
        rest = (html.escape(text) for text in (self.evidence, f"First try: {self.remedy}"))
        return f"<p><b>{html.escape(self._verdict())}</b></p><p>{'<br>'.join(rest)}</p>"

    def _verdict(self) -> str:
        who = (
            "the CPU's training step"
            if self.device == "cpu"
            else f"the accelerator ({self.device})"
        )
        return f"{who} is waiting for data" if self.waiting else f"{who} is not waiting for data"


def measure_loader(
    loader: Any, *, num_batches: int = 100, repeats: int = 5, limit_s: float = 20.0
) -> LoaderSpeed:
    """Time a loader alone: several passes of up to `num_batches` each.

    Afterwards the loader, its sampler and the global CPU generators are where they were.

    Args:
        loader: Anything that can be iterated over several times.
        num_batches: Batches per pass; fewer if the loader has fewer.
        repeats: Number of passes.
        limit_s: No pass starts after this many seconds, except the first.

    Raises:
        ValueError: The loader yields no batch, or can be iterated over only once.

    Source: Lecture 1, "Is the GPU waiting?"; ledger C23, F97.
    """
    if num_batches < 1 or repeats < 1:
        raise ValueError(
            f"num_batches = {num_batches}, repeats = {repeats}: both must be at least 1."
        )
    if isinstance(loader, Iterator):
        raise ValueError(
            f"{type(loader).__name__} can be read only once, but a measurement takes several "
            "passes. Pass in the loader, not iter(loader)."
        )
    passes, started = [], time.perf_counter()
    with left_as_found(loader):
        if getattr(loader, "persistent_workers", False):
            next(iter(loader), None)  # starts them; no later pass pays for that
        while len(passes) < repeats and (not passes or time.perf_counter() - started < limit_s):
            passes.append(_one_pass(loader, num_batches))
    steady = [one.steady_s for one in passes]
    return LoaderSpeed(
        seconds_per_batch=statistics.median(steady),
        low=min(steady),
        high=max(steady),
        first_batch_s=statistics.median(one.first_s for one in passes),
        pass_s=statistics.median(one.whole_s for one in passes),
        examples_per_batch=statistics.mean(one.examples for one in passes),
        num_batches=min(one.num_batches for one in passes),
        num_passes=len(passes),
        num_workers=getattr(loader, "num_workers", 0),
    )


def measure_step(
    step: Step,
    batch: Any,
    *,
    device: torch.device | str = "cpu",
    num_steps: int = 20,
    limit_s: float = 10.0,
) -> StepSpeed:
    """Time a training step on one batch that is already on the device.

    Args:
        step: Trains on a batch; it is called up to `num_steps` + 3 times.
        batch: Tensors, or tuples, lists or dicts of them.
        device: Where the batch is moved; the clock waits for this device.
        num_steps: Steps to time, after three that are not timed.
        limit_s: No step starts after this many seconds, except the first.
    """
    device = torch.device(device)
    timed = partial(seconds, synchronize=waiter(device))
    copies = [timed(lambda: moved(batch, device)) for _ in range(3)]
    ready, times, started = moved(batch, device), [], time.perf_counter()
    for _ in range(3):  # allocators, lazy initialisation, algorithm search
        step(ready)
    while len(times) < num_steps and (not times or time.perf_counter() - started < limit_s):
        times.append(timed(lambda: step(ready)))
    return StepSpeed(
        seconds_per_step=statistics.median(times),
        copy_s=0.0 if device.type == "cpu" else statistics.median(copies),
        num_steps=len(times),
    )


def is_waiting(
    loader: Any,
    step: Step,
    *,
    device: torch.device | str = "cpu",
    restore: Sequence[Any] = (),
    num_batches: int = 100,
    repeats: int = 3,
    limit_s: float = 10.0,
) -> Waiting:
    """Is the accelerator waiting? Time the loader alone, the step alone, and both in a loop.

    Args:
        loader: The training loader.
        step: Trains on a batch as the loader yields it, and moves it to the device itself.
        device: Where the model trains.
        restore: Models, optimizers and other objects with a `state_dict` that `step` changes; they
            are restored afterwards, including gradients.
        num_batches, repeats, limit_s: For each of the three measurements.

    Returns:
        The verdict, with the times and the first remedy: waiting if no step runs for over 10 % of
        the loop, or if an epoch's start takes that much.

    Raises:
        ValueError: As `measure_loader` raises.

    Source: Lecture 1, "Is the GPU waiting?"; ledger T08, C23.
    """
    device = torch.device(device)
    options = {"num_batches": num_batches, "repeats": repeats, "limit_s": limit_s}
    with ExitStack() as stack:
        stack.enter_context(left_as_found(loader, device))
        stack.enter_context(kept(*restore, rng=False))
        alone = measure_loader(loader, **options)
        with left_as_found(loader, device):
            batch = next(iter(loader))
        ready = measure_step(step, batch, device=device, limit_s=limit_s)
        loops, started = [], time.perf_counter()
        while len(loops) < repeats and (not loops or time.perf_counter() - started < limit_s):
            with left_as_found(loader, device):
                loops.append(_one_pass(loader, num_batches, step, waiter(device)).steady_s)
    return verdict(loader, alone, ready, statistics.median(loops), device)


def verdict(
    loader: Any, alone: LoaderSpeed, step: StepSpeed, loop_s: float, device: torch.device | str
) -> Waiting:
    """The verdict from times already measured; `loop_s` is the loop's time per batch."""
    device = torch.device(device)
    share = max(1 - step.seconds_per_step / loop_s, 0.0)
    epoch = length_of(loader) or alone.num_batches
    after_s = (epoch - 1) * loop_s
    startup = alone.first_batch_s / (alone.first_batch_s + after_s)
    startup = startup if alone.first_batch_s > 3 * loop_s else 0.0  # else a batch like any other
    at_start = startup > 0 and alone.first_batch_s > share * after_s
    waiting = max(share, startup) > WAITING
    return Waiting(
        waiting=waiting,
        share=share,
        startup_share=startup,
        loop_s=loop_s,
        loader=alone,
        step=step,
        device=device.type,
        remedy=_remedy(loader, alone, step, at_start, device)
        if waiting
        else "the step itself (precision, compile, batch size); a faster loader gains nothing",
    )


def _remedy(
    loader: Any,
    alone: LoaderSpeed,
    step: StepSpeed,
    at_start: bool,
    device: torch.device,
) -> str:
    """The first thing to try, from the table of symptoms (T08)."""
    workers, cores = alone.num_workers, _num_cores()
    if at_start:
        if workers and not getattr(loader, "persistent_workers", False):
            return "persistent_workers=True: without it, every epoch starts its workers again (F91)"
        return "do what the first batch does (open, read, unpack) once, in the data set's __init__"
    if device.type != "cpu" and step.copy_s > alone.seconds_per_batch:
        if not getattr(loader, "pin_memory", False):
            return (
                "pin_memory=True and batch.to(device, non_blocking=True): the copy is what takes "
                "the time"
            )
        return "fewer bytes: copy uint8 and convert on the device, or keep the data there"
    if _is_in_memory(loader):
        return (
            "InMemoryLoader(*dataset.tensors, batch_size): the tensors are already in memory, and "
            "more workers would be even slower (F90)"
        )
    needed = alone.seconds_per_batch * max(workers, 1) / max(step.seconds_per_step, 1e-9)
    needed = max(math.ceil(needed), 2)
    spare = cores - 1 if device.type == "cpu" else cores
    if workers < min(needed, spare):
        also = ", persistent_workers=True" if not workers else ""
        return f"num_workers={min(needed, spare)}{also} instead of {workers}; then measure again"
    return (
        f"less work per example: {workers} workers on {cores} cores cannot keep up. Cache what is "
        "the same every epoch, store smaller images, or transform whole batches on the device"
    )


def _is_in_memory(loader: Any) -> bool:
    plain = getattr(loader, "collate_fn", None) is default_collate
    return plain and type(getattr(loader, "dataset", None)) is TensorDataset


@dataclass(frozen=True)
class _Pass:
    first_s: float
    steady_s: float
    whole_s: float
    examples: float
    num_batches: int


def _one_pass(
    loader: Any, num_batches: int, step: Step | None = None, synchronize: Work = lambda: None
) -> _Pass:
    """Read (and train on) up to so many batches; steady time begins when the queue has emptied."""
    ahead = getattr(loader, "num_workers", 0) * (getattr(loader, "prefetch_factor", None) or 0)
    most = min(num_batches, length_of(loader) or num_batches)
    left_out = min(1 + ahead, max(most // 3, 1))
    num = examples = 0
    first_s = steady_from = ended = 0.0
    started = time.perf_counter()
    batches = iter(loader)  # kept, since workers that are shut down count to no batch
    for batch in batches:
        if not num:
            first_s = time.perf_counter() - started
        num, examples = num + 1, examples + (num_examples(batch) or 1)
        if step is not None:
            step(batch)
        if num in (left_out, most):
            synchronize()
        ended = time.perf_counter()
        if num == left_out:
            steady_from = ended
        if num == most:
            break
    if not num:
        raise ValueError(
            "the loader yields no batch: there is nothing to measure. Check its length."
        )
    steady = (ended - steady_from) / (num - left_out) if num > left_out else ended - started
    return _Pass(first_s, steady, ended - started, examples / num, num)


def _num_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
