"""Random numbers of a worked example: the same on every device, and nobody else's disturbed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw and build on the CPU from `seed`, whatever torch's default device is.

    The global generator is afterwards as it was.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        yield
