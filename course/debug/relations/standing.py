"""Relation on stored transitions: a state and the one after it are two states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.bootstrapped import DISTANCES
from course.debug.relations.program import exchanged, program_of
from course.debug.relations.steps import SAME, close
from course.state.nested import tensors_in

LEAST_ROWS = 8
"""Rows of a batch from which two parts that are alike in all of them are no chance."""


def still(session: Session) -> Iterator[Finding]:
    """The state whose value is part of a target is not, in every row, the state that it is for.

    A state may stay the same in some steps of a game, and where all rows hold one state there is
    none. A target that does not change with the second state, as that of a single step, is left
    alone.
    """
    program = program_of(session)
    alike = _alike(program.batches)
    if not alike:
        raise NotChecked("no two parts of a batch are the same numbers in every row")
    batch = program.batches[0]
    leaves, met = list(tensors_in(batch)), _targets(session, batch)
    rows = {len(t) for t in met}
    numbers = [n for n, t in enumerate(leaves) if t.is_floating_point() and t.dim()
               and t.numel() == len(t) and len(t) in rows]  # fmt: skip
    base = program.steady_loss(batch)
    for pair in alike:
        moved = {n: _with(batch, n, lambda t: t.roll(1, 0)) for n in pair}
        after = {n: _targets(session, moved[n]) for n in pair}
        for place, target in enumerate(met):
            later = [n for n in pair if not _is(after[n][place], target)]
            if len(later) != 1:
                continue
            (now,) = set(pair) - set(later)
            rewards = [n for n in numbers if n not in pair and _adds(
                _targets(session, _with(batch, n, lambda t: t + 1))[place], target)]  # fmt: skip
            if rewards and not close(base, program.step(moved[now]).loss):
                names = [_named(batch, n) for n in (now, later[0])]
                count = sum(len(list(tensors_in(b))[now]) for b in program.batches)
                yield Finding(
                    "memory-shared", "error",
                    "Targets are a reward plus the value of a next state, but in all "
                    f"{count} rows of {len(program.batches)} batches the state ({names[0]}) and "
                    f"the next one ({names[1]}) are the same numbers: both are one array that was "
                    "stored without a copy and has changed since, so nothing leads from a state to "
                    "another.",
                    {"rows": count, "batches": len(program.batches), "state": names[0],
                     "next": names[1]},
                    "buffer.append((state.copy(), action, reward, next_state.copy(), done))",
                )  # fmt: skip
                return


def _alike(batches: list[Any]) -> list[tuple[int, int]]:
    """Pairs of parts, by place, with the same numbers in all batches, and with different rows."""
    parts = [list(tensors_in(batch)) for batch in batches]
    if len({len(leaves) for leaves in parts}) != 1:
        return []
    first = parts[0]
    return [
        (n, m) for m in range(len(first)) for n in range(m)
        if all(leaves[n].shape == leaves[m].shape and torch.equal(leaves[n], leaves[m])
               for leaves in parts)
        and first[n].dim() and len(first[n]) >= LEAST_ROWS
        and bool((first[n] != first[n][:1]).any())
    ]  # fmt: skip


def _targets(session: Session, batch: Any) -> list[Tensor]:
    """What the distances of a step pull their outputs to, one number for each row [B]."""
    losses = [e for e in program_of(session).step(batch).losses if e.name in DISTANCES]
    met = [e.targets.flatten().cpu() for e in losses if e.targets.numel() == len(e.targets)]
    if not met:
        raise NotChecked("a step has no distance with one number for each row")
    return met


def _adds(one: Tensor, other: Tensor) -> bool:
    """A part that is 1 larger in all rows makes the target larger by one and the same number."""
    off = (one - other).double() if one.shape == other.shape else torch.zeros(1)
    return bool(off[0].abs() > SAME) and torch.allclose(off, off[0], rtol=SAME, atol=SAME)


def _is(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=SAME, atol=SAME)


def _with(batch: Any, place: int, change: Callable[[Tensor], Tensor]) -> Any:
    chosen = list(tensors_in(batch))[place]
    return exchanged(batch, chosen, change(chosen))


def _named(batch: Any, place: int) -> str:
    """How the author calls a part of a batch: by its key, else by its place."""
    plain = isinstance(batch, dict) and all(isinstance(v, Tensor) for v in batch.values())
    return f'"{list(batch)[place]}"' if plain else f"part {place}"
