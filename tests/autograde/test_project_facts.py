"""05.ablation and 05.readiness: each fact that cannot be so is refused for what it is."""

import math
from statistics import fmean, pstdev, stdev

import pytest
import torch
from scipy.stats import t

from autograde import bank
from autograde.kinds.value import plain_value
from autograde.words import message
from course.analysis.scores.intervals import wilson_interval

POINTS = [0.8, 0.0, 1.6, 0.8, 2.4, 0.8]
SETTINGS = {"lr": 0.004, "hidden": 64}


OF_590 = wilson_interval(431, 590)
NOTE_OF_590 = {
    **bank.load("05.readiness").example,
    "held_back": [431, 590],
    "train_val": [0.93, 0.78],
    "baseline": 389 / 590,
    "interval": [OF_590.low, OF_590.high],
}


def ends(quantile, error=None):
    """The mean of POINTS, so many standard errors down and up."""
    half = quantile * (stdev(POINTS) / math.sqrt(len(POINTS)) if error is None else error)
    return [float(fmean(POINTS) - half), float(fmean(POINTS) + half)]


ABLATION = {
    "baseline": SETTINGS,
    "variant": {**SETTINGS, "hidden": 128},
    "images": 125,
    "differences": POINTS,
    "interval": ends(t.ppf(0.975, 5)),
    "verdict": "better",
}


def refused(id, given):
    """What is said, by the fact that was refused."""
    said = {fact.key: fact.wrong(given) for fact in bank.load(id).facts}
    return {key: text for key, text in said.items() if text}


def test_an_ablation_that_agrees_with_itself_is_accepted():
    assert refused("05.ablation", ABLATION) == {}


@pytest.mark.parametrize(
    "interval, says",
    [
        (ends(1.96), "1.96 standard errors"),
        (ends(1.96), "belongs to a normal distribution"),
        (ends(t.ppf(0.95, 5)), "belongs to a 90 % interval"),
        (ends(t.ppf(0.975, 6)), "use n - 1"),
        (ends(t.ppf(0.975, 5), stdev(POINTS)), "divided by √n?"),
        (ends(t.ppf(0.95, 5)), "2.02 standard errors"),  # one-sided: not to be called 1.96
        (ends(t.ppf(0.975, 6)), "2.45 standard errors"),
        (ends(1, stdev(POINTS)), f"{math.sqrt(6):.2f} standard errors"),
        ([-high for high in ends(t.ppf(0.975, 5))[::-1]], "it is centred on -1.067, but"),
    ],
)
def test_an_interval_is_refused_by_its_own_width_or_middle(interval, says):
    assert says in refused("05.ablation", {**ABLATION, "interval": interval})["interval"]


def test_no_width_is_judged_by_differences_that_are_refused():
    rounded = {**ABLATION, "differences": [round(value, 1) + 0.01 for value in POINTS]}
    low, high = ends(t.ppf(0.975, 5))
    shifted = refused("05.ablation", {**rounded, "interval": [low + 0.1, high + 0.1]})
    assert "centred on" in shifted["interval"]
    mean = math.fsum(rounded["differences"]) / len(POINTS)
    wide = refused("05.ablation", {**rounded, "interval": [mean - 5, mean + 5]})
    assert "Was it rounded" in wide["differences"]
    assert "Correct the differences first" in wide["interval"]


OURS_SAID = "lr). Misread by the grader: 4 of 4 points. ✔ all right → Counts as right (by hand"


@pytest.mark.parametrize("many", [2, 9])
def test_names_of_settings_are_the_students_words_and_few(many):
    named = {f"{number}{OURS_SAID}": 1 for number in range(many)}
    for baseline in (SETTINGS, {**SETTINGS, **dict.fromkeys(named, 2)}):
        facts = {"baseline": baseline, "variant": {**SETTINGS, **named}}
        exercise = bank.load("05.ablation")
        verdict = exercise.judge_value(plain_value(facts), "ada")
        said = " ".join(message(verdict, exercise).split())
        assert said.count("“0lr).") == 1 and said.count("“") < 5, said
        assert "Counts as right" not in said and said.count("✔") == 1, said


