"""Stages: where the time of a batch goes, from choosing the examples to the training step.

    sampler -> data set (one example after another) -> collate -> step

`measure_loader` says how long a batch takes; this module says which stage takes the time. It
performs the stages of a DataLoader without workers by hand, with a clock between them, so the
batches are exactly the loader's.

Source: Lecture 3, "Is the GPU waiting?"; training-loop chapter, c1; ledger T11, T08, C23.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice, pairwise
from statistics import median
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from course.state import left_as_found

STAGES = ("sampler", "items", "collate", "step")


@dataclass(frozen=True, kw_only=True)
class StageTimes:
    """Seconds per batch by stage, each the median over the batches after the first."""

    sampler: float
    """Choosing the next examples."""
    items: float
    """Reading all of the batch's examples from the data set, including transforms."""
    collate: float
    """Joining examples into one batch."""
    step: float
    """What was done with the batch; 0 if nothing was."""
    num_batches: int

    @property
    def loading(self) -> float:
        """Everything before the step."""
        return self.sampler + self.items + self.collate

    @property
    def slowest(self) -> str:
        """The stage that takes longest."""
        return max(STAGES, key=lambda stage: getattr(self, stage))

    def to_json(self) -> dict[str, float]:
        """Numbers only."""
        return asdict(self)

    def __str__(self) -> str:
        whole = self.loading + self.step
        parts = (f"{stage} {getattr(self, stage) / whole:.0%}" for stage in STAGES)
        return f"{1e3 * whole:.3g} ms per batch: {', '.join(parts)}"


def time_stages(
    loader: DataLoader, step: Callable[[Any], object] | None = None, *, num_batches: int = 30
) -> StageTimes:
    """Time each stage of a loader without workers, batch by batch.

    Afterwards the loader, its sampler and the global CPU generators are where they were, but what
    `step` trains stays trained.

    Args:
        loader: A DataLoader over an indexable data set, with `num_workers=0`.
        step: What to do with a batch.
        num_batches: Most batches to read, including the first, which is not counted.

    Raises:
        ValueError: The loader has workers, or its data set is not indexable, or it has fewer than
        two batches.

    Source: Lecture 3, "Is the GPU waiting?"; ledger T11, T08.
    """
    if loader.num_workers:
        raise ValueError(
            f"num_workers = {loader.num_workers}: workers fetch while the step runs, so their "
            "stages cannot be timed between the others. Time a loader with num_workers=0."
        )
    if loader.batch_sampler is None or isinstance(loader.dataset, IterableDataset):
        raise ValueError(
            "the loader has no batch sampler over indices: its examples come as a stream. Time it "
            "as a whole: measure_loader(loader)."
        )
    with left_as_found(loader):
        rows = list(islice(_walk(loader, step), num_batches))[1:]  # the first opens and warms up
    if not rows:
        raise ValueError("fewer than two batches: the first is not counted, so none is left.")
    columns = zip(*rows, strict=True)
    times = {stage: median(column) for stage, column in zip(STAGES, columns, strict=True)}
    return StageTimes(**times, num_batches=len(rows))


def _walk(loader: DataLoader, step: Callable[[Any], object] | None) -> Iterator[list[float]]:
    """The seconds of each stage, batch by batch."""
    dataset, positions = loader.dataset, iter(loader.batch_sampler)
    fetch = getattr(dataset, "__getitems__", None) or (lambda rows: [dataset[i] for i in rows])
    while True:
        clock = [time.perf_counter()]
        if (rows := next(positions, None)) is None:
            return
        clock.append(time.perf_counter())
        examples = fetch(rows)
        clock.append(time.perf_counter())
        batch = loader.collate_fn(examples)
        clock.append(time.perf_counter())
        if step is not None:
            step(batch)
        clock.append(time.perf_counter())
        yield [after - before for before, after in pairwise(clock)]
