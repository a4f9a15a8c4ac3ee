"""`check`, which students call: it puts fresh cases to a function and answers at once."""

from __future__ import annotations

import io
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from autograde.lines import wrapped

if TYPE_CHECKING:
    from autograde.compare import Difference
    from autograde.exercise import Exercise, Part
    from autograde.referee import PartResult, PartsAsked, Verdict


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
    function: Any,
    *,
    parts: PartsAsked = "shown",
    device: str = "auto",
    seed: int | None = None,
) -> Result:
    """Check an answer to an exercise on cases nobody has seen before.

    Args:
        id: The exercise, e.g. `03a.accumulate`.
        function: The student's function, with the signature that the exercise asks for; the answer
            itself where a number, an option or an order is asked for.
        parts: `shown` to students, `hidden` in hidden checks of an instructor's notebook, or `all`.
        device: Where to compute: `cpu`, `cuda`, or as the notebook does, by its variable `device`.
        seed: Of the cases; None draws a fresh one. A verdict names its seed, to be repeated.

    Returns:
        A Result with `passed`, `points`, `message` and `verdict`. A wrong answer raises nothing.

    Raises:
        UnknownIdError: No exercise has this id; the message names the nearest.
        TypeError: `function` is a result or a class instead of a function.
    """
    import torch

    from autograde import bank
    from autograde.devices import of_notebook
    from autograde.kinds import ValueExercise
    from autograde.kit.failing import remember
    from autograde.kit.record import keep_verdict
    from autograde.referee import answer_of, judge, written_by_hand
    from autograde.seeds import new_seed

    exercise = bank.load(id)
    if isinstance(exercise, ValueExercise):
        verdict = exercise.judge_given(function)
        keep_verdict(verdict)
        return Result(verdict, exercise)
    if not callable(function):
        raise TypeError(
            f"check('{id}', ...) was given a {type(function).__name__}; it needs your function "
            f"{exercise.name}, without calling it: check('{id}', {exercise.name})."
        )
    if isinstance(function, type) and exercise.kind != "class":
        raise TypeError(
            f"check('{id}', ...) was given the class {function.__name__}; it needs a function: "
            f"def {exercise.signature}."
        )
    where = of_notebook() if device == "auto" else torch.device(device)

    def ask(case: Any) -> Any:
        with written_by_hand(exercise), quiet():
            return answer_of(exercise, function, case, device=where)

    seed = new_seed() if seed is None else seed
    verdict = judge(exercise, ask, seed=seed, parts=parts, device=where)
    if parts != "hidden":
        keep_verdict(verdict)
        remember(exercise, function, verdict)
    return Result(verdict, exercise)


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
    """The verdict in words: a line per part, then what differs and what to do next."""
    lines = getattr(exercise, "lines", None)  # a value's exercise has words of its own
    return "\n".join(lines(verdict) if lines else _lines(verdict, exercise))


def _lines(verdict: Verdict, exercise: Exercise) -> Iterator[str]:
    title = f"{exercise.id} · {exercise.title}: "
    yield from wrapped(
        f"{title}{verdict.points:g} of {verdict.max_points:g} points", first="", then=""
    )
    if verdict.status == "blank":
        yield f"  Not answered yet: write {exercise.name} in the cell above, then run both."
        return
    reasons = {_reason(result, exercise) for result in verdict.parts}
    if len(reasons) == 1 and not verdict.passed and "" not in reasons:  # said once
        yield from wrapped(reasons.pop(), first="  ✘ ")
    else:
        said = set()
        for result in verdict.parts:
            yield f"  {'✔' if result.passed else '✘'} {result.part.title}"
            reason = _reason(result, exercise)
            yield from wrapped("The same." if reason and reason in said else reason)
            said.add(reason)
    for wrong in verdict.misconceptions:
        yield from wrapped(wrong.message, first="  → ")
    if not verdict.misconceptions and not verdict.passed:
        yield from wrapped(_next_step(verdict, exercise), first="  → ")
    shown = all(not result.part.hidden for result in verdict.parts)
    hidden = sum(part.points for part in exercise.parts if part.hidden)
    if shown and hidden and verdict.passed:
        yield f"  {hidden:g} more when it is graded: cases of a kind not shown here."


def _reason(result: PartResult, exercise: Exercise) -> str:
    if result.raised:
        if result.raised.kind in OUR_OWN:
            return result.raised.text
        return f"Your function raised {result.raised.kind}: {result.raised.text}"
    return difference_in_words(result.difference, exercise) if result.difference else ""


def difference_in_words(difference: Difference, exercise: Exercise) -> str:
    """What was expected and what came, in one sentence."""
    if difference.reason:
        return difference.reason
    what = exercise.says.get(difference.field, difference.field)
    at = f" {difference.where}" if difference.where else ""
    return f"{what}{at} should be {difference.expected} and yours is {difference.got}."


def wrong_in_words(exercise: Exercise, part: Part, case: Any, got: Any) -> list[str]:
    """What is wrong with the answer to one case, as indented lines."""
    from autograde.referee import PartResult, difference_in

    if not isinstance(got, dict):
        return wrapped(_reason(PartResult(part, False, raised=got), exercise), first="  ✘ ")
    found = difference_in(exercise, part, case, got)
    return wrapped(difference_in_words(found, exercise), first="  ✘ ") if found else []


OUR_OWN = ("AnswerError", "NotAllowedError", "NameError", "Timeout", "ProcessEnded", "NotAsked")
"""What is raised about an answer rather than by it; the text speaks for itself."""


def _next_step(verdict: Verdict, exercise: Exercise) -> str:
    kinds = {result.raised.kind for result in verdict.parts if result.raised}
    if "AnswerError" in kinds:
        return "Fix that first; only then are the numbers compared."
    if "NotAllowedError" in kinds:
        return "Write the steps out yourself: the lecture's formula is all you need."
    if "Timeout" in kinds:
        return (
            "Find the loop and what should end it: call your function yourself, with a print() of "
            "its counter. check() shows no prints."
        )
    differences = [result.difference for result in verdict.parts if result.difference]
    if not kinds and all(difference.reason for difference in differences):
        return "Fix that first, then check again."
    if not kinds and {difference.field for difference in differences} == {"changed"}:
        return (
            "Begin again from the code as it was given, and change only what a bug needs: a line "
            "that is moved, split or written in another way counts too."
        )
    name = exercise.name
    call = f"case.run({name})" if exercise.kind == "class" else f"{name}(**case.inputs)"
    return (
        f'case = failing("{exercise.id}") gives you a small case that fails: print case, and call '
        f"{call} to see your own prints and the whole traceback."
    )


def as_html(message: str, passed: bool) -> str:
    """A message as a box whose border tells right from wrong; everything escaped."""
    colour = "#0072b2" if passed else "#d55e00"
    return (
        f'<pre style="border-left: 4px solid {colour}; padding: .5em 1em; margin: 0; '
        f'white-space: pre-wrap; word-break: normal">{escape(message)}</pre>'
    )
