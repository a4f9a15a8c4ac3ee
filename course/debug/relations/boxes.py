"""Relations on overlaps of boxes in a loss or score: they are taken of corners, not of centres."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

INSIDE_OUT = 0.1
"""Share of the boxes that as corners would end before they begin, from which they are none."""
LEAST_BOXES = 8
"""Boxes of a batch that are no such by chance."""
ENDS = {torch.minimum, Tensor.minimum, torch.min, Tensor.min}
STARTS = {torch.maximum, Tensor.maximum, torch.max, Tensor.max}
SUBTRACTED = {torch.sub, Tensor.sub, Tensor.__sub__}


def overlap(session: Session) -> Iterator[Finding]:
    """The overlap of two boxes does not run from the larger centre to the smaller size."""
    program = program_of(session)
    boxes = [t.detach().cpu() for t in tensors_in(program.batches[0]) if _has_sizes(t)]
    if not boxes:
        raise NotChecked("a batch has no boxes given by centre and size")
    mode = _Overlaps(boxes)
    program.step(program.batches[0], within=mode)
    if mode.seen:
        flat = boxes[0].reshape(-1, 4)
        share = float((flat[:, 2:] <= flat[:, :2]).any(1).double().mean())
        yield Finding(
            "wrong-formula", "error",
            "The loss takes the smaller of two sizes minus the larger of two centres for the "
            f"overlap of boxes: it reads them as corners, but then {share:.0%} of the targets "
            "would end before they begin, and nothing overlaps them.",
            {"boxes": len(flat), "inside_out": share, "times": mode.seen},
            "corners = torch.cat([b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2], 1)\n"
            "loss = 1 - giou(corners_of_outputs, corners_of_targets)",
        )  # fmt: skip


def scored(session: Session) -> Iterator[Finding]:
    """The same of what `evaluate()` computes, where a batch holds boxes in some of its places."""
    boxes = [t.detach().cpu() for b in session.val_epoch.batches for t in tensors_in(b)
             if _has_sizes(t)]  # fmt: skip
    if session.setup.evaluate is None or not boxes:
        raise NotChecked("evaluate() reads no boxes given by centre and size")
    real = [_real(b) for b in boxes]
    mode = _Overlaps([*boxes, *real])
    with session.observe(), mode:
        session.setup.evaluate()
    if mode.seen:
        flat = torch.cat(real)
        share = float((flat[:, 2:] <= flat[:, :2]).any(1).double().mean())
        yield Finding(
            "metric-wrong", "warning",
            "evaluate() takes the smaller of two sizes minus the larger of two centres for the "
            f"overlap of boxes: it reads them as corners, but then {share:.0%} of the "
            f"{len(flat)} boxes of validation would end before they begin.",
            {"boxes": len(flat), "inside_out": share, "times": mode.seen},
            "corners = torch.cat([b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2], 1)",
        )  # fmt: skip


def _real(t: Tensor) -> Tensor:
    """The boxes [N, 4] of a tensor, without rows of zeros, which stand for none."""
    flat = t.reshape(-1, 4)
    return flat[(flat != 0).any(1)]


def _has_sizes(t: Tensor) -> bool:
    """Rows of four numbers, of which the last two are above 0 and often not after the first."""
    if not t.is_floating_point() or t.dim() < 2 or t.shape[-1] != 4 or t.numel() < 4 * LEAST_BOXES:
        return False
    flat = _real(t)
    if len(flat) < LEAST_BOXES or not bool((flat[:, 2:] > 0).all()):
        return False
    return float((flat[:, 2:] <= flat[:, :2]).any(1).double().mean()) > INSIDE_OUT


class _Overlaps(TorchFunctionMode):
    """Counts differences of the smaller of sizes and the larger of centres.

    Args:
        boxes: Tensors of a batch [..., 4].
    """

    def __init__(self, boxes: list[Tensor]) -> None:
        super().__init__()
        self.centres = [b[..., part] for b in boxes for part in (slice(0, 2), 0, 1)]
        self.sizes = [b[..., part] for b in boxes for part in (slice(2, 4), 2, 3)]
        self.ends: list[Tensor] = []
        self.starts: list[Tensor] = []
        self.seen = 0

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            if function in ENDS and _any_is(args, self.sizes):
                self.ends.append(result)
            elif function in STARTS and _any_is(args, self.centres):
                self.starts.append(result)
            elif function in SUBTRACTED and len(args) > 1:
                ends, starts = (any(args[n] is t for t in kept)
                                for n, kept in enumerate((self.ends, self.starts)))  # fmt: skip
                self.seen += ends and starts
        return result


def _any_is(args: Any, known: list[Tensor]) -> bool:
    """One of two tensors holds the same numbers as one that is known."""
    two = [a.detach().cpu().flatten() for a in args[:2] if isinstance(a, Tensor)]
    return len(two) == 2 and any(
        a.numel() == k.numel() and torch.equal(a, k.flatten().to(a.dtype))
        for a in two for k in known
    )  # fmt: skip
