"""Inputs and targets in a batch with more parts: what the model reads, and what the loss compares.

A dictionary with names, ids and labels is still a pair if the model gets one of its tensors and the
loss depends on one other.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from course.debug.probes.session import NotChecked, Session, is_a_pair
from course.debug.relations.program import changed, program_of
from course.debug.relations.steps import close
from course.state.nested import tensors_in

MOST_PARTS = 8
"""Tensors of a batch up to which each is asked whether the loss hangs on it."""


def places_in(session: Session) -> tuple[int, int] | None:
    """Positions of the inputs and of the targets among a batch's tensors.

    None if a batch is a pair anyway, if the model gets anything but one unchanged tensor of the
    batch, or if the loss depends on several others.
    """
    try:
        return _found(session)
    except NotChecked:
        return None


def _found(session: Session) -> tuple[int, int] | None:
    program = program_of(session)
    batch = program.batches[0]
    leaves = list(tensors_in(batch))
    if (is_a_pair(batch) and not isinstance(batch, dict)) or not 2 <= len(leaves) <= MOST_PARTS:
        return None
    step = program.first()
    given = [t for call in step.calls for t in call.tensors]
    inputs = [n for n, leaf in enumerate(leaves) if len(given) == 1 and _same(leaf, given[0])]
    if len(inputs) != 1 or not leaves[inputs[0]].dim() or not _takes(session, leaves[inputs[0]]):
        return None
    rows = len(leaves[inputs[0]])
    others = [n for n, leaf in enumerate(leaves)
              if n not in inputs and leaf.dim() and len(leaf) == rows]  # fmt: skip
    base = step.loss
    if not math.isfinite(base) or not close(base, program.step(batch, seed=1).loss):
        return None
    targets = []
    for n in others:
        other = _other(session, n)
        step = program.step(changed(batch, lambda t, n=n, o=other: o if t is leaves[n] else t))
        if not close(base, step.loss):
            targets.append(n)
    return (inputs[0], targets[0]) if len(targets) == 1 else None


def _other(session: Session, place: int) -> Tensor:
    """Another part for the first batch: its rows in another order, or those of a later batch where
    they are all alike.
    """
    first, *later = (list(tensors_in(batch))[place] for batch in program_of(session).batches)
    moved = first.roll(1, 0)
    alike = [t for t in later if t.shape == first.shape and not torch.equal(t, first)]
    if torch.equal(moved, first) and alike:
        return alike[-1]
    return moved


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(
        one.cpu(), other.cpu()
    )  # fmt: skip


def _takes(session: Session, inputs: Tensor) -> bool:
    """The model takes these alone."""
    with session.observe(), torch.no_grad():
        session.model.eval()
        session.call_model(inputs)
    return True
