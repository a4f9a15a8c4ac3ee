"""Relation on training passes: a loader that shuffles gives each pass a different order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from torch.utils.data import RandomSampler

from course.debug.probes.report import Finding
from course.debug.probes.session import STEPS, NotChecked, Session
from course.debug.probes.tape import Tape
from course.debug.relations.data import _head

LEAST_BATCHES = 4
"""Different batches of an epoch from which two epochs in one order are no chance: of 4 batches the
second order is the first in 1 of 24, and each example would have to stay in its batch, too."""


def another_order(session: Session) -> Iterator[Finding]:
    """Two epochs of the author's train() do not take the same batches in the same order."""
    setup, number = session.setup, len(session.epoch.batches)
    if setup.train is None:
        raise NotChecked("no train(n_steps)")
    if not session.epoch.whole or not LEAST_BATCHES <= number <= STEPS:
        raise NotChecked(f"an epoch does not have {LEAST_BATCHES} to {STEPS} batches")
    if not _shuffles(setup.train_loader):
        raise NotChecked("the train_loader does not shuffle")
    passes = _Passes(session)
    with session.observe():
        try:
            with passes.running():
                setup.train(2 * number)
        except Exception as error:
            raise NotChecked(f"train() raises {type(error).__name__}") from error
    whole = [heads for heads in passes.heads.values() if len(heads) == number]
    if len(whole) < 2:
        raise NotChecked("train() does not go through the loader twice")
    if whole[0] == whole[1] and len(set(whole[0])) >= LEAST_BATCHES:
        yield Finding(
            "same-order", "warning",
            f"Two epochs of train() take the same {number} batches in the same order, although the "
            "loader shuffles: its generator is seeded again before each epoch, or set_epoch() is "
            "not called on its sampler.",
            {"batches": number, "epochs": len(whole)},
            "sampler.set_epoch(epoch)  # before each epoch, if the sampler has "
            "it\ntorch.manual_seed(seed)   # once, before the first epoch",
        )  # fmt: skip


def _shuffles(loader: Any) -> bool:
    sampler = getattr(loader, "sampler", None)
    told = callable(getattr(sampler, "set_epoch", None)) and getattr(sampler, "shuffle", True)
    return isinstance(sampler, RandomSampler) or bool(told)


class _Passes(Tape):
    """A tape that keeps what the train_loader gave, pass by pass."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.model, session.optimizers, session.setup.scheduler)
        self.loader = session.setup.train_loader
        self.heads: dict[int, list[bytes]] = defaultdict(list)
        self._own: set[int] = set()

    def _loader_iter(self, original: Any, loader: Any) -> Any:
        iterator = super()._loader_iter(original, loader)
        if loader is self.loader:
            self._own.add(self._epoch)
        return iterator

    def _fetch(self, original: Any, iterator: Any) -> Any:
        batch = super()._fetch(original, iterator)
        if (epoch := self._epoch_of.get(iterator, 0)) in self._own:
            self.heads[epoch].append(_head(batch))
        return batch
