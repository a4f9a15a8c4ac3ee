"""The graph as a figure: values, the gradients that have flowed back, `.grad` of the leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREY, RED, axes
from course.widgets.graph.state import says, text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.graph.state import Settings

CLEAR = 20
"""Points of an arrow's end that the boxes cover."""


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """Leaves are squares, operations circles; the node that has just run is red."""
    figure, ax = axes(10.0, 3.6)
    ax.set_axis_off()
    at = {box["name"]: box["at"] for box in frame["boxes"]}
    ax.set(xlim=(-0.6, max(x for x, _ in at.values()) + 0.6), ylim=(-1.75, 0.9))
    ran = frame["event"]["name"] if frame["event"] else None
    for edge in frame["edges"]:
        back = edge["to"] == ran and edge["from"] in frame["handed"]
        ends = (edge["to"], edge["from"]) if back else (edge["from"], edge["to"])
        look = (
            {"color": RED, "linewidth": 3} if back else {"color": BLUE if edge["taped"] else GREY}
        )
        ax.annotate("", at[ends[1]], at[ends[0]], arrowprops={
            "arrowstyle": "->", "shrinkA": CLEAR, "shrinkB": CLEAR, **look,
            "linestyle": "-" if edge["taped"] else ":",
        })  # fmt: skip
    for box in frame["boxes"]:
        _draw_box(ax, box)
    figure.suptitle(says(settings, frame), fontsize=9)
    return figure


def _draw_box(ax: Any, box: dict[str, Any]) -> None:
    rim = BLUE if box["reached"] else GREY
    fill = RED if box["running"] else "lightgrey" if box["ran"] else "white"
    ax.plot(*box["at"], "s" if box["leaf"] else "o", markersize=30, markerfacecolor=fill,
            markeredgecolor=rim)  # fmt: skip
    ax.text(*box["at"], box["symbol"], ha="center", va="center", fontsize=11,
            color="white" if box["running"] else "black", weight="bold")  # fmt: skip
    lines = [text(box["value"]) if box["leaf"] else f"{box['name']} = {text(box['value'])}"]
    if box["arrived"] is not None:
        lines.append(f"← {text(box['arrived'])}")
    if box["grad"] is not None:
        lines.append(f".grad {text(box['grad'])}")
    up = box["at"][1] >= 0
    ax.annotate("\n".join(lines), box["at"], xytext=(0, 20 if up else -20), fontsize=9,
                textcoords="offset points", ha="center", va="bottom" if up else "top")  # fmt: skip
