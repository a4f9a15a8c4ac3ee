"""Marks for a learning platform: the files that Canvas and Moodle import, and a plain table.

Points are nbgrader's: manual grades and extra credit are included, the late penalty is subtracted,
and no total falls below 0, as in `nbgrader export`. One thing differs: a student without a grade
does not get a zero. The plain table leaves the field empty; the files for Canvas and Moodle leave
the student out, because both platforms clear an existing mark if the field is empty.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from autograde.class_dir import few, nbgrader_config
from autograde.classroom.files import write_whole
from autograde.classroom.names import shown
from autograde.classroom.reasons import read_verdicts
from autograde.classroom.stamps import read_stamp

Target = Literal["canvas", "moodle", "csv"]
TARGETS: tuple[Target, ...] = ("canvas", "moodle", "csv")
MAX_TIMESTAMP = 200
"""Bytes of a timestamp.txt, as for who grades it."""
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""A field that starts so is computed by spreadsheets (the last four are their wide forms)."""
FORMULA_AT = re.compile(rf"(?:^|(?<=[;,|\t\r\n\"]))(?= *[{re.escape(''.join(FORMULA))}])")
"""Where one starts: also after what a spreadsheet may be told, or may guess, that separates."""
DAY_OR_MONTH = re.compile(r"(?<!\d)(\d{1,2})[./-](\d{1,2})[./-](?:\d{4}|\d{2})(?!\d)")
"""A date whose first number may be a day or a month."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One student's marks for an assignment, as nbgrader's gradebook has them."""

    student: str
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    lms_user_id: str = ""
    """nbgrader's field for the platform's own number; Canvas calls it ID."""
    timestamp: str = ""
    """When it was handed in, UTC, if a timestamp.txt came with it."""
    late_s: float = 0.0
    """Seconds after the due date; 0 if either is unknown."""
    cells: dict[str, float]
    """Points by grade_id, extra credit included."""
    extra_credit: float = 0.0
    """How many of the points are extra credit."""
    penalty: float = 0.0
    """Points subtracted for being late."""
    waiting: tuple[str, ...] = ()
    """Cells that must still be graded by hand."""
    status: Literal["graded", "not graded", "nothing handed in"]

    @property
    def is_listed(self) -> bool:
        """Whether more than the id is known, as for everybody on a class list."""
        return bool(self.first_name or self.last_name or self.email or self.lms_user_id)

    @property
    def raw_score(self) -> float | None:
        """Points before the penalty; None without a grade."""
        return sum(self.cells.values()) if self.status == "graded" else None

    @property
    def score(self) -> float | None:
        """Points that count; None without a grade."""
        return None if self.raw_score is None else max(0.0, self.raw_score - self.penalty)

    @property
    def name(self) -> str:
        """`Last, First`, which Canvas calls the sortable name; the id if there is no name."""
        return ", ".join(part for part in (self.last_name, self.first_name) if part) or self.student


@dataclass(frozen=True, kw_only=True)
class Marks:
    """A class's marks for an assignment."""

    assignment: str
    max_score: float
    max_scores: dict[str, float]
    """Full marks by grade_id, in the notebook's order."""
    students: list[Mark]


def read_marks(folder: Path, assignment: str) -> Marks:
    """Read the marks of everybody in the gradebook, and of submissions that got no grade.

    Args:
        folder: A class directory, absolute.
        assignment: Its name.

    Raises:
        FileNotFoundError: The assignment is not in the gradebook, or no student is.
    """
    from nbgrader.api import MissingEntry

    from autograde.classroom.gradebook import open_gradebook

    refused = _refused(folder, assignment)
    with open_gradebook(folder) as gradebook:
        try:
            about = gradebook.find_assignment(assignment)
        except MissingEntry:
            raise FileNotFoundError(
                f"{folder} has no marks for {assignment}. First: autograde release and grade."
            ) from None
        by_student = {submission.student.id: submission for submission in about.submissions}
        max_scores = {
            cell.name: cell.max_score
            for notebook in about.notebooks
            for cell in notebook.grade_cells
        }
        students = [
            _mark(student, by_student.get(student.id), student.id in refused)
            for student in gradebook.students
        ]
    known = {mark.student for mark in students}
    students += [
        Mark(student=student, cells={}, status="not graded") for student in refused - known
    ]
    if not students:
        raise FileNotFoundError(f"{folder} has no students yet. First: autograde grade.")
    return Marks(
        assignment=assignment,
        max_score=sum(max_scores.values()),
        max_scores=max_scores,
        students=sorted(students, key=lambda mark: mark.student),
    )


def _refused(folder: Path, assignment: str) -> set[str]:
    try:
        verdicts = read_verdicts(folder, assignment)
    except FileNotFoundError:  # graded by stock nbgrader
        return set()
    return {student for student, verdict in verdicts.items() if verdict.get("not_graded")}


