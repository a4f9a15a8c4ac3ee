"""Activations and their backward passes, in NumPy.

Every function takes arrays of floats of any shape and returns a new array. A `*_backward` takes the
loss's gradient with respect to the output and returns that with respect to the input.

Source: ledger X47, X49, X59, N36.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.floating]


def relu(x: ArrayLike) -> Array:
    """max(x, 0), element by element."""
    return np.maximum(x, 0.0)


def relu_backward(x: ArrayLike, grad_output: ArrayLike) -> Array:
    """The gradient passes where x > 0; at x = 0 it is 0, as torch chooses."""
    return np.where(np.asarray(x) > 0, grad_output, 0.0)


def sigmoid(x: ArrayLike) -> Array:
    """1 / (1 + exp(-x)), without overflow for large negative x."""
    x = np.asarray(x, dtype=float)
    small = np.exp(-np.abs(x))  # at most 1
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def sigmoid_backward(x: ArrayLike, grad_output: ArrayLike) -> Array:
    """s · (1 - s) times the arriving gradient; at most a quarter of it."""
    s = sigmoid(x)
    return np.asarray(grad_output) * s * (1.0 - s)


def tanh_backward(x: ArrayLike, grad_output: ArrayLike) -> Array:
    """(1 - tanh²) times the arriving gradient."""
    return np.asarray(grad_output) * (1.0 - np.tanh(x) ** 2)


def logsumexp(x: ArrayLike, axis: int = -1) -> Array:
    """log Σ exp(x) along an axis. The largest x is subtracted first, so that no exp overflows.

    >>> round(float(logsumexp([1000.0, 1001.0, 1002.0])), 4)  # N36
    1002.4076
    """
    x = np.asarray(x, dtype=float)
    largest = x.max(axis=axis, keepdims=True)
    finite = np.where(np.isfinite(largest), largest, 0.0)  # a row of only -inf stays -inf
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(x - finite).sum(axis=axis, keepdims=True)) + finite
    return total.squeeze(axis)


def log_softmax(x: ArrayLike, axis: int = -1) -> Array:
    """x - logsumexp(x): log-probabilities along an axis."""
    return np.asarray(x, dtype=float) - np.expand_dims(logsumexp(x, axis), axis)


def softmax(x: ArrayLike, axis: int = -1) -> Array:
    """Positive numbers in proportion to exp(x) that add up to 1 along an axis."""
    return np.exp(log_softmax(x, axis))


def softmax_backward(x: ArrayLike, grad_output: ArrayLike, axis: int = -1) -> Array:
    """p · (g - Σ p·g): the part that all classes share cancels out."""
    p, g = softmax(x, axis), np.asarray(grad_output)
    return p * (g - (p * g).sum(axis=axis, keepdims=True))
