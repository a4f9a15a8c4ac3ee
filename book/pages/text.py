"""Building blocks of all pages: HTML in Markdown, links from ids, tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape

from course.ledger import rows
from course.ledger.homes import ID, named
from course.pages import TONES

TAG = re.compile(r"(<[^>]*>)")
CLOSED = ("a", "code", "pre", "svg", "script", "style", "h1", "summary")
"""Inside these, an id stays plain text: a link would be hidden, or lead to itself."""


BLOCK_END = re.compile(r"</(?:td|th|tr|li|p|h[1-6]|summary|div|figcaption)>(?=\S)")


def spaced(html: str) -> str:
    """HTML with spaces between tags, since the search index removes tags without adding spaces.

    >>> spaced("<td>found</td><td>double</td>").split()
    ['<td>found</td>', '<td>double</td>']
    """
    return BLOCK_END.sub(lambda end: end[0] + "\n", html)


def raw(html: str) -> str:
    """HTML that is put into a Markdown page unchanged."""
    return f"`````{{raw}} html\n{spaced(html)}\n`````\n"


def id_link(id_: str, up: str = "../") -> str:
    """An id as a link to its page; `up` is the path from the current page to the top."""
    return f'<a class="ledger-id" href="{up}id/{id_}.html">{id_}</a>'


@cache
def known() -> frozenset[str]:
    """The ids that have a page."""
    return frozenset(rows())


def linked_words(text: str, up: str = "../", itself: str = "") -> str:
    """HTML text without tags, in which every known id becomes a link.

    >>> linked_words("see N19 & F27-F28")[:47]
    'see <a class="ledger-id" href="../id/N19.html">'
    """

    return "".join(
        piece if isinstance(piece, str) else "–".join(id_link(id_, up) for id_ in piece)
        for piece in pieces(text, itself)
    )


def pieces(text: str, itself: str = "") -> Iterator[str | list[str]]:
    """A text split at its ids: words unchanged, each id as a list, a range as its two ends.

    >>> list(pieces("see N19 & F27-F28"))
    ['see ', ['N19'], ' & ', ['F27', 'F28'], '']
    """
    last = 0
    for found in ID.finditer(text):
        ids = named(found[0])
        ends = [ids[0], ids[-1]] if len(ids) > 1 else ids
        if set(ends) <= known() and itself not in ends:
            yield text[last : found.start()]
            yield ends
            last = found.end()
    yield text[last:]


def linked(html: str, up: str = "../", itself: str = "") -> str:
    """HTML in which every known id outside links and code becomes a link to its page.

    Args:
        html: HTML with tags.
        up: The path from the page to the top of the book.
        itself: The id of the page itself, which is not linked.
    """
    out: list[str] = []
    inside: list[str] = []
    for piece in TAG.split(html):
        if piece.startswith("<"):
            name = piece.strip("</> ").split()[0].lower() if piece.strip("</> ") else ""
            if name in CLOSED:
                if piece.startswith("</"):
                    inside = inside[:-1]
                elif not piece.endswith("/>"):
                    inside.append(name)
            out.append(piece)
        else:
            out.append(piece if inside else linked_words(piece, up, itself))
    return "".join(out)


def prose(text: str, up: str = "../", itself: str = "") -> str:
    """A sentence as HTML: `code` becomes code, *this* is emphasised, ids become links."""
    html = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    html = re.sub(r"(?<![\w*])\*([^*\s][^*]*)\*(?![\w*])", r"<em>\1</em>", html)
    return linked(html, up, itself)


def paragraph(text: str, up: str = "../", itself: str = "") -> str:
    """The same as a paragraph."""
    return f"<p>{prose(text, up, itself)}</p>"


def counted(count: float, one: str, many: str = "") -> str:
    """A number with its noun: `1 claim`, `2 claims`."""
    return f"{count:g} {one if count == 1 else many or one + 's'}"


def headless(html: str) -> str:
    """One of our tables without the heading that its page already has."""
    return re.sub(r"<h4>.*?</h4>", "", html, count=1, flags=re.S)


def command(words: str) -> str:
    """A command to type in a terminal."""
    return f'<pre class="command"><code>{escape(words)}</code></pre>'


def badge(verdict: str) -> str:
    """A verdict as a coloured word."""
    tone = TONES.get(verdict, "open")
    return f'<span class="verdict {tone}">{escape(verdict)}</span>'


def folded(summary: str, html: str) -> str:
    """HTML in a section that a line opens."""
    return f"<details><summary>{summary}</summary>{html}</details>"


def table(heads: Sequence[str], body: Iterable[Sequence[str]], name: str) -> str:
    """A table of HTML cells that scrolls on its own if the page is too narrow.

    Args:
        heads: Column headings, plain text.
        body: Rows of HTML.
        name: Name of the table, for screen readers.
    """
    head = "".join(f"<th scope='col'>{escape(text)}</th>" for text in heads)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body)
    return (
        f"<div class='wide' tabindex='0' role='region' aria-label='{escape(name, quote=True)}'>"
        f"<table class='table'><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def frame(widget: str, title: str, up: str = "../") -> str:
    """A live widget inside a page."""
    source = f"{up}_static/widgets/{widget}.html"
    return (
        f'<iframe class="widget" src="{source}" title="{escape(title, quote=True)}" '
        f'loading="lazy"></iframe><p class="alone"><a href="{source}">on its own page</a></p>'
    )


def page(title: str, *blocks: str, orphan: bool = False, description: str = "") -> str:
    """A Markdown page: front matter, title, blocks."""
    front = ["orphan: true"] if orphan else []
    if description:
        front += ["myst:", "  html_meta:", f"    description: {_quoted(description)}"]
    head = "\n".join(["---", *front, "---", ""]) if front else ""
    return f"{head}# {markdown(title)}\n\n" + "\n".join(blocks) + "\n"


def markdown(text: str) -> str:
    """Plain text for a Markdown title, with all markup escaped."""
    return re.sub(r"([\\`*_{}\[\]<>$#|~])", r"\\\1", text)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
