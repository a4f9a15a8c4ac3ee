"""Two networks that compete: the loss of one leaves no gradient for the other's step.

A generator's loss goes through the discriminator, and its backward leaves a gradient there. Where
the discriminator gets the same fakes again, cut off, and its optimizer steps on both gradients, the
loss that it should resist is part of what it follows. At first both may point the same way, since
an untrained discriminator has to answer "real" for real rows, too: what tells is that the two
losses pull its outputs for the same fakes opposite ways.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from course.debug.probes.functions import is_transformed
from course.debug.probes.loop import is_nonzero, of_optimizer, own_loop, steppers_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import Event, Tape
from course.debug.probes.thresholds import LEAST_STEPS, NEARLY_ALL
from course.debug.relations.joining import is_among
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

LEAST_ROWS = 8
"""Outputs of which nearly all have slopes of two signs by chance once in 256 times."""
PLAYED = 3
"""Batches for which the same is seen, so that no rare branch is taken for a habit."""


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
    found = (0, 0)
    heard = _met(session, optimizer)
    for one, other in _same_twice(heard):  # a network returns after its layers: the last is whole
        a, b = one.slope(), other.slope()
        if a.shape == b.shape:
            found = int((a * b != 0).sum()), int((a * b < 0).sum())
    return found


def found_out(session: Session) -> Iterator[Finding]:
    """What makes points out of noise is not trained to have them told from real ones.

    A network is pulled one way for all rows of a batch and the other way for all points that are
    made, cut off: it tells them apart. Another optimizer's loss that goes through it to what made
    these points must pull them as real rows are pulled.
    """
    loop = own_loop(session)
    optimizers = steppers_of(loop.tape)
    if len(optimizers) < 2 or loop.unit != "step":
        raise NotChecked("fewer than two optimizers step, or the calls of train() are not seen")
    batches = program_of(session).batches[:PLAYED]
    for optimizer in optimizers:
        points = _helps(session, optimizer, batches[0])
        always = points and all(_helps(session, optimizer, b) for b in batches[1:])
        if always and not _hang_on_data(session, optimizer, batches):
            yield Finding(
                "loss-negated", "error",
                f"A network tells the rows of a batch from {points} points that are made of "
                "noise, but the loss of what makes them pulls its outputs for these points the "
                "same way, further from the real ones: what makes them helps to have them found "
                "out.",
                {"points": points, "batches": len(batches)},
                "loss_g = bce(d(fake), ones)  # the generator wants them to be taken for real",
            )  # fmt: skip
            return


def _helps(session: Session, optimizer: Any, batch: Any) -> int:
    """Made points for which both losses pull the optimizer's network away from real rows; 0 unless
    that is so for all of them."""
    leaves = list(tensors_in(batch))
    heard = _met(session, optimizer, batch)
    for learned, cut in _same_twice(heard):
        real = [m for m in heard if m.layer is cut.layer and not m.learned and m.slopes
                and is_among(m.given, leaves)]  # fmt: skip
        way = _way(cut)
        apart = way and real and all(_way(m) == -way for m in real)
        if apart and _way(learned) == way and len(cut.given) >= LEAST_ROWS:
            return len(cut.given)
    return 0


def _way(met: _Met) -> int:
    """The sign of its slopes, one for each row; 0 where there are two, or none."""
    slope = met.slope()
    if slope.numel() != len(met.given):
        return 0
    return int(bool((slope >= 0).all())) - int(bool((slope <= 0).all()))


def _hang_on_data(session: Session, optimizer: Any, batches: list[Any]) -> bool:
    """The first made points are others for another batch, or cannot be compared."""
    made = []
    for batch in batches[:2]:
        pairs = _same_twice(_met(session, optimizer, batch))
        made.append(pairs[0][1].given if pairs else None)
    return len(made) < 2 or None in made or not _same(*made)


def _same_twice(heard: list[_Met]) -> list[tuple[_Met, _Met]]:
    """Calls of one layer for the same inputs, with a graph and cut off."""
    pairs = [(a, b) for n, a in enumerate(heard) for b in heard[:n]
             if a.layer is b.layer and a.learned is not b.learned and a.slopes and b.slopes
             and a.given.shape == b.given.shape and torch.equal(a.given, b.given)]  # fmt: skip
    return [(a, b) if a.learned else (b, a) for a, b in pairs]


def _met(session: Session, optimizer: Any, batch: Any = None) -> list[_Met]:
    """Calls of the layers with weights of an optimizer in a step, on the first batch if no other is
    given."""
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
        program.step(program.batches[0] if batch is None else batch, again=True)
    return heard


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
