"""Losses of two weights as formulas: two valleys, a banana, a saddle; each has the minimum 0.

Sources: Rosenbrock, *An automatic method for finding the greatest or least value of a function*
(1960), for the banana, here a twentieth as steep; the valleys are quadratics of condition 25.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

STEEP = 25.0
"""Curvature across a valley; along it, it is 1. Plain SGD diverges above a rate of 2 / 25."""
TURN = math.sqrt(0.5)
"""Cosine and sine of 45 degrees."""


@dataclass(frozen=True)
class Surface:
    """A loss of two weights, where the race starts, and what the picture shows."""

    loss: Callable[[Tensor, Tensor], Tensor]
    start: tuple[float, float]
    minima: tuple[tuple[float, float], ...]
    box: tuple[float, float, float, float]
    """Left, right, bottom, top."""


def valley(x: Tensor, y: Tensor) -> Tensor:
    """Steep across, flat along, with both directions along a weight's axis."""
    return 0.5 * (x * x + STEEP * y * y)


def turned_valley(x: Tensor, y: Tensor) -> Tensor:
    """The same rotated by 45 degrees, so that neither weight is aligned with the valley."""
    return valley(TURN * (x + y), TURN * (y - x))


def banana(x: Tensor, y: Tensor) -> Tensor:
    """A curved valley whose floor falls slowly."""
    return 0.5 * (1 - x) ** 2 + 5 * (y - x * x) ** 2


def saddle(x: Tensor, y: Tensor) -> Tensor:
    """Flat where it bends down to either side; the race starts almost on the ridge."""
    return 0.5 * x * x + 0.25 * (y * y - 1) ** 2


SURFACES = {
    "valley": Surface(valley, (-4.0, 1.2), ((0.0, 0.0),), (-5.0, 5.0, -2.0, 2.0)),
    "turned valley": Surface(turned_valley, (-3.6, -2.0), ((0.0, 0.0),), (-5.0, 5.0, -4.0, 4.0)),
    "banana": Surface(banana, (-1.2, 1.0), ((1.0, 1.0),), (-2.0, 2.0, -1.0, 2.2)),
    "saddle": Surface(saddle, (-1.5, 0.01), ((0.0, -1.0), (0.0, 1.0)), (-2.0, 2.0, -1.6, 1.6)),
}
