"""TeX in a page without scripts: each formula becomes an image, or its source is shown.

A feedback page works offline and its policy forbids scripts, so MathJax cannot be used there.
matplotlib's mathtext knows the TeX that a sentence needs (fractions, sums, Greek, roots, fonts) and
draws it as SVG; what it does not know (`aligned`, macros) is left as it was typed, as code. The
source is the picture's alternative text, so it can be read aloud, searched and copied.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bs4 import BeautifulSoup
    from bs4.element import NavigableString, Tag

TEX = re.compile(
    r"\$\$(?P<block>[^$]+)\$\$"
    r"|\\begin\{(?P<name>[a-z]+\*?)\}"
    r"|\$(?P<inline>(?!\s)[^$]+(?<!\s))\$(?!\d)",  # not "from $5 to $6"
    re.DOTALL,
)
VERBATIM = ("a", "code", "kbd", "pre", "samp", "tt")
MAX_TEXT = 20_000
"""Letters of one paragraph; a longer one is shown as it is."""
MAX_TEX = 400
"""Letters of one formula that is drawn."""
MAX_FORMULAS = 200
"""Formulas drawn in one page; the time that a page may take is not the student's to set."""
MAX_DEPTH_PT = 60
SIZE_PT = 12

STYLE = (
    ".formula { max-width: 100%; } .formula.block { display: block; margin: 0.6em auto; } "
    + " ".join(f".down-{pt} {{ vertical-align: -{pt}pt; }}" for pt in range(1, MAX_DEPTH_PT + 1))
)
"""Classes that the pictures use; a formula sits on the line's baseline."""


def draw_formulas(soup: BeautifulSoup) -> None:
    """Replace a document's formulas by images, or by code, in place.

    Formulas are `$...$`, `$$...$$` and environments, as Jupyter reads them; those in code and links
    are left alone.
    """
    left = MAX_FORMULAS
    for text in soup.find_all(string=lambda text: text and len(text) <= MAX_TEXT):
        if TEX.search(text) and not text.find_parent(VERBATIM):
            pieces = list(_pieces(soup, text, left))
            left -= len(pieces) // 2
            text.replace_with(*pieces)


def _pieces(soup: BeautifulSoup, text: NavigableString, left: int) -> list[NavigableString | Tag]:
    """The text cut at its formulas: words, formula, words, ..."""
    pieces, last = [], 0
    for number, (found, end) in enumerate(_formulas(text)):
        pieces += [soup.new_string(text[last : found.start()])]
        source = text[found.start() : end]
        pieces += [_drawn(soup, found, source) if number < left else _as_code(soup, found, source)]
        last = end
    return [*pieces, soup.new_string(text[last:])]


def _formulas(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Each formula, and where it ends: an environment at its own \\end, if it has one."""
    at = 0
    while found := TEX.search(text, at):
        at = found.end()
        if found["name"]:
            closing = f"\\end{{{found['name']}}}"
            if (closes := text.find(closing, at + 1)) < 0:
                continue
            at = closes + len(closing)
        yield found, at


def _drawn(soup: BeautifulSoup, found: re.Match[str], source: str) -> Tag:
    block = found["block"] is not None
    tex = " ".join((found["block"] or found["inline"] or "").split())
    drawn = picture(tex)
    if drawn is None:
        return _as_code(soup, found, source)
    svg, depth = drawn
    place = "block" if block else f"down-{depth}"
    data = base64.b64encode(svg).decode()
    return soup.new_tag(
        "img",
        attrs={
            "class": f"formula {place}",
            "alt": tex,
            "title": tex,
            "src": f"data:image/svg+xml;base64,{data}",
        },
    )


def _as_code(soup: BeautifulSoup, found: re.Match[str], source: str) -> Tag:
    code = soup.new_tag("code")
    code.string = (found["block"] or found["inline"] or source).strip()
    return code


@lru_cache(maxsize=1024)
def picture(tex: str) -> tuple[bytes, int] | None:
    """A formula as SVG.

    Args:
        tex: Without dollar signs.

    Returns:
        The drawing and how far it reaches below the line, in pt; None if it cannot be drawn.
    """
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import MathTextParser

    if not tex or len(tex) > MAX_TEX:
        return None
    font = FontProperties(size=SIZE_PT)
    try:
        width, height, depth, *_ = MathTextParser("path").parse(f"${tex}$", dpi=72, prop=font)
        if not (0 < width < 2000 and 0 < height < 500 and depth <= MAX_DEPTH_PT):
            return None
        figure = Figure(figsize=(width / 72, height / 72))
        figure.text(0, depth / height, f"${tex}$", fontproperties=font)
        svg = io.BytesIO()
        figure.savefig(svg, dpi=72, format="svg", transparent=True, metadata={"Date": None})
    except (ValueError, RecursionError, OverflowError, MemoryError, RuntimeError):
        return None
    return svg.getvalue(), round(depth)
