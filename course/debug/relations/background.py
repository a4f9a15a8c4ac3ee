"""Relation on places without a target: the zeros that fill them are not learned as targets.

A grid of boxes holds a target in a few cells and zeros in all others, and flags say which. What no
score ever reads there need not be learned, and pulls the outputs elsewhere towards 0 with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.modes import close as same_score
from course.debug.probes.modes import evaluation_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, as_metrics
from course.debug.relations.joining import read_by_the_model
from course.debug.relations.program import exchanged, program_of
from course.debug.relations.rebatched import trained
from course.debug.relations.steps import close
from course.state.nested import mapped, tensors_in

LEAST_PLACES = 8
"""Places with a target, and without one, below which either may be alike by chance."""
LEFT = ("loss", "train")
"""Words of scores that are the training loss itself, with all that it counts."""


def placeholders(session: Session) -> Iterator[Finding]:
    """Zeros in places without a target play no part in the loss, if no score reads outputs there.

    Asked only where another output of the model says which places count: then what a target is
    predicted to be in the others is never used.
    """
    program = program_of(session)
    batch = program.batches[0]
    read, leaves = read_by_the_model(session), list(tensors_in(batch))
    own = [t for n, t in enumerate(leaves) if n not in read]
    pairs = [(flags, table) for flags in own for table in own if _fills(flags, table)]
    if not pairs:
        raise NotChecked("no part of a batch is 0 wherever flags of the batch are")
    seen = evaluation_of(session)
    names = [n for n in seen.first if not any(word in n.lower() for word in LEFT)]
    base = program.steady_loss(batch)
    for flags, table in pairs:
        where = _behind(flags, table)
        other = torch.where(where, table, table[where].mean())
        moved = program.step(exchanged(batch, table, other)).loss
        if close(base, moved) or not names:
            continue
        first = seen.first
        absent, present = (_scored(session, flags, table, on) for on in (False, True))
        if absent is None or present is None:
            continue
        if not _moved(names, first, present):  # a new model's boxes may overlap with nothing
            weights = trained(session)
            still, absent, present = (
                _scored(session, flags, table, on, weights) for on in (None, False, True)
            )
            first = still or {}
        reads = _moved(names, first, present)
        if reads and len(_moved(names, first, absent)) == 0:
            share = float((~where).float().mean())
            yield Finding(
                "padding-in-the-loss", "warning",
                f"{share:.0%} of the targets {list(table.shape)} are 0 because flags in the batch "
                f"say that there is none in their place, but the loss is {base:.4g}, and "
                f"{moved:.4g} with other numbers there: outputs are pulled towards 0 in places "
                f"that no score reads ({reads[0]} stays the same whatever they are).",
                {"without_a_target": share, "loss": base, "with_others_there": moved},
                "error = F.smooth_l1_loss(boxes, targets, reduction='none').sum(-1)\n"
                "loss = (error * flags).sum() / flags.sum().clamp(min=1)",
            )  # fmt: skip
            return


def _fills(flags: Tensor, table: Tensor) -> bool:
    """A table of numbers with a row for each flag, of which those of flags that are 0 are 0."""
    if flags.dim() < 2 or table.dim() <= flags.dim() or not table.is_floating_point():
        return False
    if table.shape[: flags.dim()] != flags.shape or set(flags.unique().tolist()) != {0, 1}:
        return False
    where = _behind(flags, table)
    real, absent = table[where], table[~where]
    enough = min(real.unique().numel(), absent.numel()) > LEAST_PLACES
    return enough and bool((absent == 0).all()) and not bool((real == 0).all())


def _behind(flags: Tensor, table: Tensor) -> Tensor:
    """The places of a table whose flag is up."""
    extra = [1] * (table.dim() - flags.dim())
    return (flags > 0).reshape(*flags.shape, *extra).expand_as(table)


def _moved(names: list[str], one: dict[str, float], other: dict[str, float]) -> list[str]:
    """Scores that are not the same in both."""
    return [n for n in names if not same_score(one.get(n, 0.0), other.get(n, 0.0))]


def _scored(
    session: Session, flags: Tensor, table: Tensor, on: bool | None,
    weights: list[Tensor] | None = None,
) -> dict[str, float] | None:  # fmt: skip
    """What `evaluate()` says where outputs of a table's shape are moved in the places whose flag is
    up, in those whose flag is not, or in none, for weights as they are or for others; None where it
    does not call the model batch by batch."""
    parts = list(tensors_in(program_of(session).batches[0]))
    place, shown = (next(n for n, t in enumerate(parts) if t is one) for one in (flags, table))
    batches = [list(tensors_in(b)) for b in session.val_epoch.batches]
    if not session.val_epoch.whole or any(len(b) != len(parts) for b in batches):
        return None
    calls: list[bool] = []

    def move(_: nn.Module, args: tuple, output: Any) -> Any:
        mine, told = batches[len(calls)][place], batches[len(calls)][shown]
        outputs = list(tensors_in(output))
        named = any(t.shape == mine.shape and t.is_floating_point() for t in outputs)
        meant = [t for t in outputs if t.shape == told.shape and t.is_floating_point()]
        calls.append(named and len(meant) == 1)
        if not calls[-1] or on is None:
            return output
        moved = meant[0] + (_behind(mine, told) == on).to(meant[0]) * meant[0].std()
        return mapped(lambda t: moved if t is meant[0] else t, output)

    with session.observe():
        session.model.train()
        with torch.no_grad():
            for parameter, value in zip(session.model.parameters(), weights or (), strict=False):
                parameter.copy_(value)
        session.model.register_forward_hook(move)  # taken off where the model is put back
        try:
            scores = as_metrics(session.setup.evaluate())
        except IndexError:  # more calls than batches
            return None
    return scores if len(calls) == len(batches) and all(calls) else None
