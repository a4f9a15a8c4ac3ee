"""Tables in a notebook: to the left, as wide as they need, no word broken in the middle.

JupyterLab sets a table's cells to the right, as for numbers, and its columns equally wide; these
hold sentences. Styles stand in each tag, since a page may strip <style>.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

BOX = "overflow-x:auto;max-width:100%"
TABLE = "table-layout:auto;margin:0 0 .5em 0;width:auto"
CELL = "text-align:left;vertical-align:top;overflow-wrap:normal;word-break:normal;hyphens:none"


class Markup(str):
    """Text that is HTML already: everything in it was escaped where it was made."""

    __slots__ = ()


def as_markup(text: str) -> Markup:
    """Plain text escaped; markup as it is."""
    return text if isinstance(text, Markup) else Markup(escape(text))


def code(text: str) -> Markup:
    """A formula or a line of code; nothing for an empty text."""
    return Markup(f"<code>{escape(text)}</code>" if text else "")


def listing(text: str) -> Markup:
    """Lines of code, wrapped between words; nothing for an empty text."""
    style = "white-space:pre-wrap;word-break:normal"
    return Markup(f'<pre style="{style}">{as_markup(text)}</pre>' if text else "")


def breakable(text: str) -> Markup:
    """Code that a narrow page may also break after an opening parenthesis.

    >>> breakable("SGD(model.parameters(), 0.1)")
    'SGD(<wbr>model.parameters(), 0.1)'
    """
    return Markup(re.sub(r"\((?!\))", "(<wbr>", escape(text)))


def folded(summary: str, text: str) -> Markup:
    """A text behind its summary, opened by a click; nothing for an empty text."""
    if not text:
        return Markup("")
    return Markup(
        f"<details><summary>{as_markup(summary)}</summary><p>{as_markup(text)}</p></details>"
    )


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """A table with a row of heads; cells are plain text, or Markup."""
    head = f"<thead>{_row('th', heads)}</thead>" if heads else ""
    body = "".join(_row("td", row) for row in rows)
    table = f'<table style="{TABLE}">{head}<tbody>{body}</tbody></table>'
    return boxed(table)


def boxed(table: str) -> Markup:
    """A table of numbers that scrolls by itself where the page is too narrow for it."""
    return Markup(f'<div style="{BOX}">{table}</div>')


def _row(tag: str, cells: Iterable[str]) -> str:
    written = (f'<{tag} style="{CELL}">{as_markup(text)}</{tag}>' for text in cells)
    return f"<tr>{''.join(written)}</tr>"
