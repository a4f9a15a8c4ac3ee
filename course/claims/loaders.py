"""The DataLoader: its defaults, its workers and their random numbers, and collation."""

from __future__ import annotations

import inspect
import pickle
import random
import statistics
import time
from itertools import chain
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from course.claims.lab import error_of, warnings_of
from course.claims.registry import claim
from course.claims.trial import Measured, weigh
from course.data.stopwatch import seconds


class Numbers(Dataset):
    """0 .. num - 1, each after `delay` seconds."""

    def __init__(self, num: int, delay: float = 0.0) -> None:
        self.num, self.delay = num, delay

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: int) -> int:
        if self.delay:
            time.sleep(self.delay)
        return index


class Draws(Dataset):
    """Each item is the worker's id and one draw from Python's, NumPy's and torch's generator."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> list[float]:
        worker = torch.utils.data.get_worker_info()
        draws = [random.random(), float(np.random.rand()), float(torch.rand(()))]
        return [float(worker.id if worker else -1), *draws]


def as_list(items: list) -> list:
    """A collate function that returns the items unchanged."""
    return items


def reseed_42(worker_id: int) -> None:
    """The lecture's worker_init_fn."""
    np.random.seed(42 + worker_id)


@claim(
    "F85",
    title="Each example appears once per epoch",
    expected="holds if",
    says="A loader yields each example exactly once per epoch.",
    condition="if it does not drop the last batch, sample with replacement or pad shards",
)
def once_an_epoch(seed: int) -> Measured:
    def counts(**options) -> torch.Tensor:
        indices = torch.cat([batch for batch in DataLoader(Numbers(100), 16, **options)])
        return torch.bincount(indices, minlength=100)

    weighted = torch.utils.data.WeightedRandomSampler([1.0] * 100, 100)
    shards = torch.cat([
        torch.tensor(list(torch.utils.data.DistributedSampler(range(100), 3, rank, shuffle=False)))
        for rank in range(3)
    ])  # fmt: skip
    once = {
        "shuffled": bool((counts(shuffle=True) == 1).all()),
        "drop_last": bool((counts(shuffle=True, drop_last=True) == 1).all()),
        "with replacement": bool((counts(sampler=weighted) == 1).all()),
        "3 shards of 100": bool((torch.bincount(shards, minlength=100) == 1).all()),
    }
    evidence = {
        "examples unseen with replacement, of 100": int((counts(sampler=weighted) == 0).sum()),
        "each once": once,
    }
    return weigh(
        "examples unseen with replacement, of 100",
        evidence,
        stated=all(once.values()),
        conditioned=once["shuffled"],
    )


@claim(
    "F89",
    title="Default collation stacks equal shapes",
    expected="holds",
    says="The default collate function stacks items of equal shape and raises for unequal ones.",
)
def default_collation() -> Measured:
    from torch.utils.data import default_collate

    stacked = default_collate([torch.ones(2, 3)] * 4)
    ragged = error_of(default_collate, [torch.ones(12), torch.ones(47)])
    evidence = {
        "size of the new first dimension, 4 items": stacked.shape[0],
        "shape": list(stacked.shape),
        "ragged raises": ragged or "nothing",
        "None raises": error_of(default_collate, [None, None]) or "nothing",
        "Python floats become": str(default_collate([1.0, 2.0]).dtype),
    }
    stated = list(stacked.shape) == [4, 2, 3] and bool(ragged)
    return weigh("size of the new first dimension, 4 items", evidence, stated=stated)


@claim(
    "F90",
    title="Workers do not always help",
    expected="holds",
    says="More workers do not always make loading faster.",
)
def workers_do_not_always_help() -> Measured:
    def epoch(num_workers: int, dataset: Dataset) -> float:
        return seconds(lambda: list(DataLoader(dataset, 16, num_workers=num_workers)))

    in_memory = [epoch(2, Numbers(512)) / epoch(0, Numbers(512)) for _ in range(3)]
    slow_items = Numbers(160, delay=0.004)
    waiting = epoch(2, slow_items) / epoch(0, slow_items)
    evidence = {
        "time per epoch, 2 workers / none, data in memory": statistics.median(in_memory),
        "the same, by round": in_memory,
        "the same, items that take 4 ms": waiting,
    }
    name = "time per epoch, 2 workers / none, data in memory"
    return weigh(name, evidence, stated=min(in_memory) > 1.2)


