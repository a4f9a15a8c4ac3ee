"""Let a cell that uses a student's own function wait until the function is written.

    if ready(collate):
        inputs, targets, mask = collate(examples, pad_value=0)

So a notebook runs from top to bottom with exercises left open, down to its scorecard.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from autograde.kit.saying import say

STUB = "NotImplementedError"
"""What the released notebook's cell raises where an answer is to be written."""


def ready(*answers: Callable[..., Any]) -> bool:
    """Whether these functions and classes are written; prints which are not.

    Args:
        answers: What exercises asked for, as the cells above define it.
    """
    missing = [answer.__name__ for answer in answers if is_stub(answer)]
    if not missing:
        return True
    it = "it" if len(missing) == 1 else "them"
    say(
        f"This cell needs your {' and '.join(missing)}: write {it} in the exercise above, then "
        "run this cell again."
    )
    return False


def is_stub(answer: Callable[..., Any]) -> bool:
    """Whether a function, or a method of a class, is still as it was released: it only raises."""
    return any(STUB in code.co_names and not _returns(code) for code in _codes(answer))


def _returns(code: CodeType) -> bool:
    return any(step.opname.startswith("RETURN") for step in dis.get_instructions(code))


def _codes(answer: Callable[..., Any]) -> Iterator[CodeType]:
    functions = vars(answer).values() if isinstance(answer, type) else [answer]
    for function in functions:
        if hasattr(function, "__code__"):
            yield function.__code__
