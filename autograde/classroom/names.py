"""Names chosen by others, of folders, files and cells, made safe to read on one line.

On a disk a name is any bytes. Shown as it is, one may hide, turn or colour the text around it, and
half a character can be written to no page. So people are shown the printable part, cut; and an id
that nbgrader would take for several students is none.
"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

MAX_SHOWN = 80
"""Letters of a name that a message shows."""
MAX_ID, MAX_ID_BYTES = 128, 200
"""Letters that nbgrader's column has room for, and bytes that a file named after a student has."""
PATTERN = "*?[]"
"""nbgrader takes these for a pattern, and so one student's folder for another's."""
MARKUP = '<>&"`\\'
"""nbgrader's pages write an id as it is: with these it would be read as a part of the page."""


def shown(name: str, most: int = MAX_SHOWN) -> str:
    """A name with each character that moves or colours text as its code, e.g. `caf\\xe9`.

    Cut so that a file can be named after it, whatever it is made of.
    """
    letters = [letter if letter.isprintable() else _code(letter) for letter in name[:most]]
    ends = accumulate(len(letter.encode()) for letter in letters)
    text = "".join(letter for letter, end in zip(letters, ends, strict=True) if end <= MAX_ID_BYTES)
    return text if text == "".join(letters) and len(name) <= most else f"{text}…"


def _code(letter: str) -> str:
    if "\udc80" <= letter <= "\udcff":  # a byte of a file's name that is no text
        return f"\\x{ord(letter) - 0xDC00:02x}"
    return letter.encode("unicode_escape", "backslashreplace").decode("ascii")


def why_no_id(student: str) -> str:
    """Why a folder's name cannot be a student's id; empty if it can."""
    odd = [letter for letter in student if not letter.isprintable()]
    if odd:
        return f"contains {_code(odd[0])}, which cannot be shown"
    if pattern := [letter for letter in student if letter in PATTERN]:
        return f"contains {pattern[0]}, and nbgrader would match other students' folders with it"
    if markup := [letter for letter in student if letter in MARKUP]:
        return f"contains {markup[0]}, which nbgrader's pages would read as markup"
    if student != student.strip():
        return "begins or ends with a blank"
    if student.startswith("."):
        return "begins with a dot, and nbgrader skips hidden folders"
    if len(student) > MAX_ID:
        return f"is {len(student)} characters long, but a gradebook has room for only {MAX_ID}"
    if (size := len(student.encode())) > MAX_ID_BYTES:
        return f"takes {size} bytes, but files named after a student have room for {MAX_ID_BYTES}"
    return ""


def may_hold(folder: Path, assignment: str) -> bool:
    """Whether a student's folder holds the assignment; one that cannot be looked into may."""
    try:
        return (folder / assignment).exists()
    except OSError:
        return True
