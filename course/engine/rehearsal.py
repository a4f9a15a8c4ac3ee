"""Rehearsal: what is needed only after the first epoch is tried out before the first update.

A metric that cannot be computed, a monitored number that no epoch has, a disk that cannot be
written: without a rehearsal, each is found only when an epoch's work is done. Here one batch is
validated, the names of an epoch's numbers are checked, averages and the best epoch's weights are
copied, and one checkpoint is written and read back. Everything is then restored, and nothing was
trained.

A model with lazy layers is made by its first forward, so for it nothing is tried out.

Forward, loss and backward need no rehearsal: the first update checks them before it moves a weight.

Source: the training-loop chapter, "Bug museum"; ledger C10, C13, C20.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils.data import DataLoader

from course.engine import checkpoint
from course.engine.distributed import rank
from course.engine.errors import EngineError
from course.engine.evaluation import evaluate
from course.engine.improvement import listed
from course.engine.record import make_directory
from course.engine.resume import collect
from course.state import kept, left_as_found

if TYPE_CHECKING:
    from course.engine.trainer import Trainer


def rehearse(trainer: Trainer, val_loader: Any) -> None:
    """Try validation, record, callbacks and checkpoint of a run that is about to start.

    Raises:
        EngineError: One of them cannot work; nothing was trained.
        CheckpointError: No checkpoint can be written, or not read back.
    """
    names = ["epoch", "updates", "train_loss", *_validated(trainer, val_loader)]
    names += ["lr", "grad_norm", "skipped", "seconds"]
    monitor = trainer.history.monitor
    own = trainer.own_step is not None  # what it measures is known when it has been taken
    if monitor not in names and not own:
        raise EngineError(f"monitor = {monitor!r}: no such number; an epoch has {listed(names)}.")
    for callback in trainer.callbacks:
        if hasattr(callback, "check") and not own:
            callback.check(trainer, names)
        if hasattr(callback, "rehearse") and not _is_lazy(trainer.model):
            callback.rehearse(trainer)
    if trainer.run_dir is not None and not _is_lazy(trainer.model):
        _write_and_read(trainer)


def _validated(trainer: Trainer, val_loader: Any) -> list[str]:
    """Names of what validation measures, found by one batch of it."""
    if val_loader is None:
        return []
    once = hasattr(val_loader, "__next__")  # a batch drawn now would be missing later
    if once or _is_lazy(trainer.model):
        return [f"val_{name}" for name in ("loss", "accuracy", *(trainer.plan.metrics or {}))]
    with left_as_found(val_loader, trainer.device), _what_validation_changes(trainer, val_loader):
        first = next(iter(_without_workers(val_loader)), None)
        if first is None:
            raise EngineError(
                "the validation loader yields no batch. Is the data set empty, or is "
                "drop_last=True with fewer examples than a batch?"
            )
        try:
            found = evaluate(
                trainer.model,
                [first],
                loss_of=trainer.loss_of,
                device=trainer.device,
                metrics=trainer.plan.metrics,
            )
        except Exception as error:
            note = "validation, batch 0 (from 0), tried before the first update"
            if isinstance(error, EngineError):
                raise EngineError(f"{note}: {error}") from None
            error.add_note(f"{note}: nothing was trained.")
            raise
    return [f"val_{name}" for name in found if name != "num_examples"]


def _is_lazy(model: nn.Module) -> bool:
    """Whether the first update's forward makes weights: a rehearsal would draw them earlier, and
    could not undo it."""
    return any(map(is_lazy, model.parameters()))


def _what_validation_changes(trainer: Trainer, val_loader: Any) -> AbstractContextManager[None]:
    """Metrics, criterion and model come back; weights and data are only read, and not copied."""
    data = [getattr(loader, "dataset", None) for loader in (trainer.batches.loader, val_loader)]
    return kept(
        trainer.plan.metrics,
        trainer.criterion,
        trainer.own_loss_of,
        trainer.model,
        only_read=[*data, *trainer.model.parameters()],
        rng=False,
    )


def _without_workers(loader: Any) -> Any:
    """A DataLoader's twin that loads in this process: for one batch no worker need be started."""
    if not isinstance(loader, DataLoader) or not loader.num_workers:
        return loader
    twin = object.__new__(DataLoader)
    vars(twin).update(vars(loader))
    vars(twin).update(num_workers=0, prefetch_factor=None, persistent_workers=False, timeout=0)
    vars(twin).update(_iterator=None, _DataLoader__multiprocessing_context=None)
    return twin


def _write_and_read(trainer: Trainer) -> None:
    """One checkpoint to the disk and back, under a name of its own."""
    state = collect(trainer)
    if rank() != 0:
        return
    path = trainer.run_dir / "rehearsal.pt"
    made = [place for place in (path.parent, *path.parent.parents) if not place.exists()]
    make_directory(trainer.run_dir)
    try:
        checkpoint.save(state, path)
        checkpoint.load(path)
    finally:
        path.unlink(missing_ok=True)
        for place in made:  # a run that does not start leaves no empty directory
            place.rmdir()
