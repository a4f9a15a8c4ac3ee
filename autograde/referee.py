"""The verdict: fresh cases, the reference's answers, and what the student's answers show.

The referee never runs student code. It draws the cases, hands them out as plain data, takes plain
answers back, computes the reference's answers itself, and compares. On a laptop it lives in the
student's process; while a class is graded it is another process, and whatever the student's process
claims about its own score is not believed.
"""

from __future__ import annotations

import inspect
import linecache
import random
import re
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from autograde.by_hand import written_by_hand as written_by_hand
from autograde.compare import CHANGED, Difference, first_difference
from autograde.devices import advice
from autograde.exercise import (
    UNFIT,
    Answer,
    AnswerError,
    Case,
    Exercise,
    NotAllowedError,
    Part,
    Wrong,
)
from course.state import fresh_settings, on_the_cpu, undisturbed

CPU = torch.device("cpu")
EVIDENCE = 2
"""Cases in which a misconception must show before it is named: one may be a coincidence."""


Scope = list[tuple[Part, tuple[str, ...]]]
"""Parts, and the fields in them that are looked at."""


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
            asked with the shown ones, by which a misconception is recognised.
        device: Where the reference computes; the answers must come from the same kind.
    """
    with usual_torch(device):
        return _judge(exercise, ask, seed, parts, device)


def _judge(exercise: Exercise, ask: Ask, seed: int, parts: PartsAsked, device: Any) -> Verdict:
    to_ask = [part for part in exercise.parts if parts != "shown" or not part.hidden]
    questions = _questions(exercise, seed, device)
    asked = {part.key: questions.cases(part) for part in to_ask}
    answers = {part.key: [ask(case) for case in asked[part.key]] for part in to_ask}
    right = questions.right
    results = [_judge_part(exercise, part, asked, answers, right, device) for part in to_ask]
    results = _recognised(exercise, results, asked, answers, questions, device)
    results = [result for result in results if parts != "hidden" or result.part.hidden]
    return Verdict(
        exercise_id=exercise.id,
        seed=seed,
        points=sum(result.part.points for result in results if result.passed),
        max_points=sum(result.part.points for result in results),
        parts=results,
    )


class _Questions:
    """An exercise's cases from one seed, and what our own functions answer, each found once."""

    def __init__(self, exercise: Exercise, seed: int, device: Any) -> None:
        self.about = exercise, seed, str(device)
        self.right = _Reference(exercise, exercise.reference, device)
        self.wrong = [
            (wrong, _Oracle(exercise, wrong.function, device)) for wrong in exercise.wrong
        ]
        self.drawn: dict[str, list[Case]] = {}

    def cases(self, part: Part) -> list[Case]:
        """The cases of a part, the same objects every time."""
        if part.key not in self.drawn:
            exercise, seed, _ = self.about
            self.drawn[part.key] = list(exercise.cases(part, seed))
        return self.drawn[part.key]


_asked_last: dict[str, _Questions] = {}
"""By exercise: a hidden check follows the shown one, and a class is asked the same."""


def _questions(exercise: Exercise, seed: int, device: Any) -> _Questions:
    """Those of the exercise's last check where the seed was the same."""
    last = _asked_last.get(exercise.id)
    if last is None or last.about[0] is not exercise or last.about[1:] != (seed, str(device)):
        last = _asked_last[exercise.id] = _Questions(exercise, seed, device)
    return last


class _Oracle:
    """Answers of one of our own functions, computed once per case."""

    def __init__(self, exercise: Exercise, function: Callable[..., Any], device: Any) -> None:
        self.answer = partial(answer_of, exercise, function, device=device)
        self.known: dict[int, Answer | Raised] = {}

    def __call__(self, case: Case) -> Answer | Raised:
        if id(case) not in self.known:
            with warnings.catch_warnings():  # about our own code: nobody else's to read
                warnings.simplefilter("ignore")
                self.known[id(case)] = self.answer(case)
        return self.known[id(case)]


class _Reference(_Oracle):
    """The reference's answers; what it may change itself counts for nobody else."""

    def __call__(self, case: Case) -> Answer | Raised:
        answer = super().__call__(case)
        known = not isinstance(answer, Raised) and CHANGED in answer
        return {**answer, CHANGED: []} if known else answer


def answer_of(
    exercise: Exercise, function: Callable[..., Any], case: Case, *, device: Any = CPU
) -> Answer | Raised:
    """Call a function on a case: its answer, or what it raised. Same random numbers each time."""
    try:
        with usual_torch(device):
            _look_at_arguments(exercise, function)
            return exercise.run(function, copy_of(case), device)
    except NotImplementedError as fault:
        return Raised("NotImplementedError", str(fault))
    except (AnswerError, NotAllowedError) as fault:
        return Raised(type(fault).__name__, str(fault))
    except Exception as fault:
        text = " ".join(str(fault).split())[:300]
        if _in_our_own_code(fault, function):
            return Raised("AnswerError", _not_understood(exercise, type(fault).__name__, text))
        return Raised(type(fault).__name__, text + _line_of(fault, function) + advice(text))


