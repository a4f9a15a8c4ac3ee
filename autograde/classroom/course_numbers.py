"""The whole course in numbers: every assignment's rows, who falls behind, which mistakes recur.

Points are read in one query for all assignments, since nbgrader's objects take seconds per
assignment in a class of 1,000; reasons come from the verdicts. Numbers of an exercise are those of
the assignment's own class page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autograde.class_dir import assignments
from autograde.classroom.reasons import read_verdicts
from autograde.classroom.report import Row
from autograde.classroom.statistics import ExerciseStatistics, median

LATELY = 3
"""The last assignments that are looked at for who falls behind."""
MISSED = 2
"""So many of them without anything handed in: behind."""
DROP = 0.2
"""Share of points, against the class's median, lost lately against before: behind. Where shares
scatter by 0.15 about a student's own level, a mean of 3 against one of 11 drops so far by chance
for one student in fifty (0.15 · √(1/3 + 1/11) = 0.098, and 0.2 is 2.04 times that)."""
WEAK_D = 0.2
"""Discrimination below which an exercise is to be revised. Source: Ebel & Frisbie, "Essentials of
Educational Measurement", 5th edition, 1991."""
LEAST_GRADES = 30
"""Grades below which discrimination says too little to name an exercise."""
TOO_EVEN = 0.02
"""Below this share from all or no points an exercise cannot discriminate, and needs no revision."""


@dataclass(frozen=True, kw_only=True)
class Behind:
    """A student who falls behind, and the numbers that say so."""

    student: str
    words: str
    weight: float
    """The higher, the more urgent."""


@dataclass(frozen=True, kw_only=True)
class Returning:
    """A recurring misconception: in several assignments, or by name in several exercises."""

    name: str
    exercises: list[str]
    students: list[str]
    """Students who showed it at least once."""
    again: list[str]
    """Students who showed it in more than one assignment."""


@dataclass(kw_only=True)
class Course:
    """The assignments of a class directory that have a verdict or a grade, in order."""

    students: list[str]
    rows: dict[str, dict[str, Row]] = field(default_factory=dict)
    """By assignment and student; who handed in nothing is not there."""
    verdicts: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    def graded(self, assignment: str) -> list[Row]:
        """The rows with points, by student."""
        return [row for row in self.rows[assignment].values() if not row.not_graded]


def read_course(folder: Path) -> Course:
    """Read everything that is known about a class.

    Raises:
        FileNotFoundError: Nothing has been graded yet.
    """
    points, names, listed = _gradebook(folder)
    course = Course(students=sorted(names))
    everybody = set(names)
    for assignment in sorted({*assignments(folder), *points}):
        try:
            verdicts = read_verdicts(folder, assignment)
        except FileNotFoundError:
            verdicts = {}
        of_students = points.get(assignment, {})
        if not verdicts and not of_students:
            continue
        course.verdicts[assignment] = verdicts
        course.rows[assignment] = _rows(verdicts, of_students, listed)
        everybody |= course.rows[assignment].keys()
    if not course.rows:
        raise FileNotFoundError(f"{folder} has no graded submission. First: autograde grade.")
    course.students = sorted(everybody)
    return course


Cells = dict[str, tuple[float, float, bool]]
"""By grade_id: points, full points, and whether the cell waits for a person."""


@dataclass(kw_only=True)
class _Points:
    cells: Cells = field(default_factory=dict)
    penalties: dict[str, float] = field(default_factory=dict)

    @property
    def penalty(self) -> float:
        return sum(self.penalties.values())


def _gradebook(folder: Path) -> tuple[dict[str, dict[str, _Points]], list[str], set[str]]:
    """Points by assignment and student, all students, and who of them is on the class list."""
    from nbgrader.api import Student

    from autograde.classroom.gradebook import open_gradebook

    points: dict[str, dict[str, _Points]] = defaultdict(lambda: defaultdict(_Points))
    names = (Student.first_name, Student.last_name, Student.email, Student.lms_user_id)
    with open_gradebook(folder) as gradebook:
        for assignment, student, notebook, late, cell, *scores in _grades(gradebook.db):
            auto, by_hand, extra, waits, *full = scores
            about = points[assignment][student]
            score = auto if by_hand is None else by_hand
            most = next(filter(None, full), 0.0)
            about.cells[cell] = (score or 0.0) + (extra or 0.0), most, bool(waits)
            about.penalties[notebook] = late or 0.0
        people = gradebook.db.query(Student.id, *names).all()
    return points, [id for id, *_ in people], {id for id, *about in people if any(about)}


