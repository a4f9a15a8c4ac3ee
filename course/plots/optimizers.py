"""Optimizers and schedules: paths down a ravine, rates over a run, races over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from course.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = (BLUE, RED, GREEN, ORANGE, PURPLE, SKY)
STYLES = ("-", "--", "-.", ":", "-", "--")


def plot_paths(
    paths: Mapping[str, Sequence[Sequence[float]]], curvatures: tuple[float, float]
) -> Figure:
    """Paths down the bowl ½(a·x² + b·y²), over its contour lines; the lowest point is (0, 0).

    Args:
        paths: The points [x, y] that an optimizer visits, by name.
        curvatures: a and b.
    """
    import numpy as np

    figure, ax = axes(6.4, 3.0)
    points = np.array([point for path in paths.values() for point in path], dtype=float)
    (left, low), (right, high) = points.min(axis=0) - 0.4, points.max(axis=0) + 0.4
    x, y = np.meshgrid(np.linspace(left, max(right, 0.4), 120), np.linspace(low, high, 120))
    bowl = 0.5 * (curvatures[0] * x**2 + curvatures[1] * y**2)
    ax.contour(x, y, bowl, levels=bowl.max() * np.linspace(0.02, 1, 9) ** 2, colors=GREY,
               linewidths=0.6, alpha=0.6)  # fmt: skip
    for (name, path), colour in zip(paths.items(), COLOURS, strict=False):
        ax.plot(*np.array(path, dtype=float).T, ".-", color=colour, label=name, linewidth=1.2)
    ax.plot(0, 0, "*", color=ORANGE, markersize=10)
    ax.set(xlabel="first weight", ylabel="second weight")
    ax.legend(fontsize=8, frameon=False, loc="upper right")
    return figure


def plot_rates(rates: Mapping[str, Sequence[float]], *, unit: str = "update") -> Figure:
    """The learning rate over a run, by schedule.

    Args:
        rates: One rate per update or epoch, by name.
        unit: The unit of the x axis.
    """
    figure, ax = axes(6.4, 3.0)
    for (name, line), colour, style in zip(rates.items(), COLOURS, STYLES, strict=False):
        ax.plot(range(len(line)), line, style, color=colour, label=name, linewidth=1.8)
    ax.set(xlabel=unit, ylabel="learning rate", ylim=(0, None))
    figure.legend(fontsize=8, frameon=False, loc="outside upper center", ncols=len(rates))
    return figure


def plot_race(counts: Mapping[str, Sequence[float]], most: int) -> Figure:
    """Updates to a goal, one point per seed; runs that never reached it are drawn at the end.

    Args:
        counts: Updates per seed, by name; inf if the goal was not reached.
        most: The number of updates after which a run was stopped.
    """
    figure, ax = axes(6.4, 0.9 + 0.45 * len(counts))
    for row, values in enumerate(counts.values()):
        there = [value for value in values if math.isfinite(value)]
        ax.plot(there, [row] * len(there), "o", color=BLUE, alpha=0.7)
        missed = len(values) - len(there)
        if missed:
            ax.plot(most, row, "X", color=RED, markersize=8)
            ax.annotate(f"{missed} did not get there", (most, row), xytext=(8, 0), ha="left",
                        va="center", textcoords="offset points", fontsize=8)  # fmt: skip
    ax.set(yticks=range(len(counts)), yticklabels=list(counts), xlim=(0, 1.25 * most))
    ax.set_xlabel("updates to the goal, one point per seed")
    ax.invert_yaxis()
    return figure


def plot_losses(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, xlabel: str
) -> Figure:
    """Loss over a run, on a logarithmic axis: pairs of positions and losses, by name."""
    figure, ax = axes(6.4, 3.0)
    for (name, (places, losses)), colour, style in zip(
        curves.items(), COLOURS, STYLES, strict=False
    ):
        ax.plot(places, losses, style, color=colour, label=name, linewidth=1.8)
    ax.set(xlabel=xlabel, ylabel="training loss", yscale="log")
    ax.legend(fontsize=8, frameon=False)
    return figure
