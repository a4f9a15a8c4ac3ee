"""Relation on a loss of several terms: all are means over the rows of a batch, or all are sums.

If each row of a batch is there twice, a mean stays the same and a sum doubles. A single term that
is a sum next to means grows with the batch size, and so does its weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.program import Program, changed, program_of
from course.debug.relations.steps import close
from course.debug.relations.variances import NORMAL
from course.state.nested import tensors_in

EXACT = 1e-4
"""Relative difference of losses that are equal but for rounding."""
MIXED = 0.02
"""Share of the loss that has to be a sum, and share that has to be a mean."""


def alike(session: Session) -> Iterator[Finding]:
    """Either all terms of a loss grow with the number of rows, or none does.

    A term that does not depend on the batch, such as a penalty on weights, is neither.
    """
    program = program_of(session)
    sums, means = _parts(program, program.batches[0])
    others = [b for b in program.batches[1:4] if _rows(b) == _rows(program.batches[0])]
    if not others:
        raise NotChecked("fewer than two batches of one size")
    if not _are_both(sums, means):
        return
    if close(_parts(program, others[0])[1], means, EXACT):
        return  # the part that does not grow is not of the data
    yield Finding(
        "wrong-formula", "warning",
        f"Of a loss of {sums + means:.4g} a part of {sums:.4g} doubles when each row of the batch "
        f"is there twice, but {means:.4g} does not: one term is a sum over rows next to a mean, so "
        "its weight depends on the batch size.",
        {"sums": sums, "means": means, "rows": _rows(program.batches[0])},
        "kl = -0.5 * (1 + log_var - mu**2 - log_var.exp()).sum(dim=1).mean()  # rows: a mean",
    )  # fmt: skip


def _parts(program: Program, batch: Any) -> tuple[float, float]:
    """How much of a batch's loss is a sum over its rows, and how much a mean.

    Raises:
        NotChecked: It is neither, as where rows are compared with each other.
    """
    if program.first().calls_any(NORMAL):
        once = program.step(batch, within=_NoNoise()).loss
    else:
        once = program.step(batch).loss
    twice = _cost(program, batch, 2)
    sums, means = twice - once, 2 * once - twice
    if not math.isfinite(sums):
        raise NotChecked("the loss is not finite")
    if _are_both(sums, means):  # else a batch that is there three times changes nothing
        thrice = _cost(program, batch, 3)
        if not math.isfinite(thrice):
            raise NotChecked("the loss is not finite")
        if not close(thrice - twice, sums, EXACT * max(1.0, abs(once))):
            raise NotChecked("the loss is not a sum of means and sums over rows")
    return sums, means


def _are_both(sums: float, means: float) -> bool:
    """Neither is next to nothing."""
    return min(abs(sums), abs(means)) > MIXED * (abs(sums) + abs(means))


def _cost(program: Program, batch: Any, times: int) -> float:
    return program.step(_repeated(batch, times), within=_NoNoise()).loss


def _repeated(batch: Any, times: int) -> Any:
    rows = _rows(batch)
    return changed(batch, lambda t: torch.cat([t] * times) if t.dim() and len(t) == rows else t)


def _rows(batch: Any) -> int:
    """Of a batch whose tensors have one row for each example.

    Raises:
        NotChecked: They have not.
    """
    found = {len(t) if t.dim() else 0 for t in tensors_in(batch)}
    if len(found) != 1 or (rows := found.pop()) < 2:
        raise NotChecked("tensors of a batch do not have one row for each example")
    return rows


class _NoNoise(TorchFunctionMode):
    """Normal noise is 0, so that a batch costs the same whatever its size."""

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        if function in NORMAL and isinstance(result, Tensor):
            return torch.zeros_like(result)
        return result
