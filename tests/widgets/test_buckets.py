"""The board's counts against torch's predictions, its intervals against SciPy's, its merges."""

from collections import Counter

import pytest
import torch
from scipy.stats import binomtest

from course.analysis.study import train
from course.data import load
from course.widgets.buckets.state import DIGITS, Settings, decision, found, frame, sample


def counts(**settings) -> dict[str, int]:
    return {row["name"]: row["count"] for row in frame(Settings(**settings))["rows"]}


def test_the_counts_are_those_of_the_networks_predictions():
    data = load("digits", val_share=0.8)
    model = train(data, 0)
    with torch.no_grad():
        read = model(data.val_inputs).argmax(dim=1)
    pairs = zip(data.val_targets.tolist(), read.tolist(), strict=True)
    wrong = [(target, guess) for target, guess in pairs if target != guess]
    shown = frame(Settings())
    assert shown["num_mistakes"] == sum(counts().values()) == len(wrong)
    assert counts()["1 missed"] == sum(target == 1 for target, _ in wrong)
    assert counts()["wrongly read as 1"] == sum(guess == 1 for _, guess in wrong)
    assert counts()["another pair"] == sum(not {*pair} & {*DIGITS} for pair in wrong)


@pytest.mark.parametrize("looked_at", [10, 40, 0])
def test_ceilings_and_intervals_are_scipys_share_of_the_error_rate(looked_at):
    shown = frame(Settings(looked_at=looked_at))
    rate = 100 * shown["num_mistakes"] / shown["num_examples"]
    for row in shown["rows"]:
        ends = binomtest(row["count"], shown["seen"]).proportion_ci(0.95, method="wilson")
        expected = (rate * row["count"] / shown["seen"], rate * ends.low, rate * ends.high)
        assert (row["points"], row["low"], row["high"]) == pytest.approx(expected)
    assert sum(row["points"] for row in shown["rows"]) == pytest.approx(rate)


@pytest.mark.parametrize("digit", DIGITS)
def test_merged_buckets_hold_what_both_held(digit):
    apart, merged = counts(), counts(**{f"merge_{digit}": True})
    both = apart[f"{digit} missed"] + apart[f"wrongly read as {digit}"]
    assert merged[f"{digit} and another"] == both
    assert Counter(apart) - Counter(merged) == Counter(
        {name: apart[name] for name in (f"{digit} missed", f"wrongly read as {digit}")}
    )


def test_what_the_page_says_of_ten_the_confident_and_merging():
    ten = frame(Settings(looked_at=10))["rows"][0]
    assert ten["high"] - ten["low"] > ten["points"]
    assert counts(looked_at=40) != counts(looked_at=40, drawn="confident")
    first = {merge: next(iter(counts(merge_8=merge))) for merge in (False, True)}
    assert first[True] == "8 and another" != first[False]


def test_the_confident_ones_are_the_surest_and_a_sample_is_part_of_all():
    errors = found(0)
    surest = sample(errors, 10, "confident")
    least = min(mistake.confidence for mistake in surest)
    assert sum(mistake.confidence > least for mistake in errors.mistakes) < 10
    assert {one.index for one in sample(errors, 20, "random")} < {
        one.index for one in errors.mistakes
    }


def test_two_buckets_differ_if_a_coin_would_hardly_give_their_counts():
    rows = [[{"count": a}, {"count": b}] for a, b in ((19, 19), (28, 20), (40, 10))]
    assert [decision(pair, 100)["apart"] for pair in rows] == [False, False, True]
    assert [binomtest(a, a + b).pvalue < 0.05 for a, b in ((28, 20), (40, 10))] == [False, True]
    assert decision(rows[0][:1], 100)["apart"] is None
