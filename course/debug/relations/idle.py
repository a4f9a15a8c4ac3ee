"""Relation on several optimizers: each that steps finds a gradient at some of its weights."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from course.debug.probes.loop import of_optimizer, own_loop, steppers_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import Event, Tape
from course.debug.probes.thresholds import LEAST_STEPS
from course.debug.relations.program import program_of
from course.debug.relations.steps import close

OTHER = 4.0
"""Weights are made so many times as large to see whether the losses hang on them."""


def without_gradient(session: Session) -> Iterator[Finding]:
    """An optimizer that steps after each backward of a loss gets a gradient for its own network.

    Asked only where the losses of a step change with the weights of that network, which a
    backward has then been cut off from. A network that rests, e.g. in a warm-up, plays no part in
    a loss, or has no backward of its own before its step.
    """
    loop = own_loop(session)
    tape, steppers = loop.tape, steppers_of(loop.tape)
    if len(steppers) < 2 or loop.unit != "step":
        raise NotChecked("fewer than two optimizers step, or the calls of train() are not seen")
    for optimizer in steppers:
        index = of_optimizer(tape, optimizer)
        steps = [e for e in tape.of("step") if e.optimizer is optimizer]
        live = [i for i in index if all(id(tape.watched[i]) in e.live for e in steps)]
        if len(steps) < LEAST_STEPS or not live or not all(_own_backward(tape, e) for e in steps):
            continue
        if any(e.gradient[i] is not None for e in steps for i in index):
            continue
        if any(not torch.equal(loop.start[i], loop.end[i]) for i in index):
            continue  # moved by hand
        program = program_of(session)
        parameters = [tape.watched[i] for i in live]
        base = program.first().loss
        moved = program.step(
            program.batches[0], prepare=lambda ps=parameters: [p.mul_(OTHER) for p in ps]
        ).loss
        if close(base, moved):
            continue
        names = {id(p): n for n, p in session.model.named_parameters()}
        named = next((names[id(p)] for p in parameters if id(p) in names), "")
        yield Finding(
            "loss-without-gradient", "error",
            f"In none of {len(steps)} steps has an optimizer of {len(index)} parameters"
            f"{f' (such as {named})' if named else ''} a gradient for any of them, though backward "
            f"is called before each, and the losses depend on them ({base:.4g}, and {moved:.4g} "
            "with others): a detach(), a no_grad() or a copy cuts its network off.",
            {"steps": len(steps), "parameters": len(index), "loss": base, "with_others": moved},
            "loss_g = bce(d(fake), ones)  # fake.detach() only in the loss of d",
        )  # fmt: skip
        return


def _own_backward(tape: Tape, step: Event) -> bool:
    """A backward in the same call, with no other step since."""
    before = [e for e in tape.in_call(step.call) if e.kind in ("backward", "step")]
    place = before.index(step)
    return place > 0 and before[place - 1].kind == "backward"
