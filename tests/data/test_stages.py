"""Stages of known length are measured, and the batches walked through are the loader's own."""

from __future__ import annotations

import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from course.data.stages import STAGES, time_stages


class Slow(Dataset):
    """Each example takes `item_s`."""

    def __init__(self, item_s=0.0, num=40):
        self.item_s, self.num = item_s, num

    def __getitem__(self, index):
        time.sleep(self.item_s)
        return torch.full((2,), float(index)), index

    def __len__(self):
        return self.num


def slowly(examples):
    time.sleep(0.01)
    return default_collate(examples)


@pytest.mark.parametrize(
    ("dataset", "options", "step", "stage"),
    [
        (Slow(2e-3), {}, None, "items"),
        (Slow(), {"collate_fn": slowly}, None, "collate"),
        (Slow(), {}, lambda batch: time.sleep(0.01), "step"),
    ],
)
def test_the_stage_that_sleeps_is_the_slowest(dataset, options, step, stage):
    times = time_stages(DataLoader(dataset, 5, **options), step)
    assert times.slowest == stage and getattr(times, stage) >= 0.01
    assert times.num_batches == 7  # of 8, the first is not counted
    assert times.loading == times.sampler + times.items + times.collate
    assert all(word in str(times) for word in STAGES) and "ms per batch" in str(times)


def test_the_batches_are_the_loaders_own_and_it_is_left_as_it_was():
    def loader():
        generator = torch.Generator().manual_seed(3)
        return DataLoader(Slow(), 6, shuffle=True, generator=generator)

    seen = []
    walked, plain = loader(), loader()
    state = torch.get_rng_state(), walked.generator.get_state()
    times = time_stages(walked, lambda batch: seen.append(batch[1]))
    assert times.num_batches == 6 and sorted(torch.cat(seen).tolist()) == list(range(40))
    assert torch.equal(torch.get_rng_state(), state[0])
    assert torch.equal(walked.generator.get_state(), state[1])
    for a, b in zip(walked, plain, strict=True):
        assert torch.equal(a[1], b[1])


def test_a_dataset_that_fetches_many_at_once_is_asked_to():
    asked = []

    class Many(TensorDataset):
        def __getitems__(self, rows):
            asked.append(rows)
            return [self[row] for row in rows]

    time_stages(DataLoader(Many(torch.zeros(9, 2)), 3), num_batches=2)
    assert asked == [[0, 1, 2], [3, 4, 5]]


def test_what_cannot_be_timed_is_said():
    class Stream(IterableDataset):
        def __iter__(self):
            yield 1

    with pytest.raises(ValueError, match="num_workers = 2"):
        time_stages(DataLoader(Slow(), 5, num_workers=2))
    with pytest.raises(ValueError, match="stream"):
        time_stages(DataLoader(Stream()))
    with pytest.raises(ValueError, match="fewer than two batches"):
        time_stages(DataLoader(Slow(num=4), 5))
