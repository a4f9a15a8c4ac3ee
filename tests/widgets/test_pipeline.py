"""The timeline against a clock that ticks, a closed form, and torch's own DataLoader."""

import itertools
import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from course.analysis.overlap import seconds_per_batch
from course.analysis.timeline import epoch_time, timeline
from course.widgets.pipeline.state import SHOWN, Settings, frame

TIMES = [(30, 10), (10, 30), (20, 20), (7, 3), (5, 80), (80, 5)]


def ticked(loads: list[int], step: int, num_workers: int, prefetch_factor: int) -> list[int]:
    """When each batch is taken, found by letting a clock tick, with queues as torch has them."""
    queues = [[] for _ in range(num_workers)]
    busy = [None] * num_workers  # (batch, ends at)
    asked = min(num_workers * prefetch_factor, len(loads))
    for batch in range(asked):
        queues[batch % num_workers].append(batch)
    ready, taken, model_free = set(), [], 0
    for now in itertools.count():
        while True:
            moved = False
            for worker, queue in enumerate(queues):
                if busy[worker] and busy[worker][1] == now:
                    ready.add(busy[worker][0])
                    busy[worker], moved = None, True
                if busy[worker] is None and queue:
                    batch = queue.pop(0)
                    busy[worker], moved = (batch, now + loads[batch]), True
            if len(taken) in ready and model_free <= now:
                taken.append(now)
                model_free, moved = now + step, True
                if asked < len(loads):
                    queues[asked % num_workers].append(asked)
                    asked += 1
            if len(taken) == len(loads):
                return taken
            if not moved:
                break


@pytest.mark.parametrize("prefetch_factor", [1, 2, 4])
@pytest.mark.parametrize("num_workers", [1, 2, 3, 4])
def test_the_timeline_is_that_of_a_ticking_clock(num_workers, prefetch_factor):
    drawn = torch.Generator().manual_seed(num_workers)
    for step in (3, 9):
        loads = torch.randint(1, 30, (24,), generator=drawn).tolist()
        played = timeline(loads, step, num_workers=num_workers, prefetch_factor=prefetch_factor)
        assert [one.step_start for one in played] == ticked(
            loads, step, num_workers, prefetch_factor
        )


@pytest.mark.parametrize(("load", "step"), TIMES)
def test_the_closed_form_is_the_played_epoch(load, step):
    for num_workers, prefetch, count in itertools.product(range(5), (1, 2, 4), (1, 2, 7, 40)):
        played = timeline([load] * count, step, num_workers=num_workers, prefetch_factor=prefetch)
        assert played[-1].step_end == epoch_time(count, load, step, num_workers)


@pytest.mark.parametrize(("load", "step"), TIMES)
def test_in_the_long_run_a_batch_takes_what_the_slower_side_takes(load, step):
    for num_workers in range(5):
        a_batch = epoch_time(100_000, load, step, num_workers) / 100_000
        assert a_batch == pytest.approx(seconds_per_batch(load, step, num_workers), rel=1e-3)


class Slow(Dataset):
    """Says which worker fetched, and when."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.tensor([get_worker_info().id, time.perf_counter()], dtype=torch.float64)


def test_a_real_loader_deals_batches_to_workers_in_turn_and_loads_that_many_ahead():
    num_workers, prefetch = 2, 2
    rows = iter(DataLoader(Slow(), 1, num_workers=num_workers, prefetch_factor=prefetch))
    got = [next(rows)]
    time.sleep(0.25)  # the model computes; the workers load what they were asked for
    later = time.perf_counter()
    got += list(rows)
    played = timeline([4] * 8, 250, num_workers=num_workers, prefetch_factor=prefetch)
    assert [int(row[0, 0]) for row in got] == [one.worker for one in played]
    ahead = sum(one.load_end < played[0].step_end for one in played)
    assert sum(row[0, 1].item() < later for row in got) == ahead == num_workers * prefetch + 1


def test_idle_gaps_and_work_make_up_the_time_of_the_model():
    for settings in (Settings(), Settings(num_workers=2, slow_factor=8), Settings(num_workers=4)):
        shown = frame(settings)
        gaps = sum(end - start for start, end in shown["gaps"])
        assert gaps + SHOWN * settings.step_ms == pytest.approx(shown["steps"][-1][1])


def test_who_waits_turns_where_the_workers_are_enough():
    waits = [frame(Settings(num_workers=n))["waits"] for n in range(5)]
    assert waits == ["both, in turn", "the model", "the model", "nobody", "the workers"]
    assert frame(Settings())["enough"] == 3


def test_loading_ahead_helps_where_one_batch_is_slow_and_only_there():
    def epoch(slow, ahead):
        return frame(Settings(num_workers=4, slow_factor=slow, prefetch_factor=ahead))["now"][
            "epoch_s"
        ]

    assert epoch(1, 1) == epoch(1, 4)
    assert epoch(8, 4) < 0.5 * epoch(8, 1)


def test_the_road_hands_on_what_a_loader_gives():
    gives = {stage["name"]: stage["gives"] for stage in frame(Settings())["stages"]}
    assert gives["collate"] == "inputs [4, 1, 8, 8], targets [4]"
    assert gives["model"] == "logits [4, 10]"
