"""Check a finished split: the one implementation, used by `check_split`, the ladder and the doctor.

`check_split` looks as a sceptic would: for the same rows on both sides, near copies, a shared
group, validation that is not later, different labels, different inputs, statistics fitted on both
sides.

Source: Lecture 3, "Splits and shift"; ledger T24, F99, F100, B22.
"""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from course.data import perceptual
from course.data.columns import (
    LARGE,
    NUMBERS,
    TIMES,
    NotComparable,
    alike,
    as_array,
    as_column,
    codes_of,
    filled,
    gaps,
    in_order,
    key_of,
    keys_of,
    kind_of,
    row_keys,
)
from course.data.repeats import chance_of_shared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 2000
"""Rows per side for the comparisons that cost more than a hash; more are drawn at random."""
COPY_DISTANCE = 0.1
"""A near copy is this much nearer than training rows usually are to each other."""
TWIN, NEIGHBOURS = 0.5, 10
"""Rows of one side are takes of one object if they are nearer to each other than this share of the
distance to the tenth nearest row: of honest images, nearly none are."""
MOST_IMAGES = 10_000
"""Training images among which look-alikes are searched; more are drawn at random."""
LEAST_COPIES = 3
"""Validation rows that have to be copies: one or two stand twice in many honest data sets."""
COPY_SHARE = 0.005
"""Share of the validation rows that has to be copies: below it no score moves visibly."""
NATURAL = 3.0
"""Rows that repeat by nature (short texts, categories) stand on both sides about as often as they
repeat within one; copies are a leak from this many times that share."""
OVERSAMPLED, UNTOUCHED = 0.8, 0.2
"""Shares of repeated rows, over both sides: a class above the first next to one below the second
was oversampled before the split, or has few possible rows."""
EQUALLY_OFTEN = 0.3
"""Variance of the number of times that rows occur, over its mean, below which they were repeated:
where 80 % repeat of what is drawn from few possible rows it is 0.6 at least."""
STANDARD, OFF_STANDARD, TIMES_OFF = 2e-4, 2e-3, 20.0
"""Distance from mean 0 and deviation 1 of both sides joined (rounding stays below the first), and
of training alone (in units, and as a multiple), from which the statistics were fitted on both."""
LABEL_DISTANCE = 0.05
"""Total variation between the classes of both sides, or Kolmogorov and Smirnov's distance: less
than this changes no decision even where many rows make it significant."""
SHIFT_AUC = 0.55
"""Area under the curve of the classifier that tells the sides apart; 0.5 is chance."""


@dataclass(frozen=True, kw_only=True)
class SplitFinding:
    """One way in which the two sides are not separate, or not similar."""

    id: str
    message: str
    figures: dict[str, float]
    fix: str


