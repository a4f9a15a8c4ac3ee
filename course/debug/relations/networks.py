"""Relation on several optimizers: each steps on the gradient of its own loss alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from course.debug.probes.loop import of_optimizer, own_loop, steppers_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import Event, Tape
from course.debug.probes.thresholds import LEAST_STEPS, MOST, TINY

AGAINST = -0.3
"""Cosine of two gradients from which one undoes the other: of unrelated ones of 100 weights it is
below in 1 of 700."""


def left_over(session: Session) -> Iterator[Finding]:
    """A step of one optimizer uses no gradient that another one's loss has left, against its own.

    In one call a loss goes backward, another optimizer steps, a second loss goes backward, and this
    optimizer steps on the sum of both.
    """
    loop = own_loop(session)
    tape = loop.tape
    optimizers = steppers_of(tape)
    if len(optimizers) < 2 or loop.unit != "step":
        raise NotChecked("fewer than two optimizers step, or the calls of train() are not seen")
    for optimizer in optimizers:
        steps = [e for e in tape.of("step") if e.optimizer is optimizer]
        cosines = [c for e in steps if (c := _cosine(tape, e)) is not None]
        against = [c for c in cosines if c < AGAINST]
        if len(cosines) >= LEAST_STEPS and len(against) >= MOST * len(steps):
            yield Finding(
                "missing-zero-grad", "warning",
                "An optimizer steps on the sum of two gradients that point against each other: one "
                "of its own loss, and one that another optimizer's loss has left before that one's "
                "step. A detach() or a zero_grad() is missing between them.",
                {"steps": len(steps), "against_each_other": len(against),
                 "cosine": sum(cosines) / len(cosines)},
                "loss_d = bce(d(fake.detach()), zeros)  # the generator gets no gradient of it",
            )  # fmt: skip
            return


def _cosine(tape: Tape, step: Event) -> float | None:
    """Between what the last backward added and what was there, if another optimizer stepped
    between the two."""
    before = [e for e in tape.in_call(step.call) if e.kind in ("backward", "step", "zero")]
    before = before[: before.index(step)]
    backwards = [e for e in before if e.kind == "backward"]
    if not backwards or not any(
        e.kind == "step" and e.optimizer is not step.optimizer
        for e in before[: before.index(backwards[-1])]
    ):
        return None
    index = of_optimizer(tape, step.optimizer)
    old, new = (_flat(which, index, backwards[-1].after) for which in (
        backwards[-1].before, backwards[-1].after))  # fmt: skip
    if not old.any() or not new.any():
        return None
    added = new - old
    return float(old @ added / (old.norm() * added.norm()).clamp_min(TINY))


def _flat(gradient: list[Tensor | None], index: list[int], like: list[Tensor | None]) -> Tensor:
    parts = [gradient[i] if gradient[i] is not None else torch.zeros_like(like[i])
             for i in index if like[i] is not None]  # fmt: skip
    return torch.cat([p.flatten().double() for p in parts]) if parts else torch.zeros(1).double()
