"""What a student's notebooks remember: one file next to them, one JSON line per event, never sent.

    {"v": 1, "at": "2026-03-01T12:00:00+00:00", "do": "guess", "id": "03a.first-loss", "value": 2.3}

Events are only ever appended, each by one write: two kernels may share the file, and a full disk
costs one line. A line that cannot be read, or that another version of the course wrote, is passed
over and kept. Where the disk refuses, events live as long as the kernel.

Grading neither reads nor writes it: stock nbgrader sets NBGRADER_EXECUTION, as does our sandbox.
Outside a notebook (a test, a script) nothing is written either.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autograde.verdict import Verdict

VERSION = 1
FILE = "course-progress.jsonl"
Event = dict[str, Any]

VALUE = (int, float, str, list)
SHAPES: dict[str, dict[str, type | tuple[type, ...]]] = {
    "student": {"name": str},
    "guess": {"id": str, "value": VALUE},
    "reveal": {"id": str, "value": VALUE},
    "look": {"id": str},
    "hint": {"id": str, "number": int},
    "check": {"id": str, "parts": dict, "shows": list, "points": (int, float)},
}
"""The fields of each kind of event."""


class Record:
    """The events of one folder's notebooks.

    Args:
        path: The file; None remembers nothing beyond this kernel.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.unwritten: list[Event] = []
        """Events that no disk holds."""
        self.trouble = ""
        """Why the file could not be written or wholly read, in one sentence; empty if it could."""

    def add(self, do: str, **fields: Any) -> None:
        """Remember an event. Never raises for what a disk does."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        event = {"v": VERSION, "at": now, "do": do, **fields}
        if self.path is not None:
            try:
                _append(self.path, json.dumps(event, allow_nan=False))
                return
            except OSError as fault:
                self.trouble = (
                    f"{self.path.name} cannot be written ({fault.strerror or fault}): what you do "
                    "now is remembered only until the kernel stops."
                )
        self.unwritten.append(event)

    def events(self, do: str = "") -> list[Event]:
        """What happened, oldest first; of one kind only, if named."""
        known = [event for event in self._read() if _is_event(event)]
        if self.unwritten:
            known = sorted([*known, *self.unwritten], key=lambda event: str(event.get("at")))
        return [event for event in known if not do or event["do"] == do]

    def _read(self) -> list[Any]:
        if self.path is None:
            return []
        try:
            lines = self.path.read_text("utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []
        except OSError as fault:
            self.trouble = f"{self.path.name} cannot be read ({fault.strerror or fault})."
            return []
        found = [_parsed(line) for line in lines if line.strip()]
        newer = [e for e in found if isinstance(e, dict) and e.get("v", VERSION) != VERSION]
        broken = sum(not _is_event(event) for event in found) - len(newer)
        if newer:
            self.trouble = (
                f"{len(newer)} entries of {self.path.name} come from another version of the course "
                f"(version {newer[-1]['v']!r}; this one reads {VERSION}). They are kept but not "
                "counted: install that version to see them."
            )
        elif broken:
            self.trouble = f"{broken} entries of {self.path.name} cannot be read; the others count."
        return found


def _append(path: Path, line: str) -> None:
    """One write at the end, on a line of its own even if the last one was cut short."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
    file = os.open(path, flags, 0o600)
    try:
        data = f"{line}\n".encode()
        if os.fstat(file).st_size:
            os.lseek(file, -1, os.SEEK_END)
            data = data if os.read(file, 1) == b"\n" else b"\n" + data
        if os.write(file, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(file)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_event(event: Any) -> bool:
    """Whether it is one of this version's, with all its fields."""
    if not isinstance(event, dict) or event.get("v") != VERSION:
        return False
    shape = SHAPES.get(event.get("do", "")) if isinstance(event.get("do"), str) else None
    return shape is not None and all(
        isinstance(event.get(name), kind) for name, kind in shape.items()
    )


_here: Record | None = None


def here() -> Record:
    """The record of the folder in which this kernel started; under grading one that is empty."""
    global _here
    if is_graded():
        return Record(None)
    if _here is None:
        _here = Record(Path.cwd() / FILE if in_notebook() else None)
    return _here


def keep_verdict(verdict: Verdict) -> None:
    """Remember what a check said, unless nothing was answered yet."""
    if verdict.status != "blank":
        here().add(
            "check",
            id=verdict.exercise_id,
            parts={result.part.key: result.passed for result in verdict.parts},
            shows=[wrong.name for wrong in verdict.misconceptions],
            points=verdict.points,
        )


def is_graded() -> bool:
    """Whether a grader runs this notebook: stock nbgrader or ours."""
    return "NBGRADER_EXECUTION" in os.environ


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this process."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None
