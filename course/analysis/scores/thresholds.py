"""The probability above which to predict the positive class, chosen on validation.

Source: Lecture 3, "From bucket to action" (threshold: tune on validation); ledger T28.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from course.analysis.scores.intervals import Interval, bootstrap

Metric = Callable[[np.ndarray, np.ndarray], float]
"""A function of targets [N] and predicted classes [N]."""
MOST_THRESHOLDS = 200
TUNED_ON = (
    "chosen on these same examples, so its score here is too high: choose the threshold on "
    "validation, then score it once on a test set that was not used to choose anything"
)


@dataclass(frozen=True)
class Threshold:
    """The threshold that scores best on the examples it was chosen on."""

    threshold: float
    """Predict class 1 if the score is at least this."""
    metric: str
    tuned: Interval
    """The metric at this threshold, on the examples it was chosen on: too high, see `warning`."""
    default: float
    """The metric at 0.5, on the same examples."""
    candidates: tuple[tuple[float, float], ...]
    """(threshold, metric) of all that were tried, by ascending threshold."""
    measure: Metric

    warning: str = TUNED_ON

    def score(self, scores: Any, targets: Any) -> float:
        """The metric at this threshold on other examples: report this, for the test set.

        Args:
            scores: [N] probabilities of class 1.
            targets: [N] with values 0 and 1.
        """
        scores, targets = _check_scores(scores, targets)
        return float(self.measure(targets, (scores >= self.threshold).astype(int)))

    def plot(self) -> Any:
        """A Figure of the metric over the threshold."""
        from course.plots.errors import plot_threshold

        return plot_threshold(self)

    def __str__(self) -> str:
        return (
            f"threshold {self.threshold:.3f}: {self.metric} {self.tuned} against "
            f"{self.default:.4g} at 0.5\n  {self.warning}"
        )


def tune_threshold(
    scores: Any, targets: Any, *, metric: str | Metric = "f1", seed: int = 0
) -> Threshold:
    """The threshold that maximises a metric on validation scores.

    Never choose it on the test set: the best of many thresholds fits the noise of the examples it
    is chosen on. Ties go to the threshold nearest 0.5.

    Args:
        scores: [N] probabilities of class 1, of the validation set.
        targets: [N] with values 0 and 1.
        metric: `f1`, `balanced_accuracy`, `accuracy`, `mcc`, or a function of targets and predicted
            classes.
        seed: Seed for the bootstrap interval.

    Raises:
        ValueError: The metric is unknown, scores are not probabilities, or there is only one class.

    Source: Lecture 3, "From bucket to action" (threshold: tune on validation); ledger T28.
    """
    scores, targets = _check_scores(scores, targets)
    if len(set(targets.tolist())) < 2:
        raise ValueError(
            f"all {len(targets)} targets are {targets[0]}: without both classes no threshold is "
            "better than another. Split stratified by class."
        )
    name, measure = _measure(metric)
    tried = []
    for threshold in _thresholds(scores):
        tried.append((threshold, float(measure(targets, (scores >= threshold).astype(int)))))
    best = max(value for _, value in tried)
    if math.isnan(best):
        raise ValueError(f"{name} is nan at every threshold: choose another metric.")
    chosen = min((t for t, value in tried if value == best), key=lambda t: abs(t - 0.5))
    tuned = bootstrap(measure, targets, (scores >= chosen).astype(int), resamples=200, seed=seed)
    default = float(measure(targets, (scores >= 0.5).astype(int)))
    return Threshold(chosen, name, tuned, default, tuple(tried), measure)


def _thresholds(scores: np.ndarray) -> list[float]:
    """Halfway between neighbouring scores, thinned to quantiles if there are many; one below all
    scores, one above them; and 0.5."""
    values = np.unique(scores)
    halfway = (values[1:] + values[:-1]) / 2
    if len(halfway) > MOST_THRESHOLDS:
        halfway = np.quantile(halfway, np.linspace(0, 1, MOST_THRESHOLDS), method="nearest")
    ends = (values[0] / 2, (values[-1] + 1) / 2)
    return sorted({0.5, *map(float, halfway), *map(float, ends)})


def _measure(metric: str | Metric) -> tuple[str, Metric]:
    from sklearn import metrics

    known: dict[str, Metric] = {
        "f1": partial(metrics.f1_score, zero_division=0),
        "balanced_accuracy": _balanced_accuracy,
        "accuracy": metrics.accuracy_score,
        "mcc": metrics.matthews_corrcoef,
    }
    if callable(metric):
        return getattr(metric, "__name__", "metric"), metric
    if metric not in known:
        raise ValueError(
            f"metric = {metric!r}: expected one of {', '.join(known)}, or a function of targets "
            "and predicted classes."
        )
    return metric, known[metric]


def _balanced_accuracy(targets: np.ndarray, predicted: np.ndarray) -> float:
    """Mean recall over the classes present; no warning if a bootstrap draw lacks one."""
    from sklearn.metrics import recall_score

    present = sorted(set(targets.tolist()))
    return float(recall_score(targets, predicted, labels=present, average="macro"))


def _check_scores(scores: Any, targets: Any) -> tuple[np.ndarray, np.ndarray]:
    scores = np.asarray(scores, dtype=float)
    targets = np.asarray(targets)
    if scores.shape != targets.shape or scores.ndim != 1:
        raise ValueError(
            f"scores {list(scores.shape)} and targets {list(targets.shape)}: both must be [N], one "
            "score per example. From [N, 2] probabilities take column 1; with more classes, tune "
            "one class against the rest."
        )
    if not len(scores):
        raise ValueError("no scores, so there is nothing to tune on.")
    if not (np.isfinite(scores).all() and scores.min() >= 0 and scores.max() <= 1):
        raise ValueError(
            f"scores from {scores.min():.3g} to {scores.max():.3g}: expected probabilities between "
            "0 and 1. Convert logits with torch.sigmoid."
        )
    if not set(targets.tolist()) <= {0, 1}:
        raise ValueError(
            f"targets hold {sorted(set(targets.tolist()))[:5]}: expected only 0 and 1."
        )
    return scores, targets.astype(int)
