"""03f.study: turned signs, shares, rounded numbers, broken pairs and another change are seen."""

import itertools
import statistics

import pytest

from autograde import check
from autograde.bank.study import (
    EXERCISE,
    FREE,
    HELPS,
    IMAGE,
    LEAST,
    RECORDED,
    from_the_differences,
    in_images,
    seeds_of_pairs,
)
from course.analysis.study import CHANGES, points
from course.data import load

SEEDS = range(6)


@pytest.fixture(scope="module")
def scores():
    """Accuracies by change, and those of the baseline, with one seed more."""
    data, seeds = load("digits", val_share=0.8), range(len(SEEDS) + 1)
    changes = {"baseline": {}} | {change: CHANGES[change] for change in FREE}
    return {
        name: [points(data, s, **settings) for s in seeds] for name, settings in changes.items()
    }


@pytest.fixture(scope="module")
def differences(scores):
    """Variant minus baseline by change."""
    return {change: minus(scores[change], scores["baseline"]) for change in FREE}


def minus(variant, baseline):
    return [b - a for b, a in zip(variant[: len(SEEDS)], baseline, strict=False)]


def in_points(images):
    return [IMAGE * count for count in images]


def said(change, numbers, seeds=None):
    seeds = list(range(len(numbers))) if seeds is None else seeds
    return in_images({"change": change, "seeds": seeds, "differences": numbers})


@pytest.mark.parametrize("change", FREE)
def test_each_study_is_accepted_as_it_is_and_with_four_decimals(differences, change):
    found = differences[change]
    assert said(change, found) == said(change, [round(d, 4) for d in found]) == ""


@pytest.mark.parametrize("change", HELPS)
def test_the_turned_sign_of_a_change_that_helps_is_seen(differences, change):
    found = differences[change]
    assert min(found) > 0
    assert "variant minus baseline" in said(change, [-d for d in found])


@pytest.mark.parametrize("change", FREE)
def test_shares_and_rounded_numbers_are_refused(differences, change):
    found = differences[change]
    assert "Give points" in said(change, [d / 100 for d in found])
    assert "Was it rounded" in said(change, [round(d, 2) for d in found])


def test_a_share_of_one_image_is_not_taken_for_none():
    assert "Give points" in said("dropout", [IMAGE / 100, *[0.0] * 5])


@pytest.mark.parametrize("of, named", list(itertools.permutations(FREE, 2)))
@pytest.mark.parametrize("first", (0, 10))
def test_another_change_s_numbers_are_refused(of, named, first):
    found, seeds = in_points(RECORDED[of][first : first + 8]), list(range(first, first + 8))
    assert said(of, found, seeds) == ""
    told = said(named, found, seeds)
    assert f"differences of {of} for those seeds. Give those of {named}." in told


@pytest.mark.parametrize("of, named", [("dropout", "smoothing"), ("filters", "dropout")])
def test_a_mean_that_a_change_never_has_is_refused_with_any_seeds(of, named):
    found, seeds = in_points(reversed(RECORDED[of])), list(range(100, 130))
    assert said(of, found, seeds) == ""
    assert f"practically never give for {named}" in said(named, found, seeds)


@pytest.mark.parametrize("change", FREE)
def test_the_recorded_numbers_are_those_of_the_study(differences, change):
    """Another machine may compute a few images otherwise."""
    apart = [d / IMAGE - r for d, r in zip(differences[change], RECORDED[change], strict=False)]
    assert statistics.median(map(abs, apart)) <= 2, apart


def test_an_unknown_change_is_left_to_its_own_field():
    example = EXERCISE.example["differences"]
    assert said("wider", example) == said(None, example) == ""


def test_a_change_that_is_no_name_breaks_nothing():
    assert said(["dropout"], EXERCISE.example["differences"]) == ""


@pytest.mark.parametrize("change", FREE)
def test_differences_of_sorted_scores_are_refused(scores, change):
    assert "Sorting either list" in said(change, sorted_apart(scores, change))


def sorted_apart(scores, change):
    first = slice(len(SEEDS))
    return minus(sorted(scores[change][first]), sorted(scores["baseline"][first]))


@pytest.mark.parametrize("change", FREE)
def test_a_baseline_of_one_seed_and_a_variant_of_the_next_are_refused(scores, change):
    shifted = minus(scores[change][1:], scores["baseline"])
    assert "one seed in both" in said(change, shifted)


@pytest.mark.parametrize("change", FREE)
def test_the_differences_of_other_seeds_or_in_another_order_are_refused(differences, change):
    assert "the order of `seeds`" in said(change, differences[change], list(range(10, 16)))
    assert "the order of `seeds`" in said(change, sorted(differences[change]))
    mixed = [3, 0, 5, 1, 4, 2]
    assert said(change, [differences[change][seed] for seed in mixed], mixed) == ""


@pytest.mark.parametrize("change", FREE)
def test_the_turned_sign_of_any_change_is_seen(change):
    turned = [-value for value in in_points(RECORDED[change])]
    assert "variant minus baseline" in said(change, turned)


@pytest.mark.parametrize("change", FREE)
def test_another_machine_s_rounding_is_accepted_and_unknown_seeds_are_not_compared(change):
    near = [count + off for count, off in zip(RECORDED[change], (3, 0, -2, 0, 0, 1), strict=False)]
    assert said(change, in_points(near)) == ""
    assert said(change, in_points(RECORDED[change][:8]), list(range(95, 103))) == ""
    assert said(change, in_points((*RECORDED[change][-4:], *near[:4])), list(range(26, 34))) == ""


@pytest.mark.parametrize(
    "seeds, told",
    [
        ([0, 1, 2, 3, 4], f"at least {LEAST} whole numbers"),
        ([0, 1, 2, 3, 4, 4, 5, 6], "occurs twice"),
        ([0, 1, 2, 3, 4, 5], "6 seeds, but 8 differences"),
        ([0.5, 1, 2, 3, 4, 5, 6, 7], "whole number"),
        ("0 to 7", f"at least {LEAST} whole numbers"),
        (None, f"at least {LEAST} whole numbers"),
    ],
)
def test_seeds_that_cannot_belong_to_the_differences_are_refused(seeds, told):
    assert told in seeds_of_pairs({**EXERCISE.example, "seeds": seeds})
    assert "give `seeds` first" in in_images({**EXERCISE.example, "seeds": seeds})


def test_right_differences_without_their_seeds_do_not_keep_the_interval_waiting():
    narrow = {**EXERCISE.example, "seeds": 8, "interval": [0.74, 1.20]}
    assert "each end is" in from_the_differences(narrow)


def test_rounded_half_points_are_not_called_shares():
    assert "Was it rounded?" in in_images(
        {**EXERCISE.example, "differences": [0.5, 0.0, 0.5, -0.5, 0.5, 0.5, 0.0, 0.5]}
    )
    shares = [difference / 100 for difference in EXERCISE.example["differences"]]
    assert "These are shares" in in_images({**EXERCISE.example, "differences": shares})


def test_seeds_may_be_a_range():
    verdict = check("03f.study", {**EXERCISE.example, "seeds": range(8)}).verdict
    assert all(result.passed for result in verdict.parts)
