"""Left as found: a loader or sampler that was measured continues as if nothing had happened.

Source: ledger C23, F86, F97.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from course.state.generators import own_generators, rewinder
from course.state.seeding import undisturbed


@contextmanager
def left_as_found(loader: Any, device: torch.device | str = "cpu") -> Iterator[None]:
    """Afterwards the loader's position and generators, and the global ones, are as before.

    An epoch that another pass has started to prefetch, as persistent workers do, is started again.

    Args:
        loader: A loader or a sampler.
        device: The accelerator in use; its generator is saved and restored too.
    """
    parts = [loader, *(getattr(loader, name, None) for name in ("sampler", "batch_sampler"))]
    entered = [part for part in parts if hasattr(part, "set_position") and hasattr(part, "start")]
    positions = [(part, part.epoch, part.start) for part in entered]
    counted = [part for part in parts if hasattr(part, "epoch") and part not in entered]
    epochs = [(part, part.epoch) for part in counted]
    rewinders = [rewinder(generator) for generator in own_generators(loader)]
    with undisturbed(torch.device(device)):
        try:
            yield
        finally:
            for part, epoch, start in positions:
                part.set_position(epoch, start)
            for part, epoch in epochs:
                part.epoch = epoch
            for rewind in rewinders:
                rewind()
