"""Relations on the axes of tensors: they are moved by permute, not by a new shape.

view and reshape read the same numbers in the same order. If the new shape is the old one with its
axes swapped, channels become rows of the image, or time steps become features.
"""

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

RESHAPES = {Tensor.view, Tensor.reshape, torch.reshape}
LEAST_AXES = 3
"""Axes longer than one of a tensor from which their order has names; rows of a table may
be cut elsewhere."""
COLOURS = (3, 4)
"""Channels that a picture file has, besides one."""
LEAST_SIDE = 8
"""Rows and columns of a picture from which its neighbours can be told from others."""
LEAST_PICTURES = 8
"""Pictures from which neighbouring pixels are compared; with fewer, one odd picture decides."""
SMOOTHER = 0.75
"""Difference of a pixel from the one below, as a share of what it is in the order given, below
which another order is the pictures' own: photographs in their right order are at 1.5 to 2.8, noise
is at 1, and photographs in a wrong shape at 0.07 to 0.58."""


def viewed(session: Session) -> Iterator[Finding]:
    """No view gives a tensor its own axes in a different order."""
    program, mode = program_of(session), _Reshaped()
    if not program.first().calls_any(RESHAPES):
        raise NotChecked("a step calls neither view nor reshape")
    program.step(program.batches[0], within=mode)
    if mode.found is not None:
        before, after = (list(shape) for shape in mode.found)
        yield Finding(
            "rows-mixed", "error",
            f"{before} becomes {after} by view or reshape, which do not move axes: the sizes are "
            "in a new order, but the numbers stay where they were, so the axes are mixed.",
            {"before": before, "after": after},
            "x = x.permute(0, 3, 1, 2)  # [B, H, W, C] to [B, C, H, W]; not x.view(B, C, H, W)",
        )  # fmt: skip


def torn(session: Session) -> Iterator[Finding]:
    """Images are smoother in the axis order they have than in the axis order of image files."""
    pictures = [t for b in session.epoch.batches for t in tensors_in(b)
                if t.dim() == 4 and t.shape[1] in COLOURS
                and min(t.shape[2:]) >= LEAST_SIDE and not t.is_complex()]  # fmt: skip
    if sum(map(len, pictures)) < LEAST_PICTURES:
        raise NotChecked("the loader yields no colour images")
    given = other = 0.0
    for t in pictures:
        channels, height, width = t.shape[1:]
        file = t.contiguous().reshape(len(t), height, width, channels).permute(0, 3, 1, 2)
        given, other = given + _roughness(t), other + _roughness(file)
    if other < SMOOTHER * given:
        shape = list(pictures[0].shape)
        yield Finding(
            "rows-mixed", "error",
            f"Images of shape {shape} would be smooth if their numbers were read as [B, H, W, C]: "
            "they got their shape by view or reshape, which mixes rows and channels.",
            {"shape": shape, "difference_as_given": given / len(pictures),
             "difference_as_read_from_a_file": other / len(pictures)},
            "x = x.permute(0, 3, 1, 2)  # [B, H, W, C] to [B, C, H, W]; not x.reshape(B, C, H, W)",
        )  # fmt: skip


def _roughness(pictures: Tensor) -> float:
    """Mean difference of pixels that lie one below the other."""
    return float(pictures.double().diff(dim=2).abs().mean())


class _Reshaped(TorchFunctionMode):
    """Keeps the first two shapes that are the same axes in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.found: tuple[torch.Size, torch.Size] | None = None

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        if self.found is None and function in RESHAPES and isinstance(result, Tensor):
            before, after = (tuple(n for n in t.shape if n > 1) for t in (args[0], result))
            several = len(set(before)) > 1 and len(before) >= LEAST_AXES
            if several and before != after and sorted(before) == sorted(after):
                self.found = args[0].shape, result.shape
        return result
