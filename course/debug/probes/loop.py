"""What the probes on the loop share: the user's loop, its updates, the norm of gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from course.debug.probes.session import Loop, NotChecked, Session
from course.debug.probes.tape import Event, Tape

PARALLEL = 0.999
"""Cosine of two gradients above which the one is the other, scaled."""


def norm(gradients: list[Tensor | None]) -> float:
    """Joint L2 norm; None counts as nothing."""
    return math.sqrt(sum(float(g.double().pow(2).sum()) for g in gradients if g is not None))


def own_loop(session: Session) -> Loop:
    """The user's own loop.

    Raises:
        NotChecked: There is no callable, or it raised before the second update.
    """
    if not session.has_a_loop:
        raise NotChecked("no train_step or train")
    loop = session.loop
    if loop.error is not None and len(loop.tape.of("stepped")) < 2:
        raise NotChecked(f"the loop raised {type(loop.error).__name__}")
    return loop


def of_optimizer(tape: Tape, optimizer: object) -> list[int]:
    held = {id(p) for g in optimizer.param_groups for p in g["params"]}  # type: ignore[attr-defined]
    return [i for i, p in enumerate(tape.watched) if id(p) in held]


def is_nonzero(gradient: Tensor | None) -> bool:
    """True if there is a gradient and it is not all 0."""
    return gradient is not None and bool(gradient.any())


def pick(gradients: list[Tensor | None], index: list[int]) -> list[Tensor | None]:
    return [gradients[i] for i in index]


def updates_of(tape: Tape, optimizer: object) -> Iterator[tuple[Event | None, list[Event], Event]]:
    """(step before, backwards since, step) for each step of one optimizer."""
    last, since = None, []
    for event in tape.events:
        if event.kind == "backward" and not event.inside_step:
            since.append(event)
        elif event.kind == "step" and event.optimizer is optimizer:
            yield last, since, event
            last, since = event, []


def steppers_of(tape: Tape) -> list:
    unique = {id(e.optimizer): e.optimizer for e in tape.of("step")}
    return list(unique.values())


def written_by_hand(tape: Tape) -> set[int]:
    """Ids of parameters whose gradient no backward made, though steps find another one each time:
    the author writes it, as an evolution strategy does. An old one would stay the same, or at most
    be scaled again and again by clipping."""
    found: set[int] = set()
    turns = False
    steps = [e.gradient for e in tape.of("step")]
    made = [e.info.get("after", []) for e in tape.of("backward")]
    for place, parameter in enumerate(tape.watched):
        seen = [g[place].double() for g in steps if is_nonzero(g[place])]
        by_backward = any(place < len(after) and is_nonzero(after[place]) for after in made)
        if by_backward or all(torch.equal(seen[0], g) for g in seen[1:]):
            continue
        found.add(id(parameter))
        first = seen[0] / seen[0].norm()
        turns = turns or any(float(first @ g) < PARALLEL * float(g.norm()) for g in seen[1:])
    return found if turns else set()
