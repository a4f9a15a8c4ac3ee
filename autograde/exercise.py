"""What an exercise is: one object that says everything about it, so that all of them read alike.

    EXERCISE = Exercise(
        id="03a.clip", title=..., source=..., ledger=("N20",), minutes=10, difficulty=2,
        read=("course.engine.clip_by_global_norm",), hints=(..., ..., ...),
        signature="clip_by_global_norm(parameters, max_norm)",
        parts=(Part("above", "a norm above the ceiling", points=1), ...),
        reference=..., draw=..., run=..., wrong=(Wrong(...), ...), right=(...),
    )

The road of one question: the referee `draw`s a case from a seed (plain data), `run` calls a
function on it and reports plain data back (in the student's process for the student's function, in
the referee's for the reference), and the referee reads the two answers (`scored`, if there is a
score) and compares them. `wrong` holds the known misconceptions as functions: an answer equal to a
wrong one's on the same cases is told which misconception it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autograde.apart import by_itself

Case = dict[str, Any]
"""A case as plain data: tensors on the CPU, numbers, strings, and lists and dicts of them."""
KINDS = ("function", "class", "fix", "number", "choice", "choices", "order", "tune", "write")
"""What an exercise can ask for."""
Answer = dict[str, Any]
"""What a function did with a case, by field: again plain data."""


class AnswerError(Exception):
    """The student's function returned something that cannot be an answer; the message explains."""


class NotAllowedError(Exception):
    """The student's function called what the exercise asks to write by hand."""


@dataclass(frozen=True)
class Part:
    """A property of the right answer that earns its own points."""

    key: str
    """Passed to `draw`, which makes cases that test this property."""
    title: str
    """In the student's words, e.g. `a shorter last micro-batch`."""
    points: float
    """Earned if every case of the part is answered right."""
    hidden: bool = False
    """Paid only where `check(..., parts="hidden")` stands, in a hidden check."""
    cases: int = 2
    """How many cases are drawn."""
    fields: tuple[str, ...] = ()
    """Fields of the answer that this part looks at; none named: all of them."""


@dataclass(frozen=True)
class Wrong:
    """A known wrong answer: a function that makes the mistake, and what to say about it."""

    name: str
    """Short and stable, for the class table: `last-micro-batch-only`.

    Several functions may share a name, if what it says is true of all of them: `never-moves`.
    """
    function: Callable[..., Any]
    message: str = ""
    """What was observed and what to do instead, in the lecture's words.

    Empty: the mistake is refused, and never named, since others leave the same trace.
    """
    raises: str = ""
    """Regular expression for `Type: text` of the exception that this mistake alone raises.

    Without one an exception names no misconception: many mistakes raise the same.
    """
    sure: bool = False
    """Whether its trace is proof in a single case, and where the values are 0, nan or nothing."""


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One exercise.

    `id`, `title`, `source`, `kind` and `ledger` are literals: they are listed without an import.
    """

    id: str
    title: str
    source: str
    """Where the lecture says it."""
    kind: str = "function"
    """One of KINDS."""
    ledger: tuple[str, ...]
    """Ids of the lecture's ledger that the exercise covers."""
    minutes: int
    """How long a student needs."""
    difficulty: int
    """1, 2 or 3, shown as dots."""
    read: tuple[str, ...]
    """What to read: a lecture part, a `course` name, the id of a claim or a worked number."""
    hints: tuple[str, str, str]
    """From where to look to almost the answer; none is a misconception's message."""
    signature: str
    """What the student writes, e.g. `accumulate(model, micro_batches, criterion, optimizer)`."""
    parts: tuple[Part, ...]
    reference: Callable[..., Any]
    """The right answer: a function of `course`, adapted to the student's signature."""
    draw: Callable[[Draw, str], Case]
    """A case for a part's key, from a seeded source of numbers."""
    run: Callable[[Callable[..., Any], Case, torch.device], Answer]
    """Build from the case what the function expects, call it, report what it did."""
    scored: Callable[[Answer, Case], Answer] | None = None
    """What the referee makes of the answer to a case before it compares: a score that only the case
    tells, which nothing in a student's process can then change."""
    says: Mapping[str, str] = field(default_factory=dict)
    """How a field is called in a message: `{"loss": "the returned loss"}`."""
    by_hand: tuple[Callable[..., Any] | str, ...] = ()
    """Functions other than the reference that the student must not call here; a text is a module,
    all of whose functions are meant, and which need not be there."""
    may_use: tuple[str, ...] = ()
    """Packages and modules of `course` that the statement allows, though the reference is made of
    them."""
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
    def arguments(self) -> list[str]:
        """Names of the arguments of the student's function, in order."""
        inside = self.signature.partition("(")[2].rpartition(")")[0]
        return [name.strip() for name in inside.split(",") if name.strip()]

    @property
    def points(self) -> float:
        """Full marks."""
        return sum(part.points for part in self.parts)

    def cases(self, part: Part, seed: int, *, slack: int | None = None) -> list[Case]:
        """The part's cases for a seed; the same seed gives the same cases on every machine.

        `slack` asks for small ones, see `Draw`.
        """
        source = Draw(seed, f"{self.id}/{part.key}", slack=slack)
        cases = []
        for source.index in range(part.cases):
            cases.append(self.draw(source, part.key))
        return cases


