"""What the kit says to a student: text that a page wraps between words, unlike printed text."""

from __future__ import annotations

import textwrap
from html import escape

from autograde.kit.record import in_notebook

WIDTH = 78


def say(*paragraphs: str) -> None:
    """Show paragraphs in a notebook, or print them."""
    text = "\n".join(textwrap.fill(paragraph, WIDTH) for paragraph in paragraphs)
    if not in_notebook():
        print(text)
        return
    from IPython.display import display

    html = "".join(f'<p style="margin:.2em 0">{escape(paragraph)}</p>' for paragraph in paragraphs)
    display({"text/plain": text, "text/html": html}, raw=True)
