"""Frames: what a page draws, as plain numbers, short enough to send many per second."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

DIGITS = 6
"""Significant digits of the numbers sent to a page: more than any axis shows."""


def as_frame(value: Any, digits: int = DIGITS) -> Any:
    """Tensors, arrays and tuples as lists; floats are rounded, inf and nan spelt as in JavaScript.

    JSON has no inf and nan; the page turns "Infinity", "-Infinity" and "NaN" back into
    numbers (`num` in base.js).
    """
    if type(value) is float:  # nearly all that a frame holds: asked first
        return _short(value, digits)
    if hasattr(value, "tolist"):  # a torch tensor or a NumPy array, neither imported here
        value = value.detach().tolist() if hasattr(value, "detach") else value.tolist()
    if isinstance(value, Mapping):
        return {str(key): as_frame(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_frame(item, digits) for item in value]
    if isinstance(value, float):
        return _short(value, digits)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise TypeError(
        f"a frame may hold numbers, strings, lists and dicts, not {type(value).__name__}"
    )


def _short(value: float, digits: int) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(f"{value:.{digits}g}")


def as_bytes(numbers: Any) -> str:
    """A uint8 tensor or array as base64, for images; `bytesOf` in base.js reads it back."""
    return base64.b64encode(bytes(numbers.flatten().tolist())).decode()


def thinned(values: Sequence[float], most: int) -> tuple[list[int], list[float]]:
    """At most `most` of the values with their indices: the lowest and highest of each stretch.

    A curve drawn from these keeps the spikes of the full curve; the last value is kept, too.
    """
    if len(values) <= most:
        return list(range(len(values))), list(values)
    kept: set[int] = {len(values) - 1}
    stretches = max(1, (most - 1) // 2)
    for number in range(stretches):
        start = number * len(values) // stretches
        stretch = range(start, (number + 1) * len(values) // stretches)
        finite = [index for index in stretch if math.isfinite(values[index])] or [start]
        kept.add(min(finite, key=values.__getitem__))
        kept.add(max(finite, key=values.__getitem__))
    indices = sorted(kept)
    return indices, [values[index] for index in indices]