@claim(
    "F91",
    title="persistent_workers removes the slow first batch",
    expected="holds",
    says="persistent_workers=True removes the wait at the start of every epoch but the first.",
)
def persistent_workers() -> Measured:
    first, whole = {}, {}
    for num_batches in (4, 128):
        for persistent in (False, True):
            dataset = Numbers(16 * num_batches)
            loader = DataLoader(dataset, 16, num_workers=2, persistent_workers=persistent)
            epochs = [_first_and_whole(loader) for _ in range(4)][1:]
            first[num_batches, persistent] = statistics.median(start for start, _ in epochs)
            whole[num_batches, persistent] = statistics.median(end for _, end in epochs)
            del loader
    ratio = first[4, False] / first[4, True]
    error = error_of(DataLoader, Numbers(4), persistent_workers=True)
    name = "wait for the first batch of epochs 2-4, respawned / persistent"
    evidence = {
        name: ratio,
        "time per epoch, respawned / persistent, by its number of batches": {
            num: whole[num, False] / whole[num, True] for num in (4, 128)
        },
        "without workers it raises": error or "nothing",
    }
    return weigh(name, evidence, stated=ratio > 1.2 and bool(error))


def _first_and_whole(loader: DataLoader) -> tuple[float, float]:
    """Seconds until the first batch of an epoch has arrived, and until the last has."""
    start = time.perf_counter()
    batches = iter(loader)
    next(batches)
    first = time.perf_counter() - start
    for _batch in batches:
        pass
    return first, time.perf_counter() - start


class _Pinnable:
    """A batch that counts how often it was pinned."""

    pinned = 0

    def pin_memory(self, device: str | None = None) -> _Pinnable:
        type(self).pinned += 1
        return self


@claim(
    "F92",
    title="pin_memory helps only with workers",
    expected="does not hold",
    says="pin_memory=True has an effect only with num_workers > 0.",
    gpu=True,
)
def pinning_without_workers(device: torch.device) -> Measured:
    """Batches of a loader without workers, on a machine that claims to have an accelerator."""
    plain = TensorDataset(torch.randn(512, 1024))
    warned = warnings_of(lambda: list(DataLoader(plain, 64, pin_memory=True)))
    _Pinnable.pinned = 0
    with mock.patch("torch.accelerator.is_available", return_value=True):
        loader = DataLoader(range(40), 10, pin_memory=True, collate_fn=lambda _: _Pinnable())
        batches = len(list(loader))
    evidence = {
        "batches pinned without workers, of 4": _Pinnable.pinned,
        "warnings without an accelerator": len(warned) if device.type == "cpu" else "",
    }
    if device.type == "cuda":
        (batch,) = next(iter(DataLoader(plain, 64, pin_memory=True)))
        pinned = [b.pin_memory() for (b,) in DataLoader(plain, 512)]
        pageable = [b for (b,) in DataLoader(plain, 512)]
        from course.claims.lab import interleaved

        evidence["really pinned on this GPU machine"] = batch.is_pinned()
        evidence["time of the copy, pageable / pinned"] = interleaved(
            lambda: pageable[0].to(device), lambda: pinned[0].to(device), device=device
        ).as_list()
    return weigh(
        "batches pinned without workers, of 4",
        evidence,
        stated=_Pinnable.pinned == 0,
        note=f"All {batches} batches of the single-process loader are also pinned.",
    )


@claim(
    "F93",
    title="prefetch_factor defaults to 2",
    expected="holds if",
    says="prefetch_factor is 2 unless set.",
    condition="if there are workers; without workers it is None and must not be set",
)
def prefetch_factor() -> Measured:
    with_workers = DataLoader(Numbers(4), num_workers=2).prefetch_factor
    without = DataLoader(Numbers(4)).prefetch_factor
    error = error_of(DataLoader, Numbers(4), prefetch_factor=2)
    evidence = {
        "prefetch_factor with workers": with_workers,
        "without workers": str(without),
        "set without workers raises": error or "nothing",
    }
    return weigh(
        "prefetch_factor with workers",
        evidence,
        stated=with_workers == without == 2,
        conditioned=with_workers == 2,
    )


