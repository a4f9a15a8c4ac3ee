"""Whose eyes worked tables and claims are for: a reader sees all, a student guesses first.

A reader's table shows every digit, the verdict on the lecture's value and where it comes from. A
student's is short: four digits, provenance folded away, and the numbers behind a curtain until a
guess was made. What is a guess this module need not know: `student_view` is handed two functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StudentView:
    """What a student's table asks before it is shown, and says under it."""

    curtain: Callable[[Any], str]
    """Takes the worked number. What to guess first; empty: show the numbers."""
    afterword: Callable[[Any], str]
    """Takes it too. Said under the shown numbers, "You guessed 0.9, it is 0.8836."; or empty."""


_view: StudentView | None = None


def student_view(view: StudentView | None) -> None:
    """From here on show worked tables to a student; None: to a reader, as at the start."""
    global _view
    _view = view


def view() -> StudentView | None:
    """The student's view, or None for a reader's."""
    return _view
