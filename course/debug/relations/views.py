"""Relation on two views of an example: each is drawn separately."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import changes_by_mode
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

ASKED = 8
"""Items that are asked for twice: so many are drawn alike by no chance."""
PAIRS = 4
"""Pairs of batches that are put together of the same items: so many are drawn alike by no chance.
"""
LEAST_NUMBERS = 4
"""Numbers of a part below which it is a label or a flag, not a view."""


def drawn_apart(session: Session) -> Iterator[Finding]:
    """Two random parts of a batch that the model gets in turn are two separate draws.

    A target that is the augmented input itself never reaches the model; and a model with dropout
    makes two views of one.
    """
    twice = _drawn_twice(session)
    pairs = [(a, b) for a in range(len(twice[0][0])) for b in range(a)] if twice else []
    alike = [
        (a, b) for a, b in pairs
        if all(_same(item[a], item[b]) for both in twice for item in both)
        and not any(_same(one[a], other[a]) for one, other in twice)
    ]  # fmt: skip
    if not alike:
        raise NotChecked("no two parts of an item are random and the same")
    if any(changes_by_mode(part) for part in session.model.modules()):
        raise NotChecked("the model itself is random")
    if _reaches_twice(session):
        yield Finding(
            "compared-with-itself", "error",
            "Two parts of each item or batch are drawn at random but exactly the same "
            f"({2 * len(twice)} times), and the model gets both: it is one view twice, so the two "
            "outputs agree without learning.",
            {"drawn": 2 * len(twice), "parts": len(twice[0][0])},
            "views = [augment(x) for _ in range(2)]  # not [augment(x)] * 2",
        )  # fmt: skip


def _drawn_twice(session: Session) -> list[list[list[Tensor]]]:
    """The parts of some items, each read twice, or of a batch of them that is put together twice,
    if only that makes the parts.

    Raises:
        NotChecked: The loader cannot be asked for one item, or for a batch of items.
    """
    loader = session.setup.train_loader
    data = getattr(loader, "dataset", None)
    if data is None or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise NotChecked("the loader has no data set that can be indexed")
    asked = range(min(ASKED, len(data)))
    with session.observe():
        twice = [[_views(data[i]) for _ in range(2)] for i in asked]
    put_together = getattr(loader, "collate_fn", default_collate)
    if not twice or len(twice[0][0]) > 1 or put_together in (None, default_collate):
        return twice
    with session.observe():
        try:
            batches = [_views(put_together([data[i] for i in asked])) for _ in range(2 * PAIRS)]
        except Exception as error:
            raise NotChecked(f"the collate function raises {type(error).__name__}") from error
    return [[one, other] for one, other in zip(batches[::2], batches[1::2], strict=True)]


def _views(item: Any) -> list[Tensor]:
    return [t.detach().clone() for t in tensors_in(item)
            if t.is_floating_point() and t.numel() >= LEAST_NUMBERS]  # fmt: skip


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(torch.equal(one, other))


def _reaches_twice(session: Session) -> bool:
    """The model gets the same rows twice in a step: in two calls, or in two halves of one."""
    given = [t for call in program_of(session).first().calls for t in call.tensors
             if t.is_floating_point()]  # fmt: skip
    halves = [t.chunk(2) for t in given if t.dim() and len(t) % 2 == 0]
    columns = [t.unbind(1) for t in given if t.dim() > 2 and t.shape[1] == 2]
    inside = any(_same(*two) for two in [*halves, *columns])
    apart = any(_same(given[a], given[b]) for a in range(len(given)) for b in range(a))
    return inside or apart
