"""The loop as a figure: its code on the left, the validation loss of its run on the right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, GREY, axes, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.loop.state import Settings

LINES = {"bare loop": (GREY, ":", "^"), "legal order": (GREEN, "--", "s"),
         "as written": (BLUE, "-", "o")}  # fmt: skip


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """Lines of parts in bold; the runs' validation losses."""
    count = len(frame["code"])
    figure, (left, right) = axes(13.0, max(3.6, 0.17 * count), columns=2)
    left.set_axis_off()
    for number, line in enumerate(frame["code"]):
        left.text(
            0, 1 - number / count, line, family="monospace", fontsize=6.5, va="top",
            weight="bold" if number in frame["marked"] else "normal", transform=left.transAxes,
        )  # fmt: skip
    for name, (colour, dash, marker) in LINES.items():
        losses = frame["losses"][name]
        right.plot(range(1, len(losses) + 1), losses, dash, color=colour, marker=marker,
                   markersize=4, label=name)  # fmt: skip
    right.set(xlabel="epoch", ylabel="validation loss", ylim=(0, None))
    right.legend(fontsize=8, frameon=False)
    whole_numbers(right)
    return figure
