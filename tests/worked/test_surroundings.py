"""Numbers, figures and claims do not depend on what a notebook has set before."""

from contextlib import contextmanager

import pytest
import torch

from course import claims, worked


@contextmanager
def default_dtype(dtype: torch.dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


SURROUNDINGS = {
    "float64": lambda: default_dtype(torch.float64),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}
SOME_CLAIMS = ("F01", "F03", "F06", "F10", "F21", "F26", "F43", "F50", "F57", "F112", "F131")


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_every_number_is_the_same_there(name):
    ids = [id for id in worked.catalogue() if id != "N62"]  # takes a second each time
    plain = [[step.computed for step in worked.compute(id).steps] for id in ids]
    with SURROUNDINGS[name]():
        there = [[step.computed for step in worked.compute(id).steps] for id in ids]
    assert repr(there) == repr(plain)  # nan equals itself


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_figures_are_drawn_there(name):
    with SURROUNDINGS[name]():
        worked.compute("N07").plot()
        worked.compute("N15").plot()


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_claims_come_out_the_same_there(name):
    with SURROUNDINGS[name]():
        changed = [id for id in SOME_CLAIMS if not claims.compute(id).as_expected]
    assert not changed


def test_a_default_device_is_not_where_claims_make_their_tensors():
    with torch.device("meta"):
        trial = claims.compute("F26")
    assert trial.as_expected and trial.device == "cpu"
