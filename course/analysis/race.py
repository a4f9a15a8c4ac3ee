"""Races: how many updates a way of training needs to reach a loss, over several seeds.

    losses = islice(losses_of(data, make_model, make_optimizer, seed=0), 300)
    updates_to(0.1, losses)

One run says little about two optimizers: initial weights and batch order change the count by as
much as many differences between optimizers do.

Source: Annotated-loop essay, "The efficient loop"; training-loop chapter, c6, experiments 1, 2 and
5; ledger X56, X39, X40, X43.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import nn
from torch.nn import functional as F

from course.data import InMemoryLoader
from course.data.datasets import Data
from course.state import undisturbed


def losses_of(
    data: Data,
    make_model: Callable[[], nn.Module],
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    *,
    seed: int,
    batch_size: int = 64,
    factor: Callable[[int], float] = lambda update: 1.0,
) -> Iterator[float]:
    """The loss over all training examples after each update, without end.

    Args:
        data: Data for classification by cross-entropy.
        make_model: Called once, with torch's generator seeded with `seed`.
        make_optimizer: Makes the optimizer of the model.
        seed: Seed for the weights and the order of the batches.
        batch_size: Examples per update.
        factor: Factor of each group's learning rate, by update, counted from 0.
    """
    with undisturbed():
        torch.manual_seed(seed)
        model = make_model()
    optimizer = make_optimizer(model)
    inputs, targets = data.train_inputs, data.train_targets
    loader = InMemoryLoader(inputs, targets, batch_size=batch_size, shuffle=True, seed=seed)
    rates, update = [group["lr"] for group in optimizer.param_groups], 0
    while True:
        for batch, labels in loader:
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor(update)
            optimizer.zero_grad()
            F.cross_entropy(model(batch), labels).backward()
            optimizer.step()
            update += 1
            with torch.no_grad():  # no yield in here: a suspended generator would leave it on
                loss = F.cross_entropy(model(inputs), targets).item()
            yield loss


def updates_to(target: float, losses: Iterable[float]) -> float:
    """Updates until the loss is at most `target`; inf if it never is.

    >>> updates_to(0.5, [0.9, 0.6, 0.4, 0.3])
    3
    """
    return next((n for n, loss in enumerate(losses, start=1) if loss <= target), math.inf)
