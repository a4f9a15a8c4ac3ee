"""Rows that stand on both sides of a split by chance: short texts, small tables of integers.

If rows are drawn from few possible ones, two are alike now and then, whichever side they are on.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def chance_of_shared(
    train: Sequence[Hashable], val: Sequence[Hashable], *, drawn_once: bool = True
) -> float:
    """Probability that a random split puts so many of all equal rows on both sides.

    Args:
        train: Rows of training.
        val: Rows of validation.
        drawn_once: False if training rows were drawn with replacement, so that their repeats say
            nothing about the rows.

    Returns:
        One-sided p-value: of all rows that repeat, as large a share lies across the split as of all
        pairs of rows.
    """
    from scipy import stats

    known = set(train)
    shared = sum(row in known for row in val)
    within = len(val) - len(set(val))
    rows = len(train) if drawn_once else len(known)
    across, inside = rows * len(val), len(val) * (len(val) - 1) / 2
    if drawn_once:
        within += rows - len(known)
        inside += rows * (rows - 1) / 2
    return float(stats.binom.sf(shared - 1, shared + within, across / (across + inside)))
