"""Error analysis: look at the mistakes, count them by bucket, repair the largest bucket first.

    errors = collect_errors(model, val_loader, n=100, tags_path="mistakes.json")
    errors.plot()                      # look
    errors.tag(17, "4↔9 confusion")    # by hand, kept in the file
    errors.assign({"blur": is_blurry}) # or by a function of the mistake
    errors.table()                     # count, share, what repairing it could win

A bucket's ceiling is what accuracy would gain if all of its mistakes became right, and nothing else
changed: (1 − accuracy) · share of the mistakes. A repair seldom reaches it.

Source: Lecture 3, "Error analysis" and "From bucket to action"; ledger N24, S19, T28; Ng's course.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler

from course.analysis.scores import Interval, bootstrap, check_batch
from course.engine.evaluation import evaluation_mode
from course.engine.placement import check_device, to_device

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
    "confusion": "more examples of both classes, or a feature that tells them apart",
    "variability": "more data like it, or augmentation that makes such",
}
"""What to try, by a word in the bucket's name; the first that fits."""
NO_INTERVENTION = "look at more of them, then name the cause"


@dataclass(frozen=True)
class Mistake:
    """One wrong prediction."""

    index: int
    """Position in the loader's data set."""
    input: Tensor
    """[...] on the CPU, as the loader gives it (normalised, if it normalises)."""
    target: int
    prediction: int
    confidence: float
    """Probability of the predicted class."""
    target_probability: float
    """Probability of the true class."""


@dataclass(frozen=True)
class BucketRow:
    """One bucket: how many mistakes, and what they could win."""

    bucket: str
    count: int
    share: float
    """Of the mistakes looked at."""
    ceiling: Interval
    """Accuracy points (0 to 100) to win if all of them were repaired."""
    intervention: str


@dataclass(frozen=True)
class BucketTable:
    """The buckets, the largest first; what nobody has looked at yet comes last."""

    rows: tuple[BucketRow, ...]
    accuracy: float
    num_looked_at: int
    num_mistakes: int
    num_examples: int
    note: str = ""
    """What the shares cannot say."""
    untagged: str = UNTAGGED

    def plot(self) -> Any:
        """Bars of the ceilings as a Figure."""
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
        """A line a bucket, with a header."""
        text = io.StringIO()
        writer = csv.DictWriter(text, BUCKET_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self._plain_rows())
        return text.getvalue()

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
        lines = [self._summary, f"  {'bucket':<{width}}  count  share  points to win at most"]
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
            "<th>share</th><th>points to win at most</th><th>try</th></tr></thead>"
            f"<tbody>{rows}</tbody></table><p>{escape(self.note)}</p>"
        )

    @property
    def _summary(self) -> str:
        return (
            f"accuracy {self.accuracy:.1%}: {self.num_mistakes} mistakes in {self.num_examples} "
            f"examples, {self.num_looked_at} of them here"
        )


BUCKET_COLUMNS = (
    "bucket", "count", "share", "ceiling_points", "ceiling_low", "ceiling_high", "intervention",
)  # fmt: skip


def _points(interval: Interval) -> str:
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


