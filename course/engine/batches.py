"""The epoch's batches, starting from where the run is.

Loaders of `course.data.loading` can jump to any (epoch, batch): the random numbers that a worker
draws for a batch depend only on its position. Any other loader is replayed: its epoch starts again
from the saved random state, and the batches already done are thrown away. A resumable loader is
replayed too if its workers draw from generators that we cannot seed per batch.

Workers that outlive an epoch (`persistent_workers`) keep such generators out of reach. The run says
so before its first update.

Only this module knows what a `train_loader` is made of.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    default_collate,
)

from course.data.loading import Augmented, InMemoryLoader, draws_nothing_unkeyed, length_of
from course.data.sampling import ResumableBatchSampler
from course.data.workers import GuardedLoader
from course.engine import unprofiled
from course.engine.errors import CheckpointError
from course.engine.own_state import OwnState
from course.engine.placement import same_device
from course.engine.progress import Progress
from course.engine.window import Batch
from course.state import own_generators, rng_state, set_rng_state
from course.state.generators import Own, State, put_back, state_of

MOST_PARTS = 32
"""A data set that answers to every name must not be looked into for ever."""


WHOLE = (SequentialSampler, RandomSampler, DistributedSampler, ResumableBatchSampler)
"""Samplers that draw from all of a data set."""


class EpochBatches:
    """Yields each epoch's batches from one loader, and remembers what a resumed run needs."""

    def __init__(self, loader: Iterable[Batch], device: torch.device) -> None:
        # A trainer is part of a cycle. Freed with it, a loader's queues would be closed before its
        # workers were told to end, and each would be waited for, for 5 seconds.
        self._loader = weakref.ref(loader) if isinstance(loader, DataLoader) else lambda: loader
        self.device = device
        self.parts = _parts(loader)
        self.seekable = seekable_part(loader)
        self.exact = self.seekable is not None and enters_exactly(loader)
        """Entered in the middle, the loader gives the batches that it would have given there."""
        self.own = OwnState(lambda: [*self.parts, self.loader])
        self._said = False
        self.start: dict[str, Any] | None = None
        """How the generators stood when this epoch began; None for a loader that can be entered."""

    @property
    def loader(self) -> Iterable[Batch]:
        """What was given; a DataLoader as long as somebody else keeps it, as `fit` does."""
        return self._loader()

    @property
    def length(self) -> int | None:
        """Batches per epoch according to the loader; None if it does not know."""
        return length_of(self.loader)

    @property
    def only_cuts(self) -> bool:
        """Whether a batch is cut from tensors on the device, and no code of others runs for it."""
        loader = self.loader
        return type(loader) is InMemoryLoader and same_device(loader.inputs.device, self.device)

    @property
    def all_targets(self) -> Tensor | None:
        """Every target of a loader over tensors; None where they come one by one."""
        return all_targets(self.loader)

    def enter(self, progress: Progress) -> Iterator[Batch]:
        """The rest of the current epoch."""
        epoch, done = progress.epoch - 1, progress.micro_batch
        if self.exact:
            self.seekable.set_position(epoch, done)
            if not done:
                return unprofiled.batches(self.loader)
            here = rng_state(self.device)
            batches = unprofiled.batches(self.loader)
            set_rng_state(here, self.device)  # where starting the workers drew from them
            return batches
        for part in (self.loader, *self.parts):
            if hasattr(part, "set_epoch"):  # DistributedSampler: else the same order each epoch
                part.set_epoch(epoch)
        self._start_workers()
        if self.seekable is not None:  # after it: workers read ahead as soon as they are there
            self.seekable.set_position(epoch)
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
        self.start = {
            "rng": rng_state(self.device),
            "generators": self._generator_states(),
            "counters": self.own.changed(),
        }
        self.own.begin_epoch()
        return unprofiled.batches(self.loader)

    def _play_again(self, done: int) -> Iterator[Batch]:
        here = rng_state(self.device)
        set_rng_state(self.start["rng"], self.device)
        self._set_generators(self.start["generators"])
        self.own.put_back(self.start.get("counters", {}))
        self.own.begin_epoch()
        batches = unprofiled.batches(self.loader)
        for _ in range(done):
            next(batches)
        set_rng_state(here, self.device)
        return batches

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to enter this epoch again."""
        return {
            "start": self.start,
            "generators": self._generator_states(),
            "counters": self.own.changed(),
            "lost": self._lost(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Return to where `state_dict` was taken."""
        self.start = state["start"]
        self._set_generators(state["generators"])
        self.own.put_back(state.get("counters", {}))

    def _lost(self) -> list[str]:
        """What a resumed run would not have, said when the first checkpoint lacks it."""
        lost = self.own.lost()
        if lost and not self._said:
            self._said = True
            warnings.warn(f"a checkpoint cannot hold {_named(lost)}", stacklevel=2)
        return lost

    def _generators(self) -> list[Own]:
        """A resumable loader's own generator only seeds its workers, so it need not be saved."""
        numbering = [getattr(self.loader, "generator", None)] if self.exact else []
        return own_generators(self.loader, without=numbering)

    def _generator_states(self) -> list[State]:
        return [state_of(generator) for generator in self._generators()]

    def _set_generators(self, states: list[State]) -> None:
        for generator, state in zip(self._generators(), states, strict=True):
            put_back(generator, state)

    def check(self, state: dict[str, Any], *, accepted: bool = False) -> None:
        """Raise if `load_state_dict` would not fit; changes nothing.

        Args:
            accepted: The run may go on with other batches than it would have had.
        """
        if (lost := state.get("lost")) and not accepted:
            raise CheckpointError(
                f"the checkpoint does not hold {_named(lost)} To continue with different batches, "
                "use on_change='accept'."
            )
        here, there = len(self._generators()), len(state["generators"])
        if here != there:
            raise CheckpointError(
                f"the loader has {here} generators, but it had {there} when the checkpoint was "
                "written, so its random numbers would not be the same. Build it as it was built "
                "for that run."
            )


