"""What an exercise is: one object that says everything about it, so that seventy read alike.

    EXERCISE = Exercise(
        id="03a.clip", title=..., source=..., minutes=10,
        signature="clip_by_global_norm(parameters, max_norm)",
        parts=(Part("above", "a norm above the ceiling", points=1), ...),
        reference=..., draw=..., run=..., wrong=(Wrong(...), ...), right=(...),
    )

The road of one question: the referee `draw`s a case from a seed (plain data), `run` calls a
function on it and reports plain data back (in the student's process for the student's function, in
the referee's for the reference), and the referee compares the two answers. `wrong` holds the known
misconceptions as functions: an answer equal to a wrong one's on the same cases is told which
misconception it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

Case = dict[str, Any]
"""A case as plain data: tensors on the CPU, numbers, strings, and lists and dicts of them."""
Answer = dict[str, Any]
"""What a function did with a case, by field: again plain data."""


class AnswerError(Exception):
    """The student's function gave something that cannot be an answer; the message teaches."""


class NotAllowedError(Exception):
    """The student's function called what the exercise asks to write by hand."""


@dataclass(frozen=True)
class Part:
    """A separately paid property of the right answer."""

    key: str
    """Handed to `draw`, which makes cases that test this property."""
    title: str
    """In the student's words, as `a shorter last micro-batch`."""
    points: float
    """Paid when every case of the part is answered right."""
    hidden: bool = False
    """Paid only where `check(..., parts="hidden")` stands, in a hidden check."""
    cases: int = 2
    """How many cases are drawn."""
    fields: tuple[str, ...] = ()
    """Fields of the answer that this part looks at; none named: all of them."""


@dataclass(frozen=True)
class Wrong:
    """A known misconception: a function that shows it, and what to say to who has it."""

    name: str
    """Short and stable, for the class table: `last-micro-batch-only`."""
    function: Callable[..., Any]
    message: str
    """Names what happened and what to do instead, in the lecture's words."""


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One exercise. `id`, `title` and `source` are literals: they are listed without an import."""

    id: str
    title: str
    source: str
    minutes: int
    """How long a student needs."""
    signature: str
    """What the student writes, as `accumulate(model, micro_batches, criterion, optimizer)`."""
    parts: tuple[Part, ...]
    reference: Callable[..., Any]
    """The right answer: a function of `course`, adapted to the student's signature."""
    draw: Callable[[Draw, str], Case]
    """A case for a part's key, from a seeded source of numbers."""
    run: Callable[[Callable[..., Any], Case, torch.device], Answer]
    """Build from the case what the function wants, call it, report what it did."""
    says: Mapping[str, str] = field(default_factory=dict)
    """How a field is called in a message: `{"loss": "the returned loss"}`."""
    by_hand: tuple[Callable[..., Any], ...] = ()
    """Functions that the student must not call here, besides the reference."""
    wrong: tuple[Wrong, ...]
    right: tuple[Callable[..., Any], ...]
    """Differently written right answers, which tests put through the same check."""
    tolerance: Mapping[torch.dtype, tuple[float, float]] = field(default_factory=dict)
    """(rtol, atol) by dtype where the usual ones do not fit."""

    @property
    def name(self) -> str:
        """Name of the student's function."""
        return self.signature.partition("(")[0]

    @property
    def points(self) -> float:
        """Full marks."""
        return sum(part.points for part in self.parts)

    def cases(self, part: Part, seed: int) -> list[Case]:
        """The part's cases for a seed; the same seed gives the same cases on every machine."""
        source = Draw(seed, f"{self.id}/{part.key}")
        cases = []
        for source.index in range(part.cases):
            cases.append(self.draw(source, part.key))
        return cases


class Draw:
    """A seeded source of plain numbers for cases: on the CPU, so that a GPU draws the same."""

    def __init__(self, seed: int, stream: str) -> None:
        mixed = seed
        for letter in stream.encode():  # no hash(): it differs from process to process
            mixed = (mixed * 1_000_003 + letter) % (2**63 - 1)
        self.generator = torch.Generator().manual_seed(mixed)
        self.index = 0
        """Number of the case in its part, for parts whose cases alternate."""

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Standard normal float32 numbers times `scale`."""
        return scale * torch.randn(shape, generator=self.generator)

    def integers(self, high: int, *shape: int) -> Tensor:
        """Integers from 0 up to, not including, `high`; long."""
        return torch.randint(high, shape, generator=self.generator)

    def integer(self, low: int, high: int) -> int:
        """One integer from `low` to `high`, both included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def choice(self, options: Sequence[Any]) -> Any:
        """One of the options."""
        return options[self.integer(0, len(options) - 1)]

    def uniform(self, low: float, high: float) -> float:
        """One number between `low` and `high`."""
        return low + (high - low) * float(torch.rand((), generator=self.generator))


def as_number(value: Any, what: str) -> float:
    """A number that a student's function returned, also as a one-element tensor.

    Raises:
        AnswerError: It is None, or nothing that stands for one number.
    """
    if value is None:
        raise AnswerError(f"It returned None where {what} was expected: is there a return?")
    if isinstance(value, Tensor):
        if value.numel() != 1:
            shape = list(value.shape)
            raise AnswerError(f"It returned a tensor of shape {shape}; {what} is one number.")
        return value.item()
    if isinstance(value, (str, bytes)):  # float() would read one
        text = f"{value!r}"[:40]
        raise AnswerError(
            f"It returned the text {text}; {what} is a number: return it unformatted."
        )
    try:
        return float(value)
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise AnswerError(f"It returned a {kind}; {what} is a number.") from None


def as_numbers(value: Any, name: str, what: str, *, hint: str = "") -> list[float]:
    """Numbers that a student's function returned: a list, a tuple, a 1-d tensor or array.

    Args:
        value: What came back.
        name: How the exercise calls the list, as `lrs`.
        what: What is in it, as `the losses, one a step`.
        hint: How a list may come to be in the list.

    Raises:
        AnswerError: It is no such list, or an entry is no number.
    """
    if isinstance(value, (Tensor, np.ndarray)):
        if value.ndim != 1:
            shape = list(value.shape)
            raise AnswerError(f"Return the list of {what}; what came back has the shape {shape}.")
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        kind = type(value).__name__
        raise AnswerError(f"Return the list of {what}; what came back was a {kind}.")
    return [_entry(entry, f"entry {i} of {name}", hint) for i, entry in enumerate(value)]


def _entry(entry: Any, where: str, hint: str) -> float:
    try:
        return as_number(entry, where)
    except AnswerError:
        hint = f"; {hint}" if hint and isinstance(entry, list) else ""
        kind = type(entry).__name__
        raise AnswerError(f"{where} is a {kind}, and should be a number{hint}.") from None


def seen(value: Any) -> str:
    """What came back in place of a dictionary with certain keys, as the end of a message."""
    if isinstance(value, dict):
        keys = ", ".join(f"{key!r}"[:30] for key in list(value)[:6])
        return f"what came back has the keys {keys}." if keys else "what came back was empty."
    return f"what came back was a {type(value).__name__}."
