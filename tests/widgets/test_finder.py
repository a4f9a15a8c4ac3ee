"""The finder's runs against updates by hand, its sweep against the rule, and what the page says."""

import math

import pytest
import torch
from torch.nn import functional as F

from course.widgets.finder.state import (
    RATES,
    UPDATES,
    Settings,
    _made,
    frame,
    says,
    sweep,
    trained,
    zone,
)

BOTH = ("SGD", "Adam")


def test_a_run_is_the_updates_that_one_makes_by_hand():
    model, _, loader = _made("SGD", 64, 0, 0.3)
    losses = []
    for (inputs, targets), _ in zip(loader, range(3), strict=False):
        loss = F.cross_entropy(model(inputs), targets)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for weight, grad in zip(model.parameters(), grads, strict=True):
                weight -= 0.3 * grad
        losses.append(loss.item())
    assert trained("SGD", 64, 0, 0.3)[:3] == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize("optimizer", BOTH)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_suggestion_is_a_decade_below_the_minimum_and_near_the_best_rate(optimizer, seed):
    shown = frame(Settings(optimizer=optimizer, seed=seed))
    smoothed = shown["smoothed"]
    assert shown["lowest"] == shown["lrs"][smoothed.index(min(smoothed))]
    assert shown["suggestion"] == pytest.approx(shown["lowest"] / 10)
    assert 0.09 < shown["suggestion"] / shown["best"] < 3
    assert shown["worth"][RATES.index(shown["best"])] == min(shown["worth"])


def test_what_the_page_says_of_smoothing_small_and_large_rates_and_adam():
    curve = sweep("SGD", 64, 0, 1)
    raw = curve.lrs[curve.losses.index(min(curve.losses))]
    assert frame(Settings())["lowest"] > raw
    zones = [frame(Settings(rate=rate))["zone"] for rate in (0.001, 0.1, 10.0)]
    assert zones == ["rate too small", "learns", "rate too large"]
    sgd, adam = (frame(Settings(optimizer=name))["lowest"] for name in BOTH)
    assert adam < sgd / 5


def test_zones_of_curves_by_hand():
    assert zone([2.0] * 9 + [2.1]) == "rate too small"
    assert zone([2.0, 1.5, 1.0, 0.5, 0.5, 0.5]) == "learns"
    assert zone([2.0, 90.0, 2.3, 2.3, 2.3, 2.3, 2.3]) == "rate too large"
    assert zone([2.0, 90.0, math.inf]) == "rate too large"


def test_a_rate_that_was_not_swept_is_refused_and_the_run_has_its_length():
    settings = Settings(rate=0.3)
    assert len(frame(settings)["run"]) == UPDATES and "With 0.3 " in says(settings, frame(settings))
    with pytest.raises(ValueError, match=r"rate = 0.2: expected 13 values .* nearest is 0.3"):
        Settings(rate=0.2)
