"""What a person has graded stays graded as long as the work they looked at is the same.

nbgrader keeps a manual score through a regrade, but every time asks to look at it again. Here it
asks only if the work has changed: the text of a written answer; for a check whose points a person
overrode, the code up to it, or the points that it gets by itself.

What was looked at is known twice: from the notebook in autograded/, which is the one that
formgrader shows, and from the verdict of the last grading that was written to its end. Both must
be as the new notebook, so a write that was killed half-way cannot settle what nobody has seen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from nbformat import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.preprocessors import SaveAutoGrades
from nbgrader.utils import compute_checksum, determine_grade, is_task

from autograde.classroom.cells import Cell, grade_id, marked
from autograde.classroom.verdicts import verdict_path


def looked_at(cells: Iterable[Cell]) -> dict[str, str]:
    """A hash of what a person looks at to grade a cell, by grade_id."""
    code = hashlib.sha256()
    found = {}
    for cell in cells:
        id = grade_id(cell)
        text = "".join(cell["source"])  # on the disk, a list of lines
        pictures = json.dumps(cell.get("attachments") or {}, sort_keys=True)
        source = (text + "\0" + pictures).encode("utf-8", "surrogatepass")
        if cell["cell_type"] == "code":
            code.update(source + b"\0")
        if id and marked(cell, "grade"):
            own = hashlib.sha256(source) if marked(cell, "solution") else code
            found[id] = own.hexdigest()
    return found


def looked_at_before(folder: Path, assignment: str, student: str) -> dict[str, str]:
    """What was looked at in the grading before this one; a cell that is not known is left out.

    Args:
        folder: A class directory, absolute.
        assignment: Its name.
        student: Whose.
    """
    written = noted(folder, assignment, student)
    path = folder / "autograded" / student / assignment / f"{assignment}.ipynb"
    try:
        shown = looked_at(_read(path)["cells"]) if path.exists() else written
    except (KeyError, TypeError, AttributeError):  # somebody's own work in autograded/
        shown = {}
    return {id: seen for id, seen in written.items() if shown.get(id) == seen}


def noted(folder: Path, assignment: str, student: str) -> dict[str, str]:
    """What was looked at as the verdict of the last whole grading has it; nothing without one."""
    return _read(verdict_path(folder, assignment, student)).get("looked_at", {})


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


class SaveGrades(SaveAutoGrades):
    """Takes the place of SaveAutoGrades: asks for a person only where there is something new."""

    before: ClassVar[dict[str, str]] = {}
    """What was looked at before; set for each submission, as config is copied a lot."""
    now: ClassVar[dict[str, str]] = {}
    """What there is to look at now; read when nbgrader is done."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """Save the points of each graded cell, and whether there is anything to comment on.

        Stock commits once a cell. Here a kill leaves all as it was, or all of it new, and a disk is
        waited for once.
        """
        SaveGrades.now = looked_at(nb.cells)
        about = resources["nbgrader"]
        self.notebook_id, self.assignment_id = about["notebook"], about["assignment"]
        self.student_id = about["student"]
        with Gradebook(about["db_url"]) as self.gradebook:
            with self.gradebook.db.no_autoflush:  # no lookup asks for what is set here
                for number, cell in enumerate(nb.cells):
                    self.preprocess_cell(cell, resources, number)
            self.gradebook.db.commit()
        return nb, resources

    def _add_score(self, cell: NotebookNode, resources: dict) -> None:
        id = grade_id(cell)
        grade = self.gradebook.find_grade(id, self.notebook_id, self.assignment_id, self.student_id)
        points, _ = determine_grade(cell, self.log)
        by_hand = grade.manual_score is not None
        settled = (
            by_hand
            and not grade.needs_manual_grade
            and points == grade.auto_score
            and self.before.get(id) == self.now[id]
        )
        grade.auto_score = points
        grade.needs_manual_grade = (by_hand or points is None) and not settled

    def _add_comment(self, cell: NotebookNode, resources: dict) -> None:
        where = self.notebook_id, self.assignment_id, self.student_id
        comment = self.gradebook.find_comment(grade_id(cell), *where)
        as_given = cell.metadata.nbgrader.get("checksum") == compute_checksum(cell)
        comment.auto_comment = "No response." if as_given and not is_task(cell) else None
