"""Relations on a column of the inputs: it says as much about the target on both sides.

A column made with the row's own target, e.g. the mean target of its group, gives training rows
their answer and says little about other rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, pair
from course.debug.probes.thresholds import ZERO

LEAST_ROWS = 40
"""Rows of either side from which a correlation says something."""
MOST_CLASSES = 20
"""Whole numbers up to which targets are classes; more are counts or years."""
STRONG = 0.5
"""Correlation of a column with the target from which a model leans on it."""
ERRORS = 5.0
"""Standard errors between the two sides' correlations, after Fisher: of 100 columns one differs so
much by chance once in 17,000 data sets."""
LEFT = 0.5
"""Share of the correlation that is left in validation, below which it was the row's own answer."""
LEAST_GROUPS = 4
"""Values of a column with rows of several targets, from which their means lie on a line with the
values by no chance: through two there is always one."""
SAME_VALUE, EXACT = 1e-5, 1e-4
"""Parts of the largest value by which values are the same, and of the means' spread by which they
lie on a line: float32 rounds by 1e-7."""
LEAST_VALUES = 24
"""Different values of a column and of the target, from which the one rises with the other in every
row by no chance."""
TURNS_BACK = 1e-4
"""Part of the targets' spread by which they may fall where they should rise: rounding."""
SMOOTH = 0.1
"""Mean squared step of a column between neighbours in another one, over its variance, below which
it is a function of that one: 2 where they have nothing to do with each other.
"""
HOLDS = 3.0
"""Standard errors within which the other columns tell validation rows what they do training rows:
else it is the targets, or all of the data, that differ."""


def own_answer(session: Session) -> Iterator[Finding]:
    """No single column says far more about the target in training rows than in validation rows."""
    (x, y), (v, w) = (_table(epoch.batches) for epoch in (session.epoch, session.val_epoch))
    if min(len(x), len(v)) < LEAST_ROWS or v.shape[1:] != x.shape[1:] or x.shape[1] < 2:
        raise NotChecked(f"no rows of columns, {LEAST_ROWS} of them on either side")
    classes = y.unique()
    if not 2 < len(classes) <= MOST_CLASSES or not torch.equal(y, y.round()):
        classes = None
    train, val = _correlations(x, y, classes), _correlations(v, w, classes)
    best = train.abs().argmax(1, keepdim=True)
    train, val = (t.gather(1, best)[:, 0] for t in (train, val))
    error = math.sqrt(1 / (len(x) - 3) + 1 / (len(v) - 3))
    apart = (train.atanh() - val.atanh()).abs() / error
    told = (train.abs() >= STRONG) & (apart > ERRORS) & (val * train.sign() < LEFT * train.abs())
    others = apart[~told]
    if int(told.sum()) != 1 or not len(others) or float(others.max()) > HOLDS:
        return
    column = int(told.nonzero()[0, 0])
    yield Finding(
        "target-in-inputs", "warning",
        f"Column {column} of the inputs follows the target in training (correlation "
        f"{float(train[column]):.2f}) but not in validation ({float(val[column]):.2f}), while the "
        "other columns say the same on both sides: it was made with the row's own target, e.g. as "
        "the mean of a small group.",
        {"column": column, "correlation": float(train[column]), "in_validation": float(val[column]),
         "standard_errors": float(apart[column])},
        "for fit, rest in folds:  # of each row's group, without the row\n"
        "    x[rest, column] = mean_by_group(group[fit], y[fit])[group[rest]]",
    )  # fmt: skip


def group_means(session: Session) -> Iterator[Finding]:
    """No column is the mean target of all rows that share its value.

    A mean that leaves out the row, comes from other rows or uses a prior does not match that
    exactly.
    """
    train = _table(session.epoch.batches)
    parts = [train]
    if session.setup.val_loader is not None:
        val = _table(session.val_epoch.batches)
        if val[0].shape[1:] == train[0].shape[1:]:
            parts.append(tuple(torch.cat(two) for two in zip(train, val, strict=True)))
    for x, y in parts:
        if len(x) < LEAST_ROWS or x.shape[1] < 2:
            raise NotChecked(f"no rows of columns, {LEAST_ROWS} of them")
        for column in range(x.shape[1]):
            groups = _told_exactly(x[:, column], y)
            if groups:
                yield Finding(
                    "target-in-inputs", "warning",
                    f"Column {column} of the inputs has {groups} values that several rows share, "
                    "and each value is exactly the mean target of its rows, up to scale: the "
                    "column was made with each row's own target.",
                    {"column": column, "groups": groups, "rows": len(x)},
                    "for fit, rest in folds:  # of each row's group, without the row\n"
                    "    x[rest, column] = mean_by_group(group[fit], y[fit])[group[rest]]",
                )  # fmt: skip
                return


