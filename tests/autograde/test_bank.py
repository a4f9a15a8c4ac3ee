"""Every exercise of the bank, present and future: right ones pass, wrong ones are recognised."""

import pytest
import torch

from autograde import bank, check
from autograde.check import WIDTH
from autograde.referee import answer_of

IDS = list(bank.catalogue())
SEEDS = range(20)


def functions(kind: str):
    return [
        pytest.param(id, item, id=f"{id}-{item.name if kind == 'wrong' else item.__name__}")
        for id in IDS
        for item in getattr(bank.load(id), kind)
    ]


@pytest.mark.parametrize("id", IDS)
def test_an_exercise_has_what_the_house_asks_for(id):
    exercise = bank.load(id)
    assert exercise.id == id
    assert len(exercise.wrong) >= 5 and len(exercise.right) >= 3
    assert len({wrong.message for wrong in exercise.wrong}) == len(exercise.wrong)
    assert len({wrong.name for wrong in exercise.wrong}) == len(exercise.wrong)
    assert len({part.key for part in exercise.parts}) == len(exercise.parts)
    assert exercise.minutes > 0 and exercise.points > 0 and exercise.source


@pytest.mark.parametrize("id", IDS)
def test_the_same_seed_draws_the_same_cases_and_another_seed_others(id):
    exercise = bank.load(id)
    for part in exercise.parts:
        first, again, other = (repr(exercise.cases(part, seed)) for seed in (1, 1, 2))
        assert first == again and first != other


@pytest.mark.parametrize("id", IDS)
def test_the_reference_answers_every_case(id, device):
    exercise = bank.load(id)
    for part in exercise.parts:
        for case in exercise.cases(part, seed=3):
            answer = answer_of(exercise, exercise.reference, case, device=device)
            assert isinstance(answer, dict), answer


@pytest.mark.parametrize("id,function", functions("right"))
def test_a_right_answer_passes_on_every_seed(id, function, device):
    for seed in SEEDS:
        result = check(id, function, parts="all", seed=seed, device=str(device))
        assert result.passed, f"seed {seed}\n{result.message}"
        assert result.points == bank.load(id).points


@pytest.mark.parametrize("id,wrong", functions("wrong"))
def test_a_wrong_answer_fails_with_its_own_message_on_every_seed(id, wrong, device):
    for seed in SEEDS:
        result = check(id, wrong.function, parts="all", seed=seed, device=str(device))
        assert not result.passed, f"seed {seed}: {wrong.name} was accepted"
        assert result.verdict.misconception == wrong.name, f"seed {seed}\n{result.message}"
        assert wrong.message.split()[0] in result.message
        assert result.points < bank.load(id).points


@pytest.mark.parametrize("id,wrong", functions("wrong"))
def test_messages_fit_nbgraders_width_and_teach_a_next_step(id, wrong):
    message = check(id, wrong.function, parts="all", seed=0).message
    assert max(map(len, message.splitlines())) <= WIDTH
    assert "→" in message


@pytest.mark.parametrize("id", IDS)
def test_the_reference_itself_is_refused_as_an_answer(id):
    exercise = bank.load(id)

    def answer(*args):
        return exercise.reference(*args)

    result = check(id, answer, seed=0)
    assert result.points == 0
    assert "asks you to write" in result.message


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("returned", [None, "3", [], {}, torch.zeros(0), float("nan"), object()])
def test_nonsense_is_answered_with_a_reason(id, returned):
    result = check(id, lambda *args: returned, seed=0)
    assert not result.passed
    assert "✘" in result.message


CONSTANTS = (None, 0, 0.0, 1.0, True, "", [], {}, (0.0, 0.0), torch.zeros(()), torch.zeros(3))


@pytest.mark.parametrize("id", IDS)
def test_an_answer_that_looks_at_nothing_earns_nothing(id):
    for returned in CONSTANTS:
        result = check(id, lambda *args, value=returned: value, parts="all", seed=5)
        assert result.points == 0, f"{returned!r} earned {result.points}\n{result.message}"


@pytest.mark.parametrize("id", IDS)
def test_a_blank_answer_is_called_blank(id):
    def blank(*args):
        raise NotImplementedError()

    result = check(id, blank)
    assert result.verdict.status == "blank" and result.points == 0
    assert "Not answered yet" in result.message
