"""`check`, which students call: it puts fresh cases to a function and answers at once."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterator
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autograde.exercise import Exercise
    from autograde.referee import PartResult, PartsAsked, Verdict

WIDTH = 78
"""`nbgrader validate` cuts lines at 83."""


class Result:
    """What `check` returns: shown as its message, and read by nbgrader as points.

    nbgrader takes the plain-text form of a check cell's result as the points earned, so `repr` is a
    bare number; in a notebook the message is shown instead.
    """

    def __init__(self, verdict: Verdict, exercise: Exercise) -> None:
        self.verdict = verdict
        self.points = verdict.points
        self.passed = verdict.passed
        self.message = message(verdict, exercise)

    def __repr__(self) -> str:
        return f"{self.points:g}"

    def _repr_html_(self) -> str:
        return as_html(self.message, self.passed)


def check(
    id: str,
    function: Callable[..., Any],
    *,
    parts: PartsAsked = "shown",
    device: str = "cpu",
    seed: int | None = None,
) -> Result:
    """Check an answer to an exercise on cases nobody has seen before.

    Args:
        id: The exercise, as `03a.accumulate`.
        function: The student's function, with the signature that the exercise asks for.
        parts: `shown` to students, `hidden` in hidden checks of an instructor's notebook, or `all`.
        device: Where to compute: `cpu` or `cuda`.
        seed: Of the cases; None draws a fresh one. A verdict names its seed, to be repeated.

    Returns:
        A Result with `passed`, `points`, `message` and `verdict`. A wrong answer raises nothing.

    Raises:
        UnknownIdError: No exercise has this id; the message names the nearest.
        TypeError: `function` cannot be called.
    """
    import torch

    from autograde import bank
    from autograde.referee import answer_of, judge, written_by_hand
    from autograde.seeds import new_seed

    exercise = bank.load(id)
    if not callable(function):
        raise TypeError(
            f"check('{id}', ...) was given a {type(function).__name__}; it needs your function "
            f"{exercise.name}, without calling it: check('{id}', {exercise.name})."
        )
    where = torch.device(device)

    def ask(case: Any) -> Any:
        with written_by_hand(exercise), quiet():
            return answer_of(exercise, function, case, device=where)

    seed = new_seed() if seed is None else seed
    return Result(judge(exercise, ask, seed=seed, parts=parts, device=where), exercise)


class quiet:
    """What a student's function prints or warns goes nowhere while it is checked.

    nbgrader gives no points to a cell with anything on stderr; an honest warning must cost nothing.
    """

    def __enter__(self) -> None:
        import contextlib
        import warnings

        self.stack = contextlib.ExitStack()
        self.stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        self.stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        self.stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")

    def __exit__(self, *_exc: object) -> None:
        self.stack.close()


def message(verdict: Verdict, exercise: Exercise) -> str:
    """The verdict in words: a line a part, then what differs and what to do next."""
    return "\n".join(_lines(verdict, exercise))


def _lines(verdict: Verdict, exercise: Exercise) -> Iterator[str]:
    title = f"{exercise.id} · {exercise.title}: "
    yield from textwrap.wrap(f"{title}{verdict.points:g} of {verdict.max_points:g} points", WIDTH)
    if verdict.status == "blank":
        yield f"  Not answered yet: write {exercise.name} in the cell above, then run both."
        return
    reasons = {_reason(result, exercise) for result in verdict.parts}
    if len(reasons) == 1 and verdict.parts[0].raised:  # the same everywhere: said once
        yield from _wrapped(reasons.pop(), first="  ✘ ")
    else:
        for result in verdict.parts:
            yield f"  {'✔' if result.passed else '✘'} {result.part.title}"
            yield from _wrapped(_reason(result, exercise))
    for wrong in verdict.misconceptions:
        yield from _wrapped(wrong.message, first="  → ")
    if not verdict.misconceptions and not verdict.passed:
        yield from _wrapped(_next_step(verdict), first="  → ")
    shown = all(not result.part.hidden for result in verdict.parts)
    hidden = sum(part.points for part in exercise.parts if part.hidden)
    if shown and hidden and verdict.passed:
        yield f"  {hidden:g} more when it is graded: cases of a kind not shown here."


def _reason(result: PartResult, exercise: Exercise) -> str:
    if result.raised:
        if result.raised.kind in OUR_OWN:
            return result.raised.text
        return f"Your function raised {result.raised.kind}: {result.raised.text}"
    if result.difference is None:
        return ""
    difference = result.difference
    what = exercise.says.get(difference.field, difference.field)
    at = f" {difference.where}" if difference.where else ""
    return f"{what}{at} should be {difference.expected} and yours is {difference.got}."


OUR_OWN = ("AnswerError", "NotAllowedError", "NameError", "Timeout", "ProcessEnded", "NotAsked")
"""What is raised about an answer rather than by it; the text speaks for itself."""


def _next_step(verdict: Verdict) -> str:
    kinds = {result.raised.kind for result in verdict.parts if result.raised}
    if "AnswerError" in kinds:
        return "Mend what it returns first; the numbers are compared after that."
    if "NotAllowedError" in kinds:
        return "Write the steps out yourself: the lecture's formula is all you need."
    if "Timeout" in kinds:
        return (
            "Find the loop and what should end it: call your function yourself, with a print() of "
            "its counter. check() shows no prints."
        )
    if kinds:
        return "Call your function yourself on one small case and read the whole traceback."
    wrong = {result.difference.field for result in verdict.parts if result.difference}
    for result in verdict.parts:
        fields = result.part.fields  # none named: all are looked at
        if result.passed and (not fields or wrong & set(fields)):
            title = result.part.title
            return f"Right for {title}: ask what the failing case has that this one has not."
    return (
        "Make one tiny case, compute it by hand, and call your function on it yourself, with a "
        "print() of every step: check() shows no prints."
    )


def _wrapped(text: str, first: str = "    ") -> list[str]:
    """Lines of at most WIDTH; none for an empty text."""
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent="    ")


def as_html(message: str, passed: bool) -> str:
    """A message as a box whose border tells right from wrong; everything escaped."""
    colour = "#0072b2" if passed else "#d55e00"
    return (
        f'<pre style="border-left: 4px solid {colour}; padding: .5em 1em; margin: 0; '
        f'white-space: pre-wrap">{escape(message)}</pre>'
    )
