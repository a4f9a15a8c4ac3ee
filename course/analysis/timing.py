"""Timing a piece of code properly: warm-up, alternating repeats, device synchronisation, medians.

Four things spoil a single stopwatch reading. The first calls do work that later ones do not
(allocators, caches, compilation), so they are made but not counted. Other processes on the machine
slow down single calls; the median ignores a few. A machine that becomes slower or faster during the
measurement favours one of two candidates, so they take turns. And an accelerator's calls return
before their work is done, so both readings of the clock wait for the device.

Source: Engineering module, §5 and lab 5; ledger C34, X27, T40.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from course.data.stopwatch import Work, seconds, waiter

__all__ = ["Timing", "median_time", "time_in_turn", "waiter"]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds of repeated calls of one piece of code, and of its very first call."""

    times: tuple[float, ...]
    """Seconds of each repeat, in order."""
    first: float
    """Seconds of the very first call: a warm-up call, if there is any."""

    @property
    def median(self) -> float:
        """Half of the repeats were faster than this."""
        return statistics.median(self.times)

    @property
    def low(self) -> float:
        """The fastest repeat."""
        return min(self.times)

    @property
    def high(self) -> float:
        """The slowest repeat."""
        return max(self.times)

    def __str__(self) -> str:
        rest = f"{_ms(self.low)} to {_ms(self.high)} ms over {len(self.times)} calls"
        return f"{_ms(self.median)} ms ({rest}; the first {_ms(self.first)} ms)"


def time_in_turn(
    works: Mapping[str, Work],
    *,
    warmup: int = 1,
    repeats: int = 5,
    synchronize: Work = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time several pieces of code alternately: ABAB..., so that a slow minute affects all of them.

    Args:
        works: Functions without arguments, by name.
        warmup: Calls of each that are not counted.
        repeats: Calls of each that are counted, at least 1.
        synchronize: Called before and after each call to wait for the device; see `waiter`.
        clock: Returns seconds.

    Raises:
        ValueError: `repeats` is below 1, or `warmup` is negative.
    """
    if repeats < 1 or warmup < 0:
        raise ValueError(
            f"repeats = {repeats}, warmup = {warmup}: repeats must be at least 1, and warmup at "
            "least 0."
        )
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(warmup + repeats):
        for name, work in works.items():
            times[name].append(seconds(work, synchronize=synchronize, clock=clock))
    return {name: Timing(times=tuple(each[warmup:]), first=each[0]) for name, each in times.items()}


def median_time(
    work: Work,
    *,
    warmup: int = 1,
    repeats: int = 5,
    synchronize: Work = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Median seconds of a call; arguments and errors as for `time_in_turn`."""
    options = {"warmup": warmup, "repeats": repeats, "synchronize": synchronize, "clock": clock}
    return time_in_turn({"work": work}, **options)["work"].median


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}"
