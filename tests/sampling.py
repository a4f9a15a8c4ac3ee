"""What `make test` takes of a long list; `make thorough` takes all of it."""

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

Item = TypeVar("Item")
THOROUGH = bool(os.environ.get("THOROUGH"))


only_thorough = pytest.mark.skipif(not THOROUGH, reason="make thorough tries it")
"""Of a test that takes long for what a shorter one shows on less."""


def sample(items: Sequence[Item], every: int) -> list[Item]:
    """Every so many of them, the first included; all of them where `THOROUGH` is set."""
    return list(items) if THOROUGH else list(items)[::every]
