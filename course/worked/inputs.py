"""Inputs other than the lecture's: what a worked example accepts, and the errors for the rest.

An example is written for its own numbers, so `compute("N20", max_norm="a lot")` or a negative
`max_norm` would end in a traceback from deep inside torch, or in a wrong number. The example's
signature says what each input may be (whole numbers, numbers, tuples of them); the few ranges that
a type cannot express are in `RANGES`, by the input's name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin, get_type_hints

from course.whole import SEEDS

RANGES: dict[str, tuple[float, float, str]] = {
    "seed": (0, SEEDS - 1, f"a whole number from 0 to {SEEDS - 1}"),
    **dict.fromkeys(
        ("patience", "short_patience", "warmup", "at", "past", "target", "dropped"),
        (0, math.inf, "0 or more"),
    ),
    **dict.fromkeys(("first", "second", "values"), (-math.inf, math.inf, "any whole number")),
    **dict.fromkeys(("decay", "min_delta", "eta_min"), (0, math.inf, "0 or more")),
    **dict.fromkeys(
        (
            *(
                "lr",
                "max_norm",
                "limit",
                "eps",
                "gamma",
                "init_scale",
                "sd",
                "start",
                "end",
                "slope",
            ),
            *("threshold", "rates"),
        ),
        (math.ulp(0.0), math.inf, "above 0"),
    ),
    "factor": (1 + math.ulp(1.0), math.inf, "above 1, so that the learning rate grows"),
    "momentum": (0, math.nextafter(1.0, 0.0), "from 0 to below 1"),
    "p": (0, math.nextafter(1.0, 0.0), "from 0 to below 1: a chance of being dropped"),
    "smoothing": (0, 1, "from 0 to 1"),
    "accuracy": (0, 100, "from 0 to 100, in percent"),
}
"""Smallest and largest value of an input, and the words for it; a count is at least 1."""


def checked_inputs(
    id: str, example: Callable[..., Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The inputs, converted to what the example's signature expects: tuples, whole numbers, floats.

    Args:
        id: The ledger's id, for the message.
        example: The function that computes the example.
        given: Inputs by name; lists, tensors and NumPy values are accepted.

    Raises:
        ValueError: An input has the wrong type, is not finite, is empty, or is out of range.
    """
    hints = get_type_hints(example)
    return {
        name: _checked(value, hints[name], f"{id}: {name}", name) for name, value in given.items()
    }


def _checked(value: Any, hint: Any, title: str, name: str) -> Any:
    from course.report import plain

    value = plain(value)
    if get_origin(hint) is tuple:
        return _checked_tuple(value, get_args(hint), title, name)
    if hint is str:
        if not isinstance(value, str):
            raise ValueError(f"{title} = {value!r}: expected a name, in quotes.")
        return value
    whole = hint is int
    words = "a whole number" if whole else "a finite number"
    if not _is_number(value) or (whole and value != int(value)):
        raise ValueError(f"{title} = {value!r}: expected {words}, like the lecture's.")
    low, high, allowed = RANGES.get(
        name, (1, math.inf, "1 or more") if whole else (-math.inf, math.inf, words)
    )
    if not low <= value <= high:
        raise ValueError(f"{title} = {value!r}: expected {allowed}.")
    return hint(value)


def _checked_tuple(value: Any, hints: tuple[Any, ...], title: str, name: str) -> tuple[Any, ...]:
    """`tuple[int, ...]` takes one item or more; `tuple[int, int]` takes two."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"{title} = {value!r}: expected a list of at least one item, e.g. [1, 2].")
    if hints[-1] is Ellipsis:
        hints = hints[:1] * len(value)
    if len(value) != len(hints):
        raise ValueError(f"{title} = {value!r}: {len(value)} items, expected {len(hints)}.")
    return tuple(
        _checked(item, hint, f"{title}[{place}]", name)
        for place, (item, hint) in enumerate(zip(value, hints, strict=True))
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
