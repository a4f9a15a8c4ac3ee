"""A figure of a split: what both sides share, how labels are distributed, whether inputs differ.

Source: Lecture 3, "Splits and shift"; ledger T24, F99.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREY, ORANGE, RED
from course.plots.style import axes as row_of_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SHARED = {
    "copies": ("exact copies", "leak-overlap"),
    "near_copies": ("near copies", "leak-overlap"),
    "look_alikes": ("look-alikes", "leak-overlap"),
    "val_in_shared_groups": ("in shared groups", "leak-group"),
    "val_not_later": ("not later", "leak-time"),
}
"""The report's shares of validation examples, with their labels, and the fault each belongs to."""
MOST_TICKS = 10


def split_figure(report: Any) -> Figure:
    """The panels for which the report measured something.

    On the left, the share of validation that overlaps with training (red if it is a fault). Then
    the labels of both sides. On the right, the scores of a classifier that tries to distinguish
    validation from training inputs: two equal histograms mean that it cannot.

    Args:
        report: The result of `course.data.check_split`.

    Returns:
        A Figure without a window; `figure.savefig(path)` writes it.
    """
    panels: list[Callable[[Axes, Any], None]] = []
    if any(name in report.figures for name in SHARED):
        panels.append(_draw_shared)
    if "label_counts" in report.series:
        panels.append(_draw_labels)
    elif "targets" in report.series:
        panels.append(_draw_targets)
    if "shift_scores" in report.series:
        panels.append(_draw_scores)
    figure, made = row_of_axes(3.4 * max(len(panels), 1), 3.2, columns=max(len(panels), 1))
    figure.suptitle(f"verdict: {report.verdict}", color="black" if report.passed else RED)
    for axes, draw in zip(figure.axes, panels, strict=False):
        draw(axes, report)
    if not panels:
        made.set_axis_off()  # nothing was measured: only the verdict
    return figure


def _draw_shared(axes: Axes, report: Any) -> None:
    found = {finding.id for finding in report.findings}
    shown = [(name, *SHARED[name]) for name in SHARED if name in report.figures]
    words = [word for _, word, _ in shown]
    shares = [100 * report.figures[name] for name, _, _ in shown]
    colours = [
        RED if fault in found and share > 0 else GREY
        for (_, _, fault), share in zip(shown, shares, strict=True)
    ]
    bars = axes.barh(words, shares, color=colours)
    axes.bar_label(bars, [f"{share:.1f} %" for share in shares], padding=3)
    axes.set(xlabel="% of validation", xlim=(0, max(1.35 * max(shares), 1.0)))
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= 100])
    axes.set_title("shared with training", fontsize="medium")
    axes.invert_yaxis()


def _draw_labels(axes: Axes, report: Any) -> None:
    counts = report.series["label_counts"]
    labels = counts["labels"]
    width = 0.4
    for side, colour, at in (("train", BLUE, -width / 2), ("val", ORANGE, width / 2)):
        whole = sum(counts[side]) or 1
        shares = [100 * count / whole for count in counts[side]]
        axes.bar([place + at for place in range(len(labels))], shares, width, color=colour)
    places = list(range(0, len(labels), -(-len(labels) // MOST_TICKS)))
    axes.set_xticks(places, [str(labels[place]) for place in places])
    axes.set(xlabel="class", ylabel="% of its side")
    _name_sides(axes, report, "label_shift_p", "labels")


def _draw_targets(axes: Axes, report: Any) -> None:
    _draw_heaps(axes, report.series["targets"])
    axes.set(xlabel="target", ylabel="density")
    _name_sides(axes, report, "label_shift_p", "targets")


def _draw_scores(axes: Axes, report: Any) -> None:
    _draw_heaps(axes, report.series["shift_scores"])
    axes.set(xlabel="score of 'is validation'", ylabel="density")
    auc = report.figures["covariate_shift_auc"]
    _name_sides(axes, report, "covariate_shift_p", f"inputs: AUC {auc:.2f}")


def _draw_heaps(axes: Axes, sides: dict[str, list]) -> None:
    both = sides["train"] + sides["val"]
    low, high = min(both), max(both)
    edges = [low + (high - low) * step / 20 for step in range(21)] if high > low else 1
    for side, colour in (("train", BLUE), ("val", ORANGE)):
        axes.hist(sides[side], edges, color=colour, alpha=0.55, density=True)


def _name_sides(axes: Axes, report: Any, p: str, what: str) -> None:
    """Title with the p-value, and a legend for the colours."""
    from matplotlib.patches import Patch

    alarm = {"label_shift_p": "label-shift", "covariate_shift_p": "covariate-shift"}[p]
    is_fault = alarm in {finding.id for finding in report.findings}
    title = f"{what} (p = {report.figures[p]:.2g})"
    axes.set_title(title, fontsize="medium", color=RED if is_fault else "black")
    axes.set_ylim(top=1.3 * axes.get_ylim()[1])  # room for the legend
    handles = [Patch(color=BLUE, label="training"), Patch(color=ORANGE, label="validation")]
    axes.legend(handles=handles, frameon=False, fontsize="small")
