"""Grade a class: one submission after the other, each on its own, nobody stopped by another."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autograde.class_dir import nbgrader_config
from autograde.classroom.execute import refereed, verdict_path
from autograde.classroom.release import NbgraderFault, ask_nbgrader
from autograde.classroom.submissions import Submission, find_submissions
from autograde.sandbox.student import Limits


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one submission."""

    student: str
    reason: str
    """Why it was not graded; empty if it was."""
    notes: list[str]
    seconds: float

    @property
    def graded(self) -> bool:
        """Whether there is a grade. Without one there is a reason, never a zero."""
        return not self.reason


def grade(
    folder: Path,
    assignment: str,
    students: list[str] | None = None,
    limits: Limits = Limits(),  # noqa: B008
    *,
    trusted: bool = False,
) -> Iterator[Outcome]:
    """Grade the submissions of a class, and yield each outcome as it comes.

    Grades go to nbgrader's gradebook, graded notebooks to autograded/, reasons to verdicts/.

    Args:
        folder: A class directory, absolute.
        assignment: Its name; it must have been released, which is when nbgrader learns its cells.
        students: Only these; None takes all.
        limits: Time and memory of a submission.
        trusted: Run submissions with this user's own rights instead of locked away.

    Raises:
        FileNotFoundError: Nothing was handed in.
    """
    for submission in find_submissions(folder, assignment, students):
        started = time.monotonic()
        reason = submission.fault or _grade_one(folder, assignment, submission, limits, trusted)
        if reason:
            _write_reason(folder, assignment, submission.student, reason)
        yield Outcome(
            student=submission.student,
            reason=reason,
            notes=submission.notes,
            seconds=time.monotonic() - started,
        )


def _grade_one(
    folder: Path, assignment: str, submission: Submission, limits: Limits, trusted: bool
) -> str:
    """Run nbgrader's autograding with our two steps; the reason where it gave up."""
    student = submission.student
    config = nbgrader_config(folder)
    config = refereed(config, folder, assignment, student, limits, trusted=trusted)
    try:
        ask_nbgrader(config, "autograde", assignment, student, force=True, create=True)
    except NbgraderFault as fault:
        return f"{submission.path}: not graded, nbgrader gave up ({fault})."
    return ""


def _write_reason(folder: Path, assignment: str, student: str, reason: str) -> None:
    path = verdict_path(folder, assignment, student)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"not_graded": reason}, indent=2, ensure_ascii=False), "utf-8")
