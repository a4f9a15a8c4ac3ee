"""What was handed in: found by the run, then read, without running it, by who grades it.

Every finding is one line that names the file and what to do. A fault of one submission stops nobody
else's.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from autograde.classroom.cells import Cell, grade_id, marked

MAX_NOTEBOOK = 50 * 2**20
MAX_FOLDER = 500 * 2**20
MAX_FILES = 10_000


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One student's notebook as it lies in submitted/."""

    student: str
    path: Path
    sha: str
    """Hash of everything handed in; empty where that cannot be read."""
    fault: str = ""
    """Why it cannot be graded, and what to do; empty if that is not known yet."""


class SubmissionFault(Exception):
    """A submission cannot be graded; the message names the file and what to do."""


def handed_in(folder: Path, assignment: str, students: list[str] | None = None) -> list[str]:
    """Who has handed in an assignment, each once, in order.

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
    return sorted(found if students is None else set(students))


def find_submissions(
    folder: Path, assignment: str, students: list[str] | None = None
) -> list[Submission]:
    """All submissions of an assignment, by student; see `handed_in`."""
    submitted = folder / "submitted"
    return [
        look_at(name, submitted / name / assignment / f"{assignment}.ipynb")
        for name in handed_in(folder, assignment, students)
    ]


def look_at(student: str, path: Path) -> Submission:
    """See whether a submission can be opened, and hash what was handed in.

    Args:
        student: Whose it is.
        path: Where the notebook should lie.
    """

    try:
        return _look_at(student, path)
    except OSError as problem:
        why = f"{path}: cannot be read ({problem.strerror}). Mend that, then grade again."
        return Submission(student=student, path=path, sha="", fault=why)


def _look_at(student: str, path: Path) -> Submission:
    def fault(text: str) -> Submission:
        return Submission(student=student, path=path, sha="", fault=f"{path}: {text}")

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
    if path.stat().st_size > MAX_NOTEBOOK:
        limit = MAX_NOTEBOOK // 2**20
        return fault(f"is larger than {limit} MiB. Ask for it with outputs cleared.")
    files = list(plain_files(path.parent))
    size = sum(file.stat().st_size for file in files)
    if len(files) > MAX_FILES or size > MAX_FOLDER:
        return fault(
            f"lies among {len(files)} files of {size // 2**20} MiB. Ask what they are for."
        )
    return Submission(student=student, path=path, sha=_hash(path.parent, files))


def _first_link(folder: Path) -> str:
    """A link at or below a student's folder, by name; empty if there is none."""
    if folder.is_symlink() or folder.parent.is_symlink():
        return folder.name
    for place, folders, files in os.walk(folder, followlinks=False):
        for name in sorted((*folders, *files)):
            if os.path.islink(os.path.join(place, name)):
                return name
    return ""


def plain_files(folder: Path) -> list[Path]:
    """Ordinary files below a folder, in order."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _hash(folder: Path, files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as opened:
            inner = hashlib.file_digest(opened, "sha256").digest()
        digest.update(os.fsencode(path.relative_to(folder)) + b"\0" + inner)
    return digest.hexdigest()


def read_notebook(path: str, text: str, assignment: dict[str, Any]) -> tuple[list[Cell], list[str]]:
    """Read a submission's text: its cells, and what is odd about them although it can be graded.

    Args:
        path: For the messages.
        text: What the file holds.
        assignment: The assignment as plain data.

    Raises:
        SubmissionFault: It cannot be graded.
    """

    def fault(words: str) -> SubmissionFault:
        return SubmissionFault(f"{path}: {words}")

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # cell ids missing or doubled: nbformat mends them
            notebook = nbformat.reads(text, as_version=4)
            nbformat.validate(notebook)
            json.dumps(notebook, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise fault(
            "holds half of a character (a lone surrogate), which no file can hold. Ask the "
            "student to save it with Jupyter."
        ) from None
    except (nbformat.reader.NotJSONError, UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise fault(
            "is not valid JSON: it was cut off or edited. Ask for a fresh upload."
        ) from None
    except Exception as problem:
        reason = str(problem).splitlines()[0][:120] if str(problem) else type(problem).__name__
        words = f"is not a notebook ({reason}). Ask the student to save it with Jupyter."
        raise fault(words) from None
    expected = [grade_id(cell) for cell in assignment["cells"] if marked(cell, "grade")]
    if not set(expected) & {grade_id(cell) for cell in notebook.cells if marked(cell, "grade")}:
        raise fault(
            "has none of the assignment's graded cells. Is it another notebook? Ask for the "
            "released one, filled in."
        )
    notes = _oddities(notebook.cells, expected, assignment["released"])
    return notebook.cells, [f"{path}: {note}" for note in notes]


def _oddities(cells: list[Cell], expected: list[str], released: dict[str, str]) -> list[str]:
    notes = []
    by_id = {grade_id(cell): cell for cell in cells if grade_id(cell)}
    for id, count in Counter(grade_id(cell) for cell in cells if grade_id(cell)).items():
        if count > 1:
            notes.append(f"cell '{id}' is there {count} times; the last one counts. Look at it.")
    for id in expected:
        if id not in by_id:
            notes.append(f"cell '{id}' was deleted; it was put back and graded. Tell the student.")
        elif (
            id in released
            and by_id[id]["source"] != released[id]
            and not marked(by_id[id], "solution")
        ):
            notes.append(f"check cell '{id}' was edited; the original was graded. Look at it.")
    return notes
