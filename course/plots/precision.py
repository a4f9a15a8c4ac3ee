"""Figures for precision, memory and clipping: formats, loss scales, gradient norms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = (BLUE, RED, GREEN, ORANGE, PURPLE)
STYLES = ("-", "--", "-.", ":", "-")
NOTHING = 1e-17
"""Where a bar for 0 ends on a logarithmic axis."""


def relative_spacing(exponent: int, info: Any) -> float:
    """Gap between neighbouring numbers at 2^exponent, over 2^exponent; inf outside the range.

    Args:
        exponent: The exponent of a power of two.
        info: `torch.finfo` of a format.
    """
    value = 2.0**exponent
    if value > info.max:
        return math.inf
    smallest = info.smallest_normal * info.eps  # all subnormals are multiples of it
    return max(info.eps, smallest / value) if value >= smallest else math.inf


def plot_spacing(formats: Mapping[str, Any], low: int = -160, high: int = 140) -> Figure:
    """Range and precision: how coarse each format is at each magnitude, and where it ends.

    Args:
        formats: `torch.finfo` of the format, by name.
        low: The smallest magnitude shown, as a power of two.
        high: The largest.

    Source: Lecture 3, "Mixed precision · why BF16 > FP16"; ledger S14, N35.
    """
    figure, ax = axes(6.4, 3.2)
    exponents = range(low, high + 1)
    for (name, info), colour, style in zip(formats.items(), COLOURS, STYLES, strict=False):
        held = [(e, relative_spacing(e, info)) for e in exponents]
        held = [(2.0**e, gap) for e, gap in held if math.isfinite(gap)]
        ax.plot(*zip(*held, strict=True), style, color=colour, label=name, linewidth=1.8)
        for (place, gap), end in zip((held[0], held[-1]), (low, high), strict=True):
            if math.log2(place) != end:  # the format ends here, not the figure
                ax.plot(place, gap, "|", color=colour, markersize=12, markeredgewidth=2)
    ax.set(xscale="log", yscale="log", xlabel="magnitude", ylabel="gap to the next, relative")
    ax.set_xlim(2.0**low, 2.0**high)
    ax.legend(fontsize=8, frameon=False, loc="upper right")
    return figure


def plot_gradient_sizes(sizes: Mapping[str, Sequence[float]], low: float, high: float) -> Figure:
    """The sizes of gradients, one histogram per name, and which of them a format loses.

    Args:
        sizes: Magnitudes, by name; zeros are left out.
        low: The format has no numbers below this.
        high: The format has no numbers above this.
    """
    figure, panels = axes(8.4, 2.8, columns=len(sizes))
    panels = panels if len(sizes) > 1 else [panels]
    for ax, (name, values), colour in zip(panels, sizes.items(), COLOURS, strict=False):
        powers = [math.log10(value) for value in values if value > 0]
        ax.hist(powers, bins=[0.5 * n for n in range(-32, 17)], color=colour)
        for edge, outer in ((math.log10(low), -16), (math.log10(high), 8)):
            ax.axvspan(min(edge, outer), max(edge, outer), color=GREY, alpha=0.25)
        ax.set(title=name, xlim=(-16, 8), xlabel="log₁₀ of the gradient's magnitude")
    panels[0].set_ylabel("gradients")
    return figure


def plot_scale(scales: Sequence[float], skipped: Sequence[int]) -> Figure:
    """The loss scale at each update, with a cross at each skipped update.

    Args:
        scales: The scale used in each update.
        skipped: Numbers of the updates whose gradients overflowed, counted from 0.
    """
    figure, ax = axes(6.4, 2.8)
    ax.step(range(len(scales)), scales, where="post", color=BLUE, linewidth=1.8)
    ax.plot(
        skipped,
        [scales[at] for at in skipped],
        "X",
        color=RED,
        label=f"skipped: {len(skipped)} of {len(scales)} updates",
    )
    ax.set_yscale("log", base=2)
    ax.set(xlabel="update", ylabel="loss scale")
    ax.legend(fontsize=8, frameon=False)
    return figure


def plot_seeds(scores: Mapping[str, Sequence[float]], *, xlabel: str) -> Figure:
    """One score per seed and one row per name, with a line at each row's mean.

    Args:
        scores: One number per seed, by name.
        xlabel: What the score is.
    """
    figure, ax = axes(6.4, 0.9 + 0.45 * len(scores))
    for row, (values, colour) in enumerate(zip(scores.values(), COLOURS, strict=False)):
        ax.plot(values, [row] * len(values), "o", color=colour, alpha=0.7)
        mean = sum(values) / len(values)
        ax.plot([mean, mean], [row - 0.3, row + 0.3], color=colour, linewidth=1.5)
    ax.set(yticks=range(len(scores)), yticklabels=list(scores), xlabel=xlabel)
    ax.invert_yaxis()
    return figure


def plot_memory(setups: Mapping[str, Mapping[str, float]], *, unit: str) -> Figure:
    """The memory of each set-up, as a bar of its parts.

    Args:
        setups: The parts of each set-up, by name; a missing part counts as 0.
        unit: The unit of all numbers.
    """
    figure, ax = axes(6.8, 1.1 + 0.42 * len(setups))
    names = list(dict.fromkeys(part for parts in setups.values() for part in parts))
    ends = [0.0] * len(setups)
    for name, colour in zip(names, COLOURS, strict=False):
        widths = [parts.get(name, 0.0) for parts in setups.values()]
        ax.barh(range(len(setups)), widths, left=ends, color=colour, label=name, edgecolor="white")
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    for row, end in enumerate(ends):
        ax.text(end, row, f" {end:.3g}", va="center", fontsize=8)
    ax.set(yticks=range(len(setups)), yticklabels=list(setups), xlabel=unit)
    ax.set_xlim(0, 1.12 * max(ends))
    ax.invert_yaxis()
    ax.legend(fontsize=8, frameon=False, ncols=len(names), loc="lower center",
              bbox_to_anchor=(0.5, 1.0))  # fmt: skip
    return figure


def plot_gaps(gaps: Mapping[str, float], *, rounding: float) -> Figure:
    """Relative gaps on a logarithmic axis, blue if they are only rounding, otherwise red.

    Args:
        gaps: The gaps, by name; a gap of 0 ends at the left edge.
        rounding: Gaps up to this count as rounding.
    """
    figure, ax = axes(6.8, 0.9 + 0.38 * len(gaps))
    for row, gap in enumerate(gaps.values()):
        shown = max(gap, NOTHING)
        colour, marker = (BLUE, "o") if gap <= rounding else (RED, "X")
        ax.plot([NOTHING, shown], [row, row], color=colour, linewidth=1.2)
        ax.plot(shown, row, marker, color=colour, markersize=8)
    ax.axvline(rounding, color=GREY, linestyle=":", linewidth=1)
    ax.set(yticks=range(len(gaps)), yticklabels=list(gaps), xscale="log",
           xlim=(NOTHING, 10), xlabel="relative gap to the joined batch's gradient")  # fmt: skip
    ax.invert_yaxis()
    return figure


def plot_layer_norms(norms: Mapping[str, Sequence[float]], layers: Sequence[str]) -> Figure:
    """The norm of the gradient in each layer on a logarithmic axis, one line of points per name.

    Args:
        norms: One norm per layer, by name.
        layers: Their names, first to last.
    """
    figure, ax = axes(6.4, 3.0)
    for (name, values), colour, style in zip(norms.items(), COLOURS, STYLES, strict=False):
        ax.plot(range(len(values)), values, style, marker="o", color=colour, label=name)
    ax.set(xticks=range(len(layers)), xticklabels=list(layers), yscale="log",
           xlabel="layer", ylabel="norm of the gradient")  # fmt: skip
    ax.legend(fontsize=8, frameon=False)
    return figure
