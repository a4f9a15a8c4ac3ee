"""torch as in a new process, whatever a notebook has set: float32, gradients on, no autocast.

A reader may run an example in the middle of their own work, inside `torch.no_grad()` or after
`torch.set_default_dtype(torch.float64)`. Without this module, Adam's state would take 112 GB
instead of 56, and half of the claims would have a different result.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any


@contextmanager
def fresh_settings() -> Iterator[None]:
    """Default dtype, gradient mode, inference mode and autocast as in a new process.

    The reader's own settings are restored afterwards. The default device stays: it says where to
    compute.
    """
    import torch

    dtype = torch.get_default_dtype()
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)


def on_the_cpu() -> AbstractContextManager[Any]:
    """New tensors on the CPU, as in a new process, whatever default device a reader has set.

    If they are created there anyway it does nothing, because entering a device slows down small
    calls.
    """
    import torch

    cpu = torch.device("cpu")
    return nullcontext() if torch.get_default_device() == cpu else cpu
