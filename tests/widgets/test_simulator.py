"""The simulator trains as plain torch does, and its experiments show what F72-F76 found."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from course.claims.lab import spirals
from course.widgets.simulator import state
from course.widgets.simulator.state import Settings, SimulatedRun, network


def after(updates: int, **settings) -> SimulatedRun:
    run = SimulatedRun(Settings(**settings))
    for _ in range(updates):
        if not run.stopped:
            run.step()
    return run


@pytest.mark.parametrize("optimizer", ["SGD", "momentum", "Adam"])
def test_a_healthy_run_is_plain_pytorch(optimizer):
    run = after(40, optimizer=optimizer, lr=0.01, seed=1)
    inputs, targets, _, _ = spirals(1, 500, 150)
    model, order = network(1), torch.Generator().manual_seed(1)
    made = {
        "SGD": lambda p: torch.optim.SGD(p, lr=0.01),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
        "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    }[optimizer](model.parameters())
    batches = [rows for _ in range(2) for rows in torch.randperm(500, generator=order).split(16)]
    for rows in batches[:40]:
        made.zero_grad()
        nn.functional.cross_entropy(model(inputs[rows]), targets[rows]).backward()
        made.step()
    for ours, theirs in zip(run.learners[0].model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_network_starts_as_torch_would_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    run = after(12, other="adam 1")
    assert torch.equal(torch.get_rng_state(), before)
    bounds = [p.abs().max().item() for p in run.learners[0].model.parameters()]
    model = network(3)
    for layer in (model[0], model[2], model[4]):
        bound = 1 / math.sqrt(layer.in_features)
        assert 0.8 * bound < layer.weight.abs().max().item() <= bound
    assert len(bounds) == 6


def test_both_learners_start_equal_and_see_the_same_batches():
    run = after(30, other="graph")
    first, second = (learner.losses for learner in run.learners)
    assert first == second  # a graph while evaluating changes no number


def test_experiment_1_adam_at_rate_1_stays_finite_and_learns_next_to_nothing():
    run = after(300, other="adam 1")
    first, second = run.learners
    assert not second.stopped and max(second.losses) > 50
    assert second.evaluated[-1][1] < 0.7 < 0.95 < first.evaluated[-1][1]


def test_experiment_2_sgd_at_the_same_rate_does_not_get_there():
    run = after(300, other="sgd").frame()
    assert run["learners"][0]["reached"] < 200 and run["learners"][1]["reached"] is None
    assert after(400, other="sgd 0.3").frame()["learners"][1]["reached"] is not None


def test_experiment_3_without_zero_grad_the_norm_grows_and_the_loss_stays_up():
    first, second = after(300, other="uncleared").learners
    assert second.norms[-1] > 20 * second.norms[0] and not second.stopped
    assert second.evaluated[-1][1] < first.evaluated[-1][1] - 0.2


def test_experiment_4_memory_climbs_only_where_losses_are_kept():
    flat, kept = (after(300, other=other).learners[1] for other in ("graph", "graph kept"))
    assert flat.evaluated[5][3] == flat.evaluated[-1][3] < flat.peak_bytes
    growth = [later[3] - one[3] for one, later in pairwise(kept.evaluated[2:])]
    assert len(set(growth)) == 1 and growth[0] > 50_000
    # two hidden layers of 64 and 3 logits, each kept once or as mask, for 150 points
    assert growth[0] < 150 * (64 * 4 + 2 + 3 * 3) * 8


def test_kept_losses_stop_before_the_machine_is_full(monkeypatch):
    monkeypatch.setattr(state, "MOST_KEPT", 500_000)
    run = after(400, bug="graph kept")
    assert "kept losses" in run.stopped and run.updates < 100


def test_cosine_ends_at_zero_and_a_constant_rate_does_not_move():
    run = SimulatedRun(Settings(other="cosine", num_examples=100, batch_size=128))
    rates = []
    for _ in range(20):
        rates.append([learner.lr for learner in run.learners])
        run.step()
    assert {one for one, _ in rates} == {0.01}
    scheduled = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.01)
    oracle = torch.optim.lr_scheduler.CosineAnnealingLR(scheduled, 20)
    for _, ours in rates:
        assert ours == pytest.approx(oracle.get_last_lr()[0], abs=1e-12)
        scheduled.step()
        oracle.step()
    assert run.learners[1].lr == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("bug", ["none", "uncleared"])
def test_a_loss_that_is_no_number_stops_it_with_a_sentence(bug):
    run = after(3, bug=bug)
    with torch.no_grad():
        run.learners[0].model[0].weight.fill_(math.inf)
    run.step()
    assert "nan" in run.stopped and len(run.stopped) > 30
    assert math.isnan(run.learners[0].losses[-1])
    run.step()
    assert run.learners[0].updates == 4


def test_where_only_the_compared_network_stops_the_first_goes_on():
    run = after(3, other="sgd")
    with torch.no_grad():
        run.learners[1].model[0].weight.fill_(math.inf)
    run.step()
    run.step()
    assert not run.stopped and [learner.updates for learner in run.learners] == [5, 4]
    assert "nan" in run.frame()["learners"][1]["stopped"]


def test_cleared_after_backward_nothing_moves():
    run = after(5, bug="late clear", optimizer="SGD")
    moved = [
        (a - b).abs().max().item()
        for a, b in zip(run.learners[0].model.parameters(), network(0).parameters(), strict=True)
    ]
    assert max(moved) == 0.0
