"""Arguments of the analysis functions, checked before a library stumbles over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


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


def seed(value: Any) -> int:
    """A seed that NumPy, scikit-learn and torch all take.

    Raises:
        ValueError: It is none.
    """
    return whole_number("seed", value, 0, 2**32 - 1)


def names_of_classes(class_names: Sequence[str] | None, num_classes: int) -> tuple[str, ...]:
    """One name per class; the indices where none are given.

    Raises:
        ValueError: Not one name per class; a text counts as its letters.
    """
    if class_names is None:
        return tuple(map(str, range(num_classes)))
    names = tuple(map(str, class_names))
    if len(names) != num_classes:
        raise ValueError(
            f"{len(names)} class_names for {num_classes} classes: give one per class, in the order "
            "of the logits."
        )
    return names
