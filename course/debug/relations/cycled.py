"""Relation on the second epoch of a loop: it reads the data again, as the loader gives it then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.report import SPENT, Finding
from course.debug.probes.session import NotChecked, Session
from course.state.nested import tensors_in

MOST_BATCHES = 64
"""Batches of an epoch up to which it is run through."""
MOST_NUMBERS = 8_000_000
"""Numbers of an epoch that are kept to compare with, 32 MB."""
AGAIN = 3
"""Batches of the second epoch that are compared, or all of them where they are fewer."""
NEW = 0.1
"""Share of the rows of a second pass that the first one did not have, from which they are drawn:
where the last rows of an order are dropped, other ones may be in it.
"""
BUSY = 0.7
"""Share of the budget after which an experiment of so many steps is not begun."""


def read_again(session: Session) -> Iterator[Finding]:
    """If items differ from epoch to epoch, so does what the model gets in train().

    itertools.cycle(loader), or a list of the batches, goes on with those of the first epoch.
    """
    if session.setup.train is None:
        raise NotChecked("no train(n_steps)")
    first, second = session.two_passes
    number = len(first)
    if number < 2 or number > MOST_BATCHES or len(second) != number:
        raise NotChecked("an epoch is too long, or a single batch")
    if sum(t.numel() for b in first for t in tensors_in(b)) > MOST_NUMBERS:
        raise NotChecked("an epoch is too large")
    one, other = (_parts(batches) for batches in (first, second))
    moving = [n for n, (a, b) in enumerate(zip(one, other, strict=False))
              if len(b) and a.shape[1:] == b.shape[1:] and _new_rows(a, b) > NEW]  # fmt: skip
    if not moving:
        raise NotChecked("the items are the same in a second pass over the loader")
    if session.is_spent(BUSY):
        raise NotChecked(SPENT)
    again = min(AGAIN, number)
    calls = _given(session, number + again)
    each, rest = divmod(len(calls), number + again)
    if rest or not each:
        raise NotChecked("train() does not call the model equally often in each step")
    size = each * again
    if _any_drawn(calls) and all(map(_same, calls[:size], calls[-size:])):
        yield Finding(
            "same-draws", "warning",
            f"A second pass over the train_loader gives different numbers for its items, but in "
            f"train() the model gets exactly the same in batches {number + 1} to {number + again} "
            f"as in batches 1 to {again}: the batches of the first epoch are kept, and neither "
            "augmentation nor order is drawn again.",
            {"batches": number, "compared": again},
            "def endless(loader):  # not itertools.cycle, which keeps what it has read\n"
            "    while True:\n        yield from loader",
        )  # fmt: skip


def _parts(batches: list[Any]) -> list[Tensor]:
    """Each part of the batches, of all rows of an epoch; none where they do not fit together."""
    leaves = [list(tensors_in(b)) for b in batches]
    if len({len(part) for part in leaves}) != 1:
        raise NotChecked("batches have different parts")
    columns = zip(*leaves, strict=True)
    return [torch.cat(c) if c[0].dim() and len({t.shape[1:] for t in c}) == 1 else torch.zeros(0)
            for c in columns]  # fmt: skip


def _new_rows(one: Tensor, other: Tensor) -> float:
    """Share of the rows of a table that are none of another's."""
    known, rows = ([row.tobytes() for row in t.contiguous().numpy(force=True)]
                   for t in (one, other))  # fmt: skip
    return 1 - sum(map(set(known).__contains__, rows)) / len(rows)


def _given(session: Session, steps: int) -> list[list[Tensor]]:
    """What the model gets in each of its calls that a gradient may flow through."""
    calls: list[list[Tensor]] = []

    def listen(_: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        if torch.is_grad_enabled():
            calls.append([t.detach().clone() for t in tensors_in([args, kwargs])])

    with session.observe():
        session.model.register_forward_pre_hook(listen, with_kwargs=True)
        try:
            session.setup.train(steps)
        except Exception as error:
            raise NotChecked(f"train() raises {type(error).__name__} then") from error
    return calls


def _any_drawn(calls: list[list[Tensor]]) -> bool:
    """Not all calls get the same numbers, and they get some."""
    return any(bool(c) for c in calls) and not all(_same(calls[0], c) for c in calls[1:])


def _same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(
        a.shape == b.shape and torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )
