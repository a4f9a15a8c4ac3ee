"""One batch of a dozen points: what a healthy loop does with it, and what eight broken ones do."""

import importlib
import math

import pytest
import torch

from course.debug.casebook import MISTAKES, PROBES, STOPS
from course.debug.museum import exhibit
from course.debug.one_batch import ONE_BATCH_BUGS, one_batch_losses

LN3 = math.log(3)


def last(bug: str, seed: int = 0) -> float:
    return one_batch_losses(bug, seed=seed)[-1]


@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_loop_memorises_the_batch_and_so_does_one_with_raw_inputs(seed):
    assert last("none", seed) < 0.01
    assert last("raw inputs", seed) < 0.01


@pytest.mark.parametrize("seed", range(2))
def test_a_level_loss_has_the_value_that_its_cause_gives(seed):
    assert last("dead units", seed) == pytest.approx(LN3, abs=0.002)
    assert abs(last("labels reshuffled", seed) - LN3) < 0.1
    assert last("softmax twice", seed) > math.log(1 + 2 / math.e) - 1e-3
    losses = one_batch_losses("no step", seed=seed)
    assert max(losses) == min(losses)
    slow = one_batch_losses("rate 1e-5", seed=seed)
    assert 0 < slow[0] - slow[-1] < 0.02


def test_a_frozen_layer_is_only_slow():
    losses = one_batch_losses("first layer frozen")
    assert 0.02 < losses[-1] < 0.2 and losses[-1] < losses[100] < losses[20]


def test_a_rate_far_too_large_is_seen_at_once():
    assert max(one_batch_losses("rate 5")) > 10


def test_runs_of_one_seed_begin_alike_and_leave_the_generator_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = {bug: one_batch_losses(bug, steps=1)[0] for bug in ("none", "no step", "rate 5")}
    assert len(set(first.values())) == 1
    assert torch.equal(before, torch.get_rng_state())


def test_an_unknown_bug_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"bug = 'late': there are none, no step"):
        one_batch_losses("late")
    assert all(ONE_BATCH_BUGS.values())


@pytest.mark.parametrize("table", [PROBES, MISTAKES, STOPS], ids=["probes", "mistakes", "stops"])
def test_every_row_of_the_casebook_says_where_the_course_has_it(table):
    for row in table:
        if row.here.startswith("course."):
            module, _, name = row.here.rpartition(".")
            found = importlib.import_module(module)
            assert hasattr(found, name) or importlib.import_module(row.here)
        else:
            assert exhibit(row.here).id == row.here
        assert row.here in table._repr_html_()
    assert len(table) >= 6
