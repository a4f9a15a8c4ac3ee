"""One offline HTML page: nothing is loaded from elsewhere, and it reads well on a phone."""

from __future__ import annotations

from html import escape
from pathlib import Path

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;"
    "color:#1a1a1a;background:#fff}"
    "table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ccc;padding:.4rem;"
    "text-align:left;vertical-align:top}.v{white-space:nowrap;font-weight:600}"
    ".good{color:#14652b}.part{color:#7a4b00}.bad{color:#a3121f}.open{color:#444}"
    ".changed{background:#fdd}summary{cursor:pointer}td p{margin:.2rem 0;color:#555}"
    "td{overflow-wrap:break-word}tr[id]>td:first-child{white-space:nowrap}"
    "@media(max-width:44rem){.rows>thead{display:none}"
    ".rows>tbody>tr{display:block;border-bottom:1px solid #ccc;padding:.4rem 0}"
    ".rows>tbody>tr>td{display:block;border:0;padding:.1rem .4rem}}"
)
TONES = {
    "holds": "good",
    "agrees": "good",
    "holds if": "part",
    "lecture differs": "part",
    "rebuilt": "part",
    "does not hold": "bad",
    "differs": "bad",
}
"""The colour of a verdict; the word stands beside it."""


def page(title: str, body: str) -> str:
    """A whole page from a title and a body that is HTML already."""
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def verdict_cell(verdict: str) -> str:
    """A verdict in word and colour."""
    return f"<td class='v {TONES.get(verdict, 'open')}'>{escape(verdict)}</td>"


def check_page(path: Path) -> None:
    """Before minutes of computing: can a page be written there?

    Raises:
        ValueError: A directory, or in one that does not exist.
    """
    if path.is_dir():
        raise ValueError(f"--html {path}: a directory. Name the page, e.g. {path / 'page.html'}.")
    if not path.absolute().parent.is_dir():
        raise ValueError(
            f"--html {path}: no directory {path.parent}. Make it first: mkdir -p {path.parent}"
        )
