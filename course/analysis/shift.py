"""Which kind of shift: in the inputs, in the shares of the classes, or in what a label means.

    report = tell_shift(val, production, right=(val_right, production_right))

Two questions about a classifier that tries to distinguish production from validation examples
identify the kind. Does it succeed on the inputs as they are? If not, and the model is right less
often, labels now mean something else: concept shift. If it succeeds, does it still do so if both
sides have equally many examples of each class? If not, only the shares have changed: label shift.
Otherwise the inputs have: covariate shift.

Source: Lecture 3, "Distribution shift is the next test"; ledger T24, X34.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from course.data.split_check import check_split
from course.whole import check_seed

ALPHA = 1e-3
"""Chance of a false alarm accepted in each test, as in `check_split`."""
LEAST_DROP = 0.02
"""The smallest drop in accuracy that counts: less would not change a decision."""
KINDS = ("none", "covariate", "label", "concept")
"""The kinds that can be simulated and reported."""
DIRECTIONS = {
    "none": "nothing: these examples show no shift",
    "covariate": "collect inputs like the new ones for training, validation and test",
    "label": "report each class separately; set thresholds for the new shares",
    "concept": "label current examples, train on them, and watch for the next change",
}
"""What to do about each kind."""

Side = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class Shift:
    """The kind of shift, and the numbers behind it."""

    kind: str
    """One of KINDS."""
    auc: float
    """AUC of a classifier that distinguishes the two sides by their inputs; 0.5 is chance."""
    auc_matched: float
    """The same, with equally many examples of each class on both sides."""
    label_distance: float
    """Total variation distance between the shares of the classes."""
    val_accuracy: float
    accuracy: float
    """The model's accuracy in production."""

    @property
    def drop(self) -> float:
        """Accuracy lost."""
        return self.val_accuracy - self.accuracy

    @property
    def what_to_do(self) -> str:
        """What to do about this kind."""
        return DIRECTIONS[self.kind]

    def __str__(self) -> str:
        return (
            f"{self.kind}: accuracy {self.val_accuracy:.3f}, now {self.accuracy:.3f}; AUC between "
            f"the sides {self.auc:.2f}, with equal class shares {self.auc_matched:.2f}; shares "
            f"changed by {self.label_distance:.2f}"
        )


def tell_shift(
    val: Side, production: Side, *, right: tuple[Tensor, Tensor], seed: int = 0
) -> Shift:
    """The kind of shift between validation and labelled examples of production.

    Args:
        val: Inputs [N, ...] and class indices [N].
        production: The same, from where the model is used.
        right: For each of the two, whether the model was right: bool [N].
        seed: Seed for the random draws.

    Raises:
        ValueError: A side has fewer than 40 examples, before or after the classes are matched.
    """
    seed = check_seed(seed)
    val_right, now_right = (torch.as_tensor(part).bool() for part in right)
    differ, auc = _told_apart(val, production, seed)
    differ_matched, auc_matched = _told_apart(*_matched(val, production, seed), seed)
    fell = _fell(val_right, now_right)
    if differ:
        kind = "covariate" if differ_matched else "label"
    else:
        kind = "concept" if fell else "none"
    return Shift(
        kind=kind,
        auc=auc,
        auc_matched=auc_matched,
        label_distance=_label_distance(val[1], production[1]),
        val_accuracy=val_right.double().mean().item(),
        accuracy=now_right.double().mean().item(),
    )


def _told_apart(val: Side, production: Side, seed: int) -> tuple[bool, float]:
    """Whether a classifier can distinguish the sides, and its area under the curve."""
    report = check_split(val, production, only=["covariate shift"], alpha=ALPHA, seed=seed)
    if "covariate_shift_auc" not in report.figures:
        raise ValueError(
            f"{len(val[1])} validation and {len(production[1])} production examples to compare: "
            "each side needs at least 40, of classes that both sides have."
        )
    return not report.passed, report.figures["covariate_shift_auc"]


def _matched(val: Side, production: Side, seed: int) -> tuple[Side, Side]:
    """Both sides with equally many examples of each class, drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    kept: tuple[list[Tensor], list[Tensor]] = ([], [])
    for label in torch.cat([val[1], production[1]]).unique():
        rows = [(targets == label).nonzero().flatten() for _, targets in (val, production)]
        count = min(map(len, rows))
        for chosen, members in zip(kept, rows, strict=True):
            chosen.append(members[torch.randperm(len(members), generator=generator)[:count]])
    left, right = (torch.cat(rows) for rows in kept)
    return (val[0][left], val[1][left]), (production[0][right], production[1][right])


def _fell(before: Tensor, now: Tensor) -> bool:
    """Whether accuracy is lower, by more than chance and by enough to matter."""
    from scipy import stats

    table = [[int(part.sum()), int((~part).sum())] for part in (before, now)]
    p = stats.fisher_exact(table, alternative="greater").pvalue
    return bool(p < ALPHA) and (before.double().mean() - now.double().mean()).item() > LEAST_DROP


def _label_distance(a: Tensor, b: Tensor) -> float:
    names = torch.cat([a, b]).unique()
    shares = [torch.stack([(part == n).double().mean() for n in names]) for part in (a, b)]
    return (shares[0] - shares[1]).abs().sum().item() / 2


@dataclass(frozen=True, kw_only=True)
class ShiftedDigits:
    """Digits in three parts, the last one shifted; pixels are from 0 to 1."""

    kind: str
    train: Side
    val: Side
    production: Side


COMMON = (1, 8)
"""Digits that are frequent after the label shift."""
SCARCE = 12
"""Examples kept of each other digit: two digits with a tenth each become more than half."""
SWAPPED = (4, 9)
"""Digits that swap labels in the concept shift, as when an office changes a rule."""


def shifted_digits(kind: str, *, seed: int = 0) -> ShiftedDigits:
    """A third for training, a third for validation, a third as production, shifted in one way.

    Covariate: a thicker pen, every stroke a pixel wider. Label: 1 and 8 become frequent. Concept: 4
    and 9 swap labels. None: production is just another third.

    Args:
        kind: One of KINDS.
        seed: Of the split.

    Raises:
        ValueError: The kind is not one of KINDS.
    """
    from sklearn.datasets import load_digits

    if kind not in KINDS:
        raise ValueError(f"kind = {kind!r}: expected one of {', '.join(KINDS)}.")
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    targets = torch.tensor(digits.target)
    generator = torch.Generator().manual_seed(check_seed(seed))
    order = torch.randperm(len(targets), generator=generator)
    train, val, now = ((images[rows], targets[rows]) for rows in order.chunk(3))
    return ShiftedDigits(kind=kind, train=train, val=val, production=_shifted(kind, *now))


def _shifted(kind: str, images: Tensor, targets: Tensor) -> Side:
    if kind == "covariate":
        wider = torch.nn.functional.pad(images, (1, 0, 0, 0))[..., :-1]
        return torch.maximum(images, wider), targets
    if kind == "label":
        before = torch.stack([(targets[:i] == targets[i]).sum() for i in range(len(targets))])
        kept = torch.isin(targets, torch.tensor(COMMON)) | (before < SCARCE)
        return images[kept], targets[kept]
    if kind == "concept":
        one, other = SWAPPED
        renamed = targets.clone()
        renamed[targets == one], renamed[targets == other] = other, one
        return images, renamed
    return images, targets
