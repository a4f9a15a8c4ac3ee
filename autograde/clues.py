"""What holds for all numbers of a wrong answer: each is twice the right one, say, or one is off.

A clue says only what was observed in one case, and is given if no misconception is named: it helps
where the first differing number alone would leave a student with arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

RTOL, ATOL = 1e-4, 1e-7
"""How well a relation holds that is said with four digits; the second as a share of the largest
number, so that tiny ones are not taken for anything."""
FAR = 0.05
"""Relative difference from which a number is called wrong: no exercise allows more."""
EQUAL = {torch.float64: 1e-9}
"""Up to which relative difference a number is called right; no exercise is stricter."""
EQUAL_ELSE = 1e-6
"""The same for float32 and shorter formats."""
FEWEST = 3
"""Numbers that a relation has to hold for: of two, one or another often holds by chance."""


def clue(expected: Any, got: Any) -> str:
    """One sentence on how all numbers of an answer relate to the right ones, or nothing.

    Args:
        expected: A field of the right answer: a tensor, numbers in lists, or a mapping of these.
        got: The same field of the wrong answer.
    """
    if isinstance(expected, Mapping) and isinstance(got, Mapping) and len(expected) > 1:
        return _of_names(expected, got) or _of_numbers(expected, got)
    return _of_numbers(expected, got)


def _of_names(expected: Mapping, got: Mapping) -> str:
    """Which entries are right, where some are and some are not."""
    if set(expected) != set(got):
        return ""
    fine, wrong, sure = [], [], True
    for name in expected:
        numbers = _beside(expected[name], got[name])
        if numbers is None:
            return ""
        same_form = _form(expected[name]) == _form(got[name])
        if same_form and not _differ(expected[name], *numbers).any():
            fine.append(str(name))
        else:
            wrong.append(str(name))
            sure = sure and not torch.allclose(*numbers[::-1], rtol=FAR, atol=0.0)
    if len(wrong) == 1:
        return f"Everything except {wrong[0]} is right."
    return (
        f"Right: {', '.join(fine)}. Wrong: {', '.join(wrong)}." if fine and wrong and sure else ""
    )


def _of_numbers(expected: Any, got: Any) -> str:
    numbers = _beside(expected, got)
    if numbers is None or len(numbers[0]) < FEWEST:
        return ""
    right, yours = numbers
    if not _differ(expected, right, yours).any():
        return "" if _form(expected) == _form(got) else "The numbers themselves are right."
    if not (torch.isfinite(right).all() and torch.isfinite(yours).all()) or _close(right, yours):
        return ""
    if len(right.unique()) < FEWEST:  # of equal numbers everything is a multiple
        return ""
    said = next(filter(None, (relation(right, yours) for relation in RELATIONS)), "")
    return said or _one_off(_differ(expected, right, yours))


def _multiple(right: Tensor, yours: Tensor) -> str:
    factor = float((right @ yours) / (right @ right))
    if not _close(factor * right, yours) or abs(factor) < ATOL:
        return ""
    if abs(factor + 1) < RTOL:
        return "Every number there has the opposite sign."
    return f"Every number there is {factor:.4g} times the right one."


def _shifted(right: Tensor, yours: Tensor) -> str:
    off = float((yours - right).mean())
    if not _close(right + off, yours) or abs(off) < ATOL:
        return ""
    return f"Every number there is {abs(off):.4g} too {'large' if off > 0 else 'small'}."


def _in_another_order(right: Tensor, yours: Tensor) -> str:
    if not _close(right.sort().values, yours.sort().values):
        return ""
    how = "in reverse order" if _close(right.flip(0), yours) else "in a different order"
    return f"These are the right numbers, but {how}."


def _square(right: Tensor, yours: Tensor) -> str:
    if _close(right * right, yours):
        return "Every number there is the square of the right one."
    return (
        ("Every number there is the square root of the right one.")
        if _close(right, yours * yours)
        else ""
    )


def _all_equal(_right: Tensor, yours: Tensor) -> str:
    return "All your numbers there are equal." if len(yours.unique()) == 1 else ""


def _one_off(differ: Tensor) -> str:
    wrong = differ.nonzero().flatten().tolist()
    if len(wrong) != 1:
        return ""
    place = {0: ", the first,", len(differ) - 1: ", the last,"}.get(wrong[0], "")
    return f"Only that one of {len(differ)} numbers{place} is wrong."


RELATIONS: tuple[Callable[[Tensor, Tensor], str], ...] = (
    _multiple, _shifted, _in_another_order, _square, _all_equal,
)  # fmt: skip


def _differ(expected: Any, right: Tensor, yours: Tensor) -> Tensor:
    """Which numbers are not right, as strictly as any exercise asks."""
    rtol = max((EQUAL.get(dtype, EQUAL_ELSE) for dtype in _dtypes(expected)), default=1e-9)
    return ~torch.isclose(yours, right, rtol, 0.0)


def _dtypes(value: Any) -> Iterator[torch.dtype]:
    if isinstance(value, Tensor):
        yield value.dtype
    elif isinstance(value, (list, tuple, Mapping)):
        for entry in value.values() if isinstance(value, Mapping) else value:
            yield from _dtypes(entry)


def _form(value: Any) -> Any:
    """Shapes and dtypes of what an answer consists of."""
    if isinstance(value, Tensor):
        return value.shape, value.dtype
    if isinstance(value, (list, tuple, Mapping)):
        names = list(value) if isinstance(value, Mapping) else range(len(value))
        return {name: _form(value[name]) for name in names}
    return type(value)


def _close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(other, one, RTOL, ATOL * float(one.abs().max()))


def _beside(expected: Any, got: Any) -> tuple[Tensor, Tensor] | None:
    """All numbers of both, place by place; None where something is no number or has no partner."""
    pairs = list(_pairs(expected, got))
    if not pairs or any(a is None or b is None or a.shape != b.shape for a, b in pairs):
        return None
    right, yours = (torch.cat(side) for side in zip(*pairs, strict=True))
    return right, yours


def _pairs(expected: Any, got: Any) -> Iterator[tuple[Tensor | None, Tensor | None]]:
    lists = isinstance(expected, (list, tuple)) and isinstance(got, (list, tuple))
    if isinstance(expected, Mapping) and isinstance(got, Mapping) and set(expected) == set(got):
        for name in expected:
            yield from _pairs(expected[name], got[name])
    elif lists and len(expected) == len(got):
        for one, other in zip(expected, got, strict=True):
            yield from _pairs(one, other)
    else:
        yield _flat(expected), _flat(got)


def _flat(value: Any) -> Tensor | None:
    """A tensor or a number in one row; None for anything else."""
    if isinstance(value, Tensor):
        return None if value.is_complex() else value.detach().flatten().cpu().double()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return torch.tensor([float(value)], dtype=torch.float64)
