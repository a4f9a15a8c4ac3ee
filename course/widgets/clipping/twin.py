"""Clipping as a figure: the window's gradients tip to tail, before and after, and the ceiling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.plots.style import BLUE, GREEN, GREY, ORANGE, RED, axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.widgets.clipping.state import Settings


def draw(settings: Settings, frame: dict[str, Any]) -> Figure:
    """The plane on the left; norms and cosines of both ways to clip on the right."""
    from matplotlib.patches import Circle, Rectangle

    figure, (plane, ways) = axes(9.6, 4.4, columns=2)
    limit, reach = settings.max_norm, frame["reach"]
    if settings.way == "norm":
        plane.add_patch(Circle((0, 0), limit, fill=False, linestyle="--", color=GREY))
    else:
        corner = (-limit, -limit)
        plane.add_patch(
            Rectangle(corner, 2 * limit, 2 * limit, fill=False, linestyle="--", color=GREY)
        )
    arrow = {"arrowstyle": "-|>", "linewidth": 2, "mutation_scale": 14, "shrinkA": 0, "shrinkB": 0}
    if len(frame["path"]) > 2:
        for start, end in zip(frame["path"], frame["path"][1:], strict=False):
            plane.annotate("", end, start, arrowprops={**arrow, "color": ORANGE, "linewidth": 1.2})
        plane.plot([], [], color=ORANGE, label="each micro-batch adds")
    for end, colour, name in (
        (frame["before"], BLUE, f"before, norm {frame['norm_before']:.3g}"),
        (frame["after"], RED, f"after, norm {frame['norm_after']:.3g}"),
    ):
        plane.annotate("", end, (0, 0), arrowprops={**arrow, "color": colour})
        plane.plot([], [], color=colour, label=name)
    plane.plot(*frame["big"], "D", color=GREEN, label="one big batch", markerfacecolor="none")
    plane.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    plane.set(xlabel="first number of the gradient", ylabel="second")
    plane.legend(fontsize=8, loc="lower left")
    names = ["joint norm", "each number"]
    drawn = ways.barh(names, [row["norm"] for row in frame["ways"]], color=[BLUE, ORANGE])
    ways.bar_label(
        drawn, [f"norm {r['norm']:.3g}, cosine {float(r['cosine']):.4f}" for r in frame["ways"]],
        padding=3, fontsize=9,
    )  # fmt: skip
    ways.axvline(limit, color=GREY, linestyle="--")
    ways.set(xlabel="norm after clipping (dashed: the ceiling)", xlim=(0, 2.8 * limit))
    ways.invert_yaxis()
    return figure
