"""Signals and dead units are those that torch computes by itself; nothing is left behind."""

import pytest
import torch
from torch import nn

from autograde.bank.harness import Watch
from course.debug.signals import dead_units, read_signals
from course.from_scratch.deep import DeepNet, Layer


@pytest.fixture
def model():
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=True))
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), inner, nn.Dropout(0.5), nn.Linear(6, 3))


BATCH = torch.randn(16, 4, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 3


def test_outputs_and_gradients_are_those_of_a_pass_by_hand():
    torch.manual_seed(0)
    first, second = nn.Linear(4, 5), nn.Linear(5, 3)
    model = nn.Sequential(first, nn.ReLU(inplace=True), second)
    inputs, targets = BATCH
    found = read_signals(model, inputs, targets, nn.functional.cross_entropy)
    hidden = first(inputs)
    hidden.retain_grad()
    logits = second(hidden.relu())
    logits.retain_grad()
    nn.functional.cross_entropy(logits, targets).backward()
    assert [(layer.name, layer.kind) for layer in found] == [("0", "Linear"), ("2", "Linear")]
    for layer, made in zip(found, (hidden, logits), strict=True):
        torch.testing.assert_close(layer.output, made.detach())
        torch.testing.assert_close(layer.gradient, made.grad)
        assert layer.std == pytest.approx(made.std(correction=0).item(), rel=1e-5)
        assert layer.grad_std == pytest.approx(made.grad.std(correction=0).item(), rel=1e-5)


def test_nothing_is_left_behind(model):
    model.train()
    model[2].eval()
    watch = Watch(model, data=BATCH)
    with torch.no_grad():
        read_signals(model, *BATCH, nn.CrossEntropyLoss())
    dead_units(model, [BATCH])
    assert watch.changed(frozenset({"random"})) == []  # dropout draws in train mode
    with pytest.raises(RuntimeError):
        read_signals(model, torch.zeros(2, 5), BATCH[1], nn.CrossEntropyLoss())
    assert watch.changed(frozenset({"random"})) == []


def test_a_share_of_zeros_is_that_of_a_relu():
    signal = read_signals(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), *BATCH,
                          nn.CrossEntropyLoss(), kinds=(nn.ReLU,))[0]  # fmt: skip
    assert signal.zeros == (signal.output == 0).double().mean().item() > 0


def test_dead_units_are_counted_over_all_batches_and_by_channel(model):
    inputs, targets = BATCH
    with torch.no_grad():
        model[0].bias[:3] = -100.0
    outputs = model[0](inputs).relu()
    halves = [(inputs[:8], targets[:8]), (inputs[8:], targets[8:])]
    counts = dead_units(model, halves)
    assert counts["1"] == (outputs.amax(dim=0) == 0).sum().item() >= 3
    assert list(counts) == ["1", "2.2"]
    images = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU())
    with torch.no_grad():
        images[0].bias.copy_(torch.tensor([-100.0, 100.0, -100.0]))
    assert dead_units(images, [(torch.rand(2, 1, 5, 5), None)]) == {"1": 2}
    assert dead_units(nn.Linear(4, 2), [BATCH]) == {}


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize("residual", [False, True])
def test_a_deep_network_has_as_many_layers_as_it_says(norm, residual):
    model = DeepNet(4, 3, width=8, depth=5, norm=norm, residual=residual)
    assert sum(isinstance(layer, Layer) for layer in model) == 5
    assert model(BATCH[0]).shape == (16, 3)
    layer, x = model[2].eval(), torch.randn(6, 8)
    out = layer.norm(layer.linear(x)).relu()
    torch.testing.assert_close(layer(x), x + out if residual else out)


def test_an_unknown_activation_or_norm_is_named():
    with pytest.raises(ValueError, match="'rellu': expected one of relu, tanh"):
        DeepNet(4, 3, activation="rellu")
    with pytest.raises(ValueError, match="norm = 'group'"):
        DeepNet(4, 3, norm="group")
