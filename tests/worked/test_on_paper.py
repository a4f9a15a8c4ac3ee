"""The step by arithmetic, against torch; each slip against what it says."""

import pytest
import torch
from torch import nn

from course.worked.one_step import on_paper

INPUTS = (0.4, -0.5, 0.6, 0.3, 2.0, 3.0, 1.0, -2.0, 0.02)


def by_torch(a, b, c, d, x, z, t, u, lr, reduction="mean", train_bias=True):
    layer = nn.Linear(2, 2, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[a, b], [c, d]]))
        layer.bias.zero_()
    layer.bias.requires_grad_(train_bias)
    criterion, optimizer = nn.MSELoss(reduction=reduction), torch.optim.SGD(layer.parameters(), lr)
    inputs, targets = torch.tensor([x, z]).double(), torch.tensor([t, u]).double()
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = criterion(layer(inputs), targets)
        losses.append(loss.item())
        loss.backward()
        grad, weight = layer.weight.grad[0, 1].item(), layer.weight[0, 1].item()
        optimizer.step()
        if len(losses) == 1:
            first, after = grad, layer.weight[0, 1].item()
    assert weight == after
    return {"loss": losses[0], "grad": first, "weight": after, "second": losses[1]}


def test_the_arithmetic_is_that_of_torch():
    assert on_paper(*INPUTS) == pytest.approx(by_torch(*INPUTS))


def test_the_slips_are_what_they_are_called():
    assert on_paper(*INPUTS, of=2.0) == pytest.approx(by_torch(*INPUTS, reduction="sum"))
    stays = by_torch(*INPUTS, train_bias=False)
    assert on_paper(*INPUTS, bias=0.0)["second"] == pytest.approx(stays["second"])
    no_target = (*INPUTS[:6], 0.0, 0.0, INPUTS[8])
    assert on_paper(*INPUTS, goal=0.0) == pytest.approx(by_torch(*no_target))
