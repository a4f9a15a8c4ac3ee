"""The notebooks as students get them: no solutions, no outputs.

A clone has them in notebooks/, a package made of it inside this package (setup.py puts them there).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FOLDERS = (HERE / "notebooks", HERE.parent / "notebooks")


@cache
def released() -> dict[str, Path]:
    """The released notebooks by name, in the order of the course.

    Raises:
        FileNotFoundError: There are none: the installation is not whole.
    """
    for folder in FOLDERS:
        if found := sorted(folder.glob("*.ipynb")):
            return {path.stem: path for path in found}
    raise FileNotFoundError(
        f"No notebooks in {FOLDERS[0]} or {FOLDERS[1]}: this installation is not whole. Install "
        "the course again."
    )


def is_chapter(name: str) -> bool:
    """Whether a notebook is a chapter, with exercises and points; the gallery of widgets is not.

    >>> [is_chapter(name) for name in ("03a-training-recipe", "gallery")]
    [True, False]
    """
    return name[:1].isdigit()


@dataclass(frozen=True)
class Cell:
    """One cell of a notebook."""

    id: str
    kind: str
    """`code`, `markdown` or `raw`."""
    source: str
    nbgrader: dict[str, Any]
    """nbgrader's metadata; empty for an ordinary cell."""


def cells_of(notebook: Path | str) -> list[Cell]:
    """The cells of a notebook, given as a file or as its text.

    Raises:
        ValueError: It is not a notebook.
    """
    text = notebook if isinstance(notebook, str) else notebook.read_text("utf-8")
    try:
        return list(_cells(json.loads(text)["cells"]))
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        name = "The text" if isinstance(notebook, str) else f"{notebook}"
        raise ValueError(f"{name} is not a notebook ({type(fault).__name__}: {fault}).") from None


def _cells(raw: list[dict[str, Any]]) -> Iterator[Cell]:
    for cell in raw:
        source = cell.get("source", "")
        source = source if isinstance(source, str) else "".join(source)
        graded = cell.get("metadata", {}).get("nbgrader", {})
        yield Cell(str(cell.get("id", "")), cell["cell_type"], source, graded)
