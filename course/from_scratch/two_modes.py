"""BatchNorm and dropout in torch, written out: what they do in train mode and in eval mode.

Source: Training-loop chapter, c4; Ioffe and Szegedy 2015; Srivastava et al. 2014; ledger N12, N39.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero each entry with probability p and scale the others by 1 / (1 - p); in eval mode, return
    x.

    Args:
        x: Activations of any shape, floating point; not changed.
        p: From 0 to 1, both included; 1 gives zeros.
        training: Whether the mask is drawn, from torch's global generator.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"p = {p}: expected a probability from 0 to 1.")
    if not training:
        return x
    dropped = torch.rand(x.shape, device=x.device) < p  # always if p is 1, since rand stays below
    return x.masked_fill(dropped, 0.0) / (1 - p if p < 1 else 1)


class BatchNorm(nn.Module):
    """Normalise each channel: by the batch in train mode, by running statistics in eval mode.

    The batch's own variance divides by the count n; the running one takes the unbiased variance,
    divided by n - 1, as in torch.

    Args:
        channels: Size of dimension 1 of the input.
        momentum: Share of the new batch in the running statistics.
        eps: Added to the variance under the root.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Normalised x, [N, C] or [N, C, ...], in the same shape and dtype.

        Raises:
            ValueError: In train mode, a channel has only a single number, which has no variance.
        """
        shape = (1, -1) + (1,) * (x.dim() - 2)
        mean, var = self.running_mean, self.running_var
        if self.training:
            mean, var = self._of_the_batch(x)
        normal = (x - mean.view(shape)) / torch.sqrt(var.view(shape) + self.eps)
        return normal * self.weight.view(shape) + self.bias.view(shape)

    def _of_the_batch(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of each channel; the running ones are moved towards them."""
        others = [dim for dim in range(x.dim()) if dim != 1]
        count = x.numel() // x.shape[1]
        if count < 2:
            raise ValueError(
                f"an input of shape {list(x.shape)} in train mode: one number per channel has "
                "variance 0. Use batches of at least 2, or drop_last=True."
            )
        mean, var = x.mean(others), x.var(others, unbiased=False)
        with torch.no_grad():
            self.running_mean += self.momentum * (mean - self.running_mean)
            unbiased = var * count / (count - 1)
            self.running_var += self.momentum * (unbiased - self.running_var)
        return mean, var
