"""Number: predict a result, from inputs drawn for each student.

    EXERCISE = Number(
        id="03a.windows", title=..., source=..., ledger=(...), minutes=5, difficulty=1,
        read=(...), hints=(..., ..., ...),
        question="{examples:,} examples in batches of {batch_size}. How many batches ...?",
        inputs={"examples": (2_000, 9_000), "batch_size": [32, 48, 64]},
        answer=lambda examples, batch_size: {"batches": math.ceil(examples / batch_size)},
        parts=(Part("batches", "batches per epoch", points=1),),
        wrong=(Wrong("floor", lambda examples, batch_size: {"batches": ...}, "..."),),
    )

Inputs are drawn again until every wrong answer differs from the right one and from every other of
its part, so a student's number says which mistake was made, or none that is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from autograde.exercise import AnswerError, Draw, Part, Wrong
from autograde.kinds.value import (
    FOR_ANOTHER,
    NO_NAME,
    UNSET,
    Said,
    ValueExercise,
    _none,
    brief,
)
from autograde.kit.question import Question
from autograde.kit.student import plain_name
from autograde.verdict import PartResult, Verdict

TRIES = 2000
APART = 3.0
"""Two answers are apart when they differ by more than this many tolerances."""
UNROUNDED = 0.06
"""How far a fraction may be from the one that a slip gives: students type one decimal."""
NOT_WHOLE = " is not a whole number, but it should be."


@dataclass(frozen=True, kw_only=True)
class Number(ValueExercise):
    """One number, or several with names; the answer is a number, or a dict or list of them."""

    kind: str = "number"
    inputs: Mapping[str, tuple[Any, Any] | list[Any]] | Callable[[Draw], dict[str, Any]]
    """What a student's inputs are drawn from, by name: `(low, high)`, both included, or a list to
    choose from; or a function that draws all of them."""
    answer: Callable[..., Any]
    """The right answer to inputs: one number, or a dict with a number for each part's key.

    An int asks for exactly this whole number, a float for one within `within`.
    """
    within: float = 0.01
    """How far a float may be off, relative to the right answer (absolute where that is 0)."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Unit by part's key, e.g. `{"memory": "MB"}`."""
    carried: Mapping[str, Callable[..., dict[str, Any]]] = field(default_factory=dict)
    """By a known mistake's name, what it makes of other parts where the number alone may also be
    another mistake's: believed only if the mistake itself was seen in this answer."""
    look: str = (
        "Take a tiny case that you can count by hand, find the rule there, then insert your "
        "numbers."
    )
    """What to try where no known mistake gives the number."""
    needs_name: bool = field(default=True, init=False)
    drawn: dict[str, dict[str, Any]] = field(default_factory=dict, init=False, repr=False)

    def inputs_of(self, student: str) -> dict[str, Any]:
        """This student's inputs."""
        name = plain_name(student)
        if name not in self.drawn:
            self.drawn[name] = self._draw_for(name)
        return dict(self.drawn[name])

    def _draw_for(self, name: str) -> dict[str, Any]:
        draw = Draw(0, f"{name}/{self.id}")
        for _ in range(TRIES):
            if callable(self.inputs):
                inputs = self.inputs(draw)
            else:
                inputs = {key: _drawn(draw, values) for key, values in self.inputs.items()}
            if not confused(self, inputs):
                return inputs
        raise AssertionError(
            f"{self.id}: in {TRIES} draws two answers were always alike, e.g. "
            f"{confused(self, inputs)} for {inputs}"
        )

    def by_part(self, function: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Any]:
        """What a function of the inputs answers, by part; a wrong one may leave parts out."""
        value = function(**inputs)
        return dict(value) if isinstance(value, Mapping) else {self.parts[0].key: value}

    def right_value(self, student: str) -> Any:
        """The right answer to this student's inputs."""
        return self.answer(**self.inputs_of(student))

    def shown_to(self, student: str) -> Question:
        """The question with the student's inputs; without a name, how to get them."""
        inputs = self.inputs_of(student) if plain_name(student) else {}
        return Question(
            title=f"{self.id} · {self.title}",
            text=self.question.format(**inputs) if inputs else NO_NAME,
            lines=tuple(self._asked(inputs)) if inputs else (),
            answer=f"Answer: `{self.name} = {self._form()}`",
            values=inputs,
        )

    def _with_numbers(self, inputs: dict[str, Any]) -> list[Part]:
        """The parts; a title may use the inputs in braces."""
        return [replace(part, title=part.title.format(**inputs)) for part in self.parts]

    def _asked(self, inputs: dict[str, Any]) -> Iterator[tuple[str, str]]:
        example = self.answer(**self.inputs_of("example"))
        values = example if isinstance(example, Mapping) else {self.parts[0].key: example}
        for part in self._with_numbers(inputs):
            unit = f", in {self.units[part.key]}" if part.key in self.units else ""
            exact = isinstance(values[part.key], int)
            kind = "a whole number" if exact else f"right within {100 * self.within:g} %"
            yield part.key, f"{part.title}{unit} ({kind})"

    def _form(self) -> str:
        if len(self.parts) == 1:
            return "..."
        return "{" + ", ".join(f'"{part.key}": ...' for part in self.parts) + "}"

    def blank(self) -> str:
        """None, or a dict of Nones to be filled in."""
        if len(self.parts) == 1:
            return "None  # your number"
        return "{" + ", ".join(f'"{part.key}": None' for part in self.parts) + "}"

    def parse(self, value: Any, student: str) -> dict[str, Any]:
        """A number for each part; None where one is not answered yet."""
        keys = [part.key for part in self.parts]
        if isinstance(value, list):
            if len(value) != len(keys):
                raise AnswerError(
                    f"This list has {len(value)} numbers, but {len(keys)} are needed: `{self.name} "
                    f"= {self._form()}`."
                )
            value = dict(zip(keys, value, strict=True))
        elif not isinstance(value, dict):
            if len(keys) > 1:
                raise AnswerError(
                    f"This is one value ({brief(value)}), but {len(keys)} are needed: `{self.name} "
                    f"= {self._form()}`."
                )
            value = {keys[0]: value}
        if unknown := [key for key in value if key not in keys]:
            raise AnswerError(
                f"'{brief(unknown[0])}' is not one of the numbers needed: {', '.join(keys)}."
            )
        return {key: _number(value.get(key), key) for key in keys}

    def judge_parts(self, answer: dict[str, Any], student: str) -> list[PartResult]:
        """Each number against the right one; a wrong one against the known wrong answers."""
        inputs = self.inputs_of(student)
        right = self.by_part(self.answer, inputs)
        refused = {
            key: got
            for key, got in answer.items()
            if got is None or not agrees(right[key], got, self.within)
        }
        shown = {
            key: None if got is None else self._shown_by(key, got, inputs)
            for key, got in refused.items()
        }
        shown = {key: self._carried_into(key, refused, shown, inputs) for key in refused}
        return [
            Said(part, False, shows=shown[part.key],
                 reason=_refusal(refused[part.key], right[part.key]))
            if part.key in refused else PartResult(part, True)
            for part in self._with_numbers(inputs)
        ]  # fmt: skip

    def _carried_into(
        self,
        key: str,
        refused: dict[str, Any],
        shown: dict[str, Wrong | None],
        inputs: dict[str, Any],
    ) -> Wrong | None:
        """A mistake seen in another part, where carrying it on gives this number as well."""
        for other, wrong in shown.items():
            if other == key or wrong is None or wrong.name not in self.carried:
                continue
            value = self.carried[wrong.name](**inputs).get(key)
            got = refused[key]
            if None not in (value, got) and agrees(value, got, self.within):
                return wrong
        return shown[key]

    def _shown_by(self, key: str, got: float, inputs: dict[str, Any]) -> Wrong | None:
        right = self.by_part(self.answer, inputs)[key]
        for wrong in self.wrong:
            value = self.by_part(wrong.function, inputs).get(key)
            if value is None:
                continue
            if isinstance(right, int) and isinstance(value, float):  # a count that is not rounded
                alike = got % 1 != 0 and abs(got - value) < UNROUNDED
            else:
                alike = agrees(value, got, self.within)
            if alike:
                return replace(wrong, function=_none, message=wrong.message.format(**inputs))
        return None

    @property
    def next_step(self) -> str:
        """For a number that no known mistake gives."""
        return f'No known mistake gives that. {self.look} hint("{self.id}") helps.'

    def said_below(self, reasons: list[str]) -> list[str]:
        """What is said of one number stands at its part, even if another part has the same; what is
        said of the name typed is said once."""
        shared = super().said_below(reasons)
        return [reason for reason in shared if reason == UNSET or reason.startswith(FOR_ANOTHER)]

    def _says_what_next(self, verdict: Verdict) -> bool:
        """Not if all that is wrong is a fraction instead of a whole number."""
        reasons = [getattr(r, "reason", "") for r in verdict.parts if not r.passed]
        explained = all(reason == UNSET or reason.endswith(NOT_WHOLE) for reason in reasons)
        return not explained and super()._says_what_next(verdict)


