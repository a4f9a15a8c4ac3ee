"""Relation on losses with targets 0 and 1: from wrong to right answers, the loss has one valley.

Outputs are moved along a line, from all wrong through undecided to all right. A loss that falls,
rises and falls again has a pole in between: it expects shares but gets raw numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import torch

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.steps import SAME

ALONG = (-30.0, -10.0, -3.0, -1.0, 0.0, 1.0, 3.0, 10.0, 30.0)
"""Sizes of the outputs that are tried; below 0 they are the wrong answers."""


def valley(session: Session) -> Iterator[Finding]:
    """A loss with targets 0 and 1 has a single minimum and rises on either side of it."""
    outputs, targets = session.outputs, session.place(session.batch[1])
    alike = targets.is_floating_point() and outputs.shape == targets.shape
    if not alike or not bool(((targets == 0) | (targets == 1)).all()) or not bool(targets.any()):
        raise NotChecked("targets are not 0 and 1, one for each output")
    if not bool((outputs < 0).any()):
        raise NotChecked("outputs may already be shares")
    with session.observe(), torch.no_grad():
        costs = [float(session.loss(size * (2 * targets - 1), targets)) for size in ALONG]
    if not all(map(math.isfinite, costs)):
        raise NotChecked("the loss for all-right or all-wrong answers is not finite")
    least = min(range(len(costs)), key=costs.__getitem__)
    off = SAME * max(1.0, *map(abs, costs))
    before, after = costs[: least + 1], costs[least:]
    uphill = any(b > a + off for a, b in pairwise(before))
    downhill = any(b < a - off for a, b in pairwise(after))
    if uphill or downhill:
        yield Finding(
            "missing-log-softmax", "warning",
            f"With outputs from {ALONG[0]:g} (all wrong) to {ALONG[-1]:g} (all right) the loss "
            "goes up and down more than once: it divides by a sum that passes through 0, because "
            "it gets raw numbers where it expects shares between 0 and 1.",
            {"outputs": list(ALONG), "losses": costs},
            "loss = dice(logits.sigmoid(), masks)",
        )  # fmt: skip
