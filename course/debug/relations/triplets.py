"""Relation on triplets: what one pulls to its anchor, another does not push off it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import NEARLY_ALL
from course.debug.relations.joining import read_by_the_model
from course.debug.relations.program import exchanged, program_of
from course.debug.relations.steps import close
from course.state.nested import tensors_in

SHARED = 0.2
"""Share of the negatives with their anchor's label, above which these are no few among many classes
that a random draw was accepted to hit."""
CONTRADICTIONS = 3
"""Pairs of examples that are both pulled together and pushed apart. Where negatives are drawn from
all classes, two passes hold about eight of them, however many examples and classes there are."""
MOST_NUMBERS = 2_000_000
"""Numbers in two passes up to which each row is looked up."""


def contradict(session: Session) -> Iterator[Finding]:
    """No two examples of one label are a positive pair in one triplet, a negative in another.

    Labels are those of the anchors: the positives and negatives are looked up among the anchors of
    the same epochs.
    """
    program = program_of(session)
    batch = program.batches[0]
    leaves, read = list(tensors_in(batch)), read_by_the_model(session)
    parts = [n for n in sorted(read) if leaves[n].is_floating_point() and leaves[n].dim() > 1]
    labels = [n for n, t in enumerate(leaves)
              if n not in read and t.dim() == 1 and not t.is_floating_point()]  # fmt: skip
    if len(parts) != 3 or len({leaves[n].shape for n in parts}) != 1 or not labels:
        raise NotChecked("the model does not get three parts of one shape, next to labels")
    passes = [list(tensors_in(b)) for half in session.two_passes for b in half]
    if (
        any(len(b) != len(leaves) for b in passes)
        or sum(b[n].numel() for b in passes for n in parts) > MOST_NUMBERS
    ):
        raise NotChecked("batches have different parts, or an epoch is too large")
    rows = {n: [_bytes(row) for b in passes for row in b[n]] for n in parts}
    for of_anchor in labels:
        told = torch.cat([b[of_anchor] for b in passes]).tolist()
        for anchor, positive, negative in permutations(parts):
            if len(told) != len(rows[anchor]):
                continue
            label = dict(zip(rows[anchor], told, strict=True))
            if any(label[row] != y for row, y in zip(rows[anchor], told, strict=True)):
                continue  # one example has several
            met = [[label.get(row) for row in rows[n]] for n in (positive, negative)]
            found = [[o == y for o, y in zip(m, told, strict=True) if o is not None] for m in met]
            if min(map(len, found)) < NEARLY_ALL * len(told) or not all(found[0]):
                continue
            share = sum(found[1]) / len(found[1])
            both = _pairs(rows[anchor], rows[positive]) & _pairs(rows[anchor], rows[negative])
            if share < SHARED or len(both) < CONTRADICTIONS:
                continue
            if _is_pushed_off(program, batch, *(leaves[n] for n in (anchor, positive, negative))):
                yield Finding(
                    "wrong-targets", "warning",
                    f"{share:.0%} of the examples that a triplet pushes off its anchor have the "
                    "anchor's own label, as all have that it pulls to it; in two passes over the "
                    f"train_loader, {len(both)} pairs are pulled together in one triplet and "
                    "pushed apart in another: negatives have to be drawn from the other labels.",
                    {"negatives_of_same_label": share, "pairs_of_both_kinds": len(both)},
                    "other = (label + torch.randint(1, num_classes, ())) % num_classes  # not 0",
                )  # fmt: skip
                return


def _bytes(row: Tensor) -> bytes:
    return row.detach().cpu().double().numpy().tobytes()


def _pairs(some: list[bytes], others: list[bytes]) -> set[frozenset[bytes]]:
    return {frozenset(pair) for pair in zip(some, others, strict=True) if pair[0] != pair[1]}


def _is_pushed_off(
    program: Any, batch: Any, anchor: Tensor, positive: Tensor, negative: Tensor
) -> bool:
    """The loss falls if the anchor is in the place of the positive, and rises in the other's."""
    base = program.steady_loss(batch)
    near, off = (program.step(exchanged(batch, t, anchor)).loss for t in (positive, negative))
    return near < base < off and not close(near, base) and not close(base, off)
