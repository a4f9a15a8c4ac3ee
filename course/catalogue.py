"""What a folder registers, read from its source text without importing it.

A worked numeric, a claim and an exercise are registered where they are written, by a decorator or a
constructor whose `id`, `title` and `source` are literals:

    @worked("N19", title="Gradient accumulation by hand", source="Lecture 3, ...")
    def gradient_accumulation(...): ...

`read_catalogue` parses the modules (`ast`, some milliseconds) and finds those calls, so that
`course worked --list` answers before torch could be imported, and one id imports one module.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One registered thing: enough to list it and to import it."""

    id: str
    """The ledger's id, as `N19`, or the exercise's, as `03a.accumulate`."""
    title: str
    """One line for tables."""
    source: str
    """Where the lecture says it."""
    module: str
    """Dotted name of the module that holds it."""
    name: str
    """Name of the function or object inside the module."""

    def load(self) -> Any:
        """Import the module and return the registered object."""
        return getattr(importlib.import_module(self.module), self.name)


@lru_cache
def read_catalogue(package: str, folder: Path, marker: str) -> dict[str, Entry]:
    """Entries of all modules in `folder` registered by calls of `marker`, by id, in natural order.

    Args:
        package: Dotted name of the folder, as `course.worked`.
        folder: Where its modules lie.
        marker: Name of the decorator (`worked`, `claim`) or class (`Exercise`) that registers.

    Raises:
        ValueError: An id is registered twice, or id, title or source is not a literal.
    """
    found: dict[str, Entry] = {}
    for path in sorted(folder.glob("*.py")):
        for name, call in _marked_calls(ast.parse(path.read_text("utf-8")), marker):
            words = {keyword.arg: keyword.value for keyword in call.keywords}
            words |= {"id": call.args[0]} if call.args else {}
            try:
                id_, title, source = (ast.literal_eval(words[k]) for k in ("id", "title", "source"))
            except (KeyError, ValueError) as fault:
                raise ValueError(
                    f"{path.name}, line {call.lineno}: {marker}(...) needs id, title and source "
                    "as plain strings, since they are read without importing the module."
                ) from fault
            if id_ in found:
                raise ValueError(f"{id_} is registered twice: {found[id_].module} and {path.stem}.")
            module = f"{package}.{path.stem}"
            found[id_] = Entry(id=id_, title=title, source=source, module=module, name=name)
    return dict(sorted(found.items(), key=lambda item: natural_order(item[0])))


def _marked_calls(tree: ast.Module, marker: str) -> Iterable[tuple[str, ast.Call]]:
    """Top-level `@marker(...) def name` and `name = marker(...)`, with the name they bind."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            calls, name = node.decorator_list, node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            calls, name = [node.value], node.targets[0].id
        else:
            continue
        for call in calls:
            if isinstance(call, ast.Call) and getattr(call.func, "id", None) == marker:
                yield name, call


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
    by_key = {_loose_key(id_): entry for id_, entry in catalogue.items()}
    if (entry := by_key.get(_loose_key(wanted))) is not None:
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


def _loose_key(id_: str) -> str:
    return re.sub(r"(?<!\d)0+(?=\d)", "", re.sub(r"[-_\s]", "", id_).lower())
