"""A class whose assignment has its exercises and little else: what a test grades in seconds."""

import dis
from pathlib import Path
from types import CodeType

import nbformat

from autograde import class_dir
from autograde.classroom.example import ASSIGNMENT

KEPT = ("student(", "q = ask(", "ask(")
"""Beginnings of ungraded code that an answer needs."""


def short_class(folder: Path, assignment: str = ASSIGNMENT) -> Path:
    """Make a class directory, and take out of its source notebook what trains and shows.

    Returns:
        The class directory; nothing is released yet.
    """
    class_dir.init(folder, [assignment])
    path = folder / "source" / assignment / f"{assignment}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = needed(notebook.cells)
    nbformat.write(notebook, path)
    return folder


def needed(cells: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The exercises, the prose, and the code before them whose names one of them reads."""
    kept, missing = [], set()
    for cell in reversed(cells):
        if cell.cell_type != "code":
            kept.append(cell)
            continue
        given, read = _names(compile(cell.source, "", "exec"))
        asked = "nbgrader" in cell.metadata or cell.source.startswith(KEPT)
        if asked or given & missing:
            missing = (missing - given) | read
            kept.append(cell)
    return kept[::-1]


def _names(code: CodeType) -> tuple[set[str], set[str]]:
    """Names that a cell gives a value, and those that it, or a function in it, asks for."""
    given, read = set(), set()
    for step in dis.get_instructions(code):
        if step.opname in ("STORE_NAME", "STORE_GLOBAL"):
            given.add(step.argval)
        elif step.opname in ("LOAD_NAME", "LOAD_GLOBAL") and step.argval not in given:
            read.add(step.argval)
    for inner in filter(lambda one: isinstance(one, CodeType), code.co_consts):
        read |= _names(inner)[1] - given
    return given, read


def submission(folder: Path, student: str, assignment: str = ASSIGNMENT) -> Path:
    """Where a student's notebook goes."""
    return folder / "submitted" / student / assignment / f"{assignment}.ipynb"


def hand_in(
    folder: Path, student: str, assignment: str, notebook: nbformat.NotebookNode | str
) -> Path:
    """Put a notebook, or a file's text, where a student's submission goes."""
    path = submission(folder, student, assignment)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notebook if isinstance(notebook, str) else nbformat.writes(notebook), "utf-8")
    return path
