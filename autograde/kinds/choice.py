"""Choice: one option, or all that apply; in a different order for each student.

    EXERCISE = Choice(
        id="03a.what-next", title=..., source=..., ledger=("X01",), minutes=3, difficulty=1,
        read=(...), hints=(..., ..., ...),
        question="The loss is flat for 100 steps. What do you do first?", worth=2,
        options=(
            Option("overfit", "Overfit four examples.", right=True),
            Option("adamw", "Change to AdamW.", "What the option shows, and what is so instead."),
            ...
        ),
    )

An option that is wrong carries the misconception it shows. Of `Choices`, an option that applies and
is left out may carry one, too. The letter (as shown to this student) and the key both count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from autograde.exercise import AnswerError, Draw, Part, Wrong
from autograde.kinds.shuffled import LETTERS, check_keys, key_of, keys_of, permuted
from autograde.kinds.value import Said, ValueExercise
from autograde.kit.question import Question
from autograde.kit.student import plain_name
from autograde.verdict import PartResult


@dataclass(frozen=True)
class Option:
    """One option of a choice."""

    key: str
    """Short and stable; the class table names misconceptions by it."""
    text: str
    """The text that the student reads."""
    shows: str = ""
    """The message for a student who is wrong about it."""
    right: bool = False
    """It applies."""


@dataclass(frozen=True, kw_only=True)
class _Options(ValueExercise):
    options: tuple[Option, ...]
    worth: float
    """Points of the check."""
    parts: tuple[Part, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        check_keys(self.id, [option.key for option in self.options])
        object.__setattr__(self, "parts", self._parts())
        wrong = tuple(
            Wrong(option.key, (lambda key: lambda: key)(option.key), option.shows)
            for option in self.options
            if option.shows
        )
        object.__setattr__(self, "wrong", wrong)

    def _parts(self) -> tuple[Part, ...]:
        raise NotImplementedError

    def order_for(self, student: str) -> list[str]:
        """The options' keys in this student's order."""
        draw = Draw(0, f"{plain_name(student)}/{self.id}")
        return permuted(draw, [option.key for option in self.options])

    def shown_to(self, student: str) -> Question:
        """The question with lettered options, by letter in the mapping."""
        texts = {option.key: option.text for option in self.options}
        order = self.order_for(student)
        lettered = dict(zip(LETTERS, order, strict=False))
        return Question(
            title=f"{self.id} · {self.title}",
            text=self.question,
            lines=tuple((letter, f"{texts[key]} (`{key}`)") for letter, key in lettered.items()),
            answer=f"Answer: `{self.name} = ...`, {self.how}.",
            values=lettered,
        )

    how = ""

    def _message(self, key: str) -> Wrong | None:
        return next((wrong for wrong in self.wrong if wrong.name == key), None)


@dataclass(frozen=True, kw_only=True)
class Choice(_Options):
    """One option is right."""

    kind: str = "choice"
    how = "one letter or one key, as a string"

    def _parts(self) -> tuple[Part, ...]:
        right = [option for option in self.options if option.right]
        assert len(right) == 1, f"{self.id}: {len(right)} options are right; a choice has one"
        assert all(o.shows for o in self.options if not o.right), f"{self.id}: say what each shows"
        return (Part("choice", "the option that is right", points=self.worth),)

    def right_value(self, student: str) -> str:
        """The right option's key."""
        return next(option.key for option in self.options if option.right)

    def blank(self) -> str:
        """None, and what to write."""
        return 'None  # a letter, e.g. "A"'

    def parse(self, value: Any, student: str) -> dict[str, Any]:
        """The key chosen."""
        if isinstance(value, list):
            if len(value) != 1:
                raise AnswerError(f"{len(value)} options were given; choose one.")
            value = value[0]
        return {"choice": key_of(value, self.order_for(student))}

    def judge_parts(self, answer: dict[str, Any], student: str) -> list[PartResult]:
        """Right, or the misconception that the option shows."""
        (part,), key = self.parts, answer["choice"]
        if key == self.right_value(student):
            return [PartResult(part, True)]
        letter = LETTERS[self.order_for(student).index(key)]
        reason = f"{letter} (`{key}`) is not right."
        return [Said(part, False, shows=self._message(key), reason=reason)]


@dataclass(frozen=True, kw_only=True)
class Choices(_Options):
    """All that apply: half of the points for one mistake, none for two."""

    kind: str = "choices"
    how = 'a list of letters or keys, e.g. `["A", "C"]`'

    def _parts(self) -> tuple[Part, ...]:
        right = sum(option.right for option in self.options)
        assert 2 <= right <= len(self.options) - 2, (
            f"{self.id}: {right} of {len(self.options)} options apply; to choose all, or nothing, "
            "must be wrong twice"
        )
        return (
            Part("nearly", "at most one option is wrong", points=self.worth / 2),
            Part("all", "every option is right", points=self.worth / 2),
        )

    def right_value(self, student: str) -> list[str]:
        """The keys that apply."""
        return [option.key for option in self.options if option.right]

    def blank(self) -> str:
        """An empty list."""
        return '[]  # letters, e.g. ["A", "C"]'

    def parse(self, value: Any, student: str) -> dict[str, Any]:
        """The keys chosen."""
        return {"all": keys_of(value, self.order_for(student))}

    def judge_parts(self, answer: dict[str, Any], student: str) -> list[PartResult]:
        """How many options are wrong, and what the first of them shows."""
        chosen = set(answer["all"])
        wrong = [option for option in self.options if option.right != (option.key in chosen)]
        shows = next((found for o in wrong if (found := self._message(o.key))), None)
        letters = dict(zip(self.order_for(student), LETTERS, strict=False))
        count = "One option is" if len(wrong) == 1 else f"{len(wrong)} options are"
        results: list[PartResult] = []
        for part, allowed in zip(self.parts, (1, 0), strict=True):
            if len(wrong) <= allowed:
                results.append(PartResult(part, True))
            else:
                reason = f"{count} chosen wrongly or missing."
                if shows:
                    reason += f" About {letters[shows.name]} (`{shows.name}`):"
                results.append(Said(part, False, shows=shows, reason=reason))
        return results
