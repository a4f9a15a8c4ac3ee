"""Checkpoints and repeats: how far apart runs are, how large files are, what a kill leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from course.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = ((RED, "--"), (ORANGE, "-."), (PURPLE, ":"), (BLUE, "-"), (GREEN, "--"), (SKY, "-."))
FOUND = {"old": (SKY, "old"), "new": (GREEN, "new"), "cut off": (RED, "cut off"),
         "missing": (ORANGE, "nothing")}  # fmt: skip
"""Colour and word for what a file holds at an instant."""
WORD = "#111111"
"""Has a contrast above 4.5 on all four colours, in either theme."""
FLOOR = 1e-9
"""Where 0 is drawn on a logarithmic axis: below any difference that a float32 rounding makes."""


def plot_distances(distances: Mapping[str, Sequence[float]]) -> Figure:
    """Distances between two runs after each update; 0 is drawn at the bottom of the axis.

    Args:
        distances: The largest difference between weights after each update, by what was missing.

    Raises:
        ValueError: There are more lines than can be distinguished.
    """
    if len(distances) > len(LINES):
        raise ValueError(f"{len(distances)} runs: at most {len(LINES)} lines can be distinguished.")
    figure, ax = axes(7.0, 3.4)
    for (name, values), (colour, style) in zip(distances.items(), LINES, strict=False):
        shown = [max(value, FLOOR) for value in values]
        ax.plot(range(1, len(shown) + 1), shown, style, color=colour, label=name, linewidth=1.6)
    _with_zero(ax.yaxis)
    ax.set(xlabel="update after the interruption", ylabel="largest difference between weights")
    figure.legend(loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    return figure


def plot_repeats(distances: Mapping[str, float]) -> Figure:
    """One bar per change: how far the repeated run ends from the first; 0 has no bar.

    Args:
        distances: The largest difference between weights, by what was changed.
    """
    figure, ax = axes(7.0, 0.9 + 0.42 * len(distances))
    names, values = list(distances), list(distances.values())
    ax.barh(names, [max(value, FLOOR) for value in values], color=BLUE, height=0.6)
    for row, value in enumerate(values):
        text = "0: the same bits" if value == 0 else f"{value:.1g}"
        ax.annotate(text, (max(value, FLOOR), row), xytext=(4, 0), textcoords="offset points",
                    va="center", fontsize=8)  # fmt: skip
    ax.invert_yaxis()
    _with_zero(ax.xaxis)
    ax.set(xlabel="largest difference between weights at the end", xlim=(FLOOR, 1e2))
    return figure


def _with_zero(axis) -> None:
    """A logarithmic axis whose bottom is labelled 0."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    ticks = [FLOOR, 1e-7, 1e-5, 1e-3, 1e-1]
    axis.set_ticks(ticks, ["0", *(f"{tick:.0e}" for tick in ticks[1:])])
    axis.set_minor_locator(_no_ticks())


def _no_ticks():
    from matplotlib.ticker import NullLocator

    return NullLocator()


def plot_sizes(bytes_of: Mapping[str, Mapping[str, float]]) -> Figure:
    """One bar per optimizer, made of the parts of its checkpoint.

    Args:
        bytes_of: The bytes of each part of the checkpoint, by optimizer: the weights first.

    Source: Training-loop chapter, c7, costs; ledger N49.
    """
    parts = list(dict.fromkeys(part for sizes in bytes_of.values() for part in sizes))
    figure, ax = axes(7.0, 1.1 + 0.5 * len(bytes_of))
    for row, sizes in enumerate(bytes_of.values()):
        unit, left = sizes[parts[0]], 0.0
        for part, colour in zip(parts, (BLUE, ORANGE, SKY, GREY), strict=False):
            width = sizes.get(part, 0.0) / unit
            ax.barh(row, width, left=left, color=colour, height=0.6, label=part if not row else "")
            left += width
        ax.annotate(f"{left:.2f} times", (left, row), xytext=(4, 0), textcoords="offset points",
                    va="center", fontsize=8)  # fmt: skip
    ax.set_yticks(range(len(bytes_of)), list(bytes_of))
    ax.set(xlabel="size of the file, relative to a file with the weights alone")
    ax.margins(x=0.2)
    ax.invert_yaxis()
    figure.legend(loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    return figure


def plot_instants(looks: Mapping[str, Sequence[str]]) -> Figure:
    """What is found at a file's path while it is written: one row per way of writing.

    Args:
        looks: For each way of writing, `old`, `cut off`, `missing` and `new` in order of time, each
            for as long as it lasted.

    Source: Training-loop chapter, c7, component 1; ledger C10.
    """
    longest = max(len(row) for row in looks.values())
    figure, ax = axes(7.0, 0.8 + 0.5 * len(looks))
    for row, found in enumerate(looks.values()):
        for column, what in enumerate(found):
            _word(ax, column, row, *FOUND[what])
    ax.set(xlim=(-0.5, longest - 0.5), ylim=(len(looks) - 0.5, -0.5))
    ax.set_yticks(range(len(looks)), list(looks))
    ax.set_xticks([])
    ax.set_xlabel("time →")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return figure


def _word(ax: Axes, column: int, row: int, colour: str, word: str) -> None:
    from matplotlib.patches import Rectangle

    box = Rectangle((column - 0.48, row - 0.42), 0.96, 0.84, facecolor=colour, edgecolor=GREY)
    ax.add_patch(box)
    ax.text(column, row, word, ha="center", va="center", color=WORD, fontsize=9)
