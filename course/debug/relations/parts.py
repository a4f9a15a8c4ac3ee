"""Relation on a batch that a step splits into parts: their gradients add up to the whole's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.loop import of_optimizer, pick
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, pair
from course.debug.probes.tape import Tape
from course.debug.probes.thresholds import CHANGED, ROUNDED, TINY
from course.debug.relations.program import (
    MOST_KEPT,
    Program,
    changed,
    program_of,
    without_dropout,
)
from course.debug.relations.steps import Call
from course.state.nested import cloned, tensors_in

MOST_PARTS = 16
"""Parts of a batch that are tried one by one."""


def weighed(session: Session) -> Iterator[Finding]:
    """Parts of a batch have the same weight in its update as in the loss of the whole."""
    program = program_of(session)
    for batch in program.batches[:MOST_KEPT]:  # parts of one may be alike by chance
        finding = _weighed(session, program, batch)
        if finding is not None:
            yield finding
            return


def _weighed(session: Session, program: Program, batch: Any) -> Finding | None:
    parts = _parts_of(session, program, batch)
    tape = program.step(batch).tape
    step = next((e for e in tape.of("step")), None)
    if step is None or len(tape.of("step")) > 1 or len(session.optimizers) > 1:
        raise NotChecked("a batch does not make one update of one optimizer")
    index = of_optimizer(tape, session.optimizers[0])
    made = _flat(pick(step.gradient, index))
    whole = _gradient(session, batch, index)
    each = [_gradient(session, part, index) for part in parts]
    shares = torch.linalg.lstsq(torch.stack(each, 1), whole[:, None]).solution[:, 0]
    if not _off(torch.stack(each, 1) @ shares, whole) < ROUNDED:
        raise NotChecked("the loss of a batch is not a mean of those of its parts")
    if _off(made, torch.stack(each).mean(0)) >= ROUNDED or _off(made, whole) <= CHANGED:
        return None
    return Finding(
        "accum-mean-of-means", "warning",
        f"A step splits its batch into {len(each)} parts and weights each equally, but the "
        f"loss of the whole weights them {float(shares.min()):.2f} to "
        f"{float(shares.max()):.2f}: targets in a part with few of them count more.",
        {"parts": len(each), "least_weight": float(shares.min()),
         "largest_weight": float(shares.max()), "gradient_off": _off(made, whole)},
        'loss = F.cross_entropy(logits, y, ignore_index=0, reduction="sum") / all_targets',
    )  # fmt: skip


def _parts_of(session: Session, program: Program, batch: Any) -> list[Any]:
    """The parts of a batch of which each call of the model in a step gets one.

    Raises:
        NotChecked: They do not share it out.
    """
    if session.setup.train_step is None or (session.setup.loss_of or session.loss_fn) is None:
        raise NotChecked("needs train_step, and a loss_fn or a loss_of")
    if any(isinstance(m, nn.modules.batchnorm._NormBase) for m in session.model.modules()):
        raise NotChecked("batch norm makes a part differ from the whole")
    calls = program.step(batch).calls
    if not 1 < len(calls) <= MOST_PARTS:
        raise NotChecked("a step does not call the model several times")
    leaves = list(tensors_in(batch))
    if any(not t.dim() or len(t) != len(leaves[0]) for t in leaves):
        raise NotChecked("parts of a batch have different numbers of rows")
    rows = next(filter(None, (_shared_out(calls, x) for x in leaves)), None)
    if rows is None:
        raise NotChecked("the calls of the model do not split the rows of a batch")
    return [changed(batch, lambda t, part=part: t[part]) for part in rows]


def _shared_out(calls: list[Call], x: Tensor) -> list[list[int]] | None:
    """Which rows of a tensor of the batch each call got, if each row went into one of them: the
    whole row, or all but its end, as where the next token is predicted. Of equal rows the first
    goes first."""
    left, found = list(range(len(x))), []
    for call in calls:
        if len(call.tensors) != 1 or call.tensors[0].dim() != x.dim():
            return None
        got = call.tensors[0]
        begins = x[:, : got.shape[1]] if x.dim() > 1 else x
        if got.shape[1:] != begins.shape[1:]:
            return None
        found.append([])
        for row in got.cpu():
            place = next((n for n in left if torch.equal(row, begins[n].cpu())), None)
            if place is None:
                return None
            left.remove(place)
            found[-1].append(place)
    return found if not left else None


def _gradient(session: Session, batch: Any, index: list[int]) -> Tensor:
    """Of the author's loss of a batch or of some of its rows, from the photograph."""
    tape = Tape(session.model, session.optimizers)
    with session.observe(), without_dropout(session.model):
        torch.manual_seed(0)
        session.model.train()
        for p in tape.watched:
            p.grad = None
        if session.setup.loss_of is not None:
            given = session.setup.loss_of(session.model, session.place_all(cloned(batch)))
            loss = given if isinstance(given, Tensor) else given.value
        else:
            x, y = pair(batch)
            loss = session.loss(session._first_tensor(session.call_model(x)), y)
        loss.backward()
        return _flat(pick(tape.gradient(), index))


def _flat(gradient: list[Tensor | None]) -> Tensor:
    return torch.cat([g.flatten().double() for g in gradient if g is not None])


def _off(one: Tensor, other: Tensor) -> float:
    """Distance of two directions: clipping leaves them as they are."""
    if one.shape != other.shape:
        return torch.inf
    a, b = (t / t.norm().clamp_min(TINY) for t in (one, other))
    return float((a - b).norm())
