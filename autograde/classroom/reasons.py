"""Read the reasons behind the points of a whole assignment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autograde.classroom.lookups import students_in
from autograde.classroom.names import may_hold, shown


def read_verdicts(folder: Path, assignment: str) -> dict[str, dict[str, Any]]:
    """The reasons for all students, in order.

    Students with neither a submission folder nor a grade are skipped, for example after a misspelt
    folder was renamed.

    Raises:
        FileNotFoundError: Nothing has been graded yet.
        ValueError: A file does not hold a verdict; the message says what to do.
    """
    paths = sorted((folder / "verdicts" / assignment).glob("*.json"))
    submitted = folder / "submitted"
    there = [path.name for path in submitted.glob("*") if may_hold(path, assignment)]
    gone = {path.stem for path in paths} - {*there, *map(shown, there)}
    if gone:
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
            f"{path} holds no verdict: was it truncated or edited? Remove it, then run autograde "
            "grade: the work is graded again on the same cases."
        )
    return verdict
