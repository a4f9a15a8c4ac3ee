"""Students' code as handed in, read without running it, and shown side by side for pairs.

A Python file beside the notebook, which a cell can import, is read as a cell named after it, and so
is another notebook that its code names, as `%run other.ipynb` does.
"""

from __future__ import annotations

import json
import os
import tokenize
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograde.class_dir import few
from autograde.classroom.names import shown
from autograde.classroom.notebook_text import MAX_CELLS, MAX_VALUES, values_in
from autograde.classroom.similarity import (
    FURTHER,
    MAX_SOURCE,
    NEXT_CELL,
    Cells,
    Pair,
    fingerprints,
    matching_lines,
)
from autograde.classroom.submissions import MAX_NOTEBOOK
from autograde.reported import quoted
from autograde.sandbox.bounds import TooMuchError, at_most

MAX_BESIDE = 50
"""Python files beside a notebook that are read."""
COMPILED = (".pyc", ".so", ".pyd")
"""How names of files end that Python imports and that hold no text."""
AS_WRITTEN = ("utf-8", "ascii", "iso-8859-", "cp125", "koi8-")
"""How encodings begin in which a letter of ASCII stands for itself, so that code reads as it runs;
of others, such as unicode_escape, a comment may be a program."""
MOST_NAMED = 10
"""Files that one line of the class page names."""
MAX_NAMES = 100
"""Cells of different names that are compared where no release says which there are."""
READ_S, READ_BYTES = 10.0, 2**30
"""Processor time and memory that reading one notebook, or comparing two, may take."""


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """A cell of two students; lines as (text, is alike)."""

    cell: str
    share: float
    first: list[tuple[str, bool]]
    second: list[tuple[str, bool]]


def read_code(
    folder: Path, assignment: str, students: list[str]
) -> tuple[dict[str, dict[str, str]], list[str], dict[str, list[str]]]:
    """Read each student's own code as handed in, and the sources that everybody was given.

    Cells without a grade_id that are not from the notebook are joined as "further cells". Students
    who handed in nothing readable are left out. All of what a submission makes its reader do, up to
    the fingerprints that are kept, is done here, in bounded time.

    Returns:
        Sources by student and cell; what was given; and what of a student's was not read, and why.
    """
    release = folder / "release" / assignment / f"{assignment}.ipynb"
    whole = _code_cells(release)
    given, names = [source for _, source in whole], {name for name, _ in whole}
    given += [source for _, source in _beside(release.parent)]
    found: dict[str, dict[str, str]] = {}
    unread: dict[str, list[str]] = {}
    for student in students:
        path = folder / "submitted" / student / assignment / f"{assignment}.ipynb"
        try:
            with at_most(READ_S, READ_BYTES):
                whole_own = _code_cells(path)
                cells = _own_cells(path, whole_own, names, set(given))
                for source in cells.values():
                    fingerprints(source)
                said = list(_not_read_beside(path.parent, release.parent))
        except TooMuchError as fault:
            unread[student] = [f"reading its code takes {fault}; it was not compared"]
            continue
        except Exception as fault:  # of one submission: it stops nobody else's
            unread[student] = [f"{could_not_be_read(fault)}; it was not compared"]
            continue
        if whole and not whole_own and path.is_file():
            said.append(NO_CODE)
        if cells:
            found[student] = cells
        if said:
            unread[student] = said
    return found, given, unread


NO_CODE = "no code cell of its notebook could be read; it was not compared"


def could_not_be_read(fault: Exception) -> str:
    """What a person is told where reading a submission failed in a way that nobody foresaw."""
    return f"its code could not be read ({type(fault).__name__})"


def _own_cells(
    path: Path, whole: list[tuple[str, str]], names: set[str], known: set[str]
) -> dict[str, str]:
    """A student's sources by cell.

    Args:
        path: Of the notebook.
        whole: Name and source of its code cells.
        names: Of the released cells; empty where there is no release. Other names are quoted.
        known: Sources that are not the student's.
    """
    cells: dict[str, list[str]] = {}
    for name, source in whole:
        name = name if name in names or name == FURTHER else quoted(shown(name))
        if name not in (names or cells) and (names or len(cells) >= MAX_NAMES):
            name = FURTHER  # else a thousand made-up names to compare
        if source not in known:
            cells.setdefault(name, []).append(source)
    for name, source in [*_beside(path.parent), *_notebooks_named(path, whole)]:
        if source not in known:
            cells.setdefault(name, []).append(source)
    return {
        name: NEXT_CELL.join(source.replace("\0", "") for source in sources)
        for name, sources in cells.items()
    }


