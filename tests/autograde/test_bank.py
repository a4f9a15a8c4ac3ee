"""Every exercise of the bank, present and future: right ones pass, wrong ones are recognised."""

import builtins
import dataclasses
import inspect
import re
import sys

import pytest
import torch

from autograde import bank, check, plain
from autograde.answers import BLANK, answer_of
from autograde.exercise import KINDS, Exercise
from autograde.kinds.fix import variant
from autograde.lines import WIDTH
from autograde.words import message
from tests.autograde.remembering import put_to, remembered
from tests.sampling import THOROUGH, sample

IDS = list(bank.asks_for_code())
ERRORS = {name for name in vars(builtins) if name.endswith("Error")}
SEEDS = range(3 if THOROUGH else 1)
"""For right answers, every third of them. Every fifth wrong one is tried, on the first seed; all
are, on all seeds, in `make bench TARGET=checks`."""
SLOW = (
    "02a.dropout",
    "03a.training-script",
    "03b.early-freeze",
    "03c.loaders",
    "03g.best-file",
    "03g.load",
    "03g.noise",
    "03g.resume",
    "03h.pooling",
    "03h.probe",
    "05.run",
    "05.setup",
    "05.whole",
)
"""An answer takes 0.2 to 3 s to judge. One wrong one is tried, and one right one;
none on the second device, where it takes 20 to 70 s; all in `make thorough` and in the bench."""
ON_SECOND = sample(IDS, 8)
"""Exercises tried on the second device, which is slow, with one right and one wrong answer each:
what a device breaks, any one shows. `make thorough` tries all."""


def tried_on(exercise: Exercise, device: torch.device) -> Exercise:
    """The exercise with the answers that are put to the test on a device."""
    if THOROUGH or device.type in ("cpu", "cuda"):
        return exercise
    return dataclasses.replace(exercise, wrong=exercise.wrong[:1], right=exercise.right[:1])


def skip_where_slow(id: str, device: torch.device) -> None:
    if device.type not in ("cpu", "cuda") and not THOROUGH and (id in SLOW or id not in ON_SECOND):
        pytest.skip("make thorough tries it")


@pytest.mark.parametrize("id", IDS)
def test_an_exercise_has_what_the_house_asks_for(id):
    exercise = bank.load(id)
    assert exercise.id == id
    assert len(exercise.wrong) >= 5 and len(exercise.right) >= 3
    messages = [wrong.message for wrong in exercise.wrong if wrong.message]
    assert len(messages) >= 5 and len(set(messages)) == len(messages)
    assert len({wrong.function for wrong in exercise.wrong}) == len(exercise.wrong)
    assert len({part.key for part in exercise.parts}) == len(exercise.parts)
    assert exercise.minutes > 0 and exercise.points > 0 and exercise.source
    assert exercise.kind in KINDS and exercise.difficulty in (1, 2, 3) and exercise.read
    assert len(set(exercise.hints)) == 3 and all(exercise.ledger)
    assert not {wrong.message for wrong in exercise.wrong} & set(exercise.hints)
    module = sys.modules[exercise.run.__module__]
    assert not [name for name, value in vars(module).items() if isinstance(value, torch.Tensor)], (
        "a tensor made at import lies where a notebook's default device says"
    )


@pytest.mark.parametrize("id", IDS)
def test_the_same_seed_draws_the_same_cases_and_another_seed_others(id):
    exercise = bank.load(id)
    for part in exercise.parts:
        first, again, other = (repr(exercise.cases(part, seed)) for seed in (1, 1, 2))
        assert first == again and first != other


@pytest.mark.parametrize("id", IDS)
def test_the_reference_answers_every_case(id, device):
    skip_where_slow(id, device)
    exercise = bank.load(id)
    for part in exercise.parts:
        for case in exercise.cases(part, seed=3):
            answer = answer_of(exercise, exercise.reference, case, device=device)
            assert isinstance(answer, dict), answer
            assert plain.to_bytes(answer), "it must cross from a student's process"


