"""The run record: what a run was, so that two runs can be compared and a run can be repeated.

    run.json        commit, clean or not, settings, data and split, seed, hardware, versions
    metrics.jsonl   one JSON object per line: every `log_every` updates and every epoch
    last.pt         what the next step depends on; previous.pt is the one before it
    best.pt         the weights of the best epoch

This module writes it during the run; `course.engine.runs` reads and compares.

Source: Lecture 3, "Reproducibility in five layers"; ledger C37.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import platform
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils.data import RandomSampler, SequentialSampler

from course.engine import checkpoint
from course.engine.callbacks import Callback
from course.engine.checkpoint import BEST, way_out_of
from course.engine.distributed import rank, wait_for_all
from course.engine.errors import EngineError
from course.engine.history import History
from course.engine.identity import code_identity, data_identity, hardware, versions
from course.engine.runs import (
    METRICS,
    RECORD,
    Comparison,
    Run,
    compare,
    log_lines,
    read_json,
    read_run,
    read_runs,
)
from course.engine.several import Several

if TYPE_CHECKING:
    from course.engine.trainer import Trainer

__all__ = [
    "METRICS",
    "RECORD",
    "Comparison",
    "Run",
    "RunRecord",
    "code_identity",
    "compare",
    "data_identity",
    "describe",
    "hardware",
    "read_json",
    "read_run",
    "read_runs",
    "set_aside",
    "versions",
]


class RunRecord(AbstractContextManager):
    """Writes the record of one run; entered before its first update and left after its last."""

    @classmethod
    def of(
        cls,
        trainer: Trainer,
        *,
        resumed_from: Path | None,
    ) -> RunRecord:
        """The record of a trainer's run; without a run directory, nothing is written."""
        record = cls(trainer)
        if trainer.run_dir is None:
            return record
        if rank() == 0:
            record.open(trainer.run_dir, resumed_from)
            record.content |= trainer.description
            record.write()
        wait_for_all()
        return record

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.run_dir: Path | None = None
        self.content: dict[str, Any] = {}

    def open(self, run_dir: Path, resumed_from: Path | None) -> None:
        """Prepare the directory: as it was then for a run that continues in its own, else empty."""
        _warn_of_another_process(run_dir)
        if resumed_from is None or run_dir.resolve() not in resumed_from.resolve().parents:
            set_aside(run_dir)
        make_directory(run_dir)
        if resumed_from is not None:
            _bring_along(resumed_from.parent, run_dir, self.trainer.history)
        (run_dir / METRICS).touch()
        self.run_dir = run_dir
        process = {"host": platform.node(), "pid": os.getpid()}
        self.content = {"started": _now(), "resumed": [], "process": process}
        if resumed_from is not None:
            earlier = _earlier(run_dir / RECORD)
            update = self.trainer.progress.update
            self.content["started"] = earlier.get("started", self.content["started"])
            self.content["resumed"] = [
                *earlier.get("resumed", []),
                {"at": _now(), "update": update},
            ]
            _drop_lines_after(run_dir / METRICS, update, self.trainer.progress.recorded)

    def log(self, kind: str, line: Mapping[str, Any]) -> None:
        """Append one line to the log."""
        if self.run_dir is None:
            return
        text = json.dumps({"kind": kind, **_finite(line)}) + "\n"
        path = self.run_dir / METRICS
        with _said_if_full(path), open(path, "a", encoding="utf-8") as file:
            file.write(text)

    def forget_epoch(self, update: int) -> None:
        """Drop from the log the line of an epoch that ended here, since it is measured again."""
        if self.run_dir is not None:
            _drop_lines_after(self.run_dir / METRICS, update, update - 1)

    def write(self, **more: Any) -> None:
        """Write `run.json`, completely or not at all."""
        if self.run_dir is None:
            return
        self.content |= more
        text = json.dumps(_finite(self.content), indent=2) + "\n"
        _replace(self.run_dir / RECORD, text)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> None:
        raised = error
        try:
            self.trainer.hooks.on_fit_end()  # also after an error: bars and files are closed
        except Exception as fault:
            if error is None:
                raised = fault
            else:
                error.add_note(f"on_fit_end then raised {type(fault).__name__}: {fault}")
        with suppress(EngineError) if raised is not None else nullcontext():
            self._finish(raised)
        if raised is not error:
            raise raised

    def _finish(self, error: BaseException | None) -> None:
        trainer, history = self.trainer, self.trainer.history
        self.write(
            finished=_now(),
            status="finished" if error is None else "failed",
            reason=f"{type(error).__name__}: {error}"
            if error is not None
            else trainer.progress.stopped,
            weighting=weighting_of(trainer.loss_of),
            updates=trainer.progress.update,
            last=history[-1] if len(history) else None,
            best=history.best if history.best_index is not None else None,
        )


