"""A twenty-second set, by someone who had not seen the doctor, with twenty sound programs.

At first sight 32 of its 40 faults were told apart, and one twin and two sound programs alarmed.
"""

import pytest

from course.debug import diagnose
from tests.debug.faulty import PAIRS, twenty_second
from tests.debug.sound import SOUND
from tests.debug.sound import twenty_second as odd
from tests.debug.sound import twenty_second_loops as odd_loops
from tests.debug.told import assert_told_apart
from tests.sampling import sample

HERE = {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in twenty_second.PARTS)}
ODD = [name for name in SOUND if hasattr(odd, name) or hasattr(odd_loops, name)]


def test_all_programs_of_the_twenty_second_set_are_tried():
    assert len(HERE) == 40
    assert len(ODD) == 20  # test_diagnose diagnoses them, with the others that are sound


@pytest.mark.parametrize("name", sample([*HERE], 40))
def test_the_fault_is_named_first_and_its_twin_is_left_alone(name):
    assert_told_apart(HERE[name])


def test_a_twin_that_was_alarmed_at_first_sight_is_left_alone():
    report = diagnose(HERE["prefixes_scored_without_a_mask"].make(False))
    assert report.ok, str(report)


@pytest.mark.parametrize("name", ["tied_lm_token_weighted", "triplets_of_sorted_batches"])
def test_a_sound_program_that_was_alarmed_at_first_sight_is_left_alone(name):
    report = diagnose(SOUND[name]())
    assert report.ok, str(report)
