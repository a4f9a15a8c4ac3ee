"""The decision as a figure: time per example and memory over the batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.device.state import Settings

LINES = {"CPU": (BLUE, "o-"), "GPU": (RED, "s--"), "loader": (GREEN, "^:")}


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """Times on the left, memory on the right, the answer above."""
    figure, (left, right) = axes(10.0, 3.9, columns=2)
    for name, (colour, style) in LINES.items():
        left.plot(frame["batches"], frame["curves"][name], style, color=colour, label=name)
    left.axvline(settings.batch_size, color=GREY, label=f"batch of {settings.batch_size:,}")
    left.set(xscale="log", yscale="log", xlabel="batch size, examples", ylabel="ms per example")
    left.legend(fontsize=8, frameon=False)
    right.plot(frame["batches"], frame["needs"], "o-", color=PURPLE, label="needed")
    right.axhline(frame["without_batch"], color=ORANGE, linestyle="-.",
                  label="weights, gradients, optimizer")  # fmt: skip
    right.axhline(frame["capacity"], color=RED, linestyle="--",
                  label=f"usable: {frame['capacity']:.3g} GB")  # fmt: skip
    right.axvline(settings.batch_size, color=GREY)
    right.set(xscale="log", yscale="log", xlabel="batch size, examples", ylabel="GB on the GPU")
    right.legend(fontsize=8, frameon=False)
    figure.suptitle(frame["answer"]["says"], fontsize=10)
    return figure
