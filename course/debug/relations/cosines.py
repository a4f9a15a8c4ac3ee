"""Relation on logits: cosines get a factor, without which no softmax of them is near 0 or 1."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain

import torch
from torch import Tensor, nn

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import ROUNDED
from course.debug.relations.program import Program, program_of
from course.debug.relations.reach import LARGE, LARGER

STILL_SPREAD = 1.5
"""Range of logits with larger weights, as a multiple of that with large ones, that is no growth."""
FARTHER = 3.0
"""By so much are cosines of vectors that point in the same direction larger than the largest of
those that are met, where they are not below a third."""
LOW_ENOUGH = 0.3
"""Share of the loss of a guess that may be left where all logits are at the ends of their range; of
4 classes with cosines for logits it is 0.25, of 10 classes 0.35."""


def scaled(session: Session) -> Iterator[Finding]:
    """Logits of a cross-entropy can get far enough apart for the loss to fall.

    Cosines lie between -1 and 1 whatever the weights; only with a factor can their softmax get near
    0 and 1. A learned factor counts, in the model or in the loss.
    """
    program = program_of(session)
    logits = _one_table([e.inputs for e in program.first().losses if e.name == "cross_entropy"])
    if logits is None or logits.dim() < 2 or logits.shape[1] < 2:
        raise NotChecked("the step has no single cross-entropy, nor two of one table")
    large, larger = _enlarged(program, LARGE), _enlarged(program, LARGER)
    if bool(((large.sum(1) - 1).abs() < ROUNDED).all()):
        raise NotChecked("the logits are shares already, which other checks ask about")
    moved = (_enlarged(program, LARGE, more=sign * LARGE) for sign in (1, -1))
    known = _spread(large)
    if not known > 0 or any(_spread(t) > STILL_SPREAD * known for t in chain([larger], moved)):
        raise NotChecked("logits grow with the weights, or with a factor")
    number, own = large.shape[1], _range([logits, large, larger])
    least = math.log1p((number - 1) * math.exp(-own))
    share = least / math.log(number)
    if share > LOW_ENOUGH:
        yield Finding(
            "targets-out-of-reach", "warning",
            f"The logits of {number} classes lie within {own:.3g} of each other, even if all "
            f"weights are {LARGE:g} times as large: the loss cannot fall below {least:.3g}, where "
            f"a guess has {math.log(number):.3g}. They are cosines without a factor.",
            {"range_of_logits": own, "least_loss": least, "loss_of_a_guess": math.log(number)},
            "logits = cosines / 0.07  # divided by the temperature, which is below 1",
        )  # fmt: skip


def _enlarged(program: Program, size: float, more: float = 0.0) -> Tensor:
    """Logits with larger weights.

    Args:
        size: By which all are multiplied, those that belong to the loss too.
        more: What is added to a single one, which may be a factor's logarithm.
    """

    loss_fn = program.session.setup.loss_fn
    learned = {id(p): p for p in program.first().tape.watched}
    learned |= {id(p): p for p in loss_fn.parameters()} if isinstance(loss_fn, nn.Module) else {}

    def enlarge() -> None:
        for p in learned.values():
            p.mul_(size).add_(more if p.numel() == 1 else 0.0)

    after = program.step(program.batches[0], prepare=enlarge).losses
    met = _one_table([e.inputs.detach() for e in after if e.name == "cross_entropy"])
    if met is None or not bool(torch.isfinite(met).all()):
        raise NotChecked("the logits are not finite with larger weights")
    return met


def _one_table(logits: list[Tensor]) -> Tensor | None:
    """Those of the only loss, or of two that look down the rows and the columns of one table."""
    both = len(logits) == 2 and logits[0].dim() == 2 and logits[1].shape == logits[0].T.shape
    alike = both and torch.allclose(logits[0], logits[1].T)
    return logits[0] if len(logits) == 1 or alike else None


def _range(logits: list[Tensor]) -> float:
    """How far apart logits can come that do not grow: cosines do not meet their ends by chance."""
    most = max(float(t.abs().max()) for t in logits)
    end = FARTHER * most if most > 1 + ROUNDED else max(most, min(FARTHER * most, 1.0))
    return end if min(float(t.min()) for t in logits) >= 0 else 2 * end


def _spread(logits: Tensor) -> float:
    rows = logits.movedim(1, -1)
    return float((rows.amax(-1) - rows.amin(-1)).max())
