"""Where the reasons behind the points are kept: verdicts/ASSIGNMENT/STUDENT.json."""

from __future__ import annotations

from pathlib import Path

from autograde.classroom.files import FULL
from autograde.reported import on_a_line

NOT_JUDGED = "the grader itself failed on "
"""How a note begins that says so of one check."""


def verdict_path(folder: Path, assignment: str, student: str) -> Path:
    """Path of the file with the reasons behind a student's points."""
    return folder / "verdicts" / assignment / f"{student}.json"


def own_fault(path: str, fault: BaseException | str) -> str:
    """The message if the grader itself failed, or had no room."""
    words = fault if isinstance(fault, str) else f"{type(fault).__name__}: {fault}"
    words = on_a_line(" ".join(words.split()), 300)
    if FULL.search(words):
        return (
            f"{path}: not graded because the disk is full ({words}). Make room, then grade again."
        )
    return (
        f"{path}: not graded because of an error in the grader itself ({words}). Run autograde "
        "grade again."
    )