@contextmanager
def _said_if_full(path: Path) -> Iterator[None]:
    """A disk that takes no more, or a directory that is gone, is said in a sentence.

    Raises:
        EngineError: In the place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise EngineError(
            f"{path}: cannot be written ({error.strerror}). {way_out_of(error)}"
        ) from error


def _replace(path: Path, text: str) -> None:
    """Write a text whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    try:
        with _said_if_full(path):
            partial.write_text(text, encoding="utf-8")
            os.replace(partial, path)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _bring_along(there: Path, run_dir: Path, history: History) -> None:
    """A run that continues in another directory has its log and its best weights there too."""
    if (there / METRICS).is_file() and not (run_dir / METRICS).exists():
        _replace(run_dir / METRICS, (there / METRICS).read_text(encoding="utf-8"))
    if history.best_index is None or (run_dir / BEST).is_file():
        return
    source = there / BEST
    best = checkpoint.load(source) if source.is_file() else {}
    if _finite(best.get("epoch")) == _finite(history.best):
        checkpoint.save(best, run_dir / BEST)
        return
    warnings.warn(
        f"{run_dir}: there is no {BEST} of the best epoch so far, {history.best['epoch']}, also "
        f"not in {there}. One is written at the next better epoch.",
        stacklevel=5,
    )


def _warn_of_another_process(run_dir: Path) -> None:
    """Two runs in one directory mix their files; a run that was killed has no process any more."""
    try:
        content = read_json(run_dir / RECORD)
        host, pid = content["process"]["host"], content["process"]["pid"]
    except (EngineError, KeyError, TypeError):
        return
    other = host == platform.node() and pid != os.getpid() and os.name == "posix"
    if content.get("status") == "running" and other and _lives(pid):
        warnings.warn(
            f"{run_dir}: process {pid} is still training there, and now both write into it. Stop "
            "one of them, or give this one another run_dir.",
            stacklevel=5,
        )


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # sends nothing
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True


def _earlier(path: Path) -> dict[str, Any]:
    """What the record said before the run was resumed; a broken one is put aside, and said."""
    if not path.is_file():
        return {}
    try:
        if not isinstance(earlier := read_json(path), dict):
            raise EngineError(f"{path}: holds no record of a run.")
        return earlier
    except EngineError as error:
        aside = path.with_name(path.name + ".broken")
        os.replace(path, aside)
        warnings.warn(
            f"{error} It is now {aside.name}; the run continues without it.", stacklevel=5
        )
        return {}


