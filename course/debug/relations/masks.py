"""Relation on examples selected by masks: those for validation are not trained on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.one_table import other_rows
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.joining import is_among, read_by_the_model
from course.debug.relations.program import Program, exchanged, far, program_of
from course.debug.relations.steps import Call, close
from course.state.nested import tensors_in

EXACT = 1e-6
"""Relative change of a loss that rounding makes. Other labels for some rows may change it by less
than a thousandth: at the start all classes are about equally likely.
"""
FIX = "loss = F.cross_entropy(out[train_mask], y[train_mask])"


def held_out(session: Session) -> Iterator[Finding]:
    """If masks split one table, e.g. a graph's nodes, the training loss reads no held-out label.

    Held out is what the validation batch, identical except for its mask, selects; if one batch has
    several disjoint masks and the loss uses none of them, every label is trained on. Lists of the
    rows' numbers are masks too.
    """
    program = program_of(session)
    batch = program.batches[0]
    leaves = list(tensors_in(batch))
    masks = {n: t for n, t in enumerate(leaves) if t.dtype == torch.bool and t.dim() == 1}
    masks = masks or _listed(program, leaves)
    if not masks:
        raise NotChecked("a batch has no mask of its rows")
    rows = len(next(iter(masks.values())))
    read = read_by_the_model(session)
    labels = [n for n, t in enumerate(leaves) if n not in masks and t.dim()
              and len(t) == t.numel() == rows and not (n in read and _heeds(program, t))
              ]  # fmt: skip
    base = program.step(batch).loss  # of one seed, as are all that are compared with it
    if not close(base, program.step(batch, again=True).loss, EXACT):
        raise NotChecked("the loss of one batch is random")
    for y in labels:
        if (held := _chosen_to_validate(session, leaves)) is not None:
            if not close(base, _cost(session, batch, leaves[y], held), EXACT):
                yield _finding(int(held.sum()), rows)
                return
            continue
        apart = _apart(session, batch, [(leaves[n], mask) for n, mask in masks.items()], base)
        costs = (_cost(session, batch, leaves[y], mask) for mask in apart)
        if apart and not any(close(base, cost, EXACT) for cost in costs):
            yield _finding(min(int(m.sum()) for m in apart), rows)
            return


def _listed(program: Program, leaves: list[Tensor]) -> dict[int, Tensor]:
    """Lists of different numbers of rows of the output, as masks, by their place in a batch."""
    lists = {n: t for n, t in enumerate(leaves) if t.dim() == 1 < len(t) and t.dtype == torch.long}
    if len(lists) < 2:
        return {}
    outputs = program.replay(program.call())
    rows = len(outputs[0]) if outputs[0].dim() else 0
    lists = {n: t for n, t in lists.items()
             if len(t) < rows and int(t.min()) >= 0 and int(t.max()) < rows
             and len(t.unique()) == len(t)}  # fmt: skip
    return {n: torch.zeros(rows, dtype=torch.bool).index_fill(0, t.cpu(), True)
            for n, t in lists.items()}  # fmt: skip


def _heeds(program: Program, leaf: Tensor) -> bool:
    """The model's outputs change with something that it gets, maybe only as a part of a batch."""
    call = program.call()
    got = next(t for t in call.tensors if is_among(leaf, [t]))
    other = Call(*exchanged((call.args, call.kwargs), got, got.roll(1, 0)))
    return far(program.replay(call), program.replay(other)) > 0


def _finding(held: int, rows: int) -> Finding:
    return Finding(
        "trains-on-validation", "error",
        f"The training loss changes with the labels of {held} of {rows} rows that a mask reserves "
        "for validation: the mask is not applied to the loss, and their score says nothing.",
        {"rows_held_out": held, "rows": rows}, FIX,
    )  # fmt: skip


def _chosen_to_validate(session: Session, leaves: list[Tensor]) -> Tensor | None:
    """The rows that a validation batch chooses of the same table; None: it is another."""
    if session.setup.val_loader is None or not session.val_epoch.batches:
        return None
    return other_rows(leaves, list(tensors_in(session.val_epoch.batches[0])))


def _apart(
    session: Session, batch: Any, masks: list[tuple[Tensor, Tensor]], base: float
) -> list[Tensor]:
    """Masks that have no row in common, none of which the loss heeds."""
    chosen = [mask for _, mask in masks]
    apart = len(chosen) > 1 and not any(bool((a & b).any()) for a, b in combinations(chosen, 2))
    if not apart or not all(bool(m.any()) for m in chosen):
        return []
    program = program_of(session)
    for leaf, mask in masks:
        turned = ~mask if leaf is mask else (~mask).nonzero()[:, 0].to(leaf.device)
        if not close(base, program.step(exchanged(batch, leaf, turned)).loss, EXACT):
            return []
    return chosen


def _cost(session: Session, batch: Any, labels: Tensor, rows: Tensor) -> float:
    """What the batch costs with other labels in some rows: those of other rows."""
    order = labels.argsort(stable=True)
    other = labels.clone()
    other[order] = labels[order.roll(len(order) // 2)]
    new = torch.where(rows.to(labels.device), other, labels)
    program = program_of(session)
    return program.step(exchanged(batch, labels, new)).loss
