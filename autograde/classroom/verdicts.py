"""Where the reasons behind the points are kept: verdicts/ASSIGNMENT/STUDENT.json."""

from __future__ import annotations

from pathlib import Path


def verdict_path(folder: Path, assignment: str, student: str) -> Path:
    """Where the reasons behind a student's points are kept."""
    return folder / "verdicts" / assignment / f"{student}.json"


def own_fault(path: str, fault: BaseException | str) -> str:
    """What to say where the grader failed."""
    words = fault if isinstance(fault, str) else f"{type(fault).__name__}: {fault}"
    words = " ".join(words.split())[:300]
    return f"{path}: not graded, by the grader's own fault ({words}). Run autograde grade again."
