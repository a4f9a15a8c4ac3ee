"""The stand-in for a GPU: it computes what the CPU computes, and has an accelerator's manners."""

import copy
import io

import numpy as np
import pytest
import torch
from torch import nn

from tests.second_device import counted, second_device


@pytest.fixture
def second():
    with second_device() as device:
        yield device


NETWORKS = {
    "mlp with BatchNorm": (
        lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)),
        (6, 4),
    ),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 3)),
        (6, 1, 8, 8),
    ),
    "GRU": (lambda: nn.GRU(4, 3, batch_first=True), (6, 5, 4)),
    "LSTM": (lambda: nn.LSTM(4, 3, batch_first=True), (6, 5, 4)),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        (6, 5, 4),
    ),
}
EXACT = {"mlp with BatchNorm", "convolution"}
"""The others take an accelerator's path through torch: other operators, so another last bit."""


@pytest.mark.parametrize("name", NETWORKS)
def test_forward_and_backward_are_the_cpus(name, second):
    build, shape = NETWORKS[name]
    ours, inputs = build(), torch.randn(shape)
    theirs = copy.deepcopy(ours).to(second)
    for model, x in ((ours, inputs), (theirs, inputs.to(second))):
        outputs = model(x)
        (outputs[0] if isinstance(outputs, tuple) else outputs).square().sum().backward()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert b.grad.device == second
        rtol, atol = (0, 0) if name in EXACT else (1e-4, 1e-5)
        torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=rtol, atol=atol)


def test_it_does_not_mix_with_the_cpu(second):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(2, device=second) + torch.ones(2)
    assert (torch.ones(2, device=second) + torch.tensor(1.0)).tolist() == [2.0, 2.0]


def test_numpy_is_refused(second):
    for read in (lambda t: t.numpy(), np.asarray):
        with pytest.raises(TypeError, match="can't convert second_device:0 device type tensor"):
            read(torch.ones(2, device=second))


def test_it_draws_from_a_generator_of_its_own(second):
    torch.manual_seed(0)
    first = torch.randn(3, device=second).cpu()
    on_the_cpu = torch.randn(3)
    torch.manual_seed(0)
    assert torch.equal(torch.randn(3), on_the_cpu)
    assert torch.equal(torch.randn(3, device=second).cpu(), first)


def test_a_module_gets_new_parameters_when_it_moves(second):
    layer = nn.Linear(2, 2)
    weight = layer.weight
    assert layer.to(second).weight is not weight


def test_what_is_saved_comes_back_where_it_was_or_on_the_cpu(second):
    file = io.BytesIO()
    torch.save({"w": torch.arange(3.0, device=second)}, file)
    for where, kind in ((None, second.type), ("cpu", "cpu")):
        file.seek(0)
        found = torch.load(file, weights_only=True, map_location=where)["w"]
        assert found.device.type == kind and found.tolist() == [0.0, 1.0, 2.0]


def test_transfers_and_waits_are_counted(second):
    with counted() as counts:
        x = torch.ones(3).to(second)
        y = (x * 2).sum()
        assert (counts.to_device, counts.to_cpu, counts.waits) == (1, 0, 0)
        y.item()
        x.cpu()
        x.nonzero()
    assert (counts.to_device, counts.to_cpu, counts.waits) == (1, 1, 2)


def test_it_is_gone_outside():
    with second_device():
        assert torch.accelerator.is_available()
    if not torch.cuda.is_available():
        assert not torch.accelerator.is_available()
