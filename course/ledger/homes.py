"""Where each id of the ledger is covered: read from what registers it, so nothing is typed twice.

An id has a home wherever something computes it, tests it, shows it or asks for it:

- worked numbers and claims by the id they register, contradictions by their row;
- museum exhibits by the name of their file (`b08_double_softmax.py`);
- exercises and widgets by their `ledger=(...)` argument;
- code, figures and widgets of `course/` whose docstring cites the id (`Source: ...;
  ledger C07, N51`);
- notebooks by the ids that they mention.

All of this is read from source text, without imports: it takes less time than importing torch.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from course.catalogue import read_catalogue
from course.ledger.rows import SERIES, rows

ROOT = Path(__file__).parents[2]
COURSE = ROOT / "course"
ID = re.compile(rf"\b([{''.join(SERIES)}])(\d{{2,3}})(?:-\1?(\d{{2,3}}))?\b")
"""An id, or a range of ids such as `F27-F29`."""
CITED = re.compile(r"\bledger\s+((?:[A-Z]\d{2,3}(?:-[A-Z]?\d{2,3})?(?:,\s*)?)+)")
"""What follows the word ledger in a docstring."""


@dataclass(frozen=True, kw_only=True)
class Home:
    """One place where an id is covered."""

    kind: str
    """`worked number`, `claim`, `exhibit`, `exercise`, `figure`, `widget`, `code`, ..."""
    name: str
    """The command that shows it, or its name."""
    path: str
    """Its file, from the root of the repository."""

    @property
    def module(self) -> str:
        """The file's dotted name."""
        return module_at(self.path)


def module_at(path: str) -> str:
    """The dotted name of one of our files, given by its path from the root of the repository.

    >>> module_at("course/engine/step.py"), module_at("course/engine/__init__.py")
    ('course.engine.step', 'course.engine')
    """
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@lru_cache
def homes() -> Mapping[str, tuple[Home, ...]]:
    """The homes of each id, in the order of the ledger; empty for an id that is still missing."""
    found: dict[str, list[Home]] = defaultdict(list)
    for find in (_registered, _contradictions, _exhibits, _named_in_calls, _docstrings, _notebooks):
        for id_, home in find():
            if home not in found[id_]:
                found[id_].append(home)
    return {id_: tuple(found[id_]) for id_ in rows()}


def missing() -> list[str]:
    """Ids that have no home yet."""
    return [id_ for id_, found in homes().items() if not found]


def _registered() -> Iterator[tuple[str, Home]]:
    """Worked numbers and claims, under the command that shows them."""
    for folder, marker, kind in (
        ("worked", "worked", "worked number"),
        ("claims", "claim", "claim"),
    ):
        entries = read_catalogue(f"course.{folder}", COURSE / folder, marker)
        for id_, entry in entries.items():
            path = entry.module.replace(".", "/") + ".py"
            yield id_, Home(kind=kind, name=f"course {folder} {id_}", path=path)


def _contradictions() -> Iterator[tuple[str, Home]]:
    path = COURSE / "claims" / "contradictions.py"
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "_row" and node.args:
            id_ = ast.literal_eval(node.args[0])
            yield id_, Home(kind="contradiction", name=f"course claims {id_}", path=_shown(path))


def _exhibits() -> Iterator[tuple[str, Home]]:
    for path in sorted((COURSE / "debug" / "museum").glob("b[0-9][0-9]_*.py")):
        id_ = path.name[:3].upper()
        yield id_, Home(kind="exhibit", name=f"course museum {id_}", path=_shown(path))


def _named_in_calls() -> Iterator[tuple[str, Home]]:
    """Exercises of the bank, if it is installed with the course, and widgets: `ledger=(...)`."""
    for kind, folder in (("exercise", ROOT / "autograde" / "bank"), ("widget", COURSE / "widgets")):
        for path in sorted(folder.rglob("*.py")):
            text = path.read_text("utf-8")
            for node in ast.walk(ast.parse(text)) if "ledger=" in text else ():
                if isinstance(node, ast.Call):
                    words = {"id": node.args[0]} if node.args else {}
                    words |= {word.arg: word.value for word in node.keywords}
                    if isinstance(words.get("ledger"), ast.Tuple) and "id" in words:
                        name = ast.literal_eval(words["id"])
                        home = Home(kind=kind, name=name, path=_shown(path))
                        yield from ((id_, home) for id_ in ast.literal_eval(words["ledger"]))


_ROOMS = {"plots": "figure", "widgets": "widget"}
"""Kinds of home in packages whose docstrings describe more than code."""


def _docstrings() -> Iterator[tuple[str, Home]]:
    """Modules, classes and functions of the course that cite ids after the word ledger."""
    for path in sorted(COURSE.rglob("*.py")):
        room, text = path.relative_to(COURSE).parts[0], path.read_text("utf-8")
        if room in ("ledger", "worked", "claims") or not CITED.search(text):
            continue
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                name = module_at(_shown(path))
                name += "" if node is tree else f".{node.name}"
                home = Home(kind=_ROOMS.get(room, "code"), name=name, path=_shown(path))
                yield from ((id_, home) for id_ in cited(ast.get_docstring(node) or ""))


def _notebooks() -> Iterator[tuple[str, Home]]:
    for path in sorted((ROOT / "notebooks" / "source").glob("*.py")):
        home = Home(kind="notebook", name=path.stem, path=_shown(path))
        yield from ((id_, home) for id_ in named(path.read_text("utf-8")))


def cited(docstring: str) -> list[str]:
    """The ids that a docstring cites after the word ledger, ranges written out.

    >>> cited("Source: Lecture 3; ledger C07, F39-F41. Unlike N20, it is in place.")
    ['C07', 'F39', 'F40', 'F41']
    """
    return [id_ for words in CITED.finditer(docstring) for id_ in named(words[1])]


def named(text: str) -> list[str]:
    """All ids that a text mentions, ranges written out.

    >>> named("compare N09 with F27-F28")
    ['N09', 'F27', 'F28']
    """
    found: list[str] = []
    for letter, first, last in ID.findall(text):
        numbers = range(int(first), int(last or first) + 1)
        found += [f"{letter}{number:02d}" for number in numbers]
    return found


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
