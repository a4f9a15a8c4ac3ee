"""Training and validation as rows of one table, e.g. a graph's nodes, that masks tell apart."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

from course.debug.probes.session import NotChecked, Session
from course.state.nested import tensors_in


def holds_both_sides(session: Session) -> bool:
    """Both loaders give one batch, the same but for a mask, and each side takes its own rows.

    The batch says so by a mask of other rows in validation, or by two masks or lists of rows with
    none in common; else the step shows it: its loss does not depend on some rows of the outputs.
    """
    both = session.epoch.batches, session.val_epoch.batches
    if any(len(batches) != 1 for batches in both):
        return False
    train, val = (list(tensors_in(batches[0])) for batches in both)
    if other_rows(train, val) is not None:
        return True
    if len(train) != len(val) or not all(map(_same, train, val)):
        return False
    return _have_two_parts(train) or _takes_some_rows(session)


def other_rows(train: list[Tensor], val: list[Tensor]) -> Tensor | None:
    """The mask of rows of the one tensor in which a validation batch differs; None: it is another
    table, or its mask has rows in common with training's."""
    if len(train) != len(val):
        return None
    differ = [(a, b) for a, b in zip(train, val, strict=True) if not _same(a, b)]
    if len(differ) != 1 or any(t.dtype != torch.bool or t.dim() != 1 for t in differ[0]):
        return None
    one, two = differ[0]
    return two if one.shape == two.shape and not bool((one & two).any()) else None


def _same(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.shape == b.shape and torch.equal(a, b))


def _have_two_parts(leaves: list[Tensor]) -> bool:
    """Two masks, or two lists of different numbers, that share no row."""
    flat = [t for t in leaves if t.dim() == 1 and len(t) and not t.is_floating_point()]
    masks = [t for t in flat if t.dtype == torch.bool and bool(t.any())]
    lists = [t for t in flat if t.dtype == torch.long and 1 < len(t) == len(t.unique())]
    return any(a.shape == b.shape and not bool((a & b).any()) for a, b in combinations(masks, 2)
               ) or any(not bool(torch.isin(a, b).any())
                        for a, b in combinations(lists, 2))  # fmt: skip


def _takes_some_rows(session: Session) -> bool:
    """No gradient reaches some rows of the outputs."""
    from course.debug.relations.program import program_of
    from course.debug.relations.reach import output_gradients

    try:
        program = program_of(session)
        gradients = output_gradients(program, program.batches[0])[1]
    except NotChecked:
        return False
    rows = [g.flatten(1).any(1) for g in gradients if g.dim() > 1]
    return any(bool(r.any()) and not bool(r.all()) for r in rows)
