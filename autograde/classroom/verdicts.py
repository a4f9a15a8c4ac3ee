"""The reasons behind the points, one JSON file a student: verdicts/ASSIGNMENT/STUDENT.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autograde.classroom.names import may_hold, shown


def verdict_path(folder: Path, assignment: str, student: str) -> Path:
    """Where the reasons behind a student's points are kept."""
    return folder / "verdicts" / assignment / f"{student}.json"


def read_verdicts(folder: Path, assignment: str) -> dict[str, dict[str, Any]]:
    """Everybody's reasons, by student in order.

    Who is gone is left out: neither a folder in submitted/ nor a grade in the gradebook, as after a
    misspelt folder was renamed.

    Raises:
        FileNotFoundError: Nothing has been graded yet.
        ValueError: A file holds no verdict; the message says what to do.
    """
    paths = sorted((folder / "verdicts" / assignment).glob("*.json"))
    submitted = folder / "submitted"
    there = [path.name for path in submitted.glob("*") if may_hold(path, assignment)]
    gone = {path.stem for path in paths} - {*there, *map(shown, there)}
    if gone:
        from autograde.classroom.gradebook import students_in

        gone -= students_in(folder, assignment)
    paths = [path for path in paths if path.stem not in gone]
    if not paths:
        raise FileNotFoundError(
            f"{folder} has no graded submission of {assignment}. First: autograde grade."
        )
    return {path.stem: _read(path) for path in paths}


def _read(path: Path) -> dict[str, Any]:
    try:
        verdict = json.loads(path.read_text("utf-8"))
    except ValueError:
        verdict = None
    if not isinstance(verdict, dict):
        raise ValueError(
            f"{path} holds no verdict: cut off, or edited? Remove it, then run autograde grade: "
            "it is graded again on the same cases."
        )
    return verdict


def own_fault(path: str, fault: BaseException | str) -> str:
    """What to say where the grader failed."""
    words = fault if isinstance(fault, str) else f"{type(fault).__name__}: {fault}"
    words = " ".join(words.split())[:300]
    return f"{path}: not graded, by the grader's own fault ({words}). Run autograde grade again."
