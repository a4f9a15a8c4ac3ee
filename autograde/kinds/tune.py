"""Tune: settings that reach a quality in few updates, over several seeds.

    EXERCISE = Tune(
        id="03a.arena", ..., question="...",
        settings={"lr": (1e-5, 10.0), "optimizer": ["sgd", "adam"], "momentum": (0.0, 0.99)},
        only_with={"momentum": ("optimizer", "sgd")},   # None, or left out, with adam
        train=train,          # train(settings, seed) yields the quality after every update
        quality=0.95, most=300, seeds=(0, 1, 2),
        thresholds=((200, 1), (80, 1), (40, 1)),
    )

What counts is the median over the seeds of the updates that the quality takes; a run ends after
`most` of them. Updates are counted, not seconds, and the seeds are always the same, so every
machine gives the same points: `train` computes in float64 where rounding could move a count.
The student hands over a dict, or a function without arguments that returns one. Only this dict
travels: the referee trains.
"""

from __future__ import annotations

import json
import math
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

import torch

from autograde.exercise import AnswerError, Part
from autograde.kinds.value import Said, ValueExercise, brief
from autograde.kit.question import Question
from autograde.verdict import PartResult
from course.state import undisturbed


@dataclass(frozen=True, kw_only=True)
class Tune(ValueExercise):
    """Settings, each in a range or from a list, judged by how training with them goes."""

    kind: str = "tune"
    settings: Mapping[str, tuple[float, float] | list[Any]]
    """What may be set: `(low, high)`, both included (whole numbers if both are ints), or a list."""
    only_with: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    """By setting, another one and the item of its list without which it has no effect: then it may
    be None or missing, and `train` is given its lowest value."""
    train: Callable[[dict[str, Any], int], Iterator[float]]
    """From settings and seed, the quality after each update; more is better, nan is none."""
    quality: float
    """What must be reached."""
    unit: str
    """In words, e.g. `validation accuracy of 95 %`; where it is a `loss`, quality is minus it."""
    most: int
    """Updates after which a run ends."""
    seeds: tuple[int, ...] = (0, 1, 2)
    thresholds: tuple[tuple[int, float], ...]
    """(updates, points), from easy to hard."""
    remark: Callable[[dict[str, Any]], str] = lambda settings: ""
    """What the settings do to a run that does not reach the quality, and its end does not show."""
    good: Mapping[str, Any]
    """Settings that pass every threshold: the solution."""
    parts: tuple[Part, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        limits = [updates for updates, _ in self.thresholds]
        assert limits == sorted(limits, reverse=True) and limits[0] <= self.most, self.id
        parts = tuple(
            Part(f"within-{updates}", f"within {updates} updates", points=points)
            for updates, points in self.thresholds
        )
        object.__setattr__(self, "parts", parts)

    def right_value(self, student: str) -> dict[str, Any]:
        """The solution."""
        return dict(self.good)

    def blank(self) -> str:
        """A dict of Nones to be filled in."""
        return "{" + ", ".join(f'"{name}": None' for name in self.settings) + "}"

    def shown_to(self, student: str) -> Question:
        """The question, the settings and what is paid."""
        *most, last = (f"{updates}" for updates, _ in self.thresholds)
        paid = f"One point each for at most {', '.join(most)} and {last} updates."
        if {points for _, points in self.thresholds} != {1} or not most:
            paid = "Points add up: " + ", ".join(
                f"{points:g} for at most {updates} updates" for updates, points in self.thresholds
            ) + "."  # fmt: skip
        ranges = tuple((name, _range(allowed)) for name, allowed in self.settings.items())
        return Question(
            title=f"{self.id} · {self.title}",
            text=f"{self.question} Goal: a {self.unit} in few updates. The median over "
            f"{len(self.seeds)} seeds counts, and a run ends after {self.most} updates. {paid}",
            lines=ranges,
            answer=f"Answer: `{self.name} = {{{', '.join(f'{n!r}: ...' for n in self.settings)}}}`"
            ", or a function that returns it.".replace("'", '"'),
            values=dict(self.settings),
        )

    def parse(self, value: Any, student: str) -> dict[str, Any]:
        """The settings, each within its range."""
        if not isinstance(value, dict):
            raise AnswerError(
                f"{brief(value)!r} should be a dictionary with {', '.join(self.settings)}."
            )
        for name in value:
            if name not in self.settings:
                raise AnswerError(f"'{brief(name)}' cannot be set; {', '.join(self.settings)} can.")
        found = {
            name: None if value.get(name) is None else _checked(name, value[name], allowed)
            for name, allowed in self.settings.items()
        }
        for name in self.settings:
            if found[name] is None:
                found[name] = self._unused(name, found)
        return found

    def _unused(self, name: str, found: dict[str, Any]) -> Any:
        """What stands for a setting that is not set, because it has no effect with the others."""
        other, needed = self.only_with.get(name, ("", None))
        if not other or found[other] in (None, needed):
            allowed = self.settings[name]
            none = bool(other) and not isinstance(allowed, list) and allowed[0] == 0
            more = f" With {needed} give a number; 0 is none." if none and found[other] else ""
            raise AnswerError(f"'{name}' is not set yet.{more}")
        return self.settings[name][0]

    def judge_parts(self, answer: dict[str, Any], student: str) -> list[PartResult]:
        """Train, and pay every threshold that the median passes."""
        runs = self._runs(tuple(answer.items()))
        median = statistics.median(count for count, _ in runs)
        reached = "; ".join(
            f"not reached (in the end {self._in_words(last)})"
            if math.isinf(count)
            else f"{count:g}"
            for count, last in runs
        )
        reason = f"Updates until a {self.unit}, by seed: {reached}."
        if math.isinf(median):
            none_does = all(math.isinf(count) for count, _ in runs)
            reason += f" {self._compare_by([last for _, last in runs], none_does=none_does)}"
            reason = f"{reason} {self.remark(answer)}".rstrip()
        results = [
            PartResult(part, median <= updates)
            for part, (updates, _) in zip(self.parts, self.thresholds, strict=True)
        ]
        last = results[-1]
        results[-1] = Said(last.part, last.passed, reason=reason)
        return results

    def counts(self, settings: tuple[tuple[str, Any], ...]) -> list[float]:
        """Updates that each seed takes; inf where the quality is not reached."""
        return [count for count, _ in self._runs(settings)]

    def _runs(self, settings: tuple[tuple[str, Any], ...]) -> list[tuple[float, float]]:
        return _runs(self.id, self.train, settings, self.seeds, self.quality, self.most)

    @property
    def measure(self) -> str:
        """What is measured: `validation accuracy`."""
        return self.unit.partition(" of ")[0]

    def _in_words(self, quality: float) -> str:
        """A quality as its unit says it: `31.4 %`, or a loss."""
        if self.unit.endswith("%"):
            return f"{100 * quality:.1f} %"
        return f"{-quality if self.measure.endswith('loss') else quality:.3g}"

    def _compare_by(self, ends: list[float], *, none_does: bool) -> str:
        """What to watch while most runs do not reach the goal."""
        if any(map(math.isnan, ends)):
            return "nan comes from numbers that overflow: first try a smaller rate."
        runs = "No run reaches" if none_does else "Most runs do not reach"
        return f"{runs} the goal yet, so compare settings by their {self.measure} in the end."

    @property
    def next_step(self) -> str:
        """Change one setting at a time."""
        return (
            "Change one setting at a time: a number by a factor of 3, up or down, or one choice "
            f'for another. hint("{self.id}") says which one to start with.'
        )


@lru_cache(maxsize=256)
def _runs(
    _id: str, train: Callable, settings: tuple, seeds: tuple[int, ...], quality: float, most: int
) -> list[tuple[float, float]]:
    """Of each seed: the updates until the quality is reached, and the quality at that point."""
    found = []
    for seed in seeds:
        # as a fresh process has it, and nothing of it is left behind
        with undisturbed(), torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.default_generator.manual_seed(seed)
            count, got = math.inf, math.nan
            for update, got in enumerate(islice(train(dict(settings), seed), most), start=1):
                if got >= quality:
                    count = update
                    break
            found.append((count, got))
    return found


def _range(allowed: tuple[float, float] | list[Any]) -> str:
    if isinstance(allowed, list):
        return "one of " + ", ".join(f"`{json.dumps(item)}`" for item in allowed)
    low, high = allowed
    whole = "a whole number " if isinstance(low, int) and isinstance(high, int) else ""
    return f"{whole}from {low:g} to {high:g}"


def _checked(name: str, value: Any, allowed: tuple[float, float] | list[Any]) -> Any:
    if isinstance(allowed, list):
        same = [item for item in allowed if isinstance(item, str) and isinstance(value, str)
                and item.lower() == value.strip().lower()]  # fmt: skip
        if same:
            return same[0]
        if isinstance(value, bool) != any(isinstance(item, bool) for item in allowed) or (
            value not in allowed
        ):
            raise AnswerError(f"{name} = {_shown(value)}: it should be {_range(allowed)}.")
        return value
    low, high = allowed
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        asked = _range(allowed)
        asked = asked if asked.startswith("a whole number") else f"a number {asked}"
        raise AnswerError(f"{name} = {_shown(value)}: it should be {asked}.")
    if isinstance(low, int) and isinstance(high, int):
        if value != int(value):
            raise AnswerError(f"{name} = {brief(value)}: it should be a whole number.")
        return int(value)
    return float(value)


def _shown(value: Any) -> str:
    """As the student wrote it: a text in quotes, and called one."""
    return f"the text {brief(value)!r}" if isinstance(value, str) else brief(value)
