"""The ceilings as a figure: gains alone and stage by stage, and every combination."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, GREY, ORANGE, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.ceiling.state import Settings


def named(replaced: list[bool], names: list[str]) -> str:
    """The perfect stages of a combination, in words."""
    on = [name for name, perfect in zip(names, replaced, strict=True) if perfect]
    return " + ".join(on) if on else "none"


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """Single gains with their intervals on the left, all combinations on the right."""
    figure, (left, right) = axes(9.6, 3.8, columns=2)
    stages = frame["stages"]
    for y, stage in enumerate(stages):
        left.barh(y, stage["alone"], color=BLUE, label=None if y else "alone")
        left.plot([stage["low"], stage["high"]], [y, y], color="black", linewidth=1.5)
        left.plot(stage["on_top"], y, "D", color=ORANGE, markeredgecolor="black",
                  label=None if y else "with those before it")  # fmt: skip
        end = max(stage["high"], stage["on_top"], 0)
        left.annotate(f"{stage['alone']:+.1f}", (end, y), xytext=(5, 0),
                      textcoords="offset points", va="center", fontsize=9)  # fmt: skip
    names = [stage["name"] for stage in stages]
    left.axvline(0, color="black", linewidth=0.8)
    left.set_yticks(range(len(names)), names)
    left.invert_yaxis()
    left.margins(x=0.16)
    left.set_xlabel("points gained if the stage were perfect")
    left.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=2)
    rows = frame["combinations"]
    colours = [GREEN if row["on"] else GREY for row in rows]
    bars = right.barh(range(len(rows)), [row["points"] for row in rows], color=colours)
    right.bar_label(bars, [f"{row['points']:.1f}" for row in rows], padding=3, fontsize=8)
    right.set_yticks(range(len(rows)), [named(row["replaced"], names) for row in rows])
    right.tick_params(axis="y", labelsize=8)
    right.invert_yaxis()
    right.set(xlim=(0, 112), xlabel="codes read correctly, % (green: as set)")
    return figure
