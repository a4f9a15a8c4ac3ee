"""Late penalties, extra credit and hand-given points: as stock nbgrader has them.

A small course, whose one check is worth 1.5 of 2 points: once graded by stock `nbgrader autograde`,
once by our writer of the gradebook. Afterwards the two gradebooks must say the same.
"""

import json
from datetime import datetime
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from autograde.class_dir import CONFIG, nbgrader_config
from autograde.classroom import gradebook
from autograde.classroom.release import ask_nbgrader, release
from autograde.classroom.stamps import MisreadError, read_stamp
from autograde.classroom.submissions import find_submissions
from tests.short_class import hand_in, submission

NAME = "late"
DUE = "2026-03-01 12:00:00 UTC"
HOUR_LATE = "2026-03-01 13:00:00 UTC"
PLUGIN = """
from nbgrader.plugins import BasePlugin

class ByName(BasePlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        return {
            "half-an-hour": score * total_seconds_late / 7200,
            "more": score + 5,
            "negative": -1.0,
        }.get(student_id)

c.AssignLatePenalties.plugin_class = ByName
"""
ZERO = "\nc.LateSubmissionPlugin.penalty_method = 'zero'\n"
STUDENTS = {
    "on-time": DUE,
    "no-timestamp": None,
    "half-an-hour": HOUR_LATE,
    "more": HOUR_LATE,
    "negative": HOUR_LATE,
    "nothing": "2026-03-01 14:00:00+01:00",
}


def marks(id: str, **flags: object) -> dict:
    plain = {"grade": False, "solution": False, "locked": False, "task": False, "points": 0}
    return {"nbgrader": {**plain, "schema_version": 3, "grade_id": id, **flags}}


def course(folder: Path, config: str) -> Path:
    """A class directory with one assignment, released, due, and handed in by everybody."""
    check = marks("check", grade=True, locked=True, points=2)
    essay = marks("essay", grade=True, solution=True, points=3)
    cells = [
        new_code_cell("(lambda: 1.5)()", metadata=check),
        new_markdown_cell("Why?", metadata=essay),
    ]
    source = folder / "source" / NAME / f"{NAME}.ipynb"
    source.parent.mkdir(parents=True)
    nbformat.write(new_notebook(cells=cells), source)
    (folder / "nbgrader_config.py").write_text(CONFIG.format(course_id="c") + config)
    text = release(folder, NAME).read_text().replace("Why?", "Because.")
    with gradebook.open_gradebook(folder) as book:
        book.update_or_create_assignment(NAME, duedate=DUE)
    for student, timestamp in STUDENTS.items():
        path = hand_in(folder, student, NAME, text)
        if timestamp:
            (path.parent / "timestamp.txt").write_text(timestamp)
    return folder


def by_stock(folder: Path, student: str) -> str:
    ask_nbgrader(nbgrader_config(folder), "autograde", NAME, student, force=True, create=True)
    return ""


def by_us(folder: Path, student: str) -> str:
    """What comes from a grader is given: the check's outputs."""
    source = nbformat.read(folder / "source" / NAME / f"{NAME}.ipynb", as_version=4)
    shown = new_output("execute_result", data={"text/plain": "1.5"}, execution_count=None)
    cells = [{"source": "(lambda: 1.5)()", "outputs": [shown]}]
    result = {"graded": True, "cells": cells, "checks": [], "notes": [], "ended": "", "seconds": 0}
    path = str(submission(folder, student, NAME))
    job = {
        "folder": str(folder),
        "student": student,
        "path": path,
        "assignment": {"name": NAME, "cells": json.loads(json.dumps(source.cells))},
        "seed": 1,
        "result": result,
    }
    return gradebook.write(job)["reason"]


def read(folder: Path) -> dict[str, dict]:
    """All that the gradebook says about each student."""
    with gradebook.open_gradebook(folder) as book:
        return {
            submission.student_id: {
                "score": submission.score,
                "max_score": submission.max_score,
                "needs_manual_grade": submission.needs_manual_grade,
                "timestamp": submission.timestamp,
                "seconds_late": submission.total_seconds_late,
                "penalty": submission.late_submission_penalty,
                "grades": {
                    grade.name: (
                        grade.auto_score,
                        grade.manual_score,
                        grade.extra_credit,
                        grade.needs_manual_grade,
                    )
                    for notebook in submission.notebooks
                    for grade in notebook.grades
                },
            }
            for submission in book.assignment_submissions(NAME)
        }


