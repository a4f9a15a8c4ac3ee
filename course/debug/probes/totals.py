"""Totals in 16 bits that a program keeps, next to what they should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

NARROW = (torch.bfloat16, torch.float16)


@dataclass
class Total:
    """A sum of single numbers in 16 bits."""

    tensor: Tensor
    held: float
    """What it holds."""
    true: float
    """What it should."""
    size: float
    """The absolute values of all that was added."""
    added: int


class Totals:
    """Sums that grow, number by number, in place or not."""

    def __init__(self) -> None:
        self.found: dict[int, Total] = {}

    def before(self, args: Any) -> tuple[float, float] | None:
        """Two single numbers that are to be added, the first one in 16 bits."""
        one, other = args[:2] if len(args) > 1 else (None, None)
        if not (isinstance(one, Tensor) and one.dtype in NARROW and not one.dim()):
            return None
        if isinstance(other, Tensor):
            return (float(one.detach()), float(other.detach())) if other.numel() == 1 else None
        return (float(one.detach()), float(other)) if isinstance(other, (int, float)) else None

    def after(self, args: Any, two: tuple[float, float], result: Any, *, minus: bool) -> None:
        """They have been added."""
        if not isinstance(result, Tensor) or result.dtype not in NARROW or result.dim():
            return
        first, second = two[0], -two[1] if minus else two[1]
        known = self.found.get(id(args[0]))
        if known is None or known.tensor is not args[0] or known.held != first:
            known = Total(result, first, first, abs(first), 0)
        else:
            self.found.pop(id(args[0]))
        known.tensor, known.held = result, float(result.detach())
        known.true, known.size = known.true + second, known.size + abs(second)
        known.added += 1
        self.found[id(result)] = known
