"""How far a window of micro-batches is from the joined batch: the gap between the two gradients.

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

    Tried on copies, so that model and buffers stay as they are, and with the same random numbers
    for both, which are then put back.

    Args:
        model: In the dtype in which the gap is asked: float64 tells rounding from a mistake.
        criterion: Of outputs and targets.
        micro_batches: Pairs of inputs and targets.
        shares: The factor of each micro-batch's loss before backward().

    Raises:
        ValueError: There are not as many shares as micro-batches.
    """
    if len(shares) != len(micro_batches):
        raise ValueError(
            f"{len(shares)} shares for {len(micro_batches)} micro-batches: give one for each."
        )
    inputs, targets = (torch.cat(parts) for parts in zip(*micro_batches, strict=True))
    joined = _gradient(model, criterion, [(inputs, targets)], [1.0])
    accumulated = _gradient(model, criterion, micro_batches, shares)
    return ((accumulated - joined).norm() / joined.norm()).item()


def _gradient(
    model: nn.Module, criterion: Criterion, batches: Sequence[Batch], shares: Sequence[float]
) -> Tensor:
    """All parameters' gradients as one vector, added up over the batches."""
    tried = copy.deepcopy(model)
    tried.zero_grad()
    with undisturbed():
        for (inputs, targets), share in zip(batches, shares, strict=True):
            (criterion(tried(inputs), targets) * share).backward()
    return torch.cat([p.grad.flatten() for p in tried.parameters() if p.grad is not None])
