"""Losses and their gradients with respect to the logits, in NumPy.

All of them return a mean, as torch does with `reduction="mean"`.

Source: ledger X50, N36, N37.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from course.from_scratch.activations import Array, log_softmax, sigmoid


def cross_entropy(
    logits: ArrayLike,
    targets: ArrayLike,
    *,
    label_smoothing: float = 0.0,
    class_weights: ArrayLike | None = None,
    ignore_index: int = -100,
) -> float:
    """Mean cross-entropy of logits [N, C] and class indices [N].

    Args:
        logits: Unnormalised scores.
        targets: Class indices; entries equal to `ignore_index` do not count.
        label_smoothing: Share of the target that is spread evenly over all C classes.
        class_weights: [C]; the mean is then over the targets' weights.
        ignore_index: As in torch, -100 by default.

    Returns:
        The mean; nan if every target is ignored, as in torch.

    >>> round(cross_entropy([[2.0, 1.0, 0.1]], [0]), 6)  # N37
    0.41703
    """
    losses, weights = _per_example(logits, targets, label_smoothing, class_weights, ignore_index)
    with np.errstate(invalid="ignore"):
        return float(np.divide(losses.sum(), weights.sum()))


def cross_entropy_backward(
    logits: ArrayLike,
    targets: ArrayLike,
    *,
    label_smoothing: float = 0.0,
    class_weights: ArrayLike | None = None,
    ignore_index: int = -100,
) -> Array:
    """The gradient [N, C] of `cross_entropy`: (softmax - target) / N in the plain case."""
    log_p = log_softmax(logits)
    target, weights, each = _targets(log_p, targets, label_smoothing, class_weights, ignore_index)
    wanted = target * each  # the weight of each class in each example
    grad = np.exp(log_p) * wanted.sum(axis=1, keepdims=True) - wanted
    return grad / weights.sum()


def _per_example(logits, targets, label_smoothing, class_weights, ignore_index):
    log_p = log_softmax(logits)
    target, weights, each = _targets(log_p, targets, label_smoothing, class_weights, ignore_index)
    return -(target * each * log_p).sum(axis=1), weights


def _targets(log_p, targets, label_smoothing, class_weights, ignore_index):
    """Target distributions [N, C], the weight of each example [N], of each class and example."""
    targets = np.asarray(targets)
    num_classes = log_p.shape[1]
    counts = targets != ignore_index
    _check(targets[counts], num_classes)
    per_class = np.ones(num_classes) if class_weights is None else np.asarray(class_weights, float)
    index = np.where(counts, targets, 0)
    one_hot = np.eye(num_classes)[index]
    smooth = (1 - label_smoothing) * one_hot + label_smoothing / num_classes
    return smooth * counts[:, None], per_class[index] * counts, per_class[None, :]


def _check(targets: np.ndarray, num_classes: int) -> None:
    outside = targets[(targets < 0) | (targets >= num_classes)]
    if len(outside):
        raise ValueError(
            f"target {outside[0]}: expected class indices from 0 to {num_classes - 1}, one less "
            "than the number of columns of the logits."
        )


def bce_with_logits(logits: ArrayLike, targets: ArrayLike) -> float:
    """Mean binary cross-entropy of logits and targets in [0, 1], equal shapes.

    max(z, 0) - z·t + log(1 + exp(-|z|)): the sigmoid is never computed, so nothing overflows.
    """
    z, t = np.asarray(logits, dtype=float), np.asarray(targets, dtype=float)
    if z.shape != t.shape:
        raise ValueError(
            f"logits have shape {list(z.shape)} and targets {list(t.shape)}: expected equal "
            "shapes. A column [N, 1] against [N] would be broadcast to [N, N]."
        )
    return float((np.maximum(z, 0) - z * t + np.log1p(np.exp(-np.abs(z)))).mean())


def bce_with_logits_backward(logits: ArrayLike, targets: ArrayLike) -> Array:
    """(sigmoid(z) - t) / number of entries."""
    z, t = np.asarray(logits, dtype=float), np.asarray(targets, dtype=float)
    return (sigmoid(z) - t) / z.size


def mse(outputs: ArrayLike, targets: ArrayLike) -> float:
    """Mean squared error over all entries, equal shapes."""
    y, t = np.asarray(outputs, dtype=float), np.asarray(targets, dtype=float)
    if y.shape != t.shape:
        raise ValueError(
            f"outputs have shape {list(y.shape)} and targets {list(t.shape)}: expected equal "
            "shapes. A column [N, 1] against [N] would be broadcast to [N, N]."
        )
    return float(((y - t) ** 2).mean())


def mse_backward(outputs: ArrayLike, targets: ArrayLike) -> Array:
    """2·(y - t) / number of entries."""
    y, t = np.asarray(outputs, dtype=float), np.asarray(targets, dtype=float)
    return 2.0 * (y - t) / y.size
