"""Students' code as handed in, read without running it, and shown side by side for pairs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograde.classroom.notebook_text import MAX_VALUES, values_in
from autograde.classroom.similarity import Cells, Pair, matching_lines
from autograde.classroom.submissions import MAX_NOTEBOOK
from autograde.sandbox.bounds import TooMuchError, at_most

FURTHER = "further cells"
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
) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Read each student's own code cells as handed in, and the sources that everybody was given.

    Cells without a grade_id that are not from the notebook are joined as "further cells". Students
    who handed in nothing readable are left out.
    """
    release = folder / "release" / assignment / f"{assignment}.ipynb"
    whole = _code_cells(release)
    given, names = [source for _, source in whole], {name for name, _ in whole}
    known = set(given)
    found = {}
    for student in students:
        path = folder / "submitted" / student / assignment / f"{assignment}.ipynb"
        cells: dict[str, str] = {}
        for name, source in _cells_in_time(path):
            if name not in (names or cells) and (names or len(cells) >= MAX_NAMES):
                name = FURTHER  # else a thousand made-up names to compare
            if source not in known:
                cells[name] = f"{cells[name]}\n{source}" if name in cells else source
        if cells:
            found[student] = cells
    return found, given


def _cells_in_time(path: Path) -> list[tuple[str, str]]:
    try:
        with at_most(READ_S, READ_BYTES):
            return _code_cells(path)
    except TooMuchError:
        return []


def _code_cells(path: Path) -> list[tuple[str, str]]:
    """Name and source of each code cell; none of a file that is no notebook."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_NOTEBOOK:
            return []  # a pipe, say, which would be waited for without end
        text = path.read_text("utf-8")
        if values_in(text) > MAX_VALUES:
            return []
        cells = json.loads(text)["cells"]
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
    """The cells of a pair with anything in common, line by line; none if that takes too long."""
    try:
        with at_most(READ_S, READ_BYTES):
            return _side_by_side(pair, students)
    except TooMuchError:
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
    lines = source.splitlines()[:400]
    return [(line[:300], number in alike) for number, line in enumerate(lines, start=1)]