def _look_at_arguments(exercise: Exercise, function: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called with as many arguments as it will be given."""
    names = exercise.arguments
    try:
        inspect.signature(function).bind(*names)
    except TypeError:
        takes = inspect.signature(function)
        name = getattr(function, "__name__", "Your function")
        raise AnswerError(
            f"{name}{takes} cannot be called as {exercise.signature}: it is given "
            f"{len(names)} arguments, in this order. Their names are yours to choose."
        ) from None
    except ValueError:  # a built-in function, which has no signature to look at
        pass


def _not_understood(exercise: Exercise, kind: str, text: str) -> str:
    what = f"what {exercise.name} gave back or left behind"
    return f"The check could not read {what} ({kind}: {text}), though your own code raised nothing."


HERE = str(Path(__file__).parent)


def _in_our_own_code(fault: BaseException, function: Callable[..., Any]) -> bool:
    """Whether an exception came through our own files alone: the student's code raised nothing."""
    files = {frame.f_code.co_filename for frame, _ in traceback.walk_tb(fault.__traceback__)}
    own = _file_of(function)
    return own is not None and own not in files and all(name.startswith(HERE) for name in files)


def _line_of(fault: BaseException, function: Callable[..., Any]) -> str:
    """The innermost line of the student's own file that an exception came through."""
    own, line = _file_of(function), ""
    for frame, number in traceback.walk_tb(fault.__traceback__):
        if frame.f_code.co_filename == own:
            line = linecache.getline(own, number).strip()
    return f", at the line: {line[:100]}" if line else ""


def _file_of(function: Callable[..., Any]) -> str | None:
    """The file that a function, or a class's first method, was written in."""
    codes = [function, *vars(function).values()] if isinstance(function, type) else [function]
    found = (getattr(inspect.unwrap(one), "__code__", None) for one in codes)
    return next((code.co_filename for code in found if code is not None), None)


@contextmanager
def usual_torch(device: Any) -> Iterator[None]:
    """Everything as it is when fresh, whatever a notebook has set, and given back afterwards.

    The seeds of torch, NumPy and Python, torch's default dtype, grad and inference mode, autocast.
    """
    computes = torch.device(device)
    # Graded on the CPU, an answer's torch.manual_seed() seeds every device in use all the same.
    with undisturbed(None if computes == CPU else computes), fresh_settings(), on_the_cpu():
        generator = torch if device.type == "cuda" else torch.default_generator
        generator.manual_seed(0)  # torch's own also notes down the stack, for CUDA
        random.seed(0)
        np.random.seed(0)
        yield


def copy_of(case: Any) -> Any:
    """A copy of plain data, so that what one function changes in place no other sees."""
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
        if not isinstance(expected, Raised) and (unfit := _unfit(expected)):
            expected = Raised("AnswerError", unfit)
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


def _unfit(answer: Answer) -> str:
    """What is wrong with the kind of a field; empty if every field is fit."""
    texts = (str(v[UNFIT]) for v in answer.values() if isinstance(v, dict) and UNFIT in v)
    return next(texts, "")


def _recognised(
    exercise: Exercise,
    results: list[PartResult],
    asked: dict[str, list[Case]],
    answers: dict[str, list[Any]],
    questions: _Questions,
    device: Any,
) -> list[PartResult]:
    """Say of each failed part which misconception its answers show, where that is certain."""
    failed = [result for result in results if not result.passed]
    if not failed:
        return results
    look = _Recogniser(exercise, results, asked, answers, questions, device)
    whole = look.shown_by([(result.part, result.part.fields) for result in failed])
    return [
        result if result.passed else replace(result, shows=whole or look.by_itself(result))
        for result in results
    ]


class _Recogniser:
    """Looks for the wrong function of the bank that answers as a student did.

    A misconception is named if its wrong function answers alike, in at least `EVIDENCE` cases in a
    way that is neither right nor trivial, and no other wrong function of the bank does. One that
    answers alike in every case explains all of it. Otherwise each failed part is looked at by
    itself, in the field that differs, since answers often show two mistakes at once. Nothing else
    in the same answers may then deny the name: it explains that field in every part, and it would
    not have failed in a field that came out right.
    """

    def __init__(
        self,
        exercise: Exercise,
        results: list[PartResult],
        asked: dict[str, list[Case]],
        answers: dict[str, list[Any]],
        questions: _Questions,
        device: Any,
    ) -> None:
        self.exercise, self.right, self.device = exercise, questions.right, device
        self.parts = [result.part for result in results]
        self.passed = [result.part for result in results if result.passed]
        self.pairs = {
            key: list(zip(asked[key], given, strict=True)) for key, given in answers.items()
        }
        self.bank = questions.wrong

    def by_itself(self, result: PartResult) -> Wrong | None:
        """What a failed part shows in the field that differs, if nothing else denies it."""
        if result.difference is None:
            return self.shown_by([(result.part, result.part.fields)], deniable=True)
        field = result.difference.field
        looks_at = [(part, (field,)) for part in self.parts if field in (part.fields or (field,))]
        here = (result.part, result.part.fields)  # tells those apart that are alike in the field
        return self.shown_by(looks_at, deniable=True) or self.shown_by(
            [*looks_at, here], deniable=True
        )

    def shown_by(self, scope: Scope, *, deniable: bool = False) -> Wrong | None:
        """The one misconception that the answers show in a scope, or None."""
        candidates = [
            (wrong, oracle)
            for wrong, oracle in self.bank
            if all(self.alike(wrong, oracle, *where, skip_raised=deniable) for where in scope)
            and all(self.alike(wrong, oracle, part, part.fields) for part in self.passed)
            and not (deniable and self.denied(oracle))
        ]
        names = {wrong.name for wrong, _ in candidates}
        if len(names) != 1 or not any(self.evident(*one, scope) for one in candidates):
            return None
        return next((wrong for wrong in self.exercise.wrong
                     if wrong.name in names and wrong.message), None)  # fmt: skip

    def alike(
        self,
        wrong: Wrong,
        oracle: _Oracle,
        part: Part,
        fields: tuple[str, ...],
        *,
        skip_raised: bool = False,
    ) -> bool:
        """Whether it answers alike in all cases of a part, apart from those without a value."""
        valued = [
            (case, answer)
            for case, answer in self.pairs[part.key]
            if not (skip_raised and fields != part.fields and isinstance(answer, Raised))
        ]
        if any(isinstance(answer, Raised) and not _told(wrong, answer) for _, answer in valued):
            return False  # what is blank is like nothing: the wrong function need not be called
        return all(
            _alike(self.exercise, wrong, fields, oracle(case), answer, self.device)
            for case, answer in valued
        )

    def denied(self, oracle: _Oracle) -> bool:
        """Whether an answer came, and is right, where the wrong function's is not."""
        return any(
            not isinstance(answer, Raised)
            and (isinstance(oracle(case), Raised) or self.right_where_not(oracle, case, answer, f))
            for part in self.parts
            for case, answer in self.pairs[part.key]
            for f in part.fields or self.right(case)
        )

    def right_where_not(self, oracle: _Oracle, case: Case, answer: Answer, field: str) -> bool:
        """Whether a field of an answer is right, and not that of the wrong function."""
        known, given = (
            _difference(self.exercise, (field,), self.right(case), one, self.device)
            for one in (oracle(case), answer)
        )
        return known is not None and given is None

    def evident(self, wrong: Wrong, oracle: _Oracle, scope: Scope) -> bool:
        """Whether the wrong function shows in enough cases for more than a coincidence."""
        shown = 0
        for part, fields in scope:
            for case, _ in self.pairs[part.key]:
                known = oracle(case)
                if isinstance(known, Raised):
                    shown += bool(wrong.raises)
                elif any(
                    (found := _difference(
                        self.exercise, (field,), self.right(case), known, self.device
                    ))
                    and not found.trivial
                    for field in fields or self.right(case)
                ):  # fmt: skip
                    shown += 1
        return wrong.sure or shown >= EVIDENCE


def _alike(
    exercise: Exercise,
    wrong: Wrong,
    fields: tuple[str, ...],
    known: Any,
    answer: Any,
    device: Any,
) -> bool:
    """Whether an answer is a wrong function's: equal fields, or an exception known to be its."""
    if isinstance(known, Raised) or isinstance(answer, Raised):
        return all(isinstance(one, Raised) and _told(wrong, one) for one in (known, answer))
    return _difference(exercise, fields, known, answer, device) is None


def _told(wrong: Wrong, raised: Raised) -> bool:
    """Whether an exception is one that is known to be a wrong function's."""
    about = f"{raised.kind}: {raised.text}"
    return bool(wrong.raises) and re.search(wrong.raises, about) is not None


def difference_in(exercise: Exercise, part: Part, case: Case, answer: Answer) -> Difference | None:
    """Where an answer to one case of a part differs from the reference's, on the CPU."""
    right = _Reference(exercise, exercise.reference, CPU)(case)
    return _difference(exercise, part.fields, right, answer, CPU)


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
