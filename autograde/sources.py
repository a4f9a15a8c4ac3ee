"""The notebooks' sources: what an author edits, read as notebooks and checked against the bank.

notebooks/source/NAME.py (jupytext percent text with `# %% exercise ID` cells and solutions)
    -> expand: each exercise's cell as head, answer, check and hidden check
    -> add_frame: the cells that every notebook begins with
    -> read_source: the same as a notebook, cells named, checks compared with the bank

`autograde.authoring` goes on from there, to what students open.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autograde import bank
from course.released import is_chapter

if TYPE_CHECKING:
    from nbformat import NotebookNode

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
SOURCES = NOTEBOOKS / "source"


class SourceError(ValueError):
    """A notebook source breaks a rule of the house; the message names file, cell and fix."""


@dataclass(frozen=True)
class CheckCall:
    """One `check("id", function, parts=...)` in a graded cell."""

    exercise_id: str
    function: str
    """Name of the student's function."""
    parts: str


def source_paths() -> dict[str, Path]:
    """The chapters' sources by assignment name."""
    return {path.stem: path for path in sorted(SOURCES.glob("*.py")) if is_chapter(path.stem)}


def tour_paths() -> dict[str, Path]:
    """Sources of notebooks without exercises, e.g. the gallery of widgets, by name."""
    return {path.stem: path for path in sorted(SOURCES.glob("*.py")) if not is_chapter(path.stem)}


def all_paths() -> dict[str, Path]:
    """Chapters' and tours' sources by name."""
    return source_paths() | tour_paths()


def read_source(path: Path) -> NotebookNode:
    """A source as a notebook with expanded exercises and stable cell ids, checked with the bank.

    Raises:
        SourceError: Duplicate grade_id, a graded code cell that is not a check, points that are not
            the bank's, or an exercise's cell that lacks something.
    """
    import jupytext  # half a second that grading does without

    from autograde.frame import add_frame

    notebook = jupytext.reads(expanded(path), fmt="py:percent")
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
    notebook.metadata["language_info"] = {"name": "python"}
    add_frame(path.stem, notebook)
    seen: set[str] = set()
    for cell in notebook.cells:
        cell.metadata.pop("lines_to_next_cell", None)
        cell["id"] = _cell_id(cell, seen)
        seen.add(cell["id"])
        _check_cell(path, cell)
    return notebook


def expanded(path: Path) -> str:
    """A source's text with every exercise's cell written out.

    Raises:
        SourceError: An exercise's cell lacks something.
    """
    from autograde.expand import ExpandError, expand  # torch: only who writes notebooks needs it

    try:
        return expand(path.read_text("utf-8"))
    except ExpandError as fault:
        raise SourceError(f"{path.name}: {fault}") from fault


def _cell_id(cell: NotebookNode, seen: set[str]) -> str:
    """The grade_id of a graded cell; else a hash of the text, which survives every round trip."""
    grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
    if grade_id:
        if grade_id in seen:
            raise SourceError(f"grade_id '{grade_id}' is used twice; each cell needs its own.")
        return grade_id
    id = name = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:8]
    count = 1
    while id in seen:
        count += 1
        id = f"{name}-{count}"
    return id


def _check_cell(path: Path, cell: NotebookNode) -> None:
    metadata = cell.metadata.get("nbgrader", {})
    if cell.cell_type != "code" or not metadata.get("grade"):
        return
    where = f"{path.name}, cell '{metadata['grade_id']}'"
    calls = check_calls(cell.source)
    if not calls:
        raise SourceError(
            f"{where}: a graded code cell may hold only check(...) calls, which the referee can "
            "answer. Write the test as an exercise of the bank."
        )
    points = points_of(calls[-1])
    if points != metadata["points"]:
        raise SourceError(
            f"{where} says {metadata['points']} points; the bank gives {points:g} for the "
            f"{calls[-1].parts} parts of {calls[-1].exercise_id}."
        )


def points_of(call: CheckCall) -> float:
    """What the bank pays for the parts that a check asks."""
    return sum(
        part.points
        for part in bank.load(call.exercise_id).parts
        if call.parts == "all" or part.hidden == (call.parts == "hidden")
    )


def check_calls(source: str) -> list[CheckCall]:
    """The check calls of a cell's source; empty if it holds any other statement."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return []
    calls = [_check_call(statement) for statement in statements]
    return [call for call in calls if call] if all(calls) else []


def _check_call(statement: ast.stmt) -> CheckCall | None:
    match statement:
        case ast.Expr(
            ast.Call(
                func=ast.Name("check"),
                args=[ast.Constant(str() as id), ast.Name(function)],
                keywords=keywords,
            )
        ):
            words = {word.arg: getattr(word.value, "value", None) for word in keywords}
            if set(words) <= {"parts"}:
                return CheckCall(id, function, words.get("parts", "shown"))
    return None
