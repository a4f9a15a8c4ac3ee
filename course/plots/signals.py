"""Signals through a deep network: one curve per network, and histograms layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from course.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, axes, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES = ((BLUE, "-"), (RED, "--"), (GREEN, ":"), (ORANGE, "-."), (PURPLE, (0, (5, 1))), (GREY, "-"))
BINS = 31


def plot_depth(
    curves: Mapping[str, Sequence[float]], *, ylabel: str = "standard deviation", title: str = ""
) -> Figure:
    """One number per layer on a logarithmic axis, one curve per network.

    Args:
        curves: The positive numbers of layers 1, 2, ..., by name; a 0 leaves a gap.
        ylabel: What is measured.
        title: Title above the axes.

    Raises:
        ValueError: There are more curves than line styles, or none.
    """
    if not 1 <= len(curves) <= len(LINES):
        raise ValueError(f"{len(curves)} curves: expected 1 to {len(LINES)}.")
    figure, ax = axes(6.0, 3.2)
    for (name, values), (color, style) in zip(curves.items(), LINES, strict=False):
        shown = np.where(np.asarray(values, dtype=float) > 0, values, np.nan)
        ax.plot(range(1, len(shown) + 1), shown, linestyle=style, color=color, label=name, lw=2)
    ax.set(xlabel="layer", ylabel=ylabel, yscale="log", title=title)
    whole_numbers(ax)
    ax.legend(fontsize=8, frameon=False)
    return figure


def plot_histograms(
    rows: Mapping[str, Mapping[str, ArrayLike]],
    *,
    xlabel: str = "output",
    limit: float | None = None,
) -> Figure:
    """One histogram per network (row) and layer (column), each scaled to its own highest bar.

    Args:
        rows: Numbers of any shape, by the name of the network and then of the layer; the same
            layers in each.
        xlabel: What the numbers are.
        limit: The axes run from -limit to limit; by default each has the range of its numbers.

    Raises:
        ValueError: There is nothing to draw.
    """
    if not rows or not all(rows.values()):
        raise ValueError("no histograms: expected at least one network with one layer.")
    from matplotlib.figure import Figure

    columns = max(map(len, rows.values()))
    figure = Figure(figsize=(1.2 + 1.7 * columns, 0.6 + 1.25 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for row, (line, (network, layers)) in enumerate(zip(grid, rows.items(), strict=True)):
        for ax, (layer, values) in zip(line, layers.items(), strict=False):
            _histogram(ax, np.ravel(np.asarray(values, dtype=float)), limit)
            ax.set_title("" if row else layer, fontsize=9)
        line[0].set_ylabel(network, fontsize=9)
    figure.supxlabel(xlabel, fontsize=10)
    return figure


def _histogram(ax: Any, values: Any, limit: float | None) -> None:
    end = limit or float(np.abs(values).max()) or 1.0
    ax.hist(np.clip(values, -end, end), bins=BINS, range=(-end, end), color=BLUE)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set_yticks([])
    ax.set_xticks([-end, 0, end], [f"{-end:.2g}", "0", f"{end:.2g}"], fontsize=7)
