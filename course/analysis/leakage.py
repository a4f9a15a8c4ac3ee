"""Five ways in which a split leaks, each on real data and next to a split that does not leak.

    for leak in five_leaks(): print(leak)

The same rows are split both ways: the difference between the two scores is the effect of the leak.
`check_split` examines both splits.

Source: Lecture 3, "Before trusting validation"; training-loop chapter, c5, bug 5; ledger T24, F99,
F100, X34.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from course.data.split_check import SplitReport, check_split
from course.data.splits import group_split, random_split, stratified_split, time_split
from course.whole import check_seed

DRAWS = 5
"""Splits to average over: the score of one split of a few hundred rows varies by a point or two."""
NUM_WRITERS = 13
"""Writers of scikit-learn's digits, by its own description; a writer's rows are adjacent."""
ASKED = ("copies", "near copies", "look-alikes", "groups", "times", "preprocessing")
"""What `check_split` looks for: leaks, not shifts."""

Split = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Leak:
    """One leak, with its honest counterpart."""

    kind: str
    data: str
    """What the rows are, and how the leak arises."""
    measure: str
    """`accuracy`, `balanced accuracy` or `error`."""
    leaking: float
    """Mean validation score of the leaking split."""
    honest: float
    """Mean validation score of the split that does not leak."""
    found: tuple[str, ...]
    """Ids of the findings of `check_split` for the leaking split."""
    found_honest: tuple[str, ...]
    """Ids of its findings for the other split."""

    @property
    def gain(self) -> float:
        """How much better the leak makes the score look; for an error, how much lower."""
        sign = -1 if self.measure == "error" else 1
        return sign * (self.leaking - self.honest)

    @property
    def mistakes(self) -> tuple[float, float]:
        """With and without the leak: 1 − accuracy, or the error; lower looks better."""
        if self.measure == "error":
            return self.leaking, self.honest
        return 1 - self.leaking, 1 - self.honest

    def __str__(self) -> str:
        found = ", ".join(self.found) or "nothing"
        return (
            f"{self.kind}: {self.measure} {self.leaking:.3f}, without the leak {self.honest:.3f}; "
            f"check_split finds {found}"
        )


@dataclass(frozen=True, kw_only=True)
class _Side:
    """A random split: its validation score, and a function that checks it, which takes longer."""

    score: float
    ask: Callable[[], SplitReport]


def five_leaks(*, seed: int = 0) -> Iterator[Leak]:
    """All five, in the order in which they arise in a project.

    Args:
        seed: Seed for the splits.
    """
    for make in LEAKS.values():
        yield make(seed=check_seed(seed))


def copies(*, seed: int = 0) -> Leak:
    """Breast cancer, 40 malignant cases repeated nine times, before or after the split."""
    inputs, targets = _breast_cancer()
    rare, common = np.flatnonzero(targets == 0), np.flatnonzero(targets == 1)

    def draw(seed: int, before: bool) -> _Side:
        kept = np.random.default_rng(seed).choice(rare, 40, replace=False)
        rows = np.concatenate([common, np.tile(kept, 9 if before else 1)])
        train, val = (rows[part] for part in stratified_split(targets[rows], 0.3, seed=seed))
        if not before:
            train = np.concatenate([train, np.tile(train[targets[train] == 0], 8)])
        return _tree(inputs, targets, (train, val))

    about = "breast cancer, a rare class oversampled before the split"
    return _leak("copies", about, "balanced accuracy", draw, seed)


def near_copies(*, seed: int = 0) -> Leak:
    """Breast cancer, two in five patients a second time, rounded; split by row or by patient."""
    once, labels = _breast_cancer()
    again = np.arange(0, len(once), 5)
    again = np.sort(np.concatenate([again, again[:-1] + 2]))
    scale = 10.0 ** np.ceil(np.log10(np.abs(once[again]) + 1e-12))
    rounded = np.round(once[again] / scale, 3) * scale
    inputs, targets = np.concatenate([once, rounded]), np.concatenate([labels, labels[again]])
    patients = np.concatenate([np.arange(len(once)), again])

    def draw(seed: int, leaking: bool) -> _Side:
        split = random_split(len(targets), 0.3, seed=seed)
        return _nearest(
            inputs, targets, split if leaking else group_split(patients, 0.3, seed=seed)
        )

    about = "breast cancer, two in five patients also from a second export, rounded to 3 digits"
    return _leak("near copies", about, "accuracy", draw, seed)


def groups(*, seed: int = 0) -> Leak:
    """Digits of 13 writers, split by row or by writer.

    The data do not say who wrote which digit, so the rows are cut into 13 equal stretches.
    """
    from sklearn.datasets import load_digits

    inputs, targets = load_digits(return_X_y=True)
    writers = np.arange(len(targets)) * NUM_WRITERS // len(targets)

    def draw(seed: int, leaking: bool) -> _Side:
        split = random_split(len(targets), 0.2, seed=seed)
        split = split if leaking else group_split(writers, 0.2, seed=seed)
        return _nearest(inputs, targets, split, groups=writers)

    return _leak("groups", "digits, 13 writers on both sides", "accuracy", draw, seed)


def times(*, seed: int = 0) -> Leak:
    """A camera pans across a photo: predict the brightness of the next column to come into view."""
    frames, brightness = _pan()
    moments = np.arange(len(frames))

    def draw(seed: int, leaking: bool) -> _Side:
        split = random_split(len(frames), 0.2, seed=seed) if leaking else time_split(moments, 0.2)
        return _next_column(frames, brightness, split, moments)

    about = "frames of a pan across a photo, neighbouring frames nearly alike"
    return _leak("times", about, "error", draw, seed)


def preprocessing(*, seed: int = 0) -> Leak:
    """Wine, scaled by the mean and deviation of all rows or of the training rows only."""
    from sklearn.datasets import load_wine

    inputs, targets = load_wine(return_X_y=True)

    def draw(seed: int, leaking: bool) -> _Side:
        split = stratified_split(targets, 0.3, seed=seed)
        seen = inputs if leaking else inputs[split[0]]
        return _nearest((inputs - seen.mean(0)) / seen.std(0), targets, split, scale=False)

    return _leak("preprocessing", "wine, scaled by all rows", "accuracy", draw, seed)


def _leak(
    kind: str, data: str, measure: str, draw: Callable[[int, bool], _Side], seed: int
) -> Leak:
    """Draw both splits several times; the findings are those of the first draw."""
    sides = {
        leaking: [draw(seed + offset, leaking) for offset in range(DRAWS)]
        for leaking in (True, False)
    }
    means = {key: statistics.fmean(one.score for one in drawn) for key, drawn in sides.items()}
    ids = {
        key: tuple(finding.id for finding in drawn[0].ask().findings)
        for key, drawn in sides.items()
    }
    return Leak(
        kind=kind, data=data, measure=measure, leaking=means[True], honest=means[False],
        found=ids[True], found_honest=ids[False],
    )  # fmt: skip


def _tree(inputs: np.ndarray, targets: np.ndarray, split: Split) -> _Side:
    """A decision tree, by balanced accuracy."""
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.tree import DecisionTreeClassifier

    train, val = split
    model = DecisionTreeClassifier(random_state=0).fit(inputs[train], targets[train])
    score = balanced_accuracy_score(targets[val], model.predict(inputs[val]))
    return _Side(score=float(score), ask=partial(_asked, inputs, targets, split))


def _nearest(
    inputs: np.ndarray, targets: np.ndarray, split: Split, *, scale: bool = True,
    groups: np.ndarray | None = None,
) -> _Side:  # fmt: skip
    """Accuracy of the nearest training row's class; with `scale`, scaled by training."""
    from sklearn.neighbors import KNeighborsClassifier

    train, val = split
    rows = inputs / np.maximum(inputs[train].std(0), 1e-9) if scale else inputs
    model = KNeighborsClassifier(1).fit(rows[train], targets[train])
    score = float(model.score(rows[val], targets[val]))
    return _Side(score=score, ask=partial(_asked, inputs, targets, split, groups=groups))


