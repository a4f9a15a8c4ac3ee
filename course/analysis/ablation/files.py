"""One file per finished run, so that an ablation that was killed continues where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course.analysis.ablation.plan import Protocol
from course.engine.record import read_json

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class AblationRun:
    """One run, as saved in its file."""

    variant: str
    settings: dict[str, Any]
    seed: int
    protocol: dict[str, Any]
    data: dict[str, Any]
    """Number of examples and hash of the training and the validation data."""
    value: float | None
    """The metric; None if the run diverged."""
    reason: str = ""
    """The reason if there is no value."""
    epochs: list[dict[str, Any]] = field(default_factory=list, repr=False)
    """The history, for `read_curves`."""
    seconds: float = 0.0
    code: dict[str, Any] = field(default_factory=dict, repr=False)
    versions: dict[str, str] = field(default_factory=dict, repr=False)
    format: int = FORMAT


class Place:
    """Where a run is saved: its file, and the engine's run directory while it is under way."""

    def __init__(
        self, folder: Path, name: str, settings: dict[str, Any], seed: int, protocol: Protocol
    ) -> None:
        self.name, self.settings, self.seed, self.protocol = name, settings, seed, protocol
        what = json.dumps([name, settings, seed, vars(protocol)], sort_keys=True)
        slug = re.sub(r"\W+", "-", name.lower()).strip("-")[:40] or "variant"
        key = f"{slug}-seed{seed}-{hashlib.sha256(what.encode()).hexdigest()[:8]}"
        self.title = f"{name}, seed {seed}"
        self.file, self.run_dir = folder / f"{key}.json", folder / "runs" / key

    def read(self) -> AblationRun | None:
        """The finished run; None if there is none yet."""
        return read_one(self.file) if self.file.is_file() else None

    def write(self, run: AblationRun) -> None:
        """Write the run's file, completely or not at all."""
        partial = self.file.with_name(self.file.name + ".partial")
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(vars(run), file, indent=1, allow_nan=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self.file)


def read_one(file: Path) -> AblationRun:
    """One finished run from its file.

    Raises:
        ValueError: It is not such a file, or it is from a newer version.
    """
    content = read_json(file)
    if content.get("format") != FORMAT or not set(content) <= set(AblationRun.__dataclass_fields__):
        raise ValueError(
            f"{file}: not an ablation run of format {FORMAT}. Move it out of the folder and run "
            "the ablation again; only this run is repeated."
        )
    return AblationRun(**content)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Lock the folder, since two processes at once would do every run twice. A kill releases it."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # not available on Windows
        yield
        return
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"{folder}: another process is running this ablation. Wait for it, or use another "
                "folder."
            ) from None
        yield
