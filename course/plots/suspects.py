"""Figures of suspicious runs: a log next to the healthy one, a line-up, one batch, a race."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course.plots.museum import is_wide
from course.plots.style import BLUE, GREY, RED, axes, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Log = Mapping[str, Sequence[float]]
"""Columns of a log by name, one number per epoch; empty if the run did not get that far."""
PANELS = {
    "loss": "training loss", "grad_norm": "gradient norm", "val_accuracy": "validation accuracy",
    "held_kb": "memory held, kB",
}  # fmt: skip
"""The columns that are drawn, and the titles above them."""
SPREAD = ("loss", "grad_norm")
"""Columns whose axis is logarithmic if the values need it."""
LITTLE = 100.0
"""The kB axis reaches at least this high, so that no memory held is a line at the bottom."""


def plot_log(log: Log, healthy: Log, *, title: str = "", ceiling: float | None = None) -> Figure:
    """Four columns of a log over the epochs, next to those of the healthy run.

    Args:
        log: Log of the suspicious run.
        healthy: Log of the run without a bug.
        title: Title above all panels.
        ceiling: Share of the labels that are right, drawn in the accuracy panel.

    Source: Training-loop chapter, c5; ledger S06, T19.
    """
    figure, panels = axes(10.0, 2.7, columns=len(PANELS))
    if title:
        figure.suptitle(title, fontsize=11)
    for ax, (name, label) in zip(panels, PANELS.items(), strict=True):
        _two(ax, name, log, healthy, ceiling)
        ax.set_title(label, fontsize=9, loc="left")
        ax.set_xlabel("epoch")
    panels[0].legend(fontsize=8, frameon=False)
    return figure


def plot_lineup(logs: Mapping[str, Log], healthy: Log, *, ceiling: float | None = None) -> Figure:
    """One row per anonymous run, with the healthy run behind each.

    Args:
        logs: Logs by the letter that stands for a run.
        healthy: Log of the run without a bug.
        ceiling: Share of the labels that are right, drawn in the accuracy panel.

    Source: Training-loop chapter, c5; ledger S06, X45.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 1.55 * len(logs) + 0.4), layout="constrained")
    grid = figure.subplots(len(logs), len(PANELS), squeeze=False)
    for row, (letter, log) in zip(grid, logs.items(), strict=True):
        for ax, name in zip(row, PANELS, strict=True):
            ax.spines[["top", "right"]].set_visible(False)
            ax.tick_params(labelsize=7)
            _two(ax, name, log, healthy, ceiling)
        row[0].set_ylabel(letter, rotation=0, fontsize=13, labelpad=12, va="center")
    for ax, label in zip(grid[0], PANELS.values(), strict=True):
        ax.set_title(label, fontsize=9, loc="left")
    for ax in grid[-1]:
        ax.set_xlabel("epoch")
    return figure


def _two(ax: Any, name: str, log: Log, healthy: Log, ceiling: float | None) -> None:
    """One column of both runs."""
    values, usual = log[name], healthy[name]
    ax.plot(range(1, len(usual) + 1), usual, color=BLUE, linewidth=2.2, label="healthy")
    ax.plot(range(1, len(values) + 1), values, color=RED, linewidth=1.2, label="this run")
    if not len(values):
        ax.text(0.5, 0.4, "no rows at all", color=RED, ha="center", transform=ax.transAxes,
                bbox={"facecolor": "white", "edgecolor": "none"})  # fmt: skip
    if name in SPREAD and is_wide([*values, *usual]):
        ax.set_yscale("log")
    if name == "held_kb":
        ax.set_ylim(0, max([LITTLE, *values, *usual]) * 1.05)
    if name == "val_accuracy":
        ax.set_ylim(0, 1)
        if ceiling is not None:
            ax.axhline(ceiling, color=GREY, linestyle=":")
    whole_numbers(ax)


COLUMNS = 3


def plot_one_batch_bugs(curves: Mapping[str, Sequence[float]], healthy: Sequence[float]) -> Figure:
    """The loss of one batch under each bug, with the healthy loop behind it.

    Args:
        curves: One loss per update, by bug; those that are not finite are left out.
        healthy: The losses without a bug.

    Source: Lecture 3, "Rung 3 · overfit one batch"; ledger S17, X22.
    """
    from matplotlib.figure import Figure

    rows = -(-len(curves) // COLUMNS)
    figure = Figure(figsize=(9.0, 1.9 * rows + 0.2), layout="constrained")
    grid = figure.subplots(rows, COLUMNS, squeeze=False, sharex=True, sharey=True)
    for ax in grid.flat[len(curves) :]:
        ax.set_visible(False)
    for ax, (name, losses) in zip(grid.flat, curves.items(), strict=False):
        ax.spines[["top", "right"]].set_visible(False)
        ax.plot(range(1, len(healthy) + 1), healthy, color=BLUE, linewidth=2.2)
        shown = [loss if math.isfinite(loss) else math.nan for loss in losses]
        ax.plot(range(1, len(shown) + 1), shown, color=RED, linewidth=1.2)
        ax.set(ylim=(-0.05, 2.0))
        ax.set_title(name, fontsize=9, loc="left")
    figure.supxlabel("update", fontsize=9)
    figure.supylabel("loss of the batch", fontsize=9)
    return figure


def plot_experiment(frames: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Loss, gradient norm and accuracy of simulated networks over their updates.

    Args:
        frames: What `course.widgets.simulator` reports about a learner, by name: `losses` at
            `loss_at`, `norms` at `norm_at`, `accuracies` at `seen_at`.

    Source: Training-loop chapter, c6; ledger S07, X39, X41.
    """
    figure, panels = axes(9.6, 2.9, columns=3)
    drawn = (("loss_at", "losses"), ("norm_at", "norms"), ("seen_at", "accuracies"))
    labels = ("training loss", "gradient norm", "validation accuracy")
    styles = ((BLUE, "-", 2.2), (RED, "-", 1.2), (GREY, "--", 1.2))
    for ax, (at, what), label in zip(panels, drawn, labels, strict=True):
        for (name, frame), (colour, style, width) in zip(frames.items(), styles, strict=False):
            ax.plot(frame[at], frame[what], style, color=colour, linewidth=width, label=name)
        if is_wide([value for frame in frames.values() for value in frame[what]]):
            ax.set_yscale("log")
        ax.set_xlabel("update")
        ax.set_title(label, fontsize=9, loc="left")
    panels[2].set_ylim(0, 1)
    panels[0].legend(fontsize=8, frameon=False)
    return figure
