"""Chapter 3i says what torch and the claims say: graph breaks, and what components cost."""

from pathlib import Path

import pytest
import torch

from autograde import bank
from autograde.bank.graph_breaks import FUNCTIONS
from course.analysis.graph_breaks import graph_breaks
from course.claims import compute

SOURCE = Path(__file__).parents[2] / "notebooks" / "source" / "03i-going-faster.py"


def traced(key):
    body = "\n".join(f"    {line}" for line in FUNCTIONS[key])
    space = {"torch": torch}
    exec(compile(f"def function(x):\n{body}\n", key, "exec"), space)
    return graph_breaks(space["function"], torch.randn(5))


@pytest.mark.parametrize("key", FUNCTIONS)
def test_an_option_applies_where_torch_breaks_the_graph(key, capsys):
    options = {option.key: option for option in bank.load("03i.graph-breaks").options}
    found = traced(key)
    assert (found.graphs > 1 or bool(found.reasons)) == options[key].right


def test_the_table_of_costs_says_what_the_claims_measure():
    text = SOURCE.read_text("utf-8")
    peaks = compute("F54").measured.evidence["peak with micro-batches / with one batch"].values()
    more, less = 100 * (max(peaks) - 1), 100 * (1 - min(peaks))
    assert f"{more:.0f} % more to {less:.0f} % less (F54)" in text
    half = compute("F55").measured.evidence["saved activations, autocast / FP32"]
    assert f"activations times {half:.2f} (F55)" in text
    calls = compute("F138").measured.evidence["operators, 8 micro-batches / one batch"]
    assert calls == 6 and "six times the calls (F138)" in text


def facts(**change):
    return {**bank.load("03i.readiness").example, **change}


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("setup", {"model": "mlp", "loss": "ce", "optimizer": "Adam"}, "keys model, loss"),
        ("setup", {"model": "mlp", "loss": " ", "optimizer": "Adam", "device": "cpu"}, "loss is"),
        (
            "setup",
            {"model": "m", "loss": "cross-entropy", "optimizer": "Adam", "device": "a GPU"},
            "'a GPU'",
        ),
        ("probes", {"one batch": 0.01, "baseline": 0.1}, "2 named probes"),
        ("probes", {"a": 1.0, "A ": 2.0, "b": 3.0}, "2 named probes"),
        ("probes", {"a": "passed", "b": 1.0, "c": 2.0}, "no finite number"),
        ("probes", {"a": float("nan"), "b": 1.0, "c": 2.0}, "no finite number"),
        ("probes", ["a", "b", "c"], "a dictionary"),
        ("scores", {"train": 99, "val": 97}, "not in percent"),
        ("scores", {"train": 0.9, "val": 0.9}, "same loader"),
        ("scores", [0.9, 0.8], "keys train and val"),
        ("resume", ["model", "optimizer"], "3 more are needed"),
        ("resume", ["model", "optimizer", "scheduler", "progress"], "1 more is needed"),
        ("resume", ["model", "optimizer", "scheduler", "progress", "random", "scaler"], "FP32"),
        ("resume", ["weights"], "'weights' is not one of the words"),
        ("risks", [["the loader falls behind", "waiting above 10 %"]], "at least 2"),
        ("risks", [["the loader falls behind", "waiting above 10 %"]] * 2, "at least 2"),
        ("risks", [["overfitting", "a gap of scores"], ["slow", "no"]], "too short"),
        ("risks", ["the loader falls behind", "drift of the inputs"], "list of pairs"),
        ("risks", [["the loader is slow"] * 2, ["rare classes are lost"] * 2], "risk and sign"),
        ("risks", [["a a a", "b b b"], ["c c c", "d d d"]], "too short"),
        ("probes", {"1": 2.3, "2": 0.1, "3": 0.2}, "does not name a probe"),
        ("scores", {"train": 0.04, "val": 0.11}, "is that an accuracy"),
        ("scores", {"train": 0.8, "val": 0.99}, "swapped"),
        ("scores", {"train": 351 / 359, "val": 1402 / 1438}, "the other way round"),
        ("scores", {"train": 0.97772, "val": 0.97497}, "the other way round"),
    ],
)
def test_a_fact_that_cannot_be_checked_is_told_what_is_missing(key, value, says):
    wrong = {fact.key: fact.wrong(facts(**{key: value})) for fact in
             bank.load("03i.readiness").facts}  # fmt: skip
    assert says in wrong.pop(key)
    assert not any(wrong.values())  # one mistake, one part


@pytest.mark.parametrize("digits", [2, 3, 4, 6, 17])
def test_scores_that_a_student_rounded_or_cut_are_not_taken_for_swapped(digits):
    for train, val in ((1402, 351), (1421, 348), (1430, 350), (1395, 355)):
        for cut in (round, lambda value, n: int(value * 10**n) / 10**n):
            given = {"train": cut(train / 1438, digits), "val": cut(val / 359, digits)}
            if given["train"] != given["val"]:
                (scores,) = (f for f in bank.load("03i.readiness").facts if f.key == "scores")
                assert scores.wrong(facts(scores=given)) == ""
