"""The whole course on one page: students by assignments, and what an instructor should act on.

The look, the content policy and the escaping are the class page's; see page.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autograde.class_dir import few
from autograde.classroom import course_numbers as numbers
from autograde.classroom.course_numbers import Course, share
from autograde.classroom.files import write_whole
from autograde.classroom.page import exercise_statistics, render
from autograde.classroom.report import Row
from autograde.classroom.statistics import ExerciseStatistics, median

SHADES = 5
"""Steps of colour from no points to all."""
MOST_NAMES = 30
"""Names in one field; more are counted."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One student's field for one assignment."""

    text: str
    title: str
    """In words, for a screen reader or a pointer that rests on it."""
    shade: str
    """Of its background: s0 to s4, or none."""


@dataclass(frozen=True, kw_only=True)
class About:
    """One assignment's line."""

    name: str
    page: str
    """Its own class page, if there is one next to this."""
    handed_in: int
    graded: int
    waiting: int
    middle: float | None
    """Median share of the points."""


def write_course_page(folder: Path, output: Path | None = None) -> list[str]:
    """Write the course page: report/course.html in the class directory unless named.

    Returns:
        What to say about it, a sentence each.

    Raises:
        FileNotFoundError: Nothing has been graded yet.
        ValueError: The file cannot be written.
    """
    path = output or folder / "report" / "course.html"
    course = numbers.read_course(folder)
    text = course_page(course, folder.name, path.parent)
    try:
        write_whole(path, text)
    except OSError as fault:
        raise ValueError(f"{path} cannot be written ({fault.strerror}). Try --html FILE.") from None
    late = numbers.behind(course)
    said = [f"{len(late)} fall behind: {few([one.student for one in late])}"] if late else []
    return [
        f"{len(course.students)} students, {len(course.rows)} assignments.",
        *said,
        f"wrote {path}",
    ]


def course_page(course: Course, title: str, beside: Path | None = None) -> str:
    """The course page as HTML.

    Args:
        course: What is known about the class.
        title: The course's name.
        beside: The folder that it is for: class pages that lie there are linked.
    """
    exercises = {name: exercise_statistics(course.graded(name)) for name in course.rows}
    everything = [one for of_one in exercises.values() for one in of_one]
    return render(
        "course.html",
        title=title,
        course=course,
        assignments=[_about(course, name, beside) for name in course.rows],
        behind=numbers.behind(course),
        returning=[
            (one, _names(one.again), _names(one.students)) for one in numbers.returning(course)
        ],
        weak=[(one, _why_weak(one)) for one in numbers.weak(everything)],
        exercises=exercises,
        table=[
            (student, _cells(course, student), *_sum(course, student))
            for student in course.students
        ],
        lately=numbers.LATELY,
        missed=numbers.MISSED,
        drop=numbers.DROP,
        weak_d=numbers.WEAK_D,
        least=numbers.LEAST_GRADES,
    )


def _names(students: list[str]) -> str:
    return few(students, most=MOST_NAMES) if students else "nobody"


def _about(course: Course, name: str, beside: Path | None) -> About:
    graded = course.graded(name)
    page = f"{name}.html"
    return About(
        name=name,
        page=page if beside and (beside / page).exists() and "/" not in name else "",
        handed_in=len(course.rows[name]),
        graded=len(graded),
        waiting=sum(len(row.to_grade_by_hand) for row in graded),
        middle=median([s for row in graded if (s := share(row)) is not None]),
    )


def _why_weak(one: ExerciseStatistics) -> str:
    if one.discrimination is not None and one.discrimination < 0:
        return "students with fewer points overall do better here: is the check right?"
    if one.difficulty is not None and one.difficulty > 0.85:
        return "nearly everybody solves it"
    if one.difficulty is not None and one.difficulty < 0.15:
        return "hardly anybody solves it"
    return "strong and weak students do about equally well"


def _cells(course: Course, student: str) -> list[Cell]:
    return [_cell(rows.get(student), name) for name, rows in course.rows.items()]


def _cell(row: Row | None, assignment: str) -> Cell:
    if row is None:
        return Cell(text="–", title=f"{assignment}: nothing handed in", shade="")
    part = share(row)
    if row.not_graded or part is None:
        return Cell(text="not graded", title=f"{assignment}: {row.not_graded}", shade="warn")
    words = [f"{row.total:g} of {row.max_total:g} points"]
    marks = ""
    if row.penalty:
        words.append(f"{row.penalty:g} subtracted for being late")
        marks += " †"
    if row.to_grade_by_hand:
        words.append(f"{len(row.to_grade_by_hand)} to grade by hand")
        marks += " …"
    step = min(SHADES - 1, max(0, int(part * SHADES)))
    return Cell(
        text=f"{100 * part:.0f}{marks}",
        title=f"{assignment}: {', '.join(words)}",
        shade=f"s{step}",
    )


def _sum(course: Course, student: str) -> tuple[float, float]:
    """Points and full points of everything that was graded."""
    rows = [rows[student] for rows in course.rows.values() if student in rows]
    graded = [row for row in rows if not row.not_graded]
    return sum(row.total for row in graded), sum(row.max_total for row in graded)
