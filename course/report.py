"""Results as plain values, and how plain values are written for a reader.

Every result of the course (a worked number, a claim, a diagnosis) keeps its numbers as plain Python
values, goes to JSON, and is read as text; these few functions do it in one way for all of them.
Tables in HTML are `course.tables`.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

WIDTH = 100
"""Columns of a line in a terminal."""


def plain(value: Any) -> Any:
    """Tensors, arrays, tuples and sets as (nested) lists of Python's own numbers and strings."""
    if hasattr(value, "tolist"):  # a torch tensor or a NumPy value, neither imported here
        return plain(value.detach().tolist() if hasattr(value, "detach") else value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    return value


def json_ready(value: Any, *, non_finite: Callable[[float], Any] = str) -> Any:
    """The value as strict JSON holds it: plain, and anything else as its text.

    Args:
        value: Anything that `plain` takes.
        non_finite: What stands for inf and nan, which JSON lacks; their text by default.
    """
    value = plain(value)
    if isinstance(value, dict):
        return {key: json_ready(item, non_finite=non_finite) for key, item in value.items()}
    if isinstance(value, list):
        return [json_ready(item, non_finite=non_finite) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return non_finite(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def dumped(value: Any) -> str:
    """Plain values as readable JSON.

    Raises:
        ValueError: inf or nan is among them; `json_ready` replaces it.
    """
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def short(value: Any, digits: int = 4) -> str:
    """A value to be read: numbers in so many significant digits, thousands apart.

    >>> short([0.123456, 101770, True]), short({"raises": "", "x": 65504.0})
    ('[0.1235, 101,770, yes]', 'raises: nothing, x: 65,504')
    """
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return _short_float(value, digits)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(short(item, digits) for item in value) + "]"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {short(item, digits)}" for name, item in value.items())
    return str(value) or "nothing"


def _short_float(value: float, digits: int) -> str:
    if 1e4 <= abs(value) < 1e7:  # whole thousands are easier to read than an exponent
        return f"{value:,.{max(digits, len(str(int(abs(value)))))}g}"
    return f"{value:.{min(digits, 6) if abs(value) >= 1e7 else digits}g}"


def wrapped(text: str, *, start: str = "", later: str | None = None) -> list[str]:
    """Lines of at most `WIDTH` columns.

    Args:
        text: One paragraph; an empty one gives the start alone.
        start: What the first line begins with.
        later: What the other lines begin with; two blanks more than `start` is wide by default.
    """
    later = " " * (len(start) + 2) if later is None else later
    lines = textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=later)
    return lines or [start.rstrip()]


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a bar within a cell is escaped."""
    lines = [heads, ["---"] * len(heads), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
