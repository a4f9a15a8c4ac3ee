"""The class table: the points of each student for each exercise, and the misconceptions seen.

Points come from nbgrader's gradebook, so that grades given by hand, extra credit and late penalties
count; reasons come from the verdicts next to it. The page with plots is in page.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograde.classroom.export import Mark, Marks, read_marks
from autograde.classroom.reasons import read_verdicts
from autograde.reported import legible


@dataclass(frozen=True, kw_only=True)
class Row:
    """One student's line."""

    student: str
    scores: dict[str, float]
    """Points by exercise id, or by grade_id for manually graded answers; with extra credit."""
    max_scores: dict[str, float]
    seen: dict[str, str]
    """By exercise: a misconception's name, or another status than right."""
    to_grade_by_hand: list[str]
    """Cells that must still be graded by hand."""
    not_graded: str
    """Why there are no points; empty if there are."""
    penalty: float = 0.0
    """Points that nbgrader subtracts for being late."""
    off_roster: bool = False
    """True if the gradebook has a class list and this id is not on it."""

    @property
    def total(self) -> float:
        """Sum of all points so far, minus the penalty, and never below 0, as in nbgrader."""
        return max(0.0, sum(self.scores.values()) - self.penalty)

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
    verdicts = read_verdicts(folder, assignment)
    marks = read_marks(folder, assignment)
    exercise_of = {
        check["grade_id"]: check["exercise"]
        for verdict in verdicts.values()
        for check in verdict.get("checks", [])
    }
    by_student = {mark.student: mark for mark in marks.students}
    listed = {mark.student for mark in marks.students if mark.is_listed}
    return [
        _row(student, verdict, by_student.get(student), marks, exercise_of, listed)
        for student, verdict in verdicts.items()
    ]


def _row(
    student: str,
    verdict: dict[str, Any],
    mark: Mark | None,
    marks: Marks,
    exercise_of: dict[str, str],
    listed: set[str],
) -> Row:
    not_graded = verdict.get("not_graded", "")
    if mark is None or mark.status == "nothing handed in":
        not_graded = not_graded or (
            "is no longer in the gradebook. If the student has left the class, move the folder out "
            "of submitted/; otherwise run autograde grade again."
        )
    scores: dict[str, float] = {}
    max_scores: dict[str, float] = {}
    for cell, points in (mark.cells if mark and not not_graded else {}).items():
        name = exercise_of.get(cell, cell)
        scores[name] = scores.get(name, 0.0) + points
        max_scores[name] = max_scores.get(name, 0.0) + marks.max_scores.get(cell, 0.0)
    seen: dict[str, str] = {}
    for check in verdict.get("checks", []):
        if check["status"] != "right":
            seen.setdefault(check["exercise"], check["status"])
    return Row(
        student=student,
        scores=scores,
        max_scores=max_scores,
        seen=seen,
        to_grade_by_hand=[exercise_of.get(cell, cell) for cell in mark.waiting] if mark else [],
        not_graded=not_graded,
        penalty=mark.penalty if mark else 0.0,
        off_roster=bool(listed) and student not in listed,
    )


def as_table(rows: list[Row]) -> Any:
    """The rows as a rich Table: numbered columns of exercises, named in the caption."""
    from rich.table import Table

    names = list(dict.fromkeys(name for row in rows for name in row.scores))
    best = {name: score for row in rows for name, score in row.max_scores.items()}
    heads = [f"{number}\n/{best[name]:g}" for number, name in enumerate(names, 1)]
    legend = " · ".join(f"{number} {_short(name)}" for number, name in enumerate(names, 1))
    table = Table("student", *heads, "total", "seen", padding=(0, 1), caption=legend)
    table.caption_justify = "left"
    for row in rows:
        if row.not_graded:
            reason = row.not_graded.partition(".ipynb: ")[2] or row.not_graded
            dashes = ("–" for _ in names)
            table.add_row(
                _plain(row.student), *dashes, "not graded", _plain(reason), style="yellow"
            )
            continue
        points = [_cell(row, name) for name in names]
        late = f"\n-{row.penalty:g} late" if row.penalty else ""
        table.add_row(
            _plain(row.student), *points, f"{row.total:g} /{row.max_total:g}{late}", _seen(row)
        )
    return table


def _plain(text: str) -> str:
    """A student's words without what a terminal, or rich, would take as a command."""
    from rich.markup import escape

    return escape(legible(text))


def _seen(row: Row) -> str:
    if row.seen and set(row.seen.values()) == {"blank"} and row.total == 0:
        return "all blank"
    blank = [_short(name) for name, what in row.seen.items() if what == "blank"]
    lines = [f"{_short(name)}: {what}" for name, what in row.seen.items() if what != "blank"]
    return "\n".join([*lines, f"blank: {', '.join(blank)}"] if blank else lines)


def _short(name: str) -> str:
    """An exercise's id without its notebook, e.g. `accumulate`."""
    return name.partition(".")[2] or name


def _cell(row: Row, name: str) -> str:
    if name in row.to_grade_by_hand:
        return "waits"
    return f"{row.scores[name]:g}" if name in row.scores else "–"