def _mark(student, submission, refused: bool) -> Mark:
    """A student's row; `student` and `submission` are nbgrader's."""
    about = {
        "student": student.id,
        "first_name": student.first_name or "",
        "last_name": student.last_name or "",
        "email": student.email or "",
        "lms_user_id": student.lms_user_id or "",
    }
    if refused or submission is None:
        return Mark(**about, cells={}, status="not graded" if refused else "nothing handed in")
    grades = [grade for notebook in submission.notebooks for grade in notebook.grades]
    return Mark(
        **about,
        timestamp=submission.timestamp.isoformat(" ") if submission.timestamp else "",
        late_s=_late_s(submission),
        cells={grade.name: grade.score or 0.0 for grade in grades},
        extra_credit=sum(grade.extra_credit or 0.0 for grade in grades),
        penalty=submission.late_submission_penalty or 0.0,
        waiting=tuple(grade.name for grade in grades if grade.needs_manual_grade),
        status="graded",
    )


def _late_s(submission: Any) -> float:
    """Seconds late; an extension of no due date, which nbgrader would add up, is none."""
    due = submission.assignment.duedate
    return 0.0 if due is None else max(0.0, submission.total_seconds_late)


def as_csv(marks: Marks, to: Target) -> str:
    """Format the marks for import by a platform.

    `canvas`: its gradebook's import. Canvas knows a student by ID (nbgrader's lms_user_id, where it
    is a number), else by SIS User ID (where it is none), else by SIS Login ID (the student's id
    here), else by name. The second row holds the points possible. An assignment with the same
    title is filled in, else Canvas offers to create one.

    `moodle`: Grades > Import > CSV file. Map `Username`, `ID number` or `Email address` to the user
    field, and the last column to a grade item. A student who is unknown to Moodle makes it refuse
    the whole file. It takes more than its maximum grade (for extra credit) only where an
    administrator has allowed grades above 100 %.

    `csv`: everything, a column a graded cell.

    Args:
        marks: Of a class.
        to: Which form.

    Source: Canvas, "How do I import grades in the Gradebook?", and its gradebook importer; Moodle
        documentation, "Grade import", and its CSV importer.
    """
    rows = {"canvas": _canvas, "moodle": _moodle, "csv": _plain}[to](marks)
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(
        [_field(value) for value in row] for row in rows
    )
    return text.getvalue()


Row = Iterable["str | float | None"]


def _canvas(marks: Marks) -> Iterable[Row]:
    yield ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", marks.assignment]
    yield ["    Points Possible", "", "", "", "", marks.max_score]
    for mark in filter(_has_grade, marks.students):
        number = mark.lms_user_id.isdecimal()
        ids = [mark.lms_user_id, ""] if number else ["", mark.lms_user_id]
        yield [mark.name, *ids, mark.student, "", mark.score]


def _moodle(marks: Marks) -> Iterable[Row]:
    head = ["First name", "Last name", "Username", "ID number", "Email address"]
    yield [*head, f"Assignment: {marks.assignment} (Real)"]
    for mark in filter(_has_grade, marks.students):
        who = [mark.first_name, mark.last_name, mark.student, mark.lms_user_id, mark.email]
        yield [*who, mark.score]


def _has_grade(mark: Mark) -> bool:
    return mark.status == "graded"


def _plain(marks: Marks) -> Iterable[Row]:
    head = ["assignment", "student", "last_name", "first_name", "email", "lms_user_id", "timestamp"]
    ends = ["extra_credit", "raw_score", "late_penalty", "score", "max_score", "status", "waiting"]
    yield [*head, *marks.max_scores, *ends]
    for mark in marks.students:
        graded = mark.status == "graded"
        yield [
            *(marks.assignment, mark.student, mark.last_name, mark.first_name, mark.email),
            *(mark.lms_user_id, mark.timestamp),
            *(mark.cells.get(name) for name in marks.max_scores),
            *((mark.extra_credit, mark.raw_score, mark.penalty) if graded else (None, None, None)),
            *(mark.score, marks.max_score),
            *(mark.status, len(mark.waiting)),
        ]


def _field(value: str | float | None) -> str:
    """A number as it is; a text with an apostrophe where a spreadsheet could compute it."""
    if value is None:
        return ""
    if isinstance(value, str):
        return FORMULA_AT.sub("'", value)
    return f"{round(value, 6):.15g}"


def write_marks(
    folder: Path,
    assignment: str,
    to: Target,
    output: Path | None = None,
    *,
    marks: Marks | None = None,
) -> Path:
    """Write the marks to a file, by default export/ASSIGNMENT-TO.csv in the class directory.

    Args:
        folder: A class directory, absolute.
        assignment: Its name.
        to: Which form.
        output: The file.
        marks: Those of the assignment; None reads them.

    Returns:
        The file. Canvas and Moodle read it as UTF-8.

    Raises:
        ValueError: No such form, or the file cannot be written.
        FileNotFoundError: Nothing has been graded yet.
    """
    if to not in TARGETS:
        raise ValueError(f"--to {to}: marks can be exported to {', '.join(TARGETS)}.")
    text = as_csv(marks or read_marks(folder, assignment), to)
    path = output or folder / "export" / f"{assignment}-{to}.csv"
    try:
        write_whole(path, text)
    except OSError as fault:
        raise ValueError(f"{path} cannot be written ({fault.strerror}). Try --output.") from None
    return path


