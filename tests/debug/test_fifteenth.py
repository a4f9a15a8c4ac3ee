"""A fifteenth set, by an author who had not seen the doctor, with twenty sound programs.

At first sight 30 of its 40 faults were told apart, and two twins and two sound programs alarmed.
"""

import pytest

from course.debug import diagnose
from tests.debug.faulty import PAIRS, fifteenth
from tests.debug.sound import SOUND
from tests.debug.sound import fifteenth as odd
from tests.debug.sound import fifteenth_loops as odd_loops
from tests.debug.told import assert_told_apart
from tests.sampling import sample

HERE = {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in fifteenth.PARTS)}
TOLD = [name for name in HERE if name not in fifteenth.MISSED]
ODD = [name for name in SOUND if hasattr(odd, name) or hasattr(odd_loops, name)]


def test_all_programs_of_the_fifteenth_set_are_tried():
    assert len(HERE) == 40 and len(TOLD) == 39
    assert len(ODD) == 20  # test_diagnose diagnoses them, with the others that are sound


@pytest.mark.parametrize("name", sample(TOLD, 20))
def test_the_fault_is_named_first_and_its_twin_is_left_alone(name):
    assert_told_apart(HERE[name])


def test_labels_that_moved_are_told_where_a_class_is_lacking_too():
    """The validation part lacks a class whether its names are numbered anew or not."""
    faulty, twin = (diagnose(HERE["refit_labels"].make(bug)) for bug in (True, False))
    assert [a.id for a in faulty.alarms] == ["labels-renamed", "label-shift"], str(faulty)
    assert [a.id for a in twin.alarms] == ["label-shift"], str(twin)
