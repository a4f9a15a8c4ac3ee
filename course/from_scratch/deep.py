"""A deep network of equal layers, plain or residual, with or without a norm, to study depth.

Source: He et al. 2015, "Deep residual learning for image recognition"; ledger B20.
"""

from __future__ import annotations

from torch import Tensor, nn

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "linear": nn.Identity}
NORMS = {"none": nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


class Layer(nn.Module):
    """Linear, norm, activation; in a residual block, the result is added to the input."""

    def __init__(self, width: int, activation: str, norm: str, residual: bool) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), NORMS[norm](width)
        self.activation, self.residual = ACTIVATIONS[activation](), residual

    def forward(self, x: Tensor) -> Tensor:
        out = self.activation(self.norm(self.linear(x)))
        return x + out if self.residual else out


class DeepNet(nn.Sequential):
    """Flatten, a linear layer, `depth` layers of one width, a linear head.

    Args:
        inputs: Numbers per example.
        classes: Logits per example.
        width: Units of every hidden layer.
        depth: Number of hidden layers.
        activation: A key of `ACTIVATIONS`.
        norm: A key of `NORMS`, between the linear map and the activation.
        residual: Whether each layer is added to its input.
    """

    def __init__(
        self,
        inputs: int,
        classes: int,
        *,
        width: int = 64,
        depth: int = 20,
        activation: str = "relu",
        norm: str = "none",
        residual: bool = False,
    ) -> None:
        for name, value, known in (
            ("activation", activation, ACTIVATIONS), ("norm", norm, NORMS)
        ):  # fmt: skip
            if value not in known:
                raise ValueError(f"{name} = {value!r}: expected one of {', '.join(known)}.")
        layers = [Layer(width, activation, norm, residual) for _ in range(depth)]
        first, head = nn.Linear(inputs, width), nn.Linear(width, classes)
        super().__init__(nn.Flatten(), first, *layers, head)
