"""The verdict: fresh cases, the reference's answers, and a comparison with the student's.

The referee never runs student code. It draws the cases, hands them out as plain data, takes plain
answers back, computes the reference's answers itself, and compares. On a laptop it lives in the
student's process; while a class is graded it is another process, and whatever the student's process
claims about its own score is not believed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from autograde.answers import CPU, Raised, usual_torch
from autograde.exercise import UNFIT, Answer, Case, Exercise, Part
from autograde.questions import Oracle, difference_from, questions_of, scored
from autograde.recogniser import recognised
from autograde.verdict import PartResult, Verdict

Ask = Callable[[Case], "Answer | Raised"]
PartsAsked = Literal["shown", "hidden", "all"]


def judge(
    exercise: Exercise,
    ask: Ask,
    *,
    seed: int,
    parts: PartsAsked = "shown",
    device: Any = CPU,
) -> Verdict:
    """Try the exercise's cases on a student's answer and return the verdict.

    Args:
        exercise: From the bank.
        ask: Passes a case to the student's function, wherever it runs, and returns its answer.
        seed: Seed of the cases; recorded, so that a regrade repeats exactly.
        parts: Which parts count: those students see, the hidden ones, or all. Hidden ones are
            asked with the shown ones, by which a misconception is recognised.
        device: Where the reference computes; the answers must come from the same kind.
    """
    with usual_torch(device):
        return _judge(exercise, ask, seed, parts, device)


def _judge(exercise: Exercise, ask: Ask, seed: int, parts: PartsAsked, device: Any) -> Verdict:
    to_ask = [part for part in exercise.parts if parts != "shown" or not part.hidden]
    questions = questions_of(exercise, seed, device)
    asked = {part.key: questions.cases(part) for part in to_ask}
    answers = {
        part.key: [scored(exercise, case, ask(case)) for case in asked[part.key]] for part in to_ask
    }
    right = questions.right
    results = [_judge_part(exercise, part, asked, answers, right, device) for part in to_ask]
    results = recognised(exercise, results, asked, answers, questions, device)
    results = [result for result in results if parts != "hidden" or result.part.hidden]
    return Verdict(
        exercise_id=exercise.id,
        seed=seed,
        points=sum(result.part.points for result in results if result.passed),
        max_points=sum(result.part.points for result in results),
        parts=results,
    )


def _judge_part(
    exercise: Exercise,
    part: Part,
    asked: dict[str, list[Case]],
    answers: dict[str, list[Any]],
    right: Oracle,
    device: Any,
) -> PartResult:
    for case, answer in zip(asked[part.key], answers[part.key], strict=True):
        if isinstance(answer, Raised):
            return PartResult(part, False, raised=answer)
        expected = right(case)
        if not isinstance(expected, Raised) and (unfit := _unfit(expected)):
            expected = Raised("AnswerError", unfit)
        if isinstance(expected, Raised):
            raise RefereeFault(
                f"The reference of {exercise.id} raised {expected.kind} on a case of part "
                f"'{part.key}': {expected.text}"
            )
        if difference := difference_from(exercise, part.fields, expected, answer, device):
            return PartResult(part, False, difference)
    return PartResult(part, True)


class RefereeFault(Exception):
    """The referee itself failed: no grade may change because of it."""


def _unfit(answer: Answer) -> str:
    """What is wrong with the kind of a field; empty if every field is fit."""
    texts = (str(v[UNFIT]) for v in answer.values() if isinstance(v, dict) and UNFIT in v)
    return next(texts, "")