def test_a_seed_is_no_change_and_an_accuracy_no_difference():
    seeds = {"baseline": {**SETTINGS, "seed": 0}, "variant": {**SETTINGS, "seed": 1}}
    assert "seeds are what" in refused("05.ablation", {**ABLATION, **seeds})["variant"]
    accuracies = [88.8, 89.6, 90.4, 88.0, 89.6, 88.8]
    said = refused("05.ablation", {**ABLATION, "differences": accuracies})
    assert "as accuracies are" in said["differences"]


@pytest.mark.parametrize(
    "key, value, says",
    [
        ("train_val", [0.86, 0.97], "11 points above training"),
        ("risks", ["new new new new", "dark dark dark dark"], "4 words or more"),
    ],
)
def test_a_note_of_a_project_is_refused_where_it_cannot_be_so(key, value, says):
    example = bank.load("05.readiness").example
    assert refused("05.readiness", example) == {}
    assert says in refused("05.readiness", {**example, key: value})[key]


@pytest.mark.parametrize(
    "share, says",
    [
        (389 / 590, ""),
        (float(torch.tensor(389 / 590)), ""),
        (0.659, ""),
        (0.6593, ""),
        (0.66, "three or more"),
        (161 / 240, "not a share of 590"),  # within 0.0006 of one
        (0.67083, "not a share of 590"),
    ],
)
def test_a_bar_is_a_share_of_the_images_held_back(share, says):
    said = refused("05.readiness", {**NOTE_OF_590, "baseline": share}).get("baseline", "")
    assert says in said and bool(says) == bool(said)


def test_an_interval_of_another_level_or_of_other_images_is_named():
    narrow, other = wilson_interval(431, 590, confidence=0.9), wilson_interval(187, 240)
    for interval, says in ((narrow, "Wilson's 90 %"), (other, "Is it of other images?")):
        note = {**NOTE_OF_590, "interval": [interval.low, interval.high]}
        said = refused("05.readiness", note).get("interval", "")
        assert says in said


def test_an_interval_object_is_an_interval():
    example = bank.load("05.readiness").example
    hits, images = example["held_back"]
    note = {**example, "interval": wilson_interval(hits, images)}
    verdict = bank.load("05.readiness").judge_given(note)
    assert verdict.points == verdict.max_points


def test_a_fact_that_cannot_be_read_costs_itself_alone():
    example = bank.load("05.readiness").example
    verdict = bank.load("05.readiness").judge_given({**example, "interval": object()})
    assert [part.part.key for part in verdict.parts if not part.passed] == ["interval"]
    said = "\n".join(bank.load("05.readiness").lines(verdict))
    assert "'interval' cannot be read: “An object cannot be the answer" in said


def test_a_fact_that_cannot_be_read_is_missing_for_the_others():
    example = bank.load("05.readiness").example
    verdict = bank.load("05.readiness").judge_given({**example, "held_back": [288, object()]})
    failed = {part.part.key: part.reason for part in verdict.parts if not part.passed}
    assert set(failed) == {"held_back", "baseline", "interval"}
    assert "give those first" in failed["interval"]


def test_a_number_that_cannot_be_read_is_named():
    given = {"full": object(), "folder": 1.0, "peak": 2.0}
    verdict = bank.load("03g.size").judge_value(plain_value(given), "ada")
    assert "'full' cannot be read: “An object cannot be the answer" in verdict.parts[0].raised.text


def test_a_deviation_over_n_is_named():
    half = pstdev(POINTS) / math.sqrt(len(POINTS))
    ablation = {**ABLATION, "interval": ends(t.ppf(0.975, 5), half)}
    assert "Use n - 1" in refused("05.ablation", ablation)["interval"]