def _beside(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each Python file of a folder, and of those below it, a few."""
    for path in _files(folder, ".py")[:MAX_BESIDE]:
        if not path.is_symlink() and path.is_file():
            with suppress(OSError), path.open("rb") as file:
                source = file.read(MAX_SOURCE + 1).decode("utf-8", "replace")
                yield _named(path, folder), source


def _notebooks_named(path: Path, whole: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Name and source of each code cell of the other notebooks that a notebook's code names."""
    texts = [source for _, source in whole if ".ipynb" in source]
    others = [file for file in _files(path.parent, ".ipynb") if file != path] if texts else []
    for file in [one for one in others if any(one.name in text for text in texts)][:MAX_BESIDE]:
        for _, source in _code_cells(file):
            yield _named(file, path.parent), source


def _files(folder: Path, *endings: str) -> list[Path]:
    """Files of a folder, and of those below it, in order."""
    walk = os.walk(folder)
    files = sorted(Path(place, name) for place, _, names in walk for name in names)
    return [file for file in files if file.suffix in endings]


def _not_read_beside(folder: Path, released: Path) -> Iterator[str]:
    """What beside a notebook a cell can import, and is not read, in words.

    A `__pycache__` does not count: it does not come with a submission into the process where it
    runs. Nor does what was given to everybody.
    """
    files = _files(folder, ".py")
    if len(files) > MAX_BESIDE:
        yield (
            f"{len(files)} Python files lie next to its notebook, and only the first {MAX_BESIDE} "
            f"were read, up to {_named(files[MAX_BESIDE - 1], folder)}"
        )
    compiled = [
        file
        for file in _files(folder, *COMPILED)
        if "__pycache__" not in (name := file.relative_to(folder)).parts
        and not (released / name).exists()
    ]
    if compiled:
        names = few([_named(file, folder) for file in compiled], most=MOST_NAMED)
        yield f"compiled code lies next to its notebook, and was not read: {names}"
    for file in files[:MAX_BESIDE]:
        if not file.is_symlink() and file.is_file() and (encoding := _encoding(file)):
            yield f"{_named(file, folder)} is {encoding}, so what runs may not be what was read"


def _named(file: Path, folder: Path) -> str:
    return quoted(shown(str(file.relative_to(folder))))


def _encoding(path: Path) -> str:
    """In what a Python file is written, where its text may run as another; else empty."""
    try:
        with path.open("rb") as file:
            encoding, _ = tokenize.detect_encoding(lambda: file.readline(MAX_SOURCE))
    except OSError:
        return ""
    except SyntaxError:  # none that Python knows, or knows yet
        return "in an unknown encoding"
    return "" if encoding.startswith(AS_WRITTEN) else f"written in {encoding}"


def _code_cells(path: Path) -> list[tuple[str, str]]:
    """Name and source of each code cell; none of a file that is no notebook."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_NOTEBOOK:
            return []  # a pipe, say, which would be waited for without end
        text = path.read_text("utf-8-sig")
        if values_in(text) > MAX_VALUES:
            return []
        cells = _in_todays_format(json.loads(text), text)["cells"]
        if len(cells) > MAX_CELLS:
            return []  # it was not graded either
        return [
            (_cell_name(cell), _text(cell["source"]))
            for cell in cells
            if cell["cell_type"] == "code"
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _in_todays_format(document: Mapping[str, Any], text: str) -> Mapping[str, Any]:
    """A notebook as it is graded: of an earlier format (worksheets, `input`) it is upgraded.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: It cannot be; then it is not graded.
    """
    if document.get("nbformat", 4) == 4:
        return document
    import nbformat

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return nbformat.reads(text, as_version=4)
    except (nbformat.ValidationError, nbformat.reader.NotJSONError) as fault:
        raise ValueError from fault


def _cell_name(cell: Mapping[str, Any]) -> str:
    marks = cell.get("metadata", {}).get("nbgrader", {})
    name = marks.get("grade_id") if isinstance(marks, dict) else None
    return name if isinstance(name, str) and name else FURTHER


def _text(source: Any) -> str:
    return source if isinstance(source, str) else "".join(map(str, source))


def side_by_side(pair: Pair, students: Mapping[str, Cells]) -> list[SideBySide]:
    """The cells of a pair with anything in common, line by line; none if that takes too long, or
    fails."""
    try:
        with at_most(READ_S, READ_BYTES):
            return _side_by_side(pair, students)
    except Exception:  # it takes too long, or cannot be read: the pair is named all the same
        return []


def _side_by_side(pair: Pair, students: Mapping[str, Cells]) -> list[SideBySide]:
    shown = []
    for name, cell, other, share in pair.places:
        first, second = students[pair.first][cell], students[pair.second][other]
        alike = matching_lines(first, second)
        shown.append(
            SideBySide(
                cell=name,
                share=share,
                first=_marked(first, alike[0]),
                second=_marked(second, alike[1]),
            )
        )
    return sorted(shown, key=lambda cells: -cells.share)


def _marked(source: str, alike: set[int]) -> list[tuple[str, bool]]:
    lines = source.replace("\0", "").splitlines()[:400]
    return [(line[:300], number in alike) for number, line in enumerate(lines, start=1)]
