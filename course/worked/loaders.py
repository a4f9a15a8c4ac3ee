"""Loaders: what a batch really holds when data are shuffled, padded or distributed."""

from collections.abc import Iterator

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, DistributedSampler

from course.worked.registry import worked
from course.worked.seeded import seeded
from course.worked.step import Step

LISTED = (47, 3, 82, 91, 12, 56, 7, 33, 68, 24, 99, 61, 45, 78, 15, 2, 88)
"""The beginning of the chapter's own permutation."""


@worked(
    "N06",
    title="100 examples in batches of 16",
    perturb={"num_examples": 95},
)
def shuffled_batches(
    num_examples: int = 100, batch_size: int = 16, listed: tuple[int, ...] = LISTED, seed: int = 0
) -> Iterator[Step]:
    """Batch sizes of a real DataLoader, and what drop_last leaves out.

    The order begins with the indices that the chapter lists; the rest is drawn.
    """
    order = _order(num_examples, listed, seed)
    batches = _batches(order, batch_size, drop_last=False)
    sizes = [len(batch) for batch in batches]
    yield Step("batches", len(batches), 7, formula="⌈N / B⌉", as_printed="7 batches")
    yield Step(
        "examples in full batches", sum(sizes[:-1]), 96, formula=f"{len(sizes) - 1} · {batch_size}"
    )
    rest = f"N − {len(sizes) - 1} · {batch_size}"
    yield Step("last batch", sizes[-1], 4, formula=rest, as_printed="4 examples")
    kept = _batches(order, batch_size, drop_last=True)
    yield Step("drop_last: batches", len(kept), 6, formula="⌊N / B⌋", as_printed="only 6 batches")
    unseen = set(range(num_examples)) - {index for batch in kept for index in batch}
    rest = "N − B·⌊N / B⌋"
    yield Step(
        "drop_last: unseen examples", len(unseen), 4, formula=rest, as_printed="last 4 examples"
    )
    yield Step("batch 1", batches[0], list(LISTED[:16]), formula="the order's first B indices")
    drawn = [index for batch in batches for index in batch]
    yield Step("examples that occur exactly once", sum(drawn.count(i) == 1 for i in set(drawn)))


def _order(num: int, listed: tuple[int, ...], seed: int) -> list[int]:
    """The listed indices, then all others in random order."""
    first = [index for index in dict.fromkeys(listed) if index < num]
    with seeded(seed):
        others = torch.randperm(num).tolist()
    return first + [index for index in others if index not in set(first)]


def _batches(order: list[int], batch_size: int, drop_last: bool) -> list[list[int]]:
    data = range(max(order) + 1)
    loader = DataLoader(data, batch_size, sampler=order, drop_last=drop_last, collate_fn=list)
    with seeded(0):  # a loader draws a seed for its workers even if it has no workers
        return list(loader)


@worked(
    "N08",
    title="Padding two sequences of 12 and 47",
    tells="padding, percent",
    perturb={"lengths": (12, 40)},
)
def padding(lengths: tuple[int, ...] = (12, 47)) -> Iterator[Step]:
    """Shape, mask and wasted cells of a batch that is padded to its longest sequence."""
    sequences = [torch.arange(1, length + 1) for length in lengths]
    padded = pad_sequence(sequences, batch_first=True, padding_value=0)
    mask = padded != 0
    yield Step("padded shape", list(padded.shape), formula="[B, longest]")
    yield Step("mask sums", mask.sum(dim=1), formula="equal to the lengths")
    empty = (~mask).sum().item()
    yield Step("padding cells, all cells", [empty, padded.numel()], formula="Σ (longest − length)")
    yield Step("padding, percent", 100 * empty / padded.numel(), formula="100 · padding / all")


@worked(
    "N52",
    title="DistributedSampler: 10 items on 3 ranks",
    tells="items that two ranks share",
    perturb={"num_items": 11},
)
def distributed_shards(num_items: int = 10, num_ranks: int = 3) -> Iterator[Step]:
    """Each rank's indices without shuffling, padded or cut to equal length."""
    padded = _shards(num_items, num_ranks, drop_last=False)
    for rank, shard in enumerate(padded):
        yield Step(
            f"rank {rank}", shard, formula=f"every {num_ranks}th index, then again from the start"
        )
    drawn = [index for shard in padded for index in shard]
    yield Step(
        "items that two ranks share",
        len(drawn) - len(set(drawn)),
        formula="R · ⌈N / R⌉ − N: the sampler pads with the first items",
    )
    cut = _shards(num_items, num_ranks, drop_last=True)
    yield Step("drop_last: items per rank", [len(shard) for shard in cut], formula="⌊N / R⌋")
    unseen = set(range(num_items)) - {index for shard in cut for index in shard}
    yield Step("drop_last: unseen items", sorted(unseen))


def _shards(num_items: int, num_ranks: int, drop_last: bool) -> list[list[int]]:
    return [
        list(
            DistributedSampler(
                range(num_items), num_ranks, rank, shuffle=False, drop_last=drop_last
            )
        )
        for rank in range(num_ranks)
    ]
