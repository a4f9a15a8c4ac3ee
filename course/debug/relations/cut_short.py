"""Batches whose padded rows are cut short: what is padding in everything that would be cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.session import NotChecked
from course.state.nested import tensors_in

Change = Callable[[Tensor], Tensor]


def with_and_without(pads: Tensor | None) -> tuple[Change, Change, int]:
    """Two ways to take the most padded rows of a batch, whole and cut, and how much is cut off.

    Args:
        pads: [B, T], True where a batch is padded.

    Raises:
        NotChecked: No two rows are.
    """
    if pads is None:
        raise NotChecked("no padding is seen after the rows")
    count = pads.sum(1)
    rows = count.argsort(descending=True)[: max(2, len(pads) // 2)]
    cut = int(count[rows].min())
    if cut < 1:
        raise NotChecked("fewer than two rows of a batch are padded")
    size, length = pads.shape

    def long(t: Tensor) -> Tensor:
        return t[rows] if t.dim() and len(t) == size else t

    def short(t: Tensor) -> Tensor:
        is_long = t.dim() > 1 and t.shape[:2] == pads.shape
        return t[rows, : length - cut] if is_long else long(t)

    return long, short, cut


def in_all(pads: Tensor, batch: Any) -> Tensor:
    """Padding that may be cut off everything of its shape: ids with padding in places of their own,
    e.g. another micro-batch or another language, keep what else they have there. The first of the
    signs behind a row is kept, which may be one of its end.

    Raises:
        NotChecked: Other ids go on where these are padded.
    """
    for t in tensors_in(batch):
        if t.shape != pads.shape or t.is_floating_point() or _is_alike(t, pads):
            continue
        value, counts = t[:, -1].unique(return_counts=True)
        own = t == value[counts.argmax()]
        if not only_behind(own):
            raise NotChecked("other ids of the batch go on where some are padded")
        pads = pads & (own.cumsum(1) > 1).to(pads.device)
    return pads


def _is_alike(t: Tensor, pads: Tensor) -> bool:
    """One value where it is padded, e.g. in a mask or in labels, or the same in all rows, e.g.
    positions."""
    return len(t[pads.to(t.device)].unique()) < 2 or bool((t == t[:1]).all())


def only_behind(padding: Tensor) -> bool:
    behind = padding.flip(1).int().cumprod(1).flip(1).bool()
    return torch.equal(behind, padding) and not bool(behind.all(1).any()) and bool(behind.any())
