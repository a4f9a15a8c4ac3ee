"""Relation on codes of words and categories: a number means the same on both sides."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from course.debug.probes.answers import LEARNED
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import NEARLY_ALL, ZERO
from course.debug.relations.joining import read_by_the_model
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

LEAST_ROWS, MOST_ROWS = 40, 800
"""Rows of either side from which a code says something, and those that are looked at."""
LEAST_CODES, MOST_CODES = 3, 2000
"""Different values of a column of codes, and of all words."""
MOST_CLASSES = 20
"""Different targets above which they are numbers."""
SURELY = 6.0
"""Standard errors from which codes tell the targets of the side on which they are more."""
NOTHING = 2.0
"""Standard errors up to which what training tells of validation is chance."""
LEFT = 0.5
"""Part of the lesser of both sides' own correlation, below which what is left across is little."""
RIDGE = 1.0
"""Rows of each code that count as the mean."""


def same_meaning(session: Session) -> Iterator[Finding]:
    """Codes that predict targets within each side also predict them across sides."""
    (x, y), (v, w) = (
        _codes(session, epoch.batches) for epoch in (session.epoch, session.val_epoch)
    )
    if min(len(x), len(v)) < LEAST_ROWS or x.shape[1:] != v.shape[1:]:
        raise NotChecked(f"no rows of codes, {LEAST_ROWS} of them on either side")
    x, y, v, w = x[:MOST_ROWS], y[:MOST_ROWS], v[:MOST_ROWS], w[:MOST_ROWS]
    targets, held = _targets(y, w)
    tried = False
    for name, a, b in _features(x, v):
        tried = True
        own, other = _alone(a, targets), _alone(b, held)
        if own * math.sqrt(len(a)) < SURELY or other * math.sqrt(len(b)) < LEARNED:
            continue
        across = _agree(_fitted(a, targets, b), held)
        if across * math.sqrt(len(b)) < NOTHING and across < LEFT * min(own, other):
            yield Finding(
                "covariate-shift", "error",
                f"{name} predict the targets within training (correlation {own:.2f}) and within "
                f"validation ({other:.2f}), but what is learned from them in training is of no use "
                f"in validation ({across:.2f}): words or categories were numbered separately on "
                "each side, so that the same number means different things.",
                {"within_training": own, "within_validation": other, "across": across,
                 "rows": len(v)},
                "codes = {name: n for n, name in enumerate(sorted(set(train_names)))}  # once\n"
                "val = [codes.get(name, UNKNOWN) for name in val_names]",
            )  # fmt: skip
            return
    if not tried:
        raise NotChecked("no columns of a few values, and no words, that both sides have")


def _codes(session: Session, batches: list) -> tuple[Tensor, Tensor]:
    """The first table [N, C] that the model reads, and one target each [N]."""
    leaves = list(tensors_in(program_of(session).batches[0]))
    read, rows = read_by_the_model(session), len(leaves[0]) if leaves and leaves[0].dim() else 0
    tables = [n for n, t in enumerate(leaves) if n in read and t.dim() == 2 and len(t) == rows]
    tables.sort(key=lambda n: leaves[n].is_floating_point())
    targets = [n for n, t in enumerate(leaves) if n not in read and t.numel() == rows == len(t)]
    if not tables or not targets:
        raise NotChecked("no table that the model reads with one target per row")
    parts = [list(tensors_in(batch)) for batch in batches]
    if any(len(p) != len(leaves) for p in parts):
        raise NotChecked("batches have different parts")
    if len({p[tables[0]].shape[1:] for p in parts}) > 1:
        raise NotChecked("rows are of different lengths")
    x, y = (torch.cat([p[n].detach().cpu().double() for p in parts])
            for n in (tables[0], targets[0]))  # fmt: skip
    if len(x) != y.numel() or not bool(torch.isfinite(x).all() and torch.isfinite(y).all()):
        raise NotChecked("rows or targets are not finite")
    return x, y.flatten()


def _targets(y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Classes one-hot, numbers as they are; with the means of each side taken off."""
    values = torch.cat([y, w]).unique()
    if len(values) <= MOST_CLASSES:
        y, w = ((t[:, None] == values).double() for t in (y, w))
    else:
        y, w = y[:, None], w[:, None]
    return y - y.mean(0), w - w.mean(0)


def _features(x: Tensor, v: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Each column of codes one-hot, then how often each word is in a row of words."""
    for column in range(x.shape[1]):
        found = _one_hot(x[:, [column]], v[:, [column]])
        if found is not None:
            yield f"The values of column {column}", *found
    if x.shape[1] > 1 and torch.equal(x, x.round()):
        found = _one_hot(x, v)
        if found is not None:
            yield "Words", *found


def _one_hot(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor] | None:
    """Counts of each value in each row; None where values are many, or other ones in validation."""
    values = x.unique()
    most = min(MOST_CODES, x.numel() // 4)
    if not LEAST_CODES <= len(values) <= most or float(torch.isin(v, values).double().mean()) < (
            NEARLY_ALL):  # fmt: skip
        return None
    place = torch.searchsorted(values, torch.cat([x, v])).clamp_max(len(values) - 1)
    counts = torch.zeros(len(place), len(values), dtype=torch.double)
    counts.scatter_add_(1, place, torch.ones_like(place, dtype=torch.double))
    return counts[: len(x)], counts[len(x) :]


def _fitted(a: Tensor, y: Tensor, b: Tensor) -> Tensor:
    """What a ridge on rows of counts says of other rows."""
    mean = a.mean(0)
    a, b = a - mean, b - mean
    return b @ torch.linalg.solve(a.T @ a + RIDGE * torch.eye(a.shape[1]).double(), a.T @ y)


def _alone(a: Tensor, y: Tensor) -> float:
    """How well the counts of one side tell its targets, each without the row itself."""
    a = a - a.mean(0)
    inner = torch.linalg.inv(a.T @ a + RIDGE * torch.eye(a.shape[1]).double())
    leverage = ((a @ inner) * a).sum(1, keepdim=True) + 1 / len(a)
    fitted = a @ (inner @ (a.T @ y))
    return _agree((fitted - leverage * y) / (1 - leverage).clamp_min(ZERO), y)


def _agree(said: Tensor, y: Tensor) -> float:
    """Correlation of all numbers said with those that are."""
    said, y = said - said.mean(0), y - y.mean(0)
    return float((said * y).sum() / (said.norm() * y.norm()).clamp_min(ZERO))
