"""What `make test` takes of a long list; `make thorough` takes all of it."""

import os
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")
THOROUGH = bool(os.environ.get("THOROUGH"))


def sample(items: Sequence[Item], every: int) -> list[Item]:
    """Every so many of them, the first included; all of them where `THOROUGH` is set."""
    return list(items) if THOROUGH else list(items)[::every]
