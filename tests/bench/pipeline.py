"""Batches cut from memory beside a DataLoader over the same tensors, on digits-sized rows.

    python -m tests.bench.pipeline [--rounds 15]

Both shuffle anew each epoch and give the same shapes; nothing trains. Goal: at least 5 times the
DataLoader's batches per second. For comparison, the leanest loop by hand, and a DataLoader whose
data set is asked for whole batches (`sampler=BatchSampler`, `batch_size=None`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

import torch
from sklearn.datasets import load_digits
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from course.data.loading import InMemoryLoader
from course.data.throughput import measure_loader
from tests.bench.harness import interleaved, report

GOAL = 5.0
BATCHES = (32, 64, 256)
EPOCHS = 4
FROM_MEMORY, BY_DATALOADER = "InMemoryLoader", "DataLoader(TensorDataset)"


def loaders(batch_size: int) -> dict[str, Iterable]:
    """By name: loaders of the same 1,797 examples."""
    rows, labels = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(rows, dtype=torch.float32) / 16, torch.tensor(labels)
    dataset = TensorDataset(inputs, targets)
    whole = BatchSampler(RandomSampler(dataset), batch_size, drop_last=False)
    return {
        BY_DATALOADER: DataLoader(dataset, batch_size, shuffle=True),
        FROM_MEMORY: InMemoryLoader(inputs, targets, batch_size, shuffle=True),
        "DataLoader over whole batches": DataLoader(dataset, sampler=whole, batch_size=None),
        "by hand": ByHand(inputs, targets, batch_size),
    }


class ByHand:
    """A permutation, and one index operation a batch."""

    def __init__(self, inputs: torch.Tensor, targets: torch.Tensor, batch_size: int) -> None:
        self.inputs, self.targets, self.batch_size = inputs, targets, batch_size

    def __iter__(self):
        for rows in torch.randperm(len(self.inputs)).split(self.batch_size):
            yield self.inputs[rows], self.targets[rows]


def reading(loader: Iterable) -> Callable[[], None]:
    """Some epochs, with nothing done to the batches."""

    def read() -> None:
        for _ in range(EPOCHS):
            for _ in loader:
                pass

    return read


def rate(loader: Iterable) -> float:
    """Batches a second of whole epochs: from memory, the first batch may bring the others along."""
    speed = measure_loader(loader, num_batches=10_000)
    return speed.num_batches / speed.pass_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    groups, faster, rates, missed = {}, {}, {}, []
    for batch_size in BATCHES:
        several = loaders(batch_size)
        title = f"time of an epoch, beside {BY_DATALOADER}, batches of {batch_size}"
        units = EPOCHS * -(-1797 // batch_size)
        groups[title] = interleaved(
            {name: reading(loader) for name, loader in several.items()},
            base=BY_DATALOADER,
            rounds=arguments.rounds,
            units=units,
        )
        faster[batch_size] = 1 / groups[title][FROM_MEMORY].median
        rates[batch_size] = {name: rate(several[name]) for name in (FROM_MEMORY, BY_DATALOADER)}
        if faster[batch_size] < GOAL:
            missed.append(batch_size)
    report("pipeline", groups, goal=GOAL, times_as_fast=faster, batches_per_s=rates, missed=missed)
    for batch_size, times in faster.items():
        ours, theirs = rates[batch_size].values()
        print(
            f"batches of {batch_size}: {times:.1f} times as fast ({ours:,.0f} and {theirs:,.0f} "
            f"batches/s), goal {GOAL:g}: {'missed' if batch_size in missed else 'met'}"
        )


if __name__ == "__main__":
    main()
