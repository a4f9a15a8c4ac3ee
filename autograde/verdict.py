"""A verdict: points, and the reasons for them."""

from __future__ import annotations

import builtins
from dataclasses import dataclass

from autograde.answers import BLANK, Raised
from autograde.compare import Difference
from autograde.exercise import Part, Wrong
from autograde.reported import on_a_line, quoted
from autograde.words import OUR_OWN, UNJUDGED

MAX_KIND = 40
"""Letters of an exception's name in a table."""


@dataclass(frozen=True)
class PartResult:
    """The result of one part."""

    part: Part
    passed: bool
    difference: Difference | None = None
    """Where the first wrong answer differs."""
    raised: Raised | None = None
    """What the function raised instead of answering."""
    shows: Wrong | None = None
    """The known mistake that this part's answers show."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Points, and the reasons for them."""

    exercise_id: str
    seed: int
    points: float
    max_points: float
    parts: list[PartResult]

    @property
    def misconceptions(self) -> list[Wrong]:
        """The known mistakes that the answers show, each once; most often one or none."""
        shown = {result.shows.name: result.shows for result in self.parts if result.shows}
        return list(shown.values())

    @property
    def misconception(self) -> str:
        """Their names in one string, for tables; empty if none is recognised."""
        return ", ".join(wrong.name for wrong in self.misconceptions)

    @property
    def passed(self) -> bool:
        """Whether every part that was asked is right."""
        return all(part.passed for part in self.parts)

    @property
    def status(self) -> str:
        """`right`, `blank`, `raised ...`, `not judged`, a misconception's name, or `wrong`."""
        raised = [part.raised for part in self.parts if part.raised]
        if self.passed:
            return "right"
        if raised and all(item == BLANK for item in raised):
            return "blank"
        if raised and raised[0].kind == UNJUDGED:
            return "not judged"
        return self.misconception or (f"raised {named(raised[0].kind)}" if raised else "wrong")


def named(kind: str) -> str:
    """An exception's type in a table; in quotes where it may be a student's own, who named it."""
    known = kind in OUR_OWN or isinstance(getattr(builtins, kind, None), type)
    return kind if known else quoted(on_a_line(kind, MAX_KIND))
