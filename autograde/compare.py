"""Compare an answer with the right one, field by field, with a tolerance by dtype and device."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from autograde.exercise import UNFIT
from autograde.reported import Reported

TOLERANCE: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-7, 1e-9),
    torch.float32: (1e-4, 1e-6),
    torch.bfloat16: (2e-2, 1e-3),
    torch.float16: (2e-3, 1e-4),
}
"""(rtol, atol): wide enough for another order of summation, far below any misconception."""
SHORT = 60
"""Characters of a value that a message shows."""
MOST_NAMED = 20
"""Changed things that a message names."""
LONGEST_NAME = 80
"""Characters of such a name."""
ON_GPU = 10.0
"""Factor on a GPU, whose kernels sum in other orders; it widens what allows for rounding, up to
this many times the usual tolerance, and not one that an exercise sets wide for a reason of its own,
as for the spread of drawn numbers."""


@dataclass(frozen=True)
class Difference:
    """The first place where an answer differs from the right one."""

    field: str
    where: str
    """Position inside the field, e.g. `0.weight[1, 0]`; empty for a single number."""
    expected: str
    got: str
    reason: str = ""
    """What to say instead of the two values, if the field is not what was asked for at all."""
    trivial: bool = False
    """Whether the value that came is one that many mistakes give: 0, 1, nan, nothing."""
    values: tuple[Any, Any] | None = dataclasses.field(default=None, compare=False, repr=False)
    """The whole field, expected and got, for a clue."""


def first_difference(
    expected: Any,
    got: Any,
    *,
    fields: tuple[str, ...] = (),
    tolerance: Mapping[torch.dtype, tuple[float, float]] = TOLERANCE,
    on_gpu: bool = False,
) -> Difference | None:
    """The first difference between two answers, or None if they agree.

    Args:
        expected: The right answer: a dict of tensors, numbers, strings, lists and dicts.
        got: The answer to judge, of the same form if it is right.
        fields: Top-level fields to look at; none named: all.
        tolerance: (rtol, atol) by dtype of the expected value; Python floats count as float32.
        on_gpu: The answer was computed on a GPU.
    """
    allowed = {**TOLERANCE, **tolerance}
    if on_gpu:
        allowed = {dtype: _on_gpu(own, TOLERANCE[dtype]) for dtype, own in allowed.items()}
    for field in fields or tuple(expected):
        if field not in expected and field not in got:  # a case of a part that has none
            continue
        if field not in got or field not in expected:
            known = _short(expected[field]) if field in expected else "nothing"
            return Difference(field, "", known, "nothing" if field not in got else "something")
        reason, known = (_not_an_answer(field, answer[field]) for answer in (got, expected))
        if reason != known:
            return Difference(field, "", _short(expected[field]), "", reason)
        if reason:  # the same fault in both, as of two wrong answers
            continue
        found = _walk(expected[field], got[field], "", allowed)
        if found is not None:
            values = expected[field], got[field]
            trivial = found[2] in TRIVIAL and _only_trivial(*values)
            return Difference(field, *found, trivial=trivial, values=values)
    return None


def _on_gpu(own: tuple[float, float], usual: tuple[float, float]) -> tuple[float, float]:
    """(rtol, atol) of an exercise, for a GPU's rounding."""
    rtol, atol = (
        max(one, ON_GPU * min(one, rounding)) for one, rounding in zip(own, usual, strict=True)
    )
    return rtol, atol


TRIVIAL = ("0", "1", "-1", "nan", "inf", "-inf", "[]", "", "''", "None", "100")
"""What a value looks like that is no evidence for any particular mistake."""


def _only_trivial(expected: Any, got: Any) -> bool:
    """Whether every value that differs is one that many mistakes give, not the first one alone."""
    both = expected, got
    if all(isinstance(one, Tensor) for one in both):
        return _only_trivial(expected.tolist(), got.tolist())
    if all(isinstance(one, Mapping) for one in both) and set(expected) == set(got):
        return all(_only_trivial(expected[key], got[key]) for key in expected)
    if all(isinstance(one, (list, tuple)) for one in both) and len(expected) == len(got):
        return all(map(_only_trivial, expected, got))
    if any(isinstance(one, Tensor) for one in both):
        return _short(got) in TRIVIAL
    return expected == got or _short(got) in TRIVIAL


CHANGED = "disturbed"
"""Field of what a function changed that should have stayed as it was: a list of texts."""


