"""A third set, written by somebody who had not read the doctor, and the relations it asked for."""

import pytest

from course.debug import diagnose
from tests.debug.faulty import PAIRS, unseen
from tests.sampling import sample

HERE = [p for p in PAIRS if any(hasattr(part, p.name) for part in unseen.PARTS)]
TOLD = [p for p in HERE if p.name not in unseen.MISSED]


def test_all_pairs_of_the_third_set_are_tried():
    assert len(HERE) == 47 and len(HERE) - len(TOLD) == len(unseen.MISSED)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pair", sample(TOLD, 9), ids=lambda pair: pair.name)
def test_the_fault_is_named_first_and_its_twin_is_left_alone(pair):
    faulty, twin = diagnose(pair.make(True)), diagnose(pair.make(False))
    assert faulty.alarms and faulty.alarms[0].id in pair.ids, str(faulty)
    assert faulty.alarms[0].fix and faulty.alarms[0].evidence
    assert twin.ok, str(twin)


@pytest.mark.parametrize("name", sample([*unseen.MISSED], 5))
def test_what_is_missed_is_not_given_another_name(name):
    pair = next(p for p in HERE if p.name == name)
    faulty = diagnose(pair.make(True))
    assert faulty.ok, f"{unseen.MISSED[name]}: {faulty}"
