"""Figures in a notebook that follow its theme, light or dark, even if it is switched later.

A PNG stays black on white. So in a notebook a figure is also embedded as SVG, whose ink and paper
are the page's own colours; if a page does not show such SVG (an exported or untrusted notebook),
the PNG next to it is shown. Ink is everything drawn in matplotlib's default text colour: data drawn
in other colours keep them.
"""

from __future__ import annotations

import io
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, PAPER = "#1a1b1c", "#fdfcfb"
"""Colours that nothing else uses, so that they can be found in the drawing."""
INKED = (
    "text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color",
    "ytick.color", "legend.labelcolor",
)  # fmt: skip
PAPERED = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
MAX_SVG = 400_000
"""Characters; a figure with tens of thousands of points stays a PNG."""


def follow_theme() -> None:
    """Make every figure that this notebook shows from here on follow the page's theme."""
    import matplotlib
    from IPython import get_ipython

    import_module("matplotlib_inline.backend_inline")  # loaded later, it would undo the rest
    matplotlib.rcParams.update({name: INK for name in INKED} | {name: PAPER for name in PAPERED})
    matplotlib.rcParams["axes.formatter.min_exponent"] = 3  # log ticks: 0.6 instead of 6 × 10⁻¹
    formatter = get_ipython().display_formatter.formatters["text/html"]
    formatter.for_type_by_name("matplotlib.figure", "Figure", themed_svg)


def themed_svg(figure: Figure) -> str | None:
    """The figure as SVG in the page's own colours; None if it would be too large.

    Args:
        figure: Drawn with `INK` and `PAPER` as its default colours.
    """
    drawn = io.StringIO()
    size = figure.get_size_inches() * 72
    figure.savefig(drawn, format="svg", bbox_inches="tight", metadata={"Date": None})
    svg = drawn.getvalue()
    if len(svg) > MAX_SVG:
        return None
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<(metadata|style)[ >].*?</\1>", "", svg, flags=re.DOTALL)  # a page's, not ours
    svg = svg.replace(INK, "currentColor").replace(PAPER, "var(--jp-layout-color0, Canvas)")
    style = f"width:100%;max-width:{size[0] * 96 / 72:.0f}px;height:auto"
    head, _, rest = svg.partition(">")
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    name = _spoken(figure)
    return f'{head} role="img" aria-label="{name}" style="{style}" stroke-linejoin="round">{rest}'


def _spoken(figure: Figure) -> str:
    """The text for screen readers: titles and axes."""
    from html import escape

    said: list[Any] = []
    for ax in figure.axes:
        said += [ax.get_title(), ax.get_ylabel() and f"{ax.get_ylabel()} over {ax.get_xlabel()}"]
    return escape("Figure: " + ", ".join(filter(None, said)), quote=True)