def _grades(db: Any) -> Any:
    """A row per grade: where it belongs, its penalty, its parts, its full points."""
    from nbgrader.api import (
        Assignment,
        BaseCell,
        Grade,
        GradeCell,
        SubmittedAssignment,
        SubmittedNotebook,
        TaskCell,
    )

    cell, graded, task = (kind.__table__.c for kind in (BaseCell, GradeCell, TaskCell))
    columns = (
        *(Assignment.name, SubmittedAssignment.student_id, SubmittedNotebook.id),
        *(SubmittedNotebook.late_submission_penalty, cell.name),
        *(Grade.auto_score, Grade.manual_score, Grade.extra_credit, Grade.needs_manual_grade),
        *(graded.max_score, task.max_score),
    )
    return (
        db.query(*columns)
        .select_from(Grade)
        .join(SubmittedNotebook, SubmittedNotebook.id == Grade.notebook_id)
        .join(SubmittedAssignment, SubmittedAssignment.id == SubmittedNotebook.assignment_id)
        .join(Assignment, Assignment.id == SubmittedAssignment.assignment_id)
        .join(BaseCell.__table__, cell.id == Grade.cell_id)
        .outerjoin(GradeCell.__table__, graded.id == Grade.cell_id)
        .outerjoin(TaskCell.__table__, task.id == Grade.cell_id)
    )


def _rows(
    verdicts: Mapping[str, Mapping[str, Any]], points: Mapping[str, _Points], listed: set[str]
) -> dict[str, Row]:
    exercise_of = {
        check["grade_id"]: check["exercise"]
        for verdict in verdicts.values()
        for check in verdict.get("checks", [])
    }
    rows = {}
    for student in sorted({*verdicts, *points}):
        verdict, about = verdicts.get(student, {}), points.get(student)
        why = verdict.get("not_graded", "") or ("" if about else "is not in the gradebook")
        scores: dict[str, float] = {}
        best: dict[str, float] = {}
        waiting = []
        for cell, (score, most, waits) in (about.cells if about and not why else {}).items():
            name = exercise_of.get(cell, cell)
            scores[name] = scores.get(name, 0.0) + score
            best[name] = best.get(name, 0.0) + most
            waiting += [name] if waits else []
        rows[student] = Row(
            student=student,
            scores=scores,
            max_scores=best,
            seen={},
            to_grade_by_hand=waiting,
            not_graded=why,
            penalty=about.penalty if about else 0.0,
            off_roster=bool(listed) and student not in listed,
        )
    return rows


def share(row: Row | None) -> float | None:
    """Share of the full points, 0 to 1, or more with extra credit; None without a grade."""
    if row is None or row.not_graded or not row.max_total:
        return None
    return row.total / row.max_total


def behind(course: Course) -> list[Behind]:
    """Students who fall behind, most urgent first: missing work, or points lost lately.

    Shares are compared with the class's median of the same assignment, so that a hard one does not
    make anybody fall behind.
    """
    order = list(course.rows)
    lately, before = order[-LATELY:], order[:-LATELY]
    middle = {
        a: median([s for r in course.graded(a) if (s := share(r)) is not None]) for a in order
    }
    found = []
    for student in course.students:
        missed = [a for a in lately if student not in course.rows[a]]
        if len(missed) >= MISSED:
            words = f"handed in nothing for {len(missed)} of the last {len(lately)}"
            found.append(Behind(student=student, words=words, weight=1.0 + len(missed)))
            continue
        now, then = (_against(course, student, span, middle) for span in (lately, before))
        if now is not None and then is not None and now - then <= -DROP:
            words = (
                f"from {100 * then:+.0f} to {100 * now:+.0f} percent of the points against the "
                f"class's median"
            )
            found.append(Behind(student=student, words=words, weight=then - now))
    return sorted(found, key=lambda one: (-one.weight, one.student))


def _against(
    course: Course, student: str, span: Sequence[str], middle: Mapping[str, float | None]
) -> float | None:
    """Mean share of the points less the class's median; None with fewer than two grades."""
    shares = [(share(course.rows[a].get(student)), middle[a]) for a in span]
    known = [mine - class_ for mine, class_ in shares if mine is not None and class_ is not None]
    return sum(known) / len(known) if len(known) >= 2 else None


def returning(course: Course) -> list[Returning]:
    """Misconceptions seen in more than one assignment, those that most students repeat first."""
    where: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    exercises: dict[str, set[str]] = defaultdict(set)
    for assignment, verdicts in course.verdicts.items():
        for student, verdict in verdicts.items():
            for check in verdict.get("checks", []):
                for name in filter(None, (check.get("misconception") or "").split(", ")):
                    where[name][assignment].add(student)
                    exercises[name].add(check["exercise"])
    found = []
    for name, by_assignment in where.items():
        if len(by_assignment) < 2:
            continue
        times: dict[str, int] = defaultdict(int)
        for students in by_assignment.values():
            for student in students:
                times[student] += 1
        found.append(
            Returning(
                name=name,
                exercises=sorted(exercises[name]),
                students=sorted(times),
                again=sorted(student for student, n in times.items() if n > 1),
            )
        )
    return sorted(found, key=lambda one: (-len(one.again), -len(one.students), one.name))


def weak(exercises: Sequence[ExerciseStatistics]) -> list[ExerciseStatistics]:
    """Exercises that hardly distinguish strong from weak students, worst first."""
    found = [
        one
        for one in exercises
        if one.count >= LEAST_GRADES
        and one.discrimination is not None
        and one.discrimination < WEAK_D
        and one.difficulty is not None
        and TOO_EVEN < one.difficulty < 1 - TOO_EVEN
    ]
    return sorted(found, key=lambda one: one.discrimination)
