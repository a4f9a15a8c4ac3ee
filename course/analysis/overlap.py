"""How much a faster part speeds up the whole: Amdahl's law, and a loader that runs in parallel.

Without workers a batch is loaded, then trained on: the times add up. With workers the next batches
are loaded meanwhile, and the slower side sets the pace: more workers help until the step is the
slower one, and only then does a faster step help.

Source: Lecture 3, "Is the GPU waiting?" and "Practice problems"; ledger X04, T08, T31.
"""

from __future__ import annotations


def seconds_per_batch(make_s: float, step_s: float, num_workers: int) -> float:
    """Time per batch in the long run, given enough cores, without start-up and copies.

    >>> [seconds_per_batch(0.040, 0.010, workers) for workers in (0, 1, 2, 8)]
    [0.05, 0.04, 0.02, 0.01]

    Args:
        make_s: Time to load one batch, in one process.
        step_s: Time of the training step.
        num_workers: 0: the loop itself loads the batches.
    """
    return max(make_s / num_workers, step_s) if num_workers else make_s + step_s


def speedup(share: float, factor: float) -> float:
    """How much faster the whole is if a part with `share` of the time is `factor` times as fast.

    >>> speedup(0.5, 2.0)
    1.3333333333333333

    Source: Amdahl, "Validity of the single processor approach" (1967).
    """
    return 1 / (1 - share + share / factor)
