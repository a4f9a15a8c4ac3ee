"""The class table: who has which points, for what, and which misconception was seen.

Points come from nbgrader's gradebook, so that a grade given by hand counts; reasons come from the
verdicts beside it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograde.class_dir import nbgrader_config
from autograde.classroom.verdicts import verdict_path


@dataclass(frozen=True, kw_only=True)
class Row:
    """One student's line."""

    student: str
    scores: dict[str, float]
    """Points by exercise id, or by grade_id for answers that people grade."""
    max_scores: dict[str, float]
    seen: dict[str, str]
    """By exercise: a misconception's name, or another status than right."""
    to_grade_by_hand: list[str]
    """Cells that wait for a person."""
    not_graded: str
    """Why there are no points; empty if there are."""

    @property
    def total(self) -> float:
        """Sum of all points so far."""
        return sum(self.scores.values())

    @property
    def max_total(self) -> float:
        """Full marks."""
        return sum(self.max_scores.values())

    def to_json(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {**vars(self), "total": self.total, "max_total": self.max_total}


def read_rows(folder: Path, assignment: str) -> list[Row]:
    """The class table of an assignment.

    Raises:
        FileNotFoundError: Nothing has been graded yet.
    """
    paths = sorted(verdict_path(folder, assignment, "x").parent.glob("*.json"))
    if not paths:
        raise FileNotFoundError(
            f"{folder} has no graded submission of {assignment}. First: autograde grade."
        )
    return [_row(folder, assignment, path) for path in paths]


def _row(folder: Path, assignment: str, path: Path) -> Row:
    verdicts = json.loads(path.read_text("utf-8"))
    scores: dict[str, float] = {}
    max_scores: dict[str, float] = {}
    by_hand: list[str] = []
    exercise_of = {check["grade_id"]: check["exercise"] for check in verdicts.get("checks", [])}
    if not verdicts.get("not_graded"):
        for grade in _grades(folder, assignment, path.stem):
            name = exercise_of.get(grade["name"], grade["name"])
            scores[name] = scores.get(name, 0.0) + grade["score"]
            max_scores[name] = max_scores.get(name, 0.0) + grade["max_score"]
            if grade["by_hand"]:
                by_hand.append(name)
    seen: dict[str, str] = {}
    for check in verdicts.get("checks", []):
        if check["status"] != "right":
            seen.setdefault(check["exercise"], check["status"])
    return Row(
        student=path.stem,
        scores=scores,
        max_scores=max_scores,
        seen=seen,
        to_grade_by_hand=by_hand,
        not_graded=verdicts.get("not_graded", ""),
    )


def _grades(folder: Path, assignment: str, student: str) -> list[dict[str, Any]]:
    from nbgrader.api import Gradebook
    from nbgrader.coursedir import CourseDirectory

    course = CourseDirectory(config=nbgrader_config(folder))
    with Gradebook(course.db_url, course.course_id) as gradebook:
        submission = gradebook.find_submission(assignment, student)
        return [
            {
                "name": grade.name,
                "score": grade.score or 0.0,
                "max_score": grade.max_score,
                "by_hand": bool(grade.needs_manual_grade),
            }
            for notebook in submission.notebooks
            for grade in notebook.grades
        ]


def as_table(rows: list[Row]) -> Any:
    """The rows as a rich Table, one column an exercise."""
    from rich.table import Table

    names = list(dict.fromkeys(name for row in rows for name in row.scores))
    best = {name: score for row in rows for name, score in row.max_scores.items()}
    heads = [f"{_short(name)}\n/{best[name]:g}" for name in names]
    table = Table("student", *heads, "total", "seen", padding=(0, 1))
    for row in rows:
        if row.not_graded:
            reason = row.not_graded.rsplit(".ipynb: ", 1)[-1]
            table.add_row(row.student, *("–" for _ in names), "not graded", reason, style="yellow")
            continue
        points = [_cell(row, name) for name in names]
        table.add_row(row.student, *points, f"{row.total:g} /{row.max_total:g}", _seen(row))
    return table


def _seen(row: Row) -> str:
    if row.seen and set(row.seen.values()) == {"blank"} and row.total == 0:
        return "all blank"
    return "\n".join(f"{_short(name)}: {what}" for name, what in row.seen.items())


def _short(name: str) -> str:
    """An exercise's id without its notebook, as `accumulate`."""
    return name.partition(".")[2] or name


def _cell(row: Row, name: str) -> str:
    waiting = " (by hand)" if name in row.to_grade_by_hand else ""
    return f"{row.scores.get(name, 0.0):g}{waiting}"
