"""How sure a score is: how far it would move with other examples of the same kind.

Source: Efron and Tibshirani, An Introduction to the Bootstrap, ch. 13; ledger F101.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from course.analysis.scores.predicting import Predictions


@dataclass(frozen=True)
class Interval:
    """A number with its bootstrap interval."""

    value: float
    low: float
    high: float
    confidence: float = 0.95

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def bootstrap(
    statistic: Callable[..., Any],
    *samples: Any,
    paired: bool = True,
    vectorized: bool = False,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of any statistic, by `scipy.stats.bootstrap`.

    It says how far the number would move with other validation examples of the same kind. It does
    not know of other seeds of the training, nor of examples that differ from these.

    Args:
        statistic: Of the samples; a score as `f1_score(targets, predicted)`. With `vectorized` it
            takes `axis` and is much faster.
        samples: Arrays or tensors; with `paired`, one entry an example in each.
        paired: Draw the same examples from every sample.
        vectorized: `statistic` takes `axis`.
        confidence: Of the interval, in (0, 1).
        resamples: Draws with replacement.
        seed: Of the draws.

    Raises:
        ValueError: Fewer than two examples, samples of different lengths, or a `confidence` or
            `resamples` out of range.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, ch. 13.
    """
    from scipy import stats

    arrays = [np.asarray(sample) for sample in samples]
    lengths = [len(array) for array in arrays]
    if not lengths or min(lengths) < 2:
        raise ValueError(f"samples of {lengths} examples: an interval needs at least 2 in each.")
    if paired and len(set(lengths)) > 1:
        raise ValueError(f"samples of {lengths} examples: paired ones have the same length.")
    if not 0 < confidence < 1 or resamples < 1:
        raise ValueError(
            f"confidence = {confidence}, resamples = {resamples}: take a confidence between 0 and "
            "1, as 0.95, and at least 1 resample, as 1000."
        )
    value = float(statistic(*arrays, axis=-1) if vectorized else statistic(*arrays))
    with np.errstate(invalid="ignore"):
        drawn = stats.bootstrap(
            arrays, statistic, paired=paired, vectorized=vectorized, n_resamples=resamples,
            confidence_level=confidence, method="percentile", batch=50,
            random_state=np.random.default_rng(seed),  # `rng` only since SciPy 1.15
        ).bootstrap_distribution  # fmt: skip
    tail = (1 - confidence) / 2
    low, high = np.nanquantile(drawn, [tail, 1 - tail])  # a draw may lack a class: nan there
    return Interval(value, float(low), float(high), confidence)


def accuracy_interval(predictions: Predictions, **options: Any) -> Interval:
    """Accuracy with its bootstrap interval; options as of `bootstrap`.

    Where every prediction is right the bootstrap can draw no mistake, and the interval has no
    width; up to 3 / N mistakes are then still plausible (rule of three).
    """
    return bootstrap(np.mean, predictions.right.numpy().astype(float), vectorized=True, **options)