@pytest.mark.parametrize("id", IDS)
def test_right_answers_pass_and_wrong_ones_fail_with_their_own_message(id, device):
    skip_where_slow(id, device)
    exercise = tried_on(remembered(id), device)
    known = {other.name for other in exercise.wrong if other.message}
    right, wrongs = sample(exercise.right, 4), sample(exercise.wrong, 10)
    if id in SLOW:
        right, wrongs = sample(right, len(right)), sample(exercise.wrong, 40)
    for seed in SEEDS:
        for function in right:
            verdict = put_to(exercise, function, seed, device)
            assert verdict.passed, f"seed {seed}\n{message(verdict, exercise)}"
            assert verdict.points == exercise.points
        for wrong in wrongs if THOROUGH or seed == SEEDS[0] else ():
            verdict = put_to(exercise, wrong.function, seed, device)
            text = message(verdict, exercise)
            assert not verdict.passed, f"seed {seed}: {wrong.name} was accepted"
            assert verdict.points < exercise.points
            assert verdict.misconception == (wrong.name if wrong.name in known else ""), text
            assert max(map(len, text.splitlines())) <= WIDTH and "→" in text


@pytest.mark.parametrize("id", IDS)
def test_the_reference_itself_is_refused_as_an_answer(id):
    exercise = bank.load(id)

    def answer(*args):
        return exercise.reference(*args)

    result = check(id, answer, seed=0)
    assert result.points == 0
    assert "asks you to write" in result.message and "Own" not in result.message


NONSENSE = (None, "3", [], {}, torch.zeros(0), float("nan"), object())
CONSTANTS = (None, 0, 0.0, 1.0, True, "", [], {}, (0.0, 0.0), torch.zeros(()), torch.zeros(3))


@pytest.mark.parametrize("id", IDS)
def test_an_answer_that_looks_at_nothing_earns_nothing_and_is_told_why(id):
    exercise = remembered(id)
    values = (*NONSENSE, *CONSTANTS)
    if not THOROUGH:  # a sixth of them, another sixth for the next exercise
        values = values[IDS.index(id) % 6 :: 12 if id in SLOW else 6]
    for returned in values:
        verdict = put_to(exercise, lambda *args, value=returned: value, seed=0)
        text = message(verdict, exercise)
        assert verdict.points == 0 and "✘" in text, f"{returned!r} earned {verdict.points}\n{text}"


@pytest.mark.parametrize("id", IDS)
def test_what_it_was_handed_is_no_answer(id):
    exercise = remembered(id)
    for position in sample(range(len(exercise.arguments)), 9 if id in SLOW else 1):
        verdict = put_to(exercise, lambda *args, at=position: args[at], seed=0)
        assert verdict.points == 0, message(verdict, exercise)


@pytest.mark.parametrize("id", IDS)
def test_an_answer_that_only_raises_what_is_asked_for_earns_nothing(id):
    exercise = remembered(id)
    source = inspect.getsource(sys.modules[exercise.run.__module__])
    named = {getattr(builtins, name) for name in re.findall(r"\w+Error", source) if name in ERRORS}
    kinds = sorted(named - {NotImplementedError}, key=lambda kind: kind.__name__)
    for kind in kinds if THOROUGH else kinds[:2]:

        def refuses(*args, kind=kind):
            raise kind("refused")

        verdict = put_to(exercise, refuses, seed=0)
        assert verdict.points == 0, f"{kind.__name__}: {message(verdict, exercise)}"


@pytest.mark.parametrize("id", IDS)
def test_a_blank_answer_is_called_blank(id):
    def blank(*args):
        raise NotImplementedError()

    result = check(id, blank)
    assert result.verdict.status == "blank" and result.points == 0
    assert "Not answered yet" in result.message


FIXES = [id for id in IDS if bank.load(id).kind == "fix"]


@pytest.mark.parametrize("id", FIXES)
def test_a_loop_as_it_was_given_is_called_blank_though_it_raises(id):
    """Before it is run: where it raises, it would be taken for a misconception that does."""
    exercise = bank.load(id)
    module = sys.modules[exercise.run.__module__]
    given = variant(module.GIVEN, module.__file__)
    case = exercise.cases(exercise.parts[0], seed=1)[0]
    assert answer_of(exercise, given, case) == BLANK
