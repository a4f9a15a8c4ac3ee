"""The meter reads known times, and the verdict is that of a loop whose times are known."""

from __future__ import annotations

import functools
import json
import time

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from course.data import throughput
from course.data.loading import InMemoryLoader, make_loader
from course.data.throughput import (
    LoaderSpeed,
    StepSpeed,
    is_waiting,
    measure_loader,
    measure_step,
    verdict,
)


def again_if_disturbed(test):
    """Ratios of real times: somebody else on the machine may spoil one look, hardly three."""

    @functools.wraps(test)
    def looks(*args, **kwargs):
        for _ in range(2):
            try:
                return test(*args, **kwargs)
            except AssertionError:
                time.sleep(1)
        return test(*args, **kwargs)

    return looks


class Slow(Dataset):
    """Each example takes `item_s`; the first of a pass `first_s` more."""

    def __init__(self, item_s, first_s=0.0, num=60):
        self.item_s, self.first_s, self.num = item_s, first_s, num

    def __getitem__(self, index):
        time.sleep(self.item_s + self.first_s * (index == 0))
        return torch.zeros(3), 0

    def __len__(self):
        return self.num


def resting(seconds):
    return lambda batch: time.sleep(seconds)


def test_rates_are_those_of_a_loader_whose_times_are_known():
    speed = measure_loader(DataLoader(Slow(1e-3, first_s=0.1), 4), num_batches=12, repeats=3)
    assert 4e-3 <= speed.seconds_per_batch <= 0.2
    assert speed.low <= speed.seconds_per_batch <= speed.high
    assert 0.104 <= speed.first_batch_s <= 3
    assert speed.pass_s >= 0.1 + 12 * 4e-3
    assert speed.examples_per_s == pytest.approx(4 * speed.batches_per_s)
    assert (speed.num_batches, speed.num_passes, speed.num_workers) == (12, 3, 0)
    assert "first batch after" in str(speed) and json.dumps(speed.to_json())


def test_only_batches_really_read_are_counted():
    """F97: a loader of 10 batches is not divided by 100."""
    speed = measure_loader(DataLoader(TensorDataset(torch.zeros(95, 2)), 10), num_batches=100)
    assert speed.num_batches == 10 and speed.examples_per_batch == 9.5
    one = measure_loader(DataLoader(Slow(5e-3, num=4), 4), repeats=1)
    assert one.num_batches == 1 and one.seconds_per_batch >= 0.02


@pytest.mark.parametrize(("batch", "expected"), [
    (torch.zeros(5, 2), 5),
    ([torch.zeros(5, 2), torch.zeros(3)], 5),
    ({"inputs": torch.zeros(6, 1)}, 6),
    ({"names": ["a", "b"], "x": torch.zeros(2)}, 2),
    (torch.tensor(1.0), 1),
    ("text", 1),
    (7, 1),
])  # fmt: skip
def test_examples_are_counted_in_any_batch(batch, expected):
    assert measure_loader([batch, batch], repeats=1).examples_per_batch == expected


def test_time_runs_out_but_never_before_the_first_pass():
    started = time.perf_counter()
    speed = measure_loader(DataLoader(Slow(1e-2), 4), num_batches=3, repeats=50, limit_s=0.2)
    assert 1 <= speed.num_passes < 5 and time.perf_counter() - started < 30
    assert measure_loader([1, 2], repeats=9, limit_s=0).num_passes == 1


def test_the_loader_is_left_where_it_was():
    data = TensorDataset(torch.randn(40, 3), torch.zeros(40))
    ours = make_loader(data, 4, shuffle=True, seed=3)
    ours.batch_sampler.set_position(2, 5)
    memory = InMemoryLoader(*data.tensors, 4, shuffle=True)
    memory.set_position(1, 3)
    own = torch.Generator().manual_seed(1)
    shuffled = DataLoader(data, 4, shuffle=True, generator=own)
    before = torch.get_rng_state(), own.get_state()
    for loader in (ours, memory, shuffled, DataLoader(data, 4, shuffle=True)):
        is_waiting(loader, lambda batch: torch.rand(3), repeats=1)
    assert (ours.batch_sampler.epoch, ours.batch_sampler.start) == (2, 5)
    assert (memory.epoch, memory.start) == (1, 3)
    assert torch.equal(torch.get_rng_state(), before[0]) and torch.equal(own.get_state(), before[1])


@pytest.mark.parametrize(("loader", "message"), [
    ([], "yields no batch"),
    (iter([1, 2]), "can be read only once"),
])  # fmt: skip
def test_what_cannot_be_measured_is_refused(loader, message):
    with pytest.raises(ValueError, match=message):
        measure_loader(loader)
    with pytest.raises(ValueError, match="num_batches = 0"):
        measure_loader([1], num_batches=0)


def test_a_step_is_timed_on_a_batch_that_lies_ready(device):
    weights = torch.zeros(4, 4, device=device)
    speed = measure_step(
        lambda batch: (batch[0] @ weights, time.sleep(5e-3)),
        [torch.zeros(8, 4), {"y": torch.zeros(8)}],
        device=device,
        num_steps=6,
    )
    assert 5e-3 <= speed.seconds_per_step < 1 and speed.num_steps == 6
    assert speed.copy_s == 0 if device.type == "cpu" else speed.copy_s > 0


