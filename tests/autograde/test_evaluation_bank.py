"""References of chapter 3e against torchmetrics, scikit-learn and scipy."""

import pytest
import torch
from scipy.stats import binomtest
from sklearn.metrics import precision_score, recall_score
from torchmetrics.functional.classification import multiclass_calibration_error

from autograde import bank


@pytest.mark.parametrize("bins", [1, 7, 15])
def test_the_calibration_error_is_torchmetrics_where_no_confidence_lies_on_an_edge(bins):
    generator = torch.Generator().manual_seed(bins)
    probabilities = (3 * torch.randn(300, 4, generator=generator)).softmax(1)
    targets = torch.randint(4, (300,), generator=generator)
    theirs = multiclass_calibration_error(probabilities, targets, num_classes=4, n_bins=bins)
    ours = bank.load("03e.calibration-error").reference(probabilities, targets, bins)
    assert ours == pytest.approx(theirs.item(), abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_no_threshold_has_a_higher_recall_at_that_precision(seed):
    exercise = bank.load("03e.threshold")
    for part in exercise.parts:
        for case in exercise.cases(part, seed):
            scores, targets, least = case["scores"], case["targets"], case["least"]
            threshold, recall = exercise.reference(scores, targets, least)
            for other in scores.tolist():
                said = scores >= other
                if precision_score(targets, said) >= least:
                    assert recall_score(targets, said) <= recall
                    assert recall_score(targets, said) < recall or other <= threshold


@pytest.mark.parametrize("student", ["ada", "Zoë Müller", "李"])
def test_the_interval_of_a_student_is_scipys(student):
    exercise = bank.load("03e.accuracy-interval")
    q, right = exercise.inputs_of(student), exercise.right_value(student)
    theirs = binomtest(q["n"] - q["w"], q["n"]).proportion_ci(0.95, method="wilson")
    assert (right["low"], right["high"]) == pytest.approx((theirs.low, theirs.high))
    share = q["w"] / q["n"]
    half = 1.96 * (share * (1 - share) / right["needed"]) ** 0.5
    assert half == pytest.approx(q["h"] / 100)
