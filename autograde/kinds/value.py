"""Exercises whose answer is a value: what a number, a choice and an order have in common.

    ask    -> shown_to(student)                 the question with this student's inputs
    check  -> judge_value(value, student)       the verdict, from the value alone

No student code is called, so there are no cases: the value is read as plain data, and each part is
right or not. If a known misconception gives the wrong value for the same inputs, it is named. The
right value is never shown.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Real
from types import FunctionType
from typing import TYPE_CHECKING, Any

from autograde.answers import BLANK, Raised
from autograde.exercise import AnswerError, Draw, Exercise, Wrong
from autograde.kit.student import current, plain_name
from autograde.lines import wrapped
from autograde.plain import MAX_INT_BITS
from autograde.reported import in_own_words, on_a_line, quoted, unmarked
from autograde.verdict import PartResult, Verdict
from autograde.words import OUR_OWN, raised_in_words

if TYPE_CHECKING:
    from autograde.kit.question import Question

MAX_ITEMS = 200
MAX_WHY = 200
"""Characters of why an entry cannot be read."""
MAX_TEXT = 5000
DEPTH = 4
"""How deep lists and dictionaries of an answer may be nested."""
UNSET = "Not answered yet."
"""Said of one of several values that is still None."""
UNREAD = "cannot be read because"
"""The only key of what stands for an entry that is no plain value; what it holds says why."""
NO_NAME = 'First type your name in student("...") at the top: the numbers here are drawn from it.'


@dataclass(frozen=True, kw_only=True)
class Reason:
    """A written answer, graded by hand with a rubric, that goes with an exercise."""

    points: float
    ask: str
    """The question, e.g. `Why not the other way round? Two sentences.`"""
    rubric: tuple[tuple[float, str], ...]
    """(points, what earns them): shown to the person who grades, never to students."""
    solution: str
    """A model answer."""

    def __post_init__(self) -> None:
        paid = sum(points for points, _ in self.rubric)
        assert math.isclose(paid, self.points), f"the rubric pays {paid:g} of {self.points:g}"


@dataclass(frozen=True)
class Said(PartResult):
    """A part's result with the sentence that explains it."""

    reason: str = ""


@dataclass(frozen=True)
class ForAnother(Said):
    """A part that is right for the numbers of another name."""

    typed: str = ""
    """The name typed in the notebook, cut."""


FOR_ANOTHER = "Right for the numbers of"
"""How the sentence about such a part begins."""


def _none(*_args: Any, **_kwargs: Any) -> Any:
    raise AssertionError("a value is not run")


