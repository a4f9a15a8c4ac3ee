"""A fifth set, by another author who had not read the doctor, with twenty sound programs."""

import pytest

from course.debug import diagnose
from tests.debug.faulty import PAIRS, fifth
from tests.debug.sound import SOUND
from tests.debug.sound import fifth as odd
from tests.debug.sound import fifth_loops as odd_loops
from tests.debug.told import assert_told_apart
from tests.sampling import sample

HERE = {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in fifth.PARTS)}
TOLD = [name for name in HERE if name not in fifth.MISSED]
ODD = [name for name in SOUND if hasattr(odd, name) or hasattr(odd_loops, name)]


def test_all_programs_of_the_fifth_set_are_tried():
    assert len(HERE) == 40 and len(TOLD) == 37 and len(fifth.MISSED) == 3
    assert len(ODD) == 20  # test_diagnose diagnoses them, with the others that are sound


@pytest.mark.parametrize("name", sample(TOLD, 16))
def test_the_fault_is_named_first_and_its_twin_is_left_alone(name):
    assert_told_apart(HERE[name])


@pytest.mark.parametrize("name", sample([*fifth.MISSED], 5))
def test_what_is_missed_is_not_given_another_name_and_its_twin_is_left_alone(name):
    faulty, twin = (diagnose(HERE[name].make(bug)) for bug in (True, False))
    assert faulty.ok, f"{fifth.MISSED[name]}: {faulty}"
    assert twin.ok, str(twin)
