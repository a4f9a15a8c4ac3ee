"""What was handed in, looked at before anything runs: which of it can be graded, and what is odd.

Every finding is one line that names the file and what to do. A fault of one submission stops nobody
else's.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbgrader import utils

MAX_BYTES = 50 * 2**20


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One student's notebook as it lies in submitted/."""

    student: str
    path: Path
    fault: str = ""
    """Why it cannot be graded, and what to do; empty if it can."""
    notes: list[str] = field(default_factory=list)
    """What is odd about it although it can be graded."""


def find_submissions(
    folder: Path, assignment: str, students: list[str] | None = None
) -> list[Submission]:
    """All submissions of an assignment, by student, each looked at.

    Args:
        folder: A class directory.
        assignment: Its name.
        students: Only these; None takes everybody who handed in.

    Raises:
        FileNotFoundError: There is none at all, or a named student has handed in nothing.
    """
    submitted = folder / "submitted"
    found = {path.name for path in submitted.glob("*") if (path / assignment).exists()}
    missing = sorted(set(students or []) - found)
    if missing:
        raise FileNotFoundError(
            f"{submitted / missing[0] / assignment} does not exist: '{missing[0]}' has handed in "
            f"nothing for {assignment}. Students who have: {', '.join(sorted(found)) or 'none'}."
        )
    if not found:
        raise FileNotFoundError(
            f"{submitted} holds no submission of {assignment}. Copy each student's notebook to "
            f"{submitted}/STUDENT/{assignment}/{assignment}.ipynb."
        )
    source = folder / "source" / assignment / f"{assignment}.ipynb"
    expected = _graded_cells(nbformat.read(source, as_version=4))
    release = folder / "release" / assignment / f"{assignment}.ipynb"
    released = _graded_cells(nbformat.read(release, as_version=4)) if release.exists() else {}
    return [
        look_at(name, submitted / name / assignment / f"{assignment}.ipynb", expected, released)
        for name in sorted(found if students is None else students)
    ]


def look_at(
    student: str, path: Path, expected: dict[str, str], released: dict[str, str]
) -> Submission:
    """Read a submission without running it, and say what is wrong or odd.

    Args:
        student: Whose it is.
        path: Where the notebook should lie.
        expected: Source of each graded cell of the assignment, by grade_id.
        released: The same as students were given them, for comparing locked cells.
    """

    def fault(text: str) -> Submission:
        return Submission(student=student, path=path, fault=f"{path}: {text}")

    if path.is_symlink():
        return fault("is a link; only a file of its own is graded. Ask for the notebook itself.")
    if link := _first_link(path.parent):
        return fault(
            f"lies beside a link ({link}), and nbgrader would copy what it leads to, be it the "
            "gradebook. Remove the link, then grade again."
        )
    if path.is_dir():
        return fault("is a directory, not a notebook. Move the notebook inside it up to this name.")
    if not path.is_file():
        others = sorted(p.name for p in path.parent.glob("*.ipynb")) if path.parent.is_dir() else []
        hint = f"found {others[0]}: rename it" if others else "ask the student to hand it in"
        return fault(f"is not there ({hint}).")
    if path.stat().st_size == 0:
        return fault("is empty. Ask the student to save the notebook and hand it in again.")
    if path.stat().st_size > MAX_BYTES:
        return fault(f"is larger than {MAX_BYTES // 2**20} MiB. Ask for it with outputs cleared.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # cell ids missing or doubled: nbformat mends them
            notebook = nbformat.reads(path.read_text("utf-8"), as_version=4)
            nbformat.validate(notebook)
        cells = _graded_cells(notebook)
    except (nbformat.reader.NotJSONError, UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        return fault("is not valid JSON: it was cut off or edited. Ask for a fresh upload.")
    except Exception as problem:
        reason = str(problem).splitlines()[0][:120] if str(problem) else type(problem).__name__
        return fault(f"is not a notebook ({reason}). Ask the student to save it with Jupyter.")
    if not set(expected) & set(cells):
        return fault(
            "has none of the assignment's graded cells. Is it another notebook? Ask for the "
            "released one, filled in."
        )
    return Submission(
        student=student,
        path=path,
        notes=[f"{path}: {note}" for note in _oddities(notebook, cells, expected, released)],
    )


def _first_link(folder: Path) -> str:
    """A link at or below a student's folder, by name; empty if there is none."""
    if folder.is_symlink() or folder.parent.is_symlink():
        return folder.name
    for place, folders, files in os.walk(folder, followlinks=False):
        for name in sorted((*folders, *files)):
            if os.path.islink(os.path.join(place, name)):
                return name
    return ""


def _oddities(
    notebook: nbformat.NotebookNode,
    cells: dict[str, str],
    expected: dict[str, str],
    released: dict[str, str],
) -> list[str]:
    notes = []
    for id, count in Counter(_grade_ids(notebook)).items():
        if count > 1:
            notes.append(f"cell '{id}' is there {count} times; the last one counts. Look at it.")
    for id in expected:
        if id not in cells:
            notes.append(f"cell '{id}' was deleted; it was put back and graded. Tell the student.")
        elif id in released and cells[id] != released[id] and not _is_answer(notebook, id):
            notes.append(f"check cell '{id}' was edited; the original was graded. Look at it.")
    return notes


def _grade_ids(notebook: nbformat.NotebookNode) -> list[str]:
    marked = (cell.metadata.get("nbgrader", {}) for cell in notebook.cells)
    return [str(metadata["grade_id"]) for metadata in marked if metadata.get("grade_id")]


def _graded_cells(notebook: nbformat.NotebookNode) -> dict[str, str]:
    """Sources of graded cells by grade_id."""
    return {
        cell.metadata.nbgrader["grade_id"]: cell.source
        for cell in notebook.cells
        if utils.is_grade(cell) and cell.metadata.nbgrader.get("grade_id")
    }


def _is_answer(notebook: nbformat.NotebookNode, id: str) -> bool:
    return any(
        utils.is_solution(cell)
        for cell in notebook.cells
        if cell.metadata.get("nbgrader", {}).get("grade_id") == id
    )
