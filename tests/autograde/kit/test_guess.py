"""Guesses: kept before the answer, compared with it, refused when of a wrong kind."""

import re

import numpy
import pytest
import torch

from autograde import guess, reveal
from autograde.kit import outline, record
from autograde.kit.chapters import Question, chapters, questions
from autograde.kit.guess import GuessError, how_close, is_close, standing
from course.catalogue import UnknownIdError
from course.worked import registry


def said(capsys) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_a_guess_is_kept_and_told_next_to_the_answer(kept, capsys):
    guess("03a.first-loss", 2.3)
    assert said(capsys) == "Guess recorded: 2.3 nats."
    reveal("03a.first-loss", torch.tensor(2.31))
    assert said(capsys) == "You guessed 2.3 nats, it is 2.31 nats: close."


@pytest.mark.parametrize(
    "value,answer,words",
    [
        (23, 2.3, "10 times too large."),
        (2.8, 2.3, "22% too large."),
        (0.1, 2.3, "23 times too small."),
        (2.3, 2.3, "right."),
        (-1, 2.3, "it is 2.3 nats."),
    ],
)
def test_a_wrong_guess_hears_how_wrong(kept, capsys, value, answer, words):
    guess("03a.first-loss", value)
    reveal("03a.first-loss", answer)
    assert said(capsys).endswith(words)


@pytest.mark.parametrize("value", [10, "10%", " 10 % ", 0.1, 10.0])
def test_a_fraction_may_be_guessed_in_per_cent(kept, capsys, value):
    guess("03b.baseline", value)
    words = "0.1, as a fraction." if value != 0.1 else "0.1."
    assert said(capsys) == f"Guess recorded: {words}"
    reveal("03b.baseline", 0.1003)
    assert said(capsys) == "You guessed 0.1, it is 0.1003: close."
    assert is_close(questions()["03b.baseline"], standing("03b.baseline").value, 0.1003)


def test_a_percentage_may_be_guessed_with_its_sign(kept):
    guess("03d.bf16-weights", "39 %")
    assert standing("03d.bf16-weights").value == 39


@pytest.mark.parametrize("value", ["ten", "10", "%", "10 % of it", "nan%"])
def test_a_text_without_a_percentage_is_not_a_fraction(kept, value):
    with pytest.raises(GuessError, match="number"):
        guess("03b.baseline", value)


def test_questions_from_0_to_1_take_per_cent():
    for asked in questions().values():
        if asked.kind == "number" and re.search(r"fraction|from 0 to 1", asked.question):
            assert asked.fraction, asked.id


@pytest.mark.parametrize(
    "value,answer,words",
    [(1.0, 1.5e-5, "67,000 times too large."), (0.01, 1.0, "100 times too small."),
     (1.0, 1e-9, "more than a million times too large.")],
)  # fmt: skip
def test_a_large_factor_is_said_in_full(kept, capsys, value, answer, words):
    guess("03d.early-clip", value)
    reveal("03d.early-clip", answer)
    assert said(capsys).endswith(words)


def test_a_notebook_shows_a_refused_guess_without_the_code_that_led_to_it(kept):
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shell.run_cell("from autograde import guess")
    with pytest.MonkeyPatch.context() as patch:
        shown = []
        patch.setattr(shell, "_showtraceback", lambda kind, value, lines: shown.extend(lines))
        shell.run_cell('guess("03b.rate", "fast")')
    assert shown == [shown[0]] and shown[0].startswith("GuessError: 'fast': this guess should be")


def test_without_a_guess_the_question_is_asked_and_the_answer_still_shown(kept, capsys):
    guess("03b.plateau", ...)
    assert "a: the learning rate is too small b: no step is made" in said(capsys)
    reveal("03b.plateau", "loss")
    assert said(capsys) == 'It is "the loss cannot fall further". (No guess was made.)'


@pytest.mark.parametrize("choice", ["c", "C", "loss", " loss "])
def test_a_choice_is_taken_by_letter_or_key(kept, capsys, choice):
    guess("03b.plateau", choice)
    reveal("03b.plateau", "loss")
    assert said(capsys).endswith('further": right.')


def test_the_guess_before_the_answer_counts_and_a_later_one_is_told_apart(kept, capsys):
    guess("03a.first-loss", 1.0)
    guess("03a.first-loss", 2.0)
    reveal("03a.first-loss", 2.31)
    guess("03a.first-loss", 2.31)
    assert "the last guess before that counts: 2 nats" in said(capsys)
    state = standing("03a.first-loss")
    assert (state.value, state.latest, state.answer) == (2.0, 2.31, 2.31)


def test_a_first_guess_after_the_answer_is_called_that(kept, capsys):
    reveal("03a.first-loss", 2.31)
    guess("03a.first-loss", 2.3)
    assert "the last guess before that counts: none" in said(capsys)
    reveal("03a.first-loss", 2.31)
    assert "You guessed 2.3 nats after seeing the answer" in said(capsys)


def test_a_cell_run_twice_is_one_event(kept):
    for _ in range(3):
        guess("03a.first-loss", 2.3)
        reveal("03a.first-loss", 2.31)
    assert [event["do"] for event in kept.events()] == ["guess", "reveal"]


