"""A misconception is named only where nothing else in the same answers denies it."""

import dataclasses
from pathlib import Path

import torch

from autograde import answers
from autograde.answers import answer_of
from autograde.compare import first_difference
from autograde.exercise import Exercise, Part, Wrong, kept_entries
from autograde.exercise import as_number as number
from autograde.referee import judge


def largest_and_sum(numbers):
    return {"largest": max(numbers), "total": sum(numbers)}


def last(numbers):
    return {"largest": numbers[-1], "total": sum(numbers)}


def mean(numbers):
    return {"largest": max(numbers), "total": sum(numbers) / len(numbers)}


def last_and_mean(numbers):
    return {"largest": numbers[-1], "total": sum(numbers) / len(numbers)}


def draw(source, part):
    """Three numbers; in `late` and `early` the last and the first are not the largest."""
    low, high = source.integer(2, 5), source.integer(20, 90)
    middle = source.integer(7, 15)
    return {"numbers": {"late": [middle, high, low], "early": [low, high, middle]}[part]}


def run(function, case, device):
    returned = function(case["numbers"])
    return kept_entries(returned, {"largest": (number, "it"), "total": (number, "the total")})


EXERCISE = Exercise(
    id="99z.toy", title="largest and total", source="ours", ledger=("N01",), minutes=1,
    difficulty=1, read=("N01",), hints=("a", "b", "c"), signature="largest_and_sum(numbers)",
    parts=(
        Part("late", "the last is the smallest", points=1),
        Part("early", "the first is the smallest", points=1),
    ),
    reference=lambda numbers: {"largest": max(numbers), "total": float(sum(numbers))},
    draw=draw, run=run,
    wrong=(
        Wrong("last", last, "That is the last one."),
        Wrong("mean", mean, "That is the mean."),
        Wrong("last-and-mean", last_and_mean, "Those are the last one and the mean."),
    ),
    right=(largest_and_sum,),
)  # fmt: skip


def verdict(function):
    return judge(EXERCISE, lambda case: answer_of(EXERCISE, function, case), seed=1, parts="all")


def named(function):
    return verdict(function).misconception


def without(name):
    """The exercise, whose bank lacks a wrong answer."""
    others = tuple(wrong for wrong in EXERCISE.wrong if wrong.name != name)
    return dataclasses.replace(EXERCISE, wrong=others)


def test_what_explains_everything_is_named():
    assert [named(f) for f in (last, mean, last_and_mean)] == ["last", "mean", "last-and-mean"]


def test_of_two_mistakes_at_once_the_one_that_is_certain_is_named():
    def last_and_none(numbers):
        return {"largest": numbers[-1], "total": -1.5}

    exercise = without("last-and-mean")
    found = judge(exercise, lambda c: answer_of(exercise, last_and_none, c), seed=1, parts="all")
    assert found.misconception == "last"


def test_what_calls_something_right_is_not_said_where_that_is_wrong():
    def last_and_none(numbers):
        return {"largest": numbers[-1], "total": -1.5}

    praised = [dataclasses.replace(EXERCISE.wrong[0], message="The total is right, but not this.")]
    exercise = dataclasses.replace(EXERCISE, wrong=(*praised, EXERCISE.wrong[1]))

    def said_of(function):
        found = judge(exercise, lambda c: answer_of(exercise, function, c), seed=1, parts="all")
        return found.misconception

    assert (said_of(last), said_of(last_and_none)) == ("last", "")


def test_no_name_for_a_field_that_comes_otherwise_in_another_part():
    """In `late` it is the last one; in `early` it is neither the last nor right."""

    def smallest(numbers):
        return {"largest": min(numbers), "total": sum(numbers)}

    found = verdict(smallest)
    assert not any(result.passed for result in found.parts) and found.misconception == ""


def test_no_name_that_a_field_that_came_right_denies():
    """`last-and-mean` is told from `last` by the total, which is right here."""
    exercise = without("last")
    found = judge(exercise, lambda c: answer_of(exercise, last, c), seed=1, parts="all")
    assert not found.passed and found.misconception == ""


STUDENTS = """
def largest_and_sum(numbers):
    return {"largest": max(numbers), "total": sum(numbers)}

def fails(numbers):
    return numbers["x"]
"""


def test_your_function_raised_is_said_of_the_students_own_code_alone(monkeypatch):
    def slips(function, case, device):
        run(function, case, device)
        return min([])

    exercise = dataclasses.replace(EXERCISE, run=slips)
    students = {}
    exec(compile(STUDENTS, "<cell>", "exec"), students)
    monkeypatch.setattr(answers, "HERE", str(Path(__file__).parents[2]))
    case = exercise.cases(exercise.parts[0], 1)[0]
    ours, theirs = (
        answer_of(exercise, students[name], case) for name in ("largest_and_sum", "fails")
    )
    assert ours.kind == "AnswerError" and "your own code raised nothing" in ours.text
    assert theirs.kind == "TypeError"


def test_two_numbers_that_differ_are_printed_with_the_digits_that_differ():
    a = torch.tensor([0.0598264], dtype=torch.float64)
    found = first_difference({"w": a}, {"w": a + 1e-7})
    assert found.expected != found.got
    assert first_difference({"x": 0.25}, {"x": 0.5}).expected == "0.25"
