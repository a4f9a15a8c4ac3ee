"""Splits: which examples train and which validate, and whether the two sides are truly apart.

Four ways to split: at random, with each class's share kept, by group, by time. Then `check_split`
looks at a finished split as a sceptic would: the same rows on both sides, near copies, a shared
group, validation that is not later, other labels, other inputs, statistics fitted on both sides.

Source: Lecture 3, "Splits and shift"; ledger T24, F99, F100, B22.
"""

from __future__ import annotations

import hashlib
import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from course.data import perceptual

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Indices = NDArray[np.int64]
MOST_ROWS = 2000
"""Rows a side for the comparisons that cost more than a hash; more are drawn at random."""
COPY_DISTANCE = 0.1
"""A near copy is this much nearer than training rows usually are to each other."""
MOST_IMAGES = 10_000
"""Training images among which look-alikes are searched; more are drawn at random."""


def random_split(num: int, val_share: float = 0.2, *, seed: int = 0) -> tuple[Indices, Indices]:
    """Indices [N_train] and [N_val], drawn at random.

    Raises:
        ValueError: One side would be empty.
    """
    num_val = _num_val(num, val_share)
    order = np.random.default_rng(seed).permutation(num)
    return np.sort(order[num_val:]), np.sort(order[:num_val])


def stratified_split(
    targets: ArrayLike, val_share: float = 0.2, *, seed: int = 0
) -> tuple[Indices, Indices]:
    """A random split in which each class keeps its share on both sides.

    Args:
        targets: [N] class indices.

    Raises:
        ValueError: A class has a single example, which cannot be on both sides.
    """
    labels = _numpy(targets)
    rng, val = np.random.default_rng(seed), []
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        if len(members) < 2:
            raise ValueError(
                f"class {label} has 1 example: both sides need one. Collect more, merge the "
                "class with another, or use random_split."
            )
        num_val = min(max(round(len(members) * val_share), 1), len(members) - 1)
        val.append(members[:num_val])
    _num_val(len(labels), val_share)
    return _rest_and(np.concatenate(val), len(labels))


def group_split(
    groups: ArrayLike, val_share: float = 0.2, *, seed: int = 0
) -> tuple[Indices, Indices]:
    """Whole groups (patients, videos, users) go to one side; groups are drawn, not examples.

    Args:
        groups: [N] group of each example, of any type that compares.

    Raises:
        ValueError: There is only one group.
    """
    groups = _codes(groups)
    names = np.unique(groups)
    if len(names) < 2:
        raise ValueError(
            f"{len(names)} group: a split by group needs at least 2. Is this the right column?"
        )
    num_val = _num_val(len(names), val_share)
    chosen = np.random.default_rng(seed).permutation(names)[:num_val]
    return _rest_and(np.flatnonzero(np.isin(groups, chosen)), len(groups))


def time_split(times: ArrayLike, val_share: float = 0.2) -> tuple[Indices, Indices]:
    """The latest share validates. Examples of one moment stay on one side, the training side.

    Args:
        times: [N] numbers or NumPy datetimes.

    Raises:
        ValueError: No moment lies after the cut.
    """
    times = _numpy(times)
    cut = np.sort(times)[len(times) - _num_val(len(times), val_share) - 1]
    val = np.flatnonzero(times > cut)
    if not len(val):
        raise ValueError(
            f"no example is later than {cut}: the last moment holds more than the share asked "
            "for. Use a larger val_share, or finer times."
        )
    return _rest_and(val, len(times))


@dataclass(frozen=True, kw_only=True)
class SplitFinding:
    """One way in which the two sides are not apart, or not alike."""

    id: str
    message: str
    figures: dict[str, float]
    fix: str


