"""Loading: batches for the loop, either through a DataLoader or straight from memory.

`make_loader` is torch's DataLoader over a sampler that can be entered anywhere. `InMemoryLoader`
slices its batches from tensors: examples are not fetched and collated one by one, which takes most
of a DataLoader's time on small data. Both give the same batches for the same seed.

Random augmentation is keyed: the draws for an example depend only on (seed, epoch, index), so they
are the same with 0 and with 8 workers, and in a run that was killed and resumed. What a data set or
a `collate_fn` draws itself is keyed by (seed, epoch, batch) in workers; without workers it comes
from the global generators, which checkpoints hold.

Source: Lecture 3, "Is the GPU waiting?"; ledger C15, C17, F90-F95, B33.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    default_collate,
    get_worker_info,
)

from course.data.sampling import (
    PlacedBatch,
    ResumableBatchSampler,
    WeightedBatchSampler,
    check_batches,
    check_weights,
    epoch_order,
    key_seed,
    num_batches,
    weighted_order,
)
from course.data.workers import GuardedLoader
from course.state import undisturbed

CPU = torch.device("cpu")
GATHER_BYTES = 2**20
"""How much an `InMemoryLoader` gathers at once, when a batch is smaller."""


def make_loader(
    dataset: Dataset,
    batch_size: int,
    *,
    shuffle: bool = False,
    seed: int = 0,
    augment: Callable[[Any], Any] | None = None,
    weights: Tensor | None = None,
    drop_last: bool = False,
    num_workers: int = 0,
    rank: int = 0,
    num_ranks: int = 1,
    **options: Any,
) -> DataLoader:
    """A DataLoader whose order is keyed by (seed, epoch) and can be entered at any batch.

    Args:
        dataset: Returns (inputs, targets) for an index, and has a length.
        batch_size: Examples per batch, over all processes together.
        augment: Applied to the inputs of each example; its random draws (from torch's, NumPy's or
            Python's global generators) are keyed by (seed, epoch, index).
        weights: [N], for weighted sampling with replacement, such as `class_weights(targets)`;
            shuffling then makes no sense.
        rank: Which process this is, and `num_ranks` how many share each batch.
        options: Passed on to `DataLoader`, such as `persistent_workers` or `collate_fn`.

    Returns:
        A loader that says how a worker died, if one does (`WorkerDiedError`).

    Raises:
        ValueError: There would be no batch, or an empty one for some process; the data set has no
            length, or is a tuple of tensors.
    """
    _check_dataset(dataset)
    shared = {"seed": seed, "drop_last": drop_last, "rank": rank, "num_ranks": num_ranks}
    shared["keyed"] = augment is not None
    if weights is None:
        batches = ResumableBatchSampler(len(dataset), batch_size, shuffle=shuffle, **shared)
    else:
        weights = weights_of(weights, len(dataset), shuffle=shuffle)
        batches = WeightedBatchSampler(weights, batch_size, **shared)
    if augment is not None:
        dataset = Augmented(dataset, augment, seed=seed)
    elif num_workers and not (type(dataset) is TensorDataset and "collate_fn" not in options):
        dataset = KeyedBatches(dataset, seed=seed)
    options.setdefault("pin_memory", torch.accelerator.is_available())
    # A generator of its own: starting the workers then draws nothing from the global one (F86).
    options.setdefault("generator", torch.Generator().manual_seed(seed))
    return GuardedLoader(dataset, batch_sampler=batches, num_workers=num_workers, **options)


def _check_dataset(dataset: Any) -> None:
    """Check that examples can be fetched by their number."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise ValueError(
            f"dataset is a {type(dataset).__name__} without a length, so its examples cannot be "
            "drawn by number. Use torch.utils.data.DataLoader(dataset, batch_size=...)."
        )
    if isinstance(dataset, tuple) and all(isinstance(part, Tensor) for part in dataset):
        raise ValueError(
            f"dataset is a tuple of {len(dataset)} tensors, which would be the examples. Make a "
            "data set of its rows: TensorDataset(inputs, targets)."
        )


def weights_of(weights: Tensor, num_examples: int, *, shuffle: bool) -> Tensor:
    """The weights [N] as float64, one for each example.

    Raises:
        ValueError: Their number is wrong, they are not valid, or `shuffle` was given as well.
    """
    weights = check_weights(weights)
    if len(weights) != num_examples:
        raise ValueError(
            f"{len(weights)} weights for {num_examples} examples: expected one for each. "
            "From class indices: class_weights(targets)."
        )
    if shuffle:
        raise ValueError(
            "shuffle=True with weights: weighted draws are already in random order. Leave one out."
        )
    return weights


class Augmented(Dataset):
    """A data set whose inputs are augmented again in each epoch, with keyed randomness.

    It is indexed by (epoch, index), as `ResumableBatchSampler(keyed=True)` yields them; a plain
    index means epoch 0.
    """

    def __init__(self, dataset: Dataset, augment: Callable[[Any], Any], *, seed: int = 0) -> None:
        self.dataset, self.augment, self.seed = dataset, augment, seed

    def __getitem__(self, key: int | tuple[int, int]) -> tuple[Any, Any]:
        epoch, index = key if isinstance(key, tuple) else (0, key)
        with keyed_randomness(self.seed, epoch, index):
            example = self.dataset[index]  # inside: it may draw by itself
            if not isinstance(example, (tuple, list)) or len(example) != 2:
                raise ValueError(
                    f"an example is a {type(example).__name__}, but augment= takes the inputs of "
                    "pairs (inputs, targets). Augment inside the data set's __getitem__ instead."
                )
            inputs, targets = example
            return self.augment(inputs), targets

    def __len__(self) -> int:
        return len(self.dataset)


