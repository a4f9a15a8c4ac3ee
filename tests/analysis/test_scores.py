"""Scores against scikit-learn, torch and closed forms."""

import math

import numpy as np
import pytest
import torch
from sklearn import metrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course.analysis.scores import (
    accuracy_interval,
    bootstrap,
    calibration,
    confusion,
    fit_temperature,
    per_class,
    predict,
    predictions,
    tune_threshold,
)


def some_predictions(num=200, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(classes, (num,), generator=generator)
    logits = torch.randn(num, classes, generator=generator)
    logits[torch.arange(num), targets] += 1.0
    return predictions(logits, targets)


def binary(num=400, prevalence=0.1, seed=0):
    rng = np.random.default_rng(seed)
    targets = (rng.random(num) < prevalence).astype(int)
    return 1 / (1 + np.exp(-(rng.normal(size=num) + 2 * targets - 3))), targets


def test_predict_runs_the_model_once_in_order_and_gives_its_mode_back(device):
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.9), nn.BatchNorm1d(4)).to(device)
    model[2].eval()
    inputs, targets = torch.randn(10, 3), torch.randint(4, (10,))
    found = predict(model, DataLoader(TensorDataset(inputs, targets), 4))
    modes = [module.training for module in model.modules()]
    assert modes == [True, True, True, False]
    with torch.no_grad():
        expected = model.eval()(inputs.to(device)).cpu()
    torch.testing.assert_close(found.logits, expected)
    assert found.targets.equal(targets)
    assert found.accuracy == metrics.accuracy_score(targets, expected.argmax(1))


@pytest.mark.parametrize("shape", [(6,), (6, 1)])
def test_one_logit_an_example_is_yes_or_no(shape):
    logits, targets = torch.randn(shape), torch.randint(2, shape).float()
    found = predictions(logits, targets)
    torch.testing.assert_close(found.probabilities[:, 1], torch.sigmoid(logits.flatten()))
    assert found.predicted.equal((logits.flatten() > 0).long())


@pytest.mark.parametrize(
    ("logits", "targets", "said"),
    [
        (torch.tensor([[0.0, math.nan], [1, 2]]), torch.tensor([0, 1]), "nan or inf.*example 0"),
        (torch.tensor([0.0, math.inf]), torch.tensor([0, 1]), "first at example 1"),
        (torch.zeros(2, 3), torch.eye(3)[:2], "targets.argmax"),
        (torch.zeros(2, 3, 4, 4), torch.zeros(2, 4, 4).long(), "expected logits"),
        (torch.zeros(2, 3), torch.tensor([0]), "expected logits"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), "target 3 with 3 classes"),
        (torch.zeros(2, 3), torch.tensor([0, -100]), "masked"),
        (torch.zeros(2, 3), torch.tensor([0.5, 1.0]), "0.5, which is not a class index"),
    ],
)
def test_what_cannot_be_scored_is_named(logits, targets, said):
    with pytest.raises(ValueError, match=said):
        predictions(logits, targets)


def test_an_empty_loader_and_wrong_names_are_named():
    with pytest.raises(ValueError, match="yields no batch"):
        predict(nn.Linear(2, 2), [])
    with pytest.raises(ValueError, match="3 class_names for 2 classes"):
        predictions(torch.zeros(1, 2), torch.tensor([0]), class_names="abc")


def test_confusion_is_scikit_learns_and_names_the_worst():
    found = some_predictions()
    matrix = confusion(found)
    expected = metrics.confusion_matrix(found.targets, found.predicted)
    assert (matrix.matrix == expected).all()
    true, said, count = matrix.worst(1)[0]
    off = expected - np.diag(np.diag(expected))
    assert count == off.max() == expected[int(true), int(said)]
    assert f"{true} predicted as {said}: {count}" in str(matrix)


def test_per_class_is_scikit_learns():
    found = some_predictions()
    report = metrics.classification_report(found.targets, found.predicted, output_dict=True)
    scores = per_class(found)
    for row in scores.classes:
        assert row.precision == pytest.approx(report[row.name]["precision"])
        assert row.recall == pytest.approx(report[row.name]["recall"])
        assert row.f1 == pytest.approx(report[row.name]["f1-score"])
        assert row.support == report[row.name]["support"]
    assert scores.macro_f1 == pytest.approx(report["macro avg"]["f1-score"])
    assert not scores.note and "macro F1" in str(scores) and "<table>" in scores._repr_html_()


