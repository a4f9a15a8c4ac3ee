"""The run record: what a run was, so that two runs can be compared and one can be made again.

    run.json        commit, clean or not, settings, data and split, seed, hardware, versions
    metrics.jsonl   one JSON object a line: every `log_every` updates and every epoch
    last.pt  previous.pt  best.pt

Comparing follows the ablation discipline: change one thing, read the metric beside it. Where more
than one thing changed, the difference belongs to none of them alone.

Source: Lecture 3, "Reproducibility in five layers" and "Ablation"; ledger C37, N23.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Subset, TensorDataset

from course.engine.distributed import num_ranks, rank, wait_for_all
from course.engine.errors import EngineError

if TYPE_CHECKING:
    from course.engine.trainer import Trainer

RECORD, METRICS = "run.json", "metrics.jsonl"


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
    group = trainer.optimizer.param_groups[0]
    settings = {
        "model": type(trainer.model).__name__,
        "model_hash": _hash(repr(trainer.model)),
        "num_parameters": sum(p.numel() for p in trainer.model.parameters()),
        "criterion": repr(trainer.criterion)
        if isinstance(trainer.criterion, nn.Module)
        else getattr(trainer.criterion, "__name__", type(trainer.criterion).__name__),
        "optimizer": type(trainer.optimizer).__name__,
        **{f"optimizer.{name}": value for name, value in group.items() if name != "params"},
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


def code_identity() -> dict[str, Any]:
    """The commit of the working directory, and whether anything differs from it."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    status = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}


def hardware(device: torch.device) -> dict[str, Any]:
    """What computes."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "device": device.type,
        "name": name,
        "num_processes": num_ranks(),
        "num_threads": torch.get_num_threads(),
    }


def versions() -> dict[str, str]:
    """What the run was computed with."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "cuda": str(torch.version.cuda),
    }


def data_identity(loader: Any) -> dict[str, Any] | None:
    """Number of examples, and a hash of every example in its order: the data and the split.

    Known are tensors, subsets, and data sets with `data` and `targets`; any other may have an
    attribute `identity` of its own. Without one the hash is None.
    """
    if loader is None:
        return None
    source = getattr(loader, "dataset", loader)
    digest = hashlib.sha256()
    known = _feed(source, digest)
    size = len(source) if hasattr(source, "__len__") else None
    if hasattr(loader, "inputs"):
        size = len(loader.inputs)
    return {"num_examples": size, "hash": digest.hexdigest()[:16] if known else None}


def _feed(source: Any, digest: Any) -> bool:
    """Put the examples of `source` into the hash; False where it is not known how."""
    if isinstance(identity := getattr(source, "identity", None), str):
        digest.update(identity.encode())
    elif isinstance(source, Tensor):
        digest.update(f"{tuple(source.shape)}{source.dtype}".encode())
        digest.update(source.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    elif isinstance(source, np.ndarray):
        digest.update(f"{source.shape}{source.dtype}".encode() + source.tobytes())
    elif isinstance(source, TensorDataset):
        return all(_feed(tensor, digest) for tensor in source.tensors)
    elif isinstance(source, Subset):
        digest.update(repr([int(index) for index in source.indices]).encode())
        return _feed(source.dataset, digest)
    elif hasattr(source, "inputs") and hasattr(source, "targets"):
        return _feed(source.inputs, digest) and _feed(source.targets, digest)
    elif hasattr(source, "data") and hasattr(source, "targets"):
        return _feed(source.data, digest) and _feed(torch.as_tensor(source.targets), digest)
    elif hasattr(source, "dataset"):
        return _feed(source.dataset, digest)
    else:
        return False
    return True


def set_aside(run_dir: Path) -> Path | None:
    """Move an earlier run out of the way: `runs/digits` becomes `runs/digits-1`, then `-2` ..."""
    if not (run_dir / RECORD).is_file():
        return None
    number = 1
    while (aside := run_dir.with_name(f"{run_dir.name}-{number}")).exists():
        number += 1
    run_dir.rename(aside)
    return aside


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run on disk, as `read_run` found it."""

    name: str
    """The directory's name."""
    path: Path
    """The directory."""
    content: dict[str, Any] = field(repr=False)
    """What `run.json` holds."""

    @property
    def status(self) -> str:
        """`running`, `finished` or `failed`; a killed run stays `running`."""
        return self.content.get("status", "unknown")

    @property
    def monitor(self) -> str:
        """The number that chooses the best epoch."""
        return self.content["settings"]["monitor"]

    @property
    def best(self) -> dict[str, Any]:
        """The best epoch so far, from the log where the run is not finished."""
        if self.content.get("best"):
            return self.content["best"]
        epochs = [line for line in self.metrics() if line["kind"] == "epoch"]
        finite = [line for line in epochs if line.get(self.monitor) is not None]
        choose = min if self.content["settings"]["mode"] == "min" else max
        return choose(finite, key=lambda line: line[self.monitor], default={})

    def metrics(self) -> list[dict[str, Any]]:
        """The log's lines."""
        return list(_lines(self.path / METRICS))

    def identity(self) -> dict[str, Any]:
        """What makes this run differ from others, flat: settings, seed, data, code, hardware."""
        content = self.content
        flat = {"seed": content["seed"], **content["settings"]}
        for part in ("data", "code", "hardware", "versions"):
            for name, value in content[part].items():
                inner = value if isinstance(value, dict) else {None: value}
                flat |= {
                    f"{part}.{name}" + (f".{key}" if key else ""): item
                    for key, item in inner.items()
                }
        return flat


def read_run(path: Path | str) -> Run:
    """Read one run directory.

    Raises:
        EngineError: There is no record in it, or it cannot be read.
    """
    path = Path(path)
    file = path / RECORD
    if not file.is_file():
        raise EngineError(f"{path}: no {RECORD} in it, so it is no run directory.")
    content = read_json(file)
    if "settings" not in content:
        raise EngineError(f"{file}: was not written by this engine (no settings in it).")
    return Run(name=path.name, path=path, content=content)


def read_runs(directory: Path | str) -> list[Run]:
    """Every run directly under `directory`, the oldest first."""
    found = [read_run(file.parent) for file in Path(directory).glob(f"*/{RECORD}")]
    return sorted(found, key=lambda run: (run.content["started"], run.name))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"{path}: cannot be read as JSON ({error}).") from error


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What differs between two runs, and the metric beside it."""

    metric: str
    """The monitored number."""
    values: tuple[float | None, float | None]
    """Its best value in either run."""
    changed: dict[str, tuple[Any, Any]]
    """Settings, seed and data that differ."""
    surroundings: dict[str, tuple[Any, Any]]
    """Code, hardware and versions that differ."""

    @property
    def verdict(self) -> str:
        """What the difference may be put down to."""
        names = list(self.changed)
        if any(name.startswith("data.validation") for name in names):
            return "Validated on different data: the two numbers cannot be compared."
        if len(names) > 1:
            return (
                f"{len(names)} things changed ({', '.join(names)}): the difference belongs to none "
                "of them alone. Change one at a time."
            )
        if self.surroundings and names:
            return f"{names[0]} changed, and so did {', '.join(self.surroundings)}."
        if self.surroundings:
            return f"Only the surroundings changed: {', '.join(self.surroundings)}."
        if names == ["seed"]:
            return "Only the seed changed: the difference is the noise between runs."
        return f"One thing changed: {names[0]}." if names else "Nothing changed."


def compare(first: Run, second: Run) -> Comparison:
    """What differs between two runs."""
    one, two = first.identity(), second.identity()
    changed = {
        name: (one.get(name), two.get(name))
        for name in dict.fromkeys([*one, *two])
        if one.get(name) != two.get(name)
    }
    around = {name for name in changed if name.split(".")[0] in ("code", "hardware", "versions")}
    return Comparison(
        metric=first.monitor,
        values=(first.best.get(first.monitor), second.best.get(first.monitor)),
        changed={name: pair for name, pair in changed.items() if name not in around},
        surroundings={name: pair for name, pair in changed.items() if name in around},
    )


def _batch_size(loader: Any) -> int | None:
    for part in (getattr(loader, "batch_sampler", None), loader):
        if isinstance(size := getattr(part, "batch_size", None), int):
            return size
    return None


def _drop_lines_after(path: Path, update: int) -> None:
    """Forget what a killed run logged after the checkpoint from which it goes on."""
    kept = [line for line in _lines(path) if line.get("update", line.get("updates", 0)) <= update]
    partial = path.with_name(path.name + ".partial")
    partial.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    os.replace(partial, path)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log; a last one that a kill cut off is left out."""
    if not path.is_file():
        return
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(text)
        except ValueError:
            continue


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
