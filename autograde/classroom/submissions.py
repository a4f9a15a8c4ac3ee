"""Find and hash what was handed in, without opening it as a notebook.

Every finding is one line that names the file and what to do. A fault in one submission does not
stop the others.
"""

from __future__ import annotations

import codecs
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from autograde.classroom.names import may_hold, shown, why_no_id

MAX_NOTEBOOK = 50 * 2**20
MAX_FOLDER = 500 * 2**20
SPARSE = 2**24
"""Bytes from which a file's holes are looked for."""
MAX_FILES = 10_000
"""Files and folders of a submission, together."""
MAX_FOLDERS_DEEP = 40
MAX_PLACE = 200
"""Letters of a place in submitted/ that a message shows."""
MAX_TIMESTAMP = 200
"""Bytes of a timestamp.txt."""
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One student's notebook in submitted/."""

    student: str
    path: Path
    sha: str
    """Hash of everything handed in; empty if that cannot be read."""
    fault: str = ""
    """Why it cannot be graded, and what to do; empty if that is not known yet."""


class SubmissionFault(Exception):
    """A submission cannot be graded; the message names the file and what to do."""


def handed_in(folder: Path, assignment: str, students: list[str] | None = None) -> list[str]:
    """The students who handed in an assignment, in order, as their folders are named.

    Args:
        folder: A class directory.
        assignment: Its name.
        students: Only these; None takes everybody who handed in.

    Raises:
        FileNotFoundError: Nobody has, or a named student has handed in nothing.
    """
    submitted = folder / "submitted"
    found = {path.name for path in submitted.glob("*") if may_hold(path, assignment)}
    missing = sorted(set(students or []) - found)
    if missing:
        known = ", ".join(map(shown, sorted(found))) or "none"
        raise FileNotFoundError(
            f"{submitted / missing[0] / assignment} does not exist: '{missing[0]}' has handed in "
            f"nothing for {assignment}. Students who have: {known}."
        )
    if not found:
        raise FileNotFoundError(
            f"{submitted} holds no submission of {assignment}. Copy each student's notebook to "
            f"{submitted}/STUDENT/{assignment}/{assignment}.ipynb."
        )
    return sorted(found if students is None else set(students))


def find_submissions(
    folder: Path, assignment: str, students: list[str] | None = None
) -> list[Submission]:
    """All submissions of an assignment, by student; see `handed_in`."""
    submitted = folder / "submitted"
    private = _Private(folder)
    return [
        look_at(name, submitted / name / assignment / f"{assignment}.ipynb", private)
        for name in handed_in(folder, assignment, students)
    ]


