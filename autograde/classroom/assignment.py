"""What the processes that grade must know of an assignment, as plain data that travels.

They read no class directory: the cells with a grade_id, what students were given for them, the
`check(...)` calls, and the version that says whether a grade is still of today's exercise.
"""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nbformat

from autograde import bank
from autograde.authoring import CheckCall, check_calls
from autograde.class_dir import ClassDirError
from autograde.classroom.cells import Cell, grade_id, is_check, marked


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """An assignment of a class directory."""

    name: str
    cells: list[Cell]
    """Those with a grade_id, in the source notebook's order."""
    released: dict[str, str]
    """Source of each graded cell as students were given it, by grade_id."""
    calls: dict[str, dict[str, str]]
    """The last check call of each check cell, whose points nbgrader reads, by grade_id."""
    version: str
    """Hash of the source notebook and of the modules of its exercises."""

    def to_json(self) -> dict[str, Any]:
        """Plain data, for a process that grades."""
        return asdict(self)


def read_assignment(folder: Path, name: str) -> Assignment:
    """Read an assignment from its class directory.

    Raises:
        ClassDirError: A graded code cell of the source is not a check that a referee can answer.
    """
    source = folder / "source" / name / f"{name}.ipynb"
    cells = [_plain(cell) for cell in nbformat.read(source, as_version=4).cells if grade_id(cell)]
    calls = {grade_id(cell): _call(source, cell) for cell in cells if is_check(cell)}
    release = folder / "release" / name / f"{name}.ipynb"
    given = nbformat.read(release, as_version=4).cells if release.exists() else []
    return Assignment(
        name=name,
        cells=cells,
        released={grade_id(cell): cell.source for cell in given if marked(cell, "grade")},
        calls={id: asdict(call) for id, call in calls.items()},
        version=_version(source, {call.exercise_id for call in calls.values()}),
    )


def _plain(cell: nbformat.NotebookNode) -> Cell:
    kept = {"cell_type": cell.cell_type, "source": cell.source}
    marks = {"nbgrader": dict(cell.metadata["nbgrader"])}
    code = {"outputs": [], "execution_count": None} if cell.cell_type == "code" else {}
    return {**kept, "id": cell.get("id", ""), "metadata": marks, **code}


def _call(source: Path, cell: Cell) -> CheckCall:
    calls = check_calls(cell["source"])
    if not calls:
        raise ClassDirError(
            f"{source}, cell '{grade_id(cell)}': a graded code cell consists of check(...) calls, "
            "which a referee can answer. Use nbgrader autograde for other tests."
        )
    return calls[-1]


def _version(source: Path, exercises: set[str]) -> str:
    digest = hashlib.sha256(source.read_bytes())
    for exercise in sorted(exercises):
        digest.update(module_source(exercise))
    return digest.hexdigest()


def module_source(exercise: str) -> bytes:
    """Source of an exercise's module, read without importing it."""
    spec = importlib.util.find_spec(bank.catalogue()[exercise].module)
    assert spec is not None and spec.origin is not None, exercise
    return Path(spec.origin).read_bytes()