@dataclass
class ErrorSet:
    """Mistakes to look at, and the bucket each was put into."""

    mistakes: list[Mistake]
    num_mistakes: int
    """Of the whole data set; `mistakes` may hold fewer."""
    num_examples: int
    class_names: tuple[str, ...]
    order: str = "confident"
    tags: dict[int, str] = field(default_factory=dict)
    """Bucket by index, as tagged by hand."""
    assigned: dict[int, str] = field(default_factory=dict)
    """Bucket by index, as given by functions."""
    tags_path: Path | None = None

    @property
    def accuracy(self) -> float:
        """Of the whole data set."""
        return 1 - self.num_mistakes / self.num_examples

    def bucket_of(self, mistake: Mistake) -> str:
        """The bucket given by hand, else by a function, else `not looked at yet`."""
        return self.tags.get(mistake.index) or self.assigned.get(mistake.index) or UNTAGGED

    def tag(self, index: int, bucket: str) -> None:
        """Put a mistake into a bucket by hand; it goes to the file at once, where there is one.

        Args:
            index: As `Mistake.index`.
            bucket: Any name; an empty one takes the tag back.

        Raises:
            ValueError: No such mistake here.
        """
        target = self[index].target
        before = dict(self.tags)
        if bucket.strip():
            self.tags[index] = bucket.strip()
        else:
            self.tags.pop(index, None)
        if self.tags_path is None:
            return
        try:
            _write_tags(self.tags_path, {index: (self.tags.get(index), target)})
        except OSError:
            self.tags = before
            raise

    def assign(self, rules: Mapping[str, Callable[[Mistake], bool]]) -> None:
        """Put each mistake into the first bucket whose function says yes. Tags by hand stay.

        Args:
            rules: Function of a `Mistake`, by bucket; earlier ones win. They replace what earlier
                rules assigned.
        """
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
            interventions: What to try, by bucket; those of the lecture are known by a word in the
                bucket's name.
            resamples: Of the bootstrap.
            seed: Of its draws.

        Source: Lecture 3, figure "Error buckets"; ledger N24, T28.
        """
        buckets = [self.bucket_of(mistake) for mistake in self.mistakes]
        counts = Counter(buckets)
        names = sorted(counts, key=lambda name: (name == UNTAGGED, -counts[name], name))
        rows = []
        for name in names:
            inside = np.array([bucket == name for bucket in buckets], dtype=float)
            ceiling = self._ceiling(inside, resamples, seed)
            share = counts[name] / len(buckets)
            action = (interventions or {}).get(name) or _intervention(name)
            rows.append(BucketRow(name, counts[name], share, ceiling, action))
        return BucketTable(
            tuple(rows), self.accuracy, len(buckets), self.num_mistakes, self.num_examples,
            self._note(),
        )  # fmt: skip

    def _ceiling(self, inside: np.ndarray, resamples: int, seed: int) -> Interval:
        """100 · error rate · share; examples are drawn again, and mistakes where only some are."""
        options = dict(paired=False, vectorized=True, resamples=resamples, seed=seed)
        if self.num_examples < 2:  # nothing to draw from: anything from 0 to 100 is possible
            return Interval(100.0, 0.0, 100.0)
        if len(inside) == self.num_mistakes:  # all seen: the bucket's share of all examples
            repaired = np.zeros(self.num_examples)
            repaired[: int(inside.sum())] = 1.0
            return bootstrap(_points_of, repaired, **options)
        wrong = np.zeros(self.num_examples)
        wrong[: self.num_mistakes] = 1.0
        if len(inside) < 2:  # one mistake cannot be drawn in two ways
            return Interval(100 * wrong.mean() * inside.mean(), 0.0, 100 * wrong.mean())
        return bootstrap(_points_of_two, wrong, inside, **options)

    def _note(self) -> str:
        if len(self.mistakes) == self.num_mistakes or not self.mistakes:
            return ""
        if self.order == "random":
            return "a random sample of the mistakes; the intervals count that in."
        return (
            f"these are the {len(self.mistakes)} most confident of {self.num_mistakes} mistakes: "
            "their shares need not be those of all, and the intervals do not know. For shares take "
            'order="random".'
        )

    def plot(self, n: int = 12) -> Any:
        """A grid of the first mistakes as a Figure."""
        from course.plots.errors import plot_mistakes

        return plot_mistakes(self, n=n)

    def to_json(self) -> dict[str, Any]:
        """Plain values; inputs stay out."""
        return {
            "num_mistakes": self.num_mistakes, "num_examples": self.num_examples,
            "order": self.order, "class_names": list(self.class_names),
            "mistakes": self._plain_rows(),
        }  # fmt: skip

    def to_csv(self) -> str:
        """A line a mistake, with a header; inputs stay out."""
        text = io.StringIO()
        writer = csv.DictWriter(text, MISTAKE_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self._plain_rows())
        return text.getvalue()

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
            f"index {index} is none of the {len(self.mistakes)} mistakes here: {known or 'none'}"
            f"{' …' if len(self.mistakes) > 8 else ''}. The index is the position in the data set."
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


MISTAKE_COLUMNS = ("index", "target", "prediction", "confidence", "target_probability", "bucket")


def collect_errors(
    model: nn.Module,
    loader: Iterable[tuple[Tensor, Tensor]],
    *,
    n: int = 100,
    device: torch.device | str | None = None,
    order: Literal["confident", "random"] = "confident",
    class_names: Sequence[str] | None = None,
    tags_path: Path | str | None = None,
    seed: int = 0,
) -> ErrorSet:
    """The most confident mistakes of a model, or a random sample of them.

    The most confident ones show what the model has learned wrongly (and the wrong labels); a random
    sample is what shares should be counted on.

    Args:
        model: Gives logits [B, C], or one logit an example. Modules keep their modes.
        loader: Pairs of inputs [B, ...] and class indices [B], in the data set's order.
        n: How many to keep; fewer where there are not so many.
        device: Where to compute; the model's own by default.
        order: `confident` or `random`.
        class_names: One a class; the indices by default.
        tags_path: A JSON file of buckets given by hand; read now, where it is there, and written at
            every `tag`.
        seed: Of the random sample.

    Raises:
        ValueError: A shuffled loader (its indices would be wrong), no example, shapes or logits
            that cannot be judged, or a file of tags for other data.

    Source: Lecture 3, "Error analysis"; ledger S19.
    """
    if n < 1 or order not in ("confident", "random"):
        raise ValueError(
            f"n = {n}, order = {order!r}: keep at least 1 mistake, and order them 'confident' or "
            "'random'."
        )
    _check_in_order(loader)
    device = check_device(model, device)
    generator = torch.Generator().manual_seed(seed)
    kept: list[tuple[float, Mistake]] = []
    num_examples = num_mistakes = batches = num_classes = 0
    with evaluation_mode(model):
        for inputs, targets in to_device(loader, device):
            logits, targets = check_batch(model(inputs), targets, batches)
            probabilities = logits.softmax(dim=1)
            confidence, predicted = probabilities.max(dim=1)
            wrong = (predicted != targets).nonzero()[:, 0]
            rank = confidence if order == "confident" else torch.rand(
                len(targets), generator=generator
            )  # fmt: skip
            for i in wrong[rank[wrong].argsort(descending=True, stable=True)][:n].tolist():
                mistake = Mistake(
                    num_examples + i, inputs[i].detach().cpu().clone(), int(targets[i]),
                    int(predicted[i]), float(confidence[i]), float(probabilities[i, targets[i]]),
                )  # fmt: skip
                kept.append((float(rank[i]), mistake))
            kept = sorted(kept, key=lambda pair: (-pair[0], pair[1].index))[:n]
            num_mistakes += len(wrong)
            num_examples += len(targets)
            batches, num_classes = batches + 1, logits.shape[1]
    if not num_examples:
        raise ValueError(
            "the loader gives no batch: there is no mistake to find. Is the data set empty, or "
            "drop_last=True with fewer examples than a batch?"
        )
    names = tuple(map(str, class_names or range(num_classes)))
    if len(names) != num_classes:
        raise ValueError(f"{len(names)} class_names for {num_classes} classes: give one a class.")
    errors = ErrorSet(
        [mistake for _, mistake in kept], num_mistakes, num_examples, names, order,
        tags_path=Path(tags_path) if tags_path else None,
    )  # fmt: skip
    if errors.tags_path and errors.tags_path.exists():
        errors.tags = _tags_for(errors)
    return errors


def _check_in_order(loader: Any) -> None:
    """A mistake's index is its place in the data set only if the loader goes through in order."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    if not isinstance(sampler, SequentialSampler):
        raise ValueError(
            f"the loader draws with {type(sampler).__name__}: the indices of its mistakes would "
            "not be those of the data set. Use DataLoader(dataset, batch_size=64, shuffle=False)."
        )