def monotone(session: Session) -> Iterator[Finding]:
    """No column rises or falls with the target in every row, e.g. a price and its logarithm.

    Columns that are all made from one, such as its powers, are the curve to be learned.
    """
    x, y = _table(session.epoch.batches)
    if len(x) < LEAST_ROWS or x.shape[1] < 2 or len(y.unique()) < LEAST_VALUES:
        raise NotChecked(f"no rows of columns, {LEAST_ROWS} of them, with numbers as targets")
    told = [n for n in range(x.shape[1]) if _rises(x[:, n], y)]
    others = [n for n in range(x.shape[1]) if n not in told and len(x[:, n].unique()) > 1]
    if len(told) == 1 and others and not any(_follows(x[:, told[0]], x[:, n]) for n in others):
        yield Finding(
            "target-in-inputs", "warning",
            f"Column {told[0]} of the inputs puts all {len(x)} rows in exactly the order of their "
            "targets: the target was computed from that column alone, e.g. as its logarithm or "
            "rank.",
            {"column": told[0], "rows": len(x), "columns_in_all": x.shape[1]},
            f"inputs = np.delete(inputs, {told[0]}, axis=1)  # in training and in validation",
        )  # fmt: skip


def _rises(column: Tensor, y: Tensor) -> bool:
    """Targets never fall, or never rise, where a column of many values rises."""
    if len(column.unique()) < max(LEAST_VALUES, len(column) / 2):
        return False
    slack = TURNS_BACK * float(y.std())
    for values in (column, -column):
        by_target = y.argsort(stable=True)
        order = by_target[values[by_target].argsort(stable=True)]
        if bool((y[order].diff() >= -slack).all()):
            return True
    return False


def _follows(column: Tensor, other: Tensor) -> bool:
    """The other column is a smooth function of this one: neighbours have nearly the same value."""
    step = other[column.argsort()].diff()
    return float(step.square().mean()) < SMOOTH * float(other.var())


def _told_exactly(column: Tensor, y: Tensor) -> int:
    """How many values of a column are the mean target of the rows that have it, up to scale; 0
    where one is not, where rows that share a value have one target, or the means are all alike."""
    rounded = (column / column.abs().max().clamp_min(ZERO) / SAME_VALUE).round()
    values, place, count = rounded.unique(return_inverse=True, return_counts=True)
    if len(values) > len(y) / 2 or int((count > 1).sum()) < LEAST_GROUPS:
        return 0
    mean = torch.zeros(len(values)).double().index_add(0, place, y) / count
    value = torch.zeros(len(values)).double().index_add(0, place, column) / count
    inside = torch.zeros(len(values)).double().index_add(0, place, (y - mean[place]).square())
    mixed = inside > ZERO * y.var()
    if int(mixed.sum()) < LEAST_GROUPS:
        return 0
    line = torch.stack([value, torch.ones_like(value)], 1)
    off = mean - line @ torch.linalg.lstsq(line, mean[:, None]).solution[:, 0]
    spread = float(mean.std())
    exact = float(off.abs().max()) < EXACT * spread and spread > EXACT
    return int(mixed.sum()) if exact else 0


def _table(batches: list) -> tuple[Tensor, Tensor]:
    """Inputs [N, D] and one target each [N]."""
    if not batches:
        raise NotChecked("a loader is empty")
    pairs = [pair(batch) for batch in batches]
    if any(a.dim() != 2 or not a.is_floating_point() or b.numel() != len(a) for a, b in pairs):
        raise NotChecked("inputs are not rows of columns with one target each")
    x, y = (torch.cat([p[n].detach().cpu().double().flatten(1) if n == 0 else
                       p[n].detach().cpu().double().flatten() for p in pairs])
            for n in (0, 1))  # fmt: skip
    if not bool(torch.isfinite(x).all() and torch.isfinite(y).all()):
        raise NotChecked("inputs or targets are not finite")
    return x, y


def _correlations(x: Tensor, y: Tensor, classes: Tensor | None) -> Tensor:
    """Of each column with the target, or with each class [D, K]."""
    y = y[:, None] if classes is None else (y[:, None] == classes).double()
    x, y = x - x.mean(0), y - y.mean(0)
    size = (x.norm(dim=0)[:, None] * y.norm(dim=0)).clamp_min(ZERO)
    return ((x.T @ y) / size).clamp(-1 + ZERO, 1 - ZERO)
