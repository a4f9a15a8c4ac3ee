"""Switches, intervals, groups, leaks, shifts, choosing: by oracles that we did not write."""

import copy

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from torch import nn

from course.analysis.choosing import cost_of_choosing
from course.analysis.leakage import LEAKS
from course.analysis.scores import by_group, coverage, wald_interval, wilson_interval
from course.analysis.shift import KINDS, shifted_digits, tell_shift
from course.analysis.switches import four_combinations

# Switches.


def net(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), *layers, nn.Linear(8, 3))


BATCH = torch.randn(16, 6, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 3


def test_mode_and_graph_change_different_things():
    rows = four_combinations(net(nn.BatchNorm1d(8), nn.Dropout(0.5)), *BATCH)
    assert [(row.mode, row.grad) for row in rows] == [
        ("train", True), ("train", False), ("eval", True), ("eval", False),
    ]  # fmt: skip
    assert [row.same_twice for row in rows] == [False, False, True, True]
    assert [bool(row.moved) for row in rows] == [True, True, False, False]
    assert [row.saved_bytes > 0 for row in rows] == [True, False, True, False]
    assert [row.can_step for row in rows] == [True, False, True, False]


def test_a_layer_norm_knows_no_mode_and_a_relu_keeps_what_torch_says_it_keeps():
    rows = four_combinations(net(nn.LayerNorm(8)), *BATCH)
    assert all(row.same_twice and not row.moved for row in rows)
    kept = four_combinations(net(nn.ReLU()), *BATCH)[0].saved_bytes
    assert kept == 16 * 8 * 4  # the ReLU's output alone: it is the next layer's input, too


def test_the_model_is_left_as_it_came():
    model = net(nn.BatchNorm1d(8), nn.Dropout(0.5)).eval()
    before = copy.deepcopy(model.state_dict())
    four_combinations(model, *BATCH)
    assert not any(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


# Intervals.


@pytest.mark.parametrize(("correct", "num"), [(0, 5), (5, 5), (38, 40), (349, 359), (1, 1)])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_wilson_is_scipys(correct, num, confidence):
    ours = wilson_interval(correct, num, confidence=confidence)
    theirs = binomtest(correct, num).proportion_ci(confidence, method="wilson")
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))
    assert ours.value == correct / num


def test_coverage_is_what_drawing_finds():
    rng = np.random.default_rng(0)
    for rule in (wald_interval, wilson_interval):
        drawn = rng.binomial(30, 0.9, 4000)
        held = [rule(int(c), 30).low <= 0.9 <= rule(int(c), 30).high for c in drawn]
        assert coverage(rule, 0.9, 30) == pytest.approx(np.mean(held), abs=0.02)


def test_counts_out_of_range_are_refused():
    for correct, num in ((-1, 4), (5, 4), (0, 0), (1.5, 4)):
        with pytest.raises(ValueError, match="expected a whole number"):
            wilson_interval(correct, num)
    with pytest.raises(ValueError, match="between 0 and 1"):
        wilson_interval(1, 2, confidence=95)


# Groups.


def test_groups_are_numpys_means_the_lowest_first():
    values, groups = [1, 0, 1, 1, 0, 0], ["b", "a", "b", "b", "a", "c"]
    rows = by_group(values, groups)
    assert [row.name for row in rows] == ["a", "c", "b"]
    for row in rows:
        inside = np.array(values)[np.array(groups) == row.name]
        assert row.mean.value == inside.mean() and row.num == len(inside)
        assert row.mean.low <= row.mean.value <= row.mean.high
    with pytest.raises(ValueError, match="one group per value"):
        by_group(values, groups[:2])


def test_a_share_by_group_has_scipys_wilson_interval():
    from scipy.stats import binomtest

    (row,) = by_group([True] * 135 + [False] * 3, ["10"] * 138)
    exact = binomtest(135, 138).proportion_ci(method="wilson")
    assert (row.mean.low, row.mean.high) == pytest.approx((exact.low, exact.high))


def test_an_error_by_group_has_a_bootstrap_interval():
    (row,) = by_group([0.5, 2.0, 1.0], ["a"] * 3)
    assert 0.5 <= row.mean.low < row.mean.value < row.mean.high <= 2.0


# Leaks.

FOUND = {
    "copies": "leak-overlap", "near copies": "leak-overlap", "groups": "leak-group",
    "times": "leak-time", "preprocessing": "leak-preprocessing",
}  # fmt: skip
GAINS = {"copies": 0.05, "near copies": 0.01, "groups": 0.01, "times": 0.05}
"""What each leak is worth at least; preprocessing is worth nothing (F100)."""


@pytest.mark.parametrize("kind", LEAKS)
@pytest.mark.parametrize("seed", range(2))
def test_each_leak_is_found_and_its_honest_twin_is_not_accused(kind, seed):
    leak = LEAKS[kind](seed=seed)
    assert leak.found == (FOUND[kind],) and leak.found_honest == ()
    if kind == "preprocessing":
        assert abs(leak.gain) < 0.01
    else:
        assert leak.gain > GAINS[kind]


# Shifts.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_a_simulated_shift_is_told_by_its_name(kind, seed):
    digits = shifted_digits(kind, seed=seed)
    model = LogisticRegression(C=0.3, max_iter=300)
    model.fit(digits.train[0].flatten(1).numpy(), digits.train[1].numpy())
    right = [
        torch.from_numpy(model.predict(inputs.flatten(1).numpy())) == targets
        for inputs, targets in (digits.val, digits.production)
    ]
    told = tell_shift(digits.val, digits.production, right=tuple(right), seed=seed)
    assert told.kind == kind, str(told)


def test_a_shift_changes_what_its_name_says_and_nothing_else():
    plain = shifted_digits("none")
    concept, label = shifted_digits("concept"), shifted_digits("label")
    assert torch.equal(concept.production[0], plain.production[0])
    changed = concept.production[1] != plain.production[1]
    assert set(plain.production[1][changed].tolist()) == {4, 9}
    counts = label.production[1].bincount()
    assert counts[[1, 8]].sum() > 0.4 * counts.sum() and counts.min() == 12
    wider = shifted_digits("covariate").production
    assert torch.equal(wider[1], plain.production[1]) and (wider[0] >= plain.production[0]).all()
    assert torch.equal(shifted_digits("covariate").val[0], plain.val[0])


def test_too_few_examples_are_refused():
    inputs, targets = torch.randn(30, 4), torch.arange(30) % 2
    right = torch.ones(30, dtype=torch.bool)
    with pytest.raises(ValueError, match="at least 40"):
        tell_shift((inputs, targets), (inputs, targets), right=(right, right))
    with pytest.raises(ValueError, match="expected one of"):
        shifted_digits("weather")


# Choosing.


def test_choosing_on_the_test_set_reports_more_the_more_there_is_to_choose_from():
    cost = cost_of_choosing((1, 10, 60), num_splits=60)
    assert abs(cost.optimism[0]) < 0.01  # with one candidate nothing is chosen
    assert cost.optimism[2] > cost.optimism[1] > 0.01 and cost.optimism[2] > 0.03
    assert max(map(abs, cost.honest_gap)) < 0.01
    assert cost.val_score[2] - cost.chosen_on_val[2] > 0.03  # validation's own score is spent
