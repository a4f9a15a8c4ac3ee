"""A twenty-fourth set, by someone who had not seen the doctor, with twenty sound programs.

At first sight 39 of its 40 faults were told apart, each by its class, and no twin and no sound
program alarmed.
"""

import pytest

from course.debug import diagnose
from tests.debug.faulty import PAIRS, twenty_fourth
from tests.debug.sound import SOUND
from tests.debug.sound import twenty_fourth as odd
from tests.debug.sound import twenty_fourth_loops as odd_loops
from tests.debug.told import assert_told_apart
from tests.sampling import sample

HERE = {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in twenty_fourth.PARTS)}
TOLD = [name for name in HERE if name not in twenty_fourth.MISSED]
ODD = [name for name in SOUND if hasattr(odd, name) or hasattr(odd_loops, name)]


def test_all_programs_of_the_twenty_fourth_set_are_tried():
    assert len(HERE) == 40 and len(HERE) - len(TOLD) == len(twenty_fourth.MISSED)
    assert len(ODD) == 20  # test_diagnose diagnoses them, with the others that are sound


@pytest.mark.parametrize("name", sample(TOLD, 40))
def test_the_fault_is_named_first_and_its_twin_is_left_alone(name):
    assert_told_apart(HERE[name])


@pytest.mark.parametrize("name", sample([*twenty_fourth.MISSED], 5))
def test_what_is_missed_is_not_said_to_be_another_fault(name):
    faulty = diagnose(HERE[name].make(True))
    assert faulty.ok, f"{twenty_fourth.MISSED[name]}: {faulty}"