def describe(trainer: Trainer, val_loader: Any, config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Describe everything about a run that is known before its first update."""
    train_loader = trainer.batches.loader
    settings = {
        "model": type(trainer.model).__name__,
        "model_hash": _hash(repr(trainer.model)),
        "num_parameters": _num_parameters(trainer.model),
        "criterion": name_of(trainer.criterion),
        "loss_of": name_of(trainer.own_loss_of),
        "step": name_of(trainer.own_step),
        "optimizer": kind_of(trainer.optimizer),
        **_groups_of(trainer.optimizer),
        **_options_of("criterion", trainer.criterion),
        **_options_of("scheduler", trainer.scheduler),
        "scheduler": kind_of(trainer.scheduler),
        "schedule_per": trainer.schedule_per if trainer.scheduler else None,
        "batch_size": _batch_size(train_loader),
        "shuffle": _order_of(train_loader),
        "accum_steps": trainer.accum_steps,
        "max_norm": name_of(trainer.max_norm) if callable(trainer.max_norm) else trainer.max_norm,
        "precision": trainer.precision.name,
        "compile": trainer.compile,
        "callbacks": [type(callback).__name__ for callback in trainer.callbacks],
        **_settings_of(trainer.callbacks),
        "epochs": trainer.plan.epochs,
        "max_updates": trainer.plan.max_updates,
        "monitor": trainer.history.monitor,
        "mode": trainer.history.mode,
    }
    for name, value in _as_mapping(config).items():
        taken = name in settings or name == "seed"
        settings[f"config.{name}" if taken else name] = value
    settings = {name: value for name, value in settings.items() if name not in OWN or value}
    return {
        "status": "running",
        "settings": settings,
        "seed": trainer.seed,
        "data": {"train": data_identity(train_loader), "validation": data_identity(val_loader)},
        "code": code_identity(),
        "hardware": hardware(trainer.device),
        "versions": versions(),
    }


def _as_mapping(config: Any) -> dict[str, Any]:
    """The user's settings, from a mapping or from an object such as argparse's Namespace.

    Raises:
        EngineError: They have no names.
    """
    if config is None or isinstance(config, Mapping):
        return dict(config or {})
    if isinstance(config, type) or not hasattr(config, "__dict__"):
        raise EngineError(
            f"config = {config!r:.60}: expected settings by name, such as {{'variant': 'wide'}} or "
            "a Namespace of argparse."
        )
    return dict(vars(config))


def _num_parameters(model: nn.Module) -> int | None:
    """None as long as lazy ones have no shape."""
    if any(map(is_lazy, model.parameters())):
        return None
    return sum(p.numel() for p in model.parameters())


def make_directory(run_dir: Path) -> None:
    """Make a run's directory and check that it is writable.

    Raises:
        EngineError: It cannot.
    """
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        if not os.access(run_dir, os.W_OK):
            raise PermissionError(13, "no permission")
    except OSError as error:
        raise EngineError(
            f"run_dir = {run_dir}: cannot be written ({error.strerror}). Choose a directory that "
            "you can write to, such as run_dir='runs/first'."
        ) from error


def set_aside(run_dir: Path) -> Path | None:
    """Move an earlier run out of the way: `runs/digits` becomes `runs/digits-1`, then `-2` ..."""
    if not (run_dir / RECORD).is_file():
        return None
    if Path.cwd().is_relative_to(run_dir.resolve()):
        raise EngineError(
            f"run_dir = {str(run_dir)!r}: holds an earlier run, and cannot be renamed to keep it, "
            "because this process works inside it. Give each run a directory of its own, such as "
            "run_dir='runs/second'."
        )
    number = 1
    while (aside := run_dir.with_name(f"{run_dir.name}-{number}")).exists():
        number += 1
    run_dir.rename(aside)
    return aside


SINCE_BATCH_SIZE = ("batch_size", "shuffle", "callback.", "validation.")
"""Those that checkpoints of earlier versions do not hold."""
COMPARED = ("optimizer.", "criterion", "loss_of", "step", "scheduler.", "max_norm", "seed", "data.",
            *SINCE_BATCH_SIZE)  # fmt: skip
"""Settings of which a resumed run says when they are others than those of its checkpoint."""


def compared(description: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a run's description that must not change silently when it is resumed."""
    every = {**description["settings"], "seed": description["seed"]}
    for part, name in (("train", "data"), ("validation", "validation")):
        identity = description["data"][part] or {}
        every |= {f"{name}.{key}": value for key, value in identity.items()}
    kept = {name: value for name, value in every.items() if name.startswith(COMPARED)}
    return {name: _finite(value) for name, value in kept.items()}


def weighting_of(loss_of: Any) -> str | None:
    """How a loss weights its batch, in words; None if a `loss_of` gives the weight each time."""
    if loss_of is None or loss_of.weigher is None:
        return None
    return loss_of.measured.kind if loss_of.measured else "as torch's own loss"


OWN = ("criterion", "loss_of", "step")
"""Settings of which a run has one or two."""


def name_of(thing: Any) -> str | None:
    """Name a criterion, function or module with words that are the same in the next process."""
    if thing is None or isinstance(thing, nn.Module):
        return None if thing is None else repr(thing)
    if isinstance(thing, partial):
        options = ", ".join(f"{name}={value!r}" for name, value in sorted(thing.keywords.items()))
        return f"partial({name_of(thing.func)}, {options})"
    return getattr(thing, "__name__", type(thing).__name__)


def kind_of(thing: Any) -> str | None:
    """The class of an optimizer or scheduler; for several, each by its name."""
    if isinstance(thing, Several):
        return ", ".join(f"{name}: {type(part).__name__}" for name, part in thing.parts.items())
    return None if thing is None else type(thing).__name__


def _groups_of(optimizer: Any) -> dict[str, Any]:
    """Options of every parameter group; the rate is the one that a schedule began with."""
    settings = {}
    for number, group in enumerate(optimizer.param_groups):
        own = group | {"lr": group.get("initial_lr", group["lr"])}
        end = f".{number}" if number else ""
        own = {n: v for n, v in own.items() if n not in ("params", "initial_lr")}
        own = {n: v.tolist() if isinstance(v, Tensor) else v for n, v in own.items()}
        settings |= {f"optimizer.{name}{end}": value for name, value in own.items()}
    return settings


def _options_of(part: str, thing: Any) -> dict[str, Any]:
    """What a criterion or scheduler was made with, as far as it keeps that: no state."""
    if isinstance(thing, Several):
        parts = (_options_of(f"{part}.{name}", thing[name]) for name in thing)
        return {name: value for options in parts for name, value in options.items()}
    if isinstance(thing, partial):
        options = dict(thing.keywords)
    elif thing is None or not hasattr(thing, "__dict__") or isinstance(thing, FunctionType):
        options = {}
    else:
        names = [n for n in inspect.signature(type(thing)).parameters if n != "last_epoch"]
        options = {name: getattr(thing, name) for name in names if hasattr(thing, name)}
    options = {f"{part}.{name}": _as_setting(value) for name, value in options.items()}
    return {name: value for name, value in options.items() if value is not None}


def _as_setting(value: Any) -> Any:
    """Numbers, texts and lists of them; None for anything else."""
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, Counter):  # the milestones of MultiStepLR
        value = sorted(value.elements())
    if isinstance(value, (list, tuple)):
        items = [_as_setting(item) for item in value]
        return None if None in items else items
    return value if isinstance(value, (bool, int, float, str)) else None


