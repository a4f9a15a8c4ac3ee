"""Which student in the gradebook a platform's name or number stands for, and how we know.

A number that both sides have decides; a name decides only if exactly one student has it. There is
no guessing: a mark would go to the wrong person.
"""

from __future__ import annotations

import csv
import io
import unicodedata
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from autograde.class_dir import did_you_mean, few
from autograde.classroom.collect.naming import Handed, Platform
from autograde.classroom.names import shown, why_no_id

MAX_LIST = 20 * 2**20
"""Bytes of a platform's list of students."""


class NotMatchedError(Exception):
    """Its student is not known; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Person:
    """A student in the gradebook."""

    id: str
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    number: str = ""
    """nbgrader's lms_user_id: the platform's number, or the school's."""

    @property
    def spellings(self) -> set[str]:
        """The name as platforms write it, each as a key."""
        names = (self.first_name + self.last_name, self.last_name + self.first_name)
        return {key(name) for name in names if key(name)}


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A line of a platform's own list of students."""

    platform: Platform
    number: str
    """What the archive calls the student."""
    names: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    """Login, e-mail address, number of the school."""
    time: str = ""
    """When it was handed in, as the list writes it."""


def key(name: str) -> str:
    """A name without case, accents, blanks and punctuation: `Núñez, José` is `nunezjose`.

    A letter without a plain form, e.g. from another script, stays.
    """
    letters = unicodedata.normalize("NFKD", name).casefold()
    return "".join(letter for letter in letters if letter.isalnum())


def read_list(path: Path) -> list[Listed]:
    """Read Canvas's gradebook export or Moodle's grading worksheet, told apart by their columns.

    Raises:
        ValueError: It is neither.
    """
    if path.stat().st_size > MAX_LIST:
        raise ValueError(f"{path} is larger than {MAX_LIST // 2**20} MiB: not a list of students.")
    text = path.read_text("utf-8-sig", errors="replace")
    try:
        rows = list(csv.DictReader(io.StringIO(text)))
    except csv.Error as fault:
        raise ValueError(f"{path} is not a table ({fault}). Save it as CSV.") from None
    lower = [{(k or "").strip().lower(): v for k, v in row.items() if k} for row in rows]
    columns = set(lower[0]) if lower else set()
    if "identifier" in columns:
        return [_of_moodle(row) for row in lower]
    if {"student", "id"} <= columns:
        return [_of_canvas(row) for row in lower if _text(row, "id").isdecimal()]
    raise ValueError(
        f"{path} has neither the columns of Canvas's gradebook export (Student, ID, SIS Login ID) "
        f"nor of Moodle's grading worksheet (Identifier, Full name, Email address). It has: "
        f"{few([shown(name) for name in sorted(columns)], most=8) or 'none'}."
    )


def _of_canvas(row: Mapping[str, str]) -> Listed:
    ids = (_text(row, "sis login id"), _text(row, "sis user id"))
    return Listed(
        platform="Canvas",
        number=_text(row, "id"),
        names=(_text(row, "student"),),
        ids=tuple(filter(None, ids)),
    )


def _of_moodle(row: Mapping[str, str]) -> Listed:
    ids = (_text(row, column) for column in ("username", "id number", "email address"))
    return Listed(
        platform="Moodle",
        number=_text(row, "identifier").rpartition(" ")[2],
        names=(_text(row, "full name"),),
        ids=tuple(filter(None, ids)),
        time=_text(row, "last modified (submission)").strip("-"),
    )


def _text(row: Mapping[str, str], column: str) -> str:
    return (row.get(column) or "").strip()


def read_time(text: str) -> datetime | None:
    """Read a time as a platform writes it for people; None if it cannot be read.

    Without a zone it is in this machine's, because the list was made for its user. In 1/3/2026 the
    day comes first, in 2026-03-01 the year. A zone whose name says nothing here is not guessed.
    """
    from dateutil import parser

    year_first = text[:4].isdecimal()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", parser.UnknownTimezoneWarning)
            return parser.parse(text, dayfirst=not year_first).astimezone(UTC)
    except (ValueError, OverflowError, parser.UnknownTimezoneWarning):
        return None


