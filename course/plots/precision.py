"""Precision, memory and clipping: what a format holds, what a scale does, what a ceiling leaves."""

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
"""Where a bar on a logarithmic axis ends that stands for 0."""


def relative_spacing(exponent: int, info: Any) -> float:
    """Gap between neighbouring numbers at 2^exponent, over 2^exponent; inf where there are none.

    Args:
        exponent: Of a power of two.
        info: `torch.finfo` of a format.
    """
    value = 2.0**exponent
    if value > info.max:
        return math.inf
    smallest = info.smallest_normal * info.eps  # all subnormals are multiples of it
    return max(info.eps, smallest / value) if value >= smallest else math.inf


def plot_spacing(formats: Mapping[str, Any], low: int = -60, high: int = 60) -> Figure:
    """Range against precision: how coarse each format is at each magnitude, and where it ends.

    Args:
        formats: By name, `torch.finfo` of the format.
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
    """How large the gradients are, a histogram per name, and what a format loses of them.

    Args:
        sizes: By name, magnitudes; zeros are left out.
        low: Below it the format has no number.
        high: Above it the format has no number.
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
    """The loss scale of each update, with a cross at each update that was skipped.

    Args:
        scales: One per update, as used in it.
        skipped: Numbers of the updates whose gradients overflowed, counted from 0.
    """
    figure, ax = axes(6.4, 2.8)
    ax.step(range(len(scales)), scales, where="post", color=BLUE, linewidth=1.8)
    ax.plot(skipped, [scales[at] for at in skipped], "X", color=RED, label="skipped")
    ax.set_yscale("log", base=2)
    ax.set(xlabel="update", ylabel="loss scale")
    ax.legend(fontsize=8, frameon=False)
    return figure


def plot_seeds(scores: Mapping[str, Sequence[float]], *, xlabel: str) -> Figure:
    """A score per seed, a row per name, with a line at each row's mean.

    Args:
        scores: By name, one number per seed.
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
    """What each set-up holds, a bar of its parts.

    Args:
        setups: By name, the parts by name; a part that is missing counts 0.
        unit: Of all numbers.
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
    """Relative gaps on a logarithmic axis, blue where they are rounding alone, red where not.

    Args:
        gaps: By name; a gap of 0 ends at the left edge.
        rounding: Up to it a gap is called rounding.
    """
    figure, ax = axes(6.8, 0.9 + 0.38 * len(gaps))
    for row, gap in enumerate(gaps.values()):
        shown = max(gap, NOTHING)
        colour, marker = (BLUE, "o") if gap <= rounding else (RED, "X")
        ax.plot([NOTHING, shown], [row, row], color=colour, linewidth=1.2)
        ax.plot(shown, row, marker, color=colour, markersize=8)
    ax.axvline(rounding, color=GREY, linestyle=":", linewidth=1)
    ax.set(yticks=range(len(gaps)), yticklabels=list(gaps), xscale="log",
           xlim=(NOTHING, 10), xlabel="gap to the joined batch's gradient, relative")  # fmt: skip
    ax.invert_yaxis()
    return figure


def plot_layer_norms(norms: Mapping[str, Sequence[float]], layers: Sequence[str]) -> Figure:
    """The gradient's norm in each layer, a line of points per name, on a logarithmic axis.

    Args:
        norms: By name, one norm per layer.
        layers: Their names, first to last.
    """
    figure, ax = axes(6.4, 3.0)
    for (name, values), colour, style in zip(norms.items(), COLOURS, STYLES, strict=False):
        ax.plot(range(len(values)), values, style, marker="o", color=colour, label=name)
    ax.set(xticks=range(len(layers)), xticklabels=list(layers), yscale="log",
           xlabel="layer", ylabel="norm of the gradient")  # fmt: skip
    ax.legend(fontsize=8, frameon=False)
    return figure
