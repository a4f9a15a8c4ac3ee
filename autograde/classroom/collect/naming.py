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

The end of a name is the student's to choose, so a name is read from its beginning, and which
platform an archive is from is decided once, from all of its names. Moodle leaves no underscore in
a student's name. Canvas does, where the student may choose that name, so each number that could be
the user's is kept: where two of them are students', nobody is guessed, and where one is, the name
in front of it must be that student's as well.

Source: Canvas, lib/content_zipper.rb; Moodle, mod/assign/classes/downloader.php; nbgrader 0.9.6,
exchange/default/submit.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from autograde.classroom.collect.entries import Entry, RefusedError
from autograde.classroom.collect.owners import not_theirs
from autograde.classroom.names import shown

CANVAS = re.compile(r"(?P<name>.*?)(?:_late)?_(?P<number>[0-9]+)_[0-9]+_(?P<file>.+)", re.I | re.S)
CANVAS_ANONYMOUS = re.compile(
    r"(?P<name>(?:late_)?anon)(?:_late)?_(?P<number>[a-z0-9]{5})_[0-9]+_(?P<file>.+)", re.I | re.S
)
CANVAS_LATE = re.compile(r"(?:_late_[0-9]+|\Alate_anon_[a-z0-9]+|\Aanon_late_[a-z0-9]+)_", re.I)
CANVAS_NUMBER = re.compile(r"(?<=_)[0-9]+(?=_[0-9]+_.)", re.S)
MOODLE = re.compile(
    r"(?P<name>[^_]+)_(?P<number>[0-9]+)_assignsubmission_(?P<kind>[a-z]+)(?:_(?P<file>.*))?", re.S
)
EXCHANGE = re.compile(r"(?P<name>.+)\+(?P<assignment>[^+]+)\+(?P<time>[0-9]{4}-[^+]+)(?:\+[^+]*)?")
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
    numbers: frozenset[str] = frozenset()
    """Students' numbers that its names may mean; more than one where they do not tell whose."""
    contested: bool = False
    """True if its names hold further numbers that may be the user's, whoever that is."""
    late: bool = False
    """True if the platform marked it as late."""
    time: str = ""
    """When it was handed in, if the archive's names tell."""
    assignment: str = ""
    """Which it is for, if they tell that."""
    files: list[Entry] = field(default_factory=list)

    @property
    def label(self) -> str:
        """What to call it in a message."""
        return f"{self.name} ({self.number})" if self.number else self.name


def sort_by_student(
    entries: Iterable[Entry],
    assignment: str,
    is_student: Callable[[str], bool],
    platform: Platform | None = None,
    ids: Container[str] = (),
) -> tuple[list[Handed], list[Entry]]:
    """Sort files by student, and list those that belong to nobody.

    Args:
        entries: Everything in the archive.
        assignment: Its name; what the exchange holds of others is passed over.
        is_student: Whether a name or a number is a student's: a folder around all of them is not.
        platform: Where the archive is from; None decides by its names.
        ids: The students' ids, who may be users of the machine that the exchange lies on.

    Raises:
        RefusedError: Its names do not tell.
    """
    entries = [entry for entry in entries if not is_junk(entry)]
    outermost = None
    for _ in range(MAX_WRAPPED):
        wanted = platform or _platform(entries)
        found, left = _sorted(entries, assignment, wanted, is_student, ids)
        fits = wanted != "folder" and any(READERS[wanted](entry) for entry in entries)
        if fits or any(one.platform == "folder" and is_student(one.name) for one in found):
            return found, left
        outermost = outermost or (found, left)
        entries = _unwrapped(entries)
    return outermost


MAX_WRAPPED = 4
"""Folders around everything, e.g. exchange/COURSE/inbound, that are looked through."""


def is_junk(entry: Entry) -> bool:
    """Whether a file was left by an operating system, not handed in."""
    return any(part != ".." and JUNK.fullmatch(part) for part in entry.parts)