def _batch_size(loader: Any) -> int | None:
    for part in (getattr(loader, "batch_sampler", None), loader):
        if isinstance(size := getattr(part, "batch_size", None), int):
            return size
    return None


def _order_of(loader: Any) -> bool | str | None:
    """Whether a loader shuffles, or the kind of its sampler."""
    for part in (loader, getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)):
        if isinstance(shuffle := getattr(part, "shuffle", None), bool):
            return shuffle
    sampler = getattr(loader, "sampler", None)
    usual = {RandomSampler: True, SequentialSampler: False, type(None): None}
    return usual.get(type(sampler), type(sampler).__name__)


def _settings_of(callbacks: Sequence[Any]) -> dict[str, Any]:
    """What the engine's callbacks were made with; the attributes of others may be their state."""
    found, seen = {}, Counter()
    for callback in callbacks:
        if isinstance(callback, Callback):
            kind = type(callback).__name__
            end = f".{seen[kind]}" if seen[kind] else ""
            seen[kind] += 1
            for name in callback.compared_settings:
                found[f"callback.{kind}.{name}{end}"] = getattr(callback, name)
    return found


def _drop_lines_after(path: Path, update: int, recorded: int) -> None:
    """Forget what a killed run logged after the checkpoint from which it goes on.

    Args:
        recorded: The update of the last epoch's line; an epoch that ended after it is validated
            again, also where the checkpoint was written at its last update.
    """
    kept = [
        line
        for line in log_lines(path)
        if line.get("update", 0) <= update and line.get("updates", 0) <= recorded
    ]
    _replace(path, "".join(json.dumps(line) + "\n" for line in kept))


def _finite(value: Any) -> Any:
    """`value` as strict JSON holds it: no nan or inf, no tensors."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (Tensor, np.generic)) and np.ndim(value) == 0:
        return _finite(value.item())
    return str(value)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
