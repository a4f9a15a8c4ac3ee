"""What networks answer for each row, so that two ways to make batches can be compared.

A score that differs in batches of another size says nothing about how it is computed as long as the
numbers that it is computed from may differ, too: a state that is carried from batch to batch,
padding to the longest row, statistics of a batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from course.debug.probes.functions import is_transformed
from course.debug.probes.tape import Tape
from course.state.nested import tensors_in

DIGITS = 1000
"""Last digits of a type by which the largest number may differ: sums of a few hundred terms, added
in an order that depends on the size of the batch, differ by tens of them."""


class Answers:
    """While it is entered: all tensors that each module gives that no other module calls."""

    def __init__(self) -> None:
        self.given: list[list[Tensor]] = []
        """Of each call, in order."""
        self._depth = 0
        self._handles: list[Any] = []

    def __enter__(self) -> Answers:
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave),
        ]
        return self

    def __exit__(self, *_: Any) -> None:
        for handle in self._handles:
            handle.remove()

    def _enter(self, module: nn.Module, args: Any) -> None:
        self._depth += 1

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._depth -= 1
        if not self._depth and not is_transformed():
            given = [t.detach().clone() for t in tensors_in(output) if t.dim()]
            if given:
                self.given.append(given)

    def met(self, tape: Tape) -> list[list[list[Tensor]]]:
        """What modules gave, and what each of torch's losses got: lists of calls."""
        losses: dict[str, list[list[Tensor]]] = {}
        for event in tape.of("loss"):
            both = [t for t in (event.inputs, event.targets) if t.dim()]
            losses.setdefault(event.name, []).append(both)
        return [self.given, *(losses[name] for name in sorted(losses))]


def alike(one: list[list[list[Tensor]]], other: list[list[list[Tensor]]], rows: int) -> bool:
    """Both have the same numbers for the same rows, however these were made into batches.

    Args:
        one: What was met, in batches of some size.
        other: The same if all rows form one batch.
        rows: How many that are.
    """
    if len(one) != len(other) or not one[0]:
        return False
    return all(_same_rows(a, b, rows) for a, b in zip(one, other, strict=True))


def _same_rows(many: list[list[Tensor]], few: list[list[Tensor]], rows: int) -> bool:
    """Of calls in the same order, or of several calls for each batch."""
    if not few or {len(call) for call in many} != {len(call) for call in few}:
        return False
    if len({len(call) for call in few}) != 1:
        return False
    if _joined_alike(many, few, rows):
        return True
    turns = len(few)
    return turns > 1 and len(many) % turns == 0 and all(
        _joined_alike(many[turn::turns], few[turn : turn + 1], rows) for turn in range(turns)
    )  # fmt: skip


def _joined_alike(many: list[list[Tensor]], few: list[list[Tensor]], rows: int) -> bool:
    return all(
        _alike(_joined(list(a), rows_second), _joined(list(b), rows_second))
        for a, b in zip(zip(*many, strict=True), zip(*few, strict=True), strict=True)
        for rows_second in [_has_rows_second(b, rows)]
    )


def _has_rows_second(tensors: tuple[Tensor, ...], rows: int) -> bool:
    """As the last state of a recurrent layer, [layers, B, width], has."""
    return all(t.dim() > 1 and len(t) != rows and t.shape[1] == rows for t in tensors)


def _joined(tensors: list[Tensor], rows_second: bool) -> Tensor | None:
    axis = int(rows_second)
    if any(t.dim() <= axis for t in tensors):
        return None
    tensors = [t.movedim(axis, 0) for t in tensors]
    return torch.cat(tensors) if len({t.shape[1:] for t in tensors}) == 1 else None


def _alike(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    finite = one[one.isfinite()].abs()
    rounding = DIGITS * torch.finfo(one.dtype).eps
    largest = float(finite.max()) if finite.numel() else 0.0
    return torch.allclose(one, other, rtol=rounding, atol=rounding * largest, equal_nan=True)
