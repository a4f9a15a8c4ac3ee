"""The run record: what a run was, so that two runs can be compared and one can be made again.

    run.json        commit, clean or not, settings, data and split, seed, hardware, versions
    metrics.jsonl   one JSON object a line: every `log_every` updates and every epoch
    last.pt  previous.pt  best.pt

This module writes it while the run lasts; `course.engine.runs` reads and compares.

Source: Lecture 3, "Reproducibility in five layers"; ledger C37.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from course.engine.distributed import rank, wait_for_all
from course.engine.errors import EngineError
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
    """Writes the record of one run; entered before its first update, left after its last."""

    @classmethod
    def of(
        cls,
        trainer: Trainer,
        train_loader: Any,
        val_loader: Any,
        config: Mapping[str, Any] | None,
        *,
        resumed_from: Path | None,
    ) -> RunRecord:
        """The record of a trainer's run; of one without a run directory, nothing is written."""
        record = cls(trainer)
        if trainer.run_dir is None:
            return record
        if rank() == 0:
            record.open(trainer.run_dir, resumed_from)
            record.content |= describe(trainer, train_loader, val_loader, config)
            record.write()
        wait_for_all()
        return record

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.run_dir: Path | None = None
        self.content: dict[str, Any] = {}

    def open(self, run_dir: Path, resumed_from: Path | None) -> None:
        """Make the directory ready: for a fresh run empty, for a resumed one as it was then."""
        if resumed_from is None:
            set_aside(run_dir)
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            (run_dir / METRICS).touch()
        except OSError as error:
            raise EngineError(
                f"run_dir = {run_dir}: cannot be written ({error.strerror}). "
                "Choose a directory of yours, as run_dir='runs/first'."
            ) from error
        self.run_dir = run_dir
        self.content = {"started": _now(), "resumed": []}
        if resumed_from is not None:
            earlier = read_json(run_dir / RECORD) if (run_dir / RECORD).is_file() else self.content
            update = self.trainer.progress.update
            self.content["started"] = earlier["started"]
            self.content["resumed"] = [*earlier["resumed"], {"at": _now(), "update": update}]
            _drop_lines_after(run_dir / METRICS, update)

    def log(self, kind: str, line: Mapping[str, Any]) -> None:
        """Append one line to the log."""
        if self.run_dir is None:
            return
        with open(self.run_dir / METRICS, "a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **_finite(line)}) + "\n")

    def write(self, **more: Any) -> None:
        """Write `run.json`, whole or not at all."""
        if self.run_dir is None:
            return
        self.content |= more
        partial = self.run_dir / (RECORD + ".partial")
        partial.write_text(json.dumps(_finite(self.content), indent=2) + "\n", encoding="utf-8")
        os.replace(partial, self.run_dir / RECORD)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> None:
        trainer, history = self.trainer, self.trainer.history
        if error is not None:
            trainer.hooks.on_fit_end()  # so that bars and files are closed
        self.write(
            finished=_now(),
            status="finished" if error is None else "failed",
            reason=trainer.progress.stopped if error is None else f"{kind.__name__}: {error}",
            updates=trainer.progress.update,
            last=history[-1] if len(history) else None,
            best=history.best if history.best_index is not None else None,
        )


def describe(
    trainer: Trainer, train_loader: Any, val_loader: Any, config: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Everything about a run that is known before its first update."""
    settings = {
        "model": type(trainer.model).__name__,
        "model_hash": _hash(repr(trainer.model)),
        "num_parameters": sum(p.numel() for p in trainer.model.parameters()),
        "criterion": repr(trainer.criterion)
        if isinstance(trainer.criterion, nn.Module)
        else getattr(trainer.criterion, "__name__", type(trainer.criterion).__name__),
        "optimizer": type(trainer.optimizer).__name__,
        **_groups_of(trainer.optimizer),
        **_options_of("criterion", trainer.criterion),
        **_options_of("scheduler", trainer.scheduler),
        "scheduler": type(trainer.scheduler).__name__ if trainer.scheduler else None,
        "schedule_per": trainer.schedule_per if trainer.scheduler else None,
        "batch_size": _batch_size(train_loader),
        "accum_steps": trainer.accum_steps,
        "max_norm": trainer.max_norm if not callable(trainer.max_norm) else repr(trainer.max_norm),
        "precision": trainer.precision.name,
        "compile": trainer.compile,
        "callbacks": [type(callback).__name__ for callback in trainer.callbacks],
        "epochs": trainer.plan.epochs,
        "max_updates": trainer.plan.max_updates,
        "monitor": trainer.history.monitor,
        "mode": trainer.history.mode,
        **dict(config or {}),
    }
    return {
        "status": "running",
        "settings": settings,
        "seed": trainer.seed,
        "data": {"train": data_identity(train_loader), "validation": data_identity(val_loader)},
        "code": code_identity(),
        "hardware": hardware(trainer.device),
        "versions": versions(),
    }


def set_aside(run_dir: Path) -> Path | None:
    """Move an earlier run out of the way: `runs/digits` becomes `runs/digits-1`, then `-2` ..."""
    if not (run_dir / RECORD).is_file():
        return None
    number = 1
    while (aside := run_dir.with_name(f"{run_dir.name}-{number}")).exists():
        number += 1
    run_dir.rename(aside)
    return aside


def _groups_of(optimizer: Any) -> dict[str, Any]:
    """Options of every parameter group; the rate is the one that a schedule began with."""
    settings = {}
    for number, group in enumerate(optimizer.param_groups):
        own = group | {"lr": group.get("initial_lr", group["lr"])}
        end = f".{number}" if number else ""
        left_out = ("params", "initial_lr")
        settings |= {f"optimizer.{n}{end}": v for n, v in own.items() if n not in left_out}
    return settings


def _options_of(part: str, thing: Any) -> dict[str, Any]:
    """What a criterion or scheduler was made with, as far as it keeps that: no state."""
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


def _drop_lines_after(path: Path, update: int) -> None:
    """Forget what a killed run logged after the checkpoint from which it goes on."""
    kept = [
        line for line in log_lines(path) if line.get("update", line.get("updates", 0)) <= update
    ]
    partial = path.with_name(path.name + ".partial")
    partial.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    os.replace(partial, path)


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
