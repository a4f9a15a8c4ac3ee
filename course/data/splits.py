"""Splits: which examples are for training and which for validation.

Four ways: at random, with each class's share kept, by group, by time. scikit-learn draws the first
and the third; its stratified splitter may leave a rare class without a validation example, and its
time splitter may separate examples of the same time, so these two are ours. `check_split` looks at
the result.

Source: Lecture 3, "Splits and shift"; ledger T24, F99, F100, B22.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from course.data.columns import as_array, as_column, codes_of, gaps, in_order, is_nothing

Indices = NDArray[np.int64]


def random_split(num: int, val_share: float = 0.2, *, seed: int = 0) -> tuple[Indices, Indices]:
    """Indices [N_train] and [N_val], drawn at random.

    Raises:
        ValueError: One side would be empty.
    """
    from sklearn.model_selection import train_test_split

    num_val = _num_val(num, val_share)
    train, val = train_test_split(np.arange(num), test_size=num_val, random_state=seed)
    return np.sort(train), np.sort(val)


def stratified_split(
    targets: ArrayLike, val_share: float = 0.2, *, seed: int = 0
) -> tuple[Indices, Indices]:
    """A random split in which each class keeps its share on both sides.

    Args:
        targets: [N] classes: indices, text, or anything that can be distinguished.

    Raises:
        ValueError: A class has a single example, which cannot be on both sides; a target is nan or
            None; or targets are not [N].
    """
    labels = torch.from_numpy(np.unique(_classes_of(targets), return_inverse=True)[1])
    _num_val(len(labels), val_share)
    if (rare := labels.bincount()).min() < 2:
        name = np.unique(_classes_of(targets))[int(rare.argmin())]
        raise ValueError(
            f"class {name} has 1 example, but both sides need one. Collect more, merge the class "
            "with another, or use random_split."
        )
    train, val = by_class(labels, val_share, torch.Generator().manual_seed(seed), least=1)
    return train.sort().values.numpy(), val.sort().values.numpy()


def by_class(
    targets: Tensor, val_share: float, generator: torch.Generator, *, least: int = 0
) -> tuple[Tensor, Tensor]:
    """Indices of both sides, class by class, shuffled within each.

    Args:
        targets: Class indices [N].
        val_share: Share of each class used for validation, rounded.
        generator: Shuffles each class.
        least: Minimum number of examples of each class on either side.
    """
    train, val = [], []
    for label in targets.unique():
        members = (targets == label).nonzero().flatten()
        members = members[torch.randperm(len(members), generator=generator)]
        num_val = min(max(round(len(members) * val_share), least), len(members) - least)
        val.append(members[:num_val])
        train.append(members[num_val:])
    return torch.cat(train), torch.cat(val)


def group_split(
    groups: ArrayLike, val_share: float = 0.2, *, seed: int = 0
) -> tuple[Indices, Indices]:
    """Whole groups (patients, videos, users) go to one side; groups are drawn, not examples.

    Args:
        groups: [N] group of each example, of any comparable type.

    Raises:
        ValueError: There is only one group, or an example has none (None, nan).
    """
    groups = _groups_of(groups)
    names = np.unique(groups)
    if len(names) < 2:
        raise ValueError(
            f"{len(names)} group: a split by group needs at least 2. Is this the right column?"
        )
    from sklearn.model_selection import GroupShuffleSplit

    num_val = _num_val(len(names), val_share)
    splitter = GroupShuffleSplit(1, test_size=num_val, random_state=seed)
    train, val = next(splitter.split(groups, groups=groups))
    return np.sort(train), np.sort(val)


def time_split(times: ArrayLike, val_share: float = 0.2) -> tuple[Indices, Indices]:
    """The latest share is for validation. Examples of the same time stay together, in training.

    Args:
        times: [N] numbers, dates (Python's, NumPy's) or text that is an ISO date.

    Raises:
        ValueError: No time is after the cut; a time is nan or None; or times have no order.
    """
    times = in_order(times)
    if missing := int(gaps(times).sum()):
        raise ValueError(
            f"{missing} of {len(times)} times are nan or None, so it is unknown on which side they "
            "belong. Leave these examples out, or give them the time at which they were recorded."
        )
    cut = np.sort(times)[len(times) - _num_val(len(times), val_share) - 1]
    val = np.flatnonzero(times > cut)
    if not len(val):
        raise ValueError(
            f"no example is later than {cut}: more examples than the requested share have the last "
            "time. Use a larger val_share, or finer times."
        )
    return _rest_and(val, len(times))


def _classes_of(targets: Any) -> np.ndarray:
    """Classes [N] that can be compared and sorted."""
    labels = as_column(as_array(targets))
    if labels.ndim != 1:
        raise ValueError(
            f"targets are {list(labels.shape)}: expected one class per example, shape [N]. "
            "One-hot rows? Use targets.argmax(1)."
        )
    if missing := int(gaps(labels).sum()):
        raise ValueError(
            f"{missing} of {len(labels)} targets are nan or None: a class must be known to keep "
            "its share. Leave these examples out, or fill in their class."
        )
    return codes_of(labels)[0][0] if labels.dtype.kind in "OV" else labels


def _groups_of(groups: Any) -> np.ndarray:
    """A number for each example's group; groups may be named by anything, tuples too."""
    column = as_array(groups)
    names = np.empty(len(column), dtype=object)
    names[:] = [tuple(n) if isinstance(n, list) else n for n in column.tolist()]
    if missing := sum(map(is_nothing, names)):
        raise ValueError(
            f"{missing} of {len(names)} examples have no group (nan or None), so it is unknown to "
            "which they belong. Leave them out, or give each its own group."
        )
    return codes_of(names)[0][0]


def _num_val(num: int, val_share: float) -> int:
    if not isinstance(num, Integral) or not isinstance(val_share, Real) or val_share != val_share:
        raise ValueError(
            f"val_share = {val_share!r} of num = {num!r}: expected a share between 0 and 1 of a "
            "whole number of examples, e.g. 0.2 of 1000."
        )
    num_val = round(num * val_share)
    if not 0 < num_val < num:
        raise ValueError(
            f"val_share = {val_share} of {num} leaves {num - num_val} for training and {num_val} "
            "for validation: both sides need at least 1. Use a share such as 0.2."
        )
    return num_val


def _rest_and(val: np.ndarray, num: int) -> tuple[Indices, Indices]:
    val = np.sort(val)
    return np.setdiff1d(np.arange(num), val), val