@dataclass(frozen=True, kw_only=True)
class SplitReport:
    """What `check_split` found, measured and could not check."""

    findings: tuple[SplitFinding, ...]
    figures: dict[str, float]
    """Every number measured, alarming or not."""
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
        """The result in one line."""
        num = len(self.findings)
        return "the split holds" if self.passed else f"{num} fault{'s' * (num > 1)} in the split"

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json.dumps` takes; a number that is not finite becomes None."""
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
        """Draw the verdict as a figure; see `course.plots.splits.split_figure`."""
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
    only: Sequence[str] | None = None,
    drawn_once: bool = True,
    rows: int = MOST_ROWS,
) -> SplitReport:
    """Check a finished split as a sceptic would; nothing is changed.

    Args:
        train: Inputs [N, ...] and targets [N]: tensors, arrays or lists, of any dtype. What cannot
            be compared (text by distance, complex targets) is listed as not checked; nan and inf
            count as gaps, which are compared as well.
        val: Likewise.
        groups: Group of each training and of each validation example.
        times: Time of each, likewise.
        alpha: Accepted probability of a false alarm in each statistical test.
        seed: Seed of all random draws.
        only: Names of the checks to make, from `CHECKS`; all by default.
        drawn_once: False if training rows were drawn with replacement: their repeats then say
            nothing about how often rows repeat by nature.
        rows: Rows per side for the comparisons that cost more than a hash.

    Raises:
        ValueError: A side is empty, inputs, targets, groups or times differ in length, or `only`
            names no check.

    Source: Lecture 3, "Splits and shift"; Lopez-Paz and Oquab 2017 for the classifier test.
    """
    _check_sizes(train, val, groups=groups, times=times)
    if unknown := set(only or ()) - set(CHECKS):
        raise ValueError(f"only = {sorted(unknown)}: expected names from {', '.join(CHECKS)}.")
    parts = [as_array(part) for part in (*train, *val)]
    sides = _Sides(*parts, alpha, np.random.default_rng(seed), rows, drawn_once)
    sides.groups, sides.times = groups, times
    checks = {name: check for name, check in CHECKS.items() if only is None or name in only}
    findings, figures, not_checked, series = [], sides.gaps, [], {}
    for name, check in checks.items():
        try:
            for result in check(sides):
                if isinstance(result, str):
                    not_checked.append(f"{name}: {result}")
                elif isinstance(result, dict):
                    figures |= result
                elif isinstance(result, tuple):
                    series[result[0]] = result[1]
                else:
                    findings.append(result)
        except NotComparable as reason:
            not_checked.append(f"{name}: {reason}")
    return SplitReport(
        findings=tuple(findings),
        figures=figures,
        not_checked=tuple(not_checked),
        series=series,
    )


def _check_sizes(train: tuple, val: tuple, **others: tuple | None) -> None:
    """Every example has an input, a target and, where there are any, a group and a time."""
    for name, side in (("train", train), ("val", val)):
        if not isinstance(side, (tuple, list)) or len(side) != 2:
            raise ValueError(
                f"{name} is a {type(side).__name__}: expected a pair of inputs [N, ...] and "
                "targets [N]. Of a TensorDataset these are dataset.tensors."
            )
        x, y = side
        if any(
            isinstance(part, (dict, set, str)) or not hasattr(part, "__len__") for part in (x, y)
        ):
            raise ValueError(
                f"{name} holds a {type(x).__name__} and a {type(y).__name__}: expected inputs "
                "[N, ...] and targets [N]. Give one tensor of a dictionary at a time."
            )
        if len(x) != len(y) or not len(x):
            raise ValueError(
                f"{name} holds {len(x)} inputs and {len(y)} targets: expected the same number of "
                "both, and at least 1."
            )
    for name, pair in others.items():
        if pair is not None and [len(part) for part in pair] != [len(train[0]), len(val[0])]:
            raise ValueError(
                f"{name} hold {len(pair[0])} and {len(pair[1])} entries for {len(train[0])} "
                f"training and {len(val[0])} validation examples: expected one for each."
            )


class _Sides:
    """Both sides as rows, their targets, and the sample used by the expensive comparisons."""

    def __init__(self, x, y, x_val, y_val, alpha, rng, most_rows, drawn_once) -> None:
        self.shape, self.shape_val = x.shape[1:], x_val.shape[1:]
        self.x, self.x_val = (_rows(part) for part in (x, x_val))
        self.alpha, self.rng, self.most_rows = alpha, rng, most_rows
        self.drawn_once = drawn_once
        self.groups: tuple | None = None
        self.times: tuple | None = None
        self.raw_targets = as_column(y), as_column(y_val)
        self.image = x.ndim == 4 and x.dtype.kind in NUMBERS
        self.same_width = self.x.shape[1] == self.x_val.shape[1]
        self.numbers = all(part.dtype.kind in NUMBERS for part in (self.x, self.x_val))
        self.gaps: dict[str, float] = {}
        """Share of examples with a nan, inf or None among their inputs, and without a target."""
        self._count_gaps(train=(self.x, y), val=(self.x_val, y_val))
        self._keep_targets(y, y_val)

        self.val_rows = np.arange(len(x_val))
        """Validation rows that are searched for copies."""
        if len(x_val) > most_rows:
            self.val_rows = np.sort(rng.choice(len(x_val), most_rows, replace=False))
        self.named = np.zeros(len(self.val_rows), dtype=bool)
        """Which of them a finding names already."""

    def drawn(self, rows: np.ndarray) -> np.ndarray:
        if len(rows) > self.most_rows:
            rows = rows[self.rng.choice(len(rows), self.most_rows, replace=False)]
        return rows.astype(np.float64)

    def _count_gaps(self, **sides: tuple[np.ndarray, np.ndarray]) -> None:
        for side, (x, y) in sides.items():
            holes = ~np.isfinite(x) if x.dtype.kind == "f" else gaps(x)
            shares = {
                f"inputs_with_gaps_{side}": float(holes.any(1).mean()),
                f"without_target_{side}": float(gaps(y).reshape(len(y), -1).any(1).mean()),
            }
            self.gaps |= {name: share for name, share in shares.items() if share}

    def _keep_targets(self, y: np.ndarray, y_val: np.ndarray) -> None:
        """Targets that are there; objects, dates and the like as numbers."""
        pair = [as_column(part) for part in (y, y_val)]
        pair = [part[~gaps(part)] if part.ndim == 1 else part for part in pair]
        self.names: list[Any] | None = None
        """What a target's number stands for, where targets are neither numbers nor text."""
        self.no_targets = _why_no_targets(*pair)
        if not self.no_targets and any(part.dtype.kind in "OSV" for part in pair):
            try:
                pair, self.names = codes_of(*pair)
            except NotComparable as reason:
                self.no_targets = str(reason)
        elif not self.no_targets and pair[0].dtype.kind in TIMES:
            kind = np.result_type(*pair)
            pair = [part.astype(kind).astype(np.int64).astype(np.float64) for part in pair]
        self.y, self.y_val = pair

    def classes(self) -> bool:
        return self.y.dtype.kind in "iubU"


def _rows(x: np.ndarray) -> np.ndarray:
    """[N, D]; a complex number is two columns."""
    rows = x.reshape(len(x), math.prod(x.shape[1:]))
    return np.hstack([rows.real, rows.imag]) if rows.dtype.kind == "c" else rows


def _why_no_targets(y: np.ndarray, y_val: np.ndarray) -> str:
    """Why these targets cannot be compared; empty where they can."""
    if y.ndim != 1 or y_val.ndim != 1:
        return "targets are not [N]"
    if not len(y) or not len(y_val):
        return "every target of a side is nan or None"
    if not alike(y, y_val):
        return f"training targets are {kind_of(y)} and validation targets {kind_of(y_val)}"
    if "c" in (y.dtype.kind, y_val.dtype.kind):
        return "targets are complex numbers, which cannot be ordered"
    return ""


Result = Iterator[SplitFinding | dict[str, float] | str | tuple[str, dict[str, list]]]
"""Faults; figures by name; what could not be looked at; (name, values) of what a picture shows."""


def _copies(sides: _Sides) -> Result:
    """Rows that stand on both sides, bit for bit, and do not repeat by nature."""
    train, val = row_keys(sides.x, sides.x_val)  # the same numbers in another dtype are a copy
    seen = set(train)
    shared = sum(row in seen for row in val) / len(val)
    repeated = 1 - len(seen) / len(train)
    figures = {"copies": shared, "repeated_within_train": repeated}
    yield figures
    natural = max(repeated if sides.drawn_once else 0.0, 1 - len(set(val)) / len(val))
    oversampled = _oversampled(sides, train, val) if sides.drawn_once else None
    if shared * len(val) < min(LEAST_COPIES, len(val)) or shared < COPY_SHARE:
        return
    chance = chance_of_shared(train, val, drawn_once=sides.drawn_once)
    if sides.image and not natural:
        chance = 0.0  # pictures are not drawn from a few
    if (shared > NATURAL * natural and chance < sides.alpha) or _continuous(sides, len(seen)):
        yield SplitFinding(
            id="leak-overlap",
            message=f"{shared:.1%} of the validation rows are also in training; a model that "
            "memorises rows gets them right.",
            figures=figures,
            fix="remove duplicates first, then split",
        )
    elif oversampled is not None:
        name, times = oversampled
        counted = (
            f"{shared:.1%} of the validation rows are also in training, and nearly all rows of "
            f"class {_plain(name)} repeat while those of another class do not"
        )
        if times is None:
            yield f"{counted}, by nature or as copies, which is not seen."
            return
        yield SplitFinding(
            id="leak-overlap",
            message=f"{counted}: rows of that class occur {times:.3g} times, nearly all as often "
            "as each other, as after oversampling before the split.",
            figures=figures,
            fix="train, val = stratified_split(targets)  # first; then oversample only training",
        )


def _continuous(sides: _Sides, distinct: int) -> bool:
    """Several columns of numbers of which hardly two are alike: such rows repeat only as copies."""
    if sides.x.dtype.kind != "f" or sides.x.shape[1] < 4:
        return False
    own = [len(np.unique(column)) / distinct for column in sides.x.T[:64]]
    return float(np.median(own)) > 0.5


def _oversampled(sides: _Sides, train: list, val: list) -> tuple[Any, float | None] | None:
    """The class whose rows nearly all repeat, across both sides, while another's hardly do; and how
    often its rows occur, where they occur equally often, as what was drawn by chance never does."""
    y, y_val = sides.raw_targets
    if y.ndim != 1 or y_val.ndim != 1 or y.dtype.kind not in "iubU" or not alike(y, y_val):
        return None
    counts = Counter((*train, *val))
    repeated = np.array([counts[row] > 1 for row in (*train, *val)])
    labels = np.concatenate([y, y_val])
    shares = {name: float(repeated[labels == name].mean()) for name in np.unique(labels)[:200]}
    most = max(shares, key=shares.__getitem__)
    in_val = [row for row, label in zip(val, y_val, strict=True) if label == most]
    across = sum(row in set(train) for row in in_val)
    apart = shares[most] > OVERSAMPLED and min(shares.values()) < UNTOUCHED
    if not apart or across < LEAST_COPIES:
        return None
    of_class = {row for row, label in zip((*train, *val), labels, strict=True) if label == most}
    often = np.array([counts[row] for row in of_class])
    return most, float(often.mean()) if often.var() < EQUALLY_OFTEN * often.mean() else None


def _plain(label: Any) -> Any:
    return label.item() if hasattr(label, "item") else label


def _near_copies(sides: _Sides) -> Result:
    """Validation rows far nearer to a training row than training rows are to each other."""
    if not (sides.numbers and sides.same_width) or sides.x.shape[1] < 8 or len(sides.x) < 8:
        yield "the rows are not 8 or more numbers, or fewer than 8 rows"
        return
    train, val = row_keys(sides.x, sides.x_val[sides.val_rows])
    copies = set(train)
    sides.named |= np.array([row in copies for row in val])  # by `_copies`
    val, train = filled(sides.x_val[sides.val_rows], sides.x, marks=not sides.image)
    if len(train) > 10 * sides.most_rows:
        train = train[sides.rng.choice(len(train), 10 * sides.most_rows, replace=False)]
    train, val = _features(train, val, image=sides.image)
    usual = np.median(_nearest(train[: min(len(train), 1000)], train, skip_self=True))
    nearest = _nearest(val, train)
    found = ~sides.named & (nearest < COPY_DISTANCE * usual)
    near = float(found.mean())
    yield {"near_copies": near, "usual_distance": float(usual)}
    if usual > 0 and near * len(val) >= LEAST_COPIES and near > COPY_SHARE:
        sides.named |= found
        yield SplitFinding(
            id="leak-overlap",
            message=f"{near:.1%} of the validation rows lie within {COPY_DISTANCE:.0%} of the "
            "usual distance from a training row: near copies.",
            figures={"near_copies": near},
            fix="put all copies of an original into one group, then group_split(groups)",
        )


def _look_alikes(sides: _Sides) -> Result:
    """Images that are a training image again, moved, brightened or compressed; more of them than
    training images have such a double within training."""
    if not sides.image or sides.shape != sides.shape_val or not sides.numbers:
        yield "inputs are not images [N, C, H, W] of one size"
        return
    if min(sides.shape[1:]) < 8 or len(sides.x) < 100:
        yield "images under 8 × 8, or fewer than 100"
        return
    rows = np.arange(len(sides.x))
    if len(rows) > MOST_IMAGES:
        rows = sides.rng.choice(len(rows), MOST_IMAGES, replace=False)
    val, train = filled(sides.x_val[sides.val_rows[~sides.named]], sides.x[rows], marks=False)
    train, val = (perceptual.grey(part.reshape(-1, *sides.shape)) for part in (train, val))
    usual, _ = perceptual.look_alikes(train[:1000], train, skip_self=True)
    unlike, _ = perceptual.look_alikes(val, train)
    limit = COPY_DISTANCE * float(np.median(usual))
    within, across = int((usual < limit).sum()), int((unlike < limit).sum())
    share, doubles = across / len(sides.val_rows), within / len(usual)
    figures = {"look_alikes": share, "look_alikes_within_train": doubles}
    yield figures
    from scipy import stats

    p = stats.binom.sf(across - 1, max(len(unlike), 1), (within + 1) / (len(usual) + 1))
    if across >= LEAST_COPIES and share > COPY_SHARE and p < sides.alpha:
        yield SplitFinding(
            id="leak-overlap",
            message=f"{share:.1%} of the validation images are copies of a training image, "
            f"shifted, brightened or compressed again; within training {doubles:.1%} have such a "
            "double.",
            figures=figures,
            fix="put all images of an original into one group, then group_split(groups)",
        )


def _shared_groups(sides: _Sides) -> Result:
    if sides.groups is None:
        yield "none were given"
        return
    keys = [keys_of(part) for part in sides.groups]
    train, val = ([key for key in side if key != key_of(None)] for side in keys)
    if unknown := sum(map(len, keys)) - len(train) - len(val):
        yield f"the {unknown} examples whose group is nan or None"
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


def _earlier(sides: _Sides) -> Result:
    if sides.times is None:
        yield "none were given"
        return
    train, val = (in_order(part) for part in sides.times)
    if not alike(train, val):
        raise NotComparable(f"one side's are {kind_of(train)} and the other's {kind_of(val)}")
    if unknown := int(gaps(train).sum() + gaps(val).sum()):
        yield f"the {unknown} examples whose time is nan or None"
    train, val = train[~gaps(train)], val[~gaps(val)]
    if not len(train) or not len(val):
        return
    early = float((val <= train.max()).mean())
    yield {"val_not_later": early}
    if early:
        yield SplitFinding(
            id="leak-time",
            message=f"{early:.0%} of validation is not later than the last training example: the "
            "model predicts its own past.",
            figures={"val_not_later": early},
            fix="train, val = time_split(times)",
        )


def _preprocessing(sides: _Sides) -> Result:
    """Mean 0 and deviation 1 hold for both sides joined, and not for training alone."""
    if not sides.same_width or sides.x.dtype.kind != "f" or sides.x_val.dtype.kind != "f":
        yield "inputs are not floating-point rows of one width"
        return
    both = np.concatenate([sides.x, sides.x_val])
    measured = {"": (both, sides.x), "_all": (both.reshape(-1, 1), sides.x.reshape(-1, 1))}
    for by, (joined, alone) in measured.items():
        joined, alone = _off_standard(joined), _off_standard(alone)
        figures = {f"off_standard{by}_joined": joined, f"off_standard{by}_train": alone}
        yield figures
        if joined < STANDARD and alone > max(TIMES_OFF * joined, OFF_STANDARD):
            yield SplitFinding(
                id="leak-preprocessing",
                message="both sides together have mean 0 and standard deviation 1 to within "
                f"{joined:.1g}, training alone only to within {alone:.2g}: the statistics were "
                "fitted on both.",
                figures=figures,
                fix="scaler.fit(train_inputs); val_inputs = scaler.transform(val_inputs)",
            )
            return


def _missing_classes(sides: _Sides) -> Result:
    if sides.no_targets or not sides.classes():
        yield sides.no_targets or "targets are not class indices [N]"
        return
    train, val = Counter(sides.y.tolist()), Counter(sides.y_val.tolist())
    ratio = sides.y_val.size / sides.y.size
    for side, there, lacks, to_side in (
        ("validation", train, val, ratio), ("training", val, train, 1 / ratio),
    ):  # fmt: skip
        if missing := set(there) - set(lacks):
            expected = max(there[name] for name in missing) * to_side
            yield SplitFinding(
                id="missing-class",
                message=f"{side} lacks {len(missing)} of {len(train | val)} classes, such as "
                f"{_named(sides, min(missing))}: nothing can be said about the missing ones.",
                figures={"missing": float(len(missing)), "expected_there": expected},
                fix="train, val = stratified_split(targets)",
            )


def _label_shift(sides: _Sides) -> Result:
    """Chi-square of the classes by side; for numbers, Kolmogorov and Smirnov's test."""
    from scipy import stats

    if sides.no_targets:
        yield sides.no_targets
        return
    if sides.classes():
        names = np.unique(np.concatenate([sides.y, sides.y_val]))
        table = np.array([[(y == n).sum() for n in names] for y in (sides.y, sides.y_val)])
        drawn = table * np.array(_draws_per_row(sides))[:, None]
        p = float(stats.chi2_contingency(drawn).pvalue) if len(names) > 1 else 1.0
        distance = float(abs(table[0] / table[0].sum() - table[1] / table[1].sum()).sum() / 2)
        labels = [_named(sides, name) for name in names.tolist()]
        counts = {"labels": labels, "train": table[0].tolist(), "val": table[1].tolist()}
        yield "label_counts", counts
    else:
        test = stats.ks_2samp(sides.y.astype(float), sides.y_val.astype(float))
        p, distance = float(test.pvalue), float(test.statistic)
        drawn = np.array(_draws_per_row(sides)) * [len(sides.y), len(sides.y_val)]
        if sides.groups is not None:
            p = float(stats.kstwobign.sf(distance * math.sqrt(drawn.prod() / drawn.sum())))
        finite = (part[np.isfinite(part)] for part in (sides.y, sides.y_val))
        drawn = (sides.drawn(part).tolist() for part in finite)
        yield "targets", dict(zip(("train", "val"), drawn, strict=True))
    yield {"label_shift": distance, "label_shift_p": p}
    if p < sides.alpha and distance > LABEL_DISTANCE:
        yield SplitFinding(
            id="label-shift",
            message=f"targets are distributed differently in validation (distance {distance:.2f}, "
            f"p = {p:.1g}).",
            figures={"label_shift": distance, "label_shift_p": p},
            fix="train, val = stratified_split(targets); or report metrics by class",
        )


def _draws_per_row(sides: _Sides) -> list[float]:
    """Groups per row on each side: four scans of a page are one draw of a label, not four.

    A test that counted every row would find a shift wherever groups share their target. Without
    groups, takes of one object are recognised by their nearness.
    """
    if sides.groups is not None:
        return [len(set(keys_of(group))) / len(group) for group in sides.groups]
    return [len(_one_of_each(sides, part, np.arange(len(part)))) / len(part)
            if len(part) <= MOST_ROWS else 1.0 for part in (sides.x, sides.x_val)]  # fmt: skip


def _one_of_each(sides: _Sides, x: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The chosen rows without further takes of the same object: row numbers, in order."""
    from scipy.sparse.csgraph import connected_components
    from sklearn.neighbors import NearestNeighbors

    if not sides.numbers or x.shape[1] < 8 or len(chosen) <= 2 * NEIGHBOURS:
        return chosen
    rows, _ = filled(x[chosen], x[chosen], marks=False)
    if not sides.image:  # in units of its deviation, but one that hardly varies weighs little
        std = rows.std(0)
        rows = rows / np.maximum(std, np.median(std[std > 0])) if (std > 0).any() else rows
    rows, _ = _features(rows, rows, image=True)
    search = NearestNeighbors(n_neighbors=NEIGHBOURS + 1, algorithm="brute").fit(rows)
    graph = search.kneighbors_graph(mode="distance")
    reach = graph.max(1).toarray()[np.repeat(np.arange(len(rows)), NEIGHBOURS + 1), 0]
    graph.data = (graph.data < TWIN * reach).astype(float)
    graph.eliminate_zeros()
    _, objects = connected_components(graph)
    return chosen[np.unique(objects, return_index=True)[1]]


def _independent(sides: _Sides, side: int) -> np.ndarray:
    """Rows of a side in random order, one of each group and of each object, at most `most_rows`."""
    x = (sides.x, sides.x_val)[side]
    chosen = sides.rng.permutation(len(x))
    if sides.groups is not None:
        keys = keys_of(sides.groups[side])
        named = {row if keys[row] == key_of(None) else (keys[row],): row for row in chosen}
        chosen = np.array(list(named.values()))
    return x[_one_of_each(sides, x, chosen[: sides.most_rows])].astype(np.float64)


def _named(sides: _Sides, label: Any) -> Any:
    """A label as its author wrote it, in a form that goes into JSON."""
    name = label if sides.names is None else sides.names[label]
    return name if isinstance(name, (str, int, float, bool)) else str(name)


def _covariate_shift(sides: _Sides) -> Result:
    """Can trees tell the sides apart on objects they have not seen? AUC 0.5 is no.

    One row of each object: trees that had seen another take of it would recognise the object, and
    every object is on one side.
    """
    usable = sides.numbers and sides.same_width and sides.x.shape[1]
    if not usable or min(len(sides.x), len(sides.x_val)) < 40:
        yield "inputs are not numbers of one width, or there are under 40 examples per side"
        return
    from scipy import stats
    from sklearn.ensemble import ExtraTreesClassifier

    train, val = filled(_independent(sides, 0), _independent(sides, 1))
    size = min(len(train), len(val))  # as many of both, or the trees would only count
    if size < 40:
        yield "there are under 40 groups or objects per side"
        return
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
    if p < sides.alpha and auc > SHIFT_AUC:
        yield SplitFinding(
            id="covariate-shift",
            message=f"a classifier can tell validation inputs from training inputs (AUC {auc:.2f} "
            f"on unseen rows, p = {p:.1g}).",
            figures={"covariate_shift_auc": auc, "covariate_shift_p": p},
            fix="preprocess both sides in the same way; if the real inputs differ, validate on "
            "data like those you will predict on",
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
    known = ~np.isnan(rows).all(0) & ~np.isinf(rows).any(0)  # no scaler has made a column of inf
    rows = rows[:, known & (abs(np.nan_to_num(rows)).max(0, initial=0.0) < LARGE)]
    rows = rows[:, np.nanstd(rows, 0) > 1e-9]
    if not rows.size or len(rows) < 8:
        return float("inf")
    with np.errstate(all="ignore"):  # a column with one known value has no deviation
        off = min(float(np.nanmax(abs(np.nanstd(rows, 0, ddof=ddof) - 1))) for ddof in (0, 1))
    return max(float(abs(np.nanmean(rows, 0)).max()), off)


def _finite(figures: dict[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{body}</table>"


CHECKS: dict[str, Callable[[_Sides], Result]] = {
    "copies": _copies,
    "near copies": _near_copies,
    "look-alikes": _look_alikes,
    "groups": _shared_groups,
    "times": _earlier,
    "preprocessing": _preprocessing,
    "missing classes": _missing_classes,
    "label shift": _label_shift,
    "covariate shift": _covariate_shift,
}
"""What is looked at, in this order."""