def test_a_class_missing_in_validation_is_unknown_not_zero():
    logits = torch.eye(3)[[0, 0, 1, 2]]
    scores = per_class(predictions(logits, torch.tensor([0, 0, 1, 1]), class_names="abc"))
    assert math.isnan(scores.classes[2].recall) and math.isnan(scores.classes[2].f1)
    assert scores.missing == ("c",) and "no examples of class c" in scores.note
    assert scores.macro_f1 == pytest.approx((1 + 2 / 3) / 2)  # a: 1; b: precision 1, recall 1/2
    assert scores.to_json()["classes"][2]["recall"] is None


def test_always_the_majority_is_90_percent_accurate_with_minority_f1_zero():
    found = predictions(torch.tensor([[1.0, 0.0]]).repeat(1000, 1), (torch.arange(1000) >= 900))
    scores = per_class(found)
    assert scores.accuracy == 0.9 and scores.classes[1].f1 == 0.0  # N60
    assert math.isnan(scores.classes[1].precision)


def test_the_bootstrap_interval_of_a_share_is_near_the_normal_one():
    right = np.array([1.0] * 82 + [0.0] * 18)
    interval = bootstrap(np.mean, right, vectorized=True, resamples=4000)
    half = 1.96 * math.sqrt(0.82 * 0.18 / 100)
    assert interval.value == 0.82
    assert interval.low == pytest.approx(0.82 - half, abs=0.011)
    assert interval.high == pytest.approx(0.82 + half, abs=0.011)


def test_the_bootstrap_interval_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    draws = (rng.random((200, 100)) < 0.7).astype(float)
    intervals = [bootstrap(np.mean, d, vectorized=True, resamples=300) for d in draws]
    assert 0.88 <= np.mean([i.low <= 0.7 <= i.high for i in intervals]) <= 0.99


def test_bootstrap_pairs_its_samples_and_repeats_with_its_seed():
    found = some_predictions(60)
    pair = found.targets, found.predicted
    first = bootstrap(metrics.accuracy_score, *pair, resamples=200)
    assert first == bootstrap(metrics.accuracy_score, *pair, resamples=200)
    assert first.value == found.accuracy and first.low > 0.25  # unpaired: near chance
    assert accuracy_interval(found, resamples=200).value == pytest.approx(found.accuracy)


@pytest.mark.parametrize(
    ("samples", "options", "said"),
    [
        (([1.0],), {}, "at least 2"),
        (([1, 2], [1, 2, 3]), {}, "same length"),
        (([1, 2],), {"confidence": 95}, "confidence = 95"),
        (([1, 2],), {"resamples": 0}, "resamples = 0"),
    ],
)
def test_bootstrap_names_what_it_cannot_take(samples, options, said):
    with pytest.raises(ValueError, match=said):
        bootstrap(np.mean, *samples, **options)


@pytest.mark.parametrize("metric", ["f1", "balanced_accuracy", "accuracy", "mcc"])
def test_no_threshold_beats_the_tuned_one(metric):
    scores, targets = binary()
    tuned = tune_threshold(scores, targets, metric=metric)
    oracle = {
        "f1": metrics.f1_score,
        "balanced_accuracy": metrics.balanced_accuracy_score,
        "accuracy": metrics.accuracy_score,
        "mcc": metrics.matthews_corrcoef,
    }[metric]
    best = max(oracle(targets, scores >= t) for t in np.linspace(0.01, 0.99, 50))
    assert tuned.tuned.value == pytest.approx(oracle(targets, scores >= tuned.threshold))
    assert tuned.tuned.value >= best - 0.02  # thinned to 200 quantiles
    assert tuned.default == pytest.approx(oracle(targets, scores >= 0.5))


def test_all_examples_may_be_predicted_positive():
    scores, targets = [0.1, 0.2, 0.3, 0.4], [1, 1, 0, 1]
    tuned = tune_threshold(scores, targets, metric="f1")
    assert tuned.threshold < 0.1 and tuned.tuned.value == pytest.approx(6 / 7)


