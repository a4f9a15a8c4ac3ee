"""What a command asks of the gradebook in passing, without nbgrader where that can be.

nbgrader and what it stands on take most of a second to import: longer than a small class's
questions. An SQLite gradebook answers them through the standard library, which only reads; any
other, or one that does not answer, is opened by nbgrader, which makes what is missing or says what
is wrong.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from autograde.class_dir import nbgrader_config

BUSY_S = 1.0
"""How long another program's write may hold up a look; nbgrader then waits longer."""


def students_in(folder: Path, assignment: str) -> set[str]:
    """Students with a submission of the assignment in the gradebook."""
    found = _rows(
        folder,
        "SELECT submitted_assignment.student_id FROM submitted_assignment "
        "JOIN assignment ON assignment.id = submitted_assignment.assignment_id "
        "WHERE assignment.name = :assignment",
        assignment=assignment,
    )
    return {student for (student,) in found}


def off_roster(folder: Path, students: Iterable[str]) -> list[str]:
    """Folder names that match no student on the class list, sorted; empty if there is no list.

    A class list is there as soon as somebody in the gradebook has a name, an email address or a
    number of a learning platform. (nbgrader adds who is graded by id alone.)
    """
    found = _rows(folder, "SELECT id, first_name, last_name, email, lms_user_id FROM student")
    listed = {id for id, *about in found if any(about)}
    return sorted(set(students) - listed) if listed else []


def changed_since_release(
    folder: Path, assignment: str, cells: list[dict[str, Any]]
) -> list[str] | None:
    """Locked cells whose source is not what nbgrader noted when the assignment was released.

    None where the gradebook knows of no release.
    """
    found = _rows(
        folder,
        "SELECT source_cell.name, source_cell.source, source_cell.locked FROM notebook "
        "JOIN assignment ON assignment.id = notebook.assignment_id "
        "LEFT JOIN source_cell ON source_cell.notebook_id = notebook.id "
        "WHERE assignment.name = :assignment AND notebook.name = :assignment",
        assignment=assignment,
    )
    sources = {cell["metadata"]["nbgrader"]["grade_id"]: cell["source"] for cell in cells}
    changed = [id for id, source, locked in found if locked and sources.get(id) != source]
    return changed if found else None


def _rows(folder: Path, question: str, **values: str) -> list[tuple[Any, ...]]:
    """Answers to an SQL question about a class directory's gradebook.

    Raises:
        ClassDirError: The database refuses, see `open_gradebook`.
    """
    if file := _sqlite_file(folder):
        try:
            with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", BUSY_S, uri=True)) as opened:
                return opened.execute(question, values).fetchall()
        except sqlite3.Error:
            pass
    from sqlalchemy import text

    from autograde.classroom.gradebook import open_gradebook

    with open_gradebook(folder) as gradebook:
        return [tuple(row) for row in gradebook.db.execute(text(question), values)]


def _sqlite_file(folder: Path) -> Path | None:
    """The gradebook's file; None if there is no such file."""
    url = str(nbgrader_config(folder).CourseDirectory.get("db_url", ""))
    file = Path(url.removeprefix("sqlite:///")) if url else folder / "gradebook.db"
    return file if file.is_absolute() and file.is_file() else None
