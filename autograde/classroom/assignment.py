"""What the grading processes must know about an assignment, as plain data that can be sent.

They do not read the class directory, so this holds the cells with a grade_id, what students were
given for them, the `check(...)` calls, and the version, which says whether a grade still belongs to
the current exercise.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from autograde import bank
from autograde.class_dir import ClassDirError
from autograde.classroom.cells import Cell, grade_id, is_check, marked, read_cells
from autograde.sources import CheckCall, check_calls


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """An assignment of a class directory."""

    name: str
    cells: list[Cell]
    """Those with a grade_id, in the source notebook's order."""
    released: dict[str, str]
    """Source of each graded cell as students were given it, by grade_id."""
    given: list[str]
    """Source of each cell as everybody was given it, with or without a grade_id."""
    calls: dict[str, dict[str, str]]
    """The last check call of each check cell, whose points nbgrader reads, by grade_id."""
    exercises: str
    """Hash of its exercises and of the code that judges them, see `exercises_version`."""
    version: str
    """Hash of the source notebook and of its exercises: a grade of another one is out of date."""
    released_code: list[list[str]] = field(default_factory=list)
    """grade_id, or nothing, and source of each code cell as everybody was given it, in order."""

    def to_json(self) -> dict[str, Any]:
        """Plain data, for a process that grades."""
        return asdict(self)


def read_assignment(folder: Path, name: str) -> Assignment:
    """Read an assignment from its class directory.

    Raises:
        ClassDirError: A graded code cell of the source is not a check that a referee can answer.
    """
    source = folder / "source" / name / f"{name}.ipynb"
    cells = [_plain(cell) for cell in read_cells(source) if grade_id(cell)]
    calls = {grade_id(cell): _call(source, cell) for cell in cells if is_check(cell)}
    release = folder / "release" / name / f"{name}.ipynb"
    given = read_cells(release) if release.exists() else []
    exercises = exercises_version(tuple(sorted({call.exercise_id for call in calls.values()})))
    return Assignment(
        name=name,
        cells=cells,
        released={grade_id(cell): cell["source"] for cell in given if marked(cell, "grade")},
        given=[cell["source"] for cell in given],
        calls={id: asdict(call) for id, call in calls.items()},
        exercises=exercises,
        version=hashlib.sha256(source.read_bytes() + exercises.encode()).hexdigest(),
        released_code=[[grade_id(c) or "", c["source"]] for c in given if c["cell_type"] == "code"],
    )


def _plain(cell: Cell) -> Cell:
    kept = {"cell_type": cell["cell_type"], "source": cell["source"]}
    marks = {"nbgrader": dict(cell["metadata"]["nbgrader"])}
    code = {"outputs": [], "execution_count": None} if cell["cell_type"] == "code" else {}
    return {**kept, "id": cell.get("id", ""), "metadata": marks, **code}


def _call(source: Path, cell: Cell) -> CheckCall:
    calls = check_calls(cell["source"])
    if not calls:
        raise ClassDirError(
            f"{source}, cell '{grade_id(cell)}': a graded code cell may hold only check(...) "
            "calls, which the referee can answer. Use nbgrader autograde for other tests."
        )
    return calls[-1]


JUDGES = ("autograde.referee", "autograde.compare", "autograde.plain")


@lru_cache
def exercises_version(exercises: tuple[str, ...]) -> str:
    """Hash of the modules of some exercises, of those that judge them, and of all that they import.

    A reference fixed in `course` or a tolerance changed in the referee makes a new version too.
    Only sources are read; nothing is imported.
    """
    catalogue = bank.catalogue()
    sources = sources_from([*JUDGES, *(catalogue[exercise].module for exercise in exercises)])
    digest = hashlib.sha256()
    for module in sorted(sources):
        digest.update(module.encode() + b"\0" + hashlib.sha256(sources[module]).digest())
    return digest.hexdigest()


def sources_from(modules: list[str]) -> dict[str, bytes]:
    """Sources of this project's modules, and of all of its modules that they import, by name."""
    sources: dict[str, bytes] = {}
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module not in sources and (path := _path_of(module)):
            sources[module] = path.read_bytes()
            waiting += _imported(sources[module].decode())
    return sources


OURS = {name: Path(__file__).parents[2] / name for name in ("autograde", "course")}


def _path_of(module: str) -> Path | None:
    """Where a module of this project lies; None for others, and for names that are no module."""
    package, *names = module.split(".")
    if package not in OURS:
        return None
    place = os.path.join(OURS[package], *names)
    choices = (f"{place}.py", os.path.join(place, "__init__.py"))
    return next((Path(path) for path in choices if os.path.isfile(path)), None)


def _imported(source: str) -> set[str]:
    """Names that may be modules: `from a.b import c` names a.b and a.b.c.

    Found by their text, in a tenth of the time that parsing takes. Prose that reads like an import
    may give a name too many; it counts only where a module of ours is called so.
    """
    found = set()
    for package, names, modules in IMPORT.findall(source):
        words = NAME.findall(COMMENT.sub("", names or modules))
        found |= {package, *(f"{package}.{word}" for word in words)} if package else set(words)
    return found


IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|.*)|import[ \t]+(.*))",
    re.MULTILINE,
)
COMMENT = re.compile(r"#.*")
NAME = re.compile(r"[\w.]+")
