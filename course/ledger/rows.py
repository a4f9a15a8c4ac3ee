"""The rows of the ledger: what each id stands for, and where the sources have it.

`rows.txt` holds them, one line per id, to be edited by hand:

    N20 | lecture "Worked numeric · gradient clipping" | A gradient scaled back to norm 1

Everything else that names an id (a worked number, a claim, an exercise, a docstring) takes its
place in the sources from here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from course.catalogue import Entry, UnknownIdError, loose_key

ROWS = Path(__file__).with_name("rows.txt")
SERIES = {
    "N": "worked numbers",
    "S": "simulations and figures",
    "X": "exercises",
    "C": "code patterns",
    "F": "claims",
    "K": "contradictions",
    "B": "bugs",
    "T": "tables",
}
"""The meaning of each letter."""
TEXTS = {
    "lecture": "Lecture 3",
    "module": "engineering module",
    "chapter": "training-loop chapter",
    "essay": "annotated-loop essay",
}
"""The four sources: the word in `rows.txt` and the name that is shown."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One id of the ledger."""

    id: str
    """Letter of the series and number, e.g. `N20`."""
    line: str
    """What it is, in one line, in our own words."""
    places: tuple[tuple[str, str], ...]
    """Each place as (source, where in it), e.g. `("chapter", "c3")`."""

    @property
    def source(self) -> str:
        """The places as shown, e.g. `Training-loop chapter, c3; engineering module, §2`."""
        shown = "; ".join(f"{TEXTS[text]}, {where}" for text, where in self.places)
        return shown[0].upper() + shown[1:]


@lru_cache
def rows(path: Path = ROWS) -> Mapping[str, Row]:
    """All rows by id, in the order of the file.

    Raises:
        ValueError: A line of the file is not a row, or an id occurs twice.
    """
    found: dict[str, Row] = {}
    for number, text in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if not text.strip() or text.startswith("#"):
            continue
        try:
            row = _row(text)
        except ValueError as fault:
            raise ValueError(
                f"{path.name}, line {number}: {fault} Expected: id | place | line, e.g. "
                "N20 | chapter c3; module §2 | A gradient scaled back to norm 1."
            ) from fault
        if row.id in found:
            raise ValueError(f"{path.name}, line {number}: {row.id} occurs twice; keep one.")
        found[row.id] = row
    return MappingProxyType(found)


def _row(text: str) -> Row:
    cells = [cell.strip() for cell in text.split(" | ")]
    if len(cells) != 3 or not all(cells):
        raise ValueError(f"{len(cells)} cells.")
    id_, places, line = cells
    if not re.fullmatch(rf"[{''.join(SERIES)}]\d{{2,3}}", id_):
        raise ValueError(f"'{id_}' is not an id.")
    return Row(id=id_, line=line, places=tuple(map(place_of, places.split("; "))))


def place_of(text: str) -> tuple[str, str]:
    """The source and where in it: `chapter c3` is ("chapter", "c3")."""
    source, where = re.match(r"(\w*)[\s,]*(.*)", text).groups()
    if source not in TEXTS or not where:
        raise ValueError(f"'{text}' is not a place: start with {', '.join(TEXTS)}.")
    return source, where


def find_row(wanted: str) -> Row:
    """The row called `wanted`, whatever its case, dashes and zeros (`n-9` is `N09`).

    Raises:
        UnknownIdError: No such id; the message names the nearest ones.
    """
    by_key = {loose_key(id_): row for id_, row in rows().items()}
    if (row := by_key.get(loose_key(wanted))) is not None:
        return row
    near = difflib.get_close_matches(loose_key(wanted), by_key, n=3, cutoff=0.5)
    hint = ", ".join(by_key[key].id for key in near)
    letters = ", ".join(f"{letter} {name}" for letter, name in SERIES.items())
    raise UnknownIdError(
        f"'{wanted}' is not an id of the ledger; "
        + (f"the nearest: {hint}. " if hint else "an id is a letter and a number, e.g. N20. ")
        + f"The series: {letters}."
    )


CROWDED = 7
"""A place shared by more ids than this says too little about which of them belong together."""


def same_place(id_: str) -> list[str]:
    """Other numbers, claims, contradictions and bugs from the same place in the sources."""
    wanted = set(rows()[id_].places)
    found: dict[str, None] = {}
    for place in wanted:
        there = [row.id for row in rows().values() if place in row.places and row.id[0] in "NFKB"]
        if len(there) <= CROWDED:
            found |= dict.fromkeys(there)
    return [other for other in found if other != id_]


def with_sources(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entries of a registry, each with the place given in its row of the ledger.

    Raises:
        ValueError: An id has no row.
    """
    if unknown := [id_ for id_ in entries if id_ not in rows()]:
        raise ValueError(f"{', '.join(unknown)}: not in the ledger. Add a line to {ROWS.name}.")
    return {id_: replace(entry, source=rows()[id_].source) for id_, entry in entries.items()}