class ValidationBatches(EpochBatches):
    """What a `val_loader` remembers from one validation to the next, e.g. its own generator."""

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs for the same next validation."""
        return {**super().state_dict(), "epoch": getattr(self.seekable, "epoch", None)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Return to where `state_dict` was taken."""
        super().load_state_dict(state)
        if state["epoch"] is not None:
            self.seekable.set_position(state["epoch"])


def _named(lost: list[str]) -> str:
    return (
        f"{', '.join(lost)}: it continues from epoch to epoch, so a resumed run would get "
        "different batches. Let the order depend on the epoch number, as passed to "
        "set_epoch(epoch), or on plain values and lists."
    )


def enters_exactly(loader: Any) -> bool:
    """Whether a loader that can be entered anywhere then yields the batches it would have yielded.

    In this process all generators are in the checkpoint. In workers only keyed draws are the same.
    """
    if not getattr(loader, "num_workers", 0):
        return True
    return draws_nothing_unkeyed(loader) and not _workers_own(loader)


def why_not_repeatable(loader: Any) -> str:
    """Why a resumed run over this loader may differ from an uninterrupted one; empty if not."""
    if not getattr(loader, "persistent_workers", False):
        return ""
    if own := _workers_own(loader):
        return (
            f"its workers outlive the epochs and each has its own {type(own[0]).__name__}, whose "
            "state cannot be saved"
        )
    if draws_nothing_unkeyed(loader):
        return ""
    return (
        "its workers outlive the epochs and keep their random number generators, whose state "
        "cannot be saved; this matters if the data set or collate_fn draws random numbers"
    )


def _workers_own(loader: Any) -> list[Own]:
    """Generators that each worker gets a copy of."""
    return own_generators(*(getattr(loader, name, None) for name in ("dataset", "collate_fn")))


def seekable_part(loader: Any) -> Any:
    """The loader, or the sampler in it, that can be entered at any batch; None if neither can."""
    for part in (loader, *_parts(loader)):
        if hasattr(part, "set_position"):
            return part
    return None


def all_targets(loader: Any) -> Tensor | None:
    """Every target of a loader over tensors; None if they are loaded one by one or collated.

    A subclass, of the loader or of its data set, may yield others than its tensors hold.
    """
    if type(loader) is InMemoryLoader:
        return loader.targets
    if type(loader) not in (DataLoader, GuardedLoader) or loader.collate_fn is not default_collate:
        return None
    dataset = loader.dataset
    if type(dataset) is Augmented:
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset or len(dataset.tensors) != 2:
        return None
    return _drawn(loader, dataset.tensors[1])


def _drawn(loader: Any, targets: Tensor) -> Tensor | None:
    """The targets that the sampler can draw; None where nobody knows which these are."""
    if type(loader.batch_sampler) in WHOLE:
        return targets
    inner = getattr(loader.batch_sampler, "sampler", loader.sampler)
    if type(inner) is SubsetRandomSampler:
        return targets[torch.as_tensor(inner.indices, dtype=torch.long)]
    return targets if type(inner) in WHOLE else None


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
