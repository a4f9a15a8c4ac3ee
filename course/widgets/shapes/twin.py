"""Ranks and stations as a figure: dimensions as boxes, bytes of outputs and parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, ORANGE, PURPLE, RED, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.shapes.state import Settings

COLOURS = {"B": BLUE, "T": RED, "C": ORANGE, "H": GREEN, "W": GREEN, "F": PURPLE}


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """The ladder of ranks on the left, the classifier's stations on the right."""
    figure, (left, right) = axes(11.0, 3.8, columns=2)
    for rank, rung in enumerate(frame["rungs"]):
        for x, (name, size) in enumerate(zip(rung["names"], rung["shape"], strict=True)):
            left.barh(rank, 0.92, left=x - 0.46, color=COLOURS[name], height=0.72)
            left.text(x, rank, f"{name} {size}", ha="center", va="center", color="white",
                      fontsize=8, weight="bold")  # fmt: skip
    left.axhspan(settings.rank - 0.48, settings.rank + 0.48, color="0.9", zorder=0)
    left.set_yticks(range(6), [f"{i} {rung['short']}" for i, rung in enumerate(frame["rungs"])])
    left.set_xticks(range(5), [f"dim {i}" for i in range(5)])
    left.set(xlim=(-0.55, 4.55), ylim=(-0.6, 5.6), ylabel="rank")
    stations = frame["stations"]
    for x, station in enumerate(stations):
        label = {"label": "output"} if x == 0 else {}
        right.bar(x - 0.2, station["bytes"], 0.38, color=BLUE, **label)
        if station["parameters"]:
            label = {"label": "parameters"} if x == 2 else {}
            right.bar(x + 0.2, station["parameter_bytes"], 0.38, color=ORANGE, **label)
    right.axvspan(frame["now"] - 0.48, frame["now"] + 0.48, color="0.9", zorder=0)
    words = [f"{one['name']}\n{one['shape']}" for one in stations]
    right.set_xticks(range(len(stations)), words, fontsize=7)
    right.set(yscale="log", ylabel="bytes", ylim=(1, None))
    right.legend(fontsize=8, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    right.set_title(f"{frame['parameters']:,} parameters", fontsize=9, loc="right")
    return figure
