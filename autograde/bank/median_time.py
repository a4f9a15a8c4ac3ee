"""03i.median-time: how long a call takes, by a clock and on a device that works on its own."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np
import torch

from autograde.bank.common_wrong import common
from autograde.bank.harness import plainly
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, as_number
from course.analysis import timing

TICK = 1 / 8
"""Of the case's clock, in seconds: sums of eighths are exact."""
LATE = 2**33
"""Ticks after which some clocks begin: 34 years, near time.time(); float32 counts it by 128 s."""


def draw(source: Draw, part: str) -> Case:
    """Ticks of the device per call, all unlike and one far off; what the part asks for on top.

    The middle ones are not evenly spaced, or a trimmed mean would be their median. A warm-up is
    slow, or quick, as where its work was there already: no rule about size finds it.
    """
    warmup, repeats = 0, (5, 6)[source.index % 2]
    if part in ("warmup", "all"):
        repeats = (3, 2)[source.index % 2]
        warmup = repeats + 1 + source.integer(0, 1)
    if part == "all" and source.index == 2:
        warmup = 0
    if part == "queued":
        warmup, repeats = source.index % 2, 2 - source.index % 2
    ticks = [9 + 2 * n * n + source.integer(0, 1) for n in range(repeats - 1)]
    ticks = source.shuffled([*ticks, 80 + source.integer(0, 9)])
    slow = part == "queued" or source.index % 2 == 0
    first = [(100 + 9 * n if slow else 1 + n) for n in range(warmup)]
    return {
        "ticks": [*first, *ticks],
        "warmup": warmup,
        "repeats": repeats,
        "launch": 0 if part in ("median", "warmup") else (1, 3)[source.index % 2],
        "queued": 200 + source.integer(0, 40) if part in ("queued", "all") else 0,
        "waits": part in ("median", "warmup"),
        "starts": source.integer(1, 999) + LATE * (part == "all"),
    }


class Machine:
    """A host with a clock, and a device that does in its own time what it was given.

    Where `waits`, a call returns when its work is done, as on a CPU.
    """

    def __init__(self, case: Case) -> None:
        self.case, self.calls, self.readings = case, 0, 0
        self.now = case["starts"]
        self.idle_at = self.now + case["queued"]

    def work(self) -> None:
        """Launch the next piece of work; after the last one they come round again."""
        ticks = self.case["ticks"]
        self.now += self.case["launch"]
        self.idle_at = max(self.idle_at, self.now) + ticks[self.calls % len(ticks)]
        self.calls += 1
        if self.case["waits"]:
            self.synchronize()

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        self.now = max(self.now, self.idle_at)

    def clock(self) -> float:
        """Seconds."""
        self.readings += 1
        return self.now * TICK


def run(function, case: Case, device: torch.device) -> Answer:
    """The time returned, and how often the work was done."""
    machine = Machine(case)
    handed = map(plainly, (machine.work, machine.synchronize, machine.clock))
    returned = function(*handed, case["warmup"], case["repeats"])
    if not machine.readings:
        raise AnswerError(
            "The clock that your function was given was never read: call clock() for the time, not "
            "a different clock."
        )
    return {"seconds": as_number(returned, "the median time"), "calls": machine.calls}


def reference(work, synchronize, clock, warmup, repeats) -> float:
    """The course's own."""
    options = {"synchronize": synchronize, "clock": clock, "warmup": warmup, "repeats": repeats}
    return timing.median_time(work, **options)


def _measuring(
    combine: Callable[[list[float], int], float] = lambda times, _: statistics.median(times),
    *,
    before: str = "each",
    after: str = "each",
    count: Callable[[int, int], tuple[int, int]] = lambda warmup, repeats: (warmup, repeats),
    begin: str = "each",
) -> Callable[..., float]:
    """A loop over the calls, each piece of which can be wrong.

    Args:
        combine: The result from the counted times and the warm-up.
        before, after: Where the device is waited for: at each call, once, or never.
        count: Calls that are left out, and that are counted.
        begin: Whether the clock is read before each counted call, or once.
    """

    def measure(work, synchronize, clock, warmup, repeats):
        left_out, counted = count(warmup, repeats)
        for _ in range(left_out):
            work()
        if before == "once":
            synchronize()
        times, start = [], clock()
        for _ in range(counted):
            if before == "each":
                synchronize()
            if begin == "each":
                start = clock()
            work()
            if after == "each":
                synchronize()
            times.append(clock() - start)
        return combine(times, warmup)

    return measure


