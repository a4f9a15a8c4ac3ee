"""What `make test` takes of a long list; `make thorough` takes all of it."""

import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")
THOROUGH = bool(os.environ.get("THOROUGH"))
SPLIT = {
    "test_bank.py": 40,
    "test_kinds.py": 6,
    "test_diagnose.py": 8,
    "test_subtle.py": 8,
    "test_relations.py": 8,
    "test_museum.py": 8,
    "test_verdicts.py": 12,
    "test_registry.py": 4,
    "test_attacks.py": 6,
    "test_further.py": 4,
    "test_own_randomness.py": 4,
    "test_resume.py": 4,
    "test_ladder.py": 4,
    "test_lr_finder.py": 4,
}
"""Files whose tests are shared out among processes, and into how many heaps; others stay whole."""


def sample(items: Sequence[Item], every: int) -> list[Item]:
    """Every so many of them, the first included; all of them where `THOROUGH` is set."""
    return list(items) if THOROUGH else list(items)[::every]


def heap(file: Path, key: str) -> str:
    """The group of tests that one process runs: a file, or a part of it by what a test is about."""
    name = f"{file.parent.name}-{file.stem}"
    return f"{name}-{zlib.crc32(key.encode()) % SPLIT[file.name]}" if file.name in SPLIT else name