@dataclass(frozen=True, kw_only=True)
class ValueExercise(Exercise):
    """An exercise answered by a value in a variable; see the module."""

    question: str
    """What is asked, in one to four sentences; `code` between backticks."""
    signature: str = ""
    """The student's variable; made from the id unless given."""
    reason: Reason | None = None
    """Asked in a cell of its own, graded by hand."""
    wrong: tuple[Wrong, ...] = ()
    right: tuple[Callable[..., Any], ...] = ()
    reference: Callable[..., Any] = _none
    draw: Callable[..., Any] = _none
    run: Callable[..., Any] = _none
    needs_name: bool = field(default=False, init=False)
    written: str = field(default="reason", init=False)
    """What a person reads."""

    @property
    def name(self) -> str:
        """The student's variable."""
        return self.signature or self.id.partition(".")[2].replace("-", "_")

    @property
    def points(self) -> float:
        """Full marks, with those given by hand."""
        return self.auto_points + (self.reason.points if self.reason else 0)

    @property
    def auto_points(self) -> float:
        """What the check pays."""
        return sum(part.points for part in self.parts)

    # What a kind says of itself.

    def shown_to(self, student: str) -> Question:
        """The question as this student sees it."""
        raise NotImplementedError

    def right_value(self, student: str) -> Any:
        """A right answer of this student's."""
        raise NotImplementedError

    def blank(self) -> str:
        """How the answer's line looks before it is answered: `None  # one letter, e.g. "A"`."""
        raise NotImplementedError

    def parse(self, value: Any, student: str) -> dict[str, Any]:
        """The value by part.

        Raises:
            AnswerError: It is no answer of this kind; the message says what one looks like.
        """
        raise NotImplementedError

    def judge_parts(self, answer: dict[str, Any], student: str) -> list[PartResult]:
        """Right or not, part by part, with the misconceptions shown."""
        raise NotImplementedError

    # What all of them share.

    def readable(self, value: Any) -> Any:
        """The value, if every entry of it could be read.

        Raises:
            AnswerError: One could not; the message names it.
        """
        for key, item in value.items() if isinstance(value, dict) else ():
            if said := why_unread(item):
                raise AnswerError(f"'{brief(key)}' {said}")
        return value

    def judge_value(self, value: Any, student: str, *, typed: str | None = None) -> Verdict:
        """The verdict on a value.

        Args:
            value: The student's, as `plain_value` gives it, or what was raised on the way.
            student: Whose submission it is.
            typed: The name typed in the notebook, if it may be another one.
        """
        typed = student if typed is None else typed
        if not isinstance(value, Raised) and is_blank(value):
            results = [PartResult(part, False, raised=BLANK) for part in self.parts]
        else:
            try:
                if isinstance(value, Raised):
                    raise AnswerError(_raised_in_words(value))
                if self.needs_name and not plain_name(student):
                    raise AnswerError(NO_NAME)
                results = self._judged(self.readable(value), student, typed)
            except AnswerError as fault:
                raised = Raised("AnswerError", str(fault))
                results = [PartResult(part, False, raised=raised) for part in self.parts]
        return Verdict(
            exercise_id=self.id,
            seed=0,
            points=sum(result.part.points for result in results if result.passed),
            max_points=self.auto_points,
            parts=results,
        )

    def judge_given(self, value: Any) -> Verdict:
        """The verdict on what a notebook holds, for the name typed there."""
        try:
            given: Any = plain_value(called(value))
        except AnswerError as fault:
            given = Raised("AnswerError", str(fault))
        return self.judge_value(given, current())

    def _judged(self, value: Any, student: str, typed: str) -> list[PartResult]:
        if not self.needs_name:  # letters mean what the options' order says that was shown
            return self.judge_parts(self.parse(value, typed), typed)
        results = self.judge_parts(self.parse(value, student), student)
        if plain_name(typed) in ("", plain_name(student)) or all(r.passed for r in results):
            return results
        others = self.judge_parts(self.parse(value, typed), typed)
        if sum(r.passed for r in others) <= sum(r.passed for r in results):
            return results
        says = (
            f"{FOR_ANOTHER} '{brief(typed)}', the name typed at the top, but this was handed in by "
            f"'{student}', whose numbers are different."
        )
        return [
            ForAnother(mine.part, False, reason=says, typed=brief(typed))
            if theirs.passed and not mine.passed
            else mine
            for mine, theirs in zip(results, others, strict=True)
        ]

    def lines(self, verdict: Verdict) -> Iterator[str]:
        """The verdict in words."""
        title = f"{self.id} · {self.title}: "
        yield from wrapped(f"{title}{verdict.points:g} of {verdict.max_points:g} points", "", "")
        if verdict.status == "blank":
            yield from wrapped(
                f"Not answered yet: give `{self.name}` a value in the cell above, then run both.",
                "  ",
            )
            return
        reasons = {result.raised.text for result in verdict.parts if result.raised}
        if len(reasons) == 1 and all(result.raised for result in verdict.parts):
            yield from wrapped(reasons.pop(), "  ✘ ")
            return
        said = [getattr(result, "reason", "") for result in verdict.parts]
        below = self.said_below(said)
        for result, reason in zip(verdict.parts, said, strict=True):
            yield from wrapped(result.part.title, f"  {'✔' if result.passed else '✘'} ")
            if reason and reason not in below:
                yield from wrapped(reason, "    ")
        for reason in below:
            about = [result for result in verdict.parts if getattr(result, "reason", "") == reason]
            yield from wrapped(f"{_about(about, verdict)}{reason}", "  → ")
        for wrong in verdict.misconceptions:
            about = [
                result
                for result in verdict.parts
                if result.shows and result.shows.name == wrong.name
            ]
            yield from wrapped(f"{_about(about, verdict)}{wrong.message}", "  → ")
        if self._says_what_next(verdict):
            yield from wrapped(self.next_step, "  → ")
        if self.reason:
            yield f"  {self.reason.points:g} more for the {self.written}, which is graded by hand."

    def said_below(self, reasons: list[str]) -> list[str]:
        """Of the parts' reasons those that several share: they are said once, below all parts."""
        return [r for r in dict.fromkeys(reasons) if r and reasons.count(r) > 1]

    def _says_what_next(self, verdict: Verdict) -> bool:
        """Whether an answer is wrong, and no mistake of it is known."""
        wrong = [r for r in verdict.parts if not r.passed and not typed_another(r)]
        wrong = [r for r in wrong if getattr(r, "reason", "") != UNSET]
        return bool(wrong) and not verdict.misconceptions

    @property
    def next_step(self) -> str:
        """What to do where no known mistake is shown."""
        return f'Read the question once more, word by word. hint("{self.id}") helps.'

    def source_of(self, key: str, student: str) -> Draw:
        """Numbers that depend on the student and the exercise alone."""
        return Draw(0, f"{plain_name(student)}/{self.id}/{key}")


def typed_another(result: PartResult) -> str:
    """The name for whose numbers a wrong part is right; empty if it is for none that was typed."""
    return result.typed if isinstance(result, ForAnother) else ""


