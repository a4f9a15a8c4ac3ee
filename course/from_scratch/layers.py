"""Layers, forward and backward, in NumPy; and a Linear for torch that registers its parameters.

Source: ledger X48, N12, N16, N39, N40.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from course.from_scratch.activations import Array


def linear(x: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None) -> Array:
    """x Wᵀ + b: inputs [N, in], weight [out, in] as in torch, bias [out]."""
    out = np.asarray(x) @ np.asarray(weight).T
    return out if bias is None else out + np.asarray(bias)


def linear_backward(
    x: ArrayLike, weight: ArrayLike, grad_output: ArrayLike
) -> tuple[Array, Array, Array]:
    """Gradients of input [N, in], weight [out, in] and bias [out], from the output's gradient."""
    x, weight, g = np.asarray(x), np.asarray(weight), np.asarray(grad_output)
    return g @ weight, g.T @ x, g.sum(axis=0)


class Linear(nn.Module):
    """y = x Wᵀ + b with a registered weight and bias, initialised as in `torch.nn.Linear`.

    Args:
        in_features: Columns of the input.
        out_features: Columns of the output.
        bias: Whether there is a bias.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        if in_features < 1 or out_features < 1:
            raise ValueError(
                f"Linear({in_features}, {out_features}): expected at least one input and one "
                "output column."
            )
        bound = 1 / math.sqrt(in_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        drawn = torch.empty(out_features).uniform_(-bound, bound)
        self.bias = nn.Parameter(drawn) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        out = x @ self.weight.T
        return out if self.bias is None else out + self.bias


def dropout(x: ArrayLike, keep: ArrayLike, p: float, *, training: bool = True) -> Array:
    """Zero where `keep` is False; scale the rest by 1 / (1 - p), so that the mean is preserved.

    Args:
        x: Activations.
        keep: Booleans of the same shape, each True with probability 1 - p.
        p: Probability of being dropped, from 0 up to, not including, 1.
        training: False: dropout changes nothing.
    """
    if not 0 <= p < 1:
        raise ValueError(f"p = {p}: expected a probability from 0 up to, not including, 1.")
    return np.where(keep, np.asarray(x) / (1 - p), 0.0) if training else np.asarray(x)


@dataclass
class BatchNorm:
    """Normalise each column by the batch in training, by running statistics in evaluation.

    The batch's own variance divides by N; the running one is updated with the unbiased variance,
    divided by N - 1, as in torch.
    """

    num_features: int
    momentum: float = 0.1
    """Share of the new batch in the running statistics."""
    eps: float = 1e-5
    training: bool = True
    running_mean: Array = field(init=False)
    running_var: Array = field(init=False)

    def __post_init__(self) -> None:
        self.running_mean = np.zeros(self.num_features)
        self.running_var = np.ones(self.num_features)

    def __call__(self, x: ArrayLike) -> Array:
        """Normalised x [N, num_features].

        Raises:
            ValueError: The batch has only one row in training, so it has no variance.
        """
        x = np.asarray(x, dtype=float)
        if not self.training:
            return (x - self.running_mean) / np.sqrt(self.running_var + self.eps)
        if len(x) < 2:
            raise ValueError(
                f"a batch of {len(x)} row in training: its variance is 0, so every output would "
                "be 0. Use batches of at least 2, or drop_last=True."
            )
        mean, var = x.mean(axis=0), x.var(axis=0)
        self.running_mean += self.momentum * (mean - self.running_mean)
        self.running_var += self.momentum * (x.var(axis=0, ddof=1) - self.running_var)
        return (x - mean) / np.sqrt(var + self.eps)


def layer_norm(x: ArrayLike, eps: float = 1e-5) -> Array:
    """Normalise each row by its own mean and variance, in training and in evaluation alike."""
    x = np.asarray(x, dtype=float)
    mean, var = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(var + eps)


def group_norm(x: ArrayLike, groups: int, eps: float = 1e-5) -> Array:
    """Normalise each group of channels of each example; independent of the rest of the batch.

    Args:
        x: [N, C, ...]; C is a multiple of `groups`.
        groups: 1 puts all channels into one group, C makes each its own group.
        eps: Added to the variance under the root.
    """
    x = np.asarray(x, dtype=float)
    if x.shape[1] % groups:
        raise ValueError(
            f"{x.shape[1]} channels in {groups} groups: expected a number of groups that divides "
            "the channels."
        )
    return layer_norm(x.reshape(len(x), groups, -1), eps).reshape(x.shape)
