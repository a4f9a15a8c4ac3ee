"""Hints go one further each time; a name is typed once and may be empty until it is needed."""

import pytest

from autograde import bank, hint, student
from autograde.kit.student import NoNameError, current, plain_name, required
from course.catalogue import UnknownIdError


def said(capsys) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_hints_come_one_after_the_other_and_then_say_that_there_are_no_more(kept, capsys):
    hints = bank.load("03a.clip").hints
    for number, text in enumerate(hints, start=1):
        hint("03a.clip")
        assert f"Hint {number} of 3: {' '.join(text.split())}" in said(capsys)
    for _ in range(2):
        hint("03a.clip")
        told = said(capsys)
        assert "has 3 hints, and you have seen them all" in told and "failing('03a.clip')" in told
    assert [event["number"] for event in kept.events("hint")] == [1, 2, 3]


def test_the_end_of_the_hints_offers_no_failing_case_of_a_value(kept, capsys):
    for _ in range(4):
        hint("05.one-thing")
    told = said(capsys)
    assert "you have seen them all" in told and "failing" not in told


def test_a_hint_is_shown_again_by_its_number_and_then_the_next_is_the_next(kept, capsys):
    hint("03a.clip", 2)
    hint("03a.clip", 1)
    hint("03a.clip")
    assert "Hint 3 of 3" in capsys.readouterr().out


@pytest.mark.parametrize("number", [0, 4, -1, "2", 1.0, True])
def test_a_hint_of_no_such_number_is_refused(kept, number):
    with pytest.raises(ValueError, match=r"hints of 03a.clip are numbered 1 to 3"):
        hint("03a.clip", number)


def test_a_hint_for_an_unknown_exercise_names_the_nearest(kept):
    with pytest.raises(UnknownIdError, match=r"03a.clip"):
        hint("03a.clippp")


def test_an_empty_name_is_fine_until_numbers_are_asked(kept, capsys):
    student("")
    assert "No name yet" in capsys.readouterr().out
    with pytest.raises(NoNameError, match=r"you have not typed it yet.*student\(\"ada\"\)"):
        required()
    student("  Ada  Lovelace ")
    assert required() == "Ada Lovelace"


def test_a_name_typed_in_one_notebook_is_remembered_in_the_next(kept, capsys, monkeypatch):
    student("ada")
    monkeypatch.setattr("autograde.kit.student._name", "")  # another kernel
    student("")
    assert current() == "ada" and "the name you typed earlier" in capsys.readouterr().out


@pytest.mark.parametrize("name", [None, 7, ["ada"], print])
def test_a_name_that_is_not_a_text_is_refused(kept, name):
    with pytest.raises(TypeError, match="your name must be in quotes"):
        student(name)


@pytest.mark.parametrize("other", ["ZOË", " zoe ", "Zoe\u0308"])
def test_case_accents_and_blanks_do_not_make_another_student(other):
    assert plain_name(other) == plain_name("Zoë") == "zoe"
