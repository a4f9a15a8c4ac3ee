"""The six ranks that occur in training, each with a line that accepts it and a common mistake.

The lines on the page are the ones that run, on zeros that take no memory, and torch's own answers
are shown. A line that works runs on `meta`, where only shapes are computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

FRAMES, CHANNELS, SIDE, CLASSES = 16, 1, 28, 10
PIXELS = CHANNELS * SIDE * SIDE
SIZES = {"T": FRAMES, "C": CHANNELS, "H": SIDE, "W": SIDE, "F": PIXELS}
"""All dimensions except the batch: frames, channels, rows, columns, features."""


@dataclass(frozen=True)
class Rung:
    """One rank: a typical tensor, a line that works with it, and a line with a common mistake."""

    what: str
    short: str
    dimensions: tuple[str, ...]
    right: str
    wrong: str
    mistake: str
    dtype: torch.dtype = torch.float32

    def shape(self, batch_size: int) -> tuple[int, ...]:
        """The shape in numbers."""
        return tuple({**SIZES, "B": batch_size}[name] for name in self.dimensions)


RUNGS = (
    Rung("the loss", "loss", (), "losses.mean().backward()", "losses.backward()",
         "one loss per example, not averaged"),
    Rung("the labels of a batch", "labels", ("B",), "cross_entropy(logits, labels)",
         "cross_entropy(logits, one_hot(labels, 10))", "one-hot integers instead of indices",
         torch.int64),
    Rung("a table: features of a batch", "features", ("B", "F"), "linear(features)",
         "linear(features.T)", "transposed, features in front"),
    Rung("one image", "image", ("C", "H", "W"), "conv(image)", "conv(image.permute(1, 2, 0))",
         "channels last, as files have them"),
    Rung("a batch of images", "images", ("B", "C", "H", "W"), "linear(images.flatten(1))",
         "linear(images)", "not flattened"),
    Rung("a batch of videos", "videos", ("B", "T", "C", "H", "W"), "conv(videos.flatten(0, 1))",
         "conv(videos)", "time not handled"),
)  # fmt: skip


@cache
def answer(rank: int, batch_size: int, *, wrong: bool) -> str:
    """torch's answer to a line: the shape of the result, or the first line of the error."""
    line, device = (RUNGS[rank].wrong, "cpu") if wrong else (RUNGS[rank].right, "meta")
    try:
        made = eval(line, _names(rank, batch_size, device))
    except RuntimeError as fault:
        return "RuntimeError: " + str(fault).splitlines()[0]
    return "runs" if made is None else f"runs: {list(made.shape)}"


def _names(rank: int, batch_size: int, device: str) -> dict[str, Any]:
    """All that the lines name."""

    def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros((), dtype=dtype, device=device).expand(shape)

    rung = RUNGS[rank]
    return {
        rung.short: zeros(*rung.shape(batch_size), dtype=rung.dtype),
        "losses": torch.zeros(batch_size, device=device, requires_grad=True),
        "logits": zeros(batch_size, CLASSES),
        "linear": partial(functional.linear, weight=zeros(128, PIXELS)),
        "conv": partial(functional.conv2d, weight=zeros(8, CHANNELS, 3, 3)),
        "cross_entropy": functional.cross_entropy,
        "one_hot": functional.one_hot,
    }
