"""Recomputing in backward gives what a plain pass gives, for less kept in between."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from course.claims.lab import saved_bytes
from course.from_scratch.recompute import recomputed


def blocks(dropout: float = 0.0) -> nn.ModuleList:
    torch.manual_seed(1)
    one = lambda: nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Dropout(dropout), nn.Linear(9, 6))  # noqa: E731
    return nn.ModuleList(one() for _ in range(3)).double()


def through(model: nn.ModuleList, apply, inputs: torch.Tensor):
    """Output, gradients of inputs and parameters, and the next random number."""
    torch.manual_seed(7)
    model.zero_grad()
    inputs = inputs.detach().clone().requires_grad_(inputs.requires_grad)
    hidden = inputs
    for block in model:
        hidden = apply(block, hidden)
    hidden.square().sum().backward()
    return [hidden, inputs.grad, *(p.grad.clone() for p in model.parameters()), torch.rand(2)]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("asks", [False, True])
def test_outputs_gradients_and_random_numbers_are_those_of_a_plain_pass(dropout, asks):
    model = blocks(dropout)
    inputs = torch.randn(5, 6, dtype=torch.float64).requires_grad_(asks)
    mine = through(model, recomputed, inputs)
    plain = through(model, lambda block, x: block(x), inputs)
    torchs = through(model, lambda block, x: checkpoint(block, x, use_reentrant=False), inputs)
    for one, two, three in zip(mine, plain, torchs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(one, three, rtol=1e-12, atol=1e-12)


def test_only_the_inputs_are_kept_and_each_block_runs_twice():
    model, inputs = blocks(), torch.randn(5, 6, dtype=torch.float64)
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    weights = list(model.parameters())
    kept = saved_bytes(lambda: recomputed(model[0], inputs), without=weights)
    assert kept == inputs.nbytes
    assert saved_bytes(lambda: model[0](inputs), without=weights) > kept
    calls.clear()
    recomputed(model[0], inputs).sum().backward()
    assert calls == [False, True]


def test_a_frozen_parameter_stays_without_a_gradient():
    model = blocks()[0]
    model[0].weight.requires_grad_(False)
    recomputed(model, torch.randn(2, 6, dtype=torch.float64)).sum().backward()
    assert model[0].weight.grad is None and model[3].weight.grad is not None
