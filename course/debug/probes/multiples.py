"""Probe on the split: validation rows that are training rows times one number.

Copies that were made louder or brighter before the split are no copies number for number, and far
from near; but no two rows of measurements point in exactly one direction.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.splits import COMMON, _side
from course.debug.probes.thresholds import TINY

LEAST_VALUES = 8
"""Different numbers of a row, from which it is another row's multiple by no chance."""
LEAST_ROWS = 8
"""Validation rows that have to be multiples of training rows by one and the same number."""
MOST_ROWS, MOST_COLUMNS = 4000, 4096
"""Of either side, that are compared in less time than a few steps take."""
EXACT = 1e-6
"""Part of a row's length by which it misses the multiple: rounding in float32 is below."""
SAME_FACTOR = 1e-5
"""Relative difference of two factors that are one."""
ANOTHER = 1e-3
"""The same from a factor of 1, which makes plain copies."""
BY_NATURE = 0.3
"""Share of the training rows that have to point in directions of their own. Windows of a curve
without noise, or shapes times amplitudes on a grid, have few; of a row and two copies, one of them
with noise, two of three have."""


def scaled(session: Session) -> Iterator[Finding]:
    """No validation row is a training row times a number that is the same for many rows."""
    train, val = _side(session, "train"), _side(session, "val")
    if train[2] or not train[0].is_floating_point() or train[0].shape[1:] != val[0].shape[1:]:
        raise NotChecked("inputs are not rows of numbers")
    known, rows = (side[0].detach().cpu().flatten(1)[:MOST_ROWS] for side in (train, val))
    if not LEAST_VALUES <= rows.shape[1] <= MOST_COLUMNS:
        raise NotChecked("rows are too short or too long to compare")
    known, rows = (_of_many_values(side).double() for side in (known, rows))
    if len(rows) < LEAST_ROWS or len(known) < LEAST_ROWS:
        raise NotChecked("few rows have several numbers")
    factors = _factors(rows, known)
    factors = factors[(factors > 0) & ((factors - 1).abs() > ANOTHER)]
    sizes = factors.log().abs().sort().values  # a row may be the copy or what was copied
    size = sizes[len(sizes) // 2] if len(sizes) else torch.tensor(0.0)
    same = int(((sizes - size).abs() < SAME_FACTOR).sum())
    if same < max(LEAST_ROWS, COMMON * len(rows)) or _directions(known) < BY_NATURE * len(known):
        return
    yield Finding(
        "leak-overlap", "error",
        f"{same} of {len(rows)} validation rows are training rows times {float(size.exp()):.4g}, "
        "or divided by it, in all their numbers: copies were made before the split, and a model "
        "that memorises rows gets them right.",
        {"rows": len(rows), "multiples": same, "factor": float(size.exp())},
        "train, val = split(rows)  # first; then augment the training part alone",
    )  # fmt: skip


def _of_many_values(rows: Tensor) -> Tensor:
    """Rows that hold several different numbers other than 0."""
    ordered = rows.sort(1).values
    new = (ordered[:, 1:] != ordered[:, :-1]) & (ordered[:, 1:] != 0)
    return rows[new.sum(1) >= LEAST_VALUES]


def _units(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=1, keepdim=True).clamp_min(TINY)


def _factors(rows: Tensor, known: Tensor) -> Tensor:
    """What each row's parallel among the known rows is multiplied with, where there is one."""
    nearest = (_units(rows) @ _units(known).T).max(1).indices
    others = known[nearest]
    factors = (rows * others).sum(1) / others.pow(2).sum(1).clamp_min(TINY)
    off = (rows - factors[:, None] * others).norm(dim=1)
    return factors[off < EXACT * rows.norm(dim=1)]


def _directions(rows: Tensor) -> int:
    """Directions of rows but for rounding."""
    units = _units(rows)
    weights = torch.linspace(1, 2, rows.shape[1], dtype=rows.dtype).sqrt()
    return len((units @ weights).div(EXACT).round().unique())
