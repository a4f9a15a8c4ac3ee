"""A sixth set, by another author who had not read the doctor, with twenty sound programs."""

import pytest
import torch

from course.debug import diagnose
from tests.debug.faulty import PAIRS, later_dresses, sixth
from tests.debug.sound import SOUND
from tests.debug.sound import sixth as odd
from tests.debug.told import assert_told_apart
from tests.sampling import sample

HERE = {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in sixth.PARTS)}
ODD = [name for name in SOUND if hasattr(odd, name)]


def test_all_programs_of_the_sixth_set_are_tried():
    assert len(HERE) == 40
    assert len(ODD) == 20  # test_diagnose diagnoses them, with the others that are sound


@pytest.mark.parametrize("name", sample([*HERE], 30))
def test_the_fault_is_named_first_and_its_twin_is_left_alone(name):
    assert_told_apart(HERE[name])


@pytest.mark.parametrize(
    "name", ["distilled_without_the_log", "penalty_without_a_graph",
             "centres_of_the_loss_not_trained"],
)  # fmt: skip
def test_a_twin_that_was_alarmed_at_first_sight_is_left_alone(name):
    report = diagnose(HERE[name].make(False))
    assert report.ok, str(report)


@pytest.mark.parametrize("make", [later_dresses.unequal_chunks, later_dresses.best_accuracy_from_0])
def test_a_step_that_returns_nothing_and_a_scored_best_are_left_alone(make):
    torch.manual_seed(0)
    report = diagnose(make(False))
    assert report.ok, str(report)
