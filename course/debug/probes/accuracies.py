"""Numbers other than the share of right answers that are also called an accuracy."""

from __future__ import annotations

from torch import Tensor

MOST_ANSWERS = 10
"""Answers of which one is right, in the widest of the accuracies that count several."""


def other_accuracies(outputs: Tensor, targets: Tensor) -> list[float]:
    """Top-k accuracies and balanced ones: over the classes that occur or over all classes, as they
    are or relative to chance."""
    classes = outputs.shape[1]
    best = outputs.topk(min(classes - 1, MOST_ANSWERS), 1).indices
    top = (best == targets[:, None]).cumsum(1).float().mean(0).tolist()
    hits = outputs.argmax(1) == targets
    recalls = [float(hits[targets == k].float().mean()) for k in targets.unique()]
    balanced = [sum(recalls) / n for n in (len(recalls), classes)]
    above = [(b - 1 / n) / (1 - 1 / n) for b in balanced for n in (len(recalls), classes) if n > 1]
    return [*top, *balanced, *above]
