"""Relations on an epoch: most examples are drawn, and labels mean the same on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

import torch

from course.data.loading import length_of
from course.debug.probes.answers import _sample
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import ZERO

DRAWN = 2048
"""Draws of a sampler that are looked at."""
LEAST_DRAWN = 32
"""Draws below which few different ones may be chance."""
FEW = 0.25
"""Share of the draws that are different, below which a small part of the data comes again and
again: drawing with replacement leaves 63 % different, rare classes drawn as often as others less.
"""
MOST_CLASSES = 1000
"""Classes up to which a table of their names is made; larger numbers are counts or dates."""
LEAST_VAL = 24
"""Validation examples from which their neighbours say how labels are named."""
OWN, OTHER = 0.4, 0.75
"""Share of the validation examples whose nearest training example has their label: below the first
as they are named and above the second under other names, the names differ. Labels that say little
stay below the second whatever they are called; near training examples have to agree so often too,
which those of a parity do not."""


def most_drawn(session: Session) -> Iterator[Finding]:
    """An epoch draws more than a few of the examples."""
    loader = session.setup.train_loader
    batches = getattr(loader, "batch_sampler", None)
    size = length_of(getattr(loader, "dataset", None))
    if batches is None or not size:
        raise NotChecked("no DataLoader that draws from a data set of known length")
    with session.observe():
        drawn = list(islice(chain.from_iterable(batches), DRAWN))
    if len(drawn) < LEAST_DRAWN or any(type(index) is not int for index in drawn):
        raise NotChecked(f"fewer than {LEAST_DRAWN} draws by number")
    different = len(set(drawn))
    if different < FEW * min(len(drawn), size):
        yield Finding(
            "few-examples-drawn", "error",
            f"{len(drawn)} draws of an epoch bring {different} different examples of {size}: the "
            "sampler's weights are those of the classes and not of the examples, or its numbers "
            "end too early.",
            {"draws": len(drawn), "different": different, "examples": size},
            "weights = class_weights[labels]  # one weight for each example\n"
            "sampler = WeightedRandomSampler(weights, len(weights))",
        )  # fmt: skip


def same_names(session: Session) -> Iterator[Finding]:
    """A label names the same class in training and in validation."""
    (x, y), (new, labels) = (
        _sample(epoch.batches, LEAST_VAL) for epoch in (session.epoch, session.val_epoch)
    )
    if x.shape[1] != new.shape[1] or len(labels) < LEAST_VAL:
        raise NotChecked("inputs differ in shape, or too few examples validate")
    if int(min(y.min(), labels.min())) < 0 or int(y.max()) >= MOST_CLASSES:
        raise NotChecked("targets are not class indices")
    mean, std = x.float().mean(0), x.float().std(0).clamp_min(ZERO)
    x, new = (x.float() - mean) / std, (new.float() - mean) / std
    others = torch.cdist(x, x).fill_diagonal_(torch.inf).argmin(1)
    if float((y[others] == y).float().mean()) < OTHER:
        raise NotChecked("near training examples do not have the same label")
    nearest = torch.cdist(new, x).argmin(1)
    classes = 1 + int(max(y.max(), labels.max()))
    both = torch.zeros(classes, classes)
    both.index_put_((y[nearest].long(), labels.long()), torch.ones(len(labels)), accumulate=True)
    own = float(both.diagonal().sum()) / len(labels)
    if own >= OWN:
        return
    from scipy.optimize import linear_sum_assignment  # takes 0.3 s to load: only where asked for

    a, b = linear_sum_assignment(both.numpy(), maximize=True)
    other = float(both[a, b].sum()) / len(labels)
    if other > OTHER:
        names = {int(i): int(j) for i, j in zip(a, b, strict=True) if i != j and both[i, j]}
        yield Finding(
            "labels-renamed", "error",
            f"The nearest training example has the label of {own:.0%} of the validation examples, "
            f"and of {other:.0%} if labels are exchanged: the two sides number the classes "
            "differently.",
            {"agree": own, "agree_renamed": other, "train_to_val": names},
            "classes = sorted(set(train_names))  # made once, and used for both sides",
        )  # fmt: skip
