"""The sources' own texts, where they lie beside the repository; elsewhere a test skips."""

import re
from functools import lru_cache
from pathlib import Path

import pytest

from course.ledger import rows

ROOT = Path(__file__).parents[1]
FILES = {"lecture": "001_", "module": "002_", "chapter": "003_", "essay": "004_"}
"""How each text's file name begins."""


@lru_cache
def raw_text(name: str) -> str:
    """One source as it is: `lecture`, `module`, `chapter` or `essay`."""
    for parent in ROOT.parents:
        for path in (parent / "shared" / "sources").glob(f"{FILES[name]}*.txt"):
            return path.read_text("utf-8")
    pytest.skip("the sources' texts are not part of the repository and not beside it")


def source_text(name: str) -> str:
    """One source with every run of blanks as a single space."""
    return re.sub(r"\s+", " ", raw_text(name))


def passage(source: str, where: str) -> str:
    """The part of a source that a place of the ledger names, with single spaces.

    Args:
        source: `lecture`, `module`, `chapter` or `essay`.
        where: As in the ledger: `c3, one complete step`, `§2`, `lab 5`, `"The loss"`.
    """
    text = source_text(source)
    if source == "chapter":
        number = int(where[1])
        return _between(text, f"Chapter {number}: ", f"Chapter {number + 1}: ")
    if source == "module" and where.startswith("§"):
        number = int(where[1:])
        ends = [f"Section titled “{number + 1}. ", "Section titled “Did You Know"]
        return _between(text, f"Section titled “{number}. ", *ends)
    if source == "module":
        kind, _, number = where.partition(" ")
        assert kind == "lab", where
        return _between(text, f"Section titled “Step {number}: ", f"Section titled “Step {number}0")
    heading = re.fullmatch(r'"([^"]+)".*', where)[1]
    if source == "essay":
        return _between(text, f"# {heading} ", " ## ")
    others = [title for title in _headings() if title != heading]
    return _between(text, heading, *others)


def _between(text: str, start: str, *ends: str) -> str:
    begin = text.index(start)
    after = begin + len(start)
    found = [place for end in ends if (place := text.find(end, after)) >= 0]
    return text[begin : min(found, default=len(text))]


@lru_cache
def _headings() -> tuple[str, ...]:
    """All slides of the lecture that the ledger names."""
    places = (where for row in rows().values() for text, where in row.places if text == "lecture")
    return tuple(sorted({re.search(r'"([^"]+)"', where)[1] for where in places}))