@dataclass(frozen=True, kw_only=True)
class SplitReport:
    """What `check_split` found, measured and could not look at."""

    findings: tuple[SplitFinding, ...]
    figures: dict[str, float]
    """Every figure measured, alarming or not."""
    not_checked: tuple[str, ...]
    series: dict[str, dict[str, list]] = field(default_factory=dict)
    """What the figure shows: `label_counts` (labels, train, val), or `targets` (train, val) where
    they are numbers, and `shift_scores` (train, val) of the classifier test."""

    @property
    def passed(self) -> bool:
        """Whether no fault was found."""
        return not self.findings

    @property
    def verdict(self) -> str:
        """One line."""
        num = len(self.findings)
        return "the split holds" if self.passed else f"{num} fault{'s' * (num > 1)} in the split"

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json.dumps` takes; a figure that is not finite becomes None."""
        return {
            "verdict": self.verdict,
            "passed": self.passed,
            "findings": [
                {"id": f.id, "message": f.message, "figures": _finite(f.figures), "fix": f.fix}
                for f in self.findings
            ],
            "figures": _finite(self.figures),
            "not_checked": list(self.not_checked),
            "series": self.series,
        }

    def plot(self) -> Figure:
        """The verdict as a picture; see `course.plots.splits.split_figure`."""
        from course.plots.splits import split_figure

        return split_figure(self)

    def __str__(self) -> str:
        lines = [f"{f.id}: {f.message}\n  fix: {f.fix}" for f in self.findings]
        lines += [f"{name} = {value:.4g}" for name, value in self.figures.items()]
        lines += [f"not checked: {what}" for what in self.not_checked]
        return "\n".join([f"verdict: {self.verdict}", *lines])

    def _repr_html_(self) -> str:
        findings = _table(
            ("fault", "what was seen", "fix"),
            [(f.id, f.message, f.fix) for f in self.findings],
        )
        measured = _table(
            ("measured", ""), [(name, f"{value:.4g}") for name, value in self.figures.items()]
        )
        unseen = html.escape("; ".join(self.not_checked) or "nothing was left out")
        return (
            f"<p><b>Verdict: {html.escape(self.verdict)}</b></p>{findings if self.findings else ''}"
            f"<details><summary>figures</summary>{measured}</details><p>Not checked: {unseen}.</p>"
        )


def check_split(
    train: tuple[ArrayLike, ArrayLike],
    val: tuple[ArrayLike, ArrayLike],
    *,
    groups: tuple[Sequence[Any], Sequence[Any]] | None = None,
    times: tuple[ArrayLike, ArrayLike] | None = None,
    alpha: float = 1e-3,
    seed: int = 0,
) -> SplitReport:
    """Look at a finished split as a sceptic would; nothing is changed.

    Args:
        train: Inputs [N, ...] and targets [N]: tensors or arrays.
        val: Likewise.
        groups: Group of each training and of each validation example.
        times: Time of each, likewise.
        alpha: Chance of a false alarm accepted in each statistical test.

    Raises:
        ValueError: A side is empty, or inputs and targets are not as many.

    Source: Lecture 3, "Splits and shift"; Lopez-Paz and Oquab 2017 for the classifier test.
    """
    for name, (x, y) in (("train", train), ("val", val)):
        if len(x) != len(y) or not len(x):
            raise ValueError(
                f"{name} holds {len(x)} inputs and {len(y)} targets: expected as many of both, "
                "and at least 1."
            )
    sides = _Sides(*(_numpy(part) for part in (*train, *val)), alpha, np.random.default_rng(seed))
    checks = [
        lambda: _copies(sides),
        lambda: _near_copies(sides),
        lambda: _look_alikes(sides),
        lambda: _shared_groups(groups),
        lambda: _earlier(times),
        lambda: _preprocessing(sides),
        lambda: _missing_classes(sides),
        lambda: _label_shift(sides),
        lambda: _covariate_shift(sides),
    ]
    findings, figures, not_checked, series = [], {}, [], {}
    for check in checks:
        for result in check():
            if isinstance(result, str):
                not_checked.append(result)
            elif isinstance(result, dict):
                figures |= result
            elif isinstance(result, tuple):
                series[result[0]] = result[1]
            else:
                findings.append(result)
    return SplitReport(
        findings=tuple(findings),
        figures=figures,
        not_checked=tuple(not_checked),
        series=series,
    )


class _Sides:
    """Both sides as rows of numbers, and the most that the dear comparisons look at."""

    def __init__(self, x, y, x_val, y_val, alpha, rng) -> None:
        self.x, self.x_val = x.reshape(len(x), -1), x_val.reshape(len(x_val), -1)
        self.shape, self.shape_val = x.shape[1:], x_val.shape[1:]
        self.y, self.y_val, self.alpha, self.rng = y, y_val, alpha, rng
        self.image = x.ndim == 4
        self.same_width = self.x.shape[1] == self.x_val.shape[1]
        self.numbers = all(part.dtype.kind in "fiub" for part in (self.x, self.x_val))

        self.val_rows = np.arange(len(x_val))
        """Validation rows that are searched for copies."""
        if len(x_val) > MOST_ROWS:
            self.val_rows = np.sort(rng.choice(len(x_val), MOST_ROWS, replace=False))
        self.named = np.zeros(len(self.val_rows), dtype=bool)
        """Which of them a finding names already."""

    def drawn(self, rows: np.ndarray) -> np.ndarray:
        if len(rows) > MOST_ROWS:
            rows = rows[self.rng.choice(len(rows), MOST_ROWS, replace=False)]
        return rows.astype(np.float64)

    def classes(self) -> bool:
        return self.y.ndim == 1 and self.y.dtype.kind in "iubU" and self.y_val.ndim == 1


Result = Iterator[SplitFinding | dict[str, float] | str | tuple[str, dict[str, list]]]
"""Faults; figures by name; what could not be looked at; (name, values) of what a picture shows."""


def _copies(sides: _Sides) -> Result:
    """Rows that stand on both sides, bit for bit; more often than rows repeat within training."""
    kind = np.result_type(sides.x, sides.x_val)  # the same numbers in another dtype are a copy
    train = [_row_hash(row) for row in sides.x.astype(kind, copy=False)]
    val = [_row_hash(row) for row in sides.x_val.astype(kind, copy=False)]
    seen = set(train)
    shared = sum(row in seen for row in val) / len(val)
    repeated = 1 - len(seen) / len(train)
    yield {"copies": shared, "repeated_within_train": repeated}
    if shared and shared > 3 * repeated:
        yield SplitFinding(
            id="leak-overlap",
            message=f"{shared:.1%} of the validation rows stand in training too; a model that "
            "learns rows by heart is right on them.",
            figures={"copies": shared, "repeated_within_train": repeated},
            fix="remove duplicates first, then split",
        )


def _near_copies(sides: _Sides) -> Result:
    """Validation rows far nearer to a training row than training rows are to each other."""
    if not (sides.numbers and sides.same_width) or sides.x.shape[1] < 8 or len(sides.x) < 8:
        yield "near copies: the rows are no 8 or more numbers, or fewer than 8 rows"
        return
    train, val = (part.astype(np.float64) for part in (sides.x, sides.x_val[sides.val_rows]))
    copies = {_row_hash(row) for row in train}
    sides.named |= np.array([_row_hash(row) in copies for row in val])  # by `_copies`
    if len(train) > 10 * MOST_ROWS:
        train = train[sides.rng.choice(len(train), 10 * MOST_ROWS, replace=False)]
    train, val = _features(train, val, image=sides.image)
    usual = np.median(_nearest(train[: min(len(train), 1000)], train, skip_self=True))
    nearest = _nearest(val, train)
    found = ~sides.named & (nearest < COPY_DISTANCE * usual)
    near = float(found.mean())
    yield {"near_copies": near, "usual_distance": float(usual)}
    if usual > 0 and near * len(val) >= 3 and near > 0.005:
        sides.named |= found
        yield SplitFinding(
            id="leak-overlap",
            message=f"{near:.1%} of the validation rows lie within {COPY_DISTANCE:.0%} of the "
            "usual distance from a training row: near copies.",
            figures={"near_copies": near},
            fix="give copies of one original one group, then group_split(groups)",
        )


def _look_alikes(sides: _Sides) -> Result:
    """Images that are a training image again, moved, brightened or compressed; more of them than
    training images have such a double within training."""
    if not sides.image or sides.shape != sides.shape_val or not sides.numbers:
        yield "look-alikes: inputs are no images [N, C, H, W] of one size"
        return
    if min(sides.shape[1:]) < 8 or len(sides.x) < 100:
        yield "look-alikes: images under 8 × 8, or fewer than 100"
        return
    rows = np.arange(len(sides.x))
    if len(rows) > MOST_IMAGES:
        rows = sides.rng.choice(len(rows), MOST_IMAGES, replace=False)
    train = perceptual.grey(sides.x[rows].reshape(-1, *sides.shape))
    val = perceptual.grey(sides.x_val[sides.val_rows[~sides.named]].reshape(-1, *sides.shape))
    usual, _ = perceptual.look_alikes(train[:1000], train, skip_self=True)
    unlike, _ = perceptual.look_alikes(val, train)
    limit = COPY_DISTANCE * float(np.median(usual))
    within, across = int((usual < limit).sum()), int((unlike < limit).sum())
    share, doubles = across / len(sides.val_rows), within / len(usual)
    figures = {"look_alikes": share, "look_alikes_within_train": doubles}
    yield figures
    from scipy import stats

    p = stats.binom.sf(across - 1, max(len(unlike), 1), (within + 1) / (len(usual) + 1))
    if across >= 3 and share > 0.005 and p < sides.alpha:
        yield SplitFinding(
            id="leak-overlap",
            message=f"{share:.1%} of the validation images are a training image again, moved, "
            f"brightened or compressed anew; within training {doubles:.1%} have such a double.",
            figures=figures,
            fix="give pictures of one original one group, then group_split(groups)",
        )


def _shared_groups(groups: tuple | None) -> Result:
    if groups is None:
        yield "groups: none were given"
        return
    train, val = (_numpy(part).tolist() for part in groups)
    both = set(train) & set(val)
    share = sum(group in both for group in val) / max(len(val), 1)
    yield {"shared_groups": float(len(both)), "val_in_shared_groups": share}
    if both:
        yield SplitFinding(
            id="leak-group",
            message=f"{len(both)} groups have examples on both sides ({share:.0%} of validation), "
            f"such as {sorted(both, key=str)[0]!r}.",
            figures={"shared_groups": float(len(both)), "val_in_shared_groups": share},
            fix="train, val = group_split(groups)",
        )


def _earlier(times: tuple | None) -> Result:
    if times is None:
        yield "times: none were given"
        return
    train, val = (_numpy(part) for part in times)
    early = float((val <= train.max()).mean())
    yield {"val_not_later": early}
    if early:
        yield SplitFinding(
            id="leak-time",
            message=f"{early:.0%} of validation is not later than the last training example: the "
            "model is asked about its own past.",
            figures={"val_not_later": early},
            fix="train, val = time_split(times)",
        )


def _preprocessing(sides: _Sides) -> Result:
    """Mean 0 and deviation 1 hold for both sides joined, and not for training alone."""
    if not sides.same_width or sides.x.dtype.kind != "f" or sides.x_val.dtype.kind != "f":
        yield "preprocessing: inputs are no floating-point rows of one width"
        return
    joined = _off_standard(np.concatenate([sides.x, sides.x_val]))
    alone = _off_standard(sides.x)
    yield {"off_standard_joined": joined, "off_standard_train": alone}
    if joined < 2e-4 and alone > max(20 * joined, 1e-3):
        yield SplitFinding(
            id="leak-preprocessing",
            message=f"both sides joined have mean 0 and deviation 1 to {joined:.1g}, training "
            f"alone only to {alone:.2g}: the statistics were fitted on both.",
            figures={"off_standard_joined": joined, "off_standard_train": alone},
            fix="scaler.fit(train_inputs); val_inputs = scaler.transform(val_inputs)",
        )


def _missing_classes(sides: _Sides) -> Result:
    if not sides.classes():
        yield "missing classes: targets are no class indices [N]"
        return
    train, val = set(sides.y.tolist()), set(sides.y_val.tolist())
    for side, missing in (("validation", train - val), ("training", val - train)):
        if missing:
            yield SplitFinding(
                id="missing-class",
                message=f"{side} lacks {len(missing)} of {len(train | val)} classes, such as "
                f"{sorted(missing)[0]}: nothing can be said about them.",
                figures={"missing": float(len(missing))},
                fix="train, val = stratified_split(targets)",
            )


def _label_shift(sides: _Sides) -> Result:
    """Chi-square of the classes by side; for numbers, Kolmogorov and Smirnov's test."""
    from scipy import stats

    if sides.y.ndim != 1 or sides.y_val.ndim != 1:
        yield "label shift: targets are not [N]"
        return
    if sides.classes():
        names = np.unique(np.concatenate([sides.y, sides.y_val]))
        table = np.array([[(y == n).sum() for n in names] for y in (sides.y, sides.y_val)])
        p = float(stats.chi2_contingency(table).pvalue) if len(names) > 1 else 1.0
        distance = float(abs(table[0] / table[0].sum() - table[1] / table[1].sum()).sum() / 2)
        counts = {"labels": names.tolist(), "train": table[0].tolist(), "val": table[1].tolist()}
        yield "label_counts", counts
    else:
        test = stats.ks_2samp(sides.y.astype(float), sides.y_val.astype(float))
        p, distance = float(test.pvalue), float(test.statistic)
        drawn = (sides.drawn(part).tolist() for part in (sides.y, sides.y_val))
        yield "targets", dict(zip(("train", "val"), drawn, strict=True))
    yield {"label_shift": distance, "label_shift_p": p}
    if p < sides.alpha and distance > 0.05:
        yield SplitFinding(
            id="label-shift",
            message=f"targets are spread otherwise in validation (distance {distance:.2f}, "
            f"p = {p:.1g}).",
            figures={"label_shift": distance, "label_shift_p": p},
            fix="train, val = stratified_split(targets); or report metrics by class",
        )


def _covariate_shift(sides: _Sides) -> Result:
    """Can trees tell the sides apart on rows they have not seen? AUC 0.5 is no."""
    if not (sides.numbers and sides.same_width) or min(len(sides.x), len(sides.x_val)) < 40:
        yield "covariate shift: inputs are no numbers of one width, or under 40 examples a side"
        return
    from scipy import stats
    from sklearn.ensemble import ExtraTreesClassifier

    train, val = sides.drawn(sides.x), sides.drawn(sides.x_val)
    size = min(len(train), len(val))  # as many of both, or the trees would only count
    train, val = (sides.rng.permutation(part)[:size] for part in (train, val))
    half = size // 2
    trees = ExtraTreesClassifier(
        100, min_samples_leaf=3, random_state=int(sides.rng.integers(2**31))
    )
    trees.fit(np.concatenate([train[:half], val[:half]]), np.repeat([0, 1], half))
    scores = [trees.predict_proba(part[half:])[:, 1] for part in (train, val)]
    yield "shift_scores", {"train": scores[0].tolist(), "val": scores[1].tolist()}
    test = stats.mannwhitneyu(scores[1], scores[0], alternative="greater")
    auc, p = float(test.statistic / (size - half) ** 2), float(test.pvalue)
    yield {"covariate_shift_auc": auc, "covariate_shift_p": p}
    if p < sides.alpha and auc > 0.55:
        yield SplitFinding(
            id="covariate-shift",
            message=f"a classifier tells validation inputs from training inputs (AUC {auc:.2f} on "
            f"unseen rows, p = {p:.1g}).",
            figures={"covariate_shift_auc": auc, "covariate_shift_p": p},
            fix="preprocess both sides alike; if the world differs, validate on what will be met",
        )


def _features(train: np.ndarray, val: np.ndarray, *, image: bool) -> tuple[np.ndarray, np.ndarray]:
    """Images without their brightness and contrast; rows in units of training's deviation."""
    if image:
        parts = [part - part.mean(1, keepdims=True) for part in (train, val)]
        return tuple(p / np.maximum(np.linalg.norm(p, axis=1, keepdims=True), 1e-12) for p in parts)
    std = train.std(0)
    if not (std > 0).any():
        return train, val
    std = np.maximum(std, 0.1 * np.median(std[std > 0]))  # an almost constant column weighs little
    return train / std, val / std


def _nearest(queries: np.ndarray, rows: np.ndarray, *, skip_self: bool = False) -> np.ndarray:
    """Distance [Q] from each query to its nearest row; `skip_self`: the queries lead the rows."""
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=1 + skip_self, algorithm="brute").fit(rows)
    return search.kneighbors(queries)[0][:, -1]


def _off_standard(rows: np.ndarray) -> float:
    """How far the columns are from mean 0 and deviation 1, the worst of them."""
    rows = rows.astype(np.float64)
    rows = rows[:, rows.std(0) > 1e-9]
    if not rows.size or len(rows) < 8:
        return float("inf")
    off = min(float(abs(rows.std(0, ddof=ddof) - 1).max()) for ddof in (0, 1))
    return max(float(abs(rows.mean(0)).max()), off)


def _finite(figures: dict[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{body}</table>"


def _row_hash(row: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(row).tobytes(), digest_size=12).digest()


def _numpy(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)


def _codes(groups: Any) -> np.ndarray:
    """A number for each group; names may be anything that is hashable, tuples too."""
    numbers: dict[Any, int] = {}
    names = groups.tolist() if hasattr(groups, "tolist") else groups
    return np.array([numbers.setdefault(name, len(numbers)) for name in names])


def _num_val(num: int, val_share: float) -> int:
    num_val = round(num * val_share)
    if not 0 < num_val < num:
        raise ValueError(
            f"val_share = {val_share} of {num} leaves {num - num_val} to train and {num_val} to "
            "validate: both sides need at least 1. Use a share such as 0.2."
        )
    return num_val


def _rest_and(val: np.ndarray, num: int) -> tuple[Indices, Indices]:
    val = np.sort(val)
    return np.setdiff1d(np.arange(num), val), val
