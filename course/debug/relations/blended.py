"""Relation on weights between steps: none moves part of the way back to where training began.

A running mean should be blended towards the weights. With the two swapped, the weights are blended
towards the mean, which never moves, and each step is partly undone.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from course.debug.probes.loop import norm, own_loop
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import ENOUGH_STEPS, NEARLY_ALL

LEAST_SHARE = 1e-3
"""Share of the way back from which it is no rounding of float32."""
EXACT = 1e-2
"""Part of what was moved that may be off: float32 rounds differences of weights to 1e-4 of it."""


def back(session: Session) -> Iterator[Finding]:
    """Between steps, weights do not move back towards their initial values by a fixed share."""
    tape = own_loop(session).tape
    steps, stepped = tape.of("step"), tape.of("stepped")
    if len(steps) < ENOUGH_STEPS or len(steps) != len(stepped) or any(
            e.has_closure for e in steps) or len({id(e.optimizer) for e in steps}) > 1:  # fmt: skip
        raise NotChecked(f"fewer than {ENOUGH_STEPS} plain steps of one optimizer")
    start, shares = steps[0].weights, []
    for left, met in zip(stepped, steps[1:], strict=False):
        moved = [b - a for a, b in zip(left.weights, met.weights, strict=True)]
        way = [s - a for s, a in zip(start, left.weights, strict=True)]
        size = norm(way)
        if not size or not norm(moved):
            shares.append(0.0)
            continue
        share = sum(float((m.double() * w.double()).sum()) for m, w in
                    zip(moved, way, strict=True)) / size**2  # fmt: skip
        off = norm([m - share * w for m, w in zip(moved, way, strict=True)])
        shares.append(share if off < EXACT * norm(moved) else 0.0)
    share = float(torch.tensor(shares).median())
    alike = sum(abs(s - share) < EXACT * share for s in shares)
    if LEAST_SHARE < share < 1 - EXACT and alike >= NEARLY_ALL * len(shares):
        yield Finding(
            "updates-undone", "error",
            f"After each of {alike} of {len(shares)} steps the weights move {share:.2%} of the way "
            "back to their initial values: a copy of them is blended into the model, and the copy "
            "does not follow. The two are swapped.",
            {"share_of_the_way": share, "steps": alike},
            "average.lerp_(weight, 1 - decay)  # not weight.lerp_(average, 1 - decay)",
        )  # fmt: skip
