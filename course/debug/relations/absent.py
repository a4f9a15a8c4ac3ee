"""Relation on missing targets: if a mask marks a target as missing, its placeholder is not learned.

Entries of a table without a target are filled with a number that no target can have, such as -1
among targets from 0 to 1. A loss that changes with it pulls outputs towards it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.joining import read_by_the_model
from course.debug.relations.program import exchanged, program_of
from course.debug.relations.steps import SAME, close
from course.state.nested import tensors_in

FAR = 2.0
"""A mark is so many times as far from 0 as the largest target, or of the other sign than all."""
LEAST_PLACES = 8
"""Places with a target, and without one, below which either may be alike by chance."""


def marked(session: Session) -> Iterator[Finding]:
    """The placeholder that fills entries without a target plays no part in the loss."""
    program = program_of(session)
    batch = program.batches[0]
    leaves = list(tensors_in(batch))
    read = read_by_the_model(session)
    flags = [t for t in leaves if t.dim() > 1 and (t.dtype == torch.bool or _is_of_flags(t))]
    tables = [(t, mark) for n, t in enumerate(leaves) if n not in read and t.is_floating_point()
              and (mark := _mark_of(t, flags)) is not None]  # fmt: skip
    if not tables:
        raise NotChecked("no part of a batch is filled with a placeholder where a mask says so")
    base = program.steady_loss(batch)
    for table, (where, value) in tables:
        low, high = float(table[~where].min()), float(table[~where].max())
        other = torch.where(where, (low + high) / 2, table)
        if not close(base, program.step(exchanged(batch, table, other)).loss, SAME):
            yield Finding(
                "padding-in-the-loss", "warning",
                f"{int(where.sum())} of {where.numel()} targets are {value:g}, a placeholder for a "
                f"missing target (the others are {low:.3g} to {high:.3g}, and a mask in the batch "
                "marks which are missing), but the loss changes with that number: outputs are "
                "pulled towards it.",
                {"mark": value, "marked": int(where.sum()), "lowest": low, "highest": high},
                "apart = F.l1_loss(boxes, targets, reduction='none').mean(-1)\n"
                "loss = (apart * mask).sum() / mask.sum()",
            )  # fmt: skip
            return


def _is_of_flags(t: Tensor) -> bool:
    return bool(((t == 0) | (t == 1)).all()) and t.unique().numel() == 2


def _mark_of(table: Tensor, flags: list[Tensor]) -> tuple[Tensor, float] | None:
    """Where a mask says that a table holds no target, and the one number that it holds there."""
    for flag in flags:
        if table.shape[: flag.dim()] != flag.shape or flag is table:
            continue
        behind = flag.reshape(*flag.shape, *[1] * (table.dim() - flag.dim())) > 0
        for where in (~behind.expand_as(table), behind.expand_as(table)):
            absent, real = table[where], table[~where]
            if min(absent.numel(), real.numel()) < LEAST_PLACES or not bool(
                torch.isfinite(table).all()
            ):
                continue
            value = float(absent[0])
            opposite = value * float(real.min()) <= 0 and value * float(real.max()) <= 0
            beyond = abs(value) > FAR * float(real.abs().max())
            told = value != 0 and (opposite or beyond) and real.unique().numel() > LEAST_PLACES
            if told and bool((absent == value).all()):
                return where, value
    return None
