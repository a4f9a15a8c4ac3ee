"""A third set, written by somebody who had not read the doctor, and the relations it asked for."""

import pytest
import torch
from torch.nn import functional as F

from course.debug import diagnose
from course.debug.probes.session import Session
from course.debug.probes.setup import as_setup
from tests.debug.faulty import PAIRS, unseen
from tests.debug.told import assert_told_apart
from tests.sampling import sample

HERE = [p for p in PAIRS if any(hasattr(part, p.name) for part in unseen.PARTS)]
TOLD = [p for p in HERE if p.name not in unseen.MISSED]


def test_all_pairs_of_the_third_set_are_tried():
    assert len(HERE) == 47 and len(HERE) - len(TOLD) == len(unseen.MISSED)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pair", sample(TOLD, 60), ids=lambda pair: pair.name)
def test_the_fault_is_named_first_and_its_twin_is_left_alone(pair):
    assert_told_apart(pair)


@pytest.mark.parametrize("name", sample([*unseen.MISSED], 5))
def test_what_is_missed_is_not_given_another_name(name):
    pair = next(p for p in HERE if p.name == name)
    faulty = diagnose(pair.make(True))
    assert faulty.ok, f"{unseen.MISSED[name]}: {faulty}"


def test_steps_uphill_leave_the_optimizer_as_it_was():
    setup = next(p for p in HERE if p.name == "bandit_sign").make(True)
    assert [f.id for f in diagnose(setup).alarms] == ["loss-negated"]
    assert not any(group["maximize"] for group in setup["optimizer"].param_groups)
    assert not setup["optimizer"].state


def test_the_loss_that_a_step_is_seen_to_use_stands_for_a_loss_fn():
    setup = next(p for p in HERE if p.name == "stays_in_eval").make(False)
    session = Session(as_setup(setup))
    inputs, targets = session.batch
    outputs = session.predict(inputs)
    expected = F.cross_entropy(outputs, targets)
    assert torch.equal(session.loss(outputs, targets), expected)
    weighed = next(p for p in HERE if p.name == "cleared_in_the_window").make(False)
    assert Session(as_setup(weighed)).loss_fn is None  # a part of what goes backward