@pytest.mark.parametrize(
    "id,value,message",
    [
        ("03a.first-loss", "big", r"'big': this guess should be a number \(nats\), e.g. guess\("),
        ("03a.first-loss", True, "this guess should be a number"),
        ("03a.first-loss", [2.3], "this guess should be a number"),
        ("03a.first-loss", torch.ones(2), "this guess should be a number"),
        ("03a.first-loss", float("nan"), "finite number"),
        ("03a.first-loss", {}, "this guess should be a number"),
        ("03a.batches", 23, r"a list of numbers, e.g. guess\('03a.batches', \[1, 2\]\)"),
        ("03a.batches", [], "a list of numbers"),
        ("03a.batches", "ab", "a list of numbers"),
        ("03a.batches", [1, "b"], "this guess should be a number"),
        ("03b.plateau", "z", "'z' is not one of the options: 'a' or 'rate'"),
        ("03b.plateau", 3, "3 is not one of the options"),
    ],
)
def test_a_guess_of_a_wrong_kind_is_refused_with_an_example(kept, id, value, message):
    with pytest.raises(GuessError, match=message):
        guess(id, value)
    assert kept.events() == []


@pytest.mark.parametrize("value", ["no", "NO", "b", "other"])
def test_an_option_may_be_given_by_its_text(kept, value):
    guess("03i.batch-norm", value)
    assert standing("03i.batch-norm").value == "other"


def test_an_option_may_be_given_by_the_beginning_of_its_text(kept):
    guess("03i.batch-norm", "yes")
    assert standing("03i.batch-norm").value == "same"


@pytest.mark.parametrize(
    "value", [2, 2.5, numpy.float32(2.5), torch.tensor([2.5]), numpy.ones((1, 1))]
)
def test_every_kind_of_number_is_one(kept, value):
    guess("03a.first-loss", value)
    assert standing("03a.first-loss").value == numpy.asarray(value).item()


def test_an_unknown_guess_names_the_nearest(kept):
    with pytest.raises(UnknownIdError, match=r"'03a.firstloss' .* closest ids: 03a.first-loss"):
        guess("03a.firstloss", 2.3)


def test_an_answer_that_is_nan_says_that_a_cell_above_failed(kept, capsys):
    reveal("03a.first-loss", float("nan"))
    assert said(capsys) == "The result is nan: a cell above did not work as it should."
    assert kept.events() == []


@pytest.mark.parametrize(
    "value,close", [(1e-3, True), (3e-4, False), (9e-3, True), (1.1e-2, False), (-3e-3, False)]
)
def test_rates_are_compared_by_ratio(value, close):
    asked = Question(id="x", question="?", kind="number", decades=0.5)
    assert is_close(asked, value, 3e-3) is close


def test_lists_are_close_only_as_a_whole():
    asked = Question(id="x", question="?", kind="numbers", within=0.1)
    assert is_close(asked, [1, 2], [1.05, 2])
    assert not is_close(asked, [1, 2], [1, 3]) and not is_close(asked, [1], [1, 2])


def test_events_of_a_question_that_was_asked_otherwise_are_passed_over(kept):
    kept.add("guess", id="03b.plateau", value="an option of an older release")
    kept.add("guess", id="03a.batches", value=4)
    assert standing("03b.plateau").latest is None and standing("03a.batches").latest is None


def test_a_disk_that_refuses_is_named_with_the_guess(kept, capsys):
    kept.path.mkdir()
    guess("03a.first-loss", 2.3)
    assert "cannot be written" in said(capsys)
    assert standing("03a.first-loss").value == 2.3


def test_under_grading_nothing_is_kept_and_nothing_raised(kept, capsys, monkeypatch):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    guess("03a.first-loss", 2.3)
    reveal("03a.first-loss", 2.31)
    assert not kept.path.exists() and record.here().events() == []


def test_every_guess_of_a_notebook_is_catalogued_there_asked_and_answered():
    for name, found in outline.outlines().items():
        asked = [asked.id for asked in chapters()[name].guesses]
        assert sorted(asked) == sorted(found.guesses), name
        assert sorted(found.revealed) == sorted(id for id in asked if not questions()[id].step), (
            name
        )


def test_a_worked_table_that_waits_for_a_guess_has_the_step_that_answers_it():
    for asked in questions().values():
        assert bool(asked.worked) >= bool(asked.step)
        if asked.step:
            steps = [step.what for step in registry.compute(asked.worked).steps]
            assert asked.step in steps, asked.id


def test_ids_begin_with_their_notebooks_number():
    for name, chapter in chapters().items():
        for asked in chapter.guesses:
            assert re.fullmatch(rf"{name.partition('-')[0]}\.[a-z0-9-]+", asked.id)


def test_a_guess_that_reads_as_the_answer_does_is_right():
    asked = questions()["03a.clipped"]
    float32 = [0.6000000238418579, 0.800000011920929]
    assert how_close(asked, [0.6, 0.8], float32) == "right"


def test_an_exact_guess_is_right_one_within_the_tolerance_close():
    asked = questions()["03a.first-loss"]
    assert [how_close(asked, 2.3, answer) for answer in (2.3, 2.31, 9.0)] == [
        "right", "close", "off",
    ]  # fmt: skip
