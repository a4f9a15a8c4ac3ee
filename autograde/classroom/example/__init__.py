"""The example class that ships with the project: what eight students handed in, and what they get.

One file a student holds the answers that differ from the released notebook, cell by cell, as
`# %% grade_id` sections; `expected.json` says what grading must make of them. The notebooks are
made from the release, so that they stay in step with it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
from nbgrader import utils

ASSIGNMENT = "03a-training-recipe"
HERE = Path(__file__).parent
SOLUTIONS = "ada"
"""Hands in the source notebook's own solutions."""
CUT_OFF = "hana"
"""Hands in a file that ends in the middle."""


def expected() -> dict[str, Any]:
    """What every student must get, by name."""
    return json.loads((HERE / "expected.json").read_text("utf-8"))


def hand_in(folder: Path) -> list[Path]:
    """Fill submitted/ of a class directory whose assignment has been released.

    Args:
        folder: The class directory.

    Returns:
        The notebooks handed in.
    """
    handed_in = []
    for student in expected():
        path = folder / "submitted" / student / ASSIGNMENT / f"{ASSIGNMENT}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = nbformat.writes(_notebook(folder, student))
        path.write_text(text[: len(text) // 2] if student == CUT_OFF else text, "utf-8")
        handed_in.append(path)
    return handed_in


def _notebook(folder: Path, student: str) -> nbformat.NotebookNode:
    notebook = nbformat.read(folder / "release" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb", as_version=4)
    whole = student in (SOLUTIONS, CUT_OFF)
    answered(notebook, student, solutions(folder) if whole else _answers(student))
    return notebook


def answered(notebook: nbformat.NotebookNode, student: str, answers: dict[str, str]) -> None:
    """Write a name and answers, by grade_id, into a released notebook."""
    left = dict(answers)
    for cell in notebook.cells:
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
        if grade_id in left:
            cell.source = left.pop(grade_id)
        elif cell.source.startswith('student("")'):
            cell.source = f'student("{student}")'
    if left:
        raise ValueError(f"{student} answers cells that the release does not have: {[*left]}")


def solutions(folder: Path, assignment: str = ASSIGNMENT) -> dict[str, str]:
    """The answers of an assignment's source in a class directory, by grade_id."""
    source = nbformat.read(folder / "source" / assignment / f"{assignment}.ipynb", as_version=4)
    return {
        cell.metadata.nbgrader["grade_id"]: cell.source
        for cell in source.cells
        if utils.is_solution(cell)
    }


def _answers(student: str) -> dict[str, str]:
    """Sections of a student's file by the grade_id in their heading; written ones lose the `# `."""
    answers = {}
    for section in (HERE / f"{student}.py").read_text("utf-8").split("# %% ")[1:]:
        heading, _, source = section.partition("\n")
        grade_id, _, kind = heading.partition(" ")
        source = source.strip("\n")
        if kind == "[markdown]":
            source = "\n".join(line.removeprefix("# ") for line in source.splitlines())
        answers[grade_id] = source
    return answers
