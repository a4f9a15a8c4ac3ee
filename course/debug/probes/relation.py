"""How well inputs predict labels, and whether inputs have any structure that could.

Two very cheap guesses, nearest neighbour and ridge regression, are compared with the same guesses
on permuted labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MOST_COLUMNS = 512
PERMUTATIONS, SHUFFLES = 60, 8
VARIES = 1e-6
"""Standard deviation of a column above which it is not constant."""


@dataclass(frozen=True)
class Relation:
    """How well inputs predict labels: two cheap leave-one-out guesses, compared with chance."""

    neighbour: float
    """Standard deviations by which the nearest neighbour's label agrees more often than by
    chance."""
    line: float
    """The same for ridge regression on one-hot labels."""
    agreement: float
    by_chance: float

    @property
    def strongest(self) -> float:
        return max(self.neighbour, self.line)


def relate(inputs: Tensor, labels: Tensor, seed: int = 0) -> Relation:
    """Compare two guesses with the same guesses on `PERMUTATIONS` permutations of the labels.

    Args:
        inputs: [N, D] floats.
        labels: [N] class indices.
        seed: Seed of the permutations; torch's own generator is not touched.

    Source: leave-one-out residuals of ridge regression in closed form (Allen 1974, PRESS).
    """
    own = torch.Generator().manual_seed(seed)
    x = _standard(inputs)
    nearest, _ = _nearest(x)
    kernel = x @ x.T / max(1, x.shape[1])
    ridge = torch.eye(len(x), dtype=x.dtype) * kernel.diagonal().mean()
    hat = kernel @ torch.linalg.inv(kernel + ridge)
    leverage = hat.diagonal()[:, None].clamp_max(1 - 1e-6)

    def scores(y: Tensor) -> tuple[float, float]:
        one_hot = torch.nn.functional.one_hot(y).to(hat)
        one_hot = one_hot - one_hot.mean(0)
        fitted = (hat @ one_hot - leverage * one_hot) / (1 - leverage)
        return float((y[nearest] == y).double().mean()), float(
            (fitted.argmax(1) == y).double().mean()
        )

    y = labels.unique(return_inverse=True)[1]
    real = scores(y)
    luck = torch.tensor(
        [scores(y[torch.randperm(len(y), generator=own)]) for _ in range(PERMUTATIONS)]
    )
    mean, spread = luck.mean(0), luck.std(0).clamp_min(1e-9)
    by_neighbour, by_line = ((torch.tensor(real) - mean) / spread).tolist()
    return Relation(by_neighbour, by_line, real[0], float(mean[0]))


def structure(inputs: Tensor, seed: int = 0) -> tuple[float, float]:
    """Measure how much nearer neighbours are than among rows with shuffled columns.

    Args:
        inputs: [N, D] floats.
        seed: Seed of the shuffles.

    Returns:
        The ratio of the distances, about 1 for independent columns, and by how many standard
        deviations of the shuffles it is under 1.
    """
    own, x = torch.Generator().manual_seed(seed), _standard(inputs)
    own_distance = _nearest(x)[1]
    loose = torch.stack(
        [
            _nearest(x.gather(0, torch.rand(x.shape, generator=own).argsort(0)))[1]
            for _ in range(SHUFFLES)
        ]
    )
    mean = loose.mean()
    return float(own_distance / mean), float((mean - own_distance) / loose.std().clamp_min(1e-12))


def _standard(inputs: Tensor) -> Tensor:
    """Columns of mean 0 and standard deviation 1; of very many, some evenly spaced ones."""
    x = inputs[:, :: -(-inputs.shape[1] // MOST_COLUMNS)].float()
    std = x.std(0)
    return ((x - x.mean(0)) / std.clamp_min(1e-9))[:, std > VARIES]


def _nearest(x: Tensor) -> tuple[Tensor, Tensor]:
    """Index of each row's nearest other row, and the median distance to it."""
    apart = torch.cdist(x, x)
    apart.fill_diagonal_(torch.inf)
    least = apart.min(1)
    return least.indices, least.values.median().clamp_min(1e-12)
