"""Resume: what a checkpoint of a run holds, and how a run goes on from one.

Everything that the next step depends on is in it: weights, optimizer, scheduler, scaler, the place
in the epoch with the sums so far, every generator, the history, and what callbacks remember. A run
that was killed and resumed ends with the same bits as one that was not.

A checkpoint stands between two windows. A run that is killed inside a window goes on from the last
window's end, so no part of an accumulated gradient is ever needed.

Source: Lecture 3, "Saving and loading"; the training-loop chapter, "Checkpointing"; ledger C10,
C12, F69, F108-F110, K12, K13.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course.data.loading import length_of
from course.engine import checkpoint
from course.engine.batches import why_not_repeatable
from course.engine.distributed import everybodys, num_ranks, rank
from course.engine.errors import CheckpointError
from course.engine.seeding import rng_state, set_rng_state

if TYPE_CHECKING:
    from course.engine.trainer import Trainer


def collect(trainer: Trainer) -> dict[str, Any]:
    """All that the next step depends on. Every process must call it."""
    return {
        "setup": _setup(trainer),
        "progress": trainer.progress.state_dict(),
        "history": trainer.history.state_dict(),
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "scheduler": trainer.scheduler.state_dict() if trainer.scheduler else None,
        "scaler": trainer.precision.scaler.state_dict() if trainer.precision.scaler else None,
        "callbacks": [callback.state_dict() for callback in _remembering(trainer)],
        "processes": everybodys(
            {
                "rng": rng_state(trainer.device),
                "batches": trainer.batches.state_dict(),
                "sums": trainer.progress.state_dict(),
            }
        ),
    }


def restore(trainer: Trainer, resume: Path | str | None) -> Path | None:
    """Put a checkpoint's state into a trainer.

    Args:
        resume: A checkpoint, a run directory, None for a fresh run, or `"auto"` for the trainer's
            run directory if a checkpoint is there.

    Returns:
        The checkpoint's path; None for a fresh run.

    Raises:
        CheckpointError: None is there, it cannot be read, or it was written by another setup. The
            model is untouched.
    """
    if trainer.run_dir is not None or resume is not None:
        _warn_of_other_draws(trainer.batches.loader)
    if resume is None or (resume == "auto" and trainer.run_dir is None):
        return None
    where = trainer.run_dir if resume == "auto" else Path(resume)
    path = checkpoint.find(where)
    if path is None:
        if resume == "auto":
            return None
        raise CheckpointError(
            f"{where}: no checkpoint there to resume from. Give a last.pt or a run directory that "
            "holds one, or resume='auto' to start afresh where there is none."
        )
    state = checkpoint.load(path)
    if "optimizer" not in state:
        raise CheckpointError(
            f"{path} holds weights only, so a run cannot go on from it: without the optimizer's "
            f"state the loss would jump. Resume from {path.with_name(checkpoint.LAST)}, or load it "
            "into the model with course.engine.load_weights."
        )
    _check_setup(state["setup"], _setup(trainer), path)
    mine = state["processes"][rank()]
    checkpoint.check_weights(trainer.model, state["model"], path)
    trainer.batches.check(mine["batches"])
    try:
        trainer.optimizer.load_state_dict(state["optimizer"])
        if trainer.scheduler:
            trainer.scheduler.load_state_dict(state["scheduler"])
    except (ValueError, KeyError) as error:
        raise CheckpointError(f"{path}: the optimizer or schedule differs: {error}") from error
    trainer.model.load_state_dict(state["model"])
    if trainer.precision.scaler:
        trainer.precision.scaler.load_state_dict(state["scaler"])
    trainer.progress.load_state_dict(state["progress"] | mine["sums"])
    trainer.history.load_state_dict(state["history"])
    trainer.batches.load_state_dict(mine["batches"])
    for callback, remembered in zip(_remembering(trainer), state["callbacks"], strict=True):
        callback.load_state_dict(remembered)
    set_rng_state(mine["rng"], trainer.device)
    return path


def _warn_of_other_draws(loader: Any) -> None:
    """Say before the first update that a run over this loader cannot be resumed to the last bit."""
    if reason := why_not_repeatable(loader):
        warnings.warn(
            f"a resumed run would not be this one to the last bit: the {type(loader).__name__} has "
            f"persistent_workers=True; {reason}. Use make_loader(..., augment=...), which keys "
            "every draw of the global generators by its place, or persistent_workers=False.",
            stacklevel=4,
        )


def _setup(trainer: Trainer) -> dict[str, Any]:
    """What must be the same for a place in the run to mean the same."""
    return {
        "micro-batches an epoch": length_of(trainer.batches.loader),  # as it says, right or not
        "accum_steps": trainer.accum_steps,
        "precision": trainer.precision.name,
        "optimizer": type(trainer.optimizer).__name__,
        "scheduler": type(trainer.scheduler).__name__ if trainer.scheduler else None,
        "schedule_per": trainer.schedule_per,
        "callbacks": [type(callback).__name__ for callback in _remembering(trainer)],
        "processes": num_ranks(),
        "monitor": trainer.history.monitor,
    }


def _check_setup(there: dict[str, Any], here: dict[str, Any], path: Path) -> None:
    for name, value in here.items():
        unknown = name == "micro-batches an epoch" and None in (value, there.get(name))
        if there.get(name) != value and not unknown:
            raise CheckpointError(
                f"{path}: {name} was {there.get(name)} there and is {value} here, so the run would "
                "not be the same one. Resume with the same settings, or start a new run from its "
                "weights with course.engine.load_weights."
            )


def _remembering(trainer: Trainer) -> list[Any]:
    """The callbacks whose state must come back."""
    return [callback for callback in trainer.callbacks if hasattr(callback, "state_dict")]
