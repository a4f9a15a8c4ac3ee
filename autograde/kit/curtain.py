"""Worked tables in a student's notebook stay hidden until the guess, and then say how it went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autograde.kit.chapters import Question, questions
from autograde.kit.guess import answered, chapter_of, met, plain_value, standing

if TYPE_CHECKING:
    from course.worked.step import Worked


def hang() -> None:
    """From here on, hide worked tables from a student until the guess."""
    from course.view import StudentView, student_view

    met.clear()
    student_view(StudentView(curtain=curtain, afterword=afterword))


def curtain(worked: Worked) -> str:
    """What to guess before the numbers are shown; empty once every guess is made or answered."""
    waiting = [asked for asked in _asked_for(worked) if _is_open(asked)]
    if not waiting:
        return ""
    return "Guess first: " + " ".join(
        f"{asked.question} Then run the cell with guess('{asked.id}', ...) and this one again. To "
        f"look without guessing: guess('{asked.id}', 'look')."
        for asked in waiting
    )


def afterword(worked: Worked) -> str:
    """How the guess went, if a step of the table is its answer."""
    steps = {step.what: step.computed for step in worked.steps}
    return " ".join(
        answered(asked, plain_value(asked, steps[asked.step]))
        for asked in _asked_for(worked)
        if asked.step in steps and not worked.lecture_inputs
    )


def _asked_for(worked: Worked) -> list[Question]:
    """Guesses of the notebook that is open; of all notebooks until one of its guesses was met."""
    asked = [asked for asked in questions().values() if asked.worked == worked.entry.id]
    return [one for one in asked if not met or chapter_of(one.id) in met]


def _is_open(asked: Question) -> bool:
    state = standing(asked.id)
    return state.latest is None and state.answer is None and not state.looked
