"""The simulator as a figure: decision regions of the first network, and the losses."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, RED, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.simulator.state import Settings

COLOURS, MARKERS = (BLUE, RED, GREEN), ("o", "s", "^")


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """Decision regions with the points, and the loss of one or both networks over updates."""
    import numpy as np
    from matplotlib.colors import to_rgb

    from course.widgets.simulator.state import CELLS, LEVELS, REACH

    figure, (left, right) = axes(9.6, 4.2, columns=2)
    first = frame["learners"][0]
    cells = np.frombuffer(base64.b64decode(first["boundary"]), dtype=np.uint8)
    classes, level = np.divmod(cells.reshape(CELLS, CELLS), LEVELS)
    alpha = (0.12 + 0.4 * level / (LEVELS - 1))[..., None]
    colours = np.array([to_rgb(colour) for colour in COLOURS])[classes]
    left.imshow(1 - alpha * (1 - colours), extent=(-REACH, REACH, -REACH, REACH))
    points = frame["points"]
    for number, (colour, marker) in enumerate(zip(COLOURS, MARKERS, strict=True)):
        of = [index for index, one in enumerate(points["class"]) if one == number]
        at = [[points[axis][index] for index in of] for axis in ("x", "y")]
        left.plot(*at, marker, color=colour, markersize=3, label=f"class {number}")
    left.set(xlabel="first input", ylabel="second input", xlim=(-REACH, REACH))
    left.set_title(
        f"{first['name']} after {frame['updates']} updates: "
        f"validation accuracy {float(first['accuracy']):.0%}",
        fontsize=10,
    )
    left.legend(fontsize=8, loc="upper right")
    for one, style in zip(frame["learners"], ("-", "--"), strict=False):
        losses = [float(loss) for loss in one["losses"]]
        colour = BLUE if style == "-" else RED
        right.plot(one["loss_at"], losses, style, color=colour, label=one["name"], linewidth=1.2)
    right.set(xlabel="update", ylabel="loss of the batch")
    if any(one["losses"] for one in frame["learners"]):
        right.set_yscale("log")
        right.legend(fontsize=8, frameon=False)
    return figure