def give_by_hand(folder: Path, student: str) -> None:
    """What an instructor does in formgrader: points for the essay, extra credit for the check."""
    with gradebook.open_gradebook(folder) as book:
        essay = book.find_grade("essay", NAME, NAME, student)
        essay.manual_score, essay.needs_manual_grade = 2.5, False
        book.find_grade("check", NAME, NAME, student).extra_credit = 0.75
        book.db.commit()


@pytest.mark.slow
def test_penalties_extra_credit_and_manual_points_are_those_of_stock_nbgrader(tmp_path):
    again = ("on-time", "half-an-hour")
    seen = {}
    for name, grade in (("stock", by_stock), ("ours", by_us)):
        folder = course(tmp_path / name, PLUGIN)
        assert [grade(folder, student) for student in STUDENTS] == [""] * len(STUDENTS)
        first = read(folder)
        for student in again:
            give_by_hand(folder, student)
            grade(folder, student)
        seen[name] = first, read(folder)
    first, second = seen["ours"]
    stock_first, stock_second = seen["stock"]
    for student in again:  # the essay is as it was: stock asks for it again, we do not
        assert stock_second[student]["grades"].pop("essay") == (0.0, 2.5, None, True)
        assert second[student]["grades"].pop("essay") == (0.0, 2.5, None, False)
        assert stock_second[student].pop("needs_manual_grade")
        assert not second[student].pop("needs_manual_grade")
    assert (first, second) == (stock_first, stock_second)
    # and nbgrader does what its manual says
    penalties = {student: row["penalty"] or 0 for student, row in first.items()}
    late = {"half-an-hour": 0.75, "more": 1.5}
    assert penalties == {**dict.fromkeys(STUDENTS, 0), **late}
    assert first["nothing"]["seconds_late"] == 3600
    for student in again:  # a submission's score is before the penalty
        assert second[student]["score"] == 1.5 + 0.75 + 2.5
    assert second["half-an-hour"]["penalty"] == (1.5 + 0.75 + 2.5) / 2


@pytest.mark.slow
def test_the_stock_plugin_takes_every_point_of_late_work_where_the_config_says_zero(tmp_path):
    folder = course(tmp_path, ZERO)
    for student in ("on-time", "nothing"):
        assert by_us(folder, student) == ""
    assert {student: row["penalty"] for student, row in read(folder).items()} == {
        "on-time": 0.0,
        "nothing": 1.5,
    }


@pytest.mark.parametrize(
    "text", ["2026-03-01 23:30:00 PST", "2026-03-01 11:30 PM", "2026-03-01 12:00:00 +0100"]
)
def test_a_time_that_nbgrader_would_read_as_another_is_told(text):
    with pytest.raises(MisreadError, match="nbgrader would read as 2026-03-01"):
        read_stamp(text)


@pytest.mark.parametrize(
    "text", ["2026-03-01 12:00:00 UTC", "2026-03-01T13:00+01:00", "2026-03-01 13:00 Europe/Berlin"]
)
def test_a_time_that_says_its_zone_is_read_as_it_is_written(text):
    assert read_stamp(text) == datetime(2026, 3, 1, 12)


@pytest.mark.slow
def test_a_timestamp_that_cannot_be_read_is_not_graded_with_the_reason(tmp_path):
    folder = course(tmp_path, "")
    timestamp = folder / "submitted" / "on-time" / NAME / "timestamp.txt"
    timestamp.write_text("yesterday-ish")
    assert (
        "on-time/late/late.ipynb: its timestamp.txt holds 'yesterday-ish', which is not a time"
        in (by_us(folder, "on-time"))
    )
    assert read(folder) == {}, "never a zero"
    timestamp.write_text("2026-03-01 23:30:00 PST")
    assert "which nbgrader would read as 2026-03-01 23:30:00 UTC" in by_us(folder, "on-time")
    timestamp.write_text(" ")  # as stock: no time is known
    assert by_us(folder, "on-time") == "" and read(folder)["on-time"]["timestamp"] is None


def test_a_new_timestamp_makes_a_new_submission(tmp_path):
    path = hand_in(tmp_path, "ada", NAME, "{}")
    (before,) = find_submissions(tmp_path, NAME)
    (path.parent / "timestamp.txt").write_text(HOUR_LATE)
    (after,) = find_submissions(tmp_path, NAME)
    assert before.sha != after.sha
