"""Read a submission's text as a notebook, without running it.

Every finding is one line that names the file and what to do.
"""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from typing import Any

import nbformat
from nbformat import NotebookNode

from autograde.classroom.cells import Cell, as_read, grade_id, marked
from autograde.classroom.names import shown
from autograde.classroom.submissions import SubmissionFault

MAX_CELLS = 2000
"""Cells of a notebook that is read, for a grade or for a report."""
MAX_VALUES = 1_000_000
"""Values in a notebook's JSON: each takes the reader far more room than the file."""
MAX_DEPTH = 100


def read_notebook(path: str, text: str, assignment: dict[str, Any]) -> tuple[list[Cell], list[str]]:
    """Read a submission's text: its cells, and what is unusual about them.

    Args:
        path: For the messages.
        text: What the file holds.
        assignment: The assignment as plain data.

    Raises:
        SubmissionFault: It cannot be graded.
    """
    try:
        notebook = _notebook_of(text)
        expected = [grade_id(cell) for cell in assignment["cells"] if marked(cell, "grade")]
        if not set(expected) & {grade_id(cell) for cell in notebook.cells if marked(cell, "grade")}:
            raise SubmissionFault(
                "has none of the assignment's graded cells. Is it a different notebook? Ask for "
                "the released one, filled in."
            )
    except SubmissionFault as fault:
        raise SubmissionFault(f"{path}: {fault}") from None
    known = [grade_id(cell) for cell in assignment["cells"]]
    notes = _oddities(notebook.cells, known, expected, assignment["released"])
    return notebook.cells, [f"{path}: {note}" for note in notes]


def _notebook_of(text: str) -> NotebookNode:
    """A file's text as a notebook that nbformat takes.

    Raises:
        SubmissionFault: It is none; the message goes on after the file's name.
    """
    if (count := values_in(text)) > MAX_VALUES:
        raise SubmissionFault(
            f"holds up to {count:,} values, but at most {MAX_VALUES:,} are read. Ask for it with "
            "outputs and widget state cleared."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # cell ids missing or doubled: nbformat repairs them
            if odd := _no_notebook(json.loads(text)):
                raise SubmissionFault(f"{odd}. Ask the student to save it with Jupyter.")
            notebook = nbformat.reads(_without_early_ids(text), as_version=4)
            if len(notebook.cells) > MAX_CELLS:
                raise SubmissionFault(
                    f"holds {len(notebook.cells):,} cells; at most {MAX_CELLS:,} are run."
                )
            if odd := unwritable(_without_stored_outputs(notebook)):
                raise SubmissionFault(f"holds {odd}. Ask the student to save it with Jupyter.")
            nbformat.validate(notebook)
            json.dumps(notebook, ensure_ascii=False).encode()
    except SubmissionFault:
        raise
    except UnicodeEncodeError:
        raise SubmissionFault(
            "holds half of a character (a lone surrogate), which no file can hold. Ask the "
            "student to save it with Jupyter."
        ) from None
    except (nbformat.reader.NotJSONError, UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise SubmissionFault(
            "is not valid JSON: it was cut off or edited. Ask for a fresh upload."
        ) from None
    except Exception as problem:
        reason = shown((str(problem) or type(problem).__name__).splitlines()[0], 120)
        words = f"is not a notebook ({reason}). Ask the student to save it with Jupyter."
        raise SubmissionFault(words) from None
    return notebook


def _no_notebook(document: Any) -> str:
    """Why a document of JSON is no notebook, in words; empty if it may be one."""
    if not isinstance(document, dict):
        kind = {list: "a list", str: "a text"}.get(type(document), "a single value")
        return f"holds {kind} where a notebook is expected"
    version = document.get("nbformat")
    if type(version) is not int:
        return f"has nbformat {version!r:.40}, but it should be the number 4"
    return ""


def _without_stored_outputs(notebook: dict[str, Any]) -> dict[str, Any]:
    """Stored outputs earn nothing: only those of cells that are not run are shown, cut to size."""
    cells = [{k: v for k, v in cell.items() if k != "outputs"} for cell in notebook["cells"]]
    return {**notebook, "cells": cells}


def values_in(text: str) -> int:
    """How many values a text of JSON holds at most, found without reading it."""
    return sum(map(text.count, ",[{"))


def _without_early_ids(text: str) -> str:
    """The text without cell ids where its own version, before 4.5, has none.

    Some editors write them anyway, and stock nbgrader does not mind.
    """
    if '"id"' not in text:
        return text
    notebook = json.loads(text)
    if notebook.get("nbformat") == 4 and notebook.get("nbformat_minor", 5) < 5:
        for cell in notebook["cells"]:
            cell.pop("id", None)
        return json.dumps(notebook)
    return text


def unwritable(data: Any) -> str:
    """What plain data holds that cannot be written and read again, in words; empty without it."""
    waiting = [(data, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_DEPTH:
            return f"lists or objects more than {MAX_DEPTH} deep"
        if isinstance(value, dict):
            waiting += [(inner, depth + 1) for inner in value.values()]
        elif isinstance(value, list):
            waiting += [(inner, depth + 1) for inner in value]
        elif isinstance(value, float) and not math.isfinite(value):
            return f"the number {value}, which JSON does not know"
    return ""


def _oddities(
    cells: list[Cell], known: list[str], expected: list[str], released: dict[str, str]
) -> list[str]:
    """Notes on the assignment's own cells; an id that the student made up means nothing."""
    notes = []
    by_id = {grade_id(cell): cell for cell in cells if grade_id(cell)}
    counts = Counter(grade_id(cell) for cell in cells)
    for id, count in counts.items():
        if count > 1 and id in known:
            judged = marked(by_id[id], "grade")
            what = "the last one counts" if judged else "a check judges the last one above it"
            notes.append(f"cell '{id}' occurs {count} times; {what}. Look at it.")
    for id in expected:
        if id not in by_id:
            notes.append(f"cell '{id}' was deleted; it was restored and graded. Tell the student.")
        elif (
            id in released
            and as_read(by_id[id]["source"]) != as_read(released[id])
            and not marked(by_id[id], "solution")
        ):
            notes.append(f"check cell '{id}' was edited; the original was graded. Look at it.")
    return notes
