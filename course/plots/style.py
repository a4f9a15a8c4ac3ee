"""One look for all figures: colours that all readers can distinguish, axes without a box."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours of Okabe and Ito.
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#7F7F7F"
PURPLE, SKY = "#CC79A7", "#56B4E9"


def axes(width: float = 6.4, height: float = 3.6, columns: int = 1) -> tuple[Figure, Any]:
    """A figure with one axes, or with a row of them.

    Args:
        width: Inches.
        height: Inches.
        columns: Axes side by side; more than 1 gives an array of axes.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    made = figure.subplots(1, columns)
    for ax in made if columns > 1 else [made]:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, made


def named(name: str, width: int = 24, lines: int = 2) -> str:
    """A user's name broken into a few short lines, since a long one would displace the figure."""
    return "\n".join(
        textwrap.wrap(name, width, max_lines=lines, placeholder=" …", break_on_hyphens=False)
    )


def whole_numbers(ax: Any) -> None:
    """Set ticks of the x axis only at whole numbers: there is no epoch 2.5."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
