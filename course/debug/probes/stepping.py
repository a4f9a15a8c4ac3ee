"""Probes on the step: it is made after backward, uses its gradients, and goes downhill."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from course.debug.probes.loop import (
    norm,
    of_optimizer,
    own_loop,
    pick,
    steppers_of,
    updates_of,
    written_by_hand,
)
from course.debug.probes.report import Finding
from course.debug.probes.session import Loop, NotChecked, Session
from course.debug.probes.tape import Tape
from course.debug.probes.thresholds import LEAST_STEPS, MOST, NEARLY_ALL

LEAST_REBUILT = 5
"""Optimizers that nobody handed in and that made steps, from which they are rebuilt: a few may be
a program's own, e.g. one per network."""
NEGATED = 0.95
"""Share of the backwards on minus the loss: one of 24 may be on something else."""
LEAST_LOSS = 1e-6
"""Loss below which it and its negative are the same but for rounding."""
OPPOSITE = 1e-5
"""Relative distance from minus the loss that is rounding of float32."""


def erased(session: Session) -> Iterator[Finding]:
    """A step finds the gradients that backward computed."""
    loop = own_loop(session)
    tape = loop.tape
    for optimizer in steppers_of(tape):
        index = of_optimizer(tape, optimizer)
        lost = seen = late = 0
        for _, since, step in updates_of(tape, optimizer):
            made = [e for e in since if norm(pick(e.info.get("after", []), index)) > 0]
            if not made:
                late += 1
                continue
            seen += 1
            lost += norm(pick(step.gradient, index)) == 0
        if seen >= 3 and lost >= NEARLY_ALL * seen and not _steps_late(tape):
            yield Finding(
                "grads-cleared-before-step", "error",
                f"In {lost} of {seen} updates the gradients were cleared between backward and "
                "step: no weight moves.",
                {"updates_without_gradient": lost, "updates": seen},
                "optimizer.zero_grad()\nloss.backward()\noptimizer.step()",
            )  # fmt: skip
            return
    if _steps_late(tape):
        yield Finding(
            "step-before-backward", "error",
            "optimizer.step() runs between the forward and its backward: it uses the gradients "
            "of an older batch, or none.",
            {"steps": len(tape.of("step")), "backwards": len(tape.of("backward"))},
            "loss.backward()\noptimizer.step()",
        )  # fmt: skip


def _steps_late(tape: Tape) -> bool:
    """forward, step, backward in most calls."""
    late = seen = 0
    state = ""
    for event in tape.events:
        if event.kind == "forward" and event.grad:
            state = "f"
        elif event.kind == "step" and not event.has_closure:
            state = "fs" if state.startswith("f") and "b" not in state else state + "s"
        elif event.kind == "backward" and not event.inside_step:
            seen += 1
            late += state == "fs"
            state += "b"
    return seen >= 3 and late >= MOST * seen


def stepping(session: Session) -> Iterator[Finding]:
    """Steps are made, with the optimizer that was passed in."""
    loop = own_loop(session)
    tape = loop.tape
    steps, backwards = tape.of("step"), tape.of("backward")
    if not steps and len(backwards) >= LEAST_STEPS:
        accumulate = int(session.declared.get("accumulate", 1) or 1)
        if accumulate <= len(backwards):
            moved = any(not torch.equal(a, b) for a, b in zip(loop.start, loop.end, strict=False))
            if not moved:
                yield Finding(
                    "no-optimizer-step", "error",
                    f"{len(backwards)} backwards and not one optimizer.step(): no weight moves.",
                    {"backwards": len(backwards), "steps": 0},
                    "optimizer.step()  # after loss.backward()",
                )  # fmt: skip
        return
    if not backwards and len(tape.of("forward")) >= LEAST_STEPS and not tape.of("autograd_grad"):
        if written_by_hand(tape) or _moved_by_hand(loop):
            return
        yield Finding(
            "no-backward", "error",
            "Forward passes without a backward: no gradient is ever computed.",
            {"forwards": len(tape.of("forward")), "steps": len(steps)},
            "loss.backward()\noptimizer.step()",
        )  # fmt: skip
        return
    steppers = steppers_of(tape)
    strange = [o for o in steppers if all(o is not own for own in session.optimizers)]
    if len(strange) >= LEAST_REBUILT and len(strange) >= MOST * len(steps):
        yield Finding(
            "optimizer-rebuilt", "error",
            "Every step is made by a new optimizer: momentum and Adam's moments start from zero "
            "each time.",
            {"optimizers": len(strange), "steps": len(steps)},
            "optimizer = torch.optim.Adam(model.parameters())  # once, before the loop",
        )  # fmt: skip


def _moved_by_hand(loop: Loop) -> bool:
    """Weights change though no optimizer makes a step: an update that needs no gradient."""
    moved = any(not torch.equal(a, b) for a, b in zip(loop.start, loop.end, strict=False))
    return moved and not loop.tape.of("step")


def uphill(session: Session) -> Iterator[Finding]:
    """backward() is called on the loss, not on its negative."""
    tape = own_loop(session).tape
    if len(session.optimizers) > 1:
        raise NotChecked("more than one optimizer")
    if any(g.get("maximize") for o in session.optimizers for g in o.param_groups):
        raise NotChecked("the optimizer is set to maximise")
    value, seen, negated = math.nan, 0, 0
    for event in tape.events:
        if event.kind == "loss" and event.graph and event.value is not None:
            value = event.value
        elif event.kind == "backward" and math.isfinite(value):
            seen += 1
            negated += value > LEAST_LOSS and abs(event.loss + value) < OPPOSITE * abs(value)
            value = math.nan
    if seen >= LEAST_STEPS and negated >= NEGATED * seen:
        yield Finding(
            "loss-negated", "warning",
            f"In {negated} of {seen} steps backward() was called on minus the loss: the optimizer "
            "makes the loss larger.",
            {"negated": negated, "backwards": seen}, "loss.backward()  # no minus sign",
        )  # fmt: skip
