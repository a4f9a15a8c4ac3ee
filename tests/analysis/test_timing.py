"""Timing counts what was repeated, in turn, and reads the clock when the device has finished."""

import statistics

import pytest
import torch

from course.analysis.timing import median_time, time_in_turn, waiter


class Bench:
    """A clock and a device whose work is queued: it takes its time when it is waited for."""

    def __init__(self):
        self.now, self.queued, self.called = 100.0, 0.0, []

    def work(self, name, seconds):
        seconds = iter(seconds)

        def call():
            self.called.append(name)
            self.queued += next(seconds)

        return call

    def synchronize(self):
        self.now, self.queued = self.now + self.queued, 0.0

    def clock(self):
        return self.now


def test_the_median_of_the_repeats_leaves_out_the_warm_up():
    bench = Bench()
    seconds = [90.0, 7.0, 1.0, 2.0, 50.0, 3.0, 4.0]
    (timing,) = time_in_turn(
        {"a": bench.work("a", seconds)},
        warmup=2, repeats=5, synchronize=bench.synchronize, clock=bench.clock,
    ).values()  # fmt: skip
    assert timing.times == (1.0, 2.0, 50.0, 3.0, 4.0) and timing.first == 90.0
    assert (timing.median, timing.low, timing.high) == (3.0, 1.0, 50.0)
    assert timing.median == statistics.median(seconds[2:])
    assert "3e+03 ms (1e+03 to 5e+04 ms over 5 calls; the first 9e+04 ms)" in str(timing)


def test_work_queued_before_is_not_counted():
    bench = Bench()
    bench.queued = 1000.0
    options = {"synchronize": bench.synchronize, "clock": bench.clock}
    assert median_time(bench.work("a", [2.0]), warmup=0, repeats=1, **options) == 2.0
    assert median_time(bench.work("a", [2.0] * 4), warmup=1, repeats=3, **options) == 2.0
    without = median_time(bench.work("a", [2.0] * 4), repeats=3, clock=bench.clock)
    assert without == 0.0  # nobody waited


def test_candidates_take_turns():
    bench = Bench()
    works = {name: bench.work(name, [1.0] * 3) for name in "ab"}
    time_in_turn(works, warmup=1, repeats=2, synchronize=bench.synchronize, clock=bench.clock)
    assert "".join(bench.called) == "ababab"


@pytest.mark.parametrize("options", [{"repeats": 0}, {"warmup": -1}])
def test_counts_that_measure_nothing_are_refused(options):
    with pytest.raises(ValueError, match="repeats must be at least 1"):
        median_time(lambda: None, **options)


def test_on_the_cpu_there_is_nothing_to_wait_for(device):
    assert waiter("cpu")() is None
    product = torch.ones(8, 8, device=device)
    assert median_time(lambda: product @ product, repeats=3, synchronize=waiter(device)) > 0
