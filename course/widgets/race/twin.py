"""The race as a figure: both paths on the surface's contours, and both losses."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from course.plots.style import BLUE, GREEN, GREY, RED, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.race.state import Settings

LOOKS = ((BLUE, "-", "o"), (RED, "--", "s"))


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """On the left the surface seen from above, on the right the losses over updates."""
    figure, (plane, curves) = axes(9.6, 3.8, columns=2)
    left, right, bottom, top = frame["surface"]["box"]
    heights = np.frombuffer(base64.b64decode(frame["surface"]["heights"]), np.uint8)
    heights = heights.reshape(-1, frame["surface"]["columns"])[::-1]
    plane.contour(
        np.linspace(left, right, heights.shape[1]), np.linspace(bottom, top, heights.shape[0]),
        heights, 12,
        colors=GREY, linewidths=0.6, linestyles="solid",
    )  # fmt: skip
    paths = frame["first"], frame["second"]
    for path, at, (colour, dash, marker) in zip(paths, frame["at"], LOOKS, strict=True):
        upto = at["updates"] + 1
        about = {"color": colour, "linestyle": dash, "label": f"{path['name']}, {path['lr']:g}"}
        plane.plot(path["x"][:upto], path["y"][:upto], marker=marker, markersize=2.5, **about)
        losses = [max(float(one), 1e-12) for one in path["losses"][:upto]]
        curves.plot(range(upto), losses, **about)
    plane.plot(*zip(*frame["surface"]["minima"], strict=True), "*", color=GREEN, label="minimum")
    plane.set(xlim=(left, right), ylim=(bottom, top), xlabel="weight 1", ylabel="weight 2")
    curves.set(xlabel="update", ylabel="loss", yscale="log")
    for ax in (plane, curves):
        ax.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure
