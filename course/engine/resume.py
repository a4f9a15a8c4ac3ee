"""Resume: what a checkpoint of a run holds, and how a run continues from one.

It holds everything that the next step depends on: weights, optimizer, scheduler, scaler, the
position in the epoch with the sums so far, every generator (also those that loaders, model and loss
hold), what is frozen or in eval mode, the history, and what callbacks remember. A run that was
killed and resumed ends bit for bit like one that was not.

Checkpoints are written between two windows. A run that is killed inside a window continues from the
end of the last window, so a partly accumulated gradient is never needed.

Source: Lecture 3, "Saving and loading"; the training-loop chapter, "Checkpointing"; ledger C10,
C12, F69, F108-F110, K12, K13.
"""

from __future__ import annotations

import warnings
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from course.engine import checkpoint
from course.engine.batches import why_not_repeatable
from course.engine.distributed import everybodys, num_ranks, rank
from course.engine.errors import CheckpointError
from course.engine.record import SINCE_BATCH_SIZE, compared, kind_of
from course.engine.weighing import measured_there
from course.state import rng_state, set_rng_state
from course.state.generators import put_back, state_of

if TYPE_CHECKING:
    from course.engine.trainer import Trainer


WAYS_OUT = {
    "micro-batches an epoch": " Where a callback changes the data during the run, build the loader "
    "with the data as they were when the checkpoint was written, and use on_change='accept'."
}


def collect(trainer: Trainer) -> dict[str, Any]:
    """Collect everything that the next step depends on. Every process must call it."""
    return {
        "setup": _setup(trainer),
        "progress": trainer.progress.state_dict(),
        "history": trainer.history.state_dict(),
        "settings": compared(trainer.description),
        "architecture": {"began": trainer.modules.began, "now": trainer.modules.described()},
        "parameters": _names_of_parameters(trainer),
        "model": trainer.model.state_dict(),
        "criterion": state_of_loss(trainer),
        "optimizer": trainer.optimizer.state_dict(),
        "scheduler": trainer.scheduler.state_dict() if trainer.scheduler else None,
        "scaler": trainer.precision.scaler.state_dict() if trainer.precision.scaler else None,
        "one_graph": trainer.one_graph.state_dict() if trainer.one_graph else None,
        "callbacks": [callback.state_dict() for callback in _remembering(trainer)],
        "processes": everybodys(
            {
                "rng": rng_state(trainer.device),
                "batches": trainer.batches.state_dict(),
                "validation": trainer.validation.state_dict() if trainer.validation else None,
                "sums": trainer.progress.state_dict(),
                "weighting": _weighting_of(trainer),
                "modules": trainer.modules.changed(),
                "generators": [state_of(own) for own in trainer.modules.generators()],
            }
        ),
    }


def state_of_loss(trainer: Trainer) -> dict[str, Any]:
    """The state of the criterion, or of a `loss_of` with state; empty for a plain function."""
    loss = trainer.given_loss
    return loss.state_dict() if hasattr(loss, "state_dict") else {}


def _weighting_of(trainer: Trainer) -> dict[str, Any] | None:
    """How the criterion was measured to weight its batches; None where nothing was measured."""
    measured = None if trainer.loss_of is None else trainer.loss_of.measured
    return None if measured is None else measured.state_dict()


def restore(trainer: Trainer, resume: Path | str | None) -> Path | None:
    """Put a checkpoint's state into a trainer.

    Args:
        resume: A checkpoint, a run directory, None for a fresh run, or `"auto"` for the trainer's
            run directory if it holds a checkpoint.

    Returns:
        The checkpoint's path; None for a fresh run.

    Raises:
        CheckpointError: There is none, it cannot be read, or it was written with a different setup.
            The model is untouched.
    """
    if trainer.run_dir is not None or resume is not None:
        _warn_of_other_draws(trainer.batches.loader)
    path = _checkpoint_of(trainer, resume)
    if path is None:
        return None
    state = _whole_state(path)
    _check_setup(state, trainer, path)
    changed = _check_changes(state, trainer, path)
    mine = state["processes"][rank()]
    checkpoint.check_weights(trainer.model, state["model"], path)
    loss = trainer.given_loss
    if isinstance(loss, nn.Module) and "criterion" in state:
        checkpoint.check_weights(loss, state["criterion"], path)
    loaders = [(trainer.batches, mine["batches"]), (trainer.validation, mine.get("validation"))]
    loaders = [(loader, there) for loader, there in loaders if loader is not None and there]
    for loader, there in loaders:
        loader.check(there, accepted=trainer.plan.on_change == "accept")
    generators = trainer.modules.generators()
    _check_generators(generators, mine.get("generators"), path)
    try:
        _load_accepted(trainer, state, changed)
    except (ValueError, KeyError) as error:
        raise CheckpointError(
            f"{path}: the optimizer or schedule differs: {error}. Build them as they were when it "
            "was written: parameter groups that a callback adds during the run are added before "
            "fit here."
        ) from error
    trainer.model.load_state_dict(state["model"])
    if state.get("criterion") and hasattr(loss, "load_state_dict"):
        loss.load_state_dict(state["criterion"])
    trainer.modules.put_back(mine.get("modules", {}))
    for own, there in zip(generators, mine.get("generators", ()), strict=False):
        put_back(own, there)
    same = not any(name.startswith("criterion") for name in changed)
    if same and (weighting := mine.get("weighting")):
        trainer.loss_of.remember(measured_there(loss, weighting, trainer.device))
    if trainer.precision.scaler:
        trainer.precision.scaler.load_state_dict(state["scaler"])
    if trainer.one_graph and state.get("one_graph"):
        trainer.one_graph.load_state_dict(state["one_graph"])
    trainer.progress.load_state_dict(state["progress"] | mine["sums"])
    _continue_or_say_why_not(trainer, path)
    trainer.history.load_state_dict(state["history"])
    for loader, there in loaders:
        loader.load_state_dict(there)
    for callback, remembered in zip(_remembering(trainer), state["callbacks"], strict=True):
        callback.load_state_dict(remembered)
    set_rng_state(mine["rng"], trainer.device)
    return path


def _continue_or_say_why_not(trainer: Trainer, path: Path) -> None:
    """A run that was stopped stays so, like one that was killed on its way out, unless asked."""
    progress = trainer.progress
    if progress.stopped is None:
        return
    if trainer.plan.on_change == "accept":
        progress.stopped = None
        return
    warnings.warn(
        f"{path}: the run was stopped after update {progress.update} ({progress.stopped}), so no "
        "further update is made. To continue it, use on_change='accept'.",
        stacklevel=4,
    )


def _checkpoint_of(trainer: Trainer, resume: Path | str | None) -> Path | None:
    """Where to resume from; None for a fresh run."""
    if resume is None or (resume == "auto" and trainer.run_dir is None):
        return None
    if not isinstance(resume, (str, PathLike)):
        raise CheckpointError(
            f"resume = {resume!r}: expected 'auto', a checkpoint or a run directory. To continue "
            "from run_dir if it holds a checkpoint, use resume='auto'."
        )
    where = trainer.run_dir if resume == "auto" else Path(resume)
    path = checkpoint.find(where)
    if path is None:
        if resume == "auto":
            return None
        raise CheckpointError(
            f"{where}: no checkpoint to resume from. Give a last.pt or a run directory that holds "
            "one, or resume='auto' to start from scratch if there is none."
        )
    return path


def _whole_state(path: Path) -> dict[str, Any]:
    """What a checkpoint holds; weights alone are refused."""
    state = checkpoint.load(path)
    if "optimizer" not in state:
        raise CheckpointError(
            f"{path} holds only weights, so a run cannot continue from it: without the optimizer's "
            f"state the loss would jump. Resume from {path.with_name(checkpoint.LAST)}, or load it "
            "into the model with course.engine.load_weights."
        )
    return state


def _warn_of_other_draws(loader: Any) -> None:
    """Say before the first update that a run over this loader cannot be resumed to the last bit."""
    if reason := why_not_repeatable(loader):
        warnings.warn(
            f"a resumed run would not match this one bit for bit: the {type(loader).__name__} has "
            f"persistent_workers=True; {reason}. Use make_loader(..., augment=...), which makes "
            "every random draw depend only on its position, or persistent_workers=False.",
            stacklevel=4,
        )


def _setup(trainer: Trainer) -> dict[str, Any]:
    """What must be the same for a place in the run to mean the same."""
    return {
        "micro-batches an epoch": trainer.batches.length,  # as it says, right or not
        "accum_steps": trainer.accum_steps,
        "precision": trainer.precision.name,
        "optimizer": kind_of(trainer.optimizer),
        "scheduler": kind_of(trainer.scheduler),
        "schedule_per": trainer.schedule_per,
        "callbacks": [type(callback).__name__ for callback in _remembering(trainer)],
        "processes": num_ranks(),
        "monitor": trainer.history.monitor,
    }


def _check_setup(state: dict[str, Any], trainer: Trainer, path: Path) -> None:
    """Raise at the first that differs; a data set that counts its own length has it meanwhile."""
    own = trainer.batches.own
    mine = dict(enumerate(state["processes"])).get(rank(), {"batches": {}})
    own.put_back(mine["batches"].get("counters", {}))
    try:
        there, here = state["setup"], _setup(trainer)
    finally:
        own.put_back({})
    for name, value in here.items():
        unknown = name == "micro-batches an epoch" and None in (value, there.get(name))
        if there.get(name) != value and not unknown:
            raise CheckpointError(
                f"{path}: {name} was {there.get(name)} there but is {value} here, so the run would "
                "not be the same. Resume with the same settings, or start a new run from its "
                f"weights with course.engine.load_weights.{WAYS_OUT.get(name, '')}"
            )


def _check_changes(state: dict[str, Any], trainer: Trainer, path: Path) -> dict[str, Any]:
    """The settings that are others than the checkpoint's, if they are accepted.

    Raises:
        CheckpointError: There are any, and `on_change` is `"refuse"`; or the optimizer holds its
            parameters in another order, which nobody can want.
    """
    _check_order(state.get("parameters"), _names_of_parameters(trainer), path)
    changes = _changes_of_settings(state.get("settings"), trainer)
    changes |= _changes_of_model(state.get("architecture"), trainer)
    if changes and trainer.plan.on_change == "refuse":
        said = ", ".join(f"{name} {there} -> {here}" for name, (there, here) in changes.items())
        raise CheckpointError(
            f"{path}: changed since it was written: {said}. To continue with the new settings, "
            "use on_change='accept'; otherwise restore the old ones."
        )
    return {name: here for name, (_, here) in changes.items()}


def _changes_of_settings(there: dict[str, Any] | None, trainer: Trainer) -> dict[str, Any]:
    """(there, here) of each that differs; what an earlier version did not write is unknown."""
    if there is None:
        return {}
    here = compared(trainer.description)
    unknown = () if "batch_size" in there else SINCE_BATCH_SIZE
    if unknown and there.get("data.hash") is None:
        unknown += ("data.",)
    names = [n for n in dict.fromkeys([*there, *here]) if there.get(n) != here.get(n)]
    # Other groups of parameters, or another kind of optimizer, do not fit at all: said later.
    names = [n for n in names if not n.startswith("optimizer.") or (n in there and n in here)]
    names = [n for n in names if n != "seed" or here["seed"] is not None]
    return {n: (there.get(n), here.get(n)) for n in names if not n.startswith(unknown)}


def _changes_of_model(there: dict[str, Any] | None, trainer: Trainer) -> dict[str, Any]:
    """(there, here) of each module with other settings, or another thing frozen.

    A callback may change them: here is either what the run began with or, in the same process, what
    it had become.
    """
    if there is None:
        return {}
    began, now, here = there["began"], there["now"], trainer.modules.began
    names = [n for n in dict.fromkeys([*began, *here]) if n in began and n in here]
    changes = {n: (began[n], here[n]) for n in names if here[n] not in (began[n], now.get(n))}
    trainer.modules.began = began | {name: here for name, (_, here) in changes.items()}
    return changes


def _names_of_parameters(trainer: Trainer) -> list[list[str]]:
    """The optimizer's parameters by name, for each of its groups."""
    loss = trainer.given_loss
    modules = {"": trainer.model, "loss.": loss}
    names: dict[int, str] = {}
    for prefix, module in modules.items():
        for name, parameter in module.named_parameters() if isinstance(module, nn.Module) else ():
            names.setdefault(id(parameter), prefix + name)
    groups = trainer.optimizer.param_groups
    return [[names.get(id(p), "of none") for p in group["params"]] for group in groups]


def _check_order(there: list[list[str]] | None, here: list[list[str]], path: Path) -> None:
    """What an optimizer remembers is put back by position."""
    if there is None or [len(group) for group in there] != [len(group) for group in here]:
        return  # an earlier version, or another number of them: said later
    pairs = [pair for groups in zip(there, here, strict=True) for pair in zip(*groups, strict=True)]
    for number, (then, now) in enumerate(pairs):
        if then != now:
            raise CheckpointError(
                f"{path}: the optimizer's parameter {number} was {then} there but is {now} here, "
                "so its state would go to other weights. Build it from the parameters in the same "
                "order as for that run."
            )


def _check_generators(here: list[Any], there: list[Any] | None, path: Path) -> None:
    """As many as there, unless an earlier version wrote it: they are put back by position."""
    if there is not None and len(here) != len(there):
        raise CheckpointError(
            f"{path}: model, loss and step hold {len(here)} generators, but held {len(there)} when "
            "it was written, so their random numbers would not be the same. Build them as they "
            "were built for that run."
        )


def _load_accepted(trainer: Trainer, state: dict[str, Any], changed: dict[str, Any]) -> None:
    """Load optimizer and schedule; accepted options stay what they are in this call."""
    asked = [dict(group) for group in trainer.optimizer.param_groups]
    trainer.optimizer.load_state_dict(state["optimizer"])
    if trainer.scheduler:
        trainer.scheduler.load_state_dict(_with_options(state["scheduler"], changed))
    for number, (group, wish) in enumerate(zip(trainer.optimizer.param_groups, asked, strict=True)):
        end = f".{number}" if number else ""
        for name in [n for n in wish if f"optimizer.{n}{end}" in changed]:
            if name == "lr":
                _set_rate(trainer.scheduler, number, group, wish)
            else:
                group[name] = wish[name]


def _set_rate(scheduler: Any, number: int, group: dict[str, Any], wish: dict[str, Any]) -> None:
    """A new learning rate; under a schedule, the rate that its factors multiply."""
    rate = wish.get("initial_lr", wish["lr"])
    if "initial_lr" not in group:
        group["lr"] = rate
        return
    group["lr"] = group["lr"] * rate / group["initial_lr"] if group["initial_lr"] else rate
    group["initial_lr"] = rate
    if hasattr(scheduler, "base_lrs"):
        scheduler.base_lrs[number] = rate


def _with_options(state: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    """A schedule's state with its accepted options in it."""
    own = {name.removeprefix("scheduler."): value for name, value in changed.items()
           if name.startswith("scheduler.")}  # fmt: skip
    return state | {name: value for name, value in own.items() if name in state}


def _remembering(trainer: Trainer) -> list[Any]:
    """The callbacks whose state must come back."""
    return [callback for callback in trainer.callbacks if hasattr(callback, "state_dict")]
