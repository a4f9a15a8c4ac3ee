"""The beginning of every notebook, made from its frame (`kit/about/NAME.toml`) and the bank.

Under the title: what you will be able to do, what you need, how long it takes, how many points.
Before the first code: a cell that says what to install if a notebook was opened on its own.
"""

from __future__ import annotations

import re

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from autograde import bank
from autograde.kit.chapters import Chapter, chapters

NEEDS = """\
# Opened on its own? This says what to install.
import importlib.util, sys
if not all(map(importlib.util.find_spec, ("autograde", "course"))):
    raise ModuleNotFoundError(
        "This notebook needs the course, and this Python lacks it. Get the course's "
        "folder or its wheel (a .whl file), then in a terminal:\\n"
        f"    {sys.executable} -m pip install FOLDER_OR_WHEEL\\n"
        "Then restart the kernel and run the notebook from the top.")
"""


def add_frame(name: str, notebook: NotebookNode) -> None:
    """Insert the two cells into a notebook whose exercises are expanded, in place.

    Args:
        name: Of the notebook, e.g. `03a-training-recipe`; one without a frame gets no head.
        notebook: Its cells; the title is a heading of the first level.
    """
    kinds = [cell.cell_type for cell in notebook.cells]
    if "code" in kinds:
        notebook.cells.insert(kinds.index("code"), new_code_cell(NEEDS.rstrip()))
    if name in chapters():
        titled = (i for i, cell in enumerate(notebook.cells) if cell.source.startswith("# "))
        head = new_markdown_cell(head_of(chapters()[name], notebook))
        notebook.cells.insert(next(titled, -1) + 1, head)


def head_of(chapter: Chapter, notebook: NotebookNode) -> str:
    """Goals, needs, time and points, as Markdown."""
    goals = "\n".join(f"- {goal}" for goal in chapter.goals)
    return (
        f"**You will be able to**\n\n{goals}\n\n"
        f"**You need** {'; '.join(chapter.needs)}.\n\n"
        f"**It takes** {_time(chapter, notebook)}.\n\n"
        f"**It gives** {_points(notebook)}."
    )


def _time(chapter: Chapter, notebook: NotebookNode) -> str:
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    ids = dict.fromkeys(re.findall(r"""^check\(\s*["']([^"']+)["']""", code, re.MULTILINE))
    minutes = sum(bank.load(id).minutes for id in ids)
    seconds = chapter.running_s
    running = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
    exercises = f"{len(ids)} exercise{'' if len(ids) == 1 else 's'}"
    return f"about {minutes} minutes for {exercises}, and its cells run for {running}"


def _points(notebook: NotebookNode) -> str:
    """All points, and which of them are not shown by a check in the notebook."""
    graded = [c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade")]
    by_hand = sum(c.metadata.nbgrader["points"] for c in graded if c.metadata.nbgrader["solution"])
    checked = [c for c in graded if not c.metadata.nbgrader["solution"]]
    hidden = sum(c.metadata.nbgrader["points"] for c in checked if "hidden" in c.source)
    total = sum(c.metadata.nbgrader["points"] for c in graded)
    said = [f"{total - by_hand - hidden:g} shown by `check`"]
    said += [f"{hidden:g} for cases tried when it is graded"] if hidden else []
    said += [f"{by_hand:g} for answers that a person reads"] if by_hand else []
    return f"{total:g} points: {', '.join(said)}"
