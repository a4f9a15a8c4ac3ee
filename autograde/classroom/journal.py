"""The journal of a class run: one JSON object per line, only ever appended to.

A line counts once it is whole and on the disk, so a run that was killed anywhere knows what it had
done. The last line may be torn; it is passed over, and so is its work, which is then done again.

    {"event": "graded", "student": "ada", "submission": HASH, "version": HASH, "seed": ..., ...}
    {"event": "written", "student": "ada", "submission": HASH, "version": HASH, ...}

`graded`: the verdict is known and kept (or, with "graded": false, the reason why there is none).
`written`: it is in nbgrader's gradebook. `unwritten`: it is not, and the reason; it will be tried
again. Lines said twice say nothing new.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autograde.classroom.files import lock, naming


def journal_path(folder: Path, assignment: str) -> Path:
    """Path of an assignment's journal in a class directory."""
    return folder / "journal" / f"{assignment}.jsonl"


class JournalBusyError(ValueError):
    """Another run holds the journal; the message says what to do."""


class Journal:
    """A journal open for appending; one run at a time, until closed or the process is gone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.descriptor = lock(path, wait=False)
        except BlockingIOError:
            raise JournalBusyError(
                f"{path} is in use by another autograde grade. Wait until that ends, or stop it; "
                "then run this again."
            ) from None
        if _is_torn(self.descriptor):
            with naming(path):
                os.write(self.descriptor, b"\n")

    def append(self, record: dict[str, Any], *, durable: bool = True) -> None:
        """Add a line.

        Args:
            record: Plain data.
            durable: Wait until it is on the disk. Without, it outlives this process, not the
                machine: enough for what may be done twice.

        Raises:
            OSError: The disk is full, say; a line half written is passed over by who reads it.
        """
        left = json.dumps(record, ensure_ascii=False).encode() + b"\n"
        with naming(self.path):
            while left:  # a disk that is nearly full takes a part, then refuses the rest
                left = left[os.write(self.descriptor, left) :]
            if durable:
                os.fsync(self.descriptor)

    def close(self) -> None:
        """Let go of the journal."""
        os.close(self.descriptor)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def _is_torn(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole line of a journal; none where there is no journal."""
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:  # torn by a kill
                continue
            if isinstance(record, dict) and {"event", "student", "submission"} <= record.keys():
                yield record


@dataclass
class Known:
    """What a journal says about one student."""

    last: dict[str, Any] = field(default_factory=dict)
    """The last `graded` line."""
    written: bool = False
    """Whether that is in the gradebook."""
    seeds: dict[str, int] = field(default_factory=dict)
    """Of each submission's cases, so that a regrade repeats exactly."""

    @property
    def attempts(self) -> int:
        """How many different submissions were graded."""
        return len(self.seeds)


def read_known(path: Path) -> dict[str, Known]:
    """What a journal knows, by student."""
    known: dict[str, Known] = {}
    for record in read_lines(path):
        take(known, record)
    return known


def take(known: dict[str, Known], record: dict[str, Any]) -> None:
    """Account for one more line."""
    about = known.setdefault(record["student"], Known())
    if record["event"] == "graded":
        about.last, about.written = record, False
        if record["submission"]:
            about.seeds[record["submission"]] = record["seed"]
    elif record["event"] == "written":
        about.written = record["submission"] == about.last.get("submission")
