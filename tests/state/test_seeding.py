"""Seeding: the same seed gives the same draws, everywhere it reaches."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from course.state import rng_state, seed_everything, set_rng_state, undisturbed


def draws() -> tuple:
    return torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random(), random.gauss(0, 1)


def test_the_same_seed_gives_the_same_draws_and_another_seed_others():
    found = []
    for seed in (7, 7, 8):
        generator = seed_everything(seed)
        found.append((draws(), torch.rand(2, generator=generator).tolist()))
    assert found[0] == found[1] != found[2]


def test_determinism_is_asked_for_and_taken_back():
    seed_everything(0, deterministic=True)
    assert torch.are_deterministic_algorithms_enabled()
    seed_everything(0)
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, True, "1"])
def test_a_seed_that_numpy_refuses_is_refused_and_nothing_is_seeded(seed):
    before = random.getstate()
    with pytest.raises(ValueError, match="expected a whole number from 0 to 4294967295"):
        seed_everything(seed)
    assert random.getstate() == before


def test_a_saved_state_brings_every_generator_back(tmp_path):
    random.gauss(0, 1)  # leaves half a pair in Python's generator
    np.random.randn()
    torch.save(rng_state(), tmp_path / "rng.pt")
    expected = draws(), np.random.randn()
    set_rng_state(torch.load(tmp_path / "rng.pt", weights_only=True))
    assert (draws(), np.random.randn()) == expected


def test_a_state_of_an_earlier_version_is_read_too():
    """It held Python's 625 numbers one by one, which took longer to write than the weights."""
    state = rng_state()
    expected = draws()
    state["python"]["keys"] = state["python"]["keys"].tolist()
    set_rng_state(state)
    assert draws() == expected


def test_what_is_drawn_inside_undisturbed_changes_nothing_outside():
    seed_everything(1)
    expected = draws()
    seed_everything(1)
    with undisturbed():
        draws()
    assert draws() == expected
