"""Whether a confidence of 80 % is right 80 % of the time, and the temperature that makes it so.

Source: Guo et al. 2017; Lecture 3, "Loss is not the metric" (accuracy hides calibration).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from course.analysis.scores.predicting import Predictions, expect_predictions
from course.whole import whole_number


@dataclass(frozen=True)
class Calibration:
    """Whether a confidence of 80 % is right 80 % of the time."""

    ece: float
    """Expected calibration error (torchmetrics, L1, equal bins): the mean gap, weighed by count."""
    nll: float
    """Mean cross-entropy."""
    confidence: tuple[float, ...]
    """Mean confidence in each bin that holds examples."""
    accuracy: tuple[float, ...]
    """Share of right predictions there (scikit-learn's `calibration_curve`)."""
    mean_confidence: float
    overall_accuracy: float
    temperature: float = 1.0
    """By what the logits were divided."""

    @property
    def verdict(self) -> str:
        """Over- or underconfident, by the means."""
        gap = self.mean_confidence - self.overall_accuracy
        if abs(gap) < 0.01:
            return "confident as it should be, on average"
        return "overconfident" if gap > 0 else "underconfident"

    def plot(self) -> Any:
        """Reliability diagram as a Figure."""
        from course.plots.errors import plot_reliability

        return plot_reliability(self)

    def __str__(self) -> str:
        return (
            f"{self.verdict}: mean confidence {self.mean_confidence:.3f}, accuracy "
            f"{self.overall_accuracy:.3f}; ECE {self.ece:.4f}, NLL {self.nll:.4f} at temperature "
            f"{self.temperature:.3g}"
        )


def calibration(
    predictions: Predictions, *, temperature: float = 1.0, bins: int = 10
) -> Calibration:
    """Expected calibration error and the reliability diagram's points.

    Args:
        predictions: Of the model on validation or test examples.
        temperature: Divide the logits by it first.
        bins: Equal bins of confidence.

    Raises:
        ValueError: `temperature` not above 0, or fewer than one bin.

    Source: Guo et al. 2017; Lecture 3, "Loss is not the metric" (accuracy hides calibration).
    """
    from sklearn.calibration import calibration_curve
    from torch.nn.functional import cross_entropy
    from torchmetrics.functional.classification import multiclass_calibration_error

    predictions, bins = expect_predictions(predictions), whole_number("bins", bins, 1)
    if not isinstance(temperature, (int, float)) or not 0 < temperature < math.inf:
        raise ValueError(
            f"temperature = {temperature!r}: expected a number above 0; 1 leaves the logits alone."
        )
    logits = predictions.logits / temperature
    probabilities = logits.softmax(dim=1)
    confidence = probabilities.amax(dim=1).double().clamp(0, 1)
    ece = multiclass_calibration_error(
        probabilities, predictions.targets, num_classes=predictions.num_classes, n_bins=bins,
        norm="l1",
    )  # fmt: skip
    right = predictions.right.numpy()
    accuracy, mean = calibration_curve(
        right.astype(int), confidence.numpy(), pos_label=1, n_bins=bins
    )
    return Calibration(
        ece=float(ece),
        nll=float(cross_entropy(logits, predictions.targets)),
        confidence=tuple(map(float, mean)),
        accuracy=tuple(map(float, accuracy)),
        mean_confidence=float(confidence.mean()),
        overall_accuracy=predictions.accuracy,
        temperature=float(temperature),
    )


def fit_temperature(predictions: Predictions) -> float:
    """The temperature at which validation cross-entropy is lowest.

    Dividing all logits by one number changes no prediction, only how sure they sound.

    Args:
        predictions: Of the validation set, not of the test set.

    Raises:
        ValueError: Every prediction is right (the best temperature is 0), or the logits do not
            speak for the targets at all (it is infinite): there is nothing to fit.

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks".
    """
    from scipy.optimize import minimize_scalar
    from torch.nn.functional import cross_entropy

    predictions = expect_predictions(predictions)
    logits, targets = predictions.logits.double(), predictions.targets
    of_target = logits.gather(1, targets[:, None])[:, 0]
    end = ""
    if (of_target == logits.amax(dim=1)).all():
        end = "0: every prediction is right"
    elif of_target.mean() <= logits.mean():  # slope of the loss over 1 / T, at 1 / T = 0
        end = "infinity: the logits speak no louder for the target than for the rest"
    if end:
        raise ValueError(
            f"the best temperature runs to {end}, on these {len(predictions)} examples. Fit it on "
            "more, or harder, validation examples."
        )

    def nll(log_temperature: float) -> float:
        return float(cross_entropy(logits / math.exp(log_temperature), targets))

    found = minimize_scalar(nll, bounds=(-7.0, 7.0), method="bounded", options={"xatol": 1e-6})
    return math.exp(float(found.x))
