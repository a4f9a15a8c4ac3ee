"""The stand-in for a GPU: it computes what the CPU computes, and has an accelerator's manners."""

import copy
import io

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

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


def test_indices_may_lie_on_the_cpu_and_values_may_not(second):
    x = torch.zeros(4, device=second)
    x[torch.tensor([0, 2])] = torch.ones(2, device=second)
    x[[3]] = 2.0
    assert x.tolist() == [1.0, 0.0, 1.0, 2.0] and x[[0, 3]].tolist() == [1.0, 2.0]
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x[torch.tensor([0, 2])] = torch.ones(2)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.zeros(4)[torch.tensor([0, 2], device=second)]


MAKERS = {
    "arange": lambda: torch.arange(1, 7, 2),
    "eye": lambda: torch.eye(2, 3),
    "linspace": lambda: torch.linspace(0, 1, 4),
    "randperm": lambda: torch.randperm(5).sort().values,
    "tensor": lambda: torch.tensor([1.0, 2.0], requires_grad=True),
    "tril_indices": lambda: torch.tril_indices(3, 3),
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_made_there_has_its_shape(name, second):
    with torch.device(second):
        made = MAKERS[name]()
    expected = MAKERS[name]()
    assert made.device == second and made.shape == expected.shape
    assert made.tolist() == expected.tolist() and made.requires_grad == expected.requires_grad


def test_a_change_of_dtype_keeps_the_parameters_and_computes_in_it(second):
    layer = nn.Linear(3, 2).to(second)
    weight = layer.weight
    assert layer.double().weight is weight
    assert layer(torch.ones(4, 3, dtype=torch.float64, device=second)).dtype == torch.float64


def test_a_loader_that_pins_its_batches_gives_them(second):
    loader = DataLoader(TensorDataset(torch.arange(4.0)), 2, pin_memory=True)
    assert [batch.to(second).tolist() for (batch,) in loader] == [[0.0, 1.0], [2.0, 3.0]]


def test_views_lie_where_their_tensor_does(second):
    x = torch.arange(6.0, device=second)
    storage = x.view(2, 3)[1].untyped_storage()
    assert storage.data_ptr() == x.untyped_storage().data_ptr() and storage.nbytes() == 24
    assert x.clone().data_ptr() != x.data_ptr()


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


def test_views_under_inference_mode_are_what_their_tensor_is(second):
    """The oracle is the CPU: a view of a weight can still be trained, one of a result cannot."""
    for place in (second, torch.device("cpu")):
        weight = torch.ones(2, 3, device=place, requires_grad=True)
        with torch.inference_mode():
            view, result = weight.t(), weight.t() + 1.0
            part = result[1:]
            part.add_(1.0)
        assert [t.is_inference() for t in (view, result, part)] == [False, True, True]
        assert result.tolist() == [[2.0, 2.0], [3.0, 3.0], [3.0, 3.0]]
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            weight.t() * result


def test_it_is_gone_outside():
    with second_device():
        assert torch.accelerator.is_available()
    if not torch.cuda.is_available():
        assert not torch.accelerator.is_available()