class Roster:
    """The students, and a platform's list that says who is who."""

    def __init__(
        self, people: Iterable[Person], listed: Iterable[Listed] = (), *, take_new: bool = False
    ) -> None:
        self.people = {person.id: person for person in people}
        self.listed = {row.number: row for row in listed if row.number}
        self.take_new = take_new
        self._by: dict[str, set[str]] = {}
        for person in self.people.values():
            for spelled in (person.id, person.email, person.number):
                if spelled:
                    self._by.setdefault(f"={_same(spelled)}", set()).add(person.id)
            for spelled in {*person.spellings, key(person.id)} - {""}:
                self._by.setdefault(spelled, set()).add(person.id)

    def knows(self, name: str) -> bool:
        """Whether a name is a student's: id, address, number, or first and last name."""
        return name in self.listed or f"={_same(name)}" in self._by or key(name) in self._by

    def match(self, handed: Handed) -> tuple[str, str]:
        """Return a student's id, and how it was found.

        Raises:
            NotMatchedError: It matches nobody, or more than one.
        """
        if handed.platform == "exchange":
            return self._checked(unicodedata.normalize("NFC", handed.name)), "id in the exchange"
        ways = [(f"={_same(handed.name)}", "id")] if handed.platform == "folder" else []
        if handed.platform == "Canvas" and handed.number.isdecimal():
            ways.append((f"={handed.number}", "Canvas's number"))
        if row := self.listed.get(handed.number):
            ways += [(f"={_same(id)}", "the list") for id in row.ids]
            ways += [(key(name), "the list's name") for name in row.names]
        if handed.name != "anon" and handed.platform != "folder":
            ways.append((key(handed.name), "name"))
        if len(handed.numbers) > 1:
            raise NotMatchedError(
                f"has a name in which {few(sorted(handed.numbers))} could each be the student's "
                "number. Look it up in Canvas, and rename the files in the archive"
            )
        for spelled, how in ways:
            who = self._by.get(spelled, set()) - self._others(handed)
            if len(who) == 1:
                (student,) = who
                if handed.contested and not self._is_called(student, handed):
                    raise NotMatchedError(
                        f"has a name that holds several numbers, and what stands before "
                        f"{handed.number} is not the name of {student}, whose number that is. "
                        "Look it up in Canvas, and rename the files in the archive"
                    )
                return student, how
            if who:
                raise NotMatchedError(f"{few(sorted(who))} all match it")
        return self._new(handed)

    def _is_called(self, student: str, handed: Handed) -> bool:
        """Whether what was handed in has a student's name in front."""
        row = self.listed.get(handed.number)
        names = {key(name) for name in row.names} if row else set()
        return key(handed.name) in names | self.people[student].spellings | {key(student)}

    def _others(self, handed: Handed) -> set[str]:
        """Whom Canvas's number rules out: who has another number there."""
        if handed.platform != "Canvas" or not handed.number.isdecimal():
            return set()
        numbers = {id: person.number for id, person in self.people.items()}
        return {id for id, n in numbers.items() if n.isdecimal() and n != handed.number}

    def _new(self, handed: Handed) -> tuple[str, str]:
        if not self.take_new:
            raise NotMatchedError(f"matches no student{did_you_mean(handed.name, self.people)}")
        if handed.name == "anon" or not key(handed.name):
            raise NotMatchedError("has no name that could be an id")
        return self._checked(key(handed.name)), "new: the archive's name"

    def _checked(self, id: str) -> str:
        if why := why_no_id(id):
            raise NotMatchedError(f"cannot be an id: it {why}")
        return id


def _same(spelled: str) -> str:
    return unicodedata.normalize("NFC", spelled).casefold().strip()