def _not_an_answer(field: str, got: Any) -> str:
    """Why a field is not an answer at all; empty where it can be compared."""
    if isinstance(got, Mapping) and UNFIT in got:
        said = got[UNFIT]
        return said if isinstance(said, str) else str(said)
    if field == CHANGED and isinstance(got, (list, tuple)) and got:
        named = [str(one)[:LONGEST_NAME] for one in got[:MOST_NAMED]]
        more = [f"{len(got) - MOST_NAMED} more"] if len(got) > MOST_NAMED else []
        *first, last = named + more
        listed = f"{', '.join(first)} and {last}" if first else last
        before = "they were" if first else "it was"
        said = f"Your function changed {listed}, which should stay as {before}."
        return Reported(said) if isinstance(got[0], Reported) else said
    return ""


Found = tuple[str, str, str] | None


def _walk(expected: Any, got: Any, where: str, tolerance: Mapping) -> Found:
    if isinstance(expected, Tensor):
        return _compare_tensors(expected, got, where, tolerance)
    if isinstance(expected, Mapping):
        if not isinstance(got, Mapping) or set(got) != set(expected):
            keys = list(islice(got, SHORT)) if isinstance(got, Mapping) else got
            return where, _short(list(expected)), _short(keys)
        pairs = [(f"{where}.{key}".lstrip("."), expected[key], got[key]) for key in expected]
        return _first(pairs, tolerance)
    if isinstance(expected, (list, tuple)):
        if not isinstance(got, (list, tuple)):
            return where, _short(expected), _short(got)
        if len(got) != len(expected):
            if len(_short(expected)) == SHORT or len(_short(got)) == SHORT:  # cut: may look alike
                return where, _counted(expected), _counted(got)
            return where, _short(expected), _short(got)
        items = enumerate(zip(expected, got, strict=True))
        return _first([(f"{where}[{i}]", a, b) for i, (a, b) in items], tolerance)
    if isinstance(expected, float) and isinstance(got, (int, float)) and not isinstance(got, bool):
        rtol, atol = tolerance[torch.float32]
        agree = _close(float(expected), float(got), rtol, atol)
    else:
        agree = type(expected) is type(got) and expected == got
    return None if agree else (where, *_apart(expected, got))


def _counted(entries: list | tuple) -> str:
    number = len(entries)
    return f"a list of {number} entr{'y' if number == 1 else 'ies'}" if number else "an empty list"


def _first(pairs: list[tuple[str, Any, Any]], tolerance: Mapping) -> Found:
    for where, expected, got in pairs:
        if (found := _walk(expected, got, where, tolerance)) is not None:
            return found
    return None


def _compare_tensors(expected: Tensor, got: Any, where: str, tolerance: Mapping) -> Found:
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
        wrong = ~torch.isclose(got.double(), expected.double(), rtol, atol, equal_nan=True)
    if not wrong.any():
        return None
    index = tuple(wrong.nonzero()[0].tolist())
    place = f"{where}{list(index)}" if index else where
    return place, *_apart(expected[index].item(), got[index].item())


def _close(a: float, b: float, rtol: float, atol: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if math.isinf(a) or math.isinf(b):  # or else anything were close to inf
        return a == b
    return a == b or abs(a - b) <= atol + rtol * abs(a)


DIGITS = (5, 9, 17)
"""Digits of two floats in a message: as few as tell them apart."""


def _apart(expected: Any, got: Any) -> tuple[str, str]:
    """Both values in words: floats with as many digits as differ, texts with the blanks at ends."""
    if _has_blanks(expected) or _has_blanks(got):
        return _short(_quoted(expected)), _short(_quoted(got))
    for digits in DIGITS:
        texts = _short(expected, digits), _short(got, digits)
        if texts[0] != texts[1]:
            break
    return texts


def _short(value: Any, digits: int = DIGITS[0]) -> str:
    """A value in at most SHORT characters; of a long one no more is looked at than that shows."""
    text = _plainly(value, digits)
    return text if len(text) < SHORT else text[: SHORT - 1] + "…"


def _plainly(value: Any, digits: int = DIGITS[0]) -> str:
    if isinstance(value, float):
        return f"{value:z.{digits}g}"
    if isinstance(value, str):
        return value[:SHORT]
    if isinstance(value, (list, tuple)):
        return f"[{_joined(map(_quoted, value))}]"
    if isinstance(value, Mapping):
        return f"{{{_joined(f'{_quoted(key)}: {_quoted(value[key])}' for key in value)}}}"
    return f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else str(value)


def _joined(texts: Iterable[str]) -> str:
    """As many of the texts as fill a message."""
    found = ""
    for text in texts:
        found += f", {text}" if found else text
        if len(found) > SHORT:
            break
    return found


def _has_blanks(value: Any) -> bool:
    """Whether a text begins or ends with what nobody sees, or is empty."""
    return isinstance(value, str) and value != (value.strip() or None)


def _quoted(item: Any) -> str:
    return repr(item[:SHORT]) if isinstance(item, str) else _plainly(item)