def _next_column(
    frames: np.ndarray, brightness: np.ndarray, split: Split, moments: np.ndarray
) -> _Side:
    """Root mean squared error of the mean of the three nearest frames."""
    from sklearn.metrics import root_mean_squared_error
    from sklearn.neighbors import KNeighborsRegressor

    train, val = split
    model = KNeighborsRegressor(3).fit(frames[train], brightness[train])
    error = root_mean_squared_error(brightness[val], model.predict(frames[val]))
    return _Side(score=float(error), ask=partial(_asked, frames, brightness, split, times=moments))


def _asked(inputs: np.ndarray, targets: np.ndarray, split: Split, **columns) -> SplitReport:
    train, val = split
    known = {name: (c[train], c[val]) for name, c in columns.items() if c is not None}
    sides = (inputs[train], targets[train]), (inputs[val], targets[val])
    return check_split(*sides, only=ASKED, **known)


def _breast_cancer() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_breast_cancer

    return load_breast_cancer(return_X_y=True)


WINDOW, EVERY = 40, 8
"""Columns that a frame shows; one row in this many is kept."""


def _pan() -> tuple[np.ndarray, np.ndarray]:
    """Frames [N, F] of a window moving over a photo, and the brightness of the next column [N]."""
    from sklearn.datasets import load_sample_image

    photo = load_sample_image("china.jpg").mean(axis=2) / 255
    starts = range(photo.shape[1] - WINDOW)
    frames = [photo[::EVERY, start : start + WINDOW : EVERY // 2].ravel() for start in starts]
    return np.array(frames), photo[:, WINDOW:].mean(axis=0)


LEAKS: dict[str, Callable[..., Leak]] = {
    "copies": copies,
    "near copies": near_copies,
    "groups": groups,
    "times": times,
    "preprocessing": preprocessing,
}
"""By kind, in the order of the lecture's list."""
