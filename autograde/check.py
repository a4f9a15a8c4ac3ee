"""`check`, which students call: it tries a function on fresh cases and answers at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from autograde.quiet import quiet
from autograde.words import as_html, message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from autograde.exercise import Exercise
    from autograde.referee import PartsAsked
    from autograde.verdict import Verdict


class Result:
    """What `check` returns: people see its message, nbgrader reads its points.

    nbgrader takes the plain-text form of a check cell's result as the points earned, so `repr` is a
    bare number; in a notebook the message is shown instead.
    """

    def __init__(
        self, verdict: Verdict, exercise: Exercise, changes: Callable[[], Sequence[str]] = tuple
    ) -> None:
        self.verdict = verdict
        self.points = verdict.points
        self.passed = verdict.passed
        self.message = message(verdict, exercise, changes)

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
    """Check an answer to an exercise on cases that nobody has seen before.

    Args:
        id: The exercise, e.g. `03a.accumulate`.
        function: The student's function, with the signature that the exercise asks for; if the
            exercise asks for a number, an option or an order, the answer itself.
        parts: `shown` to students, `hidden` in hidden checks of an instructor's notebook, or `all`.
        device: Where to compute: `cpu`, `cuda`, or by default where the notebook does, by its
            variable `device`.
        seed: Seed of the cases; None draws a fresh one. A verdict names its seed, so that it can be
            repeated.

    Returns:
        A Result with `passed`, `points`, `message` and `verdict`. A wrong answer raises nothing.

    Raises:
        UnknownIdError: No exercise has this id; the message names the nearest.
        TypeError: `function` is a result or a class instead of a function.
        DeviceError: torch cannot compute on `device` here, or not any more.
    """
    from autograde import bank
    from autograde.answers import answer_of
    from autograde.by_hand import written_by_hand
    from autograde.devices import must_compute_here, of_notebook
    from autograde.kinds import ValueExercise
    from autograde.kinds.fix import changes
    from autograde.kit.failing import remember
    from autograde.kit.record import keep_verdict
    from autograde.referee import judge
    from autograde.seeds import new_seed
    from course.engine import choose_device

    exercise = bank.load(id)
    if isinstance(exercise, ValueExercise):
        verdict = exercise.judge_given(function)
        keep_verdict(verdict)
        return Result(verdict, exercise)
    _refuse_what_is_not_asked(exercise, function)
    where = of_notebook() if device == "auto" else choose_device(device)

    def ask(case: Any) -> Any:
        with written_by_hand(exercise), quiet():
            return answer_of(exercise, function, case, device=where, spare=True)

    seed = new_seed() if seed is None else seed
    must_compute_here(str(where), id)
    try:
        verdict = judge(exercise, ask, seed=seed, parts=parts, device=where)
    except Exception:
        must_compute_here(str(where), id)
        raise
    if parts != "hidden":
        keep_verdict(verdict)
        remember(exercise, function, verdict)
    if exercise.kind != "fix":
        return Result(verdict, exercise)
    return Result(verdict, exercise, partial(changes, exercise, function))


def _refuse_what_is_not_asked(exercise: Exercise, function: Any) -> None:
    """A result or a class handed over instead of a function."""
    given = f"check('{exercise.id}', ...) was given"
    if not callable(function):
        raise TypeError(
            f"{given} a {type(function).__name__}; it needs your function {exercise.name} itself, "
            f"not called: check('{exercise.id}', {exercise.name})."
        )
    if isinstance(function, type) and exercise.kind != "class":
        raise TypeError(
            f"{given} the class {function.__name__}; it needs a function: def {exercise.signature}."
        )
