"""The table of buckets: how many mistakes are in each, and how much fixing it could gain.

A bucket's ceiling is the gain in accuracy if all of its mistakes became right and nothing else
changed: (1 − accuracy) · share of the mistakes. A fix seldom reaches it.

Source: Lecture 3, "From bucket to action"; ledger N24, T28; Ng's course.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from course.analysis.scores.intervals import Interval, bootstrap
from course.analysis.tables import as_csv

UNTAGGED = "not looked at yet"
INTERVENTIONS = {
    "blur": "blur augmentation, or more data like it",
    "rotation": "rotation augmentation",
    "rare": "reweight, or collect more of the class",
    "ambiguous": "clean or merge the labels, report the uncertainty",
    "label": "clean or merge the labels, report the uncertainty",
    "background": "crop, mask or augment the background",
    "shortcut": "crop, mask or augment the background",
    "threshold": "tune the threshold on validation",
    "confusion": "more examples of both classes, or a feature that distinguishes them",
    "variability": "more data like it, or augmentation that produces such",
}
"""What to try, by a word in the bucket's name; the first match counts."""
NO_INTERVENTION = "look at more of these, then name the cause"
BUCKET_COLUMNS = (
    "bucket", "count", "share", "ceiling_points", "ceiling_low", "ceiling_high", "intervention",
)  # fmt: skip


@dataclass(frozen=True)
class BucketRow:
    """One bucket: how many mistakes it holds, and how much fixing them could gain."""

    bucket: str
    count: int
    share: float
    """Share of the mistakes looked at."""
    ceiling: Interval
    """Accuracy points (0 to 100) to gain if all of them were fixed."""
    intervention: str


@dataclass(frozen=True)
class BucketTable:
    """The buckets, largest first; mistakes not looked at yet come last."""

    rows: tuple[BucketRow, ...]
    accuracy: float
    num_looked_at: int
    num_mistakes: int
    num_examples: int
    note: str = ""
    """The limits of what the shares can say."""
    untagged: str = UNTAGGED

    def plot(self) -> Any:
        """A Figure with a bar for each ceiling."""
        from course.plots.errors import plot_buckets

        return plot_buckets(self)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "accuracy": self.accuracy, "num_examples": self.num_examples,
            "num_mistakes": self.num_mistakes, "num_looked_at": self.num_looked_at,
            "note": self.note, "buckets": self._plain_rows(),
        }  # fmt: skip

    def to_csv(self) -> str:
        """One line per bucket, with a header."""
        return as_csv(BUCKET_COLUMNS, self._plain_rows())

    def _plain_rows(self) -> list[dict[str, Any]]:
        return [
            dict(
                zip(
                    BUCKET_COLUMNS,
                    (r.bucket, r.count, r.share, r.ceiling.value, r.ceiling.low, r.ceiling.high,
                     r.intervention),
                    strict=True,
                )
            )
            for r in self.rows
        ]  # fmt: skip

    def __str__(self) -> str:
        width = max(6, *(len(row.bucket) for row in self.rows)) if self.rows else 6
        lines = [self._summary, f"  {'bucket':<{width}}  count  share  most points to gain"]
        lines += [
            f"  {row.bucket:<{width}}  {row.count:5d}  {row.share:5.0%}  {_points(row.ceiling):<22}"
            f"  {row.intervention}"
            for row in self.rows
        ]
        return "\n".join([*lines, *([f"  {self.note}"] if self.note else [])])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(row.bucket)}</td><td>{row.count}</td><td>{row.share:.0%}</td>"
            f"<td>{_points(row.ceiling)}</td><td>{escape(row.intervention)}</td></tr>"
            for row in self.rows
        )
        return (
            f"<p>{escape(self._summary)}</p><table><thead><tr><th>bucket</th><th>count</th>"
            "<th>share</th><th>most points to gain</th><th>try</th></tr></thead>"
            f"<tbody>{rows}</tbody></table><p>{escape(self.note)}</p>"
        )

    @property
    def _summary(self) -> str:
        return (
            f"accuracy {self.accuracy:.1%}: {self.num_mistakes} mistakes in {self.num_examples} "
            f"examples, {self.num_looked_at} of them looked at"
        )


def _points(interval: Interval) -> str:
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def ceiling_of(
    inside: np.ndarray, num_mistakes: int, num_examples: int, *, resamples: int, seed: int
) -> Interval:
    """100 · error rate · share; bootstraps examples, and mistakes if only some were looked at."""
    options = dict(paired=False, vectorized=True, resamples=resamples, seed=seed)
    if num_examples < 2:  # nothing to resample: anything from 0 to 100 is possible
        return Interval(100.0, 0.0, 100.0)
    if len(inside) == num_mistakes:  # all seen: the bucket's share of all examples
        repaired = np.zeros(num_examples)
        repaired[: int(inside.sum())] = 1.0
        return bootstrap(_points_of, repaired, **options)
    wrong = np.zeros(num_examples)
    wrong[:num_mistakes] = 1.0
    if len(inside) < 2:  # a single mistake cannot be resampled
        return Interval(100 * wrong.mean() * inside.mean(), 0.0, 100 * wrong.mean())
    return bootstrap(_points_of_two, wrong, inside, **options)


def intervention_for(bucket: str) -> str:
    words = bucket.lower()
    return next((what for word, what in INTERVENTIONS.items() if word in words), NO_INTERVENTION)


def _points_of(repaired: np.ndarray, axis: int = -1) -> np.ndarray:
    return 100 * repaired.mean(axis=axis)


def _points_of_two(wrong: np.ndarray, inside: np.ndarray, axis: int = -1) -> np.ndarray:
    return 100 * wrong.mean(axis=axis) * inside.mean(axis=axis)
