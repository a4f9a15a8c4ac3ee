"""Columns [N, 1] that meet rows of numbers [N] in arithmetic: a table [N, N] that nobody asked for.

A column is asked for if it is made of a row, or with `keepdim`, by a function that has not returned
when the table is made: whoever writes `a[:, None] - b` wants each with each.
"""

from __future__ import annotations

import sys
import weakref
from types import CodeType
from typing import Any

from torch import Tensor

ARITHMETIC = {"add", "sub", "rsub", "mul", "div", "truediv", "radd", "rmul", "true_divide"}
"""Functions of two tensors that broadcast, by their names without underscores; a comparison of each
with each is a mask."""


class Columns:
    """Follows columns through a step."""

    def __init__(self) -> None:
        self.asked_for: dict[int, CodeType] = {}
        """The function that asked for a column, by the id of each that is alive."""
        self._alive: dict[int, weakref.ref] = {}

    def see(self, function: Any, args: list[Tensor], kwargs: Any, result: Tensor) -> int:
        """A function was called; rows of the table that it made of a column, 0 if none.

        Args:
            function: Of torch.
            args: The tensors that it got.
            kwargs: What it got by name.
            result: What it gave.
        """
        if result.dim() != 2:
            return 0
        if is_column(result):
            known = [self.asked_for[id(a)] for a in args if id(a) in self.asked_for]
            if known and all(is_column(a) or a.numel() == 1 for a in args):  # number by number
                self._keep(result, known[0])
            elif kwargs.get("keepdim") or (len(args) == 1 and args[0].dim() == 1):
                self._keep(result, sys._getframe(3).f_code)
            return 0
        rows = len(result)
        if result.shape != (rows, rows) or len(args) != 2 or rows < 2:
            return 0
        if getattr(function, "__name__", "").strip("_") not in ARITHMETIC:
            return 0
        column, row = args if is_column(args[0]) else args[::-1]
        if not is_column(column) or row.dim() != 1 or column.data_ptr() == row.data_ptr():
            return 0
        return 0 if self._is_asked_for(column) else rows

    def _keep(self, column: Tensor, code: CodeType) -> None:
        key = id(column)

        def forget(_: object) -> None:
            self.asked_for.pop(key, None)
            self._alive.pop(key, None)

        self.asked_for[key], self._alive[key] = code, weakref.ref(column, forget)

    def _is_asked_for(self, column: Tensor) -> bool:
        """The function that asked for it is still running."""
        code, frame = self.asked_for.get(id(column)), sys._getframe(3)
        while frame is not None and code is not None:
            if frame.f_code is code:
                return True
            frame = frame.f_back
        return False


def is_column(tensor: Tensor) -> bool:
    """[N, 1] with several rows."""
    return tensor.dim() == 2 and tensor.shape[1] == 1 < len(tensor)
