"""Relation on series: what the past does not determine, no derived column determines exactly.

A column smoothed or interpolated over both sides of its time contains part of what comes next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import IterableDataset

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import TINY

MOST_ITEMS = 1500
"""Items that are read, in their order."""
MOST_COLUMNS = 200
"""Numbers of an item's inputs; with more the fit is no longer cheap."""
ROWS_PER_COLUMN = 2
"""Items for each column, from which an exact fit is no chance."""
SAME_SERIES = 0.99999
"""Correlation of a column and earlier targets that are the same series, also on another scale."""
EXACT, UNTOLD = 1e-3, 0.03
"""What a fit leaves over, as a share of the targets' deviation: where it is exact but for rounding,
and where the past alone leaves something untold."""


def exactly(session: Session) -> Iterator[Finding]:
    """Targets are not an exact linear function of the columns, unless of their own past alone."""
    x, y = _in_order(session)
    if len(x) < ROWS_PER_COLUMN * x.shape[1] or float(y.std()) == 0:
        raise NotChecked("too few items in order for their columns")
    past = _lags(x, y)
    if not past.any() or past.all():
        raise NotChecked("columns are not a mix of earlier targets and others")
    alone, together = _left_over(x[:, past], y), _left_over(x, y)
    if together < EXACT and alone > UNTOLD:
        yield Finding(
            "target-in-inputs", "error",
            f"{int(past.sum())} columns are earlier values of the target series and leave "
            f"{alone:.0%} of its deviation unexplained; with the {int((~past).sum())} other "
            "columns each target is an exact linear function of its inputs. One of them is made "
            "with later values, e.g. by a centred mean.",
            {"columns_of_the_past": int(past.sum()), "others": int((~past).sum()),
             "left_over_by_the_past": alone, "left_over_by_all": together},
            "smooth = series.rolling(5).mean()  # only the past; not center=True, no interpolation",
        )  # fmt: skip


def _in_order(session: Session) -> tuple[Tensor, Tensor]:
    """Inputs [N, D] and targets [N] of the train_loader's items in their own order.

    Raises:
        NotChecked: Items are not two tensors of floats, the second of one number.
    """
    data = getattr(session.setup.train_loader, "dataset", None)
    if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
        raise NotChecked("the loader has no data set that can be asked for an item")
    with session.observe():
        items = [_floats(data[index]) for index in range(min(len(data), MOST_ITEMS))]
    if len({(len(x), len(y)) for x, y in items}) != 1 or len(items[0][1]) != 1:
        raise NotChecked("items do not have one number to predict")
    if len(items[0][0]) > MOST_COLUMNS:
        raise NotChecked("an item has too many numbers")
    x, y = (torch.stack(part).double() for part in zip(*items, strict=True))
    if not bool(x.isfinite().all() and y.isfinite().all()):
        raise NotChecked("items are not finite")
    return x, y[:, 0]


def _floats(item: Any) -> tuple[Tensor, Tensor]:
    parts = [leaf for leaf in tree_leaves(item) if isinstance(leaf, Tensor)]
    if len(parts) != 2 or not all(t.is_floating_point() for t in parts):
        raise NotChecked("items are not two tensors of floats")
    return parts[0].detach().flatten(), parts[1].detach().flatten()


def _lags(x: Tensor, y: Tensor) -> Tensor:
    """Which columns are earlier targets."""
    found = torch.zeros(x.shape[1], dtype=torch.bool)
    for lag in range(1, x.shape[1] + 2):
        if len(x) - lag < ROWS_PER_COLUMN * 2:
            break
        late, early = _standard(x[lag:]), _standard(y[:-lag, None])
        found |= (late * early).mean(0).abs() > SAME_SERIES
    return found


def _standard(table: Tensor) -> Tensor:
    return (table - table.mean(0)) / table.std(0, correction=0).clamp_min(TINY)


def _left_over(x: Tensor, y: Tensor) -> float:
    """What a sum of columns leaves of the targets, in their standard deviations."""
    both = torch.cat([_standard(x), torch.ones(len(x), 1).double()], 1)
    fit = torch.linalg.lstsq(both, y[:, None], driver="gelsd").solution
    return float((both @ fit - y[:, None]).std() / y.std())
