"""The museum shows the broken lines beside the fixed ones, and nothing a terminal would colour."""

import pytest

from course.debug import museum
from course.debug.museum.show import first_line
from course.debug.museum.switch import broken_and_fixed


@pytest.mark.parametrize("id", museum.ids())
def test_every_exhibit_has_lines_that_its_switch_changes(id):
    lines = broken_and_fixed(museum.exhibit(id).make)
    assert {mark for mark, _ in lines} <= {"-", "+"} and lines
    assert all("bug" not in line.split("#")[0].split() for _, line in lines)


def test_the_broken_line_stands_before_the_fixed_one():
    lines = broken_and_fixed(museum.exhibit("B08").make)
    assert [mark for mark, _ in lines] == ["-", "+"]
    assert "Softmax" in lines[0][1] and "Softmax" not in lines[1][1]


def test_a_branch_that_cannot_be_taken_is_left_out():
    def make(bug):
        if bug:
            print("broken")
        second = 2 if not bug else 3
        return {"a": second, "b": bug or second > 2}

    lines = broken_and_fixed(make)
    assert ("-", "print('broken')") in lines
    assert ("-", "second = 3") in lines and ("+", "second = 2") in lines
    assert ("+", "return {'a': second, 'b': second > 2}") in lines


def test_an_error_is_shown_without_escape_codes():
    assert first_line(ValueError("\x1b[31mrefused\x1b[0m: plain types only")) == (
        "refused: plain types only"
    )


def test_what_was_scaled_is_said():
    assert "1e-6" in museum.exhibit("B31").scaled
