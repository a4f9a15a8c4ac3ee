"""A twentieth set, by someone who had not seen the doctor, with twenty sound programs.

At first sight 30 of its 40 faults were told apart, and two twins and no sound program alarmed.
"""

import pytest

from tests.debug.faulty import PAIRS, twentieth
from tests.debug.sound import SOUND
from tests.debug.sound import twentieth as odd
from tests.debug.sound import twentieth_loops as odd_loops
from tests.debug.told import assert_told_apart
from tests.sampling import sample

HERE = {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in twentieth.PARTS)}
ODD = [name for name in SOUND if hasattr(odd, name) or hasattr(odd_loops, name)]


def test_all_programs_of_the_twentieth_set_are_tried():
    assert len(HERE) == 40
    assert len(ODD) == 20  # test_diagnose diagnoses them, with the others that are sound


@pytest.mark.parametrize("name", sample([*HERE], 40))
def test_the_fault_is_named_first_and_its_twin_is_left_alone(name):
    assert_told_apart(HERE[name])