# -- the file of tags: {"17": {"bucket": "blur", "target": 4}, ...} ---------------------------


def _read_tags(path: Path) -> dict[int, tuple[str, int]]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {int(i): (str(e["bucket"]), int(e["target"])) for i, e in entries.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{path} is no file of tags ({error}): expected "
            '{"17": {"bucket": "blur", "target": 4}}. Choose another tags_path, or move it away.'
        ) from error


def _tags_for(errors: ErrorSet) -> dict[int, str]:
    """The file's buckets of the mistakes that are here; other tags stay in the file."""
    assert errors.tags_path is not None
    found = {}
    known = _read_tags(errors.tags_path)
    for mistake in errors.mistakes:
        bucket, target = known.get(mistake.index, (None, mistake.target))
        if target != mistake.target:
            raise ValueError(
                f"{errors.tags_path}: example {mistake.index} was tagged with target {target} and "
                f"is {mistake.target} here, so the file belongs to other data or another split. "
                "Choose another tags_path."
            )
        if bucket:
            found[mistake.index] = bucket
    return found


def _write_tags(path: Path, changes: Mapping[int, tuple[str | None, int]]) -> None:
    """Change some entries of the file and keep the rest; written whole or not at all."""
    entries = dict(_read_tags(path)) if path.exists() else {}
    for index, (bucket, target) in changes.items():
        entries.pop(index, None)
        if bucket:
            entries[index] = (bucket, target)
    plain = {str(i): {"bucket": b, "target": t} for i, (b, t) in sorted(entries.items())}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(plain, indent=1, ensure_ascii=False), encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _intervention(bucket: str) -> str:
    words = bucket.lower()
    return next((what for word, what in INTERVENTIONS.items() if word in words), NO_INTERVENTION)


def _points_of(repaired: np.ndarray, axis: int = -1) -> np.ndarray:
    return 100 * repaired.mean(axis=axis)


def _points_of_two(wrong: np.ndarray, inside: np.ndarray, axis: int = -1) -> np.ndarray:
    return 100 * wrong.mean(axis=axis) * inside.mean(axis=axis)
