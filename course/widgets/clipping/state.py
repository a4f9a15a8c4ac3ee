"""A gradient of two numbers in the plane: summed over micro-batches and clipped in two ways.

The loss of micro-batch i is ½‖w − tᵢ‖² on average over its examples, so its gradient at w = 0 is
−tᵢ and autograd computes it. The window weights by examples as the engine does (`Window`), and the
clipping is the engine's.

Source: Lecture 3, "Simulating a big batch" and "How gradient clipping works"; ledger S22, N19, N20,
N51, F39-F43, F136.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from course.engine import Window, clip_by_global_norm, clip_by_value
from course.widgets.base.settings import Checked, choice, slider, steps

SIZES = (4, 4, 4, 2)
"""Examples in each micro-batch; the last is short."""
TURNS = (0.0, 25.0, -30.0, 80.0)
"""Degrees by which each micro-batch's gradient is rotated from the one that is set."""
LENGTHS = (1.0, 0.8, 1.3, 1.6)
"""Its length, relative to the one that is set."""
REACHES = (3.0, 5.0, 8.0, 14.0)
"""The axes of the plane range from minus to plus one of these."""


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """The gradient, the window, and how it is clipped."""

    first: float = slider(3.0, steps(-6.0, 6.0, 0.5), "first number g₁")
    second: float = slider(4.0, steps(-6.0, 6.0, 0.5), "second number g₂")
    max_norm: float = slider(1.0, steps(0.5, 8.0, 0.5), "ceiling")
    way: str = choice(
        "norm",
        ("norm", "value"),
        "clip",
        names=("the joint norm", "each number alone"),
    )
    accum_steps: int = slider(1, (1, 2, 3, 4), "window K", unit="micro-batches")
    weighed: str = choice(
        "examples",
        ("examples", "equal", "sum"),
        "each loss times",
        names=("its share of examples", "1 / K", "1 (forgotten)"),
    )
    when: str = choice(
        "window", ("window", "micro"), "clip after", names=("the window", "each micro-batch")
    )

    def check(self) -> None:
        """A gradient of length 0 has no direction."""
        if not (self.first or self.second):
            raise ValueError("g₁ = g₂ = 0: a gradient of length 0 has no direction. Move one.")


def frame(settings: Settings) -> dict[str, Any]:
    """Micro-gradients, .grad before and after clipping, and the gradient of one big batch."""
    k = settings.accum_steps
    targets, sizes = _targets(settings), SIZES[-k:] if k > 1 else SIZES[:1]
    shares = _shares(settings, sizes)
    parameters = [torch.zeros(1, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    path, micro = [[0.0, 0.0]], []
    for target, share in zip(targets, shares, strict=True):
        before = path[-1]
        loss = share * 0.5 * ((torch.cat(parameters) - target) ** 2).sum()
        loss.backward()
        if settings.when == "micro":
            _clip(parameters, settings)
        path.append(_grad(parameters))
        micro.append([after - was for after, was in zip(path[-1], before, strict=True)])
    norm_before = math.hypot(*path[-1])
    before = path[-1]
    if settings.when == "window":
        _clip(parameters, settings)
    after = _grad(parameters)
    big = _big_batch(targets, sizes)
    return {
        "path": path,
        "micro": micro,
        "sizes": list(sizes),
        "shares": shares,
        "before": before,
        "after": after,
        "norm_before": norm_before,
        "norm_after": math.hypot(*after),
        "factor": math.hypot(*after) / norm_before if norm_before else math.nan,
        "cosine": _cosine(before, after),
        "big": big,
        "error": math.dist(before, big) if settings.when == "window" else None,
        "ways": _both_ways(before, settings),
        "reach": _reach([*path, big], settings.max_norm),
    }


def _reach(points: list[list[float]], ceiling: float) -> float:
    """The smallest plane that holds every arrow, and the ceiling unless it is far out."""
    far = 1.1 * max(abs(number) for point in points for number in point)
    far = max(far, min(1.1 * ceiling, 3.0))
    return next((reach for reach in REACHES if reach >= far), REACHES[-1])


def _targets(settings: Settings) -> list[Tensor]:
    """Minus the gradient of each micro-batch: the chosen one first, then turned and stretched."""
    made = []
    k = settings.accum_steps
    for turn, length in list(zip(TURNS, LENGTHS, strict=True))[:k]:
        angle = math.radians(turn)
        x = length * (settings.first * math.cos(angle) - settings.second * math.sin(angle))
        y = length * (settings.first * math.sin(angle) + settings.second * math.cos(angle))
        made.append(-torch.tensor([x, y], dtype=torch.float64))
    return made


def _shares(settings: Settings, sizes: tuple[int, ...]) -> list[float]:
    """What each loss is multiplied by before backward."""
    if settings.weighed == "sum":
        return [1.0] * len(sizes)
    if settings.weighed == "equal":
        return [1 / len(sizes)] * len(sizes)
    batches = [(torch.empty(size, 2), torch.empty(size)) for size in sizes]
    window = Window.of(batches, (len, False))
    return [float(share) for share in window.shares()]


def _clip(parameters: list[Tensor], settings: Settings) -> None:
    ways = {"norm": clip_by_global_norm, "value": clip_by_value}
    ways[settings.way](parameters, settings.max_norm)


def _grad(parameters: list[Tensor]) -> list[float]:
    return torch.cat([parameter.grad for parameter in parameters]).tolist()


def _big_batch(targets: list[Tensor], sizes: tuple[int, ...]) -> list[float]:
    """The gradient of all examples as one batch, every example counted once."""
    weight = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    rows = torch.cat([t.expand(size, 2) for t, size in zip(targets, sizes, strict=True)])
    (0.5 * ((weight - rows) ** 2).sum(dim=1)).mean().backward()
    return weight.grad.tolist()


def _both_ways(before: list[float], settings: Settings) -> list[dict[str, Any]]:
    rows = []
    for way in ("norm", "value"):
        parameters = [torch.zeros(1, dtype=torch.float64, requires_grad=True) for _ in before]
        for parameter, number in zip(parameters, before, strict=True):
            parameter.grad = torch.tensor([number], dtype=torch.float64)
        _clip(parameters, settings.changed(way=way))
        after = _grad(parameters)
        rows.append(
            {"way": way, "after": after, "norm": math.hypot(*after),
             "cosine": _cosine(before, after)}
        )  # fmt: skip
    return rows


def _cosine(a: list[float], b: list[float]) -> float:
    long = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=True)) / long if long else math.nan


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """Norms and direction in one sentence."""
    before, after = float(frame["norm_before"]), float(frame["norm_after"])
    turned = float(frame["cosine"]) < 0.99999
    return f"Norm {before:.3g} becomes {after:.3g}; the direction " + (
        f"turns (cosine {float(frame['cosine']):.4f})." if turned else "stays."
    )
