"""The finder as a figure: the sweep with the loss each rate reaches, and the chosen rate's run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.finder.state import Settings


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """Sweep and truth over the rate on the left, losses over the updates on the right."""
    figure, (left, right) = axes(10.5, 3.9, columns=2)
    top = 1.6 * float(frame["start"])
    left.plot(frame["lrs"], frame["losses"], color=GREY, linewidth=0.8, label="sweep")
    left.plot(frame["lrs"], frame["smoothed"], color=BLUE, label="smoothed")
    worth = [min(float(value), top) for value in frame["worth"]]
    left.plot(frame["rates"], worth, "D:", color=GREEN, markersize=4, label="trained with it")
    left.axvline(settings.rate, color=RED, linestyle="--", label=f"chosen: {settings.rate:g}")
    if not math.isnan(suggestion := float(frame["suggestion"])):
        left.axvline(suggestion, color=ORANGE, label=f"suggested: {suggestion:.2g}")
    left.set(xscale="log", ylim=(0, top), xlabel="learning rate", ylabel="loss")
    left.legend(fontsize=7, frameon=False)
    for run, colour, style, name in (
        (frame["best_run"], PURPLE, "-", f"{float(frame['best']):g}, ends lowest"),
        (frame["run"], RED, "--", f"{settings.rate:g}, chosen"),
    ):
        right.plot(range(1, len(run) + 1), [float(loss) for loss in run], style, color=colour,
                   label=name)  # fmt: skip
    right.set(xlabel="update", ylabel="loss of the batch", ylim=(0, top))
    right.legend(fontsize=8, frameon=False)
    return figure
