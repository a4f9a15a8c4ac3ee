"""Students' code as handed in, read without running it, and shown side by side for pairs.

A Python file beside the notebook, which a cell can import, is read as a cell named after it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograde.classroom.names import shown
from autograde.classroom.notebook_text import MAX_CELLS, MAX_VALUES, values_in
from autograde.classroom.similarity import (
    FURTHER,
    MAX_SOURCE,
    NEXT_CELL,
    Cells,
    Pair,
    fingerprints,
    matching_lines,
)
from autograde.classroom.submissions import MAX_NOTEBOOK
from autograde.reported import quoted
from autograde.sandbox.bounds import TooMuchError, at_most

MAX_BESIDE = 50
"""Python files beside a notebook that are read."""
MAX_NAMES = 100
"""Cells of different names that are compared where no release says which there are."""
READ_S, READ_BYTES = 10.0, 2**30
"""Processor time and memory that reading one notebook, or comparing two, may take."""


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """A cell of two students; lines as (text, is alike)."""

    cell: str
    share: float
    first: list[tuple[str, bool]]
    second: list[tuple[str, bool]]


def read_code(
    folder: Path, assignment: str, students: list[str]
) -> tuple[dict[str, dict[str, str]], list[str], dict[str, str]]:
    """Read each student's own code as handed in, and the sources that everybody was given.

    Cells without a grade_id that are not from the notebook are joined as "further cells". Students
    who handed in nothing readable are left out. All of what a submission makes its reader do, up to
    the fingerprints that are kept, is done here, in bounded time.

    Returns:
        Sources by student and cell; what was given; and why a student's were not read, where
        reading them took too much.
    """
    release = folder / "release" / assignment / f"{assignment}.ipynb"
    whole = _code_cells(release)
    given, names = [source for _, source in whole], {name for name, _ in whole}
    given += [source for _, source in _beside(release.parent)]
    found, unread = {}, {}
    for student in students:
        path = folder / "submitted" / student / assignment / f"{assignment}.ipynb"
        try:
            with at_most(READ_S, READ_BYTES):
                cells = _own_cells(path, names, set(given))
                for source in cells.values():
                    fingerprints(source)
        except TooMuchError as fault:
            unread[student] = f"reading its code takes {fault}; it was not compared"
            continue
        except Exception as fault:  # of one submission: it stops nobody else's
            unread[student] = f"{could_not_be_read(fault)}; it was not compared"
            continue
        if cells:
            found[student] = cells
    return found, given, unread


def could_not_be_read(fault: Exception) -> str:
    """What a person is told where reading a submission failed in a way that nobody foresaw."""
    return f"its code could not be read ({type(fault).__name__})"


def _own_cells(path: Path, names: set[str], known: set[str]) -> dict[str, str]:
    """A student's sources by cell.

    Args:
        path: Of the notebook.
        names: Of the released cells; empty where there is no release. Other names are quoted.
        known: Sources that are not the student's.
    """
    cells: dict[str, list[str]] = {}
    for name, source in _code_cells(path):
        name = name if name in names or name == FURTHER else quoted(shown(name))
        if name not in (names or cells) and (names or len(cells) >= MAX_NAMES):
            name = FURTHER  # else a thousand made-up names to compare
        if source not in known:
            cells.setdefault(name, []).append(source)
    for name, source in _beside(path.parent):
        if source not in known:
            cells.setdefault(name, []).append(source)
    return {
        name: NEXT_CELL.join(source.replace("\0", "") for source in sources)
        for name, sources in cells.items()
    }


def _beside(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each Python file of a folder, and of those below it, a few."""
    walk = os.walk(folder)
    files = sorted(Path(place, name) for place, _, names in walk for name in names)
    for path in [file for file in files if file.suffix == ".py"][:MAX_BESIDE]:
        if not path.is_symlink() and path.is_file():
            with suppress(OSError), path.open("rb") as file:
                source = file.read(MAX_SOURCE + 1).decode("utf-8", "replace")
                yield quoted(shown(str(path.relative_to(folder)))), source


def _code_cells(path: Path) -> list[tuple[str, str]]:
    """Name and source of each code cell; none of a file that is no notebook."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_NOTEBOOK:
            return []  # a pipe, say, which would be waited for without end
        text = path.read_text("utf-8")
        if values_in(text) > MAX_VALUES:
            return []
        cells = json.loads(text)["cells"]
        if len(cells) > MAX_CELLS:
            return []  # it was not graded either
        return [
            (_cell_name(cell), _text(cell["source"]))
            for cell in cells
            if cell["cell_type"] == "code"
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _cell_name(cell: Mapping[str, Any]) -> str:
    marks = cell.get("metadata", {}).get("nbgrader", {})
    name = marks.get("grade_id") if isinstance(marks, dict) else None
    return name if isinstance(name, str) and name else FURTHER


def _text(source: Any) -> str:
    return source if isinstance(source, str) else "".join(map(str, source))


def side_by_side(pair: Pair, students: Mapping[str, Cells]) -> list[SideBySide]:
    """The cells of a pair with anything in common, line by line; none if that takes too long, or
    fails."""
    try:
        with at_most(READ_S, READ_BYTES):
            return _side_by_side(pair, students)
    except Exception:  # it takes too long, or cannot be read: the pair is named all the same
        return []


def _side_by_side(pair: Pair, students: Mapping[str, Cells]) -> list[SideBySide]:
    shown = []
    for cell, share in pair.cells.items():
        first, second = students[pair.first][cell], students[pair.second][cell]
        if share > 0:
            alike = matching_lines(first, second)
            shown.append(
                SideBySide(
                    cell=cell,
                    share=share,
                    first=_marked(first, alike[0]),
                    second=_marked(second, alike[1]),
                )
            )
    return sorted(shown, key=lambda cells: -cells.share)


def _marked(source: str, alike: set[int]) -> list[tuple[str, bool]]:
    lines = source.replace("\0", "").splitlines()[:400]
    return [(line[:300], number in alike) for number, line in enumerate(lines, start=1)]
