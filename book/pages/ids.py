"""A page for every id of the ledger: what it is, what was found, and where it is covered."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from book.pages.evidence import Evidence
from book.pages.text import (
    badge,
    command,
    frame,
    headless,
    id_link,
    linked,
    page,
    paragraph,
    prose,
    raw,
)
from book.parts import parts_of
from book.slugs import slug
from course.ledger import SERIES, Home, Row, homes, rows, same_place
from course.ledger.rows import TEXTS

ONE = {
    "N": "worked number",
    "S": "simulation or figure",
    "X": "exercise of the sources",
    "C": "code pattern",
    "F": "claim",
    "K": "contradiction",
    "B": "bug",
    "T": "table",
}
"""What a single id of each series is."""


def id_pages(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Pairs (file, Markdown) for all ids and their index."""
    for row in rows().values():
        blocks = [_head(row), "".join(_found(row, evidence)), _lives(row, evidence)]
        title = f"{row.id} · {row.line}"
        yield (
            f"id/{row.id}.md",
            page(title, raw("".join(blocks)), orphan=True, description=row.line),
        )


def _head(row: Row) -> str:
    series = f'<a href="index.html#{row.id[0].lower()}">{ONE[row.id[0]]}</a>'
    there = "; ".join(
        f'<a href="../sources/{text}.html#{slug(where)}">{escape(TEXTS[text])}</a>, {escape(where)}'
        for text, where in row.places
    )
    return f"<p class='source'>{series[0].upper() + series[1:]} · {there}</p>"


def _found(row: Row, evidence: Evidence) -> Iterator[str]:
    """The results of running it."""
    id_ = row.id
    if id_ in evidence.worked:
        number = evidence.worked[id_]
        yield f"<p>{badge(number['verdict'])}</p>{linked(number['html'], itself=id_)}"
    if id_ in evidence.claims:
        yield claim_found(evidence.claims[id_], itself=id_)
    if id_ in evidence.contradictions:
        yield contradiction(evidence.contradictions[id_])
    if id_ in evidence.bugs:
        yield linked(headless(evidence.bugs[id_]["html"]), itself=id_)
    for home in homes()[id_]:
        if home.kind == "widget" and home.name in evidence.widgets:
            yield frame(home.name, home.name)


def claim_found(trial: dict, itself: str = "") -> str:
    """A claim: the assertion, the verdict, the number that decides, and all evidence."""
    holds = ""
    if trial["verdict"] == "holds if" and trial["condition"]:
        holds = paragraph(f"It holds {trial['condition']}.", itself=itself)
    return (
        f"{paragraph('The lecture says: ' + trial['says'], itself=itself)}"
        f"<p>{badge(trial['verdict'])} {prose(trial['decides'], itself=itself)}</p>"
        f"{holds}{linked(trial['html'], itself=itself)}"
    )


def contradiction(row: dict) -> str:
    """A contradiction: the positions, what decides between them, and what the course does."""
    positions = "".join(f"<li>{escape(text)}</li>" for text in row["positions"])
    by = ", ".join(map(id_link, row["decided_by"])) or "a choice"
    return (
        f"<ul>{positions}</ul><p><strong>Decided by</strong> {by}</p>"
        f"<p><strong>The course</strong> {prose(row['uses'])}</p>"
    )


def _lives(row: Row, evidence: Evidence) -> str:
    """Homes, parts, neighbours, and the command."""
    found = homes()[row.id]
    lines = (f"<li>{escape(home.kind)}: {home_link(home, evidence)}</li>" for home in found)
    lives = f"<h2>Where it is covered</h2><ul>{''.join(lines)}</ul>"
    where = ", ".join(
        f'<a href="../parts/{part.key}.html">{part.number} · {escape(part.title)}</a>'
        for part in parts_of(row.id)
    )
    lives += f"<p>Part of the book: {where}</p>"
    if others := same_place(row.id):
        lives += f"<p>In the same place: {', '.join(map(id_link, others))}</p>"
    again = [home.name for home in found if home.name.startswith("course ")]
    return lives + "<h2>Run it again</h2>" + command("\n".join([*again, f"course ledger {row.id}"]))


def home_link(home: Home, evidence: Evidence) -> str:
    """A home as a link into the book; a widget that was not run has no page."""
    shown = f"<code>{escape(home.name)}</code>"
    match home.kind:
        case "exercise":
            key = home.name.partition(".")[0]
            return f'<a href="../exercises/{key}.html#{slug(home.name)}">{shown}</a>'
        case "widget" if home.name in evidence.widgets:
            return f'<a href="../widgets/{home.name}.html">{shown}</a>'
        case "notebook":
            return f'<a href="../notebooks/{home.name}.html">{shown}</a>'
    return f'<a href="../api/{home.module}.html">{shown}</a> <span class="path">{home.path}</span>'


def id_index() -> str:
    """The list of all ids, by series."""
    blocks = []
    for letter, name in SERIES.items():
        chosen = [row for row in rows().values() if row.id[0] == letter]
        items = "".join(f"<li>{id_link(row.id)} {escape(row.line)}</li>" for row in chosen)
        blocks.append(f"## {letter}: {name}\n")
        blocks.append(raw(f'<ul class="ids" id="{letter.lower()}">{items}</ul>'))
    return page("Every id", *blocks)
