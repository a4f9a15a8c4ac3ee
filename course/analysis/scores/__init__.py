"""Scores of a classifier: confusion, per class, threshold, calibration, and their uncertainty.

Everything starts from `predict`, which runs the model once over a loader. The metrics are those of
scikit-learn and torchmetrics; this package adds checks and explanations.

    predictions = predict(model, val_loader)
    print(per_class(predictions))
    confusion(predictions).plot()

Source: Lecture 3, "Loss is not the metric" and "Error analysis"; ledger T23, T28, N60, F101.
"""

from course.analysis.scores.calibrating import Calibration, calibration, fit_temperature
from course.analysis.scores.classes import ClassScore, Confusion, PerClass, confusion, per_class
from course.analysis.scores.groups import GroupScore, by_group
from course.analysis.scores.intervals import (
    Interval,
    accuracy_interval,
    bootstrap,
    coverage,
    wald_interval,
    wilson_interval,
)
from course.analysis.scores.predicting import Predictions, check_logits, predict, predictions
from course.analysis.scores.thresholds import TUNED_ON, Threshold, tune_threshold

__all__ = [
    "TUNED_ON",
    "Calibration",
    "ClassScore",
    "Confusion",
    "GroupScore",
    "Interval",
    "PerClass",
    "Predictions",
    "Threshold",
    "accuracy_interval",
    "bootstrap",
    "by_group",
    "calibration",
    "check_logits",
    "confusion",
    "coverage",
    "fit_temperature",
    "per_class",
    "predict",
    "predictions",
    "tune_threshold",
    "wald_interval",
    "wilson_interval",
]