class _Private:
    """The files of a class directory that no submission may share, known by their inodes.

    A hard link is no link to look at: an archive unpacked in submitted/ can hold one to the
    gradebook, which its student's code could then read and show on the feedback page.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def shared(self, file: Path) -> str:
        """Why a submission may not hold a file: it is one of them, or another student's. Empty if
        it may; looked up only where it has two names."""
        about = file.stat()
        if about.st_nlink <= 1:
            return ""
        inode = about.st_dev, about.st_ino
        if inode in self._inodes:
            return (
                f"lies next to {shown(file.name)}, which is a hard link to a file of this class "
                "directory. Remove it, then grade again."
            )
        places = self._handed_in.get(inode, {})
        student = file.relative_to(self.folder / "submitted").parts[0]
        others = sorted(place for whose, place in places.items() if whose != student)
        if not others:
            return ""
        more = f" and {len(others) - 1} more" if others[1:] else ""
        return (
            f"{shown(file.name)} and submitted/{shown(others[0], MAX_PLACE)}{more} are the same "
            "file (a hard link), so it does not show who wrote it. Find out whose it is, give each "
            "student a file of their own, then grade again."
        )

    @cached_property
    def _handed_in(self) -> dict[tuple[int, int], dict[str, str]]:
        """Whose folders hold a file of two names, and where, by inode."""
        found: dict[tuple[int, int], dict[str, str]] = {}
        submitted = self.folder / "submitted"
        for place, _folders, files in os.walk(submitted):
            for name in files:
                about = os.lstat(os.path.join(place, name))
                if about.st_nlink > 1:
                    at = os.path.relpath(os.path.join(place, name), submitted)
                    inode = about.st_dev, about.st_ino
                    found.setdefault(inode, {}).setdefault(at.split(os.sep)[0], at)
        return found

    @cached_property
    def _inodes(self) -> set[tuple[int, int]]:
        found = set()
        for place, folders, files in os.walk(self.folder):
            if Path(place) == self.folder:
                folders[:] = [name for name in folders if name not in ("submitted", "release")]
            for name in files:
                about = os.lstat(os.path.join(place, name))
                found.add((about.st_dev, about.st_ino))
        return found


def look_at(student: str, path: Path, private: _Private | None = None) -> Submission:
    """Check whether a submission can be opened, and hash what was handed in.

    Args:
        student: Whose it is: the name of a folder, which may be anything.
        path: Where the notebook should lie.
        private: What it must not share; None looks at the class directory it lies in.
    """
    named = Path(*(shown(part) for part in path.parts))
    try:
        if why := why_no_id(student):
            raise SubmissionFault(
                f"{path.parents[1].parent}/{shown(student)}: the folder's name {why}, so it cannot "
                "be a student's id. Rename the folder, then grade again."
            )
        return Submission(
            student=student, path=path, sha=_look_at(path, private or _Private(path.parents[3]))
        )
    except OSError as problem:
        what = shown(os.path.basename(os.fsdecode(problem.filename or path)))
        why = f"{named}: cannot be read ({problem.strerror}: {what}). Fix that, then grade again."
    except SubmissionFault as fault:
        why = str(fault)
    return Submission(student=shown(student), path=named, sha="", fault=why)


def _look_at(path: Path, private: _Private) -> str:
    """The hash of everything handed in.

    Raises:
        SubmissionFault, OSError: It cannot be graded.
    """

    def fault(text: str) -> SubmissionFault:
        return SubmissionFault(f"{path}: {text}")

    if path.is_symlink():
        raise fault("is a link, but only a regular file is graded. Ask for the notebook itself.")
    for folder in (path.parent, path.parents[1]):
        if folder.is_symlink():
            raise fault(_beside_a_link(folder.name))
    if path.is_dir():
        raise fault("is a directory, not a notebook. Move the notebook inside it to this name.")
    files = _everything(path.parent, fault) if path.parent.is_dir() else []
    if path not in files:
        others = sorted(file.name for file in files if file.suffix == ".ipynb")
        hint = f"found {shown(others[0])}: rename it" if others else "ask the student to hand it in"
        raise fault(f"does not exist ({hint}).")
    if path.stat().st_size == 0:
        raise fault("is empty. Ask the student to save the notebook and hand it in again.")
    if sparse := [file for file in files if _is_sparse(file)]:
        raise fault(
            f"is, or lies next to, {shown(sparse[0].name)}, which claims "
            f"{sparse[0].stat().st_size:,} bytes but holds almost none (a sparse file). Remove it, "
            "then grade again."
        )
    if path.stat().st_size > MAX_NOTEBOOK:
        limit = MAX_NOTEBOOK // 2**20
        raise fault(f"is larger than {limit} MiB. Ask for it with outputs cleared.")
    size = sum(file.stat().st_size for file in files)
    if size > MAX_FOLDER:
        raise fault(f"comes with {len(files)} files of {size // 2**20} MiB. Ask what they are for.")
    if shares := next(filter(None, map(private.shared, files)), ""):
        raise fault(shares)
    return _hash(path.parent, files)


def _is_sparse(file: Path) -> bool:
    """Whether a large file takes almost no room: who reads it fills memory with nothing."""
    about = file.stat()
    blocks = getattr(about, "st_blocks", None)
    return blocks is not None and about.st_size > SPARSE and blocks * 512 < about.st_size // 64


def _beside_a_link(name: str) -> str:
    return (
        f"lies next to a link ({shown(name)}), and nbgrader would copy whatever it points to, even "
        "the gradebook. Remove the link, then grade again."
    )


def _everything(folder: Path, fault: Callable[[str], SubmissionFault]) -> list[Path]:
    """Ordinary files below a folder, in order; what nbgrader could not copy, or should not, stops.

    Raises:
        SubmissionFault: Something is there that is neither file nor folder, or too much of either.
        OSError: A folder cannot be read.
    """
    files, waiting, count = [], [(folder, 0)], 0
    while waiting:
        place, depth = waiting.pop()
        if depth > MAX_FOLDERS_DEEP:
            raise fault(f"lies next to folders {depth} deep. Remove them, then grade again.")
        with os.scandir(place) as entries:
            for entry in entries:
                count += 1
                if count > MAX_FILES:
                    raise fault(f"comes with more than {MAX_FILES:,} files. Ask what they are for.")
                _check_entry(entry, fault)
                if entry.is_dir():
                    waiting.append((Path(entry), depth + 1))
                else:
                    files.append(Path(entry))
    return sorted(files)


def _check_entry(entry: os.DirEntry[str], fault: Callable[[str], SubmissionFault]) -> None:
    if entry.is_symlink():
        raise fault(_beside_a_link(entry.name))
    if not entry.is_file() and not entry.is_dir():
        raise fault(
            f"is, or lies next to, something that is not a regular file ({shown(entry.name)} is a "
            "pipe, a socket or a device). Remove it, then grade again."
        )
    if entry.name == "timestamp.txt" and (entry.is_dir() or entry.stat().st_size > MAX_TIMESTAMP):
        raise fault(
            "lies next to a timestamp.txt that is not a line of text. Write it as 2026-03-01 "
            "12:00:00 UTC, or remove it; then grade again."
        )


def _hash(folder: Path, files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as opened:
            inner = hashlib.file_digest(opened, "sha256").digest()
        digest.update(os.fsencode(path.relative_to(folder)) + b"\0" + inner)
    return digest.hexdigest()


def read_text(path: Path) -> str:
    """Read a notebook's text; a byte order mark, as some editors on Windows write, is left out.

    Raises:
        SubmissionFault: It has disappeared since it was found, or is not UTF-8.
    """
    try:
        raw = path.read_bytes()
    except OSError:
        raise SubmissionFault(f"{path}: no longer exists. Run autograde grade again.") from None
    if raw.startswith(UTF_16):
        raise SubmissionFault(
            f"{path}: is UTF-16 text, as written by editors on Windows. Ask the student to save it "
            "with Jupyter, or save it as UTF-8 yourself; then grade again."
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise SubmissionFault(
            f"{path}: is not UTF-8 text (byte 0x{raw[problem.start]:02x} at {problem.start:,}). "
            "Ask the student to save it with Jupyter."
        ) from None
