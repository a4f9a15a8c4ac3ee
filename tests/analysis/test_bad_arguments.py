"""What a student types by mistake gets an error that says what was expected, not a traceback."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from course.analysis import (
    CASES,
    Stage,
    bootstrap,
    calibration,
    ceiling_analysis,
    collect_errors,
    confusion,
    fit_temperature,
    one_at_a_time,
    per_class,
    predict,
    read_ablation,
    read_curves,
)
from course.analysis.ablation import paired_interval
from course.analysis.ceiling import digits_pipeline
from course.analysis.scores import accuracy_interval, predictions

LOGITS = torch.tensor([[2.0, 0.0, 1.0], [0.0, 2.0, 1.0], [2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
TARGETS = torch.tensor([0, 1, 1, 2])
MODEL = nn.Linear(3, 3)
LOADER = [(torch.randn(4, 3), TARGETS)]
PAIRS = [(1, 1), (2, 3)]


def stages(score=float):
    return [Stage("one", lambda value: value, lambda value, truth: truth)], PAIRS, score


@pytest.mark.parametrize(
    "change, says",
    [
        ({"optimizer": "adam"}, r"optimizer = 'adam': expected a list .* optimizer=\['adam'\]"),
        ({"lr": 0.3}, r"lr = 0.3: expected a list of the values to try, e.g. lr=\[0.3\]"),
        ({"lr": {"a": 1}}, "expected a list of the values"),
        ({"momentum": [0.9]}, "momentum is not a setting of the baseline, which has lr, optimizer"),
        ({"lr": [0.1]}, "nothing would change"),
        ({}, "nothing would change"),
    ],
)
def test_a_word_is_no_list_of_letters_to_try(change, says):
    with pytest.raises(ValueError, match=says):
        one_at_a_time({"lr": 0.1, "optimizer": "sgd"}, **change)


def test_the_baseline_of_an_ablation_has_names():
    with pytest.raises(ValueError, match="baseline = None: expected a dictionary"):
        one_at_a_time(None, lr=[1])
    with pytest.raises(ValueError, match=r"no such directory. Give the one"):
        read_ablation("nowhere/at/all")


@pytest.mark.parametrize("differences", [[], [1.0], [math.nan, 1.0], [math.inf, 1.0]])
def test_an_interval_needs_two_finite_differences(differences):
    with pytest.raises(ValueError, match="at least 2, all of them finite"):
        paired_interval(differences, 0.95)


def test_logits_may_be_arrays_or_lists():
    whole = predictions(LOGITS, TARGETS)
    for convert in (torch.Tensor.numpy, torch.Tensor.tolist):
        other = predictions(convert(LOGITS), convert(TARGETS))
        assert torch.equal(other.logits, whole.logits) and other.accuracy == 0.75


@pytest.mark.parametrize(
    "logits, targets, says",
    [
        ("abc", TARGETS, "logits = a str: expected a tensor, an array or a list"),
        (LOGITS, None, "targets = a NoneType: expected a tensor"),
        (LOGITS, 1, "targets = 1: expected one entry per example"),
        (LOGITS[:0], TARGETS[:0], "there are no examples, so there is nothing to score"),
    ],
)
def test_logits_that_are_none_are_refused(logits, targets, says):
    with pytest.raises(ValueError, match=says):
        predictions(logits, targets)


@pytest.mark.parametrize(
    "function", [confusion, per_class, calibration, fit_temperature, accuracy_interval]
)
@pytest.mark.parametrize("given", [None, LOGITS, MODEL])
def test_scores_say_where_predictions_come_from(function, given):
    with pytest.raises(ValueError, match=r"expected the result of predict\(model, loader\)"):
        function(given)


@pytest.mark.parametrize("function", [predict, collect_errors])
def test_a_function_is_no_model_and_nothing_no_loader(function):
    with pytest.raises(ValueError, match=r"model is a function: expected an nn.Module"):
        function(lambda inputs: inputs, LOADER)
    with pytest.raises(ValueError, match="loader is a NoneType: expected a DataLoader"):
        function(MODEL, None)


@pytest.mark.parametrize("function", [predict, collect_errors])
def test_class_names_are_one_a_class(function):
    with pytest.raises(ValueError, match="5 class_names for 3 classes: give one per class"):
        function(MODEL, LOADER, class_names="seven")
    with pytest.raises(ValueError, match="2 class_names for 3 classes"):
        function(MODEL, LOADER, class_names=["a", "b"])


@pytest.mark.parametrize(
    "words, says",
    [
        ({"n": 1.5}, "n = 1.5: expected a whole number of at least 1"),
        ({"n": "a"}, "n = 'a': expected a whole number"),
        ({"n": True}, "n = True: expected a whole number"),
        ({"seed": -1}, "seed = -1: expected a whole number from 0"),
        ({"order": "worst"}, "order = 'worst': expected 'confident' or 'random'"),
        ({"tags_path": "."}, "a directory. Name a file in it"),
    ],
)
def test_errors_are_collected_with_sense(words, says):
    with pytest.raises(ValueError, match=says):
        collect_errors(MODEL, LOADER, **words)


def test_a_tag_and_a_rule_have_names():
    errors = collect_errors(MODEL, [(torch.eye(3), (MODEL(torch.eye(3)).argmax(1) + 1) % 3)])
    with pytest.raises(ValueError, match="bucket = None: expected a name"):
        errors.tag(errors.mistakes[0].index, None)
    with pytest.raises(ValueError, match="rules = a list: expected a function of a mistake"):
        errors.assign([len])
    with pytest.raises(ValueError, match="n = -1: expected a whole number of at least 0"):
        errors.plot(-1)
    with pytest.raises(ValueError, match="n = -1"):
        confusion(predictions(LOGITS, TARGETS)).worst(-1)


@pytest.mark.parametrize(
    "words, says",
    [
        ({"temperature": "hot"}, "temperature = 'hot': expected a number above 0"),
        ({"temperature": math.nan}, "temperature = nan: expected a number above 0"),
        ({"bins": 2.5}, "bins = 2.5: expected a whole number of at least 1"),
    ],
)
def test_calibration_takes_numbers(words, says):
    with pytest.raises(ValueError, match=says):
        calibration(predictions(LOGITS, TARGETS), **words)


@pytest.mark.parametrize(
    "sample, words, says",
    [
        ([math.nan, 1.0, 2.0], {}, "sample 0 holds nan or inf"),
        ("abc", {}, "sample 0 is 'abc': expected numbers"),
        (["a", "b"], {}, "expected numbers"),
        (None, {}, "expected numbers"),
        ([1.0, 2.0], {"confidence": 95}, "confidence = 95: choose one between 0 and 1"),
        ([1.0, 2.0], {"confidence": "high"}, "confidence = 'high'"),
        ([1.0, 2.0], {"resamples": 1.5}, "resamples = 1.5: expected a whole number"),
        ([1.0, 2.0], {"seed": -1}, "seed = -1: expected a whole number"),
    ],
)
def test_an_interval_is_drawn_from_numbers(sample, words, says):
    with pytest.raises(ValueError, match=says):
        bootstrap(np.mean, sample, vectorized=True, **words)


def test_a_statistic_is_a_function():
    with pytest.raises(ValueError, match="statistic = 'mean': expected a function"):
        bootstrap("mean", [1.0, 2.0])


@pytest.mark.parametrize(
    "source, says",
    [
        (None, "source is a NoneType: expected what fit"),
        (5, "source is a int: expected"),
        ({"train_loss": [1, 2]}, "source is a dict: expected"),
        ([[1, 2]], r"an epoch is \[1, 2\]: expected a dictionary"),
        ([{"train_loss": 1.0}, {"train_loss": "low"}], "train_loss of epoch 2 is 'low'"),
    ],
)
def test_curves_are_read_from_epochs(source, says):
    with pytest.raises(ValueError, match=says):
        read_curves(source)


def test_one_epoch_is_counted_as_one():
    assert "undecided: 1 epoch;" in str(read_curves([{"train_loss": 1.0}]))


@pytest.mark.parametrize("given", [None, "well", torch.tensor([1.0, 0.0]), math.nan, 2])
def test_a_score_is_a_number_from_0_to_1(given):
    with pytest.raises(ValueError, match=r"score gives .* from 0 \(wrong\) to 1 \(right\)"):
        ceiling_analysis(*stages(lambda said, truth: given))


def test_a_pipeline_is_made_of_stages_and_pairs():
    one, pairs, _ = stages()

    def right(said, truth):
        return float(said == truth)

    assert ceiling_analysis(one, iter(pairs), right).num_examples == 2
    with pytest.raises(ValueError, match="stages holds something that is not a Stage"):
        ceiling_analysis(["detector"], pairs, right)
    with pytest.raises(ValueError, match=r"example 0 is a tuple: expected a pair \(input, truth\)"):
        ceiling_analysis(one, [(1, 2, 3)] * 2, right)


@pytest.mark.parametrize(
    "words, says",
    [
        ({"num_codes": 2.5}, "num_codes = 2.5: expected a whole number of at least 2"),
        ({"num_known": 5000}, "num_known = 5000: expected a whole number from 1 to 1000"),
        ({"noise": -1}, "noise = -1: expected a standard deviation"),
        ({"noise": math.nan}, "noise = nan: expected a standard deviation"),
        ({"seed": "a"}, "seed = 'a': expected a whole number"),
    ],
)
def test_the_codes_of_the_pipeline_can_exist(words, says):
    with pytest.raises(ValueError, match=says):
        digits_pipeline(**words)


@pytest.mark.parametrize("seed", [-1, "a", None, 1.5])
@pytest.mark.parametrize("name", CASES)
def test_a_case_takes_a_seed(name, seed):
    with pytest.raises(ValueError, match=r"seed = .*: expected a whole number from 0"):
        CASES[name](seed=seed)


def test_a_case_counts_what_is_there():
    with pytest.raises(ValueError, match="digit = 11: expected a whole number from 0 to 9"):
        CASES["imbalanced"](digit=11)
    for number in (0, -5, 10**6):
        with pytest.raises(ValueError, match=f"num_queries = {number}: expected a whole number"):
            CASES["ranking"](num_queries=number)
