"""Whether predictions with a confidence of 80 % are right 80 % of the time, and how to fix it.

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
    """Whether predictions with a confidence of 80 % are right 80 % of the time."""

    ece: float
    """Expected calibration error (torchmetrics, L1, equal bins): the count-weighted mean gap."""
    nll: float
    """Mean cross-entropy."""
    confidence: tuple[float, ...]
    """Mean confidence in each bin that holds examples."""
    accuracy: tuple[float, ...]
    """Accuracy in the same bins (scikit-learn's `calibration_curve`)."""
    mean_confidence: float
    overall_accuracy: float
    temperature: float = 1.0
    """The divisor of the logits."""

    @property
    def verdict(self) -> str:
        """Whether it is over- or underconfident, judged by the means."""
        gap = self.mean_confidence - self.overall_accuracy
        if abs(gap) < 0.01:
            return "on average as confident as it should be"
        return "overconfident" if gap > 0 else "underconfident"

    def plot(self) -> Any:
        """A Figure with the reliability diagram."""
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
    """Expected calibration error, and the points of the reliability diagram.

    Args:
        predictions: The model's predictions on validation or test examples.
        temperature: Divide the logits by it first.
        bins: Number of equal bins of confidence.

    Raises:
        ValueError: `temperature` is not above 0, or there is no bin.

    Source: Guo et al. 2017; Lecture 3, "Loss is not the metric" (accuracy hides calibration).
    """
    from sklearn.calibration import calibration_curve
    from torch.nn.functional import cross_entropy
    from torchmetrics.functional.classification import multiclass_calibration_error

    predictions, bins = expect_predictions(predictions), whole_number("bins", bins, 1)
    if not isinstance(temperature, (int, float)) or not 0 < temperature < math.inf:
        raise ValueError(
            f"temperature = {temperature!r}: expected a number above 0; 1 leaves the logits "
            "unchanged."
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
    """The temperature that minimises validation cross-entropy.

    Dividing all logits by one number does not change any prediction, only its confidence.

    Args:
        predictions: Predictions on the validation set, not on the test set.

    Raises:
        ValueError: There is nothing to fit: every prediction is right (the best temperature is 0),
        or the logits do not favour the targets at all (it is infinite).

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
        end = "infinity: the logits do not favour the targets over the other classes"
    if end:
        raise ValueError(
            f"on these {len(predictions)} examples, the best temperature goes to {end}. Fit it on "
            "more, or harder, validation examples."
        )

    def nll(log_temperature: float) -> float:
        return float(cross_entropy(logits / math.exp(log_temperature), targets))

    found = minimize_scalar(nll, bounds=(-7.0, 7.0), method="bounded", options={"xatol": 1e-6})
    return math.exp(float(found.x))
