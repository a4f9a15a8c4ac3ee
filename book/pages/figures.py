"""The figures from a run of a notebook, and where they appear."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from nbformat import NotebookNode

from book.slugs import headings, slug


@dataclass(frozen=True)
class Figure:
    """One figure."""

    notebook: str
    under: str
    """The heading above it."""
    section: str
    """The heading's address on the notebook's page."""
    html: str


def figures_of(name: str, notebook: NotebookNode) -> list[Figure]:
    """The figures of a notebook in order, as SVG if available, else as PNG."""
    found: list[Figure] = []
    heading = name
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            heading = [heading, *headings(cell.source)][-1]
            continue
        for output in cell.get("outputs", ()):
            html = output.get("data", {}).get("text/html", "")
            if "<svg" in html and 'role="img"' in html:
                found.append(Figure(name, escape(heading), slug(heading), html))
    return found