class Draw:
    """A seeded source of plain numbers for cases: on the CPU, so that a GPU draws the same.

    Args:
        seed: The same seed gives the same numbers on every machine.
        stream: Keeps exercises and parts apart.
        slack: None for cases of the usual size. A whole number asks for a small case to be read by
            a student: sizes at most `slack` above their lower end, values of one decimal.
    """

    def __init__(self, seed: int, stream: str, *, slack: int | None = None) -> None:
        mixed = seed
        for letter in stream.encode():  # no hash(): it differs from process to process
            mixed = (mixed * 1_000_003 + letter) % (2**63 - 1)
        self.generator = torch.Generator().manual_seed(mixed)
        self.slack = slack
        self.index = 0
        """Number of the case in its part, for parts whose cases alternate."""

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Standard normal float32 numbers times `scale`."""
        drawn = scale * torch.randn(shape, generator=self.generator)
        return drawn if self.slack is None else (10 * drawn).round() / 10

    def integers(self, high: int, *shape: int) -> Tensor:
        """Integers from 0 up to, not including, `high`; long."""
        return torch.randint(high, shape, generator=self.generator)

    def integer(self, low: int, high: int) -> int:
        """A size: one integer from `low` to `high`, both included; near `low` in a small case."""
        if self.slack is not None:
            high = min(high, low + self.slack)
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def choice(self, options: Sequence[Any]) -> Any:
        """Draw one of the options."""
        return options[int(self.integers(len(options)))]

    def shuffled(self, items: Sequence[Any]) -> list[Any]:
        """The items in another order."""
        return [items[i] for i in torch.randperm(len(items), generator=self.generator).tolist()]

    def uniform(self, low: float, high: float) -> float:
        """One number between `low` and `high`."""
        number = low + (high - low) * float(torch.rand((), generator=self.generator))
        return number if self.slack is None else max(low, min(round(number, 2), high))


UNFIT = "__unfit__"
"""Key of a field of an answer that has the wrong kind; its value says why."""


def those_of(owner: Any, *names: str) -> tuple[Callable[..., Any], ...]:
    """Functions of a module that not every version of it has, where this one has them."""
    return tuple(getattr(owner, name) for name in names if hasattr(owner, name))


def kept(read: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A field of an answer, or what is wrong with it: one bad field costs only its own parts.

    `kept(as_number, returned, "the mean loss")` is the number, or `{UNFIT: "It returned ..."}`.
    """
    try:
        return read(*args, **kwargs)
    except AnswerError as fault:
        return {UNFIT: str(fault)}


def as_number(value: Any, what: str) -> float:
    """A number that a student's function returned: a float, an int, or one element of a tensor.

    Raises:
        AnswerError: It is None, not one number, or a tensor that still holds a graph.
    """
    if value is None:
        raise AnswerError(f"It returned None, but {what} was expected: is there a return?")
    if isinstance(value, Tensor):
        if value.numel() != 1:
            shape = list(value.shape)
            raise AnswerError(
                f"It returned a tensor of shape {shape}, but {what} should be one number."
            )
        if value.requires_grad:
            raise AnswerError(
                f"It returned a tensor that still holds its graph, and thus its memory; {what} "
                "should be a number: use .item() or .detach()."
            )
        value = value.item()
    elif isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if isinstance(value, (str, bytes)):  # float() would read one
        text = f"{value!r}"[:40]
        raise AnswerError(
            f"It returned the string {text}, but {what} should be a number: return it unformatted."
        )
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return float(value) if type(value) in (int, float) else by_itself(float, value)
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise AnswerError(f"It returned a {kind}, but {what} should be a number.") from None


