"""What each released notebook asks for, in order: exercises, guesses, answers graded by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from course.released import Cell, cells_of, is_chapter, released

CHECK = re.compile(r"""^check\(\s*["']([^"']+)["']""", re.MULTILINE)
GUESS = re.compile(r"""^guess\(\s*["']([^"']+)["']""", re.MULTILINE)
REVEAL = re.compile(r"""\breveal\(\s*["']([^"']+)["']""")


@dataclass(frozen=True)
class Outline:
    """One notebook."""

    name: str
    title: str
    exercises: tuple[str, ...]
    """Ids of what is checked, in order."""
    guesses: tuple[str, ...]
    """Ids of what is guessed, in order."""
    revealed: tuple[str, ...]
    """Ids of guesses that a cell answers."""
    points_by_hand: float
    """Points for the answers that are graded by hand."""


@cache
def outlines() -> dict[str, Outline]:
    """All released chapters by name."""
    return {
        name: outline_of(name, cells_of(path))
        for name, path in released().items()
        if is_chapter(name)
    }


def outline_of(name: str, cells: list[Cell]) -> Outline:
    """The outline of a notebook's cells."""
    code = "\n".join(cell.source for cell in cells if cell.kind == "code")
    text = "\n".join(cell.source for cell in cells if cell.kind == "markdown")
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    by_hand = [
        cell.nbgrader.get("points", 0)
        for cell in cells
        if cell.nbgrader.get("grade") and cell.nbgrader.get("solution")
    ]
    return Outline(
        name=name,
        title=title[1] if title else name,
        exercises=tuple(dict.fromkeys(CHECK.findall(code))),
        guesses=tuple(dict.fromkeys(GUESS.findall(code))),
        revealed=tuple(dict.fromkeys(REVEAL.findall(code))),
        points_by_hand=sum(by_hand),
    )
