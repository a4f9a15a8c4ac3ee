"""Saliency: which pixels a class's score depends on, by one backward to the images.

Source: ledger T06, T38.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def saliency(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """How strongly each pixel moves the score of its image's label.

    The slope of the label's logit with respect to every channel of the pixel; of the channels the
    steepest counts, whatever its sign. The model is run in eval mode, where images do not mix, so
    one backward of the summed scores serves the whole batch. Model and images are as before.

    Args:
        model: Gives logits [B, C] for images; in any mode when it comes, and in the same after it.
        images: [B, channels, H, W], floating point; whether they require a gradient is no matter.
        labels: Class indices [B], dtype long.

    Returns:
        Magnitudes [B, H, W] without a graph, in the images' dtype.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.enable_grad():
            pixels = images.detach().requires_grad_()
            scores = model(pixels).gather(1, labels[:, None]).sum()
            (slopes,) = torch.autograd.grad(scores, pixels)  # fills no parameter's .grad
    finally:
        for module, training in modes:
            module.training = training
    return slopes.abs().amax(dim=1)
