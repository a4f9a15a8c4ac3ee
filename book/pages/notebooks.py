"""A notebook as it is shown: with the outputs of a run and live widgets, without solutions."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from book.pages.api import written_in
from book.pages.text import frame, linked, raw, spaced
from book.slugs import headings, slug
from course.ledger.homes import module_at
from course.released import released
from course.widgets import catalogue

LIVE = "application/vnd.jupyter.widget-view+json"
FROM = re.compile(r"^from ((?:course|autograde)[\w.]*) import (\([^)]*\)|[^\n(]*)", re.MULTILINE)
CODE_LINK = re.compile(r"\]\(\.\./((?:course|autograde)/[\w/]+)\.py\)")
"""A link to a code file, as written in a notebook of a clone."""


@dataclass
class Shown:
    """A notebook, ready for its page."""

    name: str
    notebook: NotebookNode

    @classmethod
    def read(cls, name: str, ran: Path | None) -> Shown:
        """The notebook after its run, or the released one if it was not run."""
        notebook = nbformat.read(ran or released()[name], as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = [_for_a_page(output) for output in cell.outputs]
            else:
                cell.source = CODE_LINK.sub(_to_reference, cell.source)
            cell.metadata.pop("execution", None)
        if ran is None:
            notebook.cells.insert(1, note_not_run(name))
        notebook.cells += _reference(notebook)
        return cls(name, notebook)

    def cells_of(self, id_: str) -> list[NotebookNode]:
        """The cells of an exercise, from its heading up to its check."""
        cells = self.notebook.cells
        start = self.place_of(id_)
        if start is None:
            return []
        end = start + 1
        while end < len(cells) and not _is_check(cells[end]) and not _is_heading(cells[end]):
            end += 1
        return cells[start:end]

    def place_of(self, id_: str) -> int | None:
        """The number of the cell with the exercise's heading."""
        head = re.compile(rf"\*\*Exercise {re.escape(id_)}\b(?![.-])")
        places = (i for i, cell in enumerate(self.notebook.cells) if head.search(cell.source))
        return next(places, None)

    def place(self, exercise: object) -> int:
        """A key that sorts exercises in the notebook's order."""
        return self.place_of(exercise.id) or 0

    def section_of(self, id_: str) -> str:
        """The address of the heading above an exercise."""
        above = self.notebook.cells[: (self.place_of(id_) or 0) + 1]
        texts = "\n".join(cell.source for cell in above if cell.cell_type == "markdown")
        return slug(headings(texts)[-1]) if headings(texts) else ""

    def statement(self, id_: str) -> str:
        """The statement of the exercise as Markdown: its cells, and the output of `ask`."""
        return "\n\n".join(_as_markdown(self.cells_of(id_)))


def _as_markdown(cells: list[NotebookNode]) -> Iterator[str]:
    for place, cell in enumerate(cells):
        if cell.cell_type == "markdown":
            yield "" if place == 0 and cell.source.count("\n") < 2 else _below_head(cell.source)
        elif shown := [output.data["text/html"] for output in cell.outputs
                       if "text/html" in output.get("data", {})]:  # fmt: skip
            yield raw(linked("".join(shown)))
        else:
            yield f"```python\n{cell.source}\n```"


def _below_head(source: str) -> str:
    """Without the two lines that the page says itself."""
    lines = source.split("\n")
    return "\n".join(lines[2:] if lines[0].startswith("**Exercise") else lines)


def _is_heading(cell: NotebookNode) -> bool:
    return cell.cell_type == "markdown" and bool(headings(cell.source))


def _is_check(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and cell.source.lstrip().startswith("check(")


def _to_reference(found: re.Match[str]) -> str:
    """The same link, to the module's page."""
    return f"](/api/{module_at(found[1])}.rst)"


def _for_a_page(output: NotebookNode) -> NotebookNode:
    """Link ids in tables to their pages; show one of our widgets as its page in a frame.

    For any other widget, keep the picture or the text.
    """
    data = output.get("data", {})
    if "text/html" in data:
        data["text/html"] = spaced(linked(data["text/html"]))
    if LIVE in data:
        del data[LIVE]
        said = data.get("text/plain", "")
        for entry in catalogue().values():
            if said.startswith(f"{entry.title}:"):
                data["text/html"] = frame(entry.id, entry.title)
    return output


def _reference(notebook: NotebookNode) -> list[NotebookNode]:
    """A cell with links to everything of ours that the notebook imports."""
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    links = [f"{{py:obj}}`{name} <{there}>`" for name, there in sorted(imported(code).items())]
    if not links:
        return []
    text = "## The functions of this notebook\n\nIn the reference: " + ", ".join(links) + "."
    return [nbformat.v4.new_markdown_cell(text, id="reference")]


def imported(code: str) -> dict[str, str]:
    """Names that a notebook's code imports from our packages, with their dotted names.

    Lines that are not Python, e.g. of an unfinished answer, are skipped.
    """
    found: dict[str, str] = {}
    for line in FROM.finditer(code):
        module = importlib.import_module(line[1])
        for name in re.findall(r"\w+", re.sub(r"\bas \w+|#.*", "", line[2])):
            there = written_in(module, name) or f"{module.__name__}.{name}"
            if callable(getattr(module, name, None)):
                found[name] = there
    return found


def note_not_run(name: str) -> NotebookNode:
    """The note above a notebook that was not run."""
    text = f"*{name} was not run for this book, so it is shown without outputs.*"
    return nbformat.v4.new_markdown_cell(text, id="not-run")
