"""Two ways off the tape, and a network that needs both: a target network that follows slowly.

`torch.no_grad()` does not record what is computed inside it; `detach()` returns the result of an
ordinary computation without its history. The numbers are computed either way. A detached tensor
shares its memory with the original: writing into one writes into the other.

Source: Lecture 3, "Two safety habits"; ledger C27.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.no_grad()
def follow(target: nn.Module, online: nn.Module, rate: float) -> None:
    """Move a target network a little towards the trained one; buffers are copied.

    Args:
        target: Changed in place, `target += rate · (online − target)`.
        online: The trained network, with the same architecture.
        rate: In [0, 1]; 1 copies.

    Raises:
        ValueError: `rate` is outside [0, 1], or the two differ in their names or shapes.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"rate={rate}: choose one from 0 (stay) to 1 (copy).")
    shapes = [{n: tuple(t.shape) for n, t in m.state_dict().items()} for m in (target, online)]
    if shapes[0] != shapes[1]:
        other = sorted({n for n, _ in shapes[0].items() ^ shapes[1].items()})
        raise ValueError(
            f"target and online differ in {', '.join(other)}. Build both with the "
            "same architecture."
        )
    for own, new in zip(target.parameters(), online.parameters(), strict=True):
        own.lerp_(new, rate)
    for own, new in zip(target.buffers(), online.buffers(), strict=True):
        own.copy_(new)


def bootstrapped(rewards: Tensor, next_values: Tensor, discount: float) -> Tensor:
    """The target of a value, off the tape: the reward plus the discounted value of the next state.

    Args:
        rewards: (N,), float.
        next_values: (N,), a network's output, on the tape or not.
        discount: In [0, 1].

    Returns:
        (N,); no gradient flows through it, so a loss against it moves only the prediction.
    """
    return rewards + discount * next_values.detach()


def share_memory(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors share their storage, e.g. a tensor and its `detach()`."""
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
