"""Modules that register what they hold, and how images become rows.

    model = Registered(in_features=784, hidden=(128, 64), classes=10)
    model(torch.rand(32, 1, 28, 28)).shape      # (32, 10)

Source: engineering module, §3; lecture, "Parameter registration"; annotated-loop essay, "The
model"; ledger C28, F01, F02.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class Registered(nn.Module):
    """An MLP of any depth, with a learned temperature and the inputs' statistics.

    Each is stored where training, `.to()` and `state_dict()` find it: layers in an `nn.ModuleList`,
    the temperature as an `nn.Parameter`, mean and deviation as buffers.

    Args:
        in_features: Numbers per example, after flattening.
        hidden: Widths of the hidden layers; none: a linear model.
        classes: Outputs.
        mean: Mean of the inputs, which is subtracted.
        std: Standard deviation of the inputs, by which they are divided.

    Raises:
        ValueError: A width is not positive, or `std` is not.
    """

    def __init__(
        self,
        in_features: int,
        hidden: Sequence[int],
        classes: int,
        *,
        mean: float = 0.0,
        std: float = 1.0,
    ) -> None:
        super().__init__()
        widths = [in_features, *hidden, classes]
        if min(widths) < 1:
            raise ValueError(f"widths {widths}: each must be at least 1.")
        if std <= 0:
            raise ValueError(f"std={std}: inputs are divided by it, so it must be positive.")
        pairs = pairwise(widths)
        self.layers = nn.ModuleList([nn.Linear(before, after) for before, after in pairs])
        self.temperature = nn.Parameter(torch.ones(()))
        self.register_buffer("mean", torch.tensor(float(mean)))
        self.register_buffer("std", torch.tensor(float(std)))

    def forward(self, inputs: Tensor) -> Tensor:
        """Scores of shape (N, classes) for inputs of shape (N, ...), in any memory order.

        `flatten(1)` copies if it must; `view` fails on a permuted input.
        """
        rows = ((inputs - self.mean) / self.std).flatten(1)
        for layer in self.layers[:-1]:
            rows = torch.relu(layer(rows))
        return self.layers[-1](rows) / self.temperature
