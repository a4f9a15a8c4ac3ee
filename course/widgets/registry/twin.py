"""The registry as a figure: the code, and a dot if a method reaches a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREY, axes
from course.widgets.registry.state import WAYS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.registry.state import Settings

NAMES = ("parameters()", ".grad filled", "step() moves", ".to() moves", "state_dict()")


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """On the left the class, on the right one row per tensor and one column per method."""
    figure, (left, right) = axes(11.0, 3.4, columns=2)
    left.set_axis_off()
    for number, line in enumerate(frame["code"]):
        chosen = number in frame["chosen"]
        left.text(
            0, 0.97 - 0.083 * number, line, family="monospace", fontsize=7.5,
            weight="bold" if chosen else "normal", transform=left.transAxes,
        )  # fmt: skip
    rows = frame["rows"]
    for y, row in enumerate(rows):
        for x, way in enumerate(WAYS):
            face = BLUE if row[way] else "none"
            right.plot(x, y, "o", markersize=12, markeredgecolor=BLUE if row[way] else GREY,
                       markerfacecolor=face)  # fmt: skip
    right.set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=9)
    right.set_xticks(range(len(WAYS)), NAMES, fontsize=8)
    right.xaxis.tick_top()
    right.set(xlim=(-0.5, len(WAYS) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    right.spines[:].set_visible(False)
    right.tick_params(length=0)
    return figure
