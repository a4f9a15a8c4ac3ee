"""A board of real mistakes in buckets: how many to look at, which to merge, what to do first.

The network is that of the course's small study (`course.analysis.study`), with 359 digits for
training and 1,438 for validation. A bucket's ceiling is its share of the mistakes looked at times
the error rate; the interval is Wilson's of that share.

Source: Lecture 3, "Error analysis · categorize, then prioritize"; ledger S19, N24.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from course.analysis.errors import ErrorSet, Mistake, collect_errors
from course.analysis.scores.intervals import Interval, wilson_interval
from course.analysis.study import train
from course.data import load
from course.widgets.base.frames import as_bytes
from course.widgets.base.settings import Checked, choice, slider, toggle

DIGITS = (1, 8, 9)
"""Digits with their own buckets, the first match counts; they have most of the mistakes."""
REST = "another pair"
ALL = 0
"""Look at every mistake."""
DARKEST = 255


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """How many mistakes to look at and which, which buckets are merged, and the network's seed."""

    looked_at: int = choice(
        ALL, (10, 20, 40, ALL), "mistakes looked at", names=("10", "20", "40", "all")
    )
    drawn: str = choice(
        "random", ("random", "confident"), "which",
        names=("a random sample", "the most confident"),
        hint="the network's confidence in its wrong answer",
    )  # fmt: skip
    merge_1: bool = toggle(False, "merge both with 1")
    merge_8: bool = toggle(False, "merge both with 8")
    merge_9: bool = toggle(False, "merge both with 9")
    seed: int = slider(0, (0, 1, 2), "seed of the network")


def frame(settings: Settings) -> dict[str, Any]:
    """Mistakes by bucket, the buckets by descending count, and whether the first two differ."""
    errors = found(settings.seed)
    seen = sample(errors, settings.looked_at, settings.drawn)
    by_bucket: dict[str, list[Mistake]] = {}
    for mistake in seen:
        by_bucket.setdefault(bucket_of(mistake, settings), []).append(mistake)
    rows = [_row(name, inside, len(seen), errors) for name, inside in by_bucket.items()]
    rows.sort(key=lambda row: (-row["count"], row["name"]))
    return {
        "images": images(settings.seed),
        "rows": rows,
        "seen": len(seen),
        "num_mistakes": errors.num_mistakes,
        "num_examples": errors.num_examples,
        "accuracy": 100 * errors.accuracy,
        "decision": decision(rows, len(seen)),
    }


@cache
def found(seed: int) -> ErrorSet:
    """All mistakes of the network with this seed, in a random order."""
    data = load("digits", val_share=0.8)
    _, val_loader = data.loaders(64)
    every = len(data.val_targets)
    return collect_errors(train(data, seed), val_loader, n=every, order="random", seed=seed)


@cache
def images(seed: int) -> dict[str, str]:
    """Each mistake's 64 pixels from 0 to 255, by its index in the validation part."""
    made = {}
    for mistake in found(seed).mistakes:
        pixels = mistake.input.flatten()
        grey = (pixels - pixels.min()) / (pixels.max() - pixels.min()) * DARKEST
        made[str(mistake.index)] = as_bytes(grey.round().to(torch.uint8))
    return made


def sample(errors: ErrorSet, count: int, drawn: str) -> list[Mistake]:
    """The mistakes looked at: the first in random order, or the most confident."""
    mistakes = errors.mistakes
    if drawn == "confident":
        mistakes = sorted(mistakes, key=lambda mistake: -mistake.confidence)
    return mistakes if count == ALL else mistakes[:count]


def bucket_of(mistake: Mistake, settings: Settings) -> str:
    """The bucket of a mistake: a digit missed, or predicted wrongly; both if merged."""
    for digit in DIGITS:
        if digit in (mistake.target, mistake.prediction):
            if getattr(settings, f"merge_{digit}"):
                return f"{digit} and another"
            return f"{digit} missed" if digit == mistake.target else f"wrongly read as {digit}"
    return REST


def _row(name: str, inside: Sequence[Mistake], seen: int, errors: ErrorSet) -> dict[str, Any]:
    error_rate = 100 * errors.num_mistakes / errors.num_examples
    share = wilson_interval(len(inside), seen)
    ordered = sorted(inside, key=lambda mistake: (mistake.target, mistake.prediction))
    return {
        "name": name,
        "count": len(inside),
        "share": len(inside) / seen,
        "points": error_rate * len(inside) / seen,
        "low": error_rate * share.low,
        "high": error_rate * share.high,
        "pair": _pair(inside),
        "mistakes": [[mistake.index, mistake.target, mistake.prediction] for mistake in ordered],
    }


def _pair(inside: Sequence[Mistake]) -> str:
    """The most frequent pair of a bucket, in words."""
    pairs = Counter((mistake.target, mistake.prediction) for mistake in inside)
    (target, prediction), count = min(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
    return f"{target} read as {prediction}: {count}"


def decision(rows: list[dict[str, Any]], seen: int) -> dict[str, Any]:
    """Whether the largest bucket is significantly larger than the next, by a binomial test.

    If both were equally large, each would have half of their mistakes.
    """
    first, second, *_ = (*rows, None)
    if second is None:
        return {"apart": None, "share": 1.0, "low": 1.0}
    both = first["count"] + second["count"]
    half: Interval = wilson_interval(first["count"], both)
    return {"apart": half.low > 0.5, "share": first["count"] / both, "low": half.low}


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """The largest bucket, the most it could gain, and whether it is certainly the largest."""
    first, *others = frame["rows"]
    told = (
        f"{frame['seen']} of {frame['num_mistakes']} mistakes looked at; largest: {first['name']}, "
        f"{first['count']}, at most {float(first['points']):.2f} points."
    )
    if not others:
        return told
    sure = "significantly more" if frame["decision"]["apart"] else "not significantly more"
    return f"{told} That is {sure} than {others[0]['name']}, {others[0]['count']}."