def _worker_draws(seed: int, *, epochs: int = 2, others: int = 0, **options) -> list[list]:
    """What two workers draw in each epoch, after seeding torch (the other two get `others`)."""
    torch.manual_seed(seed)
    random.seed(others)
    np.random.seed(others)
    loader = DataLoader(Draws(), 1, num_workers=2, collate_fn=as_list, **options)
    return [[item for batch in loader for item in batch] for _ in range(epochs)]


@claim(
    "F94",
    title="Workers draw from the OS and need a worker_init_fn",
    expected="does not hold",
    says="Workers seed their generators from the operating system, so runs differ without a "
    "worker_init_fn.",
)
def worker_seeds(seed: int) -> Measured:
    first = _worker_draws(seed, others=1)
    again = _worker_draws(seed, others=2)
    flat_first, flat_again = [*chain(*first)], [*chain(*again)]
    different = sum(
        a != b for one, two in zip(flat_first, flat_again, strict=True)
        for a, b in zip(one, two, strict=True)
    )  # fmt: skip
    evidence = {
        "draws that differ between two runs of one torch seed, of 24": different,
        "epochs differ": first[0] != first[1],
        "workers differ": first[0][0][1:] != first[0][1][1:],
    }
    return weigh(
        "draws that differ between two runs of one torch seed, of 24",
        evidence,
        stated=different > 0,
        note="torch seeds Python's, NumPy's and its own generator in each worker, but not a "
        "numpy.random.default_rng that the dataset holds.",
    )


@claim(
    "F95",
    title="Reseeding NumPy with 42 + id is the fix",
    expected="holds if",
    says="A generator, and a worker_init_fn that seeds NumPy with 42 + worker id, make the "
    "randomness of workers reproducible.",
    condition="if every epoch and every seed may get the same numbers; without it, workers already "
    "repeat with the generator's seed and draw different numbers in the next epoch",
)
def reseeding_with_42(seed: int) -> Measured:
    def noise(of: int, epochs: int = 1, **options) -> list[tuple]:
        """What NumPy draws in the workers in each epoch, under a generator's seed."""
        generator = torch.Generator().manual_seed(of)
        drawn = _worker_draws(seed, epochs=epochs, generator=generator, **options)
        return [tuple(item[2] for item in epoch) for epoch in drawn]

    first = noise(seed, 2, worker_init_fn=reseed_42)
    again, other = (noise(s, worker_init_fn=reseed_42) for s in (seed, seed + 1000))
    alone, alone_again = noise(seed, 2), noise(seed)
    repeats = first[:1] == again
    distinct = len({*first, *other})
    evidence = {
        "distinct noise in 3 epochs of 2 seeds": distinct,
        "a second run repeats": repeats,
        "without worker_init_fn: a second run repeats": alone[:1] == alone_again,
        "without worker_init_fn: distinct noise in 2 epochs": len(set(alone)),
        "a lambda pickles (needed under spawn), raises": error_of(
            pickle.dumps, lambda worker_id: np.random.seed(42 + worker_id)
        ),
    }
    return weigh(
        "distinct noise in 3 epochs of 2 seeds",
        evidence,
        stated=repeats and distinct == 3,
        conditioned=repeats,
        note="Reproducible, but harmful: every epoch and every seed gets the same augmentation.",
    )


