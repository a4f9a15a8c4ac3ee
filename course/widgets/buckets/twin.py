"""The board as a figure: the mistakes by bucket, and the most that each bucket could gain."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREY, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.buckets.state import Settings

ACROSS = 24
"""Images per row of the board."""


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """The mistakes as images on the left, bars with intervals on the right."""
    figure, (left, right) = axes(11.0, 4.4, columns=2)
    y = 0.0
    for row in frame["rows"]:
        left.text(0, y - 0.2, f"{row['name']}: {row['count']}", fontsize=8, va="bottom")
        for place, (index, *_) in enumerate(row["mistakes"]):
            x, down = place % ACROSS, place // ACROSS
            _image(left, frame["images"][str(index)], x, y + down)
        y += -(-row["count"] // ACROSS) + 1.0
    left.set(xlim=(-0.2, ACROSS), ylim=(y, -1.2))
    left.set_axis_off()
    names = [row["name"] for row in frame["rows"]]
    right.barh(names, [row["points"] for row in frame["rows"]], color=BLUE)
    for place, row in enumerate(frame["rows"]):
        right.plot([row["low"], row["high"]], [place, place], color="black", linewidth=1.5)
    right.invert_yaxis()
    right.set(xlabel="most points of accuracy to gain (line: 95 %)")
    right.axvline(0, color=GREY, linewidth=0.8)
    right.set_title(f"{frame['seen']} of {frame['num_mistakes']} mistakes looked at", fontsize=10)
    return figure


def _image(ax: Any, packed: str, x: float, y: float) -> None:
    import numpy as np

    pixels = np.frombuffer(base64.b64decode(packed), dtype=np.uint8).reshape(8, 8)
    extent = (x, x + 0.9, y + 0.9, y)
    ax.imshow(pixels, cmap="gray_r", extent=extent, aspect="auto", vmin=0, vmax=255)
