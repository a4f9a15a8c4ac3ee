"""Rates against the lecture's closed forms, and what the page says about decay and units."""

import math

import pytest
import torch
from torch import nn

from course.claims.lab import digits, mlp
from course.widgets.schedules.state import SCHEDULES, UPDATES_PER_EPOCH, Settings, frame

TOTAL = 10 * UPDATES_PER_EPOCH


def half_cosine(done: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * done))


FORMULAS = {
    "constant": lambda t: 1.0,
    "step": lambda t: 0.1 if t >= 120 else 1.0,
    "linear": lambda t: 1 - t / TOTAL,
    "cosine": lambda t: half_cosine(t / TOTAL),
    "warm-up, cosine": lambda t: (t + 1) / 20 if t < 20 else half_cosine((t - 20) / 180),
}


def run(**about) -> dict:
    return frame(Settings(**about))["runs"][1]


@pytest.mark.parametrize("schedule", FORMULAS)
@pytest.mark.parametrize("lr", [0.03, 0.3])
def test_the_rate_of_each_update_is_the_closed_form(schedule, lr):
    expected = [lr * FORMULAS[schedule](t) for t in range(TOTAL)]
    assert run(second=schedule, lr=lr)["rates"] == pytest.approx(expected, abs=1e-9)
    assert (
        frame(Settings(first=schedule, lr=lr))["runs"][0]["rates"]
        == run(second=schedule, lr=lr)["rates"]
    )


def test_one_cycle_rises_from_a_25th_to_the_top_and_ends_near_zero():
    rates = run(second="one cycle", lr=0.3)["rates"]
    assert rates[0] == pytest.approx(0.3 / 25) and max(rates) == pytest.approx(0.3)
    assert rates.index(max(rates)) == round(0.3 * TOTAL) - 1
    assert rates[-1] == pytest.approx(0.3 / 25 * 1e-4, rel=1e-3)


def test_the_run_is_plain_pytorch_with_that_rate():
    inputs, targets, *_ = digits(0)
    model, order = mlp(64, 32, 10, seed=0), torch.Generator().manual_seed(0)
    velocity = [torch.zeros_like(p) for p in model.parameters()]
    losses = []
    for update in range(TOTAL):
        rows = torch.randint(len(targets), (32,), generator=order)
        loss = nn.functional.cross_entropy(model(inputs[rows]), targets[rows])
        grads = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, v, grad in zip(model.parameters(), velocity, grads, strict=True):
                v.mul_(0.9).add_(grad)
                p.sub_(0.1 * half_cosine(update / TOTAL) * v)
        losses.append(loss.item())
    means = [sum(losses[i : i + 20]) / 20 for i in range(0, TOTAL, 20)]
    assert run(second="cosine", lr=0.1)["losses"] == pytest.approx(means, rel=1e-3)


def test_decay_pays_where_the_rate_is_too_high_and_costs_where_it_is_not():
    last = {
        (lr, name): run(second=name, lr=lr)["losses"][-1]
        for lr in (0.03, 0.3)
        for name in SCHEDULES
    }
    for name in set(SCHEDULES) - {"constant"}:
        assert last[0.3, name] < 0.6 * last[0.3, "constant"], name
        assert last[0.03, name] > 1.2 * last[0.03, "constant"], name


def test_in_the_wrong_unit_cosine_climbs_a_step_dies_and_one_cycle_raises():
    cosine, step, cycle = (
        run(second=name, unit="too often") for name in ("cosine", "step", "one cycle")
    )
    expected = [0.3 * half_cosine(t / 10) for t in range(TOTAL)]
    assert cosine["rates"] == pytest.approx(expected, abs=1e-6)
    assert cosine["rates"][20] == pytest.approx(0.3) and cosine["rates"][10] < 1e-6
    assert 0 < step["rates"][-1] < 1e-30
    assert cycle["stopped"].startswith("ValueError") and len(cycle["rates"]) == 11
    seldom = run(second="cosine", unit="too rarely")
    assert seldom["calls"] == 10 and seldom["rates"][-1] > 0.99 * 0.3


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_stepped_per_epoch_the_rate_is_constant_within_an_epoch(schedule):
    rates = run(second=schedule, unit="epochs", lr=0.03)["rates"]
    epochs = [rates[i : i + UPDATES_PER_EPOCH] for i in range(0, TOTAL, UPDATES_PER_EPOCH)]
    assert all(len(set(epoch)) == 1 for epoch in epochs)
    if schedule == "cosine":
        expected = [0.03 * half_cosine(t / 10) for t in range(10)]
        assert [epoch[0] for epoch in epochs] == pytest.approx(expected)
