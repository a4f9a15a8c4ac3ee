"""Timeline of an epoch: when each batch is loaded, when the model takes it, and which side waits.

    worker 1  [load 0][load 2][load 4]
    worker 2  [load 1][load 3][load 5]
    model             [0][1]  [2][3]  [4][5]

The rules are those of torch's DataLoader: batch j belongs to worker j mod W, W · prefetch_factor
batches are requested before the first is taken, and each batch taken requests one more. The model
takes the batches in order. In this model workers do not share cores, and starting them takes no
time.

Source: Lecture 1, "CPU loads while the GPU computes"; ledger S13, T08.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BatchTimes:
    """The times of one batch, in the unit of the given times."""

    worker: int
    load_start: float
    load_end: float
    step_start: float
    step_end: float


def timeline(
    loads: Sequence[float], step: float, *, num_workers: int, prefetch_factor: int = 2
) -> list[BatchTimes]:
    """Simulate an epoch, batch by batch.

    Args:
        loads: How long each batch takes to load.
        step: How long the model takes for each of them.
        num_workers: 0: the loop itself loads each batch before its step.
        prefetch_factor: Batches requested from each worker ahead of the model.
    """
    made: list[BatchTimes] = []
    ahead = num_workers * prefetch_factor
    for index, load in enumerate(loads):
        model_free = made[-1].step_end if made else 0.0
        if num_workers:
            worker_free = made[index - num_workers].load_end if index >= num_workers else 0.0
            asked_for = made[index - ahead].step_start if index >= ahead else 0.0
            start = max(worker_free, asked_for)
        else:
            start = model_free
        taken = max(start + load, model_free)
        made.append(
            BatchTimes(
                worker=index % num_workers if num_workers else 0,
                load_start=start,
                load_end=start + load,
                step_start=taken,
                step_end=taken + step,
            )
        )
    return made


def epoch_time(num_batches: int, load: float, step: float, num_workers: int) -> float:
    """The time of an epoch in closed form, if all batches take equally long to load.

        W = 0:  N · (load + step)
        W > 0:  load + q · max(load, W · step) + (k + 1) · step      N − 1 = q · W + k

    The model waits for the first batch; then each round of W batches takes as long as the slower
    side.

    >>> epoch_time(100, 40, 10, 0), epoch_time(100, 40, 10, 4)
    (5000, 1040)
    """
    if not num_workers:
        return num_batches * (load + step)
    rounds, rest = divmod(num_batches - 1, num_workers)
    return load + rounds * max(load, num_workers * step) + (rest + 1) * step


def most_held(batches: Sequence[BatchTimes]) -> int:
    """The largest number of batches that were loaded but not yet taken: they occupy memory."""
    waiting = [one for one in batches if one.load_end < one.step_start]
    events = [(one.load_end, 1) for one in waiting] + [(one.step_start, -1) for one in waiting]
    held = most = 0
    for _, change in sorted(events):
        held += change
        most = max(most, held)
    return most
