"""The two modes as a figure: outputs pass by pass, a running mean, bytes kept for backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREY, RED, axes, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.modes.state import Settings

LOOKS = {"train": (RED, "s--"), "eval": (BLUE, "o-")}


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """From left to right: the same example's output, BatchNorm's running mean, and the bytes."""
    figure, (left, middle, right) = axes(11.0, 3.2, columns=3)
    for mode, (colour, look) in LOOKS.items():
        shown = frame["modes"][mode]
        left.plot(range(1, settings.passes + 1), shown["outputs"], look, color=colour, label=mode)
        middle.plot(range(settings.passes + 1), shown["means"], look, color=colour, label=mode)
    middle.axhline(frame["centre"], color=GREY, linestyle=":", label="mean of the data")
    left.set(xlabel="forward pass", ylabel="output for example 0")
    middle.set(xlabel="forward passes done", ylabel=f"running mean of unit {frame['unit']}")
    for ax in (left, middle):
        whole_numbers(ax)
        ax.margins(y=0.3)
        ax.legend(fontsize=8, frameon=False, ncols=3, loc="upper center")
    names = [f"{mode},\n{name}" for name in ("grad", "no_grad") for mode in LOOKS]
    counts = [frame["kept"][mode][name] / 1000 for name in ("grad", "no_grad") for mode in LOOKS]
    drawn = right.bar(names, counts, color=[LOOKS[mode][0] for mode in LOOKS] * 2)
    right.bar_label(drawn, [f"{count:.3g}" for count in counts], fontsize=8)
    right.set(ylabel="kept for backward (kB)")
    right.tick_params(axis="x", labelsize=8)
    return figure
