"""The student who works on this notebook: the name is typed once at the top; numbers depend on it.

student("ada")
"""

from __future__ import annotations

import unicodedata
from typing import Any

from autograde.kit import record
from autograde.kit.curtain import hang
from autograde.kit.saying import say
from course.plots.theme import follow_theme

MAX_NAME = 200
"""Letters of a name that count; sorting accents takes a time that grows with their square."""
_name = ""


class NoNameError(ValueError):
    """A question with individual numbers was asked before the name was typed."""


def student(name: str = "") -> None:
    """Say who you are, with the name or id under which you hand in.

    From here on, worked tables wait for a guess, and figures follow the theme. An empty name is
    fine until a question has individual numbers.

    Args:
        name: As your instructor knows you; case and accents do not count.

    Raises:
        TypeError: The name is not a text.
    """
    global _name
    if not isinstance(name, str):
        raise TypeError(f"student({name!r}): your name must be in quotes: student('ada').")
    name = " ".join(name.split())
    remembered = _remembered()
    if name and plain_name(name) != plain_name(remembered):
        record.here().add("student", name=name)
    _name = name or remembered
    if not record.is_graded():
        say(_greeting(name))
        hang()
        if record.in_notebook():
            follow_theme()


def _greeting(name: str) -> str:
    if name:
        return f"{name}: questions with individual numbers draw them from this name."
    if _name:
        return f"{_name}: the name you typed earlier, from {record.FILE}."
    return 'No name yet. Type it between the quotes, as in student("ada"), and run this cell again.'


def current() -> str:
    """The name typed, or the one remembered from another notebook; empty if there is none."""
    return _name or _remembered()


def required() -> str:
    """The name typed.

    Raises:
        NoNameError: There is none yet.
    """
    if not (name := current()):
        raise NoNameError(
            "The numbers of this question are drawn from your name, but you have not typed it yet. "
            'Go to the top of the notebook, put your own name into student("ada"), run that cell, '
            "then come back."
        )
    return name


def plain_name(name: str) -> str:
    """A name without case, accents and doubled blanks: `Zoë ` and `zoe` are one student."""
    letters = unicodedata.normalize("NFKD", " ".join(name[:MAX_NAME].split()).casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def _remembered() -> str:
    named: list[dict[str, Any]] = record.here().events("student")
    return named[-1]["name"] if named else ""
