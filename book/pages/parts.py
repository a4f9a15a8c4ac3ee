"""A page for every part: what the lecture says, and everything here that belongs to it."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from book.pages.evidence import Evidence
from book.pages.exercises import exercises_of, row_of
from book.pages.figures import Figure
from book.pages.ids import claim_found, contradiction
from book.pages.text import (
    badge,
    folded,
    frame,
    headless,
    id_link,
    linked,
    page,
    paragraph,
    raw,
    table,
)
from book.parts import Part, ids_of, parts
from course.ledger import homes, rows
from course.ledger.rows import TEXTS
from course.widgets import catalogue as widgets


def part_pages(evidence: Evidence, figures: dict[str, list[Figure]]) -> Iterator[tuple[str, str]]:
    """Pairs (file, Markdown) for all parts.

    Args:
        evidence: What was found out.
        figures: The figures of each notebook, by its name.
    """
    for part in parts():
        ids = ids_of(part)
        says = "".join(paragraph(text) for text in part.says.split("\n\n"))
        sections = [
            ("Notebook", _notebook(part)),
            ("Worked numbers", "".join(_numbers(ids, evidence))),
            ("Claims", "".join(_claims(ids, evidence))),
            ("Contradictions", "".join(_contradictions(ids, evidence))),
            ("Try it", "".join(_widgets(ids, evidence))),
            ("Figures", "".join(map(shown, figures.get(part.notebook, ())))),
            ("Exercises", _exercises(part)),
            ("Bugs in the museum", "".join(_bugs(ids, evidence))),
            ("Where the code is", _code(ids)),
            ("In the sources", _sources(ids)),
        ]
        blocks = [raw(says)]
        blocks += [f"## {head}\n\n{raw(html)}" for head, html in sections if html]
        description = " ".join(part.says.split())[:150]
        title = f"{part.number} · {part.title}"
        yield f"parts/{part.key}.md", page(title, *blocks, description=description)


def _numbers(ids: list[str], evidence: Evidence) -> Iterator[str]:
    for id_ in (id_ for id_ in ids if id_ in evidence.worked):
        number = evidence.worked[id_]
        head = f"{id_} · {escape(rows()[id_].line)} {badge(number['verdict'])}"
        yield folded(head, linked(headless(number["html"]), itself=id_) + _more(id_))


def _claims(ids: list[str], evidence: Evidence) -> Iterator[str]:
    for id_ in (id_ for id_ in ids if id_ in evidence.claims):
        trial = evidence.claims[id_]
        head = f"{id_} · {escape(trial['title'])} {badge(trial['verdict'])}"
        yield folded(head, claim_found(trial, itself=id_) + _more(id_))


def _contradictions(ids: list[str], evidence: Evidence) -> Iterator[str]:
    for id_ in (id_ for id_ in ids if id_ in evidence.contradictions):
        row = evidence.contradictions[id_]
        yield folded(f"{id_} · {escape(row['topic'])}", contradiction(row) + _more(id_))


def _bugs(ids: list[str], evidence: Evidence) -> Iterator[str]:
    for id_ in (id_ for id_ in ids if id_ in evidence.bugs):
        bug = evidence.bugs[id_]
        shown_bug = linked(headless(bug["html"]), itself=id_)
        yield folded(f"{id_} · {escape(bug['title'])}", shown_bug + _more(id_))


def _more(id_: str) -> str:
    return f"<p class='more'>Its page: {id_link(id_)}</p>"


def _widgets(ids: list[str], evidence: Evidence) -> Iterator[str]:
    for entry in widgets().values():
        if set(entry.ledger) & set(ids) and entry.id in evidence.widgets:
            link = f'<a href="../widgets/{entry.id}.html">{escape(entry.title)}</a>'
            yield f"<h3>{link}</h3>{frame(entry.id, entry.title)}"


def shown(figure: Figure) -> str:
    """A figure of a notebook, with a link to its place there."""
    link = f'<a href="../notebooks/{figure.notebook}.html#{figure.section}">{figure.under}</a>'
    return f"<figure>{figure.html}<figcaption>{link}</figcaption></figure>"


def _notebook(part: Part) -> str:
    if not part.notebook:
        return ""
    return (
        f'<p><a href="../notebooks/{part.notebook}.html">{part.notebook}</a>, with the outputs of '
        "a run; solutions are left out, as in the students' copy.</p>"
    )


def _exercises(part: Part) -> str:
    found = [row_of(exercise) for exercise in exercises_of(part.key)]
    heads = ("exercise", "asks for", "difficulty", "minutes", "points")
    return table(heads, found, f"Exercises of part {part.number}") if found else ""


def _code(ids: list[str]) -> str:
    modules: dict[str, set[str]] = {}
    for id_ in ids:
        for home in homes()[id_]:
            if home.kind in ("code", "figure", "worked number", "claim"):
                modules.setdefault(home.module, set()).add(id_)
    body = []
    for name in sorted(modules):
        links = ", ".join(id_link(id_) for id_ in ids if id_ in modules[name])
        body.append((f'<a href="../api/{name}.html"><code>{name}</code></a>', links))
    return table(("module", "contents"), body, "Modules of this part")


def _sources(ids: list[str]) -> str:
    places: dict[str, dict[str, None]] = {}
    for id_ in ids:
        for text, where in rows()[id_].places:
            places.setdefault(text, {})[where] = None
    return "".join(
        f'<p><a href="../sources/{text}.html">{TEXTS[text]}</a>: {escape("; ".join(wheres))}.</p>'
        for text, wheres in places.items()
    )


def part_index() -> str:
    """The list of the parts in the order of the course, which is also the table of contents."""
    lines = ["```{toctree}", ":maxdepth: 1", ""]
    lines += [f"/parts/{part.key}" for part in parts()]
    return page("The parts", "\n".join([*lines, "```", ""]))
