"""Checkpoints: files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch


def save_atomically(state: dict[str, Any], path: Path | str) -> None:
    """Write `state` beside `path`, then rename: a kill leaves the old file or the new one whole."""
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())  # the bytes are on the disk before the name is
    os.replace(partial, path)
