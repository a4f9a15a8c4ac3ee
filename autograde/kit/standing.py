"""A student's results, read from the record: by exercise, by notebook, for the whole course."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autograde import bank
from autograde.kit import record
from autograde.kit.chapters import Question, questions
from autograde.kit.guess import Standing, is_close, standing
from autograde.kit.outline import Outline, outlines

MANY_HINTS = 2
"""So many hints, and an exercise is worth a second look."""


@dataclass(frozen=True)
class ExerciseStanding:
    """One exercise: the last check that was not blank, and everything before it."""

    id: str
    title: str
    passed: int
    """Parts passed at the last check."""
    parts: int
    """Parts that a student's check shows."""
    points: float
    max_points: float
    hints: int
    checks: int
    met: tuple[str, ...]
    """Misconceptions that any check showed."""
    still: tuple[str, ...]
    """Those that the last check showed."""

    @property
    def done(self) -> bool:
        """Whether every part shown is passed."""
        return self.passed == self.parts

    @property
    def overcome(self) -> tuple[str, ...]:
        """Misconceptions that occurred earlier, but not in the last check."""
        return tuple(name for name in self.met if name not in self.still)


@dataclass(frozen=True)
class NotebookStanding:
    """One notebook."""

    outline: Outline
    exercises: tuple[ExerciseStanding, ...]
    guesses: tuple[tuple[Question, Standing], ...]

    @property
    def parts(self) -> tuple[int, int]:
        """Parts passed, parts shown."""
        return sum(e.passed for e in self.exercises), sum(e.parts for e in self.exercises)

    @property
    def points(self) -> tuple[float, float]:
        """Points shown, of how many."""
        return sum(e.points for e in self.exercises), sum(e.max_points for e in self.exercises)

    @cached_property
    def answered(self) -> tuple[tuple[Question, Standing], ...]:
        """Guesses made in time whose answer was shown."""
        pairs = self.guesses
        return tuple((q, s) for q, s in pairs if s.value is not None and s.answer is not None)

    @property
    def close(self) -> int:
        """How many of these were close."""
        return sum(is_close(asked, s.value, s.answer) for asked, s in self.answered)

    @property
    def revisit(self) -> list[str]:
        """What is worth a second look, a sentence each."""
        return [*self._exercises_to_revisit(), *self._guesses_to_revisit()]

    def _exercises_to_revisit(self) -> Iterable[str]:
        for exercise in self.exercises:
            if exercise.checks and not exercise.done:
                missing = exercise.parts - exercise.passed
                yield f"{exercise.id}: {_of(missing, 'part')} to go"
            elif exercise.done and exercise.hints >= MANY_HINTS:
                yield f"{exercise.id}: solved with {exercise.hints} hints; try again without?"

    def _guesses_to_revisit(self) -> Iterable[str]:
        for asked, state in self.answered:
            if not is_close(asked, state.value, state.answer):
                yield f"{asked.id}: your guess was off"

    @property
    def next(self) -> ExerciseStanding | None:
        """The first exercise that is not done."""
        return next((exercise for exercise in self.exercises if not exercise.done), None)


def _of(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def notebook_standing(outline: Outline) -> NotebookStanding:
    """The student's results in one notebook."""
    events = record.here().events()
    known = bank.catalogue()
    asked = questions()
    return NotebookStanding(
        outline,
        tuple(_exercise_standing(id, events) for id in outline.exercises if id in known),
        tuple((asked[id], standing(id)) for id in outline.guesses if id in asked),
    )


def all_standings() -> list[NotebookStanding]:
    """The student's results in every notebook, in the order of the course."""
    return [notebook_standing(outline) for outline in outlines().values()]


def _exercise_standing(id: str, events: list[dict[str, Any]]) -> ExerciseStanding:
    exercise = bank.load(id)
    parts = {part.key: part.points for part in exercise.parts if not part.hidden}
    checks = [event for event in events if event["do"] == "check" and event["id"] == id]
    last = checks[-1] if checks else {"parts": {}, "shows": []}
    passed = [key for key in parts if last["parts"].get(key) is True]
    met = [name for event in checks for name in event["shows"] if isinstance(name, str)]
    hints = [e["number"] for e in events if e["do"] == "hint" and e["id"] == id]
    return ExerciseStanding(
        id=id,
        title=exercise.title,
        passed=len(passed),
        parts=len(parts),
        points=sum(parts[key] for key in passed),
        max_points=sum(parts.values()),
        hints=max(hints, default=0),
        checks=len(checks),
        met=tuple(dict.fromkeys(met)),
        still=tuple(last["shows"]),
    )
