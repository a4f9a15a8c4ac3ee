"""Relation on attacks inside a step: what they leave in the weights' gradients is not used."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from course.debug.probes.loop import norm, own_loop
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import Event
from course.debug.probes.thresholds import LEAST_STEPS, MOST
from course.debug.relations.steps import close

LEAST_ATTACKS = 2
"""Backwards for the inputs in a step, from which their sum with the step's own is no method: of one
it may be, half on clean inputs and half on attacked ones."""


def left_in(session: Session) -> Iterator[Finding]:
    """A step on the gradient of one loss does not also use those that were for the inputs.

    An attack that calls backward brings gradients to the weights, too. If they count, as where each
    inner step also trains, they are of losses of which the last one is one, or that are reported.
    """
    loop = own_loop(session)
    if loop.unit != "step":
        raise NotChecked("needs train_step")
    each = [_attacks_of(loop.tape.in_call(call), loss) for call, loss in enumerate(loop.losses)]
    seen = sum(map(bool, each))
    if seen >= max(LEAST_STEPS, MOST * len(loop.losses)):
        most = max(each, key=len)
        yield Finding(
            "missing-zero-grad", "error",
            f"In {seen} of {len(loop.losses)} steps {len(most) - 1} backwards for the inputs, as "
            "of an attack, also left gradients in the weights, and the update uses them together "
            "with the one of the loss that is reported.",
            {"steps": seen, "backwards_before": len(most) - 1, "norm_left": norm(most[-1].before),
             "norm_used": norm(most[-1].info["after"])},
            "gradient, = torch.autograd.grad(loss, attacked)  # brings none to the weights\n"
            "# or optimizer.zero_grad() after the attack",
        )  # fmt: skip


def _attacks_of(events: list[Event], reported: float) -> list[Event]:
    """The backwards of a step whose last one alone is not for its inputs and is what is reported,
    and whose gradients add up; none of another step."""
    backwards, wanted = [], []
    wants = False
    for event in events:
        if event.kind == "forward" and event.grad:
            wants |= event.wants
        elif event.kind == "backward":
            backwards.append(event)
            wanted.append(wants)
            wants = False
    steps = [e for e in events if e.kind == "step"]
    if len(steps) != 1 or len(backwards) <= LEAST_ATTACKS or not all(wanted[:-1]) or wanted[-1]:
        return []
    if any(e.inside_step or "after" not in e.info for e in backwards):
        return []
    kept = all(norm(a.info["after"]) > 0 and norm(a.info["after"]) == norm(b.before)
               for a, b in pairwise(backwards))  # fmt: skip
    total = sum(e.loss for e in backwards)
    alone = close(reported, backwards[-1].loss) and not close(reported, total)
    return backwards if kept and alone else []
