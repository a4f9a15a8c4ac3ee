"""A class whose assignment has its exercises and little else: what a test grades in seconds."""

from pathlib import Path

import nbformat

from autograde import class_dir
from autograde.classroom.example import ASSIGNMENT
from autograde.classroom.needed import exercises_alone


def short_class(folder: Path, assignment: str = ASSIGNMENT) -> Path:
    """Make a class directory, and take out of its source notebook what trains and shows.

    Returns:
        The class directory; nothing is released yet.
    """
    class_dir.init(folder, [assignment])
    path = folder / "source" / assignment / f"{assignment}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = exercises_alone(notebook.cells)
    nbformat.write(notebook, path)
    return folder


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
