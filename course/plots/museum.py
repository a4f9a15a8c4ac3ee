"""A bug next to the healthy run: curves over the steps, or two bars for a single number."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from course.plots.style import BLUE as HEALTHY
from course.plots.style import RED as BUG
from course.plots.style import axes as row_of_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = 300.0
"""If the largest is this many times the smallest, positive values are drawn on a log axis."""


@dataclass(frozen=True, kw_only=True)
class Curves:
    """One quantity over the steps of both runs."""

    label: str
    healthy: Sequence[float]
    bug: Sequence[float]
    stopped: str = ""
    """What stopped the run with the bug, e.g. `RuntimeError`; empty if it ran to the end."""


@dataclass(frozen=True, kw_only=True)
class Bars:
    """One number of each run."""

    label: str
    healthy: float
    bug: float


def bug_beside_healthy(panels: Sequence[Curves | Bars], *, title: str, caption: str = "") -> Figure:
    """Panels side by side, with the healthy run in blue and the run with the bug in red.

    Args:
        panels: Curves [steps] of any two lengths, non-finite values included, or bars.
        title: Title above all panels.
        caption: A line under the title.

    Raises:
        ValueError: There is no panel.
    """
    if not panels:
        raise ValueError("panels = []: a figure needs at least one. Give it Curves or Bars.")
    figure, made = row_of_axes(4.8 * len(panels), 3.6, columns=len(panels))
    figure.suptitle(f"{title}\n{caption}" if caption else title, fontsize=11)
    for axes, panel in zip(made if len(panels) > 1 else [made], panels, strict=True):
        if isinstance(panel, Bars):
            draw_bars(axes, panel)
        else:
            draw_curves(axes, panel)
    return figure


def draw_curves(axes: Axes, curves: Curves) -> None:
    """Both curves; a cross where the bug stopped its run, a text if there is no point at all."""
    for values, name, colour, width in (
        (curves.healthy, "without the bug", HEALTHY, 2.2),
        (
            curves.bug,
            "with the bug",
            BUG,
            1.2,
        ),  # thinner, on top: equal curves both show
    ):
        steps = range(1, len(values) + 1)
        axes.plot(steps, values, color=colour, linewidth=width, label=name)
    if curves.stopped and len(curves.bug):
        axes.plot(
            len(curves.bug), curves.bug[-1], "x", color=BUG, markersize=10, label=curves.stopped
        )
    if not len(curves.bug):
        stopped = curves.stopped or "without an error"
        axes.text(
            0.97, 0.5, f"with the bug: not a single step\n{stopped}", color=BUG, ha="right",
            transform=axes.transAxes,
        )  # fmt: skip
    broken = sum(not math.isfinite(value) for value in curves.bug)
    if broken:
        axes.text(
            0.97, 0.5, f"with the bug: inf or nan in {broken} steps", color=BUG, ha="right",
            transform=axes.transAxes,
        )  # fmt: skip
    if is_wide([*curves.healthy, *curves.bug]):
        axes.set_yscale("log")
    axes.set_xlabel("step")
    name_above(axes, curves.label)
    axes.legend()


def draw_bars(axes: Axes, bars: Bars) -> None:
    """Two bars, each with its number."""
    values = bars.healthy, bars.bug
    drawn = axes.bar(["without the bug", "with the bug"], values, color=[HEALTHY, BUG], width=0.6)
    axes.bar_label(drawn, [f"{value:.4g}" for value in values], padding=2)
    axes.margins(y=0.15)
    name_above(axes, bars.label)


def name_above(axes: Axes, label: str) -> None:
    """Write the quantity's name above the panel, where a long label has room."""
    axes.set_title(textwrap.fill(label, 52), loc="left", fontsize=9)


def is_wide(values: Sequence[float]) -> bool:
    """Whether all finite values are positive and span more than a linear axis can show."""
    finite = [value for value in values if math.isfinite(value)]
    return bool(finite) and min(finite) > 0 and max(finite) > WIDE * min(finite)
