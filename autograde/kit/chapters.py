"""What is known about a notebook in addition to its cells: goals, needs, and its guesses.

One TOML file per notebook in about/, read without importing torch:

    goals = ["write the training loop's four stations from memory"]
    needs = ["tensors, modules and autograd (1a, 1b)"]
    running_s = 20            # of all its cells with solutions, measured on 2 cores

    [guess."03a.first-loss"]
    question = "What is the mean loss before the first update, with ten classes?"
    kind = "number"           # or "numbers", or "choice" with options = {rate = "...", ...}
    unit = "nats"             # may be left out
    fraction = true           # of a number from 0 to 1: 10 and "10 %" are read as 0.1
    within = 0.1              # relative: how near counts as close
    decades = 0.5             # instead, of what is compared by ratio: within half a power of ten
    worked = "N10"            # may be left out: the worked table that waits for this guess,
    step = "the loss is multiplied by"      # and the step in it that is the answer
"""

from __future__ import annotations

import difflib
import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from course.catalogue import UnknownIdError

FOLDER = Path(__file__).parent / "about"
KINDS = ("number", "numbers", "choice")


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a student guesses before the answer is shown."""

    id: str
    question: str
    kind: str
    """`number`, `numbers` or `choice`."""
    unit: str = ""
    """Said after a number, e.g. `batches`."""
    fraction: bool = False
    """Whether the answer lies between 0 and 1, so that a guess above 1 is one in per cent."""
    within: float = 0.1
    """A number is close when it differs from the answer by at most this share of it."""
    decades: float = 0.0
    """Instead, of a positive number: close when their ratio is at most so many powers of ten."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of a choice: key to text, in the order shown."""
    worked: str = ""
    """The worked number whose table waits for this guess."""
    step: str = ""
    """The step of it that is the answer."""

    def __post_init__(self) -> None:
        assert self.kind in KINDS, f"{self.id}: kind '{self.kind}' is not one of {KINDS}"
        assert bool(self.options) == (self.kind == "choice"), f"{self.id}: options and kind"

    @property
    def letters(self) -> dict[str, str]:
        """Of a choice: letter to key."""
        return dict(zip(string.ascii_lowercase, self.options, strict=False))


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """A notebook's frame."""

    name: str
    goals: tuple[str, ...]
    """What you will be able to do, each as a continuation of "you will be able to"."""
    needs: tuple[str, ...]
    """What to know before."""
    running_s: float
    """How long all its cells run with solutions, on 2 cores."""
    guesses: tuple[Question, ...]


@cache
def chapters() -> dict[str, Chapter]:
    """All notebooks' frames by name, in order."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.toml"))}


def _read(path: Path) -> Chapter:
    words = tomllib.loads(path.read_text("utf-8"))
    guesses = tuple(Question(id=id, **about) for id, about in words.pop("guess", {}).items())
    words |= {name: tuple(words[name]) for name in ("goals", "needs")}
    return Chapter(name=path.stem, guesses=guesses, **words)


def questions() -> dict[str, Question]:
    """All guesses that the notebooks ask for, by id."""
    return {asked.id: asked for chapter in chapters().values() for asked in chapter.guesses}


def question(id: str) -> Question:
    """One of them.

    Raises:
        UnknownIdError: No notebook asks for it; the message names the nearest.
    """
    return questions()[_known(id, questions(), "a guess")]


def chapter_named(name: str) -> Chapter:
    """One notebook's frame.

    Raises:
        UnknownIdError: No such notebook; the message names the nearest.
    """
    return chapters()[_known(name, chapters(), "a notebook")]


def _known(id: str, known: Mapping[str, object], what: str) -> str:
    if id in known:
        return id
    near = difflib.get_close_matches(str(id), known, n=3, cutoff=0.3) or list(known)[:3]
    raise UnknownIdError(f"{id!r} is not the id of {what}; the closest ids: {', '.join(near)}.")