def test_a_tuned_threshold_scores_lower_on_fresh_examples_on_average():
    gaps = []
    for seed in range(6):
        scores, targets = binary(60, 0.3, seed)
        fresh_scores, fresh_targets = binary(4000, 0.3, 100 + seed)
        tuned = tune_threshold(scores, targets)
        gaps.append(tuned.tuned.value - tuned.score(fresh_scores, fresh_targets))
    assert np.mean(gaps) > 0.01
    assert "test set" in str(tuned)


@pytest.mark.parametrize(
    ("scores", "targets", "said"),
    [
        ([0.1, 0.2], [0, 0], "without both classes"),
        ([-1.0, 3.0], [0, 1], "torch.sigmoid"),
        ([math.nan, 0.2], [0, 1], "probabilities"),
        ([[0.1, 0.9]], [1], "column 1"),
        ([], [], "no scores"),
        ([0.1, 0.2], [1, 2], "expected only 0 and 1"),
    ],
)
def test_a_threshold_that_cannot_be_tuned_is_named(scores, targets, said):
    with pytest.raises(ValueError, match=said):
        tune_threshold(scores, targets)
    with pytest.raises(ValueError, match="expected one of f1"):
        tune_threshold([0.1, 0.9], [0, 1], metric="auc")


def test_ece_of_one_bin_is_the_gap_between_confidence_and_accuracy():
    logits = torch.tensor([[2.0, 0.0]]).repeat(10, 1)
    found = predictions(logits, torch.tensor([0] * 7 + [1] * 3))
    said = calibration(found)
    assert said.ece == pytest.approx(1 / (1 + math.exp(-2)) - 0.7, abs=1e-6)
    assert said.confidence == pytest.approx((1 / (1 + math.exp(-2)),))
    assert said.accuracy == pytest.approx((0.7,))
    assert said.verdict == "overconfident"
    assert said.nll == pytest.approx(
        metrics.log_loss(found.targets, found.logits.double().softmax(1)), abs=1e-6
    )


def test_the_temperature_is_the_closed_forms():
    # All logits are (z, 0), a share a is right: the best T has sigmoid(z / T) = a.
    found = predictions(torch.tensor([[3.0, 0.0]]).repeat(10, 1), torch.tensor([0] * 7 + [1] * 3))
    temperature = fit_temperature(found)
    assert temperature == pytest.approx(3.0 / math.log(0.7 / 0.3), rel=1e-4)
    after = calibration(found, temperature=temperature)
    assert after.ece == pytest.approx(0.0, abs=1e-4)
    assert after.overall_accuracy == 0.7  # no prediction changed


def test_temperature_repairs_logits_that_were_blown_up():
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(4000, 3, generator=generator)
    targets = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    found = predictions(4 * logits, targets)
    temperature = fit_temperature(found)
    assert temperature == pytest.approx(4.0, rel=0.1)
    assert calibration(found, temperature=temperature).ece < 0.2 * calibration(found).ece


def test_a_temperature_that_has_no_optimum_is_named():
    with pytest.raises(ValueError, match="goes to 0"):
        fit_temperature(predictions(torch.eye(3), torch.arange(3)))
    with pytest.raises(ValueError, match="goes to infinity"):
        fit_temperature(predictions(torch.eye(3), torch.tensor([1, 2, 0])))
    with pytest.raises(ValueError, match="temperature = 0"):
        calibration(some_predictions(), temperature=0)


@pytest.mark.parametrize("right", [True, False])
def test_calibration_takes_only_right_or_only_wrong(right):
    targets = torch.arange(3) if right else torch.tensor([1, 2, 0])
    said = calibration(predictions(torch.eye(3), targets))
    assert said.accuracy == (float(right),)


def test_the_figures_show_the_numbers():
    found = some_predictions()
    labels = [t.get_text() for t in confusion(found).plot().axes[0].texts]
    assert sum(map(int, labels)) == len(found)
    scores, targets = binary()
    line = tune_threshold(scores, targets).plot().axes[0].lines[0]
    assert len(line.get_xdata()) > 100
    said = calibration(found)
    assert tuple(said.plot().axes[0].lines[1].get_xdata()) == said.confidence
