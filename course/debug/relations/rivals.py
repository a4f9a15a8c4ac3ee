"""Two networks that compete: the loss of one leaves no gradient for the other's step.

A generator's loss goes through the discriminator, and its backward leaves a gradient there. Where
the discriminator gets the same fakes again, cut off, and its optimizer steps on both gradients, the
loss that it should resist is part of what it follows. At first both may point the same way, since
an untrained discriminator has to answer "real" for real rows, too: what tells is that the two
losses pull its outputs for the same fakes opposite ways.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from course.debug.probes.functions import is_transformed
from course.debug.probes.loop import is_nonzero, of_optimizer
from course.debug.probes.session import Session
from course.debug.probes.tape import Event, Tape
from course.debug.probes.thresholds import LEAST_STEPS, NEARLY_ALL
from course.debug.relations.program import program_of

LEAST_ROWS = 8
"""Outputs of which nearly all have slopes of two signs by chance once in 256 times."""


def is_left(tape: Tape, step: Event) -> bool:
    """A step uses what a backward left of a loss on which another optimizer has stepped since.

    That loss reached weights of both optimizers, and the losses after it none of the other's.
    """
    own = set(of_optimizer(tape, step.optimizer))
    events = [e for e in tape.in_call(step.call) if e.kind in ("backward", "step")]
    events = events[: events.index(step)]
    last = max((n for n, e in enumerate(events)
                if e.kind == "step" and e.optimizer is step.optimizer), default=-1)  # fmt: skip
    events = events[last + 1 :]
    for place, event in enumerate(events):
        before = [e for e in events[:place] if e.kind == "backward"]
        after = [e for e in events[place:] if e.kind == "backward"]
        if event.kind != "step" or not before or not after:
            continue
        others = set(of_optimizer(tape, event.optimizer)) - own
        both = reached(before[-1])
        if not both & others or not both & own or any(reached(b) & others for b in after):
            continue
        kept = all(_same(after[0].before[i], before[-1].after[i]) for i in both & own)
        if kept and any(reached(b) & own for b in after):
            return True
    return False


def reached(backward: Event) -> set[int]:
    """Weights whose gradient a backward has changed."""
    return {
        i for i, (old, new) in enumerate(zip(backward.before, backward.after, strict=True))
        if is_nonzero(new) and (old is None or not torch.equal(old, new))
    }  # fmt: skip


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    return one is not None and other is not None and torch.equal(one, other)


@dataclass
class _Met:
    """One call of a layer with weights of the optimizer."""

    layer: nn.Module
    given: Tensor
    learned: bool
    """What it was given has a graph."""
    slopes: list[Tensor] = field(default_factory=list)

    def slope(self) -> Tensor:
        return torch.stack(self.slopes).sum(0)


def pulled_both_ways(session: Session, optimizer: Any) -> tuple[int, int]:
    """Outputs of its network for the same inputs, once with a graph and once cut off, in which the
    losses of a step have slopes: how many, and how many of two signs."""
    heard: list[_Met] = []
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}

    def listen(layer: nn.Module, args: Any, output: Any) -> None:
        given = args[0] if args else None
        if (
            not isinstance(given, Tensor) or not given.is_floating_point() or is_transformed()
            or not isinstance(output, Tensor) or not output.requires_grad
            or not any(id(p) in held for p in layer.parameters())
        ):  # fmt: skip
            return
        met = _Met(layer, given.detach().clone(), given.requires_grad)
        output.register_hook(lambda slope: met.slopes.append(slope.detach().clone()))
        heard.append(met)

    program = program_of(session)
    with contextlib.ExitStack() as stack:
        stack.callback(register_module_forward_hook(listen).remove)
        program.step(program.batches[0], again=True)
    found = (0, 0)
    for place, one in enumerate(heard):  # a network returns after its layers: the last is whole
        for other in heard[:place]:
            if (
                one.layer is other.layer and one.learned is not other.learned
                and one.slopes and other.slopes and one.given.shape == other.given.shape
                and torch.equal(one.given, other.given)
            ):  # fmt: skip
                a, b = one.slope(), other.slope()
                if a.shape == b.shape:
                    found = int((a * b != 0).sum()), int((a * b < 0).sum())
    return found


def left_by_a_rival(session: Session, tape: Tape, steps: list[Event]) -> tuple[int, int] | None:
    """Steps that use what another's loss left, and outputs that both losses pull opposite ways;
    None unless that is so in nearly all of them."""
    left = [e for e in steps if is_left(tape, e)]
    if len(left) < max(LEAST_STEPS, NEARLY_ALL * len(steps)):
        return None
    outputs, opposite = pulled_both_ways(session, steps[0].optimizer)
    if opposite < max(LEAST_ROWS, NEARLY_ALL * outputs):
        return None
    return len(left), opposite
