"""Relations on weights that start equal: training can move them, and make them different."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from course.debug.probes.frozen import is_declared_frozen
from course.debug.probes.loop import is_nonzero, own_loop, steppers_of
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import LEAST_STEPS
from course.debug.relations.program import program_of

NUDGE = 0.1
"""Added to weights of 0, times normal numbers: about what layers are drawn from."""
LEAST_UNITS = 4
"""Units of a layer that are alike by no chance."""
ALIKE = 1e-4
"""Distance of two units' weights over what training has moved them, that other orders of summing
make."""
MOST_ALONE = 6
"""Weights that are moved one by one."""


def product(session: Session) -> Iterator[Finding]:
    """Weights that are zero with zero gradients in every step affect the loss on their own, too.

    A product of two that are both zero has no gradient at either: they stay at zero for ever.
    """
    stuck = _stuck(session)
    if len(stuck) < 2:
        raise NotChecked("no two weights stay at zero with gradients of zero")
    program = program_of(session)

    def loss(names: list[str]) -> float:
        def nudge() -> None:
            own = torch.Generator().manual_seed(0)
            for name in names:
                p = program.model.get_parameter(name)
                p.add_(NUDGE * torch.randn(p.shape, generator=own).to(p))

        return program.step(program.batches[0], prepare=nudge).loss

    base = loss([])
    alone = [loss([name]) for name in stuck[:MOST_ALONE]]
    if base == loss([]) and base != loss(stuck) and all(value == base for value in alone):
        yield Finding(
            "bad-start", "error",
            f"{', '.join(stuck[:3])} start at zero, and in every step their gradient is exactly "
            "zero: each has a gradient only if the other is not zero, so none of them ever moves. "
            "The loss does depend on all of them together.",
            {"weights_at_zero": len(stuck), "first": stuck[0], "loss": base},
            "nn.init.kaiming_uniform_(self.down)  # one of the two at random\n"
            "nn.init.zeros_(self.up)  # the other may be zero",
        )  # fmt: skip


def _stuck(session: Session) -> list[str]:
    """Names of weights that are all zero, whose gradient was in every backward, and zero."""
    tape = own_loop(session).tape if not session.loop.own else session.loop.tape
    backwards = [e for e in tape.of("backward") if "after" in e.info]
    held = {id(p) for o in steppers_of(tape) for g in o.param_groups for p in g["params"]}
    if len(backwards) < LEAST_STEPS:
        raise NotChecked(f"fewer than {LEAST_STEPS} backwards")
    place = {id(p): i for i, p in enumerate(tape.watched)}

    def stays(p: Tensor) -> bool:
        seen = [e.after[place[id(p)]] for e in backwards]
        made = [g for g in seen if g is not None]
        return len(made) >= LEAST_STEPS and not any(map(is_nonzero, made))

    return [
        name for name, p in session.model.named_parameters()
        if p.requires_grad and id(p) in held and not bool(p.any()) and stays(p)
        and not is_declared_frozen(session, name)
    ]  # fmt: skip


def units(session: Session) -> Iterator[Finding]:
    """Units of a layer that training has moved are not all identical."""
    loop = session.loop
    place = {id(p): i for i, p in enumerate(loop.tape.watched)}
    layers = [(name, m.weight) for name, m in session.model.named_modules()
              if isinstance(m, (nn.Linear, nn.modules.conv._ConvNd))
              and id(m.weight) in place and len(m.weight) >= LEAST_UNITS]  # fmt: skip
    for name, weight in layers:
        start, end = (side[place[id(weight)]] for side in (loop.start, loop.end))
        if start.numel() != weight.numel() or start.shape != end.shape:
            continue
        start, end = (t.reshape(len(weight), -1).double() for t in (start, end))
        moved = float((end - start).abs().max())
        apart = float((end - end[:1]).abs().max())
        if moved > 0 and torch.equal(start, start[:1].expand_as(start)) and apart <= ALIKE * moved:
            yield Finding(
                "bad-start", "error",
                f"The {len(weight)} units of {name} start with the same weights and are still the "
                f"same after {loop.tape.call or len(loop.losses)} steps that moved them: each gets "
                "the same gradient as the others, so together they act as one unit.",
                {"units": len(weight), "moved": moved, "apart": apart},
                "nn.init.kaiming_normal_(layer.weight)  # at random; only biases may be constant",
            )  # fmt: skip
            return
    if not layers:
        raise NotChecked("the model has no layer of several units")