plain_loop = _measuring()
never_waits = _measuring(before="", after="")
waits_before_only = _measuring(after="")
waits_after_only = _measuring(before="")
waits_once_before = _measuring(before="once", after="")
mean_of_times = _measuring(lambda times, _: statistics.fmean(times))
fastest = _measuring(lambda times, _: min(times))
slowest = _measuring(lambda times, _: max(times))
total = _measuring(lambda times, _: sum(times))
last_time = _measuring(lambda times, _: times[-1])
lower_middle = _measuring(lambda times, _: torch.tensor(times).median().item())
upper_middle = _measuring(lambda times, _: sorted(times)[len(times) // 2])
unsorted_middle = _measuring(lambda times, _: times[len(times) // 2])
unsorted_middle_two = _measuring(
    lambda times, _: (times[(len(times) - 1) // 2] + times[len(times) // 2]) / 2
)
warm_up_counted = _measuring(count=lambda warmup, repeats: (0, warmup + repeats))
warm_up_skipped = _measuring(count=lambda warmup, repeats: (0, repeats))
warm_up_of_repeats = _measuring(
    lambda times, warmup: statistics.median(times[warmup:] or times)
    , count=lambda warmup, repeats: (0, repeats)
)  # fmt: skip
one_warm_up = _measuring(count=lambda warmup, repeats: (1, repeats))
at_least_one_warm_up = _measuring(count=lambda warmup, repeats: (max(warmup, 1), repeats))
one_repeat_less = _measuring(count=lambda warmup, repeats: (warmup, max(repeats - 1, 1)))
smallest_left_out = _measuring(
    lambda times, warmup: statistics.median(sorted(times)[warmup:]),
    count=lambda warmup, repeats: (0, warmup + repeats),
)
since_the_start = _measuring(before="once", begin="once")
milliseconds = _measuring(lambda times, _: 1000 * statistics.median(times))
trimmed_mean = _measuring(lambda times, _: statistics.fmean(sorted(times)[1:-1] or times))
largest_left_out = _measuring(
    lambda times, warmup: statistics.median(sorted(times)[: len(times) - warmup]),
    count=lambda warmup, repeats: (0, warmup + repeats),
)
end_left_out = _measuring(
    lambda times, warmup: statistics.median(times[: len(times) - warmup]),
    count=lambda warmup, repeats: (0, warmup + repeats),
)
one_warm_up_more = _measuring(count=lambda warmup, repeats: (warmup + 1, repeats))
rate = _measuring(lambda times, _: 1 / statistics.median(times))


def whole_divided(work, synchronize, clock, warmup, repeats):
    for _ in range(warmup):
        work()
    synchronize()
    start = clock()
    for _ in range(repeats):
        work()
    synchronize()
    return (clock() - start) / repeats


def whole_total(work, synchronize, clock, warmup, repeats):
    return repeats * whole_divided(work, synchronize, clock, warmup, repeats)


def waits_once_started(work, synchronize, clock, warmup, repeats):
    def waited_for():
        synchronize()
        work()

    return _measuring(before="")(waited_for, synchronize, clock, warmup, repeats)


def waits_in_the_warm_up(work, synchronize, clock, warmup, repeats):
    """Each call is followed by a wait, the first is preceded by none."""

    def waited_for():
        work()
        synchronize()

    for _ in range(warmup):
        waited_for()
    return waits_after_only(waited_for, synchronize, clock, 0, repeats)


def waits_before_the_warm_up(work, synchronize, clock, warmup, repeats):
    synchronize()
    return waits_after_only(work, synchronize, clock, warmup, repeats)


def waits_when_started(work, synchronize, clock, warmup, repeats):
    for _ in range(warmup):
        work()
    times = []
    for _ in range(repeats):
        start = clock()
        synchronize()
        work()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def rounded_readings(work, synchronize, clock, warmup, repeats):
    def rounded():
        return torch.tensor(clock())

    return _measuring()(work, synchronize, rounded, warmup, repeats)


def own_clock(work, synchronize, clock, warmup, repeats):
    import time

    return _measuring()(work, synchronize, time.perf_counter, warmup, repeats)


def by_numpy(work, synchronize, clock, warmup, repeats):
    times = np.empty(warmup + repeats)
    for i in range(warmup + repeats):
        synchronize()
        start = clock()
        work()
        synchronize()
        times[i] = clock() - start
    return np.median(times[warmup:])


def by_sorting(work, synchronize, clock, warmup, repeats):
    for _ in range(warmup):
        work()
    synchronize()
    times = []
    while len(times) < repeats:
        start = clock()
        work()
        synchronize()
        times.append(clock() - start)
    times.sort()
    return (times[(repeats - 1) // 2] + times[repeats // 2]) / 2


def from_readings(work, synchronize, clock, warmup, repeats):
    [work() for _ in range(warmup)]
    synchronize()
    readings = [clock()]
    for _ in range(repeats):
        work()
        synchronize()
        readings.append(clock())
    return torch.tensor(readings, dtype=torch.float64).diff().quantile(0.5)


EXERCISE = Exercise(
    id="03i.median-time",
    title="measure a call correctly",
    source="Engineering module, §5 and lab 5",
    ledger=("C34", "X27", "T40"),
    minutes=12,
    difficulty=2,
    read=("C34", "course.analysis.timing.time_in_turn"),
    hints=(
        "For each call that counts, do three things: make sure that nothing is running, read the "
        "clock, and read it again when this call's work is done.",
        "The device may be busy when your function starts. To which call would that time be added?",
        "Warm up; then, per repeat: synchronize, start = clock(), work(), synchronize, append "
        "clock() - start. Take the middle of the sorted times; if their number is even, the mean "
        "of the middle two.",
    ),
    signature="median_time(work, synchronize, clock, warmup, repeats)",
    parts=(
        Part(
            "median",
            "the median of an odd and an even number of repeats",
            points=1,
            fields=("seconds",),
        ),
        Part(
            "warmup", "a warm-up that does not count, slow or fast", points=1, fields=("seconds",)
        ),
        Part(
            "async",
            "a device that is still working when the call returns",
            points=1,
            fields=("seconds",),
        ),
        Part(
            "queued",
            "work left over from before, or from the warm-up",
            points=0.5,
            fields=("seconds",),
        ),
        Part("all", "everything at once, in warmup + repeats calls", points=0.5, cases=3),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={"seconds": "the median time, in seconds,", "calls": "the number of calls of work"},
    by_hand=(timing.median_time, timing.time_in_turn),
    wrong=(
        Wrong(
            "read-too-early",
            never_waits,
            "Only the launches were timed: after work() the clock was read before the device had "
            "finished. Call synchronize() before that reading.",
        ),
        Wrong("read-too-early", waits_once_before),
        Wrong("read-too-early", waits_before_only),
        Wrong(
            "waits-after-only",
            waits_after_only,
            "The time of the first repeat includes earlier work. Wait for the device before you "
            "start the clock.",
        ),
        Wrong(
            "waits-before-the-warm-up",
            waits_before_the_warm_up,
            "The time of the first repeat includes the warm-up, on which the device was still "
            "working when the clock was read. Call synchronize() after the warm-up too.",
        ),
        Wrong("waits-after-only", waits_once_started),
        Wrong("waits-after-only", waits_when_started),
        Wrong("waits-after-only", waits_in_the_warm_up, sure=True),
        Wrong(
            "mean",
            mean_of_times,
            "That is the mean of the repeats, which a single slow call changes. Take the median.",
        ),
        Wrong("mean", whole_divided),
        Wrong(
            "trimmed-mean",
            trimmed_mean,
            "That is the mean of the repeats without the fastest and the slowest. Take the median.",
        ),
        Wrong("fastest", fastest, "That is the fastest repeat. Take the median."),
        Wrong("slowest", slowest, "That is the slowest repeat. Take the median."),
        Wrong("total", total, "That is the sum of the repeats. Take their median."),
        Wrong("total", whole_total),
        Wrong("last-time", last_time),
        Wrong(
            "lower-middle",
            lower_middle,
            "For an even number of times you returned the lower of the middle two, as torch.median "
            "does. Take the mean of the two.",
        ),
        Wrong(
            "upper-middle",
            upper_middle,
            "For an even number of times you returned the upper of the middle two. Take the mean "
            "of the two.",
        ),
        Wrong(
            "unsorted-middle",
            unsorted_middle,
            "You returned the middle one in the order of measurement. Sort the times first.",
        ),
        Wrong("unsorted-middle", unsorted_middle_two),
        Wrong(
            "warm-up-counted",
            warm_up_counted,
            "The median is over all calls, including the warm-up. Use only the repeats.",
        ),
        Wrong(
            "first-calls",
            warm_up_skipped,
            "The median is over the first calls. Those are the warm-up: leave them out, and use "
            "the calls after them.",
        ),
        Wrong("first-calls", end_left_out),
        Wrong("first-calls", warm_up_of_repeats),
        Wrong("one-warm-up", one_warm_up),
        Wrong("at-least-one-warm-up", at_least_one_warm_up),
        Wrong("one-repeat-less", one_repeat_less),
        Wrong(
            "smallest-left-out",
            smallest_left_out,
            "The shortest times were left out. The warm-up is the first calls, in the order they "
            "were made.",
        ),
        Wrong(
            "largest-left-out",
            largest_left_out,
            "The longest times were left out. The warm-up is the first calls, however long they "
            "take.",
        ),
        Wrong("one-warm-up-more", one_warm_up_more),
        Wrong(
            "since-the-start",
            since_the_start,
            "Each time was measured from a single start, so it includes the repeats before it. "
            "Read the clock before each call.",
        ),
        Wrong("milliseconds", milliseconds, "That is in milliseconds; the clock gives seconds."),
        Wrong("rate", rate, "That is the inverse: calls per second."),
        Wrong("own-clock", own_clock),
        Wrong(
            "rounded-readings",
            rounded_readings,
            "A clock that starts from a large value was read in float32, which counts 1e9 seconds "
            "in steps of 64 or more. Subtract Python floats.",
            sure=True,
        ),
        *common(plain_loop, "returns-none", "returns-text"),
    ),
    right=(plain_loop, by_numpy, by_sorting, from_readings),
)
