"""How far the gradient of a window of micro-batches is from that of the joined batch.

Source: Lecture 3, "Practice problems"; ledger X05, N19, F43.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from course.state import undisturbed

Batch = tuple[Tensor, Tensor]
Criterion = Callable[[Tensor, Tensor], Tensor]


def window_gap(
    model: nn.Module, criterion: Criterion, micro_batches: Sequence[Batch], shares: Sequence[float]
) -> float:
    """‖accumulated − joined‖ / ‖joined‖, the norms over all parameters' gradients.

    Computed on copies, so that model and buffers do not change, and with the same random numbers
    for both; the generators are restored.

    Args:
        model: In the dtype to be tested: float64 distinguishes rounding from a mistake.
        criterion: A function of outputs and targets.
        micro_batches: Pairs of inputs and targets.
        shares: The factor of each micro-batch's loss before backward().

    Raises:
        ValueError: The numbers of shares and micro-batches differ.
    """
    if len(shares) != len(micro_batches):
        raise ValueError(
            f"{len(shares)} shares for {len(micro_batches)} micro-batches: give one share for each."
        )
    inputs, targets = (torch.cat(parts) for parts in zip(*micro_batches, strict=True))
    joined = _gradient(model, criterion, [(inputs, targets)], [1.0])
    accumulated = _gradient(model, criterion, micro_batches, shares)
    return ((accumulated - joined).norm() / joined.norm()).item()


def _gradient(
    model: nn.Module, criterion: Criterion, batches: Sequence[Batch], shares: Sequence[float]
) -> Tensor:
    """The gradients of all parameters as one vector, summed over the batches."""
    tried = copy.deepcopy(model)
    tried.zero_grad()
    with undisturbed():
        for (inputs, targets), share in zip(batches, shares, strict=True):
            (criterion(tried(inputs), targets) * share).backward()
    return torch.cat([p.grad.flatten() for p in tried.parameters() if p.grad is not None])
