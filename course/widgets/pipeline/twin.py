"""The timeline as a figure: lanes of workers and the model on the left, epochs on the right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, GREY, RED, axes, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.pipeline.state import Settings


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """The first batches on the clock, and the epoch's seconds by number of workers."""
    figure, (left, right) = axes(10.4, 3.6, columns=2)
    for number, (worker, start, end) in enumerate(frame["loads"]):
        _bar(left, start, end, worker + 1, BLUE, number)
    for number, (start, end) in enumerate(frame["steps"]):
        _bar(left, start, end, 0, GREEN, number)
    for number, (start, end) in enumerate(frame["gaps"]):
        left.barh(0, end - start, left=start, height=0.7, facecolor="none", edgecolor=RED,
                  hatch="////", linewidth=0.8, label=None if number else "model idle")  # fmt: skip
    names = ["model", *frame["lanes"]]
    left.set_yticks(range(len(names)), names)
    left.set(xlabel="milliseconds", xlim=(0, frame["steps"][-1][1]), ylim=(-0.6, len(names) - 0.4))
    left.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    rows = frame["rows"]
    colours = [GREEN if row == frame["now"] else GREY for row in rows]
    bars = right.bar(range(len(rows)), [row["epoch_s"] for row in rows], color=colours)
    right.bar_label(bars, [f"{row['epoch_s']:.3g}" for row in rows], padding=2, fontsize=8)
    right.axhline(frame["floor_s"], color="black", linestyle="--", linewidth=1,
                  label="the model alone")  # fmt: skip
    right.legend(fontsize=8, frameon=False)
    right.set(xlabel="num_workers", ylabel="seconds per epoch")
    right.margins(y=0.12)
    whole_numbers(right)
    return figure


def _bar(ax: Any, start: float, end: float, lane: int, colour: str, number: int) -> None:
    ax.barh(lane, end - start, left=start, height=0.7, color=colour, edgecolor="white")
    ax.text((start + end) / 2, lane, str(number), ha="center", va="center", color="white",
            fontsize=7, clip_on=True)  # fmt: skip
