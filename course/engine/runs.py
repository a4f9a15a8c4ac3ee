"""Runs on disk: read one, read all, and compare two.

Comparing follows the ablation rule: change one thing, then read the metric. If more than one thing
changed, the difference cannot be attributed to any of them alone.

Source: Lecture 3, "Ablation"; ledger C37, N23.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course.engine.errors import EngineError

RECORD, METRICS = "run.json", "metrics.jsonl"
EVERY = ("settings", "started", "seed", "data", "code", "hardware", "versions")
"""The parts of every record."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run on disk, as read by `read_run`."""

    name: str
    """The directory's name."""
    path: Path
    """The directory."""
    content: dict[str, Any] = field(repr=False)
    """The contents of `run.json`."""

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
        """The best epoch so far, from the log if the run is not finished."""
        if self.content.get("best"):
            return self.content["best"]
        epochs = [line for line in self.metrics() if line["kind"] == "epoch"]
        finite = [line for line in epochs if line.get(self.monitor) is not None]
        choose = min if self.content["settings"]["mode"] == "min" else max
        return choose(finite, key=lambda line: line[self.monitor], default={})

    def metrics(self) -> list[dict[str, Any]]:
        """The log's lines."""
        return list(log_lines(self.path / METRICS))

    def identity(self) -> dict[str, Any]:
        """What may distinguish this run from others, flat: settings, seed, data, code, hardware."""
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
        raise EngineError(f"{path}: it contains no {RECORD}, so it is not a run directory.")
    content = read_json(file)
    missing = _missing(content)
    if missing:
        raise EngineError(f"{file}: was not written by this engine (no {missing[0]} in it).")
    return Run(name=path.name, path=path, content=content)


def _missing(content: Any) -> list[str]:
    """What every record has and this one has not."""
    if not isinstance(content, dict):
        return ["settings"]
    settings = content.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    return [
        *(name for name in EVERY if name not in content),
        *(name for name in ("monitor", "mode") if name not in settings),
    ]


def read_runs(directory: Path | str) -> list[Run]:
    """Read every run directly under `directory`, oldest first.

    Raises:
        EngineError: There is no such directory, or a record in it cannot be read.
    """
    if not Path(directory).is_dir():
        raise EngineError(
            f"{directory}: no such directory. Give the one that contains the run directories."
        )
    found = [read_run(file.parent) for file in Path(directory).glob(f"*/{RECORD}")]
    return sorted(found, key=lambda run: (run.content["started"], run.name))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"{path}: cannot be read as JSON ({error}).") from error


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What differs between two runs, and their metrics."""

    metric: str
    """The monitored number."""
    values: tuple[float | None, float | None]
    """Its best value in each run."""
    changed: dict[str, tuple[Any, Any]]
    """Settings, seed and data that differ."""
    surroundings: dict[str, tuple[Any, Any]]
    """Code, hardware and versions that differ."""
    unknown: tuple[str, ...] = ()
    """Data whose identity was not recorded, so that it is unknown whether it differs."""

    @property
    def verdict(self) -> str:
        """What the difference can be attributed to."""
        names = list(self.changed)
        if any(name.startswith("data.validation") for name in names):
            return "Validated on different data: the two numbers cannot be compared."
        if len(names) > 1:
            return (
                f"{len(names)} things changed ({', '.join(names)}): the difference cannot be "
                "attributed to any of them alone. Change one at a time."
            )
        if self.surroundings and names:
            return f"{names[0]} changed, and so did {', '.join(self.surroundings)}."
        if self.surroundings:
            return f"Only the environment changed: {', '.join(self.surroundings)}."
        if names == ["seed"]:
            return "Only the seed changed: the difference is the noise between runs."
        if not names and self.unknown:
            return f"Nothing recorded changed; unknown: {', '.join(self.unknown)}."
        return f"One thing changed: {names[0]}." if names else "Nothing changed."


def compare(first: Run, second: Run) -> Comparison:
    """Compare two runs and say what differs."""
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
        unknown=tuple(
            name
            for name, value in one.items()
            if name.startswith("data.") and name.endswith(".hash") and value is None
        ),
    )


def log_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Read the lines of a log, without a last line that a kill cut off."""
    if not path.is_file():
        return
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(text)
        except ValueError:
            continue
