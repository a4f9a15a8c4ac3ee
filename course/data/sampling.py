"""Sampling: an order of the examples that depends on (seed, epoch) and can be entered anywhere.

A shuffle drawn from a running generator can be repeated only by repeating every draw before it
(F86). Here epoch e's order is drawn from a generator seeded with (seed, e): any epoch can be
generated at once, so a killed run jumps to the batch at which it was killed without loading what
came before.

Many processes share each batch: process r of w takes every w-th example of it, starting at r. All
processes together then train on exactly the batches of a single process; nothing is repeated to
make the shares even (F88).

Weighted sampling draws each example with its own probability, so that a rare class comes as often
as a frequent one. The price is coverage: some examples are drawn many times per epoch, others never
(N07). `count_draws` counts both.

Source: the training-loop chapter, "Shuffling and samplers"; ledger C12, C15, C18, F85-F88, N07,
N52.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler


def key_seed(*key: int) -> int:
    """A 63-bit seed from numbers such as (seed, epoch, index); similar keys, different seeds."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def keyed_generator(*key: int) -> torch.Generator:
    """A CPU generator that depends only on the key."""
    return torch.Generator().manual_seed(key_seed(*key))


def epoch_order(num_examples: int, *, seed: int, epoch: int, shuffle: bool = True) -> Tensor:
    """The order of one epoch: a permutation of 0 .. num_examples - 1, dtype long."""
    if not shuffle:
        return torch.arange(num_examples)
    return torch.randperm(num_examples, generator=keyed_generator(seed, epoch))


def weighted_order(weights: Tensor, num_draws: int, *, seed: int, epoch: int) -> Tensor:
    """Indices [num_draws] drawn with replacement, example i with chance weights[i] / sum.

    An index is found from where a uniform number falls among the cumulative weights, in float64:
    this works for any number of examples, whereas `torch.multinomial` stops at 2**24.

    Args:
        weights: [N], float64, none negative.
    """
    upper = weights.cumsum(0)
    drawn = torch.rand(num_draws, dtype=torch.float64, generator=keyed_generator(seed, epoch))
    last = int(weights.nonzero()[-1])  # rounding must not reach a weight of 0 behind it
    return torch.searchsorted(upper, drawn * upper[-1], right=True).clamp_(max=last)


def class_weights(
    targets: Tensor | np.ndarray | list[int],
    *,
    power: float = 1.0,
    shares: Mapping[int, float] | None = None,
) -> Tensor:
    """A weight for each example [N], float64, by how frequent its class is.

    Without `shares`, an example weighs 1 / (its class's count) ** power. Power 1 draws all classes
    equally often, power 0 as often as they occur, and 1/2 is in between.

    >>> class_weights([0] * 900 + [1] * 100)[[0, 999]].tolist()
    [0.0011111111111111111, 0.01]

    Args:
        targets: Class indices [N].
        power: How far to balance, 0 to 1.
        shares: Alternatively, the share of the draws for each class, such as {0: 0.7, 1: 0.3};
            normalised to sum to 1.

    Raises:
        ValueError: `power` is outside 0 .. 1, targets are not class indices, or `shares` leaves a
            class out, names one that does not exist, or is negative.

    Source: the training-loop chapter, "Weighted sampling"; ledger N07, C18.
    """
    targets = torch.as_tensor(targets)
    if targets.dim() != 1 or targets.is_floating_point() or not len(targets):
        raise ValueError(
            f"targets {list(targets.shape)}, {targets.dtype}: expected class indices [N], N >= 1, "
            "e.g. targets.argmax(1) if they are one-hot."
        )
    if not 0 <= power <= 1:
        raise ValueError(
            f"power = {power}: 1 balances the classes, 0 leaves them as they are. Use 0 .. 1."
        )
    classes, of_example, counts = targets.unique(return_inverse=True, return_counts=True)
    counts = counts.double()
    if shares is None:
        return (counts**-power)[of_example]
    if set(shares) != set(classes.tolist()) or min(shares.values()) < 0 or not any(shares.values()):
        raise ValueError(
            f"shares = {dict(shares)} for the classes {classes.tolist()}: expected one share for "
            "each class, none negative and not all 0."
        )
    mass = torch.tensor([shares[label] for label in classes.tolist()], dtype=torch.float64)
    return (mass / mass.sum() / counts)[of_example]


def num_batches(num_examples: int, batch_size: int, *, drop_last: bool = False) -> int:
    """Batches per epoch: 10,000 examples in batches of 32 make 313, with `drop_last` 312 (N01)."""
    return num_examples // batch_size if drop_last else -(-num_examples // batch_size)


class PlacedBatch(list):
    """The indices of a batch, which know their position (epoch, batch, rank)."""

    def __init__(self, indices: Iterable = (), place: tuple[int, ...] = ()) -> None:
        super().__init__(indices)
        self.place = place


