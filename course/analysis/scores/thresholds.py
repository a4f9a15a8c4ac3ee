"""From which probability on to say yes: chosen on validation, never on the test set.

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
"""Of targets [N] and predicted classes [N]."""
MOST_THRESHOLDS = 200
TUNED_ON = (
    "chosen on these very examples, so its score here is too good: take the threshold from "
    "validation, then score once on a test set that chose nothing"
)


@dataclass(frozen=True)
class Threshold:
    """The threshold that scores best on the examples that chose it."""

    threshold: float
    """Call it 1 where the score is at least this."""
    metric: str
    tuned: Interval
    """The metric at this threshold, on the examples that chose it: too good, see `warning`."""
    default: float
    """The metric at 0.5, on the same examples."""
    candidates: tuple[tuple[float, float], ...]
    """(threshold, metric) of all that were tried, the thresholds rising."""
    measure: Metric

    warning: str = TUNED_ON

    def score(self, scores: Any, targets: Any) -> float:
        """The metric at this threshold on other examples: what to report, from the test set.

        Args:
            scores: [N] probabilities of class 1.
            targets: [N] of 0 and 1.
        """
        scores, targets = _check_scores(scores, targets)
        return float(self.measure(targets, (scores >= self.threshold).astype(int)))

    def plot(self) -> Any:
        """Metric over threshold as a Figure."""
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
    """The threshold on validation scores at which a metric is best.

    Never on the test set: the best of many thresholds fits the noise of the examples that choose
    it. Ties go to the threshold nearest 0.5.

    Args:
        scores: [N] probabilities of class 1, of the validation set.
        targets: [N] of 0 and 1.
        metric: `f1`, `balanced_accuracy`, `accuracy`, `mcc`, or a function of targets and predicted
            classes.
        seed: Of the bootstrap interval.

    Raises:
        ValueError: Another metric, scores that are not probabilities, or one class only.

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
    """Halfway between neighbouring scores, thinned to quantiles where there are many; and 0.5."""
    values = np.unique(scores)
    halfway = (values[1:] + values[:-1]) / 2
    if len(halfway) > MOST_THRESHOLDS:
        halfway = np.quantile(halfway, np.linspace(0, 1, MOST_THRESHOLDS), method="nearest")
    return sorted({0.5, *map(float, halfway)})


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
            f"metric = {metric!r}: known are {', '.join(known)}; or give a function of targets and "
            "predicted classes."
        )
    return metric, known[metric]


def _balanced_accuracy(targets: np.ndarray, predicted: np.ndarray) -> float:
    """Mean recall of the classes that are there; quiet where a bootstrap draw lacks one."""
    from sklearn.metrics import recall_score

    present = sorted(set(targets.tolist()))
    return float(recall_score(targets, predicted, labels=present, average="macro"))


def _check_scores(scores: Any, targets: Any) -> tuple[np.ndarray, np.ndarray]:
    scores = np.asarray(scores, dtype=float)
    targets = np.asarray(targets)
    if scores.shape != targets.shape or scores.ndim != 1:
        raise ValueError(
            f"scores {list(scores.shape)} and targets {list(targets.shape)}: both are [N], one "
            "score per example. Of [N, 2] probabilities take column 1; of more classes tune one "
            "class against the rest."
        )
    if not len(scores):
        raise ValueError("no scores: there is nothing to tune on.")
    if not (np.isfinite(scores).all() and scores.min() >= 0 and scores.max() <= 1):
        raise ValueError(
            f"scores from {scores.min():.3g} to {scores.max():.3g}: probabilities between 0 and 1 "
            "are expected. Logits become probabilities with torch.sigmoid."
        )
    if not set(targets.tolist()) <= {0, 1}:
        raise ValueError(f"targets hold {sorted(set(targets.tolist()))[:5]}: 0 and 1 are expected.")
    return scores, targets.astype(int)
