"""The front page, and the page about the book."""

from __future__ import annotations

from html import escape

from book.pages.evidence import Evidence
from book.pages.lists import series_names
from book.pages.text import command, counted, page, paragraph, raw
from book.parts import ids_of, parts
from course.ledger import rows
from course.released import released

TREE = """```{{toctree}}
:hidden:
:caption: {caption}

{entries}
```
"""


def index(evidence: Evidence) -> str:
    """The front page: what this is, the parts, and where else to go."""
    cards = "".join(
        f'<li><a href="parts/{part.key}.html"><b>{part.number}</b> {escape(part.title)}</a>'
        f"<span>{_holds(ids_of(part))}</span></li>"
        for part in parts()
    )
    said = (
        "Every number of the lecture recomputed, every claim tested, every simulation "
        "interactive, every bug next to its healthy run: "
        f"{counted(len(evidence.worked), 'number')}, {counted(len(evidence.claims), 'claim')}, "
        f"{counted(len(evidence.bugs), 'bug')}, {counted(len(evidence.widgets), 'simulation')}. "
        "All of it was run just before this page was built, and everything works without a "
        "network."
    )
    where = (
        '<p>In a hurry: <a href="verdicts.html">where our results differ from the lecture</a>. '
        'Looking for something specific: <a href="id/index.html">every id</a>, or search.</p>'
    )
    tree = TREE.format(
        caption="The book",
        entries="\n".join(
            ("Parts <parts/index>", "Differences <verdicts>", "Numbers <numbers>",
             "Claims <claims>", "Bugs <bugs>", "Simulations <widgets/index>",
             "Exercises <exercises/index>", "Notebooks <notebooks/index>", "Ids <id/index>",
             "Sources <sources/index>", "Reference <api/index>", "About <about>")
        ),
    )  # fmt: skip
    body = raw(f"<p class='lead'>{escape(said)}</p>{where}<ol class='parts'>{cards}</ol>")
    return page("Training deep networks in practice", body, tree)


HELD = {"N": ("number",), "F": ("claim",), "B": ("bug",)}
HELD["X"] = ("exercise of the sources", "exercises of the sources")


def _holds(ids: list[str]) -> str:
    found = {letter: sum(id_[0] == letter for id_ in ids) for letter in HELD}
    return ", ".join(counted(count, *HELD[letter]) for letter, count in found.items() if count)


def about_page(about: dict[str, str]) -> str:
    """How the book was built, and how to build it again."""
    rows_ = "".join(f"<li>{escape(name)}: {escape(value)}</li>" for name, value in about.items())
    ids = (
        f"An id, e.g. N19, names one thing that the sources teach: {series_names()}. There are "
        f"{len(rows())} of them, and each has its own page, e.g. id/N19.html."
    )
    keys = (
        "Press / or Ctrl+K to search, and Tab to move through links and simulations; the switch at "
        "the top changes between light and dark. Printed pages are light, with all folded sections "
        "open."
    )
    return page(
        "About this book",
        raw(f"<ul>{rows_}</ul>{paragraph(ids, up='')}{paragraph(keys)}"),
        "## Build it again\n\n" + raw(command("make book")),
    )


def trees() -> dict[str, str]:
    """Pages that are only a table of contents: exercises, notebooks, sources."""
    shown = [part for part in parts() if part.notebook]
    lists = {
        "exercises/index.md": ("Exercises", [f"/exercises/{part.key}" for part in shown]),
        "notebooks/index.md": ("Notebooks", [f"/notebooks/{name}" for name in released()]),
        "sources/index.md": (
            "By source",
            [f"/sources/{name}" for name in ("lecture", "module", "chapter", "essay")],
        ),
    }
    return {
        file: page(title, "\n".join(["```{toctree}", ":maxdepth: 1", "", *entries, "```", ""]))
        for file, (title, entries) in lists.items()
    }