class ResumableBatchSampler(Sampler):
    """Batches of indices for `DataLoader(batch_sampler=...)`, in an order keyed by (seed, epoch).

    Each pass is the next epoch; `set_position` enters any epoch at any batch.

    Args:
        num_examples: Length of the data set.
        batch_size: Examples per batch, over all processes together.
        shuffle: A new order each epoch; else 0, 1, 2, ...
        seed: Determines the order, together with the epoch.
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
        """Make the next pass epoch `epoch` (from 0), starting at its batch `batch`."""
        self.epoch, self.start = epoch, batch

    def order(self, epoch: int) -> Tensor:
        """Indices of one epoch in the order of its batches, dtype long; cut by `drop_last`."""
        return epoch_order(self.num_examples, seed=self.seed, epoch=epoch, shuffle=self.shuffle)

    def __iter__(self) -> Iterator[list]:
        # Read at the first batch, not before: a DataLoader with workers calls iter() twice.
        epoch, start = self.epoch, self.start
        self.set_position(epoch + 1)
        order = self.order(epoch)
        for batch in range(start, len(self)):
            first = batch * self.batch_size
            mine = order[first : first + self.batch_size][self.rank :: self.num_ranks].tolist()
            yield PlacedBatch(
                [(epoch, index) for index in mine] if self.keyed else mine,
                (epoch, batch, self.rank),
            )

    def __len__(self) -> int:
        """Number of batches in a whole epoch, wherever the next pass starts."""
        return num_batches(self.num_examples, self.batch_size, drop_last=self.drop_last)


class WeightedBatchSampler(ResumableBatchSampler):
    """Batches of indices drawn with replacement, each example with its own probability.

    Keyed by (seed, epoch), can be entered anywhere and shared by processes like its base class. For
    training only: validation should use the whole set, each example once.

    Drawing without replacement is not offered: with as many draws as examples it would be a plain
    shuffle, with the heavy examples near the start (F87).

    Args:
        weights: [N], finite and not negative, such as `class_weights(targets)`.
        batch_size, seed, drop_last, keyed, rank, num_ranks: As in the base class.
        num_draws: Examples per epoch; N by default.

    Raises:
        ValueError: A weight is negative or not finite, or all are 0; or as in the base class.

    Source: the training-loop chapter, "Weighted sampling"; ledger C18, N07, F87.
    """

    def __init__(
        self,
        weights: Tensor | np.ndarray | list[float],
        batch_size: int,
        *,
        num_draws: int | None = None,
        seed: int = 0,
        drop_last: bool = False,
        keyed: bool = False,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        self.weights = check_weights(weights)
        super().__init__(
            len(self.weights) if num_draws is None else num_draws,
            batch_size,
            seed=seed,
            drop_last=drop_last,
            keyed=keyed,
            rank=rank,
            num_ranks=num_ranks,
        )

    def order(self, epoch: int) -> Tensor:
        """Indices of one epoch's draws, dtype long."""
        return weighted_order(self.weights, self.num_examples, seed=self.seed, epoch=epoch)


def check_weights(weights: Tensor | np.ndarray | list[float]) -> Tensor:
    """Check the weights and return them as float64 [N] on the CPU, none negative, not all 0."""
    weights = torch.as_tensor(weights).detach().to("cpu", torch.float64)
    if weights.dim() != 1 or not len(weights):
        raise ValueError(
            f"weights {list(weights.shape)}: expected one number per example, [N]. From class "
            "indices: class_weights(targets)."
        )
    bad = ~torch.isfinite(weights) | (weights < 0)
    if bad.any() or not weights.sum() > 0:
        first = int(bad.nonzero()[0]) if bad.any() else 0
        raise ValueError(
            f"weights[{first}] = {weights[first]:g}: expected finite weights, none negative and "
            "not all 0. A class of 0 examples gives 1 / 0: class_weights(targets) leaves it out."
        )
    return weights


def check_batches(
    num_examples: int, batch_size: int, *, drop_last: bool = False, num_ranks: int = 1
) -> None:
    """Check that every batch holds an example for every process."""
    if batch_size < 1:
        raise ValueError(f"batch_size = {batch_size}: a batch needs at least 1 example.")
    if num_examples < 1:
        raise ValueError("the data set is empty: there is nothing to make batches from.")
    if drop_last and num_examples < batch_size:
        raise ValueError(
            f"drop_last with {num_examples} examples and batch_size = {batch_size} leaves no "
            f"batch. Use drop_last=False, or a batch_size of at most {num_examples}."
        )
    smallest = batch_size if drop_last else num_examples % batch_size or batch_size
    if smallest < num_ranks:
        raise ValueError(
            f"the smallest batch has {smallest} example{'s' * (smallest != 1)} for {num_ranks} "
            f"processes ({num_examples} examples, batch_size = {batch_size}). Use drop_last=True, "
            "or a different batch_size."
        )
