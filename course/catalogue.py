"""What a folder registers, read from its source text without importing it.

A worked numeric, a claim and an exercise are registered where they are written, by a decorator or a
constructor whose `id` and `title` are literals:

    @worked("N19", title="Gradient accumulation by hand", perturb={...})
    def gradient_accumulation(...): ...

`read_catalogue` finds those calls and parses them (`ast`, some milliseconds), so that
`course worked --list` answers before torch could be imported, and one id imports one module. Only
such calls are parsed: whole modules take four times as long.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One registered thing: enough to list it and to import it."""

    id: str
    """The ledger's id, e.g. `N19`, or the exercise's, e.g. `03a.accumulate`."""
    title: str
    """One line for tables."""
    source: str
    """Where the sources say it; empty until the ledger says so (`course.ledger.with_sources`)."""
    marker: str
    """What registers it, e.g. `worked` or `Exercise`."""
    module: str
    """Dotted name of the module that holds it."""
    name: str
    """Name of the function or object inside the module."""
    ledger: tuple[str, ...] = ()
    """The ledger's ids that it covers, where its own id is not one."""
    order: int = 0
    """Its place in the lecture, for what is not ordered by id."""

    def load(self) -> Any:
        """Import the module and return the registered object."""
        return getattr(importlib.import_module(self.module), self.name)


@lru_cache
def read_catalogue(
    package: str, folder: Path, marker: str | tuple[str, ...], files: str = "*.py"
) -> dict[str, Entry]:
    """Entries of all modules in `folder` registered by calls of `marker`, by order, then by id.

    Args:
        package: Dotted name of the folder, e.g. `course.worked`.
        folder: Where its modules lie.
        marker: Name of the decorator (`worked`, `claim`) or class (`Exercise`) that registers, or
            several of them.
        files: Which files of the folder are read, e.g. `*/widget.py`.

    Raises:
        ValueError: An id is registered twice, or id, title or a source is not a literal.
        SyntaxError: A call of a marker is never closed.
    """
    markers = (marker,) if isinstance(marker, str) else marker
    found: dict[str, Entry] = {}
    for path in sorted(folder.glob(files)):
        for name, call in _marked_calls(path.read_text("utf-8"), markers):
            words = {keyword.arg: keyword.value for keyword in call.keywords}
            words |= {"id": call.args[0]} if call.args else {}
            try:
                id_, title = (ast.literal_eval(words[key]) for key in ("id", "title"))
                source = ast.literal_eval(words["source"]) if "source" in words else ""
            except (KeyError, ValueError) as fault:
                raise ValueError(
                    f"{path.name}, line {call.lineno}: {call.func.id}(...) needs id and title (and "
                    "source) as plain strings, since they are read without importing the module."
                ) from fault
            if id_ in found:
                raise ValueError(f"{id_} is registered twice: {found[id_].module} and {path.stem}.")
            dotted = ".".join(path.relative_to(folder).with_suffix("").parts)
            more = {k: ast.literal_eval(words[k]) for k in ("ledger", "order") if k in words}
            more |= {"module": f"{package}.{dotted}", "name": name, "marker": call.func.id}
            found[id_] = Entry(id=id_, title=title, source=source, **more)
    return dict(sorted(found.items(), key=lambda item: (item[1].order, natural_order(item[0]))))


def _marked_calls(text: str, markers: tuple[str, ...]) -> Iterator[tuple[str, ast.Call]]:
    """Top-level `@marker(...)` over a function or class, and `name = marker(...)`."""
    for found in re.finditer(rf"^(?:@|(\w+) = )(?=(?:{'|'.join(markers)})\()", text, re.MULTILINE):
        if found[1] and (call := _head_of_call(text, found.end())):
            yield found[1], call
            continue
        call, end = _call_from(text, found.end())
        yield found[1] or DEFINED.search(text, end)[1], call


OTHER = re.compile(r"^    (?!(?:id|title|source|kind|ledger|order)=)\w+=", re.MULTILINE)
LISTED = re.compile(r"^    (?:id|title|source|ledger|order)=", re.MULTILINE)


def _head_of_call(text: str, start: int) -> ast.Call | None:
    """A call's arguments down to the first that no list shows, where these come first and on lines
    of their own, as in the bank: what follows is long. None for a call of another shape."""
    after = MARGIN.search(text, start + 1).start()
    whole = text[start:after].rstrip().removesuffix("# fmt: skip").rstrip()
    cut = OTHER.search(whole)
    is_closed = whole.endswith(")") and not any(whole.count(q) % 2 for q in ("'''", '"""'))
    if cut is None or not is_closed or LISTED.search(whole, cut.end()):
        return None
    above = "\n" * text.count("\n", 0, start)
    try:
        call = ast.parse(f"{above}{whole[: cut.start()]})", mode="eval").body
    except SyntaxError:
        return None
    return call if {"id", "title"} <= {keyword.arg for keyword in call.keywords} else None


DEFINED = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)
MARGIN = re.compile(r"^[^\s)]|\Z", re.MULTILINE)
"""Where the next statement begins."""


def _call_from(text: str, start: int) -> tuple[ast.Call, int]:
    """The call that begins at a place in a module, and where what comes after it begins."""
    above = "\n" * text.count("\n", 0, start)  # so that its lines keep their numbers
    for after in MARGIN.finditer(text, start + 1):
        with suppress(SyntaxError):  # of a string that has lines at the margin
            end = after.start()
            return ast.parse(above + text[start:end].strip(), mode="eval").body, end
    raise SyntaxError(f"line {len(above) + 1}: a call that is not closed")


def natural_order(id_: str) -> list[tuple[int, int | str]]:
    """Sort key under which N2 stands before N10.

    >>> sorted(["N10", "N2"], key=natural_order)
    ['N2', 'N10']
    """
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", id_)]


def find_entry(catalogue: dict[str, Entry], wanted: str, *, kind: str) -> Entry:
    """The entry called `wanted`, forgiving case and a dash (`n-12` is `N12`, `N9` is `N09`).

    Raises:
        UnknownIdError: No such id; the message names the nearest ones.
    """
    if wanted in catalogue:
        return catalogue[wanted]
    by_key = {loose_key(id_): entry for id_, entry in catalogue.items()}
    if (entry := by_key.get(loose_key(wanted))) is not None:
        return entry
    by_name = {entry.name: id_ for id_, entry in catalogue.items()}
    near = difflib.get_close_matches(wanted, [*catalogue, *by_name], n=3, cutoff=0.5)
    near = near or difflib.get_close_matches(wanted.upper(), list(catalogue), n=3, cutoff=0.3)
    hint = ", ".join(dict.fromkeys(by_name.get(word, word) for word in near)) or next(
        iter(catalogue), "none registered"
    )
    raise UnknownIdError(
        f"'{wanted}' is not the id of {kind}; the nearest: {hint}. "
        f"All {len(catalogue)} ids: --list."
    )


class UnknownIdError(KeyError):
    """An id that nothing is registered under."""

    def __str__(self) -> str:
        return self.args[0]


def loose_key(id_: str) -> str:
    return re.sub(r"(?<!\d)0+(?=\d)", "", re.sub(r"[-_\s]", "", id_).lower())
