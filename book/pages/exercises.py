"""The exercises of a notebook: statement, kind, minutes, points and hints, without solutions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autograde.bank import catalogue, load
from book.pages.notebooks import Shown
from book.pages.text import counted, folded, id_link, markdown, page, prose, raw
from book.parts import Part, parts
from book.slugs import slug

DOTS = {1: "●○○", 2: "●●○", 3: "●●●"}
LEVELS = {1: "easy", 2: "medium", 3: "hard"}
KINDS = {
    "function": "a function",
    "class": "a class",
    "fix": "a fixed version of a given loop",
    "number": "numbers",
    "choice": "one of several",
    "choices": "all that apply",
    "order": "an order",
    "tune": "settings",
    "write": "a text",
}


def exercises_of(key: str) -> list[Any]:
    """The exercises of the bank whose id begins with a part's letters."""
    return [load(id_) for id_ in catalogue() if id_.partition(".")[0] == key]


def row_of(exercise: Any) -> tuple[str, ...]:
    """One exercise as the cells of a table row."""
    key = exercise.id.partition(".")[0]
    link = f'<a href="../exercises/{key}.html#{slug(exercise.id)}">{_plain(exercise.title)}</a>'
    return (
        f"{link} <code>{exercise.id}</code>",
        KINDS[exercise.kind],
        _dots(exercise.difficulty),
        str(exercise.minutes),
        f"{exercise.points:g}",
    )


def _dots(difficulty: int) -> str:
    return f'<span role="img" aria-label="{LEVELS[difficulty]}">{DOTS[difficulty]}</span>'


def exercise_pages(notebooks: dict[str, Shown]) -> Iterator[tuple[str, str]]:
    """Pairs (file, Markdown) with the exercises of each notebook.

    Args:
        notebooks: The notebooks as shown, by name.
    """
    for part in parts():
        if part.notebook:
            found = sorted(exercises_of(part.key), key=notebooks[part.notebook].place)
            blocks = [_exercise(exercise, part, notebooks[part.notebook]) for exercise in found]
            yield f"exercises/{part.key}.md", page(f"Exercises of {part.number}", *blocks)


def _exercise(exercise: Any, part: Part, notebook: Shown) -> str:
    ledger = ", ".join(map(id_link, exercise.ledger))
    about = (
        f'<p class="about" id="{slug(exercise.id)}"><code>{exercise.id}</code> · asks for '
        f"{KINDS[exercise.kind]} · {_dots(exercise.difficulty)} · {exercise.minutes} min · "
        f"{counted(exercise.points, 'point')} · {ledger}</p>"
    )
    hints = "".join(f"<li>{prose(text)}</li>" for text in exercise.hints)
    place = f"../notebooks/{part.notebook}.html#{notebook.section_of(exercise.id)}"
    tail = f'{folded("Hints", f"<ol>{hints}</ol>")}<p><a href="{place}">In the notebook</a></p>'
    paid = "".join(
        f"<li>{prose(kept.title)} ({kept.points:g})</li>"
        for kept in getattr(exercise, "parts", ())
        if not kept.hidden
    )
    paid = f"<p>Points for each part:</p><ul>{paid}</ul>" if paid else ""
    body = notebook.statement(exercise.id)
    return f"## {_title(exercise)}\n\n{raw(about)}\n{body}\n{raw(paid + tail)}"


def _plain(title: str) -> str:
    """A title without code markup."""
    return title.replace("`", "")


def _title(exercise: Any) -> str:
    return markdown(_plain(exercise.title[0].upper() + exercise.title[1:]))
