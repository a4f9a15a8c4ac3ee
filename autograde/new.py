"""Skeletons of an exercise and of a notebook, to be filled in: `autograde new-exercise`.

A skeleton is a small exercise (or notebook) that works and passes the tests: replace it line by
line, and it will keep passing.
"""

from __future__ import annotations

import re
from pathlib import Path
from string import Template

from autograde import bank
from autograde.exercise import KINDS

SKELETONS = Path(__file__).parent / "skeletons"
ID = re.compile(r"[0-9]{2}[a-z]?\.[a-z][a-z0-9]*(-[a-z0-9]+)*")
NAME = re.compile(r"[0-9]{2}[a-z]?-[a-z][a-z0-9]*(-[a-z0-9]+)*")


def new_exercise(id: str, kind: str = "function", folder: Path | None = None) -> Path:
    """Write the bank's module of a new exercise.

    Args:
        id: The notebook's number and a name, e.g. `03a.windows`.
        kind: One of KINDS.
        folder: Where modules lie; the bank's own by default.

    Raises:
        ValueError: The id or the kind is not valid, or the exercise already exists.
    """
    folder = folder or Path(bank.__path__[0])
    if kind not in KINDS:
        raise ValueError(f"'{kind}' is not a kind of exercise. Choose from: {', '.join(KINDS)}.")
    if not ID.fullmatch(id):
        raise ValueError(
            f"'{id}' is not an exercise's id: the notebook's number, a dot, and words in small "
            "letters with dashes between them, e.g. 03a.what-next."
        )
    path = folder / f"{id.partition('.')[2].replace('-', '_')}.py"
    if id in bank.catalogue() or path.exists():
        raise ValueError(f"{id} or {path.name} is already in the bank: choose a different name.")
    words = id.partition(".")[2].split("-")
    name = "".join(map(str.capitalize, words)) if kind == "class" else "_".join(words)
    return _write(path, f"{kind}.txt", id=id, title=" ".join(words), name=name)


def new_notebook(name: str, folder: Path | None = None) -> Path:
    """Write the source of a new notebook.

    Args:
        name: e.g. `03c-precision`.
        folder: Where sources lie; notebooks/source by default.

    Raises:
        ValueError: The name is not valid, or the source already exists.
    """
    from autograde.sources import SOURCES

    folder = folder or SOURCES
    if not NAME.fullmatch(name):
        raise ValueError(
            f"'{name}' is not a notebook's name: a number and words in small letters with dashes "
            "between them, e.g. 03c-precision."
        )
    path = folder / f"{name}.py"
    if path.exists():
        raise ValueError(f"{path} already exists.")
    number, _, words = name.partition("-")
    title = f"{number.lstrip('0')} · {words.replace('-', ' ').capitalize()}"
    return _write(path, "notebook.txt", title=title)


def _write(path: Path, skeleton: str, **words: str) -> Path:
    text = Template((SKELETONS / skeleton).read_text("utf-8")).substitute(words)
    path.write_text(text, "utf-8")
    return path
