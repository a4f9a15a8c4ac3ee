"""The epoch's batches, entered where the run stands.

Loaders of `course.data.loading` go to any (epoch, batch) at once. Any other loader is played again
from the state in which its epoch began, up to the place, and what it draws on the way is put back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset, default_collate

from course.data.loading import Augmented
from course.engine import unlabelled
from course.engine.progress import Progress
from course.engine.seeding import rng_state, set_rng_state
from course.engine.window import Batch

MOST_PARTS = 32
"""A data set that answers to every name must not be looked into for ever."""


class EpochBatches:
    """Gives each epoch's batches of one loader, and remembers what a resumed run needs."""

    def __init__(self, loader: Iterable[Batch], device: torch.device) -> None:
        self.loader, self.device = loader, device
        self.parts = _parts(loader)
        self.seekable = seekable_part(loader)
        self.start: dict[str, Any] | None = None
        """How the generators stood when this epoch began; None for a loader that can be entered."""

    def enter(self, progress: Progress) -> Iterator[Batch]:
        """The rest of the epoch under way."""
        epoch, done = progress.epoch - 1, progress.micro_batch
        if self.seekable is not None:
            self.seekable.set_position(epoch, done)
            if not done:
                return unlabelled.batches(self.loader)
            here = rng_state(self.device)
            batches = unlabelled.batches(self.loader)
            set_rng_state(here, self.device)  # where starting the workers drew from them
            return batches
        for part in (self.loader, *self.parts):
            if hasattr(part, "set_epoch"):  # DistributedSampler: else the same order each epoch
                part.set_epoch(epoch)
        self._start_workers()
        return self._play_again(done) if done else self._begin()

    def _start_workers(self) -> None:
        """Persistent workers are started once a process, and that draws a number: not here."""
        loader = self.loader
        if getattr(loader, "persistent_workers", False) and loader._iterator is None:
            here, own = rng_state(self.device), self._generator_states()
            iter(loader)
            set_rng_state(here, self.device)
            self._set_generators(own)

    def _begin(self) -> Iterator[Batch]:
        self.start = {"rng": rng_state(self.device), "generators": self._generator_states()}
        return unlabelled.batches(self.loader)

    def _play_again(self, done: int) -> Iterator[Batch]:
        here = rng_state(self.device)
        set_rng_state(self.start["rng"], self.device)
        self._set_generators(self.start["generators"])
        batches = unlabelled.batches(self.loader)
        for _ in range(done):
            next(batches)
        set_rng_state(here, self.device)
        return batches

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to enter this epoch again."""
        return {"start": self.start, "generators": self._generator_states()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Stand where `state_dict` was taken."""
        self.start = state["start"]
        self._set_generators(state["generators"])

    def _generators(self) -> list[torch.Generator]:
        if self.seekable is not None:
            return []  # (seed, epoch) decides the order; theirs only numbers the workers
        found = [getattr(part, "generator", None) for part in (self.loader, *self.parts)]
        return list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())

    def _generator_states(self) -> list[torch.Tensor]:
        return [generator.get_state() for generator in self._generators()]

    def _set_generators(self, states: list[torch.Tensor]) -> None:
        for generator, state in zip(self._generators(), states, strict=True):
            generator.set_state(state)


def seekable_part(loader: Any) -> Any:
    """The loader, or the sampler in it, that can be entered at any batch; None where none can."""
    for part in (loader, *_parts(loader)):
        if hasattr(part, "set_position"):
            return part
    return None


def all_targets(loader: Any) -> Tensor | None:
    """Every target of a loader over tensors; None where they come one by one or are collated."""
    if isinstance(targets := getattr(loader, "targets", None), Tensor):
        return targets
    dataset = getattr(loader, "dataset", None)
    if isinstance(dataset, Augmented):
        dataset = dataset.dataset
    plain = getattr(loader, "collate_fn", None) is default_collate
    if plain and isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
        return dataset.tensors[1]
    return None


def is_sharded(loader: Any) -> bool:
    """Whether this process gets only its share of the loader's examples."""
    parts = (loader, *_parts(loader))
    return any(getattr(p, "num_ranks", 1) > 1 or getattr(p, "num_replicas", 1) > 1 for p in parts)


def _parts(loader: Any) -> list[Any]:
    """Samplers and data sets that a loader is made of, nested ones too, each once."""
    found: list[Any] = []
    waiting = [loader]
    while waiting and len(found) < MOST_PARTS:
        whole = waiting.pop()
        for name in ("batch_sampler", "sampler", "dataset"):
            part = getattr(whole, name, None)
            if part is not None and all(part is not other for other in found):
                found.append(part)
                waiting.append(part)
    return found
