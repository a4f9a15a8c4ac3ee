"""A class on paper: gradebook, verdicts and journal as if graded, without running a notebook."""

from __future__ import annotations

import json
import tempfile
import warnings
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import nbformat

from autograde.class_dir import CONFIG
from tests.short_class import hand_in

ASSIGNMENT = "99-paper"
EXERCISES = {"clip-check": "03a.clip", "accumulate-check": "03a.accumulate"}
MAX = {"clip-check": 4.0, "accumulate-check": 4.0, "why": 2.0}
DUE = datetime(2026, 3, 1, 12)


@dataclass(kw_only=True)
class Paper:
    """One student's work as the gradebook and the verdicts know it."""

    clip: float = 4.0
    accumulate: float = 4.0
    why: float | None = 2.0
    """Of the written answer; None waits for a person."""
    extra: float = 0.0
    penalty: float = 0.0
    names: dict[str, str] = field(default_factory=dict)
    """nbgrader's fields of a student."""
    status: dict[str, str] = field(default_factory=dict)
    """By exercise, where it is not right."""
    not_graded: str = ""
    notes: list[str] = field(default_factory=list)
    ended: str = ""
    attempts: int = 1
    cells: dict[str, str] = field(default_factory=dict)
    """Sources by grade_id, for a notebook in submitted/."""


def make(folder: Path, papers: dict[str, Paper]) -> Path:
    """Write the class directory, and return it."""
    folder.mkdir(parents=True)
    (folder / "nbgrader_config.py").write_text(CONFIG.format(course_id="paper"))
    (folder / "source" / ASSIGNMENT).mkdir(parents=True)
    _gradebook(folder, papers)
    for student, paper in papers.items():
        _write(folder / "verdicts" / ASSIGNMENT / f"{student}.json", json.dumps(_verdict(paper)))
        (folder / "submitted" / student / ASSIGNMENT).mkdir(parents=True, exist_ok=True)
        if paper.cells:
            hand_in(folder, student, ASSIGNMENT, notebook(paper.cells))
    lines = [line for student, paper in papers.items() for line in _journal(student, paper)]
    _write(folder / "journal" / f"{ASSIGNMENT}.jsonl", "".join(f"{line}\n" for line in lines))
    return folder


def notebook(cells: dict[str, str]) -> nbformat.NotebookNode:
    """A notebook whose code cells have a grade_id."""
    made = nbformat.v4.new_notebook()
    for grade_id, source in cells.items():
        marks = {"grade_id": grade_id, "solution": True, "grade": False, "locked": False}
        marks |= {"schema_version": 3, "task": False}
        made.cells.append(nbformat.v4.new_code_cell(source, metadata={"nbgrader": marks}))
    return made


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


@lru_cache
def _empty_gradebook() -> bytes:
    """nbgrader's empty tables; made once, as nbgrader starts alembic for each new file."""
    from nbgrader.api import Gradebook

    from autograde.classroom.release import let_alembic_be_found

    let_alembic_be_found()
    with tempfile.TemporaryDirectory() as place:
        Gradebook(f"sqlite:///{place}/gradebook.db", "paper").close()
        return Path(place, "gradebook.db").read_bytes()


def _gradebook(folder: Path, papers: dict[str, Paper]) -> None:
    from nbgrader.api import Gradebook

    (folder / "gradebook.db").write_bytes(_empty_gradebook())
    with warnings.catch_warnings(), Gradebook(f"sqlite:///{folder}/gradebook.db") as gradebook:
        warnings.simplefilter("ignore")  # nbgrader's own queries
        gradebook.add_assignment(ASSIGNMENT, duedate=DUE)
        gradebook.add_notebook(ASSIGNMENT, ASSIGNMENT)
        for name, points in MAX.items():
            kind = "markdown" if name == "why" else "code"
            gradebook.add_grade_cell(name, ASSIGNMENT, ASSIGNMENT, max_score=points, cell_type=kind)
        gradebook.add_solution_cell("why", ASSIGNMENT, ASSIGNMENT)
        for student, paper in papers.items():
            if not paper.not_graded:
                gradebook.add_student(student, **paper.names)
                _hand_in(gradebook, student, paper)


def _hand_in(gradebook: Any, student: str, paper: Paper) -> None:
    (of_notebook,) = gradebook.add_submission(ASSIGNMENT, student).notebooks
    of_notebook.late_submission_penalty = paper.penalty
    for grade in of_notebook.grades:
        _grade(grade, paper)
    gradebook.db.commit()


def _grade(grade: Any, paper: Paper) -> None:
    grade.needs_manual_grade = False
    if grade.name == "why":
        grade.manual_score = paper.why
        grade.needs_manual_grade = paper.why is None
    else:
        grade.auto_score = paper.clip if grade.name == "clip-check" else paper.accumulate
    if grade.name == "clip-check":
        grade.extra_credit = paper.extra


def _verdict(paper: Paper) -> dict[str, Any]:
    if paper.not_graded:
        return {"not_graded": paper.not_graded, "notes": [], "seconds": 0.1}
    checks = []
    for grade_id, exercise in EXERCISES.items():
        status = paper.status.get(exercise, "right")
        known = status not in ("right", "blank", "wrong") and not status.startswith("raised")
        points = paper.clip if exercise == "03a.clip" else paper.accumulate
        checks.append(
            {
                "grade_id": grade_id,
                "exercise": exercise,
                "points": points,
                "max_points": 4,
                "status": status,
                "misconception": status if known else "",
                "message": "…",
                "parts": {},
            }
        )
    return {"seed": 1, "ended": paper.ended, "checks": checks, "notes": paper.notes, "seconds": 1.5}


def _journal(student: str, paper: Paper) -> list[str]:
    return [
        json.dumps(
            {
                "event": "graded",
                "graded": not paper.not_graded,
                "seed": n,
                "seconds": 1.5,
                "reason": paper.not_graded,
                "notes": paper.notes,
                "result": "",
                "student": student,
                "submission": f"{student}-{n}",
                "version": "1",
                "time": "2026-03-01T10:00:00+00:00",
            }
        )
        for n in range(1, paper.attempts + 1)
    ]
