"""A resumed run has the uninterrupted one's bits exactly when nothing is missing."""

import pytest
import torch

from course.analysis.resuming import PARTS, Training, distances_without, repeated


def test_a_resume_with_everything_has_the_same_bits():
    torch.manual_seed(7)
    ahead = torch.rand(3)
    torch.manual_seed(7)
    assert set(distances_without()) == {0.0}
    assert torch.equal(torch.rand(3), ahead), "the caller's random numbers were disturbed"


@pytest.mark.parametrize("part", PARTS)
def test_a_resume_without_any_one_part_ends_elsewhere(part):
    assert distances_without(part)[-1] > 1e-3


def test_a_state_is_a_copy_that_a_safe_file_may_hold(tmp_path):
    run = Training(seed=0)
    run.train(1)
    state = run.state()
    kept = state["model"]["1.weight"].clone()
    torch.save(state, tmp_path / "state.pt")
    run.train(1)
    assert torch.equal(state["model"]["1.weight"], kept)
    read = torch.load(tmp_path / "state.pt", weights_only=True)
    assert torch.equal(read["model"]["1.weight"], kept) and read.keys() == PARTS.keys()


def test_two_halves_differ_by_roundings_and_another_seed_by_far_more():
    assert repeated(epochs=1) == (0.0, 0.0)
    rounding, _ = repeated(epochs=1, halves=True)
    assert 0 < rounding < 1e-4
    assert repeated(epochs=1, seed=4)[0] > 0.01
