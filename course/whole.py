"""Whole numbers that a caller hands in, a seed or a count, checked before a library stumbles.

Nothing here imports torch.
"""

from __future__ import annotations

import math
from typing import Any

SEEDS = 2**32
"""How many seeds there are: torch and Python take more, NumPy and scikit-learn do not."""


def whole_number(name: str, value: Any, least: int = 0, most: float = math.inf) -> int:
    """`value` as an int; NumPy's and torch's whole numbers will do.

    Raises:
        ValueError: It is not a whole number, or not between `least` and `most`.
    """
    number = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not whole or not least <= number <= most:
        until = f"from {least} to {most}" if math.isfinite(most) else f"of at least {least}"
        raise ValueError(f"{name} = {value!r}: expected a whole number {until}.")
    return number


def check_seed(value: Any) -> int:
    """A seed that Python, NumPy, scikit-learn and torch all take, as an int.

    Raises:
        ValueError: It is none.
    """
    return whole_number("seed", value, 0, SEEDS - 1)
