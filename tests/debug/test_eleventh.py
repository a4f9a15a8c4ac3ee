"""An eleventh set, by an author who had not read the doctor, with twenty sound programs."""

import pytest

from course.debug import diagnose
from tests.debug.faulty import PAIRS, eleventh
from tests.debug.sound import SOUND
from tests.debug.sound import eleventh as odd
from tests.debug.sound import eleventh_loops as odd_loops
from tests.debug.told import assert_told_apart
from tests.sampling import sample

HERE = {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in eleventh.PARTS)}
TOLD = [name for name in HERE if name not in eleventh.MISSED]
ODD = [name for name in SOUND if hasattr(odd, name) or hasattr(odd_loops, name)]


def test_all_programs_of_the_eleventh_set_are_tried():
    assert len(HERE) == 40 and len(HERE) - len(TOLD) == len(eleventh.MISSED)
    assert len(ODD) == 20  # test_diagnose diagnoses them, with the others that are sound


@pytest.mark.parametrize("name", sample(TOLD, 10))
def test_the_fault_is_named_first_and_its_twin_is_left_alone(name):
    assert_told_apart(HERE[name])


@pytest.mark.parametrize("name", [*eleventh.MISSED])
def test_what_is_missed_is_not_said_to_be_another_fault(name):
    faulty, twin = diagnose(HERE[name].make(True)), diagnose(HERE[name].make(False))
    assert faulty.ok, f"{eleventh.MISSED[name]}: {faulty}"
    assert twin.ok, str(twin)
