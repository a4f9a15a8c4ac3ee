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
MOST_AT_ONCE = 4_000_000
"""Numbers that are computed at once, for all permutations that fit: 16 MB."""


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


class Guesses:
    """Two cheap leave-one-out guesses of labels from inputs, for one set of inputs.

    What does not depend on the labels is computed once: the nearest rows, and the hat matrix of
    ridge regression.

    Args:
        inputs: [N, D] floats.

    Source: leave-one-out residuals of ridge regression in closed form (Allen 1974, PRESS).
    """

    def __init__(self, inputs: Tensor) -> None:
        x = _standard(inputs)
        self.nearest, _ = _nearest(x)
        kernel = x @ x.T / max(1, x.shape[1])
        ridge = torch.eye(len(x), dtype=x.dtype) * kernel.diagonal().mean()
        self.hat = kernel @ torch.linalg.inv(kernel + ridge)
        self.leverage = self.hat.diagonal()[:, None].clamp_max(1 - 1e-6)
        self._luck: tuple[Tensor, Tensor] | None = None

    def relate(self, labels: Tensor, seed: int = 0) -> Relation:
        """Compare both guesses with the same guesses on `PERMUTATIONS` permutations of the labels.

        Args:
            labels: [N] class indices.
            seed: Seed of the permutations; torch's own generator is not touched.
        """
        own = torch.Generator().manual_seed(seed)
        y = labels.unique(return_inverse=True)[1]
        orders = [torch.randperm(len(y), generator=own) for _ in range(PERMUTATIONS)]
        neighbour, line = self._shares(torch.stack([y, *(y[order] for order in orders)]))
        luck = torch.stack([neighbour[1:], line[1:]], 1)
        mean, spread = self._luck = luck.mean(0), luck.std(0).clamp_min(1e-9)
        real = torch.stack([neighbour[0], line[0]])
        by_neighbour, by_line = ((real - mean) / spread).tolist()
        return Relation(by_neighbour, by_line, float(real[0]), float(mean[0]))

    def at_a_glance(self, labels: Tensor) -> float:
        """About how strongly labels are related, against the luck of the labels related last.

        These should be much the same labels in another order: then this costs a sixtieth.
        """
        y = labels.unique(return_inverse=True)[1]
        mean, spread = self._luck or (torch.zeros(2), torch.full((2,), 1e-9))
        return float(((torch.cat(self._shares(y[None])) - mean) / spread).max())

    def _shares(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Share of the labels [P, N] that each of the two guesses hits, for each row of them."""
        right = []
        for some in y.split(max(1, MOST_AT_ONCE // (y.shape[1] * (int(y.max()) + 1)))):
            one_hot = torch.nn.functional.one_hot(some.T, int(y.max()) + 1).to(
                self.hat
            )  # of p permutations
            one_hot = one_hot - one_hot.mean(0)
            fitted = (self.hat @ one_hot.flatten(1)).view_as(one_hot)
            fitted -= self.leverage[..., None] * one_hot
            fitted /= 1 - self.leverage[..., None]
            right.append((some == fitted.argmax(2).T).float().mean(1))
        return (y[:, self.nearest] == y).float().mean(1), torch.cat(right)


def relate(inputs: Tensor, labels: Tensor, seed: int = 0) -> Relation:
    """How well these inputs [N, D] predict these labels [N]; see `Guesses`."""
    return Guesses(inputs).relate(labels, seed)


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
    own_distance, columns = _nearest(x)[1], x.T.contiguous()
    loose = torch.stack([_nearest(_shuffled(columns, own).T)[1] for _ in range(SHUFFLES)])
    mean = loose.mean()
    return float(own_distance / mean), float((mean - own_distance) / loose.std().clamp_min(1e-12))


def _shuffled(columns: Tensor, own: torch.Generator) -> Tensor:
    """Each column [D, N] in an order of its own. NumPy sorts five times as fast as torch."""
    order = torch.rand(columns.T.shape, generator=own).T.contiguous().numpy().argsort(1)
    return columns.gather(1, torch.from_numpy(order))


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
