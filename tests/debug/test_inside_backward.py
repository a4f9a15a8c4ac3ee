"""Optimizers that step inside backward: their gradients are gone before anybody looks."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course.data import load
from course.data.loading import InMemoryLoader
from course.debug import diagnose

DIGITS = load("digits")


class Net(nn.Module):
    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.encoder, self.head, self.cut = nn.Linear(64, 32), nn.Linear(32, 10), cut

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        encoded = F.relu(self.encoder(inputs.flatten(1)))
        return self.head(encoded.detach() if self.cut else encoded)


def one_each(model: nn.Module, make) -> list:
    """As in torch's tutorial: an optimizer a parameter, stepped when its gradient is there."""
    optimizers = {parameter: make([parameter]) for parameter in model.parameters()}

    def step(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    return list(optimizers.values())


def by_hand(model: nn.Module, _make) -> torch.optim.Optimizer:
    """The update without an optimizer's step; the optimizer only holds the rate."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def step(parameter: torch.Tensor) -> None:
        with torch.no_grad():
            parameter.add_(parameter.grad, alpha=-optimizer.param_groups[0]["lr"])
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    return optimizer


def setup(arm, make, cut: bool) -> dict:
    torch.manual_seed(0)
    model, loss_fn = Net(cut), nn.CrossEntropyLoss()
    optimizer = arm(model, make)

    def train_step(batch) -> float:
        inputs, targets = batch
        loss = loss_fn(model(inputs), targets)
        loss.backward()  # and step, and clear
        return loss.item()

    loader = InMemoryLoader(DIGITS.train_inputs, DIGITS.train_targets, 64, shuffle=True)
    return {"model": model, "loss_fn": loss_fn, "optimizer": optimizer, "train_loader": loader,
            "train_step": train_step, "num_classes": 10}  # fmt: skip


ARMS = [
    (one_each, lambda held: torch.optim.SGD(held, lr=0.05)),
    (one_each, lambda held: torch.optim.Adam(held, lr=1e-3)),
    (by_hand, None),
]


@pytest.mark.parametrize("arm,make", ARMS, ids=["SGD", "Adam", "by hand"])
def test_a_sound_script_that_steps_inside_backward_raises_no_alarm(arm, make):
    given = setup(arm, make, cut=False)
    hooks = [
        (p._backward_hooks, p._post_accumulate_grad_hooks) for p in given["model"].parameters()
    ]
    report = diagnose(given)
    assert report.ok, str(report)
    after = [
        (p._backward_hooks, p._post_accumulate_grad_hooks) for p in given["model"].parameters()
    ]
    assert all(a[0] is b[0] and a[1] is b[1] for a, b in zip(hooks, after, strict=True))


@pytest.mark.parametrize("arm,make", ARMS, ids=["SGD", "Adam", "by hand"])
def test_a_cut_graph_is_found_there_too(arm, make):
    report = diagnose(setup(arm, make, cut=True))
    assert [finding.id for finding in report.alarms] == ["frozen-params"], str(report)
    assert report.alarms[0].evidence == {"without_gradient": 2, "first": "encoder.weight"}