class KeyedBatches(Dataset):
    """A data set whose own draws, in a worker, depend only on (seed, epoch, batch).

    A worker's generators continue from batch to batch, so a worker that starts in the middle of an
    epoch would draw different numbers. Here they are seeded before each batch, which also
    determines what `collate_fn` draws. Everything else is passed on to the data set itself.
    """

    def __init__(self, dataset: Dataset, *, seed: int = 0) -> None:
        self.dataset, self.seed = dataset, seed

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[index]

    def __getitems__(self, batch: list) -> list:
        if isinstance(batch, PlacedBatch):
            seed_workers_draws(self.seed, *batch.place)
        if fetch := getattr(self.dataset, "__getitems__", None):
            return fetch(batch)
        return [self.dataset[index] for index in batch]

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "dataset":  # while it is unpickled there is none
            raise AttributeError(name)
        return getattr(self.dataset, name)


def draws_nothing_unkeyed(loader: Any) -> bool:
    """Whether all draws of a loader's workers from global generators, if any, are keyed."""
    dataset = getattr(loader, "dataset", None)
    if isinstance(dataset, (Augmented, KeyedBatches)):
        return True  # what collate_fn draws follows from the last key
    return type(dataset) is TensorDataset and loader.collate_fn is default_collate


@contextmanager
def keyed_randomness(*key: int) -> Iterator[None]:
    """Inside, the global CPU generators of torch, NumPy and Python depend only on the key.

    Afterwards they are where they were, so that dropout in the same process is not disturbed.
    """
    # A worker's generators serve nothing else.
    with undisturbed(CPU) if get_worker_info() is None else nullcontext():
        _seed_globals(key_seed(*key))
        yield


def seed_workers_draws(*key: int) -> None:
    """In a worker, make its global generators depend only on the key; elsewhere do nothing."""
    if get_worker_info() is not None:
        _seed_globals(key_seed(*key))


def _seed_globals(seed: int) -> None:
    torch.default_generator.manual_seed(seed)  # not torch.manual_seed: it would reseed the GPU too
    np.random.seed(seed % 2**32)
    random.seed(seed)


def length_of(loader: Any) -> int | None:
    """Number of batches of a loader; None if it does not know."""
    try:
        return len(loader)
    except TypeError:  # no __len__, or a DataLoader over an IterableDataset without one
        return None


class InMemoryLoader:
    """Batches sliced from tensors in memory, on any device.

    Args:
        inputs: [N, ...].
        targets: [N, ...], on the same device.
        batch_size, shuffle, weights, seed, drop_last, rank, num_ranks: As `make_loader` takes them.

    Raises:
        ValueError: Lengths or devices differ, or there would be no batch.
    """

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        batch_size: int,
        *,
        shuffle: bool = False,
        weights: Tensor | None = None,
        seed: int = 0,
        drop_last: bool = False,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        if len(inputs) != len(targets):
            raise ValueError(
                f"{len(inputs)} inputs and {len(targets)} targets: expected the same "
                "number of both."
            )
        if inputs.device != targets.device:
            raise ValueError(f"inputs on {inputs.device}, targets on {targets.device}: move one.")
        check_batches(len(inputs), batch_size, drop_last=drop_last, num_ranks=num_ranks)
        if weights is not None:
            weights = weights_of(weights, len(inputs), shuffle=shuffle)
        self.inputs, self.targets, self.batch_size = inputs, targets, batch_size
        self.weights = weights
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.rank, self.num_ranks = rank, num_ranks
        self.epoch = self.start = 0

    def set_position(self, epoch: int, batch: int = 0) -> None:
        """Make the next pass epoch `epoch` (from 0), starting at its batch `batch`."""
        self.epoch, self.start = epoch, batch

    def order(self, epoch: int) -> Tensor:
        """Indices of one epoch, dtype long."""
        if self.weights is not None:
            num = len(self.inputs)
            return weighted_order(self.weights, num, seed=self.seed, epoch=epoch)
        return epoch_order(len(self.inputs), seed=self.seed, epoch=epoch, shuffle=self.shuffle)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        epoch, start = self.epoch, self.start
        self.set_position(epoch + 1)
        order = self.order(epoch)
        order = order[start * self.batch_size : len(self) * self.batch_size]
        if not len(order):  # entered at its end: split() would give one empty batch
            return
        # Several small batches are cut out at once: a gather costs more than its bytes.
        bytes_a_batch = self.batch_size * self.inputs[0].numel() * self.inputs.element_size()
        at_once = max(GATHER_BYTES // max(bytes_a_batch, 1), 1) * self.batch_size
        for rows in order.to(self.inputs.device).split(at_once):
            inputs, targets = self.inputs.index_select(0, rows), self.targets.index_select(0, rows)
            batches = zip(
                inputs.split(self.batch_size), targets.split(self.batch_size), strict=True
            )
            if self.num_ranks == 1:
                yield from batches
                continue
            for inputs, targets in batches:
                mine = slice(self.rank, None, self.num_ranks)
                yield inputs[mine], targets[mine]

    def __len__(self) -> int:
        """Number of batches in a whole epoch, wherever the next pass starts."""
        return num_batches(len(self.inputs), self.batch_size, drop_last=self.drop_last)
