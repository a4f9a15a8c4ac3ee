"""Feedback pages: nbgrader's own for what was graded, a short one of ours for what was not."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from autograde.class_dir import nbgrader_config
from autograde.classroom.release import ask_nbgrader
from autograde.classroom.verdicts import verdict_path

PAGE = """\
<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{assignment}: not graded</title>
<body style="font-family: sans-serif; max-width: 40em; margin: 3em auto; line-height: 1.5">
<h1>{assignment}</h1>
<p>Your notebook was <strong>not graded</strong>; that is not a zero.</p>
<p style="border-left: 4px solid #d55e00; padding-left: 1em">{reason}</p>
<p>Hand it in again, or ask your instructor.</p>
</body></html>
"""


def write_feedback(folder: Path, assignment: str, students: list[str] | None = None) -> list[Path]:
    """Write feedback/STUDENT/ASSIGNMENT/ASSIGNMENT.html for everybody whose work was looked at.

    Args:
        folder: A class directory, absolute.
        assignment: Its name.
        students: Only these; None takes all.

    Returns:
        The pages.

    Raises:
        FileNotFoundError: Nothing has been graded yet.
    """
    config = nbgrader_config(folder)
    known = sorted(
        path.stem for path in verdict_path(folder, assignment, "x").parent.glob("*.json")
    )
    wanted = [student for student in known if students is None or student in students]
    if not wanted:
        raise FileNotFoundError(
            f"{folder} has no graded submission of {assignment}. First: autograde grade."
        )
    pages = []
    for student in wanted:
        page = folder / "feedback" / student / assignment / f"{assignment}.html"
        reason = _reason(folder, assignment, student)
        if reason:
            page.parent.mkdir(parents=True, exist_ok=True)
            what, _, _for_instructors = reason.replace(f"{folder}/", "").partition(". ")
            page.write_text(
                PAGE.format(assignment=escape(assignment), reason=escape(what)), "utf-8"
            )
        else:
            ask_nbgrader(config, "generate_feedback", assignment, student, force=True)
        pages.append(page)
    return pages


def _reason(folder: Path, assignment: str, student: str) -> str:
    document = json.loads(verdict_path(folder, assignment, student).read_text("utf-8"))
    return document.get("not_graded", "")
