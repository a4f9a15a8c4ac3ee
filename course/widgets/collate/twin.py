"""Batches as a figure: the epoch's examples in their batches, and one batch cell by cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREY, ORANGE, axes, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.collate.state import Settings


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """On the left every batch, on the right the one shown: real cells filled, padded ones empty."""
    figure, (left, right) = axes(11.0, 4.0, columns=2)
    targets = frame["data"]["targets"]
    for y, batch in enumerate(frame["batches"], start=1):
        for x, index in enumerate(batch):
            colour = ORANGE if targets[index] else BLUE
            left.barh(
                y, 0.9, left=x, height=0.8, color=colour, alpha=0.9 if targets[index] else 0.3
            )
            left.text(x + 0.45, y, str(index), ha="center", va="center", fontsize=7)
    left.set(xlim=(0, settings.batch_size), ylim=(len(frame["batches"]) + 0.6, 0.4))
    left.set(xlabel="position in the batch", ylabel="batch", xticks=[])
    left.set_title(f"{settings.strategy}, epoch {settings.epoch} (orange: rare class)", fontsize=9)
    width = frame["widths"][frame["at"] - 1]
    indices = frame["batches"][frame["at"] - 1]
    for y, (index, length) in enumerate(zip(indices, frame["rows"], strict=True)):
        right.barh(y, length, height=0.8, color=ORANGE if targets[index] else BLUE, alpha=0.7)
        right.barh(y, width - length, left=length, height=0.8, color="white", edgecolor=GREY,
                   hatch="///", linewidth=0.5)  # fmt: skip
    right.set_yticks(range(len(indices)), [str(index) for index in indices])
    right.set(xlabel="token", ylabel="example", ylim=(len(indices) - 0.4, -0.6))
    right.set_title(
        f"batch {frame['at']}: {float(frame['padding']):.0%} of the cells are padding", fontsize=9
    )
    whole_numbers(right)
    return figure
