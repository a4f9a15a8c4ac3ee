"""Is this answer the right one? Field by field, with a tolerance by dtype and device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TOLERANCE: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-7, 1e-9),
    torch.float32: (1e-4, 1e-6),
    torch.bfloat16: (2e-2, 1e-3),
    torch.float16: (2e-3, 1e-4),
}
"""(rtol, atol): wide enough for another order of summation, far below any misconception."""
SHORT = 60
"""Characters of a value that a message shows."""
ON_GPU = 10.0
"""Factor on a GPU, whose kernels sum in other orders."""


@dataclass(frozen=True)
class Difference:
    """The first place where an answer is not the right one."""

    field: str
    where: str
    """Position inside the field, as `0.weight[1, 0]`; empty for a single number."""
    expected: str
    got: str


def first_difference(
    expected: Any,
    got: Any,
    *,
    fields: tuple[str, ...] = (),
    tolerance: Mapping[torch.dtype, tuple[float, float]] = TOLERANCE,
    on_gpu: bool = False,
) -> Difference | None:
    """The first difference between two answers, or None where they agree.

    Args:
        expected: The right answer: a dict of tensors, numbers, strings, lists and dicts.
        got: The answer to judge, of the same form if it is right.
        fields: Top-level fields to look at; none named: all.
        tolerance: (rtol, atol) by dtype of the expected value; Python floats count as float32.
        on_gpu: The answer was computed on a GPU.
    """
    for field in fields or tuple(expected):
        if field not in got:
            return Difference(field, "", _short(expected[field]), "nothing")
        factor = ON_GPU if on_gpu else 1.0
        found = _walk(expected[field], got[field], "", {**TOLERANCE, **tolerance}, factor)
        if found is not None:
            return Difference(field, *found)
    return None


Found = tuple[str, str, str] | None


def _walk(expected: Any, got: Any, where: str, tolerance: Mapping, factor: float) -> Found:
    if isinstance(expected, Tensor):
        return _compare_tensors(expected, got, where, tolerance, factor)
    if isinstance(expected, Mapping):
        if not isinstance(got, Mapping) or set(got) != set(expected):
            keys = list(got) if isinstance(got, Mapping) else got
            return where, _short(list(expected)), _short(keys)
        pairs = [(f"{where}.{key}".lstrip("."), expected[key], got[key]) for key in expected]
        return _first(pairs, tolerance, factor)
    if isinstance(expected, (list, tuple)):
        if not isinstance(got, (list, tuple)):
            return where, _short(expected), _short(got)
        if len(got) != len(expected):
            if len(_short(expected)) == SHORT or len(_short(got)) == SHORT:  # cut: may look alike
                return where, f"a list of {len(expected)}", f"a list of {len(got)}"
            return where, _short(expected), _short(got)
        items = enumerate(zip(expected, got, strict=True))
        return _first([(f"{where}[{i}]", a, b) for i, (a, b) in items], tolerance, factor)
    if isinstance(expected, float) and isinstance(got, (int, float)) and not isinstance(got, bool):
        rtol, atol = tolerance[torch.float32]
        agree = _close(float(expected), float(got), rtol * factor, atol * factor)
    else:
        agree = type(expected) is type(got) and expected == got
    return None if agree else (where, _short(expected), _short(got))


def _first(pairs: list[tuple[str, Any, Any]], tolerance: Mapping, factor: float) -> Found:
    for where, expected, got in pairs:
        if (found := _walk(expected, got, where, tolerance, factor)) is not None:
            return found
    return None


def _compare_tensors(
    expected: Tensor, got: Any, where: str, tolerance: Mapping, factor: float
) -> Found:
    if not isinstance(got, Tensor):
        return where, f"a tensor {list(expected.shape)}", _short(got)
    if got.shape != expected.shape:
        return where, f"shape {list(expected.shape)}", f"shape {list(got.shape)}"
    if got.dtype != expected.dtype:
        return where, str(expected.dtype), str(got.dtype)
    if not expected.is_floating_point():
        wrong = expected != got
    else:
        rtol, atol = tolerance[expected.dtype]
        wrong = ~torch.isclose(
            got.double(), expected.double(), rtol * factor, atol * factor, equal_nan=True
        )
    if not wrong.any():
        return None
    index = tuple(wrong.nonzero()[0].tolist())
    place = f"{where}{list(index)}" if index else where
    return place, _short(expected[index].item()), _short(got[index].item())


def _close(a: float, b: float, rtol: float, atol: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or abs(a - b) <= atol + rtol * abs(a)


def _short(value: Any) -> str:
    text = _plainly(value)
    return text if len(text) < SHORT else text[: SHORT - 1] + "…"


def _plainly(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_quoted, value))}]"
    return f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else str(value)


def _quoted(item: Any) -> str:
    return repr(item) if isinstance(item, str) else _plainly(item)
