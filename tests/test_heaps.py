"""Tests of a file run in one process, whatever pytest and pytest-xdist do with node ids."""

import os

import pytest

from tests.heaps import SPLIT, heap


@pytest.mark.parametrize("again", range(6))
def test_all_tests_of_a_file_run_in_one_process(shared, again):
    seen = shared / "one-process"
    seen.touch()
    with seen.open("a") as file:
        file.write(f"{os.getpid()}\n")
    assert len(set(seen.read_text().split())) == 1


def test_tests_of_one_exercise_stay_together_and_others_are_shared_out():
    file = "tests/autograde/test_bank.py"
    one = heap(f"{file}::test_the_reference_answers_every_case[cpu-03a.accumulate]")
    assert one == heap(f"{file}::test_a_blank_answer_is_called_blank[03a.accumulate]")
    heaps = {heap(f"{file}::test_a_blank_answer_is_called_blank[03a.e{n}]") for n in "abcdefghijk"}
    assert 2 < len(heaps) <= SPLIT["test_bank.py"]


def test_files_of_one_name_in_two_folders_are_two_heaps():
    assert heap("tests/worked/test_registry.py::test_a") != heap("tests/claims/test_registry.py::b")
