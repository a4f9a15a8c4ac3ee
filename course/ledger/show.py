"""The output of `course ledger`: one id as a block, or many as a list."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from textwrap import wrap

from course.ledger.homes import homes, missing
from course.ledger.rows import SERIES, Row, find_row, rows, same_place

WIDTH = 100


def answer(wanted: str | None, *, only_missing: bool = False, as_json: bool = False) -> str:
    """The text for an id, a series (`F`), or everything.

    Args:
        wanted: An id (case, dashes and zeros do not matter), or the letter of a series; None: all
            series.
        only_missing: Leave out ids that have a home.
        as_json: A JSON list of rows, each with its homes.

    Raises:
        UnknownIdError: No such id or series; the message names the nearest.
    """
    one = wanted is not None and wanted.strip().upper() not in SERIES
    chosen = [find_row(wanted)] if one else _series(wanted)
    if only_missing:
        chosen = [row for row in chosen if not homes()[row.id]]
    if as_json:
        return json.dumps([_plain(row) for row in chosen], indent=2, ensure_ascii=False)
    if one and chosen:
        return block(chosen[0])
    return "\n".join([*map(line, chosen), "", tally(chosen)])


def _series(letter: str | None) -> list[Row]:
    letter = (letter or "").strip().upper()
    return [row for row in rows().values() if row.id.startswith(letter)]


def _plain(row: Row) -> dict[str, object]:
    found = [vars(home) for home in homes()[row.id]]
    return {"id": row.id, "line": row.line, "source": row.source, "homes": found}


def block(row: Row) -> str:
    """One id: its description, its source, and every home with its file."""
    lines = [f"{row.id}  {row.line}", *_wrapped(row.source)]
    found = homes()[row.id]
    kinds = max((len(home.kind) for home in found), default=0)
    names = max((len(home.name) for home in found), default=0)
    for home in found:
        lines.append(f"     {home.kind:<{kinds}}  {home.name:<{names}}  {home.path}".rstrip())
    lines += [] if found else ["     No home yet: nothing here covers it."]
    if others := same_place(row.id):
        lines += _wrapped(f"In the same place: {', '.join(others)}")
    return "\n".join(lines)


def line(row: Row) -> str:
    """One id in one line, marked if it has no home."""
    return f"{row.id:<5}{row.line}{'' if homes()[row.id] else '  [missing]'}"


def tally(chosen: Iterable[Row]) -> str:
    """The number of ids in each series, and how many of them have no home."""
    without = set(missing())
    ids = [row.id for row in chosen]
    total, absent = Counter(id_[0] for id_ in ids), Counter(id_[0] for id_ in ids if id_ in without)
    parts = [
        f"{letter} {name} {total[letter]}" + (f" ({absent[letter]} missing)" * bool(absent[letter]))
        for letter, name in SERIES.items()
        if total[letter]
    ]
    return "\n".join(wrap(f"{len(ids)} ids: {', '.join(parts)}.", WIDTH))


def _wrapped(text: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent=" " * 5, subsequent_indent=" " * 7)
