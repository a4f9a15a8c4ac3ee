"""The detector as a figure: loss, gradient norm, memory and accuracy of both runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREY, RED, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.detector.state import Settings


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """Four panels side by side; solid blue: the run to compare with, dashed red: the run as set."""
    figure, (loss, norm, memory, accuracy) = axes(13.0, 3.2, columns=4)
    own, other = frame["runs"]
    for one, colour, style, marker in ((other, BLUE, "-", "o"), (own, RED, "--", "s")):
        updates = range(1, len(one["losses"]) + 1)
        loss.plot(updates, one["losses"], style, color=colour, label=one["name"], linewidth=1.3)
        norm.plot(updates, one["norms"], style, color=colour, linewidth=1.3)
        memory.plot(one["val_at"], one["kilobytes"], style + marker, color=colour, markersize=4)
        accuracy.plot(one["val_at"], one["accuracies"], style + marker, color=colour, markersize=4)
        accuracy.axhline(float(one["unseen"]), color=colour, linestyle=":", linewidth=1)
    loss.set(ylabel="loss of the batch")
    norm.set(ylabel="gradient norm")
    memory.set(ylabel="held, kB", ylim=(0, None))
    accuracy.set(ylabel="accuracy (dotted: unseen)", ylim=(0, 1.03))
    for ax in (loss, norm, memory, accuracy):
        ax.set(xlabel="update", xlim=(0, frame["updates"] + 1))
    loss.legend(fontsize=8, frameon=False)
    if own["error"]:
        loss.text(0.02, 0.05, own["error"], transform=loss.transAxes, fontsize=7, color=GREY)
    return figure
