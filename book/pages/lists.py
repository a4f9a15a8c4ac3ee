"""Pages with one kind of thing each: verdicts that differ, numbers, claims, bugs, sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape

from book.pages.evidence import Evidence
from book.pages.text import badge, counted, frame, id_link, page, paragraph, prose, raw, table
from book.slugs import slug
from course.ledger import SERIES, rows
from course.ledger.rows import TEXTS
from course.widgets import catalogue as widgets

AGREES = {"worked": ("agrees", "rebuilt", "lecture silent"), "claims": ("holds",)}
"""Verdicts that do not contradict the lecture; the rest are on the page of differences."""
PENDING = ("needs GPU",)
"""Neither: claims that could not be tested here."""


def list_pages(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Pairs (file, Markdown) for all lists."""
    yield "verdicts.md", _differences(evidence)
    yield "numbers.md", _numbers(evidence)
    yield "claims.md", _claims(evidence)
    yield "bugs.md", _bugs(evidence)
    yield from _widgets(evidence)
    yield from _sources()


def _differences(evidence: Evidence) -> str:
    """The page of differences, for lecturers."""
    numbers = [
        (id_link(id_, ""), escape(rows()[id_].line), badge(number["verdict"]))
        for id_, number in evidence.worked.items()
        if number["verdict"] not in AGREES["worked"]
    ]
    claims = [
        (id_link(id_, ""), prose(trial["says"], "", id_),
         badge(trial["verdict"]), prose(_why(trial), "", id_))
        for id_, trial in evidence.claims.items()
        if trial["verdict"] not in (*AGREES["claims"], *PENDING)
    ]  # fmt: skip
    rows_ = [
        (id_link(id_, ""), escape(row["topic"]), prose(row["uses"], "", id_))
        for id_, row in evidence.contradictions.items()
    ]
    said = (
        f"{counted(len(numbers), 'worked number')}, {counted(len(claims), 'claim')} and "
        f"{counted(len(rows_), 'place')} where the "
        "sources contradict each other. Each id leads to the steps or the evidence."
    )
    return page(
        "Where our results differ",
        raw(paragraph(said)),
        "## Numbers\n\n" + raw(table(("id", "what", "verdict"), numbers, "Numbers that differ")),
        "## Claims\n\n"
        + raw(table(("id", "the lecture says", "verdict", "what decides"), claims, "Claims")),
        "## Contradictions\n\n" + raw(table(("id", "topic", "the course"), rows_, "Topics")),
    )


def _why(trial: dict) -> str:
    if trial["verdict"] == "holds if" and trial["condition"]:
        return f"It holds {trial['condition']}. {trial['decides']}"
    return trial["decides"]


def _tally(verdicts: list[str]) -> str:
    return ", ".join(f'{count} "{verdict}"' for verdict, count in Counter(verdicts).most_common())


def _numbers(evidence: Evidence) -> str:
    body = [
        (id_link(id_, ""), escape(rows()[id_].line), badge(number["verdict"]))
        for id_, number in evidence.worked.items()
    ]
    tally = _tally([number["verdict"] for number in evidence.worked.values()])
    said = f"{counted(len(body), 'number')}: {tally}."
    heads = ("id", "what is computed", "verdict")
    return page("Worked numbers", raw(paragraph(said) + table(heads, body, "Worked numbers")))


def _claims(evidence: Evidence) -> str:
    body = [
        (id_link(id_, ""), escape(trial["title"]), badge(trial["verdict"]),
         prose(trial["decides"], "", id_))
        for id_, trial in evidence.claims.items()
    ]  # fmt: skip
    tally = _tally([trial["verdict"] for trial in evidence.claims.values()])
    said = f"{counted(len(body), 'claim')}: {tally}."
    heads = ("id", "claim", "verdict", "what decides")
    return page("Claims, tested", raw(paragraph(said) + table(heads, body, "Claims")))


def _bugs(evidence: Evidence) -> str:
    body = [
        (id_link(id_, ""), escape(bug["title"]), escape(rows()[id_].source))
        for id_, bug in evidence.bugs.items()
    ]
    said = "Each bug is one switch in an otherwise healthy run; its page shows both curves."
    heads = ("id", "bug", "in the sources")
    return page("The museum of bugs", raw(paragraph(said) + table(heads, body, "Bugs")))


def _widgets(evidence: Evidence) -> Iterator[tuple[str, str]]:
    lines = ["```{toctree}", ":maxdepth: 1", ""]
    for entry in widgets().values():
        if entry.id not in evidence.widgets:
            continue
        lines.append(f"/widgets/{entry.id}")
        ids = ", ".join(map(id_link, entry.ledger))
        about = f"<p class='source'>{escape(entry.source)} · {ids}</p>"
        use = (
            "<p>In a notebook, with all settings: </p><pre class='command'><code>from "
            f"course.widgets import {entry.name}\n"
            f"{entry.name}()</code></pre>"
        )
        blocks = (raw(about), raw(frame(entry.id, entry.title)), raw(use))
        yield f"widgets/{entry.id}.md", page(entry.title, *blocks)
    said = "Each runs in its page, without a kernel; in a notebook it has all its settings."
    index = page("Interactive simulations", raw(paragraph(said)), "\n".join([*lines, "```", ""]))
    yield "widgets/index.md", index


def _sources() -> Iterator[tuple[str, str]]:
    """The ids of each source by place, in the order of the ledger."""
    for text, name in TEXTS.items():
        places: dict[str, list[str]] = {}
        for row in rows().values():
            for where in (where for source, where in row.places if source == text):
                places.setdefault(where, []).append(row.id)
        blocks = []
        for where in sorted(places, key=_in_order) if text in ("chapter", "module") else places:
            items = "".join(f"<li>{id_link(id_)} {escape(rows()[id_].line)}</li>"
                            for id_ in places[where])  # fmt: skip
            blocks.append(f'<h2 id="{slug(where)}">{escape(where)}</h2><ul>{items}</ul>')
        title = name[0].upper() + name[1:]
        said = paragraph(f"{counted(len(places), 'place')}, and what this book has about each.")
        yield f"sources/{text}.md", page(title, raw(said + "".join(blocks)))


def _in_order(where: str) -> tuple[bool, str]:
    """Chapters c0 to c9 and sections by number, then everything else."""
    return (where[0] not in "c§", where)


def series_names() -> str:
    """The meaning of the letters of ids, for the page about the book."""
    return ", ".join(f"{letter} {name}" for letter, name in SERIES.items())
