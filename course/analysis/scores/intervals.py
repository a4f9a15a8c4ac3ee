"""How certain a score is: how much it would vary with other examples of the same kind.

Source: Efron and Tibshirani, An Introduction to the Bootstrap, ch. 13; Wilson 1927; ledger F101.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from course.analysis.scores.predicting import Predictions, expect_predictions
from course.whole import check_seed, whole_number


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

    It says how much the number would vary with other validation examples of the same kind. It does
    not account for other training seeds, nor for examples of a different kind.

    Args:
        statistic: A function of the samples, e.g. `f1_score(targets, predicted)`. With `vectorized`
            it takes `axis` and is much faster.
        samples: Arrays or tensors; with `paired`, each has one entry per example.
        paired: Draw the same examples from every sample.
        vectorized: `statistic` takes `axis`.
        confidence: Confidence of the interval, in (0, 1).
        resamples: Number of draws with replacement.
        seed: Seed for the draws.

    Raises:
        ValueError: Fewer than two examples, samples of different lengths or with nan, or a
            `confidence`, `resamples` or `seed` out of range.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, ch. 13.
    """
    from scipy import stats

    if not callable(statistic):
        raise ValueError(
            f"statistic = {statistic!r}: expected a function of the samples, e.g. numpy.mean."
        )
    arrays = [np.asarray(sample) for sample in samples]
    for place, array in enumerate(arrays):
        if array.ndim == 0 or array.dtype.kind not in "biuf":
            raise ValueError(
                f"sample {place} is {samples[place]!r}: expected numbers, one per example."
            )
        if not np.isfinite(array).all():
            raise ValueError(
                f"sample {place} holds nan or inf: the interval would ignore the draws that "
                "include it. Drop these examples, or find out where they come from."
            )
    lengths = [len(array) for array in arrays]
    if not lengths or min(lengths) < 2:
        raise ValueError(f"samples of {lengths} examples: an interval needs at least 2 in each.")
    if paired and len(set(lengths)) > 1:
        raise ValueError(
            f"samples of {lengths} examples: paired samples must have the same length."
        )
    if not isinstance(confidence, (int, float)) or not 0 < confidence < 1:
        raise ValueError(f"confidence = {confidence!r}: choose one between 0 and 1, e.g. 0.95.")
    resamples, seed = whole_number("resamples", resamples, 1), check_seed(seed)
    value = float(statistic(*arrays, axis=-1) if vectorized else statistic(*arrays))
    with np.errstate(invalid="ignore"):
        drawn = stats.bootstrap(
            arrays, statistic, paired=paired, vectorized=vectorized, n_resamples=resamples,
            confidence_level=confidence, method="percentile", batch=50,
            random_state=np.random.default_rng(seed),  # `rng` only since SciPy 1.15
        ).bootstrap_distribution  # fmt: skip
    tail = (1 - confidence) / 2
    low, high = np.nanquantile(drawn, [tail, 1 - tail])  # nan if a draw lacks a class
    return Interval(value, float(low), float(high), confidence)


def accuracy_interval(predictions: Predictions, **options: Any) -> Interval:
    """Accuracy with its bootstrap interval; options as for `bootstrap`.

    If every prediction is right, the bootstrap cannot draw a mistake, and the interval has no
    width; an error rate of up to 3 / N is then still plausible (rule of three).
    """
    right = expect_predictions(predictions).right.numpy().astype(float)
    return bootstrap(np.mean, right, vectorized=True, **options)


def wilson_interval(correct: int, num: int, *, confidence: float = 0.95) -> Interval:
    """A share with its Wilson interval: all true shares that the count does not contradict.

    Args:
        correct: How many of `num` are right.
        num: At least 1.
        confidence: In (0, 1).

    Raises:
        ValueError: A count is out of range, or `confidence` is not a probability.

    Source: Wilson 1927.
    """
    share, z = _share_and_z(correct, num, confidence)
    centre = (share + z**2 / (2 * num)) / (1 + z**2 / num)
    half = z / (1 + z**2 / num) * math.sqrt(share * (1 - share) / num + z**2 / (4 * num**2))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half), confidence)


def wald_interval(correct: int, num: int, *, confidence: float = 0.95) -> Interval:
    """The textbook interval share ± z·√(share·(1 − share) / num); too narrow near 0 and 1.

    Args:
        correct: How many of `num` are right.
        num: At least 1.
        confidence: In (0, 1).
    """
    share, z = _share_and_z(correct, num, confidence)
    half = z * math.sqrt(share * (1 - share) / num)
    return Interval(share, share - half, share + half, confidence)


def _share_and_z(correct: int, num: int, confidence: float) -> tuple[float, float]:
    from scipy.stats import norm

    num = whole_number("num", num, 1)
    correct = whole_number("correct", correct, 0, num)
    if not isinstance(confidence, (int, float)) or not 0 < confidence < 1:
        raise ValueError(f"confidence = {confidence!r}: choose one between 0 and 1, e.g. 0.95.")
    return correct / num, float(norm.ppf((1 + confidence) / 2))


def coverage(rule: Callable[[int, int], Interval], share: float, num: int) -> float:
    """How often an interval from `num` examples contains the true share; exact, by the binomial.

    Args:
        rule: `wilson_interval`, `wald_interval`, or another rule with the same arguments.
        share: The true share.
        num: Number of examples.
    """
    from scipy.stats import binom

    counts = np.arange(num + 1)
    holds = [rule(int(c), num).low <= share <= rule(int(c), num).high for c in counts]
    return float(binom.pmf(counts, num, share)[holds].sum())