@pytest.mark.parametrize(("item_s", "step_s", "waiting"), [
    (2e-3, 2e-3, True), (2e-4, 5e-2, False),
])  # fmt: skip
@again_if_disturbed
def test_the_verdict_is_that_of_the_times(item_s, step_s, waiting, monkeypatch):
    """Serial loading of 4 examples: the share without a step is 4 item / (4 item + step)."""
    monkeypatch.setattr("course.data.throughput._num_cores", lambda: 4)  # one core has no workers
    report = is_waiting(DataLoader(Slow(item_s), 4), resting(step_s), num_batches=8, repeats=3)
    expected = 4 * item_s / (4 * item_s + step_s)
    assert report.waiting is waiting
    assert report.share == pytest.approx(expected, abs=0.1)
    assert ("is waiting" in str(report)) is waiting and "loader alone" in report.evidence
    assert "num_workers=" in report.remedy if waiting else "the step itself" in report.remedy
    assert json.dumps(report.to_json()) and "First try" in report._repr_html_()


@pytest.mark.slow
@again_if_disturbed
def test_workers_that_load_meanwhile_take_the_waiting_away():
    """32 ms a batch beside a step of 30: half the time for one process, none for two that load."""
    data = Slow(8e-3, num=60)
    alone = is_waiting(DataLoader(data, 4), resting(30e-3), num_batches=15, repeats=2)
    helped = is_waiting(
        DataLoader(data, 4, num_workers=2, persistent_workers=True),
        resting(30e-3),
        num_batches=15,
        repeats=2,
    )
    assert alone.waiting and alone.share > 0.45
    assert helped.share < alone.share / 2 and helped.startup_share < 0.2


@pytest.mark.slow
@again_if_disturbed
def test_workers_started_anew_each_epoch_are_told_to_persist():
    loader = DataLoader(Slow(0.0, num=40), 4, num_workers=1)
    report = is_waiting(loader, resting(3e-3), repeats=2)
    assert report.waiting and report.startup_share > 0.3
    assert report.remedy.startswith("persistent_workers=True")


@again_if_disturbed
def test_rows_in_memory_are_told_to_stay_there():
    """F90: workers would only make it slower."""
    data = TensorDataset(torch.randn(2000, 64), torch.zeros(2000, dtype=torch.long))
    report = is_waiting(DataLoader(data, 64), lambda batch: batch[0].sum(), repeats=2)
    assert report.waiting and report.remedy.startswith("InMemoryLoader(")


def loader_speed(seconds, first=0.0, workers=0):
    return LoaderSpeed(
        seconds_per_batch=seconds, low=seconds, high=seconds, first_batch_s=first, pass_s=1.0,
        examples_per_batch=8, num_batches=50, num_passes=3, num_workers=workers,
    )  # fmt: skip


@pytest.mark.parametrize(("loader", "alone", "copy_s", "device", "remedy"), [
    ([0] * 50, loader_speed(0.04), 0.0, "cuda", "num_workers=4, persistent_workers=True instead"),
    ([0] * 50, loader_speed(0.04), 0.0, "cpu", "num_workers=4, persistent"),
    ([0] * 50, loader_speed(0.2), 0.0, "cuda", "num_workers=8, persistent"),
    ([0] * 50, loader_speed(0.2), 0.0, "cpu", "num_workers=7, persistent"),
    ([0] * 50, loader_speed(0.02, workers=2), 0.0, "cuda", "num_workers=4 instead of 2"),
    ([0] * 50, loader_speed(0.04, workers=8), 0.0, "cuda", "less work per example: 8 workers"),
    ([0] * 50, loader_speed(0.001), 0.05, "cuda", "pin_memory=True"),
    ([0] * 50, loader_speed(0.001, first=9.0), 0.0, "cuda", "do what the first batch does"),
])  # fmt: skip
def test_the_remedy_follows_the_symptom(loader, alone, copy_s, device, remedy, monkeypatch):
    """A step of 10 ms in a loop of 50, on a machine of 8 cores."""
    monkeypatch.setattr(throughput, "_num_cores", lambda: 8)
    step = StepSpeed(seconds_per_step=0.01, copy_s=copy_s, num_steps=9)
    report = verdict(loader, alone, step, 0.05, device)
    assert report.waiting and report.share == pytest.approx(0.8)
    assert report.remedy.startswith(remedy)


def test_models_and_optimizers_are_put_back():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def step(batch):
        model.train()
        nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()

    data = TensorDataset(torch.randn(32, 3), torch.randint(0, 2, (32,)))
    is_waiting(DataLoader(data, 8), step, restore=(model, optimizer), repeats=1)
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert not optimizer.state and not model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    is_waiting(DataLoader(data, 8), step, repeats=1)
    assert not torch.equal(model[0].weight, before["0.weight"])  # without restore, it trains on


def test_a_loader_of_unknown_length_is_measured():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(torch.zeros(50, 3))

    assert measure_loader(DataLoader(Stream(), 8), num_batches=100).num_batches == 7


@pytest.mark.gpu
def test_a_gpu_that_waits_is_seen():
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    weights = torch.randn(4096, 4096, device="cuda")

    def step(batch):
        rows = batch[0].to("cuda")
        for _ in range(2):
            weights @ weights
        return rows

    slow = is_waiting(DataLoader(Slow(5e-3), 8), step, device="cuda", num_batches=8, repeats=2)
    assert slow.waiting and slow.device == "cuda" and slow.step.copy_s > 0
    rows = torch.randn(4096, 3, device="cuda")
    fast = is_waiting(InMemoryLoader(rows, rows, 64), step, device="cuda", repeats=2)
    assert not fast.waiting, fast
