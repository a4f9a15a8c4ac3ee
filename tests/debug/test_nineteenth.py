"""A nineteenth set, by someone who had not seen the doctor, with twenty sound programs.

At first sight 35 of its 40 faults were told apart, and no twin and two sound programs alarmed.
"""

import pytest

from tests.debug.faulty import PAIRS, nineteenth
from tests.debug.sound import SOUND
from tests.debug.sound import nineteenth as odd
from tests.debug.sound import nineteenth_loops as odd_loops
from tests.debug.told import assert_told_apart
from tests.sampling import sample

HERE = {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in nineteenth.PARTS)}
ODD = [name for name in SOUND if hasattr(odd, name) or hasattr(odd_loops, name)]


def test_all_programs_of_the_nineteenth_set_are_tried():
    assert len(HERE) == 40
    assert len(ODD) == 20  # test_diagnose diagnoses them, with the others that are sound


@pytest.mark.parametrize("name", sample([*HERE], 40))
def test_the_fault_is_named_first_and_its_twin_is_left_alone(name):
    assert_told_apart(HERE[name])
