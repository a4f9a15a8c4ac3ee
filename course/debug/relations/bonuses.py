"""Relation on parts of a loss that no data enters: larger outputs there do not pay for ever."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.program import Program, program_of
from course.debug.relations.steps import Step, close
from course.state.nested import mapped, tensors_in

FAR = (10.0, 20.0, 40.0)
"""Added to a part of the outputs: exp(40) squared is still a number in float32."""
FASTER = 3.0
"""Fall of a loss over the second doubling, in falls over the first: 2 where it falls straight, as
scores of a game may, or like a bonus for entropy does or slower; 4 for a square."""
EQUAL = 1e-5
"""Relative difference of two losses or falls that rounding makes; targets whose means differ by a
tenth of their spread make one of a hundredth."""
PARTS = range(2, 7)
"""Parts of the outputs, of which one may be given back and others be priced."""


def without_end(session: Session) -> Iterator[Finding]:
    """What the loss takes of some outputs alone, without any data, has a price that grows.

    A divergence is never below 0, and a decay neither: with a minus before it, outputs that grow
    lower the loss faster and faster. The outputs are made up, so that all that the data decides is
    the same for two batches where it does not enter.
    """
    program = program_of(session)
    step, batches = program.first(), program.batches
    if any(g.get("maximize") for o in session.optimizers for g in o.param_groups):
        raise NotChecked("an optimizer makes the loss larger")
    if len(step.tape.of("backward")) != 1 or len(step.calls) != 1 or len(batches) < 2:
        raise NotChecked("a step is not one call of the model and one loss, or there is one batch")
    shapes = _shapes(step)
    if len(shapes) not in PARTS or shapes != _shapes(program.step(batches[1])):
        raise NotChecked("the model does not return a few parts, or others for another batch")
    one, two = (_cost(program, b, None, 0.0) for b in batches[:2])
    if close(one, two, EQUAL) or not math.isfinite(one):
        raise NotChecked("no data enters the loss of given outputs, or it is not finite")
    for part in range(len(shapes)):
        costs = [_cost(program, batches[0], part, far) for far in FAR[:2]]
        if not costs[1] < costs[0] < one:
            continue
        costs.append(_cost(program, batches[0], part, FAR[2]))
        first, second = (a - b for a, b in pairwise(costs))
        other = [_cost(program, batches[1], part, far) for far in FAR]
        falls = list(pairwise(other))
        same = all(close(a - b, fall, EQUAL) for (a, b), fall in
                   zip(falls, (first, second), strict=True))  # fmt: skip
        if second > FASTER * first > 0 and same:
            yield Finding(
                "loss-negated", "error",
                f"With all numbers in part {part} of the outputs {list(shapes[part])} larger by "
                f"{FAR[0]:g}, {FAR[1]:g} and {FAR[2]:g}, the loss is {costs[0]:.3g}, "
                f"{costs[1]:.3g} and {costs[2]:.3g}, and falls by as much whatever the data: a "
                "part that no data enters, such as a divergence, is subtracted instead of added, "
                "and training lowers the loss without end.",
                {"part": part, "losses": costs, "moved_by": list(FAR)},
                "kl = -0.5 * (1 + log_var - mu**2 - log_var.exp()).sum(1)  # never below 0\n"
                "loss = (reconstruction + kl).mean()",
            )  # fmt: skip
            return


def _floats(output: Any) -> list[Tensor]:
    return [t for t in tensors_in(output) if t.is_floating_point()]


def _shapes(step: Step) -> list[torch.Size]:
    """Of the parts of what the model returns in a step."""
    return [t.shape for t in _floats(step.outputs)] if len(step.calls) == 1 else []


def _cost(program: Program, batch: Any, part: int | None, by: float) -> float:
    """What a batch costs with outputs that are made up, and one part of them moved."""

    def made_up(_: object, args: object, output: Any) -> Any:
        own, parts = torch.Generator().manual_seed(0), _floats(output)

        def other(t: Tensor) -> Tensor:
            number = next((n for n, p in enumerate(parts) if p is t), None)
            if number is None:
                return t
            new = torch.rand(t.shape, generator=own).to(t) + (by if number == part else 0.0)
            return 0 * t + new

        return mapped(lambda t: other(t) if isinstance(t, Tensor) else t, output)

    cost = program.step(batch, prepare=lambda: program.model.register_forward_hook(made_up)).loss
    return math.inf if math.isnan(cost) else cost
