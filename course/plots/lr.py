"""The learning-rate finder's curve, with the values read off it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, GREY, ORANGE, RED, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_lr_curve(curve: Any) -> Figure:
    """Loss over learning rate, with minimum, steepest zone, suggestion, divergence and trials.

    Args:
        curve: An `LRCurve`.

    Source: Lecture 3, figure "Learning-rate finder"; ledger S18.
    """
    figure, ax = axes()
    ax.set(xscale="log", xlabel="learning rate", ylabel="loss after the update")
    if not curve.lrs:
        ax.text(0.5, 0.5, curve.suggestion.reason, transform=ax.transAxes, ha="center", wrap=True)
        return figure
    smoothed = curve.smoothed
    ax.plot(curve.lrs, curve.losses, color=GREY, linewidth=0.8, alpha=0.7, label="measured")
    ax.plot(curve.lrs, smoothed, color=BLUE, linewidth=2, label="smoothed")
    lowest = smoothed.index(min(smoothed))
    if curve.suggestion.lr is None:
        ax.set_title("no suggestion: the loss does not fall", fontsize=10)
    else:
        ax.plot(curve.lrs[lowest], smoothed[lowest], "o", color=ORANGE, label="lowest")
        steepest = curve.suggest("steepest").lr
        ax.axvspan(steepest / 1.5, steepest * 1.5, color=GREEN, alpha=0.2, label="steepest")
        chosen = curve.suggestion
        ax.axvline(chosen.lr, color=RED, linestyle="--", label=f"suggested: {chosen.lr:.1e}")
    tried = [(lr, loss) for lr, loss in curve.trials if math.isfinite(loss)]
    if tried:
        ax.plot(*zip(*tried, strict=True), "D:", color=GREEN, markersize=4, label="tried out")
    if curve.dropped:
        ax.plot(*zip(*curve.dropped, strict=True), "D", color=GREEN, markersize=4, fillstyle="none",
                label="given up early")  # fmt: skip
    if curve.stopped != "end":
        ax.plot(curve.lrs[-1], min(curve.losses[-1], _top(curve)), "X", color=RED,
                markersize=9, label=curve.stopped, clip_on=False)  # fmt: skip
    top, low = _top(curve), min(*curve.losses, *smoothed, *(loss for _, loss in tried))
    ax.set_ylim(low - 0.05 * (top - low), top)
    ax.legend(fontsize=8, frameon=False)
    return figure


def _top(curve: Any) -> float:
    """A limit at which the descent fills the panel and the explosion leaves it."""
    first = max(curve.losses[: max(5, len(curve.losses) // 10)])
    low = min(curve.losses)
    top = first + 0.5 * (first - low)
    return top if math.isfinite(top) and top > low else low + 1.0
