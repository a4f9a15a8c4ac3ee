"""Try a whole bank on some seeds, and no function twice on the same case."""

import dataclasses
import functools
from unittest.mock import patch

import torch

from autograde import bank, questions
from autograde.answers import answer_of
from autograde.exercise import Exercise
from autograde.referee import judge
from autograde.verdict import Verdict

CPU = torch.device("cpu")

DRAWN: dict[tuple, list] = {}
"""Cases by exercise, part and seed: some are drawn a hundred times until they tell rules apart."""
ANSWERED: dict[tuple, tuple] = {}
"""Cases and answers by case, function and device: the bank's wrong functions are asked for every
answer. The case stays, or a later one could have its id."""


def forget() -> None:
    """Begin again: cases and answers take room."""
    DRAWN.clear()
    ANSWERED.clear()


@functools.cache
def remembered(id: str) -> Exercise:
    """An exercise of the bank that draws the cases of a seed once."""
    return remembering(bank.load(id))


class Remembering(Exercise):
    """An exercise that draws the cases of a seed once."""

    def cases(self, part, seed, *, slack=None):
        key = self.id, part, seed, slack
        if key not in DRAWN:
            DRAWN[key] = super().cases(part, seed, slack=slack)
        return DRAWN[key]


def remembering(exercise: Exercise) -> Exercise:
    """The exercise, drawing the cases of a seed once."""
    fields = {field.name: getattr(exercise, field.name) for field in dataclasses.fields(exercise)}
    return Remembering(**fields)


def answer_once(exercise: Exercise, function, case, *, device=CPU, spare=True):
    """`answer_of`, which knows an answer from then on; each call hands over a copy of the case."""
    key = exercise.id, id(case), function, device
    if key not in ANSWERED:
        ANSWERED[key] = case, answer_of(exercise, function, case, device=device, spare=spare)
    return ANSWERED[key][1]


def put_to(
    exercise: Exercise, function, seed: int, device: torch.device = CPU, *, parts="all"
) -> Verdict:
    """The verdict on a function; what may not be called is not looked at."""

    def ask(case):
        return answer_once(exercise, function, case, device=device)

    with patch.object(questions, "answer_of", answer_once):
        return judge(exercise, ask, seed=seed, parts=parts, device=device)
