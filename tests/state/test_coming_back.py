"""Whatever is done inside, everything is afterwards as it was, also after an exception."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from course.data import make_loader
from course.state import (
    Snapshot,
    evaluation_mode,
    fresh_settings,
    kept,
    left_as_found,
    modes_kept,
    on_the_cpu,
    seed_everything,
)


def draws() -> tuple:
    return torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()


def model() -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout())
    net[1].eval()
    return net


def test_a_model_an_optimizer_and_a_closure_come_back_bit_for_bit():
    net, counter = model(), {"steps": 0}
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    own = np.random.default_rng(3)

    def step() -> None:
        counter["steps"] += 1
        optimizer.zero_grad()
        net(torch.randn(4, 3) + own.random()).sum().backward()
        optimizer.step()
        net[0] = nn.Linear(3, 3)

    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    linear, expected = net[0], (own.bit_generator.state, torch.get_rng_state())
    with pytest.raises(KeyError), kept(net, optimizer, step):
        step()
        raise KeyError
    assert counter == {"steps": 0} and not optimizer.state and net[0] is linear
    assert own.bit_generator.state == expected[0] and torch.equal(
        torch.get_rng_state(), expected[1]
    )
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, before[name])


LYING = {
    "whole words": lambda: torch.zeros(4),
    "half a word left over": lambda: torch.zeros(5),
    "less than a word": lambda: torch.zeros(3, dtype=torch.int16),
    "from the middle of a word": lambda: torch.zeros(10)[1:],
    "turned": lambda: torch.zeros(3, 5).T,
    "every other": lambda: torch.zeros(20)[::2],
    "complex": lambda: torch.zeros(3, dtype=torch.complex64),
    "complex and turned": lambda: torch.zeros(3, 2, dtype=torch.complex64).T,
    "truth": lambda: torch.zeros(9, dtype=torch.bool),
    "a number": lambda: torch.zeros(()),
    "nothing": lambda: torch.zeros(0, 3),
}
"""Tensors that lie in memory in different ways."""


@pytest.mark.parametrize("make", LYING.values(), ids=LYING)
def test_each_byte_comes_back_however_a_tensor_lies_in_memory(make):
    """Also a sign of 0, and from nan; the first, the last and one in between."""
    tensor = make()
    snapshot, before = Snapshot([tensor]), tensor.clone()
    for place in {0, tensor.numel() // 2, max(0, tensor.numel() - 1)} if tensor.numel() else ():
        for value in (1, -0.0, *([float("nan")] * tensor.is_floating_point())):
            index = torch.unravel_index(torch.tensor(place), tensor.shape) if tensor.dim() else ()
            tensor[index] = value
            snapshot.restore()
            assert torch.equal(tensor, before)
            assert tensor.dtype.is_complex or not bool(torch.signbit(tensor).any())


@pytest.mark.parametrize("make", [
    lambda: torch.Generator().manual_seed(1), lambda: random.Random(1),
    lambda: np.random.default_rng(1), lambda: np.random.RandomState(1),
], ids=["torch", "Python", "NumPy", "RandomState"])  # fmt: skip
def test_a_snapshot_rewinds_every_kind_of_generator_as_often_as_asked(make):
    generator = make()

    def draw() -> float:
        if isinstance(generator, torch.Generator):
            return torch.rand((), generator=generator).item()
        return generator.random()

    snapshot = Snapshot({"held": [generator]})
    first = draw()
    for _ in range(2):
        snapshot.restore()
        assert draw() == first


def test_only_read_data_are_not_copied_but_their_generators_come_back():
    class Data:
        def __init__(self) -> None:
            self.rows, self.generator = torch.zeros(3), torch.Generator().manual_seed(1)

    data = Data()
    snapshot = Snapshot(only_read=[data])
    first = torch.rand((), generator=data.generator)
    data.rows.add_(1)
    snapshot.restore()
    assert torch.equal(torch.rand((), generator=data.generator), first)
    assert data.rows.tolist() == [1, 1, 1]  # read only, by promise: no copy was kept


def test_modes_come_back_module_by_module():
    net = model()
    modes = [module.training for module in net.modules()]
    with evaluation_mode(net):
        assert not any(module.training for module in net.modules())
        assert not torch.is_grad_enabled()
    assert [module.training for module in net.modules()] == modes and torch.is_grad_enabled()
    with pytest.raises(KeyError), modes_kept(net):
        net.train()
        raise KeyError
    assert [module.training for module in net.modules()] == modes


DATA = TensorDataset(torch.arange(12.0))


@pytest.mark.parametrize("make", [
    lambda: make_loader(DATA, 4, shuffle=True, seed=1),
    lambda: DataLoader(DATA, 4, shuffle=True, generator=torch.Generator().manual_seed(1)),
    lambda: DataLoader(DATA, 4, sampler=RandomSampler(DATA)),
], ids=["keyed", "own generator", "global generator"])  # fmt: skip
def test_a_loader_that_was_looked_at_gives_what_it_would_have_given(make):
    def order(*, looked_at: bool) -> tuple:
        seed_everything(0)
        loader = make()
        if looked_at:
            with left_as_found(loader):
                list(loader), draws()
        return [batch[0].tolist() for batch in loader], draws()

    assert order(looked_at=True) == order(looked_at=False)


def settings() -> tuple:
    return (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
    )


class Float64:
    def __enter__(self) -> None:
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *_) -> None:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("set_by_hand", [
    Float64, torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16),
], ids=["float64", "no_grad", "inference_mode", "autocast"])  # fmt: skip
def test_torch_is_as_in_a_new_process_and_then_as_it_was(set_by_hand):
    with set_by_hand():
        before = settings()
        with fresh_settings():
            assert settings() == (torch.float32, True, False, False)
        assert settings() == before
        with pytest.raises(KeyError), fresh_settings():
            raise KeyError
        assert settings() == before


def test_new_tensors_lie_on_the_cpu_whatever_default_device_is_set():
    with torch.device("meta"):
        with on_the_cpu():
            assert torch.ones(1).item() == 1.0
        assert torch.ones(1).is_meta
    with on_the_cpu():
        assert torch.ones(1).device.type == "cpu"
