"""Make a submission's cells match the assignment's, whatever happened to them on the way.

A cell counts under the grade_id that the assignment gave it, the last one where there are several;
its type, points and flags are the assignment's, and so is the source of a locked one; missing check
cells and written answers are put back in their order. The process that runs the cells and the one
that writes the gradebook both do this, and so see the same notebook.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Cell = dict[str, Any]


def read_cells(path: Path) -> list[Cell]:
    """The cells of a notebook of the class directory's own, as nbformat reads them.

    Of one in today's format, as our commands and Jupyter write it, without nbformat: a tenth of a
    second to import and to compile its schema.
    """
    try:
        document = json.loads(path.read_text("utf-8"))
    except ValueError:
        document = None
    if not _is_of_today(document):
        import nbformat

        return nbformat.read(path, as_version=4).cells
    for cell in document["cells"]:
        if isinstance(cell["source"], list):
            cell["source"] = "".join(cell["source"])
    return document["cells"]


def _is_of_today(document: Any) -> bool:
    """Whether it needs no conversion and no repair; what is not clear is for nbformat to judge."""
    if not isinstance(document, dict) or document.get("nbformat") != 4:
        return False
    cells, minor = document.get("cells"), document.get("nbformat_minor")
    wanted = {"cell_type": str, "metadata": dict, "source": (str, list)}
    wanted |= {"id": str} if minor != 4 else {}
    return (
        minor in (4, 5)
        and isinstance(cells, list)
        and all(isinstance(cell, dict) for cell in cells)
        and all(isinstance(cell.get(key), kind) for cell in cells for key, kind in wanted.items())
    )


def grade_id(cell: Mapping[str, Any]) -> str | None:
    """nbgrader's name for a cell; None for an ordinary one."""
    marks = cell["metadata"].get("nbgrader")
    id = marks.get("grade_id") if isinstance(marks, dict) else None
    return id if isinstance(id, str) and id else None


def marked(cell: Mapping[str, Any], mark: str) -> bool:
    """Whether nbgrader's metadata set `grade`, `solution` or `locked`."""
    marks = cell["metadata"].get("nbgrader")
    return isinstance(marks, dict) and bool(marks.get(mark))


def is_check(cell: Mapping[str, Any]) -> bool:
    """A graded cell that a referee answers."""
    return cell["cell_type"] == "code" and marked(cell, "grade") and not marked(cell, "solution")


def as_read(source: str) -> str:
    """Without the blanks that editors add or remove at the ends of lines and cells."""
    return "\n".join(line.rstrip() for line in source.strip().splitlines())


def restore(cells: list[Cell], assigned: list[Cell]) -> None:
    """Set the cells' metadata, then insert missing cells after those that come before them.

    Args:
        cells: Of a submission; changed in place.
        assigned: The assignment's cells that have a grade_id, in their order.
    """
    known = {grade_id(cell): cell for cell in assigned}
    place: dict[str, int] = {}
    for i, cell in reversed(list(enumerate(cells))):
        id = grade_id(cell)
        cell["metadata"].pop("nbgrader", None)
        if id in known and id not in place:
            _make_like(cell, known[id])
            place[id] = i
    after = -1
    for cell in assigned:
        id = grade_id(cell)
        if id in place:
            after = place[id]
        elif marked(cell, "grade"):
            after += 1
            cells.insert(after, _without_answer(cell))
            place = {key: i + (i >= after) for key, i in place.items()} | {id: after}


def _make_like(cell: Cell, known: Cell) -> None:
    cell["metadata"]["nbgrader"] = copy.deepcopy(known["metadata"]["nbgrader"])
    if cell["cell_type"] != known["cell_type"]:
        cell["cell_type"] = known["cell_type"]
        for name in ("outputs", "execution_count", "attachments"):
            cell.pop(name, None)
        if known["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
    if _is_locked(known):
        cell["source"] = known["source"]


def _is_locked(cell: Cell) -> bool:
    """As nbgrader sees it: a check is locked, a solution is not, whatever its flag says."""
    return not marked(cell, "solution") and (marked(cell, "grade") or marked(cell, "locked"))


def _without_answer(cell: Cell) -> Cell:
    cell = copy.deepcopy(cell)
    if marked(cell, "solution"):  # a written answer: empty, not ours
        cell["source"] = "YOUR ANSWER HERE"
    return cell
