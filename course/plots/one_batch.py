"""Overfitting one batch: the loss of a single batch over the steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from course.plots.style import BLUE, GREY, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_one_batch(losses: Sequence[float], floor: float = 0.0) -> Figure:
    """The loss at each step, and the floor that it should reach.

    Args:
        losses: One per step; those that are not finite are left out.
        floor: The lowest loss possible, e.g. the entropy of smoothed labels.

    Source: Lecture 1, figure "overfit one batch"; ledger S16.
    """
    figure, ax = axes(5.0, 3.0)
    points = [(step, loss) for step, loss in enumerate(losses, start=1) if math.isfinite(loss)]
    ax.plot([step for step, _ in points], [loss for _, loss in points], color=BLUE)
    ax.axhline(floor, color=GREY, linestyle=":", label=f"floor {floor:.3g}")
    ax.set(xlabel="step", ylabel="loss of the batch")
    ax.legend(fontsize=8, frameon=False)
    return figure
