"""Relation on what a step draws for the rows of its batch: it is drawn anew in the next step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course.debug.probes.draws import DRAWS
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

STEPS = 3
"""Steps in a row whose draws are compared: with a generator that goes on, two are never alike."""
LEAST_NUMBERS = 8
"""Numbers drawn below which two steps may draw the same by chance."""


def anew(session: Session) -> Iterator[Finding]:
    """Noise for the rows of a batch is not the same in the next step."""
    if session.loop.unit != "step":
        raise NotChecked("needs train_step")
    program = program_of(session)
    batches = program.batches
    with session.observe():
        drawn = []
        for number in range(STEPS):
            batch = clone(batches[number % len(batches)])
            rows = {len(t) for t in tensors_in(batch) if t.dim()}
            with _Drawn(rows) as mode:
                program.make_step(batch)
            drawn.append(mode.values)
    first = drawn[0]
    if not first or any(len(other) != len(first) for other in drawn):
        raise NotChecked("a step draws no numbers for the rows of its batch")
    fixed = [n for n, value in enumerate(first)
             if all(value.shape == other[n].shape and torch.equal(value, other[n])
                    for other in drawn[1:])]  # fmt: skip
    if len(fixed) == len(first):
        yield Finding(
            "same-draws", "warning",
            f"In {STEPS} steps in a row all that is drawn for the rows of a batch "
            f"({len(fixed)} draws, {list(first[0].shape)} the first) is the same: the generator is "
            "seeded again in every step.",
            {"draws": len(fixed), "steps": STEPS},
            "generator = torch.Generator().manual_seed(0)  # once, before the loop",
        )  # fmt: skip


class _Drawn(TorchFunctionMode):
    """Random numbers with one row for each of a batch, in the order in which they are drawn."""

    def __init__(self, rows: set[int]) -> None:
        super().__init__()
        self.rows = rows
        self.values: list[Tensor] = []

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        drawn = function in DRAWS and function is not torch.randperm and isinstance(result, Tensor)
        if drawn and result.dim() and len(result) in self.rows and result.numel() >= LEAST_NUMBERS:
            self.values.append(result.detach().clone())
        return result
