"""An exercise's cases for one seed, and what our own functions answer to them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from autograde.answers import CPU, Raised, answer_of
from autograde.compare import CHANGED, Difference, first_difference
from autograde.exercise import Answer, Case, Exercise, Part


class Questions:
    """An exercise's cases from one seed, and what our own functions answer, each found once."""

    def __init__(self, exercise: Exercise, seed: int, device: Any) -> None:
        self.about = exercise, seed, str(device)
        self.right = Reference(exercise, exercise.reference, device)
        self.wrong = [(wrong, Oracle(exercise, wrong.function, device)) for wrong in exercise.wrong]
        self.drawn: dict[str, list[Case]] = {}

    def cases(self, part: Part) -> list[Case]:
        """The cases of a part, the same objects every time."""
        if part.key not in self.drawn:
            exercise, seed, _ = self.about
            self.drawn[part.key] = list(exercise.cases(part, seed))
        return self.drawn[part.key]


_asked_last: dict[str, Questions] = {}
"""By exercise: a hidden check follows the shown one, and a class is asked the same."""


def questions_of(exercise: Exercise, seed: int, device: Any) -> Questions:
    """Those of the exercise's last check where the seed was the same."""
    last = _asked_last.get(exercise.id)
    if last is None or last.about[0] is not exercise or last.about[1:] != (seed, str(device)):
        last = _asked_last[exercise.id] = Questions(exercise, seed, device)
    return last


class Oracle:
    """Answers of one of our own functions, computed once per case."""

    def __init__(self, exercise: Exercise, function: Callable[..., Any], device: Any) -> None:
        self.exercise = exercise
        self.answer = partial(answer_of, exercise, function, device=device, spare=True)
        self.known: dict[int, Answer | Raised] = {}

    def __call__(self, case: Case) -> Answer | Raised:
        if id(case) in self.known:
            return self.known[id(case)]
        with warnings.catch_warnings():  # about our own code: nobody else's to read
            warnings.simplefilter("ignore")
            answer = scored(self.exercise, case, self.answer(case))
        if not _lacks_memory(answer):  # which another submission may have taken
            self.known[id(case)] = answer
        return answer


def scored(exercise: Exercise, case: Case, answer: Answer | Raised) -> Answer | Raised:
    """An answer as the referee compares it."""
    as_it_came = exercise.scored is None or isinstance(answer, Raised)
    return answer if as_it_came else exercise.scored(answer, case)


def _lacks_memory(answer: Answer | Raised) -> bool:
    if not isinstance(answer, Raised):
        return False
    said = f"{answer.kind}: {answer.text}"
    return "MemoryError" in said or "allocate memory" in said


class Reference(Oracle):
    """The reference's answers; what it may change itself counts for nobody else."""

    def __call__(self, case: Case) -> Answer | Raised:
        answer = super().__call__(case)
        known = not isinstance(answer, Raised) and CHANGED in answer
        return {**answer, CHANGED: []} if known else answer


def difference_in(exercise: Exercise, part: Part, case: Case, answer: Answer) -> Difference | None:
    """Where an answer to one case of a part differs from the reference's, on the CPU."""
    right = Reference(exercise, exercise.reference, CPU)(case)
    return difference_from(exercise, part.fields, right, scored(exercise, case, answer), CPU)


def difference_from(
    exercise: Exercise, fields: tuple[str, ...], expected: Answer, answer: Answer, device: Any
) -> Difference | None:
    return first_difference(
        expected,
        answer,
        fields=fields,
        tolerance=exercise.tolerance,
        on_gpu=device.type == "cuda",
    )
