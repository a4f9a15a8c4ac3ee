"""Random numbers for a worked example: the same on every device, leaving global state alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw and build on the CPU from `seed`, whatever torch's default device is.

    The state of the global generator is restored afterwards.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        yield
