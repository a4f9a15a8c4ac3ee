"""Shuffling, weighting and sharding: which examples a batch gets, and which seed decides."""

from __future__ import annotations

from itertools import chain

import torch
from torch.utils.data import DataLoader, DistributedSampler, WeightedRandomSampler

from course.claims.lab import error_of
from course.claims.registry import claim
from course.claims.trial import Measured, weigh


def _order(loader: DataLoader) -> list[int]:
    return torch.cat([batch for batch in loader]).tolist()


@claim(
    "F86",
    title="Reshuffled every epoch, reproducible with a seed",
    expected="holds",
    says="With shuffle=True every epoch has a different order, and a seed makes the orders "
    "reproducible.",
)
def reshuffled(seed: int) -> Measured:
    def two_epochs(*, draw_between: bool = False, own: bool = False) -> list[list[int]]:
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(seed) if own else None
        loader = DataLoader(range(50), 10, shuffle=True, generator=generator)
        first = _order(loader)
        if draw_between:  # as one pass over an unshuffled validation loader does
            _order(DataLoader(range(20), 10))
        return [first, _order(loader)]

    plain, again = two_epochs(), two_epochs()
    disturbed = two_epochs(draw_between=True)
    own = two_epochs(own=True), two_epochs(own=True, draw_between=True)
    evidence = {
        "positions that differ between two runs with one seed, of 100": sum(
            a != b for a, b in zip(chain(*plain), chain(*again), strict=True)
        ),
        "epochs differ": plain[0] != plain[1],
        "a validation pass in between changes the second epoch": disturbed[1] != plain[1],
        "not if the loader has its own generator": own[0] == own[1],
    }
    return weigh(
        "positions that differ between two runs with one seed, of 100",
        evidence,
        stated=plain == again and plain[0] != plain[1],
        note="The order depends on every global draw before it: give the loader its own generator.",
    )


@claim(
    "F87",
    title="Weighted sampling balances; replacement must be True",
    expected="holds if",
    says="Weights of 1 / class frequency balance the batches, and replacement must be True.",
    condition="if drawn with replacement; replacement=False is also accepted, but N draws are then "
    "just a permutation",
)
def weighted_sampling(seed: int) -> Measured:
    targets = torch.tensor([0] * 900 + [1] * 100)
    weights = torch.where(targets == 0, 1 / 900, 1 / 100).double()

    def minority(replacement: bool) -> torch.Tensor:
        sampler = WeightedRandomSampler(weights, 1000, replacement=replacement)
        return targets[torch.tensor(list(sampler))]

    share = minority(True).float().mean().item()
    error = error_of(WeightedRandomSampler, weights, 1000, replacement=False)
    without = minority(False) if not error else torch.zeros(1000)
    evidence = {
        "share of the minority, with replacement": share,
        "share of the minority, without": without.float().mean(),
        "without: minority in the first 100 and the last 500": [
            int(without[:100].sum()), int(without[-500:].sum()),
        ],
        "replacement=False raises": error or "nothing",
    }  # fmt: skip
    balances = abs(share - 0.5) < 0.08
    return weigh(
        "share of the minority, with replacement",
        evidence,
        stated=balances and bool(error),
        conditioned=balances,
    )


@claim(
    "F88",
    title="DistributedSampler: unique, non-overlapping, strided shards",
    expected="holds if",
    says="DistributedSampler gives each process unique, non-overlapping, strided examples.",
    condition="if the number of examples divides evenly and shuffle is False; otherwise shards are "
    "padded with duplicates, and shuffled shards are not strided",
)
def distributed_shards() -> Measured:
    def shards(num: int, *, shuffle: bool, epoch: int | None = None) -> list[list[int]]:
        samplers = [DistributedSampler(range(num), 3, rank, shuffle=shuffle) for rank in range(3)]
        for sampler in samplers:
            if epoch is not None:
                sampler.set_epoch(epoch)
        return [list(sampler) for sampler in samplers]

    def duplicates(parts: list[list[int]]) -> int:
        every = [*chain(*parts)]
        return len(every) - len(set(every))

    def strided(parts: list[list[int]], num: int) -> bool:
        return all(
            part[: len(range(r, num, 3))] == list(range(r, num, 3)) for r, part in enumerate(parts)
        )

    even, uneven = shards(9, shuffle=False), shards(10, shuffle=False)
    shuffled = shards(9, shuffle=True)
    evidence = {
        "duplicates, 10 examples on 3 processes": duplicates(uneven),
        "shards of 10": uneven,
        "shards of 9": even,
        "shuffled shards strided": strided(shuffled, 9),
        "same order every epoch without set_epoch": shuffled == shards(9, shuffle=True),
        "different order after set_epoch": shuffled != shards(9, shuffle=True, epoch=1),
    }
    return weigh(
        "duplicates, 10 examples on 3 processes",
        evidence,
        stated=duplicates(uneven) == 0 and strided(shuffled, 9),
        conditioned=duplicates(even) == 0 and strided(even, 9),
    )
