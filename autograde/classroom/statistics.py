"""What a class's points say about an exercise: how hard it was, and whom it tells apart.

    difficulty p          mean points / full points, 0 to 1: high means easy
    discrimination D      p of the upper 27 % of the class by total - p of the lower 27 %
    point-biserial r      correlation of "full points, yes or no" with the points for all the rest

A number that the class is too small or too even for is None, and `why` says so in words.

Source: Kelley, "The selection of upper and lower groups for the validation of test items", Journal
of Educational Psychology 30, 1939 (27 %); Lord & Novick, "Statistical Theories of Mental Test
Scores", 1968, chapter 15 (point-biserial, of an item with the rest of the test).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

GROUP = 0.27
"""Share of the class in the upper and in the lower group."""
LEAST = 4
"""Students needed before the groups, or a correlation, mean anything at all."""


@dataclass(frozen=True, kw_only=True)
class ExerciseStatistics:
    """One exercise in the eyes of a class."""

    name: str
    count: int
    """Students with a final grade for it."""
    solved: int | None
    """Of these, with full points; None while most answers wait for a person."""
    mean: float | None
    """Points, on average; None if nobody has a grade, or most answers wait."""
    max_score: float
    difficulty: float | None
    """p, 0 (nobody got a point) to 1 (everybody got all)."""
    discrimination: float | None
    """D, -1 to 1."""
    point_biserial: float | None
    """r, -1 to 1."""
    why: str = ""
    """Why a number is None; empty if none is."""


def statistics_of(
    name: str,
    scores: Mapping[str, float],
    totals: Mapping[str, float],
    max_score: float,
    *,
    waiting: int = 0,
) -> ExerciseStatistics:
    """One exercise's statistics.

    Args:
        name: Of the exercise.
        scores: Points for it, by student; who has no final grade for it is left out.
        totals: Points for everything, by student, the exercise included.
        max_score: Full points.
        waiting: How many more answers wait for a person. While most do there are no numbers: what
            is final without a person is what was left blank, and would look hard for everybody.
    """
    unseen = f"{waiting} answer{' waits' if waiting == 1 else 's wait'} for a person"
    if waiting > len(scores):
        numbers = ("solved", "mean", "difficulty", "discrimination", "point_biserial")
        why = f"{unseen}, so there are no numbers yet"
        none = dict.fromkeys(numbers)
        return ExerciseStatistics(
            name=name, count=len(scores), max_score=max_score, why=why, **none
        )
    students = sorted(scores)
    points = [scores[student] for student in students]
    sums = [totals[student] for student in students]
    full = [score >= max_score for score in points]
    rest = [total - score for total, score in zip(sums, points, strict=True)]
    mean = math.fsum(points) / len(points) if points else None
    enough, even = len(points) >= LEAST, len(set(sums)) == 1
    r = point_biserial(full, rest) if enough and max_score else None
    reasons = [f"{unseen}: not counted"] if waiting else []
    reasons += _why_no_numbers(full, r, extra=not max_score, even=even)
    return ExerciseStatistics(
        name=name,
        count=len(points),
        solved=sum(full),
        mean=mean,
        max_score=max_score,
        difficulty=mean / max_score if mean is not None and max_score else None,
        discrimination=upper_lower(points, sums, max_score) if enough and not even else None,
        point_biserial=r,
        why="; ".join(reasons),
    )


def _why_no_numbers(
    full: Sequence[bool], r: float | None, *, extra: bool, even: bool
) -> Iterator[str]:
    """Why some of the numbers are None."""
    enough = len(full) >= LEAST
    if not enough:
        yield f"too few grades ({len(full)}) to tell students apart: {LEAST} is least"
    elif even:
        yield "all totals are equal, so nobody is above or below"
    if extra:
        yield "no full points to compare with: it is extra credit only"
    elif enough and not even and r is None:
        yield f"no point-biserial r: {_why_no_r(full)}"


def _why_no_r(full: Sequence[bool]) -> str:
    if all(full) or not any(full):
        return f"{'everybody' if all(full) else 'nobody'} has full points"
    return "all have the same points for the rest"


def upper_lower(points: Sequence[float], totals: Sequence[float], max_score: float) -> float | None:
    """D: mean share of full points in the upper group minus that in the lower group.

    A group is 27 % of the class, rounded, one at least. Students with the total at a group's edge
    share the places that are left in it equally, so that no name decides who is in.

    Returns:
        D, or None for no students or an exercise without points.
    """
    if not points or not max_score:
        return None
    size = max(1, round(GROUP * len(points)))
    upper = _mean_of_top(points, totals, size)
    lower = _mean_of_top(points, [-total for total in totals], size)
    return (upper - lower) / max_score


def _mean_of_top(points: Sequence[float], totals: Sequence[float], size: int) -> float:
    edge = sorted(totals, reverse=True)[size - 1]
    inside = [score for score, total in zip(points, totals, strict=True) if total > edge]
    at_edge = [score for score, total in zip(points, totals, strict=True) if total == edge]
    places_left = size - len(inside)
    return (math.fsum(inside) + places_left * math.fsum(at_edge) / len(at_edge)) / size


def point_biserial(full: Sequence[bool], rest: Sequence[float]) -> float | None:
    """Pearson's correlation between having full points and the score on everything else.

    Returns:
        r, or None where all or none have full points, or where the rest is the same for all.
    """
    if len(set(full)) < 2 or max(rest) - min(rest) < 1e-12 * (1 + abs(statistics.fmean(rest))):
        return None
    return statistics.correlation([float(is_full) for is_full in full], list(rest))


def median(values: Sequence[float]) -> float | None:
    """The middle value, or the mean of the two in the middle; None for no values."""
    return statistics.median(values) if values else None
