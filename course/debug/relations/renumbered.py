"""Relation on ids with another name beside them: a name has one number, on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.joining import is_among, read_by_the_model
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

LEAST_IDS, LEAST_EACH = 5, 2
"""Different ids of a column, and rows for each in the mean, from which two columns that name the
same in two ways are no chance: row numbers beside anything come once each."""
LEAST_KNOWN = 20
"""Validation rows whose name is known from training."""
OTHERS = 0.2
"""Share of these with another number than in training: a slip in the data is rarer."""


def in_validation(session: Session) -> Iterator[Finding]:
    """If a batch holds ids or labels that are used and the same by other names, e.g. a customer's
    number beside a row of the embeddings, a name of training keeps its id in validation."""
    program = program_of(session)
    leaves, read = list(tensors_in(program.batches[0])), read_by_the_model(session)
    met = [e.targets for e in program.first().losses]
    whole = [n for n, t in enumerate(leaves) if t.dim() and t.numel() == len(t)
             and not t.is_floating_point() and t.dtype != torch.bool]  # fmt: skip
    used = [n for n in whole if n in read or is_among(leaves[n], met)]
    pairs = [(a, b) for a in used for b in whole if b not in used]
    if not pairs:
        raise NotChecked("no ids or labels that are used beside others that are not")
    sides = [_columns(epoch.batches, whole, len(leaves))
             for epoch in (session.epoch, session.val_epoch)]  # fmt: skip
    tried = False
    for a, b in pairs:
        (ids, names), (other, others) = ((side[a], side[b]) for side in sides)
        table = dict(zip(names.tolist(), ids.tolist(), strict=True))
        if not _is_one_to_one(ids, names) or not _is_one_to_one(other, others):
            continue
        if len(table) < LEAST_IDS or len(ids) < LEAST_EACH * len(table):
            continue
        known = [(table[n], i) for n, i in zip(others.tolist(), other.tolist(), strict=True)
                 if n in table]  # fmt: skip
        tried = tried or len(known) >= LEAST_KNOWN
        apart = sum(one != two for one, two in known)
        if len(known) >= LEAST_KNOWN and apart > OTHERS * len(known):
            yield Finding(
                "labels-renamed", "error",
                f"In {len(ids)} training rows each of {len(table)} ids has one other name beside "
                f"it, but {apart} of {len(known)} validation rows of known names "
                "have another id: ids were numbered separately on each side, so that what "
                "was learned of one is asked of another.",
                {"names": len(table), "rows_with_another_id": apart, "known_rows": len(known)},
                "codes = {name: n for n, name in enumerate(sorted(set(train_names)))}  # once\n"
                "val = [codes[name] for name in val_names]",
            )  # fmt: skip
            return
    if not tried:
        raise NotChecked("no two columns name the same, on both sides")


def _columns(batches: list[Any], places: list[int], parts: int) -> dict[int, Tensor]:
    found = [list(tensors_in(batch)) for batch in batches]
    if not found or any(len(leaves) != parts for leaves in found):
        raise NotChecked("a loader is empty, or batches have different parts")
    return {n: torch.cat([leaves[n].detach().cpu().flatten() for leaves in found]) for n in places}


def _is_one_to_one(ids: Tensor, names: Tensor) -> bool:
    """Each id has one name, and each name one id."""
    number = len(torch.stack([ids.long(), names.long()], 1).unique(dim=0))
    return number == len(ids.unique()) == len(names.unique())
