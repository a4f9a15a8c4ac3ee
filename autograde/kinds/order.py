"""Order: put steps in order; if several orders are right, all of them count.

    EXERCISE = Order(
        id="03a.order", ..., question="Put the operations of one update in order.", worth=2,
        steps=(Step("forward", "`logits = model(inputs)`"), ...),
        rules=(Rule("backward", "step", "What a student believes who puts step first."), ...),
    )

The rules say what comes before what; what they leave open is free. A broken rule carries the
misconception that it shows. `steps` in the order given must keep all rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from autograde.exercise import AnswerError, Draw, Part, Wrong
from autograde.kinds.shuffled import LETTERS, check_keys, keys_of, permuted
from autograde.kinds.value import Said, ValueExercise
from autograde.kit.question import Question
from autograde.kit.student import plain_name
from autograde.verdict import PartResult


@dataclass(frozen=True)
class Step:
    """One of the things to put in order."""

    key: str
    text: str


@dataclass(frozen=True)
class Rule:
    """One step comes before another."""

    first: str
    then: str
    shows: str
    """The message for a student who has them the other way round."""

    @property
    def name(self) -> str:
        """As the class table names it."""
        return f"{self.then}-before-{self.first}"

    def is_broken(self, order: list[str]) -> bool:
        """Whether an order has the two the other way round."""
        return order.index(self.first) > order.index(self.then)


@dataclass(frozen=True, kw_only=True)
class Order(ValueExercise):
    """All steps in an order that keeps the rules; half of the points with one step out of place."""

    kind: str = "order"
    steps: tuple[Step, ...]
    rules: tuple[Rule, ...]
    worth: float
    """Points of the check."""
    parts: tuple[Part, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        keys = self.keys
        check_keys(self.id, keys)
        assert not self.broken(keys), f"{self.id}: the order given breaks its own rules"
        shown_worst = self.out_of_place(keys[::-1])
        assert shown_worst == 2, f"{self.id}: too few rules: the reverse order would earn points"
        parts = (
            Part("nearly", "at most one step is out of place", points=self.worth / 2),
            Part("order", "every step is in its place", points=self.worth / 2),
        )
        object.__setattr__(self, "parts", parts)
        wrong = tuple(Wrong(rule.name, lambda: None, rule.shows) for rule in self.rules)
        object.__setattr__(self, "wrong", wrong)

    @property
    def keys(self) -> list[str]:
        """Of the steps, in a right order."""
        return [step.key for step in self.steps]

    def broken(self, order: list[str]) -> list[Rule]:
        """Rules that an order breaks."""
        return [rule for rule in self.rules if rule.is_broken(order)]

    def out_of_place(self, order: list[str]) -> int:
        """0; 1 if taking one step out leaves the others in order; 2 for anything worse."""
        place = {key: i for i, key in enumerate(order)}
        broken = [pair for pair in self._before() if place[pair[0]] > place[pair[1]]]
        if not broken:
            return 0
        return 1 if any(all(key in pair for pair in broken) for key in order) else 2

    def _before(self) -> set[tuple[str, str]]:
        """Every pair that the rules order, also through a third step."""
        pairs = {(rule.first, rule.then) for rule in self.rules}
        while more := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
            pairs |= more
        return pairs

    def order_for(self, student: str) -> list[str]:
        """The steps as this student sees them: in an order that earns nothing."""
        draw = Draw(0, f"{plain_name(student)}/{self.id}")
        while self.out_of_place(order := permuted(draw, self.keys)) < 2:
            pass
        return order

    def right_value(self, student: str) -> list[str]:
        """A right order, as keys."""
        return self.keys

    def blank(self) -> str:
        """An empty list."""
        return '[]  # all letters, first to last, e.g. ["B", "A", ...]'

    def shown_to(self, student: str) -> Question:
        """The question with lettered steps, by letter in the mapping."""
        texts = {step.key: step.text for step in self.steps}
        lettered = dict(zip(LETTERS, self.order_for(student), strict=False))
        return Question(
            title=f"{self.id} · {self.title}",
            text=self.question,
            lines=tuple((letter, f"{texts[key]} (`{key}`)") for letter, key in lettered.items()),
            answer=f"Answer: `{self.name} = [...]`, all letters or keys, first to last.",
            values=lettered,
        )

    def parse(self, value: Any, student: str) -> dict[str, Any]:
        """All keys in the order given."""
        order = keys_of(value, self.order_for(student))
        if missing := [key for key in self.keys if key not in order]:
            raise AnswerError(
                f"{len(order)} of {len(self.keys)} steps were given; `{missing[0]}` is missing."
            )
        return {"order": order}

    def judge_parts(self, answer: dict[str, Any], student: str) -> list[PartResult]:
        """Which rules are broken, and what the first of them shows."""
        broken, misplaced = self.broken(answer["order"]), self.out_of_place(answer["order"])
        shows = next((w for w in self.wrong if broken and w.name == broken[0].name), None)
        results: list[PartResult] = []
        for part, allowed in zip(self.parts, (1, 0), strict=True):
            if misplaced <= allowed:
                results.append(PartResult(part, True))
            else:
                results.append(Said(part, False, shows=shows))
        return results