def _about(results: list[PartResult], verdict: Verdict) -> str:
    """The parts that a sentence is about, to begin it with; empty if it is about all refused."""
    if len(results) == sum(not result.passed for result in verdict.parts):
        return ""
    return f"{', '.join(result.part.key for result in results)}: "


def is_blank(value: Any) -> bool:
    """Whether nothing was answered: None, an empty text or list, or a dict of nothing."""
    if isinstance(value, Mapping):
        return all(is_blank(item) for item in value.values())
    if isinstance(value, list):
        return all(is_blank(item) for item in value)
    return value is None or (isinstance(value, str) and not value.strip())


def why_unread(item: Any) -> str:
    """Why an entry of an answer is no plain value; empty if it is one.

    A student could write such an entry, so what it holds is shown as a quotation.
    """
    if not isinstance(item, dict) or set(item) != {UNREAD}:
        return ""
    return f"cannot be read: {quoted(on_a_line(str(item[UNREAD]), MAX_WHY))}"


def _raised_in_words(raised: Raised) -> str:
    """What was raised while a value was read."""
    if raised.kind in OUR_OWN:
        return in_own_words(raised.text)
    return f"Reading the answer raised {raised_in_words(raised.kind, raised.text)}"


def _entry(item: Any, depth: int) -> Any:
    """An entry as a plain value; what is none says why, and costs no other entry."""
    try:
        return plain_value(item, depth)
    except AnswerError as fault:
        if depth < DEPTH - 1:
            raise
        return {UNREAD: str(fault)}


def _is_interval(value: Any) -> bool:
    """Whether it is an object with two numbers as its ends, such as the course's intervals."""
    try:
        return all(isinstance(getattr(value, end, None), Real) for end in ("low", "high"))
    except Exception:  # a property of the student's raises
        return False


def plain_value(value: Any, depth: int = DEPTH) -> Any:
    """A student's value as None, bools, numbers, texts, and lists and dicts of them.

    An interval with `low` and `high` is a list of both.

    Raises:
        AnswerError: It is something else, or far too much of it.
    """
    if value is None or value is ...:
        return None
    if type(value) is int and value.bit_length() > MAX_INT_BITS:
        return _as_float(value)
    if type(value) in (bool, int, float):
        return value
    if isinstance(value, str):
        return str(value[:MAX_TEXT])
    if hasattr(value, "tolist") and getattr(value, "size", None) is not None:  # tensors, arrays
        count = value.size if isinstance(value.size, int) else math.prod(value.shape)
        if count > MAX_ITEMS:
            raise AnswerError(f"This is an array of {count:,} numbers; the answer is far shorter.")
        value = value.detach() if hasattr(value, "detach") else value
        return plain_value(value.tolist(), depth)
    if not depth:
        raise AnswerError(
            "The answer is nested too deeply: it should be a plain value or a flat list."
        )
    if isinstance(value, Mapping):
        if len(value) > MAX_ITEMS:
            raise AnswerError(
                f"This is a dictionary of {len(value):,} entries; the answer is far shorter."
            )
        return {str(key)[:200]: _entry(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, range)):
        if len(value) > MAX_ITEMS:
            raise AnswerError(
                f"This is a list of {len(value):,} entries; the answer is far shorter."
            )
        return [plain_value(item, depth - 1) for item in value]
    if isinstance(value, type) and issubclass(value, BaseException):
        return value.__name__  # an exception's type is asked for by its name
    if _is_interval(value):
        return [plain_value(end, depth - 1) for end in (value.low, value.high)]
    kind = type(value).__name__
    hint = ": call it, and use what it returns" if callable(value) else ""
    article = "An" if kind[0] in "AEIOUaeiou" else "A"
    raise AnswerError(
        f"{article} {kind} cannot be the answer{hint}. It should be a number or a string."
    )


def _as_float(value: int) -> float:
    """The nearest float to a whole number that no process can send."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def called(value: Any) -> Any:
    """What a function without arguments returns; anything else as it is.

    Raises:
        AnswerError: The function needs arguments, or it raised.
    """
    if not isinstance(value, FunctionType):
        return value
    try:
        inspect.signature(value).bind()
    except TypeError:
        raise AnswerError(
            f"This is the function {value.__name__}, which needs arguments. Give what it returns, "
            "or a function without arguments."
        ) from None
    try:
        return value()
    except NotImplementedError:
        return None
    except Exception as fault:
        raise AnswerError(
            f"{value.__name__}() raised {type(fault).__name__}: {brief(str(fault))}"
        ) from fault


def brief(value: Any) -> str:
    """A student's value as a message shows it."""
    text = f"{value:.6g}" if isinstance(value, float) else unmarked(str(value))
    return text if len(text) <= 40 else f"{text[:39]}…"