@claim(
    "F97",
    title="The loader benchmark prints batches per second",
    expected="holds if",
    says="Timing the first 100 batches and dividing 100 by the time gives batches per second.",
    condition="if the loader has 100 batches or more; with fewer, it still divides 100 by the time",
)
def loader_benchmark() -> Measured:
    def overstated(num_batches: int) -> float:
        """Printed over true rate: the lecture's loop breaks at i == 100 and divides 100 by time."""
        read = 0
        start = time.perf_counter()
        for i, _batch in enumerate(DataLoader(Numbers(num_batches * 4), 4)):
            read += 1
            if i == 100:
                break
        elapsed = time.perf_counter() - start
        return (100 / elapsed) / (read / elapsed)

    ratios = {num: overstated(num) for num in (10, 100, 150)}
    evidence = {
        "printed / true rate, loader of 10 batches": ratios[10],
        "printed / true rate, by batches": ratios,
    }
    right = {num: abs(ratio - 1) < 0.02 for num, ratio in ratios.items()}
    return weigh(
        "printed / true rate, loader of 10 batches",
        evidence,
        stated=all(right.values()),
        conditioned=right[100] and right[150],
        note="It breaks only after the 101st batch: 1 % too low. It also times the start of the "
        "workers.",
    )


@claim(
    "F98",
    title="The loader's defaults are as listed",
    expected="holds",
    says="The defaults are batch_size 1, no shuffling, no workers, no pinning, no dropping, no "
    "persistence.",
)
def loader_defaults() -> Measured:
    lecture = {
        "batch_size": 1,
        "shuffle": None,
        "num_workers": 0,
        "pin_memory": False,
        "drop_last": False,
        "persistent_workers": False,
    }
    signature = inspect.signature(DataLoader.__init__).parameters
    actual = {name: signature[name].default for name in lecture}
    different = sum(actual[name] != value for name, value in lecture.items())
    in_order = [int(batch) for batch in DataLoader(Numbers(5))] == list(range(5))
    evidence = {
        "defaults that differ, of 6": different,
        "defaults": {name: str(value) for name, value in actual.items()},
        "yields in order": in_order,
    }
    return weigh("defaults that differ, of 6", evidence, stated=different == 0 and in_order)


@claim(
    "F137",
    title="A map-style dataset needs two methods",
    expected="holds",
    says="A map-style dataset needs __len__ and __getitem__, and nothing else.",
)
def two_methods() -> Measured:
    class Both:
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> int:
            return index

    class NoLength:
        def __getitem__(self, index: int) -> int:
            return index

    class NoItems:
        def __len__(self) -> int:
            return 6

    def use(dataset: object) -> list:
        return [batch.tolist() for batch in DataLoader(dataset, 4, shuffle=True)]

    errors = {
        "both": error_of(use, Both()),
        "a plain list": error_of(use, [1, 2, 3, 4, 5, 6]),
        "without __len__": error_of(use, NoLength()),
        "without __getitem__": error_of(use, NoItems()),
        "empty list": error_of(use, []),
    }
    failing = ("without __len__", "without __getitem__")
    stated = not errors["both"] and not errors["a plain list"] and all(errors[n] for n in failing)
    evidence = {
        "methods that can be left out, of 2": sum(not errors[name] for name in failing),
        "raises": {name: error or "nothing" for name, error in errors.items()},
    }
    return weigh("methods that can be left out, of 2", evidence, stated=stated)


@claim(
    "F96",
    title="A short last batch hurts BatchNorm; drop_last avoids it",
    expected="holds",
    says="BatchNorm's statistics of a short last batch are noisy, and drop_last avoids that.",
)
def short_last_batch() -> Measured:
    def spread(batch_size: int) -> float:
        """Standard deviation of a batch mean over many batches of unit variance."""
        return torch.randn(4000, batch_size).mean(1).std().item()

    spreads = {size: spread(size) for size in (2, 4, 32)}
    layer = nn.BatchNorm1d(3)
    single = error_of(layer, torch.randn(1, 3))
    sizes = [len(batch) for batch in DataLoader(Numbers(66), 32, drop_last=True)]
    evidence = {
        "noise of the batch mean, 2 examples / 32": spreads[2] / spreads[32],
        "standard deviation of the batch mean": spreads,
        "a batch of 1 in train mode raises": single or "nothing",
        "batches of 66 examples with drop_last": sizes,
    }
    stated = spreads[2] > 2 * spreads[32] and bool(single) and set(sizes) == {32}
    return weigh("noise of the batch mean, 2 examples / 32", evidence, stated=stated)