def open_questions(marks: Marks, to: Target = "csv") -> list[str]:
    """What to know before marks go out, a line each; empty if everything is final."""
    lines = []
    waiting = sum(len(mark.waiting) for mark in marks.students)
    if waiting:
        lines.append(
            f"{'1 answer waits' if waiting == 1 else f'{waiting} answers wait'} to be graded by "
            "hand, so these points may still change: use formgrader, then export again"
        )
    what = "left empty" if to == "csv" else f"left out, so that {to.title()} keeps what it has"
    for status in ("not graded", "nothing handed in"):
        names = [mark.student for mark in marks.students if mark.status == status]
        if names:
            lines.append(f"{status}, {what}: {few(names)}")
    listed = any(mark.is_listed for mark in marks.students)
    strangers = [mark.student for mark in filter(_has_grade, marks.students) if not mark.is_listed]
    if listed and strangers:
        fate = (
            ("; Moodle refuses a file that contains a student it does not know")
            if to == "moodle"
            else ""
        )
        lines.append(f"not on the class list{fate}: {few(strangers)}")
    return lines


def nothing_handed_in(folder: Path, assignment: str) -> list[str]:
    """Students in the gradebook who handed in nothing."""
    students = read_marks(folder, assignment).students
    return [mark.student for mark in students if mark.status == "nothing handed in"]


FIRST_YEAR = 2015
"""Nothing was handed in before."""


def doubtful_times(folder: Path, assignment: str) -> dict[str, str]:
    """Doubtful submission times, by student: read month first, or outside the course.

    nbgrader's reader takes 05.03.2026 for the third of May, which is two months late. A student may
    write any time into the file; a year that the file itself contradicts is said.
    """
    found = {}
    for path in sorted(folder.glob(f"submitted/*/{assignment}/timestamp.txt")):
        try:
            if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_TIMESTAMP:
                continue
            text = path.read_text("utf-8", errors="replace").strip()
            numbers = DAY_OR_MONTH.search(text)
            read = read_stamp(text) if text else None
            itself = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        except (OSError, ValueError, OverflowError):  # such a one is not graded, and says why
            continue
        if read and (read.year < FIRST_YEAR or read > datetime.now() + timedelta(days=2)):
            found[path.parents[1].name] = (
                f"timestamp.txt says {read:%Y-%m-%d}, but the file itself is from "
                f"{itself:%Y-%m-%d}. Find out when it was handed in, correct the file, then grade "
                "again"
            )
            continue
        first, second = map(int, numbers.groups()) if numbers else (0, 0)
        if read and numbers and first != second and second <= 12 and read.month == first:
            other = read.replace(month=second, day=first)
            found[path.parents[1].name] = (
                f"timestamp.txt holds '{shown(text)}', read as {read:%Y-%m-%d} (the month first). "
                f"If the day comes first, write {other:%Y-%m-%d %H:%M:%S} UTC, otherwise "
                f"{read:%Y-%m-%d %H:%M:%S} UTC; then grade again"
            )
    return found


def stale_penalties(folder: Path, assignment: str) -> dict[str, str]:
    """Late penalties that are out of date, by student.

    nbgrader works a penalty out when a notebook is graded. Points given by hand later do not move
    it, though it may be a share of all points, nor does another due date.
    """
    from nbgrader.preprocessors import AssignLatePenalties

    from autograde.classroom.gradebook import open_gradebook

    penalties = AssignLatePenalties(config=nbgrader_config(folder))
    found = {}
    with open_gradebook(folder) as gradebook:
        for submission in gradebook.assignment_submissions(assignment):
            if submission.timestamp is None:
                continue
            for notebook in submission.notebooks:
                try:
                    now = _penalty_now(penalties, submission, notebook)
                except Exception:  # the instructor's own plugin: where it fails, grading says so
                    continue
                noted = notebook.late_submission_penalty or 0.0
                if abs(now - noted) > 1e-6:
                    found[submission.student.id] = (
                        f"the late penalty on record is {noted:g} points, but would now be "
                        f"{now:g}: it is older than a manual grade, the due date or the config. "
                        f"Update it: autograde grade {quote(assignment)} --force --students "
                        f"{quote(submission.student.id)}"
                    )
    return found


def _penalty_now(penalties: Any, submission: Any, notebook: Any) -> float:
    """As nbgrader's AssignLatePenalties works it out, within 0 and the score."""
    late_s = _late_s(submission)
    if not late_s:
        return 0.0
    penalties.init_plugin()
    asked = penalties.plugin_inst.late_submission_penalty(
        submission.student.id, notebook.score, late_s
    )
    return min(max(asked or 0.0, 0.0), notebook.score)


def is_final(marks: Marks) -> bool:
    """Whether everything that was handed in is graded, including by hand."""
    return not any(mark.waiting or mark.status == "not graded" for mark in marks.students)
