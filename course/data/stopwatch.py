"""A stopwatch that waits for the device, whose calls return before their work is done.

Source: Engineering module, §5 and lab 5; ledger C34, T40.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch

Work = Callable[[], object]


def waiter(device: torch.device | str) -> Work:
    """A function that waits until the device has finished; on the CPU it does nothing."""
    device = torch.device(device)
    if device.type in ("cpu", "meta"):
        return lambda: None
    return partial(torch.accelerator.synchronize, device)


def seconds(
    work: Work,
    *,
    synchronize: Work = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Time of one call, including the work it gives the device.

    Args:
        work: Called without arguments.
        synchronize: Waits for the device, before and after the call; see `waiter`.
        clock: Returns seconds.
    """
    synchronize()
    start = clock()
    work()
    synchronize()
    return clock() - start
