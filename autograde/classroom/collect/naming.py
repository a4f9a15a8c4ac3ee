"""Whose a file is, from the names that Canvas, Moodle or nbgrader's exchange give to files.

    Canvas    doejane_LATE_4711_90210_homework-1.ipynb
              sortable name without blanks and signs; the mark where it was late; the user's number;
              the file's number; the file's own name, with -1, -2 ... on further attempts
    Moodle    Jane Doe_4711_assignsubmission_file/homework.ipynb
              full name; a number that is good for this assignment alone; then the file, with an
              underscore in the place of the slash where folders were switched off
    nbgrader  jane+homework+2026-03-01 12:00:00 UTC+random/homework.ipynb, in COURSE/inbound
    a folder  jane/homework.ipynb, jane/homework/homework.ipynb or jane.ipynb

Neither Canvas nor Moodle writes into its archive when something was handed in: the times of the
files there are the download's.

Source: Canvas, lib/content_zipper.rb; Moodle, mod/assign/classes/downloader.php; nbgrader 0.9.6,
exchange/default/submit.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from autograde.classroom.collect.entries import Entry

CANVAS = re.compile(
    r"(?P<name>.+?)(?P<late>_late)?_(?P<number>\d+)_\d+_(?P<file>.+)", re.IGNORECASE | re.DOTALL
)
CANVAS_ANONYMOUS = re.compile(
    r"anon(?P<late>_late)?_(?P<number>[a-z0-9]{5})_\d+_(?P<file>.+)", re.IGNORECASE
)
MOODLE = re.compile(
    r"(?P<name>.+)_(?P<number>\d+)_assignsubmission_(?P<kind>[a-z]+)(?:_(?P<file>.*))?"
)
EXCHANGE = re.compile(r"(?P<name>.+)\+(?P<assignment>[^+]+)\+(?P<time>\d{4}-[^+]+)(?:\+[^+]*)?")
JUNK = re.compile(r"__MACOSX|__pycache__|Thumbs\.db|desktop\.ini|\..*", re.IGNORECASE)
"""What systems leave in folders. (`.ipynb_checkpoints` among it.)"""

Platform = Literal["Canvas", "Moodle", "exchange", "folder"]


@dataclass(kw_only=True)
class Handed:
    """What one student handed in, as named in the archive."""

    platform: Platform
    name: str
    """The student's, in the platform's spelling."""
    number: str = ""
    """The platform's own, if it gives one."""
    late: bool = False
    """True if the platform marked it as late."""
    time: str = ""
    """When it was handed in, if the archive's names tell."""
    files: list[Entry] = field(default_factory=list)

    @property
    def label(self) -> str:
        """What to call it in a message."""
        return f"{self.name} ({self.number})" if self.number else self.name


def sort_by_student(
    entries: Iterable[Entry], assignment: str, is_student: Callable[[str], bool]
) -> tuple[list[Handed], list[Entry]]:
    """Sort files by student, and list those that belong to nobody.

    Args:
        entries: Everything in the archive.
        assignment: Its name; what the exchange holds of others is passed over.
        is_student: Whether a folder's name is a student's: a folder around all of them is not.
    """
    entries = [entry for entry in entries if not is_junk(entry)]
    outermost = None
    for _ in range(MAX_WRAPPED):
        found, left = _sorted(entries, assignment)
        if any(one.platform != "folder" or is_student(one.name) for one in found):
            return found, left
        outermost = outermost or (found, left)
        entries = _unwrapped(entries)
    return outermost


MAX_WRAPPED = 4
"""Folders around everything, e.g. exchange/COURSE/inbound, that are looked through."""


def is_junk(entry: Entry) -> bool:
    """Whether a file was left by an operating system, not handed in."""
    return any(part != ".." and JUNK.fullmatch(part) for part in entry.parts)


def _sorted(entries: list[Entry], assignment: str) -> tuple[list[Handed], list[Entry]]:
    found: dict[tuple[str, ...], Handed] = {}
    left = []
    for entry in entries:
        exchanged = EXCHANGE.fullmatch(entry.parts[0])
        if exchanged and exchanged["assignment"] != assignment:
            continue
        one = _read(entry)
        if one is None or (entry.refused and one.platform == "folder"):
            left.append(entry)
            continue
        known = found.setdefault((one.platform, one.name, one.number, one.time), one)
        if known is not one:
            known.files += one.files
            known.late |= one.late
    return _latest(found.values()), left


def _read(entry: Entry) -> Handed | None:
    """Whose an entry is; None where its name does not say."""
    first, *rest = entry.parts
    if match := MOODLE.fullmatch(first):
        parts = [part for part in (match["file"], *rest) if part]
        inner = [entry.below(*parts)] if parts and match["kind"] == "file" else []
        return Handed(platform="Moodle", name=match["name"], number=match["number"], files=inner)
    if (match := EXCHANGE.fullmatch(first)) and rest:
        files = [entry.below(*rest)]
        return Handed(platform="exchange", name=match["name"], time=match["time"], files=files)
    if match := CANVAS_ANONYMOUS.fullmatch(first) or CANVAS.fullmatch(first):
        return Handed(
            platform="Canvas",
            name=match.groupdict().get("name", "anon"),
            number=match["number"],
            late=bool(match["late"]),
            files=[entry.below(match["file"], *rest)],
        )
    if rest:
        return Handed(platform="folder", name=first, files=[entry.below(*rest)])
    if entry.suffix in (".ipynb", ".zip"):
        return Handed(platform="folder", name=first.rpartition(".")[0], files=[entry])
    return None


def _latest(found: Iterable[Handed]) -> list[Handed]:
    """Of several attempts in the exchange, the last. (Times of one form sort as texts.)"""
    latest: dict[tuple[str, ...], Handed] = {}
    for one in found:
        key = one.platform, one.name, one.number
        if key not in latest or latest[key].time < one.time:
            latest[key] = one
    return list(latest.values())


def _unwrapped(entries: list[Entry]) -> list[Entry]:
    """The same entries without the one folder around all of them; none if there is none."""
    tops = {entry.parts[0] for entry in entries if entry.parts[1:]}
    inbound = [entry for entry in entries if entry.parts[0] == "inbound" and entry.parts[1:]]
    if inbound:  # next to outbound and feedback, in a course's exchange
        return [entry.below(*entry.parts[1:]) for entry in inbound]
    if len(tops) != 1 or any(not entry.parts[1:] for entry in entries):
        return []
    return [entry.below(*entry.parts[1:]) for entry in entries]
