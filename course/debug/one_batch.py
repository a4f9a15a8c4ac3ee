"""One batch of twelve points, memorised or not: the curve of each planted bug.

    losses = one_batch_losses("softmax twice")      # a loss before each of 200 updates
    finals = {bug: median_final(bug) for bug in ONE_BATCH_BUGS}

A healthy loop brings this loss to nearly 0, whatever the seed (`course worked N62`). What a broken
one does instead shows where to look: no movement, a slow straight line, a plateau above 0, noise.

Source: Lecture 3, "Rung 3 · overfit one batch"; engineering module, §5 and quiz 8; ledger S17,
X22, F78, N62.
"""

from __future__ import annotations

import statistics

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NUM_EXAMPLES = 12
SIZES = (4, 16, 3)
STEPS = 200
LR = 0.05
RAW = 255.0
"""Factor on inputs of about 1, which makes them like unscaled pixels."""
DEAD = -100.0
"""A bias so low that no ReLU ever opens."""
RATES = {"rate 1e-5": 1e-5, "rate 5": 5.0}

ONE_BATCH_BUGS = {
    "none": "no bug",
    "no step": "optimizer.step() is never called",
    "rate 1e-5": "a learning rate far too small",
    "rate 5": "a learning rate far too large",
    "softmax twice": "a softmax before the cross-entropy",
    "labels reshuffled": "labels in a new random order at every step",
    "dead units": "a bias of -100 before each ReLU",
    "raw inputs": "inputs that are 255 times too large",
    "first layer frozen": "the optimizer holds only the last layer",
}


def one_batch_losses(bug: str = "none", *, seed: int = 0, steps: int = STEPS) -> list[float]:
    """Losses of the batch, one before each update.

    Args:
        bug: A key of `ONE_BATCH_BUGS`.
        seed: Seed of the weights and the points; runs with one seed differ only in their bug.
        steps: How many updates.

    Raises:
        ValueError: There is no such bug.
    """
    if bug not in ONE_BATCH_BUGS:
        raise ValueError(f"bug = {bug!r}: there are {', '.join(ONE_BATCH_BUGS)}.")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return _train(bug, steps)


def median_final(bug: str, *, seeds: int = 9) -> float:
    """The median of the last loss over the seeds."""
    return statistics.median(one_batch_losses(bug, seed=seed)[-1] for seed in range(seeds))


def _train(bug: str, steps: int) -> list[float]:
    model, inputs, targets = _parts(bug)
    trained = model[-1] if bug == "first layer frozen" else model
    optimizer = torch.optim.Adam(trained.parameters(), lr=RATES.get(bug, LR))
    losses = []
    for _ in range(steps):
        order = torch.randperm(NUM_EXAMPLES) if bug == "labels reshuffled" else slice(None)
        logits = model(inputs)
        scores = logits.softmax(dim=1) if bug == "softmax twice" else logits
        loss = F.cross_entropy(scores, targets[order])
        optimizer.zero_grad()
        loss.backward()
        if bug != "no step":
            optimizer.step()
        losses.append(loss.item())
    return losses


def _parts(bug: str) -> tuple[nn.Sequential, Tensor, Tensor]:
    fan_in, hidden, classes = SIZES
    model = nn.Sequential(nn.Linear(fan_in, hidden), nn.ReLU(), nn.Linear(hidden, classes))
    if bug == "dead units":
        nn.init.constant_(model[0].bias, DEAD)
    scale = RAW if bug == "raw inputs" else 1.0
    return model, scale * torch.randn(NUM_EXAMPLES, fan_in), torch.arange(NUM_EXAMPLES) % classes
