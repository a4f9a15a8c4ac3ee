"""Write: a text that a person grades with a rubric; facts in it may be checked at once.

    EXERCISE = Write(
        id="03b.postmortem", ..., question="Write the post-mortem of ...",
        text=Reason(points=3, ask="Five sentences: ...", rubric=((1, "..."), ...), solution="..."),
        facts=(Fact("rung", "the rung that caught it", 1, at_its_rung),),
    )

A fact's check gets all facts as the student wrote them, and says what is wrong, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autograde.exercise import AnswerError, Part
from autograde.kinds.value import UNSET, Reason, Said, ValueExercise, brief, is_blank, why_unread
from autograde.kit.question import Question
from autograde.reported import on_a_line, unmarked
from autograde.verdict import PartResult, Verdict


@dataclass(frozen=True)
class Fact:
    """Something in a text that can be checked without a person."""

    key: str
    title: str
    """Its name in the student's words, e.g. `the rung that caught it, 1 to 7`."""
    points: float
    wrong: Callable[[Mapping[str, Any]], str]
    """From all facts, by key: what is wrong with this one, or an empty text."""


@dataclass(frozen=True, kw_only=True)
class Write(ValueExercise):
    """A text with a rubric, and perhaps facts."""

    kind: str = "write"
    text: Reason
    """What is written, graded by hand."""
    facts: tuple[Fact, ...] = ()
    example: Mapping[str, Any] = field(default_factory=dict)
    """Facts that are right, for the solution."""
    parts: tuple[Part, ...] = field(default=(), init=False)
    written: str = field(default="text", init=False)

    def __post_init__(self) -> None:
        parts = tuple(Part(fact.key, fact.title, fact.points) for fact in self.facts)
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "reason", self.text)

    def right_value(self, student: str) -> dict[str, Any]:
        """The solution's facts."""
        return dict(self.example)

    def blank(self) -> str:
        """A dict of Nones to be filled in."""
        return "{" + ", ".join(f'"{fact.key}": None' for fact in self.facts) + "}"

    def shown_to(self, student: str) -> Question:
        """The question and the facts asked for."""
        return Question(
            title=f"{self.id} · {self.title}",
            text=self.question,
            lines=tuple((fact.key, fact.title) for fact in self.facts),
            answer=f"Answer: `{self.name} = {self.blank().replace('None', '...')}`"
            if self.facts
            else "Answer in the cell below; it is graded by hand.",
            values={fact.key: fact.title for fact in self.facts},
        )

    def readable(self, value: Any) -> Any:
        """Each fact is judged by itself, also where another cannot be read."""
        return value

    def parse(self, value: Any, student: str) -> dict[str, Any]:
        """The facts by key."""
        keys = [fact.key for fact in self.facts]
        if not isinstance(value, dict):
            raise AnswerError(f"{brief(value)!r} should be a dictionary with {', '.join(keys)}.")
        if unknown := [key for key in value if key not in keys]:
            raise AnswerError(
                f"'{brief(unknown[0])}' is not one of the facts needed: {', '.join(keys)}."
            )
        return {key: value.get(key) for key in keys}

    def judge_parts(self, answer: dict[str, Any], student: str) -> list[PartResult]:
        """Each fact by its own check."""
        results: list[PartResult] = []
        read = {key: None if why_unread(item) else unmarked(item) for key, item in answer.items()}
        for fact, part in zip(self.facts, self.parts, strict=True):
            if is_blank(answer[fact.key]):
                said = UNSET
            elif unread := why_unread(answer[fact.key]):
                said = f"'{fact.key}' {unread}"
            else:
                said = on_a_line(fact.wrong(read))
            results.append(Said(part, not said, reason=said))
        return results

    def _says_what_next(self, verdict: Verdict) -> bool:
        """Each refused fact comes with its own reason."""
        return False
