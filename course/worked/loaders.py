"""Loaders: what a batch of a shuffled, a padded and a distributed data set really holds."""

from collections.abc import Iterator

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, DistributedSampler

from course.worked.registry import Step, worked
from course.worked.seeded import seeded


@worked(
    "N06",
    title="100 examples in batches of 16",
    source="Training-loop chapter, c1",
    perturb={"num_examples": 95},
    reconstructed=(
        "The chapter lists the first 17 indices of its permutation; ours is another permutation. "
        "Only their number and that they are distinct can be compared."
    ),
)
def shuffled_batches(
    num_examples: int = 100, batch_size: int = 16, listed: int = 17, seed: int = 0
) -> Iterator[Step]:
    """Batch sizes of a real DataLoader, and what drop_last leaves out."""
    batches = _batches(num_examples, batch_size, seed, drop_last=False)
    sizes = [len(batch) for batch in batches]
    yield Step("batches", len(batches), 7, formula="⌈N / B⌉")
    yield Step(
        "examples in full batches", sum(sizes[:-1]), 96, formula=f"{len(sizes) - 1} · {batch_size}"
    )
    yield Step("last batch", sizes[-1], 4, formula=f"N − {len(sizes) - 1} · {batch_size}")
    kept = _batches(num_examples, batch_size, seed, drop_last=True)
    yield Step("drop_last: batches", len(kept), 6, formula="⌊N / B⌋")
    unseen = set(range(num_examples)) - {index for batch in kept for index in batch}
    yield Step("drop_last: unseen examples", len(unseen), 4, formula="N − B·⌊N / B⌋")
    order = [index for batch in batches for index in batch]
    yield Step("distinct among the listed indices", len(set(order[:listed])), 17)
    yield Step("batch 1 is the order's first B", order[:batch_size] == batches[0], True)
    yield Step("every example once", sorted(order) == list(range(num_examples)))


def _batches(num: int, batch_size: int, seed: int, drop_last: bool) -> list[list[int]]:
    with seeded(seed):
        loader = DataLoader(
            range(num), batch_size, shuffle=True, drop_last=drop_last, collate_fn=list
        )
        return list(loader)


@worked(
    "N08",
    title="Padding two sequences of 12 and 47",
    source="Training-loop chapter, c2, collation",
    perturb={"lengths": (12, 40)},
)
def padding(lengths: tuple[int, ...] = (12, 47)) -> Iterator[Step]:
    """Shape, mask and waste of a batch padded to its longest member."""
    sequences = [torch.arange(1, length + 1) for length in lengths]
    padded = pad_sequence(sequences, batch_first=True, padding_value=0)
    mask = padded != 0
    yield Step("padded shape", list(padded.shape), formula="[B, longest]")
    yield Step("mask sums", mask.sum(dim=1), formula="the lengths again")
    empty = (~mask).sum().item()
    yield Step("padding cells, all cells", [empty, padded.numel()], formula="Σ (longest − length)")
    yield Step("padding, percent", 100 * empty / padded.numel(), formula="100 · padding / all")


@worked(
    "N52",
    title="DistributedSampler: 10 items on 3 ranks",
    source="Training-loop chapter, c2",
    perturb={"num_items": 11},
)
def distributed_shards(num_items: int = 10, num_ranks: int = 3) -> Iterator[Step]:
    """Each rank's indices without shuffling, padded to equal length or cut."""
    padded = _shards(num_items, num_ranks, drop_last=False)
    for rank, shard in enumerate(padded):
        yield Step(f"rank {rank}", shard, formula=f"indices {num_ranks} apart, then from the start")
    drawn = [index for shard in padded for index in shard]
    yield Step(
        "items that two ranks hold",
        len(drawn) - len(set(drawn)),
        0,
        formula="R · ⌈N / R⌉ − N",
        correction=(
            "The chapter says that no example is duplicated. Where N is no multiple of the ranks "
            "the sampler pads with the first items, so items 0 and 1 are trained on twice."
        ),
    )
    cut = _shards(num_items, num_ranks, drop_last=True)
    yield Step("drop_last: items a rank", [len(shard) for shard in cut], formula="⌊N / R⌋")
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
