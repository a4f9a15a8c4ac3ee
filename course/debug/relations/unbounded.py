"""Relation on likelihoods: the loss of targets that are missed has a least value."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, inputs_and_targets
from course.debug.relations.free import is_free
from course.debug.relations.program import Program, program_of
from course.state.nested import mapped, tensors_in

FAR = (20.0, 40.0, 80.0)
"""Added to all outputs of a column: exp(80) is still a number in float32."""
KEEPS = 0.9
"""Of its fall over the first doubling a loss falls again over the next: by as much if it falls like
a logarithm, twice as much if straight, half as much or less towards an end."""
LEAST_FALL = 0.1
"""A loss that falls by less may only come to its end slowly."""
MOST_COLUMNS = 16
"""Columns of outputs; more are no parameters of a distribution."""


def below(session: Session) -> Iterator[Finding]:
    """Where one output has a best value for given targets, no other output beside it lets the loss
    fall for ever.

    With all targets missed by as much as they are, a likelihood grows on both sides of a spread: a
    small one makes the misses count, a large one costs by itself. Outputs that no weights can move
    alone, such as shares, say nothing.
    """
    program = program_of(session)
    if any(g.get("maximize") for o in session.optimizers for g in o.param_groups):
        raise NotChecked("an optimizer makes the loss larger")
    batch, outputs = program.batches[0], program.replay(program.call())
    if not inputs_and_targets(batch)[1].is_floating_point():
        raise NotChecked("targets are not numbers")
    columns = [(leaf, n) for leaf, t in enumerate(outputs) if t.dim()
               for n in range(t.shape[-1] if t.dim() > 1 else 1)]  # fmt: skip
    if not 1 < len(columns) <= MOST_COLUMNS or len(program.first().tape.of("backward")) != 1:
        raise NotChecked("the step is not one loss of a few columns of outputs")
    base = program.steady_loss(batch)
    near = {c: [_cost(program, c, side * FAR[0]) for side in (1, -1)] for c in columns}
    if not any(min(costs) > base for costs in near.values()):
        return
    for column, sides in near.items():
        name = f"{column[1]} of part {column[0]}" if len(outputs) > 1 else str(column[1])
        for side, cost in zip((1, -1), sides, strict=True):
            if not base > cost:
                continue
            costs = [cost, *(_cost(program, column, side * far) for far in FAR[1:])]
            first, second = (a - b for a, b in pairwise(costs))
            falls = first > LEAST_FALL and second > KEEPS * first
            if falls and is_free(program, *column, side * FAR[0]):
                yield Finding(
                    "wrong-formula", "warning",
                    f"With output {name} moved by {side * FAR[0]:g}, {side * FAR[1]:g} and "
                    f"{side * FAR[2]:g}, the loss is {costs[0]:.3g}, {costs[1]:.3g} and "
                    f"{costs[2]:.3g} instead of {base:.3g}, although the targets are missed as "
                    "before: it falls without end, and training follows it there.",
                    {"output": name, "loss": base, "losses": costs},
                    "loss = 0.5 * (log_var + (y - mean) ** 2 * (-log_var).exp()).mean()",
                )  # fmt: skip
                return


def _cost(program: Program, column: tuple[int, int], by: float) -> float:
    """What the first batch costs with one column of the outputs moved."""
    leaf, number = column

    def move(_: object, args: object, output: Any) -> Any:
        floats = [t for t in tensors_in(output) if t.is_floating_point()]

        def moved(t: Tensor) -> Tensor:
            if t is not floats[leaf]:
                return t
            step = t.new_zeros(t.shape[-1:] if t.dim() > 1 else (1,))
            step[number] = by
            return t + step

        return mapped(lambda t: moved(t) if isinstance(t, Tensor) else t, output)

    cost = program.step(
        program.batches[0], prepare=lambda: program.model.register_forward_hook(move)
    ).loss
    return math.inf if math.isnan(cost) else cost
