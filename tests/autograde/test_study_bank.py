"""03f.study: turned signs, shares, rounded numbers and another change's numbers are seen."""

import itertools
import statistics

import pytest

from autograde.bank.study import EXERCISE, FREE, HELPS, IMAGE, RECORDED, in_images
from course.analysis.study import CHANGES, points
from course.data import load

SEEDS = range(6)


@pytest.fixture(scope="module")
def differences():
    """Variant minus baseline by change."""
    data = load("digits", val_share=0.8)
    base = [points(data, seed) for seed in SEEDS]
    return {
        change: [points(data, s, **CHANGES[change]) - base[s] for s in SEEDS] for change in FREE
    }


def said(change, numbers):
    return in_images({"change": change, "differences": numbers})


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
    found = [IMAGE * images for images in RECORDED[of][first : first + 8]]
    assert said(of, found) == ""
    assert f"of {of} for seeds {first} to {first + 7}. Give those of {named}." in said(named, found)


@pytest.mark.parametrize("of, named", [("dropout", "smoothing"), ("filters", "dropout")])
def test_a_mean_that_a_change_never_has_is_refused_with_any_seeds(of, named):
    found = [IMAGE * images for images in reversed(RECORDED[of])]
    assert said(of, found) == ""
    assert f"practically never give for {named}" in said(named, found)


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
