"""One score per group: a mean over all examples says nothing about small groups.

    for row in by_group(right, pens): print(row)

Source: Lecture 3, "Error analysis" and "Before trusting validation"; ledger T24.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from course.analysis.scores.intervals import Interval, bootstrap, wilson_interval


@dataclass(frozen=True, kw_only=True)
class GroupScore:
    """The mean of one group."""

    name: str
    num: int
    """Examples."""
    mean: Interval
    """The mean with its interval: Wilson's for values of 0 and 1, else the bootstrap's, which has
    no width for a single example."""

    def __str__(self) -> str:
        return f"{self.name}: {self.mean} over {self.num}"


def by_group(values: Any, groups: Sequence[Any], *, seed: int = 0) -> list[GroupScore]:
    """The mean of `values` in each group, the lowest first.

    Args:
        values: [N] the values to average, e.g. whether an answer was right, or its absolute error.
        groups: [N] the group of each value, of any sortable type.
        seed: Seed for the bootstrap.

    Raises:
        ValueError: There are no examples, or not one group per value.
    """
    numbers, names = np.asarray(values, dtype=float), np.asarray(groups)
    if numbers.ndim != 1 or numbers.shape != names.shape or not len(numbers):
        raise ValueError(
            f"values {list(numbers.shape)} and groups {list(names.shape)}: expected both [N], one "
            "group per value, and at least one."
        )
    rows, is_share = [], bool(np.isin(numbers, (0, 1)).all())
    for name in np.unique(names):
        inside = numbers[names == name]
        if is_share:
            mean = wilson_interval(int(inside.sum()), len(inside))
        elif len(inside) > 1:
            mean = bootstrap(np.mean, inside, vectorized=True, seed=seed)
        else:
            mean = Interval(float(inside[0]), float(inside[0]), float(inside[0]))
        rows.append(GroupScore(name=str(name), num=len(inside), mean=mean))
    return sorted(rows, key=lambda row: row.mean.value)
