"""Two schedules as a figure: the rate at every update, and the mean loss of every epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, RED, axes, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.schedules.state import Settings

LOOKS = ((BLUE, "-", "o"), (RED, "--", "s"))


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """On the left the rates over updates, on the right the training loss over epochs."""
    figure, (left, right) = axes(9.6, 3.4, columns=2)
    for run, (colour, dash, marker) in zip(frame["runs"], LOOKS, strict=True):
        about = {"color": colour, "linestyle": dash, "label": run["name"]}
        left.plot(range(1, len(run["rates"]) + 1), [float(one) for one in run["rates"]], **about)
        losses = [float(one) for one in run["losses"]]
        right.plot(range(1, len(losses) + 1), losses, marker=marker, markersize=4, **about)
    left.set(xlabel="update", ylabel="learning rate", ylim=(0, 1.08 * settings.lr))
    right.set(xlabel="epoch", ylabel="mean training loss", yscale="log")
    whole_numbers(right)
    for ax in (left, right):
        ax.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return figure
