"""The verdict: fresh cases, the reference's answers, and what the student's answers show.

The referee never runs student code. It draws the cases, hands them out as plain data, takes plain
answers back, computes the reference's answers itself, and compares. On a laptop it lives in the
student's process; while a class is graded it is another process, and whatever the student's process
claims about its own score is not believed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch

from autograde.by_hand import written_by_hand as written_by_hand
from autograde.compare import Difference, first_difference
from autograde.exercise import Answer, AnswerError, Case, Exercise, NotAllowedError, Part, Wrong

CPU = torch.device("cpu")
OUR_OWN = ("NotImplementedError", "AnswerError", "NotAllowedError")
"""Exceptions that mean the same whoever raises them, and so show no misconception."""


@dataclass(frozen=True)
class Raised:
    """The function did not answer: the exception's type and its text."""

    kind: str
    text: str = ""


BLANK = Raised("NotImplementedError")
"""What a cell as released raises; torch's own errors of this kind have a text."""


@dataclass(frozen=True)
class PartResult:
    """How one part went."""

    part: Part
    passed: bool
    difference: Difference | None = None
    """Where the first wrong answer differs."""
    raised: Raised | None = None
    """What the function raised instead of answering."""
    shows: Wrong | None = None
    """The known mistake that this part's answers show."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Points, and the reasons for them."""

    exercise_id: str
    seed: int
    points: float
    max_points: float
    parts: list[PartResult]

    @property
    def misconceptions(self) -> list[Wrong]:
        """The known mistakes that the answers show, each once; most often one or none."""
        shown = {result.shows.name: result.shows for result in self.parts if result.shows}
        return list(shown.values())

    @property
    def misconception(self) -> str:
        """Their names in one string, for tables; empty if none is recognised."""
        return ", ".join(wrong.name for wrong in self.misconceptions)

    @property
    def passed(self) -> bool:
        """Whether every part asked was answered right."""
        return all(part.passed for part in self.parts)

    @property
    def status(self) -> str:
        """`right`, `blank`, `raised`, a misconception's name, or `wrong`."""
        raised = [part.raised for part in self.parts if part.raised]
        if self.passed:
            return "right"
        if raised and all(item == BLANK for item in raised):
            return "blank"
        return self.misconception or (f"raised {raised[0].kind}" if raised else "wrong")


Ask = Callable[[Case], "Answer | Raised"]
PartsAsked = Literal["shown", "hidden", "all"]


def judge(
    exercise: Exercise,
    ask: Ask,
    *,
    seed: int,
    parts: PartsAsked = "shown",
    device: Any = CPU,
) -> Verdict:
    """Put the exercise's cases to a student and give the verdict.

    Args:
        exercise: From the bank.
        ask: Hands a case to the student's function, wherever it runs, and returns its answer.
        seed: Of the cases; recorded, so that a regrade repeats exactly.
        parts: Which parts count: those students see, the hidden ones, or all. Hidden ones are
            asked beside the shown ones, by which a misconception is recognised.
        device: Where the reference computes; the answers must come from the same kind.
    """
    with _usual_torch(device):
        return _judge(exercise, ask, seed, parts, device)


def _judge(exercise: Exercise, ask: Ask, seed: int, parts: PartsAsked, device: Any) -> Verdict:
    to_ask = [part for part in exercise.parts if parts != "shown" or not part.hidden]
    asked = {part.key: exercise.cases(part, seed) for part in to_ask}
    answers = {part.key: [ask(case) for case in asked[part.key]] for part in to_ask}
    right = _Oracle(exercise, exercise.reference, device)
    results = [_judge_part(exercise, part, asked, answers, right, device) for part in to_ask]
    results = _recognised(exercise, results, asked, answers, device)
    results = [result for result in results if parts != "hidden" or result.part.hidden]
    return Verdict(
        exercise_id=exercise.id,
        seed=seed,
        points=sum(result.part.points for result in results if result.passed),
        max_points=sum(result.part.points for result in results),
        parts=results,
    )


class _Oracle:
    """Answers of one of our own functions, computed once a case."""

    def __init__(self, exercise: Exercise, function: Callable[..., Any], device: Any) -> None:
        self.answer = partial(answer_of, exercise, function, device=device)
        self.known: dict[int, Answer | Raised] = {}

    def __call__(self, case: Case) -> Answer | Raised:
        if id(case) not in self.known:
            with warnings.catch_warnings():  # about our own code: nobody else's to read
                warnings.simplefilter("ignore")
                self.known[id(case)] = self.answer(case)
        return self.known[id(case)]


