"""Relation on columns of one kind: what is kept as two things is not one thing, changed later.

An array that is changed in place and kept without a copy is in the end the same in every entry,
e.g. the states before and after a step of an environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import torch
from torch import Tensor

from course.debug.probes.answers import rows_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import MOST, OFTEN
from course.state.nested import num_examples, tensors_in

LEAST_ROWS = 32
"""Rows of both sides from which columns that are always or never the same are so by no chance."""


def kept_apart(session: Session) -> Iterator[Finding]:
    """Two columns are not the same in all training rows, of which most repeat, if they differ in
    the validation data, of which few repeat.

    One thing given twice on purpose does not repeat in other rows, or does so with all columns.
    """
    train, val = (_columns(e.batches) for e in (session.epoch, session.val_epoch))
    if not train or [t.shape[1:] for t in train] != [t.shape[1:] for t in val]:
        raise NotChecked("batches do not have the same columns on both sides")
    if min(len(train[0]), len(val[0])) < LEAST_ROWS:
        raise NotChecked(f"fewer than {LEAST_ROWS} rows on a side")
    numbers = [n for n, t in enumerate(train) if t.is_floating_point() and t[0].numel() > 1]
    for a, b in combinations(numbers, 2):
        if train[a].shape != train[b].shape or not torch.equal(train[a], train[b]):
            continue
        differ = float((val[a] != val[b]).flatten(1).any(1).double().mean())
        kinds, other_kinds = _distinct(train[a]), _distinct(val[a])
        whole = _distinct(torch.cat([t.double().reshape(len(t), -1) for t in train], dim=1))
        rows, others = len(train[a]), len(val[a])
        if kinds < min(OFTEN * rows, whole) and differ > MOST and other_kinds > MOST * others:
            yield Finding(
                "memory-shared", "error",
                f"Two columns of the training data ({list(train[a].shape[1:])}) are equal in all "
                f"{rows} rows, but differ in {differ:.0%} of the validation rows; and only {kinds} "
                f"of the {rows} are different, where {other_kinds} of {others} are in validation. "
                "One array was kept many times and then changed in place: each entry shows what it "
                "held last.",
                {"rows": rows, "different_rows": kinds, "differ_in_validation": differ,
                 "different_rows_in_validation": other_kinds},
                "buffer.append((state.copy(), action, next_state.copy()))  # .clone() of tensors",
            )  # fmt: skip
            return


def _columns(batches: list) -> list[Tensor]:
    """All tensors with a row for each example, of all batches; none where batches differ."""
    parts = [
        [t.detach().cpu() for t in tensors_in(b) if t.dim() and len(t) == num_examples(b)]
        for b in batches
    ]
    shapes = {tuple(t.shape[1:] for t in part) for part in parts}
    return [torch.cat(column) for column in zip(*parts, strict=True)] if len(shapes) == 1 else []


def _distinct(rows: Tensor) -> int:
    return len(set(rows_of(rows)))
