"""Relation on the order of examples: no other order of the labels fits the inputs far better.

Names sorted as text put number 10 before number 2. If the labels are in the order of the numbers,
nearly all inputs have another input's label, and nothing can be learned.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Subset

from course.data.loading import length_of
from course.debug.probes.answers import CHANCE, LEAST_PER_CLASS, SURELY
from course.debug.probes.relation import Guesses
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, pair
from course.debug.probes.thresholds import TINY

LEAST, MOST = 64, 4096
"""Examples of a data set between which their order is looked at; all are read."""
RELATED = 400
"""Examples that are held against their labels."""
MOST_CLASSES, LEVELS = 20, 4
"""Different labels above which they are numbers, and the levels that numbers are sorted into."""
AGAIN = 0.99
"""Correlation of an example's column with one of the next example, or with the label before, from
which examples are windows of one series: what is next to each other belongs together there."""
BY_ONE = {"each the one before": 1, "each the next one": -1}
"""Orders that are no fault where examples are windows of one series."""
MAYBE = SURELY / 2
"""Deviations at a glance, against the luck of the given order, below which an order is not tried
in earnest: the spread of 60 permutations is off by a tenth, not by half."""
LEAST_SIDE, PATTERNS = 6, 24
"""Side of a picture from which patterns of 3 x 3 are looked for, and how many."""
FIRST = (0, 1)
"""Number of the first file."""
BEHIND = ("", "_")
"""What follows the number in a name, if it matters: a point sorts as the end does."""


def another_order(session: Session) -> Iterator[Finding]:
    """Labels do not fit their inputs only in another order, e.g. that of names sorted as text."""
    x, y = _read(session)
    rows = torch.linspace(0, len(x) - 1, min(RELATED, len(x))).round().long()
    guesses = [Guesses(view) for view in _views(x[rows])]
    x = x.flatten(1)
    labels = _levels(y)
    if int(torch.bincount(labels).min()) < LEAST_PER_CLASS:
        raise NotChecked("too few examples per class")
    given = _told(guesses, labels[rows])
    if given > CHANCE:
        return
    series = cache(lambda: _is_series(x, y))
    for name, order in _orders(len(x)):
        moved = labels[order][rows]
        if max(guess.at_a_glance(moved) for guess in guesses) < MAYBE:
            continue
        other = _told(guesses, moved)
        if other > SURELY and not (name in BY_ONE and series()):
            yield Finding(
                "labels-shuffled", "error",
                f"Labels have nothing to do with their inputs, but in another order ({name}) they "
                "do: inputs and labels are listed in different orders.",
                {"examples": len(x), "order": name, "deviations": given,
                 "deviations_in_that_order": other},
                "files = sorted(folder.iterdir(), key=lambda file: int(file.stem.split('_')[-1]))",
            )  # fmt: skip
            return


def _read(session: Session) -> tuple[Tensor, Tensor]:
    """All inputs [N, ...] and labels [N] of the data set that training draws from, as they lie."""
    loader = session.setup.train_loader
    data: Any = getattr(loader, "dataset", None)
    while isinstance(data, Subset):
        data = data.dataset
    number, collate = length_of(data), getattr(loader, "collate_fn", None)
    if not number or collate is None or not LEAST <= number <= MOST:
        raise NotChecked(f"no DataLoader of a data set of {LEAST} to {MOST} examples")
    pair(session.epoch.batches[0] if session.epoch.batches else None)
    with session.observe():
        try:
            x, y = pair(collate([data[i] for i in range(number)]))
        except NotChecked:
            raise
        except Exception as error:
            raise NotChecked(f"dataset[i] raises {type(error).__name__}") from error
    if not x.is_floating_point() or x[0].numel() < 2 or y.numel() != len(x):
        raise NotChecked("inputs are not rows of numbers with one label each")
    x, y = x.detach().cpu().float(), y.detach().cpu().flatten().double()
    if not bool(torch.isfinite(x).all() and torch.isfinite(y).all()) or y.unique().numel() < 2:
        raise NotChecked("inputs or labels are not finite, or there is one label")
    return x, y


def _views(x: Tensor) -> list[Tensor]:
    """Inputs as rows of numbers, and pictures also as how often and how strongly small patterns
    drawn at random are in them, wherever they are."""
    views = [x.flatten(1)]
    if x.dim() == 4 and min(x.shape[2:]) >= LEAST_SIDE and x.shape[1] < x.shape[2]:
        own = torch.Generator().manual_seed(0)
        filters = torch.randn(PATTERNS, x.shape[1], 3, 3, generator=own)
        found = nn.functional.conv2d((x - x.mean()) / x.std().clamp_min(TINY), filters).relu()
        views.append(torch.cat([found.mean((2, 3)), found.amax((2, 3))], 1))
    return views


def _told(guesses: list[Guesses], labels: Tensor) -> float:
    return max(guess.relate(labels).strongest for guess in guesses)


def _levels(y: Tensor) -> Tensor:
    """Classes as they are, numbers by the quarter they lie in."""
    values, place = y.unique(return_inverse=True)
    if len(values) <= MOST_CLASSES:
        return place
    return y.argsort().argsort() * LEVELS // len(y)


def _orders(number: int) -> Iterator[tuple[str, Tensor]]:
    """Names of other orders, and the place of the label that each example then has."""
    for first in FIRST:
        for behind in BEHIND:
            names = [f"{i + first}{behind}" for i in range(number)]
            order = torch.tensor(sorted(range(number), key=names.__getitem__))
            yield "inputs as text, labels by number", order
            yield "labels as text, inputs by number", order.argsort()
    yield "the last first", torch.arange(number - 1, -1, -1)
    for name, by in BY_ONE.items():
        yield name, torch.arange(number).roll(by)


def _is_series(x: Tensor, y: Tensor) -> bool:
    """Examples hold what their neighbours hold, or their neighbours' labels."""
    now = _standard(x)
    after = torch.cat([now.roll(-1, 0), now.roll(1, 0)], 1)
    labels = _standard(y[:, None].float())
    near = torch.cat([labels.roll(1, 0), labels.roll(-1, 0)], 1)
    both = now.T @ torch.cat([after, near], 1) / len(x)
    return bool(both.abs().max() > AGAIN)


def _standard(x: Tensor) -> Tensor:
    x = x - x.mean(0)
    return x / x.square().mean(0).sqrt().clamp_min(TINY)
