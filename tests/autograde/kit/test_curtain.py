"""Worked tables wait for a guess in a student's notebook, and nowhere else."""

import re
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from autograde import guess, student
from autograde.kit.guess import standing
from course.worked.registry import compute
from course.worked.step import Step


def shown(html: str) -> str:
    """What is seen without a click, as text."""
    return re.sub(r"<[^>]+>", " ", re.sub(r"<details>.*?</details>", "", html, flags=re.DOTALL))


FACTOR = "0.8836"


@pytest.fixture
def notebook(kept):
    student("ada")


def test_a_readers_table_shows_every_digit_the_verdict_and_where_it_comes_from(kept):
    text = shown(compute("N09")._repr_html_())
    assert "2.225000143" in text and "agrees" in text and "Rebuilt:" in text and "chapter" in text


def test_numbers_are_not_there_until_a_guess(notebook):
    html = compute("N10")._repr_html_()
    assert FACTOR not in html
    assert "guess('03a.loss-factor', ...)" in shown(html).replace("&#x27;", "'")
    guess("03a.loss-factor", 0.9)
    html = compute("N10")._repr_html_()
    assert FACTOR in shown(html) and "You guessed 0.9, it is 0.8836: close." in html
    assert "'look'" not in html.replace("&#x27;", "'")


def test_a_figure_shows_no_number_before_the_guess_either(notebook):
    assert "Guess first" in shown(compute("N15").plot()._repr_html_())
    guess("01a.tape-slope", 28)
    assert isinstance(compute("N15").plot(), Figure)


def test_a_table_waits_for_no_guess_of_another_notebook(notebook):
    guess("01c.moving", ...)
    assert FACTOR in shown(compute("N10")._repr_html_())
    guess("03a.batches", ...)
    assert FACTOR not in compute("N10")._repr_html_()


def test_looking_without_a_guess_is_kept_and_a_guess_after_it_does_not_count(notebook, capsys):
    guess("03a.loss-factor", "look")
    assert FACTOR in shown(compute("N10")._repr_html_())
    guess("03a.loss-factor", 0.88)
    assert standing("03a.loss-factor").value is None and standing("03a.loss-factor").looked
    assert "You guessed 0.88 after seeing the answer" in compute("N10")._repr_html_()


def test_a_students_table_has_four_digits_and_folds_provenance(notebook):
    html = compute("N09")._repr_html_()
    assert "2.225000143" not in shown(html) and 'title="2.225000143"' in html
    text = shown(html)
    assert "lecture silent" not in html and "Rebuilt" not in text and "Rebuilt:" in html


def test_other_inputs_than_the_lectures_answer_no_guess(notebook):
    guess("03a.loss-factor", 0.9)
    assert "You guessed" not in compute("N10", lr=0.1)._repr_html_()


def test_where_the_lecture_is_wrong_a_student_finds_out_why(notebook):
    guess("03a.batches", ...)  # in a notebook that asks nothing about this table
    wrong = Step("loss", 1.0, 2.0, correction="The slide adds twice.")
    html = replace(compute("N24"), steps=[wrong])._repr_html_()
    assert "which is right?" in shown(html.replace("<details>", "")) and "adds twice" in html
    assert "adds twice" not in shown(html)


def test_under_grading_the_table_is_a_readers(kept, monkeypatch):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    student("ada")
    assert FACTOR in shown(compute("N10")._repr_html_())
