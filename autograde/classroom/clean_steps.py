"""Cleaning students' work as a step of nbgrader and nbconvert, for stock commands and pages.

A class directory's nbgrader_config.py names it by its path, so formgrader cleans once more what it
shows, and `nbgrader autograde` cleans what it writes.
"""

from __future__ import annotations

from nbformat import NotebookNode, from_dict
from nbgrader.preprocessors import NbGraderPreprocessor

from autograde.classroom.cells import marked
from autograde.classroom.clean import clean_notebook, clean_output
from autograde.classroom.safe_html import sanitize_part


def clean_html(element: str | bytes) -> str:
    """In the place of nbconvert's filter of this name, which shows the tags of a paragraph or a
    heading as text, and leaves a table's cells without their style."""
    return sanitize_part(element.decode() if isinstance(element, bytes) else str(element))


class CleanWork(NbGraderPreprocessor):
    """Cleans a student's notebook: sources of cells that aren't locked, and every output."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """Clean it in place. Locked cells are the assignment's: nbgrader has restored them."""
        given = {cell.source for cell in nb.cells if is_locked(cell)}
        clean_notebook(nb.cells, nb.metadata, given, all_headings=False)
        if self.parent is not None and self.parent.has_trait("exclude_anchor_links"):
            # Of an exporter of pages: else a heading's words are its id, and formgrader puts what
            # is typed, or clicked, where the first element with a cell's name as its id stands.
            self.parent.exclude_anchor_links = True
        for cell in nb.cells:
            if cell.cell_type == "code":
                cell.outputs = [from_dict(clean_output(output)) for output in cell.outputs]
        return nb, resources


def is_locked(cell: NotebookNode) -> bool:
    """Whether nbgrader puts the released source in the place of a student's."""
    return marked(cell, "locked") and not marked(cell, "solution")
