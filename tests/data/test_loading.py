"""Loaders: the same batches from memory and from a DataLoader, with any number of workers."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from course.data import loading
from course.data.loading import Augmented, InMemoryLoader, keyed_randomness, make_loader

INPUTS = torch.arange(40.0).reshape(20, 2)
TARGETS = torch.arange(20)
DATA = TensorDataset(INPUTS, TARGETS)


def as_lists(batches) -> list:
    return [(inputs.tolist(), targets.tolist()) for inputs, targets in batches]


def noise(inputs):
    """Draws from each of the three global generators."""
    return inputs + torch.rand(()) + np.random.rand() + random.random()


@settings(max_examples=25, deadline=None)
@given(
    batch_size=st.integers(2, 9),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    num_ranks=st.integers(1, 2),
    gather_bytes=st.sampled_from([1, 100, 2**20]),
    start=st.integers(0, 2),
)
def test_memory_and_dataloader_give_the_same_batches(
    batch_size, shuffle, drop_last, num_ranks, gather_bytes, start
):
    if 20 % batch_size == 1 and num_ranks == 2 and not drop_last:
        return  # refused by both; see test_sampling
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "GATHER_BYTES", gather_bytes)
        options = {"shuffle": shuffle, "seed": 2, "drop_last": drop_last, "num_ranks": num_ranks}
        for rank in range(num_ranks):
            memory = InMemoryLoader(INPUTS, TARGETS, batch_size, rank=rank, **options)
            loader = make_loader(DATA, batch_size, rank=rank, **options)
            memory.set_position(3, start)
            loader.batch_sampler.set_position(3, start)
            assert as_lists(memory) == as_lists(loader)
            assert as_lists(memory) == as_lists(loader)  # the next epoch
            assert len(memory) == len(loader)


@pytest.mark.slow
def test_augmentation_is_the_same_with_any_number_of_workers():
    found = []
    for workers, more in ((0, {}), (1, {}), (2, {"persistent_workers": True})):
        loader = make_loader(
            DATA, 4, shuffle=True, seed=1, augment=noise, num_workers=workers, **more
        )
        found.append([as_lists(loader) for _ in range(2)])
    assert found[0] == found[1] == found[2]
    assert found[0][0] != found[0][1]


def test_augmentation_differs_by_epoch_index_and_seed_only():
    data = Augmented(DATA, noise, seed=1)
    draws = {
        (seed, epoch, index): (Augmented(DATA, noise, seed=seed)[epoch, index][0] - INPUTS[index])
        for seed in (1, 2)
        for epoch in (0, 1)
        for index in (0, 1)
    }
    assert len({tuple(draw.tolist()) for draw in draws.values()}) == 8
    torch.rand(3)
    assert torch.equal(data[1, 1][0], data[1, 1][0])
    assert torch.equal(data[0, 1][0], data[1][0])
    assert len(data) == 20


def test_keyed_randomness_leaves_the_global_generators_alone():
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    expected = torch.rand(1), np.random.rand(), random.random()
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    with pytest.raises(RuntimeError), keyed_randomness(1, 2, 3):
        torch.rand(5), np.random.rand(5), random.random()
        raise RuntimeError
    assert (torch.rand(1), np.random.rand(), random.random()) == expected


def test_loading_draws_nothing_from_the_global_generator():
    """F86: an extra pass over the data must not change dropout."""
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    for loader in (
        make_loader(DATA, 4, shuffle=True, augment=noise),
        InMemoryLoader(INPUTS, TARGETS, 4, shuffle=True),
    ):
        list(loader)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (INPUTS, TARGETS[:5], "20 inputs and 5 targets"),
        (INPUTS[:0], TARGETS[:0], "empty"),
        (INPUTS, TARGETS.to("meta"), "inputs on cpu, targets on meta"),
    ],
)
def test_tensors_that_do_not_belong_together_are_refused(inputs, targets, message):
    with pytest.raises(ValueError, match=message):
        InMemoryLoader(inputs, targets, 4)


def test_batches_lie_where_the_tensors_lie(device):
    loader = InMemoryLoader(INPUTS.to(device), TARGETS.to(device), 4, shuffle=True)
    for inputs, targets in loader:
        assert inputs.device.type == targets.device.type == device.type


class Rows(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return {"x": INPUTS[index], "y": TARGETS[index]}


class Endless(IterableDataset):
    def __iter__(self):
        yield INPUTS[0], TARGETS[0]


@pytest.mark.parametrize(("make", "says"), [
    (lambda: make_loader(Endless(), 10), "Endless without a length.*DataLoader"),
    (lambda: make_loader((INPUTS, TARGETS), 10), "tuple of 2 tensors.*TensorDataset"),
    (lambda: next(iter(make_loader(Rows(), 2, augment=noise))), "an example is a dict, but"),
], ids=["no length", "tensors", "named parts"])  # fmt: skip
def test_what_cannot_be_loaded_is_said(make, says):
    with pytest.raises(ValueError, match=says):
        make()
