"""Relation on the smallest of masked numbers: the mask leaves something to choose from.

A distance that is multiplied by 0 is the smallest of its row: a minimum over such numbers picks
what was to be left out, always, and has no gradient. A maximum over numbers from 0 on is not
harmed by zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import NEARLY_ALL
from course.debug.relations.program import program_of

PRODUCTS = {
    torch.mul, torch.multiply, Tensor.mul, Tensor.multiply, Tensor.__mul__, Tensor.__rmul__,
    Tensor.mul_, Tensor.__imul__,
}  # fmt: skip
FILLS = {torch.masked_fill, Tensor.masked_fill, Tensor.masked_fill_}
SMALLEST = {torch.min, Tensor.min, torch.amin, Tensor.amin, torch.argmin, Tensor.argmin}
LARGEST = {torch.max, Tensor.max, torch.amax, Tensor.amax, torch.argmax, Tensor.argmax}
ENDS = {torch.topk, Tensor.topk}
READERS = {Tensor.dim, Tensor.size, Tensor.numel, Tensor.is_floating_point, Tensor.__len__}
"""Functions that do not look at the numbers."""
LEAST_ROWS = 8
"""Rows from which nearly all is a habit."""
ALREADY = 0.01
"""Size of a masked number beside the nearest one that is not masked, up to which it was next to 0
before: a distance to itself, which a mask of the diagonal does not change."""


def smallest(session: Session) -> Iterator[Finding]:
    """A minimum over numbers above 0, of which some are multiplied by 0, does not pick these.

    Nor does a maximum over numbers below 0. The product is read by nothing else, e.g. to be scaled
    from its least to its largest; and some of each row are left.
    """
    program = program_of(session)
    if not program.first().calls_any(PRODUCTS | FILLS) or not program.first().calls_any(
        SMALLEST | LARGEST | ENDS
    ):
        raise NotChecked("no minimum and nothing masked was seen")
    mode = _Masked()
    program.step(program.batches[0], within=mode)
    for made in mode.made:
        if made.picked is None or made.others:
            continue
        least, name, rows, won = made.picked
        if rows >= LEAST_ROWS and won >= NEARLY_ALL * rows:
            yield Finding(
                "wrong-formula", "warning",
                f"In {won} of {rows} rows {name}() picks a number that a mask has set to 0, though "
                f"others {'above' if least else 'below'} 0 are left: 0 is the "
                f"{'smallest' if least else 'largest'} of all, so what was to be left out wins, "
                "and no gradient passes.",
                {"rows": rows, "masked_wins": won},
                "hardest = distance.masked_fill(same, float('inf')).min(1).values  # not * ~same"
                if least else
                "best = score.masked_fill(~valid, float('-inf')).max(1).values  # not * valid",
            )  # fmt: skip
            return


class _Made:
    """Numbers of which a mask has set some to 0."""

    def __init__(self, result: Tensor, before: Tensor, zero: Tensor) -> None:
        self.result, self.before, self.zero = result, before, zero
        self.picked: tuple[bool, str, int, int] | None = None
        """Whether it is the smallest, the function, its rows, and those that pick a masked one."""
        self.others = 0
        """Other functions that read them."""


class _Masked(TorchFunctionMode):
    """Numbers with a graph that are masked by 0, and what is picked of them."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[_Made] = []

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        masked = _masked(function, args) if function in PRODUCTS | FILLS else None
        result = function(*args, **kwargs)
        for made in self.made:
            if any(a is made.result for a in args) and function not in READERS:
                self._see(made, function, args, kwargs)
        if masked is not None and isinstance(result, Tensor) and result.requires_grad:
            before, zero = masked
            if before.shape == zero.shape == result.shape:
                self.made.append(_Made(result, before, zero))
        return result

    @staticmethod
    def _see(made: _Made, function: Any, args: Any, kwargs: Any) -> None:
        axis, least = _reduced(function, args, kwargs)
        if axis is None or made.picked:
            made.others += getattr(function, "__name__", "") != "__get__"
            return
        sign = 1.0 if least else -1.0
        numbers = sign * made.before.movedim(axis, -1).flatten(0, -2)
        zero = made.zero.movedim(axis, -1).flatten(0, -2)
        left = numbers.masked_fill(zero, torch.inf).amin(1, keepdim=True)
        harmed = (zero & (numbers > ALREADY * left)).any(1)
        won = harmed & (left[:, 0] > 0) & torch.isfinite(left[:, 0])
        if bool((numbers >= 0).all()):
            made.picked = least, function.__name__, len(won), int(won.sum())


def _reduced(function: Any, args: Any, kwargs: Any) -> tuple[int | None, bool]:
    """The axis of a choice along one, and whether it is of the smallest."""
    if function in ENDS:
        axis = kwargs.get("dim", args[2] if len(args) > 2 else -1)
        return axis, not kwargs.get("largest", args[3] if len(args) > 3 else True)
    axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
    known = function in SMALLEST | LARGEST and isinstance(axis, int)
    return axis if known else None, function in SMALLEST


def _masked(function: Any, args: Any) -> tuple[Tensor, Tensor] | None:
    """The numbers before they are masked, and where they become 0."""
    two = [a for a in args[:2] if isinstance(a, Tensor)]
    if len(two) != 2:
        return None
    one, other = (t.detach() for t in two)
    if function in FILLS:
        fills = len(args) > 2 and isinstance(args[2], (int, float)) and args[2] == 0
        return _at_full_size(one, other) if fills and other.dtype == torch.bool else None
    for place, (numbers, mask) in enumerate(((one, other), (other, one))):
        if numbers.is_floating_point() and not two[1 - place].requires_grad and _is_mask(mask):
            return _at_full_size(numbers, mask == 0)
    return None


def _at_full_size(numbers: Tensor, zero: Tensor) -> tuple[Tensor, Tensor]:
    both = torch.broadcast_tensors(numbers, zero)
    return both[0].clone(), both[1]


def _is_mask(tensor: Tensor) -> bool:
    """All is 0 or 1, and there are both."""
    zero, one = tensor == 0, tensor == 1
    return bool((zero | one).all()) and bool(zero.any()) and bool(one.any())