def answer_of(
    exercise: Exercise, function: Callable[..., Any], case: Case, *, device: Any = CPU
) -> Answer | Raised:
    """Call a function on a case: its answer, or what it raised. Same random numbers each time."""
    try:
        with _usual_torch(device):
            return exercise.run(function, copy_of(case), device)
    except NotImplementedError as fault:
        return Raised("NotImplementedError", str(fault))
    except (AnswerError, NotAllowedError) as fault:
        return Raised(type(fault).__name__, str(fault))
    except Exception as fault:
        return Raised(type(fault).__name__, " ".join(str(fault).split())[:300])


@contextmanager
def _usual_torch(device: Any) -> Iterator[None]:
    """torch as it is when fresh, whatever a notebook has set: seed, default dtype, grad mode."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        forked = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
        with forked, torch.enable_grad(), _usual_device():
            generator = torch if device.type == "cuda" else torch.default_generator
            generator.manual_seed(0)  # torch's own also notes down the stack, for CUDA
            yield
    finally:
        torch.set_default_dtype(dtype)


def _usual_device() -> AbstractContextManager[Any]:
    """New tensors on the CPU; where they are made there anyway, nothing, which costs nothing."""
    return nullcontext() if torch.get_default_device() == CPU else CPU


def copy_of(case: Any) -> Any:
    """Plain data anew, so that what one function changes in place no other sees."""
    if isinstance(case, torch.Tensor):
        return case.clone()
    if isinstance(case, dict):
        return {key: copy_of(value) for key, value in case.items()}
    if isinstance(case, (list, tuple)):
        return [copy_of(value) for value in case]
    return case


def _judge_part(
    exercise: Exercise,
    part: Part,
    asked: dict[str, list[Case]],
    answers: dict[str, list[Any]],
    right: _Oracle,
    device: Any,
) -> PartResult:
    for case, answer in zip(asked[part.key], answers[part.key], strict=True):
        if isinstance(answer, Raised):
            return PartResult(part, False, raised=answer)
        expected = right(case)
        if isinstance(expected, Raised):
            raise RefereeFault(
                f"The reference of {exercise.id} raised {expected.kind} on a case of part "
                f"'{part.key}': {expected.text}"
            )
        if difference := _difference(exercise, part.fields, expected, answer, device):
            return PartResult(part, False, difference)
    return PartResult(part, True)


class RefereeFault(Exception):
    """The referee itself failed: nobody's grade may change for it."""


def _recognised(
    exercise: Exercise,
    results: list[PartResult],
    asked: dict[str, list[Case]],
    answers: dict[str, list[Any]],
    device: Any,
) -> list[PartResult]:
    """Say of each failed part which misconception its answers show.

    One that answers alike on every case explains all; else one that does so on every case of the
    failed parts; else each failed part is looked at by itself, in the field that differs, since
    answers often show two mistakes at once.
    """
    failed = [result for result in results if not result.passed]
    oracles = {wrong.name: _Oracle(exercise, wrong.function, device) for wrong in exercise.wrong}

    def shown_by(looked_at: list[PartResult], *, one_field: bool = False) -> Wrong | None:
        def alike(wrong: Wrong, result: PartResult) -> bool:
            fields = result.part.fields
            if one_field and result.difference:
                fields = (result.difference.field,)
            pairs = zip(asked[result.part.key], answers[result.part.key], strict=True)
            oracle = oracles[wrong.name]
            return all(
                _alike(exercise, fields, oracle(case), answer, device) for case, answer in pairs
            )

        candidates = (w for w in exercise.wrong if all(alike(w, result) for result in looked_at))
        return next(candidates, None)

    if not failed:
        return results
    whole = shown_by(results) or shown_by(failed)
    return [
        result
        if result.passed
        else replace(result, shows=whole or shown_by([result], one_field=True))
        for result in results
    ]


def _alike(
    exercise: Exercise, fields: tuple[str, ...], known: Any, answer: Any, device: Any
) -> bool:
    """Whether an answer is a wrong function's: equal fields, or the same kind of exception."""
    if isinstance(known, Raised) or isinstance(answer, Raised):
        same = (
            isinstance(known, Raised) and isinstance(answer, Raised) and known.kind == answer.kind
        )
        return same and known.kind not in OUR_OWN
    return _difference(exercise, fields, known, answer, device) is None


def _difference(
    exercise: Exercise, fields: tuple[str, ...], expected: Answer, answer: Answer, device: Any
) -> Difference | None:
    return first_difference(
        expected,
        answer,
        fields=fields,
        tolerance=exercise.tolerance,
        on_gpu=device.type == "cuda",
    )
