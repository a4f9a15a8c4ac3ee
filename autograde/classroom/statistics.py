"""What a class's points say about an exercise: how hard it was, and how well it separates students.

    difficulty p          mean points / full points, 0 to 1: high means easy
    discrimination D      p of the upper 27 % of the class by total - p of the lower 27 %
    point-biserial r      correlation of "full points, yes or no" with the points for all the rest

If the class is too small or too uniform for a number, it is None, and `why` says so in words.

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
    """The statistics of one exercise in a class."""

    name: str
    count: int
    """Students with a final grade for it."""
    solved: int | None
    """How many of these have full points; None while most answers must be graded by hand."""
    mean: float | None
    """Mean points; None if nobody has a grade, or most answers must be graded by hand."""
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
    """Compute one exercise's statistics.

    Args:
        name: Name of the exercise.
        scores: Points for it, by student; students without a final grade for it are left out.
        totals: Points for everything, by student, including the exercise.
        max_score: Full points.
        waiting: How many more answers must be graded by hand. While most do, there are no numbers:
            only blank answers are final without a person, and the exercise would look hard for
            everybody.
    """
    unseen = f"{waiting} answer{' waits' if waiting == 1 else 's wait'} to be graded by hand"
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
        yield f"too few grades ({len(full)}) to tell students apart: at least {LEAST} are needed"
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

    A group is 27 % of the class, rounded, and at least one. Students whose total is at a group's
    edge share the remaining places equally, so that names do not decide who is in.

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
        r, or None if all or none have full points, or if the rest is the same for all.
    """
    if len(set(full)) < 2 or max(rest) - min(rest) < 1e-12 * (1 + abs(statistics.fmean(rest))):
        return None
    return statistics.correlation([float(is_full) for is_full in full], list(rest))


def median(values: Sequence[float]) -> float | None:
    """The middle value, or the mean of the two in the middle; None for no values."""
    return statistics.median(values) if values else None
