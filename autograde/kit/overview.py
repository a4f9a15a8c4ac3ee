"""The notebooks at a glance: exercises, points, minutes; `autograde notebooks` prints it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from autograde import bank
from autograde.kit.outline import Outline, outlines


@dataclass(frozen=True)
class Overview:
    """One notebook's line."""

    name: str
    title: str
    """The title in its first line, without the number."""
    exercises: int
    guesses: int
    points: float
    minutes: int
    kinds: tuple[str, ...]
    """Kinds of its exercises, most frequent first."""


def overviews() -> list[Overview]:
    """Of all released notebooks, in order."""
    return [_of(outline) for outline in outlines().values()]


def _of(outline: Outline) -> Overview:
    asked = [bank.load(id) for id in outline.exercises]
    checked = sum(part.points for exercise in asked for part in exercise.parts)
    return Overview(
        name=outline.name,
        title=outline.title.partition(" · ")[2] or outline.title,
        exercises=len(asked),
        guesses=len(outline.guesses),
        points=checked + outline.points_by_hand,
        minutes=sum(exercise.minutes for exercise in asked),
        kinds=tuple(kind for kind, _ in Counter(one.kind for one in asked).most_common()),
    )


def as_markdown(rows: list[Overview]) -> str:
    """A table with a line per notebook, and totals."""
    lines = [
        "| notebook | about | exercises | points | minutes |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{row.name}` | {row.title} | {row.exercises} | {row.points:g} | {row.minutes} |"
        for row in rows
    ]
    exercises, points, minutes = (
        sum(getattr(row, what) for row in rows) for what in ("exercises", "points", "minutes")
    )
    return "\n".join([*lines, f"| | together | {exercises} | {points:g} | {minutes} |", ""])
