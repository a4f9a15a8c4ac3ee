"""How a score varies with the seed: pairs of runs, and how an interval narrows with more seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from course.plots.style import BLUE, GREY, ORANGE, RED, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL = 0.95
"""Confidence of the intervals drawn."""
TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Limits of the half widths, in points, on a logarithmic axis."""
JITTER = 0.11
"""Vertical distance between the points of two seeds, so that equal scores stay visible."""


def plot_scores(scores: Mapping[str, Sequence[float]], *, unit: str = "points") -> Figure:
    """A row of points per setting, one per seed, with their mean.

    Args:
        scores: One score per seed, by setting.
        unit: Unit of the scores.

    Source: Lecture 3, "Ablation discipline"; ledger T27.
    """
    figure, ax = axes(6.8, 1.0 + 0.7 * len(scores))
    for height, values in zip(range(len(scores), 0, -1), scores.values(), strict=True):
        at = [height + JITTER * ((i % 5) - 2) for i in range(len(values))]
        ax.plot(values, at, "o", color=BLUE, alpha=0.6, markersize=5)
        mean = math.fsum(values) / len(values)
        ax.plot([mean, mean], [height - 0.38, height + 0.38], color=RED, linewidth=2)
        ax.annotate(f"{mean:.2f}", (mean, height + 0.38), xytext=(0, 2), color=RED, ha="center",
                    textcoords="offset points", fontsize=8)  # fmt: skip
    ax.set_yticks(range(len(scores), 0, -1), list(scores))
    ax.set(ylim=(0.4, len(scores) + 0.8), xlabel=f"{unit} (one dot per seed; line: their mean)")
    return figure


def plot_pairs(
    baseline: Sequence[float], variant: Sequence[float], names: tuple[str, str]
) -> Figure:
    """The two scores of each seed, joined by a line that rises if the variant is better.

    Args:
        baseline: One score per seed.
        variant: The same seeds' scores, in the same order.
        names: Names of the two.

    Source: Lecture 3, "Ablation discipline"; ledger N23, T27.
    """
    figure, (left, right) = axes(8.0, 3.2, columns=2)
    differences = [b - a for a, b in zip(baseline, variant, strict=True)]
    for a, b in zip(baseline, variant, strict=True):
        colour, style = (BLUE, "-") if b > a else (ORANGE, "--")
        left.plot([0, 1], [a, b], "o" + style, color=colour, markersize=4, linewidth=1.2)
    left.set_xticks([0, 1], list(names))
    left.set(xlim=(-0.3, 1.3), ylabel="points")
    left.set_title("one line per seed; dashed: not higher", fontsize=9)
    right.axvline(0, color="black", linewidth=1)
    right.plot(differences, range(len(differences)), "o", color=BLUE)
    mean = math.fsum(differences) / len(differences)
    right.axvline(mean, color=RED, label=f"mean {mean:+.2f}")
    right.set(xlabel=f"{names[1]} minus {names[0]}, points", ylabel="seed, counted from 0")
    right.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.15))
    return figure


def plot_widths(spreads: Mapping[str, float], *, most: int = 30) -> Figure:
    """Half the width of a 95 % interval of the mean over the number of seeds.

    Args:
        spreads: The standard deviation of the averaged values, by name.
        most: The largest number of seeds drawn.

    Source: Lecture 3, "Ablation discipline"; ledger T27.
    """
    from scipy.stats import t

    figure, ax = axes(6.4, 3.4)
    counts = range(2, most + 1)
    styles = ((BLUE, "-"), (RED, "--"), (GREY, ":"))
    for (name, spread), (colour, style) in zip(spreads.items(), styles, strict=False):
        quantiles = [float(t.ppf((1 + LEVEL) / 2, n - 1)) for n in counts]
        widths = [q * spread / math.sqrt(n) for q, n in zip(quantiles, counts, strict=True)]
        ax.plot(counts, widths, style, color=colour, label=f"{name}: s = {spread:.2f}")
    ax.set(xlabel="seeds", ylabel="± points at 95 %", yscale="log")
    ax.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    ax.minorticks_off()
    ax.legend(fontsize=8, frameon=False)
    return figure
