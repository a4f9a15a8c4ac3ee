"""Figures for speed: single calls and their median, products by size, workers, costs, gaps.

Source: Engineering module, §5 and lab 5; Lecture 3, "Is the GPU waiting?"; ledger X27, C34, T33.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, GREY, ORANGE, RED, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES = ((BLUE, "o-"), (ORANGE, "s--"), (GREEN, "^:"))
NONE = 1e-9
"""The smallest gap drawn, also for 0 and rounding: a log axis has no 0."""


def _plain_ticks(axis: Any) -> None:
    """Label a log axis with 1, 2, 3, 5, 7, 10, ... in plain digits, not 6 × 10¹."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 7.0), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def plot_timings(timings: Mapping[str, Any]) -> Figure:
    """Each repeat as a dot, the median as a bar, the first call as a diamond; one row per name.

    Args:
        timings: The results of `course.analysis.timing.time_in_turn`, by name.
    """
    figure, ax = axes(6.6, 1.3 + 0.42 * len(timings))
    for row, timing in enumerate(timings.values()):
        first = row == 0
        ax.plot([1e3 * timing.first], [row], "D", color=RED, mfc="none",
                label="first call" if first else None)  # fmt: skip
        ax.plot([1e3 * t for t in timing.times], [row] * len(timing.times), "o", color=BLUE,
                alpha=0.6, label="repeats" if first else None)  # fmt: skip
        ax.plot([1e3 * timing.median], [row], "|", color=ORANGE, markersize=20, mew=2.5,
                label="median" if first else None)  # fmt: skip
    ax.set(yticks=range(len(timings)), yticklabels=list(timings), xscale="log",
           xlabel="milliseconds", ylim=(len(timings) - 0.5, -0.5))  # fmt: skip
    _plain_ticks(ax.xaxis)
    ax.legend(fontsize=8, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=3)
    return figure


def plot_products(sizes: Sequence[int], seconds: Mapping[str, Sequence[float]]) -> Figure:
    """Time of a product of two square matrices over their size, with a line for n³.

    Args:
        sizes: Rows of the matrices, ascending.
        seconds: One time per size, by device.

    Source: Engineering module, lab 5; ledger X27, N57.
    """
    figure, ax = axes(5.4, 3.3)
    for (name, times), (colour, line) in zip(seconds.items(), LINES, strict=False):
        ax.plot(sizes, [1e3 * t for t in times], line, color=colour, label=name)
    last = next(iter(seconds.values()))[-1]
    cubes = [1e3 * last * (size / sizes[-1]) ** 3 for size in sizes]
    ax.plot(sizes, cubes, color=GREY, linewidth=1, label="∝ n³")
    ax.set(xlabel="rows n of both matrices", ylabel="milliseconds", xscale="log", yscale="log")
    ax.set_xticks(list(sizes), [str(size) for size in sizes])
    ax.minorticks_off()
    ax.legend(fontsize=8, frameon=False)
    return figure


def plot_pace(pace: Callable[[int], float], measured: Mapping[int, float], step_s: float) -> Figure:
    """Time per batch over the number of workers: predicted, measured, and of the step alone.

    Args:
        pace: Predicted seconds per batch for a number of workers.
        measured: Seconds per batch by number of workers; may be empty.
        step_s: Time of the step alone, the lower limit for any loader.
    """
    most = max([4, *measured])
    figure, ax = axes(5.6, 3.1)
    ax.axhline(1e3 * step_s, color=GREY, linestyle=":", label="step alone")
    workers = range(most + 1)
    ax.plot(workers, [1e3 * pace(n) for n in workers], "o--", color=BLUE, mfc="none",
            label="predicted")  # fmt: skip
    ax.plot(list(measured), [1e3 * s for s in measured.values()], "X", color=RED, markersize=9,
            label="measured")  # fmt: skip
    ax.set(xlabel="workers", ylabel="ms per batch", xticks=workers, ylim=(0, None))
    ax.legend(fontsize=8, frameon=False)
    return figure


def plot_costs(costs: Mapping[str, tuple[float, float]]) -> Figure:
    """Time and memory of a step under each switch, as multiples of the plain step's.

    Args:
        costs: (time, memory) as multiples, by name; the plain step is (1, 1).

    Source: Training-loop chapter, c7; ledger T33.
    """
    figure, made = axes(7.4, 1.2 + 0.34 * len(costs), columns=2)
    rows = range(len(costs))
    for column, (ax, title) in enumerate(zip(made, ("time", "memory"), strict=True)):
        values = [pair[column] for pair in costs.values()]
        colours = [RED if value > 1 else GREEN for value in values]
        ax.barh(rows, [value - 1 for value in values], left=1, color=colours, height=0.65)
        for row, value in zip(rows, values, strict=True):
            ax.annotate(f"{value:.2f}", (value, row), xytext=(4 if value >= 1 else -4, 0),
                        textcoords="offset points", va="center", fontsize=8,
                        ha="left" if value >= 1 else "right")  # fmt: skip
        ax.axvline(1, color=GREY, linewidth=1)
        ax.set(title=title, xscale="log", xlabel="multiple of the plain step's",
               xlim=(min(0.5, 0.7 * min(values)), max(2.0, 1.6 * max(values))))  # fmt: skip
        _plain_ticks(ax.xaxis)
        ax.set(yticks=rows, yticklabels=list(costs) if column == 0 else [], ylim=(len(costs), -1))
    return figure


def plot_gaps(gaps: Mapping[str, Mapping[str, float]]) -> Figure:
    """How far the ranks' mean is from the joined batch's gradient, on a log axis.

    Args:
        gaps: ‖mean − joined‖ / ‖joined‖, by setting and then by the way of averaging.
    """
    figure, ax = axes(6.8, 3.1)
    ways = list(next(iter(gaps.values())))
    width = 0.8 / len(ways)
    for number, (way, (colour, _)) in enumerate(zip(ways, LINES, strict=False)):
        places = [row + (number - (len(ways) - 1) / 2) * width for row in range(len(gaps))]
        heights = [max(by_way[way], NONE) for by_way in gaps.values()]
        ax.bar(places, heights, width, color=colour, label=way)
    ax.set(ylabel="relative gap of the gradient", yscale="log", ylim=(NONE, 10))
    ax.set_xticks(range(len(gaps)), list(gaps))
    ax.legend(fontsize=8, frameon=False)
    return figure
