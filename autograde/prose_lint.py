"""Rules for a notebook's prose beyond its words: `make notebooks` prints what breaks them.

A guess is answered further down; a symbol is explained before it is used; a section shows
something; a cell of prose is short. CONTRIBUTING's "Add a notebook" says the same to an author.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nbformat import NotebookNode

from autograde.kit.chapters import chapter_named
from course.released import is_chapter

LONGEST = 90
"""Words of a cell of prose; a screen holds about as many beside the code below them."""
LISTS = (
    "# ",
    "**You will be able to**",
    "## What to keep",
    "**Exercise ",
    "**Further reading",
    "### BEGIN",
)
"""Beginnings of cells that are lists or statements, and may be longer."""
NEAR = 3
"""Cells from a **Guess** to its guess(...): the code that it is about may stand between."""
SYMBOL = re.compile(r"(?<![\w`.])([B-HJ-Z]|[αβγδεηλμσ])(?![\w`(\]'-]|\.\w)")
NOT_A_NAME = [
    "by",
    "of",
    "than",
    "the",
    "with",
    "without",
    "and",
    "or",
    "is",
    "to",
    "a",
    "an",
    "over",
    "at",
    "in",
    "for",
    "times",
    "per",
]
"""Words that do not say what the symbol beside them stands for."""


def lint(name: str, notebook: NotebookNode) -> list[str]:
    """List what breaks a rule, each with its cell's first words.

    Args:
        name: The notebook's, whose guesses `about/NAME.toml` lists.
        notebook: As `read_source` gives it: exercises written out.
    """
    rules = (_guesses, _lengths, _symbols, _sections, _numbering)
    if not is_chapter(name):
        rules = (_lengths, _symbols)
    return [fault for rule in rules for fault in rule(name, notebook.cells)]


def _guesses(name: str, cells: list[NotebookNode]) -> Iterator[str]:
    """Every **Guess** has its guess(...), each once, and an answer after it."""
    asked = [i for i, cell in enumerate(cells) if "**Guess" in cell.source and _is_prose(cell)]
    for i in asked:
        if not any("guess(" in cell.source for cell in cells[i + 1 : i + 1 + NEAR]):
            yield f"{_start(cells[i])}: a **Guess** without guess(...) below it"
    for question in chapter_named(name).guesses:
        id = question.id
        places = [i for i, cell in enumerate(cells) if _calls(cell, "guess", id)]
        if len(places) != 1:
            yield f"guess('{id}') is asked {len(places)} times"
            continue
        shown = [_calls(cell, "reveal", id) for cell in cells[places[0] + 1 :]]
        worked = [f'"{question.worked}"' in cell.source for cell in cells[places[0] + 1 :]]
        if not any(shown) and not (question.worked and any(worked)):
            yield f"guess('{id}') is never answered: reveal('{id}', ...) below it"


def _calls(cell: NotebookNode, function: str, id: str) -> bool:
    return cell.cell_type == "code" and f'{function}("{id}"' in cell.source


def _lengths(name: str, cells: list[NotebookNode]) -> Iterator[str]:
    for cell in cells:
        words = len(re.findall(r"[\w'’.-]+", cell.source))
        if _is_prose(cell) and words > LONGEST:
            yield f"{_start(cell)}: {words} words in a cell; {LONGEST} at most"


def _symbols(name: str, cells: list[NotebookNode]) -> Iterator[str]:
    """The first cell with a symbol says what it is: `K micro-batches`, `rate η`, `where H is`."""
    known: set[str] = set()
    for cell in filter(_is_text, cells):
        text = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)", "`code`", cell.source)
        met = {found[1] for found in SYMBOL.finditer(text)} - known
        known |= met
        for symbol in sorted(met):
            if not any(_says(text, found) for found in SYMBOL.finditer(text) if found[1] == symbol):
                yield f"{_start(cell)}: {symbol} is used before it is explained"


def _says(text: str, found: re.Match) -> bool:
    before = re.search(r"([\w-]+)[\s*(]*$", text[: found.start()])
    after = re.match(r"[\s*)]*(=|[a-z-]+)", text[found.end() :])
    beside = [match[1] for match in (before, after) if match]
    listed = re.search(r"\bwhere [^.]*$", text[: found.start()])
    return bool(listed) or any(word.lower() not in NOT_A_NAME for word in beside)


def _sections(name: str, cells: list[NotebookNode]) -> Iterator[str]:
    """Between two headings something is computed or shown."""
    heads = [i for i, cell in enumerate(cells) if _is_text(cell) and cell.source.startswith("## ")]
    for i, after in zip(heads, [*heads[1:], len(cells)], strict=True):
        inside = [cell.cell_type for cell in cells[i:after]]
        if not cells[i].source.startswith(LISTS) and "code" not in inside:
            yield f"{_start(cells[i])}: a section that computes and shows nothing"


def _numbering(name: str, cells: list[NotebookNode]) -> Iterator[str]:
    """Numbered sections carry the notebook's number and count up by one."""
    chapter = name.partition("-")[0].lstrip("0")
    numbers = []
    for cell in filter(_is_text, cells):
        if found := re.match(r"## (Rung |\w+\.)(\d+)\b", cell.source):
            numbers.append(int(found[2]))
            if found[1] not in ("Rung ", f"{chapter}."):
                yield f"{_start(cell)}: a section of this notebook is numbered {chapter}.1"
    if numbers != list(range(numbers[0], numbers[0] + len(numbers)) if numbers else []):
        yield f"sections are numbered {numbers}"


def _is_text(cell: NotebookNode) -> bool:
    return cell.cell_type == "markdown"


def _is_prose(cell: NotebookNode) -> bool:
    return _is_text(cell) and not cell.source.startswith(LISTS)


def _start(cell: NotebookNode) -> str:
    return f"'{' '.join(cell.source.split())[:50]}'"
