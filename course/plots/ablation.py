"""Ablation: how far each change moves the metric, with its interval and one dot per seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREY, PURPLE, RED, axes, named

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOK = {
    "likely useful": ("^", BLUE),
    "harmful": ("v", RED),
    "within noise": ("o", GREY),
    "undecided": ("s", PURPLE),
}
"""Marker and colour of a verdict, which is also written next to it."""


def plot_ablation(ablation: Any) -> Figure:
    """Differences from the baseline, one row per variant.

    Args:
        ablation: Has `rows`, `metric` and `mode`, as `course.analysis.Ablation`.

    Source: Lecture 3, "Ablation"; ledger T27.
    """
    rows = [row for row in ablation.rows if row.name != "baseline"]
    figure, ax = axes(7.2, 1.2 + 0.55 * len(rows))
    ax.axvline(0, color="black", linewidth=1)
    for height, row in zip(range(len(rows), 0, -1), rows, strict=True):
        marker, colour = LOOK[row.verdict]
        each = list(row.differences.values())
        ax.plot(each, [height - 0.22] * len(each), "|", color=colour, markersize=7)
        if row.interval:
            ax.plot(row.interval, [height] * 2, "-", color=colour, linewidth=2)
        if row.difference is not None:
            ax.plot(row.difference, height, marker, color=colour, markersize=8)
        said = row.verdict if row.difference is not None else f"{row.verdict}: no pair of runs"
        ax.text(1.02, height, said, transform=ax.get_yaxis_transform(), va="center", fontsize=9)
    ax.set_yticks(range(len(rows), 0, -1), [named(row.name, 28) for row in rows])
    ax.set_ylim(0.4, len(rows) + 0.6)
    better = "right" if ablation.mode == "max" else "left"
    ax.set_xlabel(
        f"difference in {ablation.metric} from the baseline (better: to the {better})\n"
        "large marker and line: mean and interval over seeds; ticks below: one per seed"
    )
    return figure
