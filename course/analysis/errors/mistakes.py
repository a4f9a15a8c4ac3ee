"""Mistakes to look at, and the bucket of each, assigned by hand or by a function.

Source: Lecture 3, "Error analysis"; ledger S19, N24.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from course.analysis.errors.buckets import (
    UNTAGGED,
    BucketRow,
    BucketTable,
    ceiling_of,
    intervention_for,
)
from course.analysis.errors.tags import write_tags
from course.analysis.tables import as_csv
from course.whole import whole_number

MISTAKE_COLUMNS = ("index", "target", "prediction", "confidence", "target_probability", "bucket")


@dataclass(frozen=True)
class Mistake:
    """One wrong prediction."""

    index: int
    """Position in the loader's data set."""
    input: Tensor
    """[...] on the CPU, as the loader yields it (normalised, if it normalises)."""
    target: int
    prediction: int
    confidence: float
    """Probability of the predicted class."""
    target_probability: float
    """Probability of the true class."""


@dataclass
class ErrorSet:
    """Mistakes to look at, and the bucket of each."""

    mistakes: list[Mistake]
    num_mistakes: int
    """Number of mistakes in the whole data set; `mistakes` may hold fewer."""
    num_examples: int
    class_names: tuple[str, ...]
    order: str = "confident"
    tags: dict[int, str] = field(default_factory=dict)
    """Bucket by index, assigned by hand."""
    assigned: dict[int, str] = field(default_factory=dict)
    """Bucket by index, assigned by functions."""
    tags_path: Path | None = None

    def __iter__(self) -> Iterator[Mistake]:
        """The mistakes, in the order of `mistakes`."""
        return iter(self.mistakes)

    @property
    def accuracy(self) -> float:
        """Accuracy on the whole data set."""
        return 1 - self.num_mistakes / self.num_examples

    def bucket_of(self, mistake: Mistake) -> str:
        """The bucket assigned by hand, else by a function, else `not looked at yet`."""
        return self.tags.get(mistake.index) or self.assigned.get(mistake.index) or UNTAGGED

    def tag(self, index: int, bucket: str) -> None:
        """Put a mistake into a bucket by hand; the tags file, if any, is updated at once.

        Args:
            index: The `Mistake.index`.
            bucket: Any name; an empty one removes the tag.

        Raises:
            ValueError: There is no such mistake here, or the bucket is not a name.
        """
        if not isinstance(bucket, str):
            raise ValueError(
                f"bucket = {bucket!r}: expected a name, e.g. 'blur'; '' removes the tag."
            )
        target = self[index].target
        before = dict(self.tags)
        if bucket.strip():
            self.tags[index] = bucket.strip()
        else:
            self.tags.pop(index, None)
        if self.tags_path is None:
            return
        try:
            write_tags(self.tags_path, {index: (self.tags.get(index), target)})
        except OSError:
            self.tags = before
            raise

    def assign(self, rules: Mapping[str, Callable[[Mistake], bool]]) -> None:
        """Put each mistake into the first bucket whose function returns True; keep tags by hand.

        Args:
            rules: A function of a `Mistake` for each bucket; earlier buckets win. They replace the
                assignments of previous rules.
        """
        if not isinstance(rules, Mapping):
            raise ValueError(
                f"rules = a {type(rules).__name__}: expected a function of a mistake for each "
                "bucket, e.g. {'4 and 9': lambda m: {m.target, m.prediction} == {4, 9}}."
            )
        self.assigned = {}
        for mistake in self.mistakes:
            for bucket, belongs in rules.items():
                if bool(belongs(mistake)):
                    self.assigned[mistake.index] = bucket
                    break

    def table(
        self,
        interventions: Mapping[str, str] | None = None,
        *,
        resamples: int = 1000,
        seed: int = 0,
    ) -> BucketTable:
        """Count, share, ceiling of the gain and intervention of each bucket.

        Args:
            interventions: What to try, by bucket; the lecture's own are chosen by a word in the
                bucket's name.
            resamples: Number of bootstrap resamples.
            seed: Of its draws.

        Source: Lecture 3, figure "Error buckets"; ledger N24, T28.
        """
        buckets = [self.bucket_of(mistake) for mistake in self.mistakes]
        counts = Counter(buckets)
        names = sorted(counts, key=lambda name: (name == UNTAGGED, -counts[name], name))
        rows = []
        for name in names:
            inside = np.array([bucket == name for bucket in buckets], dtype=float)
            ceiling = ceiling_of(
                inside, self.num_mistakes, self.num_examples, resamples=resamples, seed=seed
            )
            share = counts[name] / len(buckets)
            action = (interventions or {}).get(name) or intervention_for(name)
            rows.append(BucketRow(name, counts[name], share, ceiling, action))
        return BucketTable(
            tuple(rows), self.accuracy, len(buckets), self.num_mistakes, self.num_examples,
            self._note(),
        )  # fmt: skip

    def _note(self) -> str:
        if len(self.mistakes) == self.num_mistakes or not self.mistakes:
            return ""
        if self.order == "random":
            return "a random sample of the mistakes; the intervals take that into account."
        return (
            f"these are the {len(self.mistakes)} most confident of {self.num_mistakes} mistakes: "
            "their shares may differ from those of all mistakes, and the intervals ignore this. "
            'To estimate shares, use order="random".'
        )

    def plot(self, n: int = 12) -> Any:
        """A Figure with a grid of the first mistakes."""
        from course.plots.errors import plot_mistakes

        n = whole_number("n", n)
        return plot_mistakes(self, n=n)

    def to_json(self) -> dict[str, Any]:
        """Plain values, without the inputs."""
        return {
            "num_mistakes": self.num_mistakes, "num_examples": self.num_examples,
            "order": self.order, "class_names": list(self.class_names),
            "mistakes": self._plain_rows(),
        }  # fmt: skip

    def to_csv(self) -> str:
        """One line per mistake, with a header, without the inputs."""
        return as_csv(MISTAKE_COLUMNS, self._plain_rows())

    def _plain_rows(self) -> list[dict[str, Any]]:
        return [
            {name: getattr(mistake, name) for name in MISTAKE_COLUMNS[:-1]}
            | {"bucket": self.bucket_of(mistake)}
            for mistake in self.mistakes
        ]

    def __getitem__(self, index: int) -> Mistake:
        for mistake in self.mistakes:
            if mistake.index == index:
                return mistake
        known = ", ".join(str(mistake.index) for mistake in self.mistakes[:8])
        raise ValueError(
            f"index {index} is not one of the {len(self.mistakes)} mistakes here: "
            f"{known or 'none'}{' …' if len(self.mistakes) > 8 else ''}. The index is the position "
            "in the data set."
        )

    def __len__(self) -> int:
        return len(self.mistakes)

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{m.index}</td><td>{escape(self.class_names[m.target])}</td>"
            f"<td>{escape(self.class_names[m.prediction])}</td><td>{m.confidence:.1%}</td>"
            f"<td>{escape(self.bucket_of(m))}</td></tr>"
            for m in self.mistakes[:20]
        )
        return (
            self.table()._repr_html_() + "<table><thead><tr><th>index</th><th>true</th>"
            f"<th>said</th><th>confidence</th><th>bucket</th></tr></thead><tbody>{rows}</tbody></table>"
        )