def as_attribute(owner: Any, name: str) -> float:
    """A number that a student's object holds under a name.

    Raises:
        AnswerError: There is no such attribute, or it is not a number.
    """
    value = getattr(owner, name, None)
    if value is None:
        has = f"the attribute {name} of your object is None"
        has = has if hasattr(owner, name) else f"your object has no attribute {name}"
        raise AnswerError(f"{has[0].upper()}{has[1:]}; set self.{name} to a number.")
    try:
        return as_number(value, f"self.{name}")
    except AnswerError as fault:
        text = str(fault).replace("It returned", f"self.{name} is", 1)
        raise AnswerError(text) from None


def as_index(value: Any, what: str) -> int:
    """A whole number that a student's function returned: an int, or one element of a tensor.

    Raises:
        AnswerError: It is not a number, or a float.
    """
    number = as_number(value, what)
    if isinstance(value, (float, np.floating)) or (
        isinstance(value, Tensor) and value.is_floating_point()
    ):
        raise AnswerError(
            f"It returned {number:g}, a float, but {what} should be a whole number, an int."
        )
    return int(number)


def as_numbers(value: Any, name: str, what: str, *, hint: str = "") -> list[float]:
    """Numbers that a student's function returned: a list, a tuple, a 1-d tensor or array.

    Args:
        value: What came back.
        name: How the exercise calls the list, e.g. `lrs`.
        what: What is in it, e.g. `the losses, one per step`.
        hint: How a list may come to be in the list.

    Raises:
        AnswerError: It is not such a list, or an entry is not a number.
    """
    if isinstance(value, (Tensor, np.ndarray)):
        if value.ndim != 1:
            shape = list(value.shape)
            raise AnswerError(f"Return the list of {what}; yours has the shape {shape}.")
        if getattr(value, "requires_grad", False):
            raise AnswerError(f"Return the list of {what}; yours still holds a graph.")
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        kind = type(value).__name__
        raise AnswerError(f"Return the list of {what}; you returned a {kind}.")
    return [_entry(entry, f"entry {i} of {name}", hint) for i, entry in enumerate(value)]


def _entry(entry: Any, where: str, hint: str) -> float:
    try:
        return as_number(entry, where)
    except AnswerError as fault:
        if isinstance(entry, Tensor) and entry.requires_grad:
            raise AnswerError(f"{where} still holds its graph: use .item() or .detach().") from None
        if not isinstance(entry, (list, tuple)):
            raise AnswerError(f"{where}: {fault}") from None
        hint = f"; {hint}" if hint else ""
        kind = type(entry).__name__
        raise AnswerError(f"{where} is a {kind}, but should be a number{hint}.") from None


def kept_entries(
    returned: Any, wanted: Mapping[str, tuple[Callable[..., Any], str]]
) -> dict[str, Any]:
    """The entries of a dictionary that a student's function returned, each read and kept.

    `kept_entries(returned, {"loss": (as_number, "the mean loss")})`: one missing or of the wrong
    kind costs only its own parts.
    """
    return {
        key: kept(
            lambda key=key, read=read, what=what: read(_entry_of(returned, key, wanted), what)
        )
        for key, (read, what) in wanted.items()
    }


def _entry_of(returned: Any, key: str, wanted: Mapping[str, Any]) -> Any:
    if isinstance(returned, dict) and key in returned:
        return returned[key]
    *most, last = (repr(name) for name in wanted)
    named = f"{', '.join(most)} and {last}" if most else last
    raise AnswerError(f"Return a dictionary with the keys {named}; {seen(returned)}")


def as_text(value: Any, what: str) -> str:
    """A text that a student's function returned.

    Raises:
        AnswerError: It is something else.
    """
    if isinstance(value, str):
        return value
    raise AnswerError(f"It returned a {type(value).__name__}, but {what} should be a string.")


def pair(returned: Any, what: str) -> tuple[Any, Any]:
    """The two things that a student's function returned.

    Raises:
        AnswerError: It did not return two things.
    """
    if isinstance(returned, (tuple, list)) and len(returned) == 2:
        return returned[0], returned[1]
    kind = type(returned).__name__
    if isinstance(returned, (tuple, list)):
        kind = f"{kind} of {len(returned)}"
    raise AnswerError(f"Return two things, {what}; you returned a {kind}.")


def seen(value: Any) -> str:
    """What came back instead of a dictionary with certain keys, to end a message."""
    if isinstance(value, dict):
        keys = ", ".join(f"{key!r}"[:30] for key in list(value)[:6])
        return f"yours has the keys {keys}." if keys else "yours is empty."
    return f"you returned a {type(value).__name__}."
