"""Figures for one training step: what each operation changes, and runs next to each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from course.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = {"new": (GREEN, "new"), "changed": (ORANGE, "changed"), "gone": (RED, "gone")}
"""Colour and word for what an operation did to a tensor; others are unchanged or do not exist."""
WORD = "#111111"
"""Has a contrast above 4.5 on all three colours, in either theme."""
STYLES = ((BLUE, "-"), (RED, "--"), (GREEN, ":"), (PURPLE, "-."), (GREY, "-"))


def plot_touched(states: Mapping[str, Mapping[str, str]]) -> Figure:
    """A table of operations and tensors, coloured where an operation changed something.

    Args:
        states: `new`, `changed`, `gone`, or anything else, by operation and then by tensor.

    Source: Training-loop chapter, c3; ledger T14, S04.
    """
    tensors = list(dict.fromkeys(name for row in states.values() for name in row))
    figure, ax = axes(0.95 * len(tensors) + 1.6, 0.42 * len(states) + 0.8)
    for row, touched in enumerate(states.values()):
        for column, name in enumerate(tensors):
            color, word = MARKS.get(touched.get(name, ""), ("none", ""))
            ax.add_patch(_cell(column, row, color))
            ax.text(column, row, word, ha="center", va="center", color=WORD, fontsize=8)
    ax.set(xlim=(-0.5, len(tensors) - 0.5), ylim=(len(states) - 0.5, -0.5))
    ax.set_xticks(range(len(tensors)), tensors, fontsize=8)
    ax.set_yticks(range(len(states)), list(states), fontsize=8)
    ax.set_title("what each operation changes", fontsize=9)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return figure


def _cell(column: int, row: int, color: str):
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.47, row - 0.44), 0.94, 0.88, facecolor=color, edgecolor=GREY)


def plot_runs(
    runs: Mapping[str, Sequence[float]],
    *,
    ylabel: str,
    xlabel: str = "update",
    log: bool = False,
    first: int = 1,
) -> Figure:
    """One curve per run; values that are not finite are left out.

    Args:
        runs: Values by name, one per update.
        ylabel: What the values are.
        xlabel: What the x axis counts.
        log: Use a logarithmic scale, which leaves out values that are not positive.
        first: Number of the first value.

    Raises:
        ValueError: There are more runs than line styles.
    """
    if len(runs) > len(STYLES):
        raise ValueError(f"{len(runs)} runs: at most {len(STYLES)} can be distinguished.")
    figure, ax = axes(6.0, 3.0)
    for (name, values), (color, style) in zip(runs.items(), STYLES, strict=False):
        shown = [v if math.isfinite(v) and (v > 0 or not log) else math.nan for v in values]
        ax.plot(range(first, first + len(shown)), shown, style, color=color, label=name)
    ax.set(xlabel=xlabel, ylabel=ylabel, yscale="log" if log else "linear")
    figure.legend(loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    return figure
