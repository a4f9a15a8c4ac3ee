"""Each of six bugs leaves in the log what its signature says, alone and next to another."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from course.debug.museum import exhibit
from course.debug.signatures import (
    BUGS,
    NOISE,
    PAIRS,
    SEEDS,
    SIGNATURES,
    HeldBytes,
    case_bugs,
    case_log,
    lineup,
    logged_run,
)
from tests.sampling import THOROUGH

HONEST = 1 - NOISE
"""The share of labels that are right."""


@pytest.fixture(scope="module")
def healthy():
    return logged_run()


def traces(log, healthy) -> set[str]:
    """The bugs that a log shows, read as the notebook says."""
    if not log.epochs:
        return {"wrong-device"}
    found = set()
    if log.column("loss")[-1] > math.log(10):
        found.add("no-clear")
    if log.column("val_loss") != log.column("again"):
        found.add("train-mode")
    if log.column("held_kb")[-1] > 0:
        found.add("kept-graphs")
    if min(log.column("still")) == 2:
        found.add("stale-head")
    if log.column("val_accuracy")[-1] > HONEST:
        found.add("leak")
    return found


def test_the_healthy_run_shows_nothing(healthy):
    assert traces(healthy, healthy) == set()
    assert max(healthy.column("val_accuracy")) < HONEST
    assert min(healthy.column("grad_norm")) > 1 and max(healthy.column("grad_norm")) < 2.1
    assert len(healthy.epochs) == 16 and not healthy.error


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_alone_shows_itself_and_no_other(bug, healthy):
    assert traces(logged_run({bug}), healthy) == {bug}


def test_a_case_shows_both_of_its_bugs(healthy):
    cases = range(len(PAIRS) * SEEDS)
    assert {(case_bugs(case), case // len(PAIRS)) for case in cases} == {
        (pair, seed) for pair in PAIRS for seed in range(SEEDS)
    }
    for case in cases if THOROUGH else cases[::4]:  # all pairs, on every other seed or so
        assert traces(case_log(case), healthy) == set(case_bugs(case)), case


def test_what_a_signature_says_of_curves_is_so(healthy):
    runs = {bug: logged_run({bug}) for bug in BUGS[:-1]}
    norms, usual = runs["no-clear"].column("grad_norm"), healthy.column("grad_norm")
    assert max(a / b for a, b in zip(norms[:4], usual[:4], strict=True)) > 10
    held = runs["kept-graphs"].column("held_kb")
    steps = {round(b - a, 6) for a, b in pairwise(held)}
    assert len(steps) == 1 and steps.pop() > 0
    for bug in ("kept-graphs", "leak"):
        for column in ("loss", "grad_norm"):
            assert runs[bug].column(column) == healthy.column(column)
    assert runs["kept-graphs"].column("val_accuracy") == healthy.column("val_accuracy")
    stale = runs["stale-head"]
    assert stale.column("grad_norm")[-1] > 10 * stale.column("grad_norm")[0]
    assert stale.column("loss")[-1] < 1 and max(stale.column("val_accuracy")) > 0.7
    hidden = logged_run({"leak", "no-clear"})
    assert max(hidden.column("val_accuracy")) < HONEST


def test_a_batch_elsewhere_ends_the_run_before_its_first_row():
    log = logged_run({"wrong-device"})
    assert log.epochs == () and "Error" in log.error and "device" in log.error
    assert log.error in str(log) and "RuntimeError" in log._repr_html_()


def test_held_bytes_are_those_of_what_a_graph_saves():
    model = nn.Linear(3, 4)
    held, inputs = HeldBytes(model), torch.ones(5, 3)
    with held.counting():
        loss = model(inputs).square().sum()
    assert held.bytes == 4 * (5 * 3 + 5 * 4)  # the linear layer's input, the square's
    loss.backward()
    assert held.bytes == 0
    with held.counting(), torch.no_grad():
        model(inputs)
    assert held.bytes == 0


def test_every_signature_names_its_exhibit_and_a_column():
    assert {signature.bug for signature in SIGNATURES} == set(BUGS)
    for signature in SIGNATURES:
        exhibit(signature.exhibit)
        assert signature.column in ("", *vars(logged_run(epochs=1).epochs[0]))
        assert signature.title in SIGNATURES._repr_html_()


def test_the_line_up_has_each_bug_once_and_the_generator_is_left_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    shown = [traces(log, None) for log in lineup().values()]
    assert sorted(map(tuple, shown)) == sorted((bug,) for bug in BUGS)
    assert torch.equal(before, torch.get_rng_state())


def test_an_unknown_bug_is_refused_by_name():
    with pytest.raises(ValueError, match=r"\['no-clue'\]: there are no-clear"):
        logged_run({"no-clue"})
