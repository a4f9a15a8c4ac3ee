"""Races to a loss: the same as a plain loop, and nothing of torch's settings is left behind."""

import math
from itertools import islice

import torch
from torch import nn
from torch.nn import functional as F

from course.analysis.race import losses_of, updates_to
from course.data import InMemoryLoader, load


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.2)


def test_the_losses_are_those_of_a_plain_loop():
    data = load("moons", num_examples=40)
    losses = losses_of(data, lambda: nn.Linear(2, 2), sgd, seed=3, batch_size=16,
                       factor=lambda update: 1 / (1 + update))  # fmt: skip
    found = list(islice(losses, 4))
    assert torch.is_grad_enabled()  # although the generator rests in the middle of its loop
    torch.manual_seed(3)
    model, expected = nn.Linear(2, 2), []
    loader = InMemoryLoader(
        data.train_inputs, data.train_targets, batch_size=16, shuffle=True, seed=3
    )
    for inputs, targets in [*loader, *loader]:
        grads = torch.autograd.grad(F.cross_entropy(model(inputs), targets), model.parameters())
        for parameter, grad in zip(model.parameters(), grads, strict=True):
            parameter.data -= 0.2 / (1 + len(expected)) * grad
        expected.append(F.cross_entropy(model(data.train_inputs), data.train_targets).item())
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)  # float32


def test_a_goal_that_is_not_reached_takes_forever():
    assert updates_to(0.1, [0.3, 0.2]) == math.inf
    assert updates_to(0.2, [0.3, 0.2, 0.1]) == 2
    assert updates_to(0.2, [math.nan, 0.3]) == math.inf
