"""The parts of the book, and which ids belong to each."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from course.ledger import homes, rows
from course.released import released

TOML = Path(__file__).with_name("parts.toml")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part: what the lecture says there, and the notebook that works it through."""

    key: str
    """The first letters of the notebook's name, e.g. `03c`."""
    title: str
    says: str
    places: tuple[str, ...]
    """Prefixes of the places in the sources that belong here."""
    notebook: str
    """Its name; empty if it does not exist yet."""

    @property
    def number(self) -> str:
        """The number as students say it: `3c`, and `5` for `05`."""
        return self.key.lstrip("0")

    def claims(self, place: tuple[str, str]) -> bool:
        """Whether this place of a source belongs to the part."""
        return f"{place[0]} {place[1]};".startswith(self.places)


@cache
def parts(path: Path = TOML) -> tuple[Part, ...]:
    """All parts in the order of the course."""
    names = {name.partition("-")[0]: name for name in released()}
    return tuple(
        Part(key=key, title=part["title"], says=part["says"].strip(),
             places=tuple(part["places"]), notebook=names.get(key, ""))
        for key, part in tomllib.loads(path.read_text("utf-8"))["part"].items()
    )  # fmt: skip


@cache
def parts_of(id_: str) -> tuple[Part, ...]:
    """The parts whose notebook or exercises mention an id; otherwise those that claim its place."""
    keys = {
        home.name.partition("-")[0].partition(".")[0]
        for home in homes()[id_]
        if home.kind in ("notebook", "exercise")
    }
    named = tuple(part for part in parts() if part.key in keys)
    places = rows()[id_].places
    return named or tuple(part for part in parts() if any(map(part.claims, places)))


def ids_of(part: Part) -> list[str]:
    """The ids of a part, in the order of the ledger."""
    return [id_ for id_ in rows() if part in parts_of(id_)]
