"""Relations on an epoch: most examples are drawn, and labels mean the same on both sides."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import default_collate

from course.data.loading import length_of
from course.debug.probes.answers import _sample
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import ZERO
from course.state.nested import tensors_in

DRAWN = 2048
"""Draws of a sampler that are looked at."""
LEAST_DRAWN = 32
"""Draws below which few different ones may be chance."""
FEW = 0.25
"""Share of the draws that are different, below which a small part of the data comes again and
again: drawing with replacement leaves 63 % different, rare classes drawn as often as others less.
"""
LEAST_SIZE = 4
"""Rows of a batch from which a length that counts batches is told from one that counts rows."""
MOST_CLASSES = 1000
"""Classes up to which a table of their names is made; larger numbers are counts or dates."""
LEAST_VAL = 24
"""Validation examples from which their neighbours say how labels are named."""
OWN, OTHER = 0.4, 0.75
"""Share of the validation examples whose nearest training example has their label: below the first
as they are named and above the second under other names, the names differ. Labels that say little
stay below the second whatever they are called; near training examples have to agree so often too,
which those of a parity do not."""
SURELY = 5.0
"""Standard deviations of a share of the validation examples by which classes that overlap, so that
neither end is met, agree less as they are named than training examples do: there the best of all
other names is sought, which finds two or three by chance."""
ASIDE = 3.0
"""Standard deviations by which they may agree less under other names than training examples do:
where validation is of another kind, no other names come so near."""
NEAREST = {1: "The nearest training example has", 9: "Most of the 9 nearest training examples have"}
"""Near training examples that are asked together: where classes overlap, one alone may be of the
class beyond the border."""
LEAST_NEAR = 8
"""Validation examples that are near to those of a class, from which their most frequent label says
how it is called."""


def most_drawn(session: Session) -> Iterator[Finding]:
    """An epoch draws more than a few different examples."""
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
            f"{len(drawn)} draws of an epoch give only {different} different examples of {size}: "
            "the sampler's weights are per class and not per example, or its indices end too "
            "early.",
            {"draws": len(drawn), "different": different, "examples": size},
            "weights = class_weights[labels]  # one weight for each example\n"
            "sampler = WeightedRandomSampler(weights, len(weights))",
        )  # fmt: skip


def counted_in_rows(session: Session) -> Iterator[Finding]:
    """The length of a data set or a sampler counts rows, not batches.

    An index past that length is read: it gives a row like the others, which is never drawn.
    """
    loader = session.setup.train_loader
    data, size = getattr(loader, "dataset", None), _rows_of_a_batch(loader)
    length = length_of(data)
    if not length or not hasattr(data, "__getitem__") or size < LEAST_SIZE:
        raise NotChecked("no DataLoader of batches from a data set of known length")
    own = getattr(loader.batch_sampler, "sampler", None)
    behind = [n for n in _sizes(data) if length in (n // size, -(-n // size))]
    if behind and _goes_on(session, data, length, max(behind)):
        number, what = max(behind), "The data set's __len__()"
    elif length_of(own) in (length // size, -(-length // size)) and _always_first(session, own):
        number, what = length, "The sampler's length"
    else:
        return
    drawn = number // size
    yield Finding(
        "few-examples-drawn", "error",
        f"{what} is {drawn}, the number of batches in {number} rows and not the number of rows: "
        f"the rows from {drawn} on are never drawn.",
        {"drawn": drawn, "rows": number, "batch_size": size},
        "def __len__(self):\n    return len(self.rows)  # the DataLoader counts the batches",
    )  # fmt: skip


def _rows_of_a_batch(loader: Any) -> int:
    size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if type(size) is int else 0


def _sizes(data: Any) -> set[int]:
    """Lengths of what a data set holds."""
    held = vars(data).values() if hasattr(data, "__dict__") else ()
    return {n for value in held for n in [length_of(value)] if n}


def _goes_on(session: Session, data: Any, length: int, number: int) -> bool:
    """Behind its length a data set has rows of the same shapes, which are not the first again."""
    with session.observe():
        try:
            first, *others = (list(tensors_in(default_collate([data[i]])))
                              for i in (0, length, (length + number) // 2, number - 1))  # fmt: skip
        except Exception:
            return False
    return bool(first) and all(
        [t.shape for t in other] == [t.shape for t in first]
        and not all(map(torch.equal, other, first)) for other in others
    )  # fmt: skip


def _always_first(session: Session, sampler: Any) -> bool:
    """A sampler gives the first numbers and no other, in any order, each time."""
    with session.observe():
        try:
            twice = [sorted(islice(iter(sampler), DRAWN)) for _ in range(2)]
        except Exception:
            return False
    return len(twice[0]) >= 2 and all(drawn == [*range(len(drawn))] for drawn in twice)


def same_names(session: Session) -> Iterator[Finding]:
    """A label names the same class in training and in validation."""
    (x, y), (new, labels) = (
        _sample(epoch.batches, LEAST_VAL) for epoch in (session.epoch, session.val_epoch)
    )
    if x.shape[1] != new.shape[1] or len(labels) < LEAST_VAL:
        raise NotChecked("inputs differ in shape, or there are too few validation examples")
    if int(min(y.min(), labels.min())) < 0 or int(max(y.max(), labels.max())) >= MOST_CLASSES:
        raise NotChecked("targets are not class indices")
    mean, std = x.float().mean(0), x.float().std(0).clamp_min(ZERO)
    x, new = (x.float() - mean) / std, (new.float() - mean) / std
    classes = 1 + int(max(y.max(), labels.max()))
    for near in NEAREST:
        told = float((_named_by(x, y, x, near, classes, itself=False) == y).float().mean())
        both = torch.zeros(classes, classes)
        both.index_put_((_named_by(x, y, new, near, classes), labels),
                        torch.ones(len(labels)), accumulate=True)  # fmt: skip
        own = float(both.diagonal().sum()) / len(labels)
        spread = (max(told * (1 - told), 1 / len(labels)) / len(labels)) ** 0.5
        if near == 1 and (told < OTHER or own >= OWN):
            continue
        if near > 1 and told - own < SURELY * spread:
            continue
        from scipy.optimize import linear_sum_assignment  # takes 0.3 s to load: only if asked for

        a, b = linear_sum_assignment(both.numpy(), maximize=True)
        other = float(both[a, b].sum()) / len(labels)
        surely = other > OTHER if near == 1 else _are_turned(both, torch.as_tensor(b))
        if surely and told - other < ASIDE * spread:
            names = {int(i): int(j) for i, j in zip(a, b, strict=True) if i != j and both[i, j]}
            yield Finding(
                "labels-renamed", "error",
                f"{NEAREST[near]} the same label for {own:.0%} of the validation examples, but for "
                f"{other:.0%} if labels are permuted, as for {told:.0%} of the training examples: "
                "the two sides number the classes differently.",
                {"agree": own, "agree_renamed": other, "agree_in_training": told,
                 "train_to_val": names},
                "classes = sorted(set(train_names))  # made once, and used for both sides",
            )  # fmt: skip
            return


def _named_by(
    x: Tensor, y: Tensor, new: Tensor, near: int, classes: int, *, itself: bool = True
) -> Tensor:
    """The most frequent label of the nearest training examples, of all others for one of them."""
    away = torch.cdist(new, x)
    away = away if itself else away.fill_diagonal_(torch.inf)
    nearest = away.topk(min(near, len(x) - 1), largest=False).indices
    return F.one_hot(y[nearest], classes).sum(1).argmax(1)


def _are_turned(both: Tensor, names: Tensor) -> bool:
    """Of three or more classes some are surely called otherwise: near training examples of each of
    these are, for the most part, of one other class.

    Args:
        both: Validation examples by their nearest training example's label and by their own.
        names: The label in validation that is put to each of training.
    """
    rows = both.sum(1)
    moved = (names != torch.arange(len(names))) & ((rows > 0) | (both.sum(0)[names] > 0))
    there, here = both[torch.arange(len(names)), names][moved], both.diagonal()[moved]
    sure = float((there - here).sum()) > SURELY * math.sqrt(float((there + here).sum()))
    most = bool((rows[moved] >= LEAST_NEAR).all() and (2 * there > rows[moved]).all())
    return int((rows > 0).sum()) > 2 and sure and most
