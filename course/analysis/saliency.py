"""Saliency: which pixels the score of a class depends on, from one backward pass to the images.

Source: ledger T06, T38.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def saliency(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """How strongly each pixel affects the score of its image's label.

    It is the largest magnitude, over a pixel's channels, of the slope of the label's logit. The
    model runs in eval mode, in which images do not mix, so one backward pass of the summed scores
    serves the whole batch. Model and images are left unchanged.

    Args:
        model: Returns logits [B, C] for images; its mode, whatever it is, is kept.
        images: [B, channels, H, W], floating point; they may require a gradient or not.
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
            (slopes,) = torch.autograd.grad(scores, pixels)  # does not fill the parameters' .grad
    finally:
        for module, training in modes:
            module.training = training
    return slopes.abs().amax(dim=1)