def _platform(entries: list[Entry]) -> Platform:
    """The one platform whose form all names have; what would be nobody's anyway has no say.

    Raises:
        RefusedError: Only some of the names have it, or all have that of two.
    """
    plain = [one for one in entries if not one.refused and _of_folder(one)]
    named = {
        platform: [one for one in entries if read(one)]
        for platform, read in READERS.items()
        if platform != "folder"
    }
    others = {
        platform: [one for one in plain if not READERS[platform](one)]
        for platform, fit in named.items()
        if fit
    }
    fitting = [platform for platform, rest in others.items() if not rest]
    if len(fitting) == 1 or not others:
        return fitting[0] if fitting else "folder"
    if fitting:
        named_both = shown(named[fitting[0]][0].parts[0])
        why = f"every name could be one from {' or '.join(fitting)}, e.g. {named_both}"
    else:
        most = max(others, key=lambda platform: len(named[platform]))
        why = (
            f"some names are as {most} writes them, e.g. {shown(named[most][0].parts[0])}, and "
            f"others are not, e.g. {shown(others[most][0].parts[0])}"
        )
    raise RefusedError(
        f"{why}. Where is the archive from? Say so with --from canvas, moodle, exchange or folder; "
        "files with other names are then left out, one line each."
    )


def _sorted(
    entries: list[Entry],
    assignment: str,
    platform: Platform,
    is_student: Callable[[str], bool],
    ids: Container[str],
) -> tuple[list[Handed], list[Entry]]:
    found: dict[tuple[str, ...], Handed] = {}
    left = []
    for entry in entries:
        one = READERS[platform](entry)
        if one is None or (entry.refused and platform == "folder"):
            left.append(entry)
            continue
        if (
            platform == "exchange"
            and EXCHANGE.fullmatch(entry.parts[0])["assignment"] != assignment
        ):
            continue
        if platform == "Canvas":
            one.contested = len(_numbers_before(entry.parts[0], assignment)) > 1
        one.numbers = frozenset(filter(is_student, one.numbers))
        doubtful = sorted(one.numbers)[1:]  # kept apart from what is certainly a student's
        known = found.setdefault((one.name, one.number, one.time, *doubtful), one)
        if known is not one:
            known.files += one.files
            known.late |= one.late
            known.contested |= one.contested
    if platform == "exchange":
        for one, why in list(not_theirs(found.values(), ids)):
            del found[one.name, one.number, one.time]
            named = f"{one.name}+{one.assignment}+{one.time}"
            left.append(replace(one.files[0].below(named), refused=why))
    return _latest(found.values()), left


def _numbers_before(name: str, assignment: str) -> list[str]:
    """Numbers that may be the user's, those in the assignment's own name left out."""
    own = re.search(rf"_{re.escape(assignment)}(-[0-9]+)?\.\w+\Z", name, re.I)
    return CANVAS_NUMBER.findall(f"{name[: own.start()]}_x" if own else name)


def _of_moodle(entry: Entry) -> Handed | None:
    first, *rest = entry.parts
    if not (match := MOODLE.fullmatch(first)):
        return None
    parts = [part for part in (match["file"], *rest) if part]
    inner = [entry.below(*parts)] if parts and match["kind"] == "file" else []
    return Handed(platform="Moodle", name=match["name"], number=match["number"], files=inner)


def _of_exchange(entry: Entry) -> Handed | None:
    first, *rest = entry.parts
    if not rest or not (match := EXCHANGE.fullmatch(first)):
        return None
    return Handed(
        platform="exchange",
        name=match["name"],
        time=match["time"],
        assignment=match["assignment"],
        files=[entry.below(*rest)],
    )


def _of_canvas(entry: Entry) -> Handed | None:
    first, *rest = entry.parts
    match = CANVAS_ANONYMOUS.fullmatch(first)
    name = "anon" if match else ""
    if not (match := match or CANVAS.fullmatch(first)):
        return None
    return Handed(
        platform="Canvas",
        name=name or match["name"],
        number=match["number"],
        numbers=frozenset(CANVAS_NUMBER.findall(first)),
        late=CANVAS_LATE.search(first) is not None,
        files=[entry.below(match["file"], *rest)],
    )


def _of_folder(entry: Entry) -> Handed | None:
    first, *rest = entry.parts
    if rest:
        return Handed(platform="folder", name=first, files=[entry.below(*rest)])
    if entry.suffix in (".ipynb", ".zip"):
        return Handed(platform="folder", name=first.rpartition(".")[0], files=[entry])
    return None


READERS: dict[Platform, Callable[[Entry], Handed | None]] = {
    "Moodle": _of_moodle,
    "exchange": _of_exchange,
    "Canvas": _of_canvas,
    "folder": _of_folder,
}
"""Whose an entry is, by platform; None where its name is not as that platform writes it."""


def _latest(found: Iterable[Handed]) -> list[Handed]:
    """Of several attempts in the exchange, the last. (Times of one form sort as texts.)"""
    latest: dict[tuple[str, ...], Handed] = {}
    for one in found:
        key = one.name, one.number, *sorted(one.numbers)[1:]
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
