"""Sampling: an order of the examples that depends on (seed, epoch), to be entered anywhere.

A shuffle drawn from a running generator can be repeated only by repeating every draw before it
(F86). Here epoch e's order is drawn from a generator seeded with (seed, e): any epoch can be had at
once, so a killed run skips to the batch at which it was killed without loading what came before.

Many processes share each batch: process r of w takes every w-th example of it, starting at r. All
processes together then train on the very batches that one process would train on; nothing is
repeated to make the shares even (F88).

Source: the training-loop chapter, "Shuffling and samplers"; ledger C12, C15, F85-F88, N52.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import Sampler


def key_seed(*key: int) -> int:
    """A 63-bit seed from numbers such as (seed, epoch, index); near keys give far seeds."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def keyed_generator(*key: int) -> torch.Generator:
    """A CPU generator that depends on the key alone."""
    return torch.Generator().manual_seed(key_seed(*key))


def epoch_order(num_examples: int, *, seed: int, epoch: int, shuffle: bool = True) -> Tensor:
    """The order of one epoch: a permutation of 0 .. num_examples - 1, dtype long."""
    if not shuffle:
        return torch.arange(num_examples)
    return torch.randperm(num_examples, generator=keyed_generator(seed, epoch))


def num_batches(num_examples: int, batch_size: int, *, drop_last: bool = False) -> int:
    """Batches an epoch: 10,000 examples in batches of 32 are 313, or 312 with `drop_last` (N01)."""
    return num_examples // batch_size if drop_last else -(-num_examples // batch_size)


class ResumableBatchSampler(Sampler):
    """Batches of indices for `DataLoader(batch_sampler=...)`, in an order keyed by (seed, epoch).

    Each pass is the next epoch; `set_position` enters any epoch at any batch.

    Args:
        num_examples: Length of the data set.
        batch_size: Examples a batch, over all processes together.
        shuffle: A new order each epoch; else 0, 1, 2, ...
        seed: With the epoch, decides the order.
        drop_last: Leave out a last batch that is not full.
        keyed: Yield (epoch, index) instead of index, for a data set whose randomness is keyed.
        rank: Which process this is, from 0.
        num_ranks: How many processes share each batch.

    Raises:
        ValueError: A batch would be empty, or empty for one of the processes.

    Source: the training-loop chapter, "Shuffling and samplers".
    """

    def __init__(
        self,
        num_examples: int,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        keyed: bool = False,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        check_batches(num_examples, batch_size, drop_last=drop_last, num_ranks=num_ranks)
        self.num_examples, self.batch_size = num_examples, batch_size
        self.shuffle, self.seed, self.drop_last, self.keyed = shuffle, seed, drop_last, keyed
        self.rank, self.num_ranks = rank, num_ranks
        self.epoch = self.start = 0

    def set_position(self, epoch: int, batch: int = 0) -> None:
        """Let the next pass be epoch `epoch` (from 0), entered at its batch `batch`."""
        self.epoch, self.start = epoch, batch

    def __iter__(self) -> Iterator[list]:
        # Read at the first batch, not before: a DataLoader with workers calls iter() twice.
        epoch, start = self.epoch, self.start
        self.set_position(epoch + 1)
        order = epoch_order(self.num_examples, seed=self.seed, epoch=epoch, shuffle=self.shuffle)
        for batch in range(start, len(self)):
            first = batch * self.batch_size
            mine = order[first : first + self.batch_size][self.rank :: self.num_ranks].tolist()
            yield [(epoch, index) for index in mine] if self.keyed else mine

    def __len__(self) -> int:
        """Batches of a whole epoch, wherever the next pass starts."""
        return num_batches(self.num_examples, self.batch_size, drop_last=self.drop_last)


def check_batches(
    num_examples: int, batch_size: int, *, drop_last: bool = False, num_ranks: int = 1
) -> None:
    """Every batch must hold an example for every process."""
    if batch_size < 1:
        raise ValueError(f"batch_size = {batch_size}: a batch holds at least 1 example.")
    if num_examples < 1:
        raise ValueError("the data set is empty: there is nothing to make batches of.")
    if drop_last and num_examples < batch_size:
        raise ValueError(
            f"drop_last with {num_examples} examples and batch_size = {batch_size} leaves none. "
            f"Use drop_last=False, or a batch_size of at most {num_examples}."
        )
    smallest = batch_size if drop_last else num_examples % batch_size or batch_size
    if smallest < num_ranks:
        raise ValueError(
            f"the smallest batch has {smallest} example{'s' * (smallest != 1)} for {num_ranks} "
            f"processes ({num_examples} examples, batch_size = {batch_size}). "
            "Use drop_last=True, or another batch_size."
        )
