"""How large initial weights are, so that a signal neither dies nor explodes in a deep network.

A layer with weights of variance v and n inputs multiplies the mean square of a signal by n·v. ReLU
halves it. He initialisation makes the product 1 after a ReLU; Xavier makes it 1 on average over
forward and backward.

Source: He et al. 2015; Glorot and Bengio 2010.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

GAIN = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2)}
"""The factor of the standard deviation that compensates for the activation."""


def fans(weight: Tensor) -> tuple[int, int]:
    """Inputs and outputs of one unit: [out, in], or [out, in, height, width] of a convolution."""
    if weight.dim() < 2:
        raise ValueError(
            f"a weight of shape {list(weight.shape)} has no inputs and outputs: expected at least "
            "two dimensions. Set biases to 0."
        )
    field = weight[0, 0].numel()
    return weight.shape[1] * field, weight.shape[0] * field


def he_std(weight: Tensor, activation: str = "relu") -> float:
    """gain / √inputs: keeps the mean square of the forward signal."""
    return _gain(activation) / math.sqrt(fans(weight)[0])


def xavier_std(weight: Tensor, activation: str = "linear") -> float:
    """gain · √(2 / (inputs + outputs)): a compromise between forward and backward."""
    return _gain(activation) * math.sqrt(2 / sum(fans(weight)))


def he_normal_(weight: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Fill in place with normal random numbers with He's standard deviation."""
    with torch.no_grad():
        return weight.normal_(0, he_std(weight), generator=generator)


def xavier_normal_(weight: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Fill in place with normal random numbers with Xavier's standard deviation."""
    with torch.no_grad():
        return weight.normal_(0, xavier_std(weight), generator=generator)


def initialise_(model: nn.Module, activation: str = "relu") -> nn.Module:
    """Initialise every Linear and Conv2d in place with He's weights and with biases of 0.

    Args:
        model: Layers at any depth; other modules, e.g. a BatchNorm, are left unchanged.
        activation: The activation that follows the layers: a key of `GAIN`.

    Returns:
        The same model, with the same parameters in it, so that an optimizer keeps them.
    """
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                layer.weight.normal_(0, he_std(layer.weight, activation))
                if layer.bias is not None:
                    layer.bias.zero_()
    return model


def mean_square_after(
    depth: int, fan_in: int, variance: float, *, activation: str = "linear", residual: bool = False
) -> float:
    """The mean square of a signal after `depth` wide layers, starting from 1, by the rule above.

    Args:
        depth: Number of layers.
        fan_in: Inputs of a unit.
        variance: Variance of the weights, whose mean is 0.
        activation: `relu` halves the mean square after each layer, `linear` leaves it.
        residual: Whether each layer's result is added to its input, of which it is independent.

    >>> mean_square_after(3, 100, 0.02), mean_square_after(3, 100, 0.02, activation="relu")
    (8.0, 1.0)
    """
    if activation not in ("linear", "relu"):
        raise ValueError(f"activation = {activation!r}: expected linear or relu.")
    if residual and activation == "relu":
        raise ValueError(
            "residual=True with relu: the output of a relu has a nonzero mean, so mean squares do "
            "not add up. Use linear: a block that ends in its weights."
        )
    layer = fan_in * variance / (2 if activation == "relu" else 1)
    return (layer + residual) ** depth


def _gain(activation: str) -> float:
    if activation not in GAIN:
        raise ValueError(f"activation = {activation!r}: expected one of {', '.join(GAIN)}.")
    return GAIN[activation]
