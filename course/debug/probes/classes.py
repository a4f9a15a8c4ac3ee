"""Whether an accuracy may be recomputed: by its name, by what the model gets, by what it is for.

Outputs [N, C] are not always scores of classes: those of a triplet or contrastive loss are places,
and the accuracy of their neighbours depends on other rows too.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.session import NotChecked, Session, pair
from course.debug.probes.tape import Event

PLAIN = re.compile(
    r"(val|valid|validation|test|eval|dev|held|out|heldout|mean|overall|total|final|model|epoch"
    r"|score|clean|top1|top|1|class|classification|acc|accuracy|pct|percent|percentage|rate)+"
)
"""All words of a name that says no more than that it is an accuracy. Any other (knn, probe, group,
pair, episode) may stand for answers that are found otherwise, or for a part of them."""
TAUGHT = 0.9
"""Share of the rows in which the loss asks most for more of the target's own column, from which the
columns are the classes: by chance it is 1 / C."""
LEAST_ROWS = 8
"""Rows of a batch, or of several, that are asked."""
MOST_BATCHES = 4
"""Batches of which a step may be made for that: those whose steps are kept for other relations."""


def is_plain(name: str) -> bool:
    """Whether the name of an accuracy says nothing else."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return bool(PLAIN.fullmatch(re.sub(r"[^a-z0-9]", "", words)))


def met_as_they_are(events: list[Event], session: Session) -> bool:
    """Each call of the model got the inputs of a validation batch, and no others."""
    known = [session.place(pair(batch)[0]) for batch in session.val_epoch.batches]
    return all(
        e.inputs is not None
        and any(e.inputs.shape == k.shape and torch.equal(e.inputs.to(k), k) for k in known)
        for e in events
    )


def are_classes(session: Session) -> bool:
    """The training loss reads the outputs as scores of classes: in nearly each row its slope is
    least in the column of the row's target, or a cross-entropy gets them with the targets."""
    from course.debug.relations.program import program_of

    if "outputs are classes" not in session.memory:
        try:
            session.memory["outputs are classes"] = _taught(program_of(session))
        except NotChecked:
            session.memory["outputs are classes"] = False
    return session.memory["outputs are classes"]


def _taught(program: Any) -> bool:
    rows = right = 0
    for batch in program.batches[:MOST_BATCHES]:
        targets = pair(batch)[1].cpu()
        step = program.step(batch)
        if any(_is_met(e, targets, step.outputs) for e in step.losses):
            return True
        for slope in step.slopes[:1]:
            if slope.dim() != 2 or len(slope) != len(targets) or targets.dim() != 1:
                return False
            slope = slope.cpu()
            moved = (slope != 0).any(1)
            rows += int(moved.sum())
            right += int((slope.argmin(1) == targets)[moved].sum())
    return rows >= LEAST_ROWS and right >= TAUGHT * rows


def _is_met(event: Event, targets: Tensor, outputs: list[Tensor]) -> bool:
    """A cross-entropy of these targets and the outputs, or of what has the same order."""
    met = event.inputs
    return (
        event.name == "cross_entropy"
        and torch.equal(event.targets.cpu(), targets)
        and any(t.shape == met.shape and torch.equal(t.argmax(1), met.argmax(1)) for t in outputs)
    )