def _drawn(draw: Draw, values: tuple[Any, Any] | list[Any]) -> Any:
    """One of a list; a number between two, whole if both are."""
    if isinstance(values, list):
        return draw.choice(values)
    low, high = values
    whole = isinstance(low, int) and isinstance(high, int)
    return draw.integer(low, high) if whole else draw.uniform(low, high)


def confused(exercise: Number, inputs: dict[str, Any]) -> list[str]:
    """Answers of a part that a number could not tell apart, `right` among them."""
    right = exercise.by_part(exercise.answer, inputs)
    found = []
    for part in exercise.parts:
        known = {"right": right[part.key]}
        for wrong in exercise.wrong:
            value = exercise.by_part(wrong.function, inputs).get(part.key)
            if value is not None:
                known[wrong.name] = value
        names = list(known)
        found += [
            f"{part.key}: {a} and {b}"
            for i, a in enumerate(names)
            for b in names[:i]
            if agrees(known[b], known[a], APART * exercise.within)
        ]
    return found


def agrees(right: float, got: float, within: float) -> bool:
    """Whether a number is the right one: exactly if that is an int, else within a tolerance."""
    if isinstance(right, int):
        return right == got
    return math.isfinite(got) and abs(got - right) <= within * (abs(right) or 1.0)


def _number(value: Any, key: str) -> float | None:
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    if isinstance(value, list) and len(value) == 1:
        return _number(value[0], key)
    kind = "text" if isinstance(value, str) else type(value).__name__
    raise AnswerError(f"{key}: this should be a number, not the {kind} {brief(value)!r}.")


def _refusal(got: float | None, right: float) -> str:
    """What is said of a number that is not the right one."""
    if got is None:
        return UNSET
    if isinstance(right, int) and got % 1 != 0:  # inf and nan as well
        return f"{brief(got)}{NOT_WHOLE}"
    return f"{brief(got)} is not right."
