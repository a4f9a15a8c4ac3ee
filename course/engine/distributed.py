"""Many devices: the same script under `torchrun`, one process per device.

Every process holds the whole model and a share of each batch; DistributedDataParallel averages the
gradients during `backward`. Inside an accumulation window that average is delayed until the last
micro-batch. The window's weight is summed over the processes, so that a small share counts
according to its size and the update is the one that a single process would make on the whole batch.

DistributedDataParallel adds up gradients in buckets. At first it fills them in reverse order of
registration; after its first backward it refills them in the order in which gradients arrived. From
three processes on, the position of a number in its bucket decides in which order it is added up, so
a resumed run would round differently in its first update. Hence the buckets are fixed at once.

A `loss_of` gets the wrapped model and calls it as a whole: `model(...)`, never `model.head(...)`.
Every parameter that is not frozen takes part in every loss (`find_unused_parameters` stays off).

Source: ledger C06, F43, F88, N52; "DistributedDataParallel" in the torch documentation.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from course.engine.window import OpenWindow, Window

HERE = nullcontext()


def rank() -> int:
    """Which process this is, from 0; 0 where there is only one."""
    return dist.get_rank() if _running() else 0


def num_ranks() -> int:
    """How many processes train together."""
    return dist.get_world_size() if _running() else 1


def _running() -> bool:
    return dist.is_available() and dist.is_initialized()


@contextmanager
def process_group() -> Iterator[torch.device]:
    """Join the processes that `torchrun` started, and leave them at the end; alone, do nothing.

    Yields:
        This process's device: its own GPU if there are GPUs (NCCL), another accelerator with a
        torch backend, else the CPU (gloo).

    Raises:
        ValueError: There are more processes on this machine than GPUs.
    """
    kind, backend = _kind_and_backend()
    device = torch.device(kind)
    if kind != "cpu":
        number, devices = int(os.environ.get("LOCAL_RANK", 0)), torch.accelerator.device_count()
        if kind == "cuda" and number >= devices:  # NCCL wants one each; others may share
            raise ValueError(
                f"Process {number} of this machine (LOCAL_RANK) has no GPU: this machine has "
                f"{devices}. Start at most {devices} processes: torchrun "
                f"--nproc-per-node={devices} ..."
            )
        device = torch.device(kind, number % devices)
        torch.accelerator.set_device_index(device)
    started = "RANK" in os.environ and not _running()
    if started:
        dist.init_process_group(backend)
    try:
        yield device
        wait_for_all()  # one that leaves early takes its connections from the others
    finally:
        if started:
            dist.destroy_process_group()
            gc.collect()  # wrapped models hold the group's threads, which Python's exit would abort


def _kind_and_backend() -> tuple[str, str]:
    """Where processes compute, and by what they talk there. Gloo, by default MPS's too, is the
    CPU's: it has no way to a GPU but over copies."""
    if torch.cuda.is_available():
        return "cuda", "nccl"
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    kind = "cpu" if accelerator is None or accelerator.type == "cuda" else accelerator.type
    backend = dist.Backend.default_device_backend_map.get(kind, "gloo")
    return ("cpu", "gloo") if backend == "gloo" else (kind, backend)


def share_gradients(model: nn.Module) -> nn.Module:
    """The model as it is called in training: wrapped, if there are other processes."""
    if num_ranks() == 1 or isinstance(model, DistributedDataParallel):
        return model
    shared = DistributedDataParallel(model)
    if num_ranks() > 2 and not _is_listened_to(model):
        _settle_buckets(shared)
    return shared


def _is_listened_to(model: nn.Module) -> bool:
    """Whether a backward without data would be noticed (a step in a hook), or refused (sparse)."""
    sparse = any(getattr(module, "sparse", False) for module in model.modules())
    return sparse or any(
        p._backward_hooks or p._post_accumulate_grad_hooks for p in model.parameters()
    )


class _Sum(nn.Module):
    """Stands in for a model: every parameter gets a gradient, the last registered one first."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__()
        self.held = parameters  # in a plain list: these are not its own

    def forward(self) -> Tensor:
        return sum(parameter.sum().real * 0.0 for parameter in self.held)


def _settle_buckets(shared: DistributedDataParallel) -> None:
    """Have the buckets filled again now, not after the first update; the model is not called."""
    model = shared.module
    moved = [parameter for parameter in model.parameters() if parameter.requires_grad]
    grads = [parameter.grad for parameter in moved]
    shared.module = _Sum(moved)
    try:
        for _ in range(2):  # they are filled again when the second forward begins
            shared().backward()
    finally:
        shared.module = model
        for parameter, grad in zip(moved, grads, strict=True):
            parameter.grad = grad


def share_criterion(criterion: Any) -> None:
    """Make the parameters and buffers of a criterion start in every process as in the first."""
    if num_ranks() > 1 and isinstance(criterion, nn.Module):
        for tensor in (*criterion.parameters(), *criterion.buffers()):
            dist.broadcast(tensor.detach(), 0)


def share_buffers(model: nn.Module) -> None:
    """Give every process the first one's buffers, which checkpoints hold: each has the running
    statistics of its own share until the next forward in training."""
    if num_ranks() > 1:
        for buffer in model.buffers():
            dist.broadcast(buffer.detach(), 0)


def average_criterion_(criterion: Any, model: nn.Module) -> None:
    """Average the gradients of a criterion's own parameters, as the wrapper does the model's."""
    if not (isinstance(model, DistributedDataParallel) and isinstance(criterion, nn.Module)):
        return
    for parameter in criterion.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad /= num_ranks()


def window_end(model: nn.Module, last: bool) -> AbstractContextManager:
    """Inside, forward and backward exchange gradients only for the window's last micro-batch."""
    if last or not isinstance(model, DistributedDataParallel):
        return HERE
    return model.no_sync()


def joined(window: Window, model: nn.Module, device: torch.device) -> Window:
    """The window with its weight summed over all processes that train `model`."""
    if not isinstance(model, DistributedDataParallel):
        return window
    total = torch.as_tensor(window.total, dtype=torch.float64, device=device).clone()
    dist.all_reduce(total)
    return Window(window.weights, total, window.sums, num_ranks())


def open_window(
    num_micro_batches: int, weigh: Any, model: nn.Module, device: torch.device
) -> OpenWindow:
    """A window whose weights come with its losses, summed over all processes of `model`."""
    if not isinstance(model, DistributedDataParallel):
        return OpenWindow(num_micro_batches, weigh)

    def sum_up(total: Any) -> Tensor:
        total = torch.as_tensor(total, dtype=torch.float64, device=device).clone()
        dist.all_reduce(total)
        return total

    return OpenWindow(num_micro_batches, weigh, num_ranks=num_ranks(), sum_up=sum_up)


def agree(found: bool | Tensor, model: nn.Module) -> bool | Tensor:
    """Share one process's finding with all: all skip an update, or none does."""
    if not isinstance(model, DistributedDataParallel):
        return found
    shared = torch.as_tensor(found, dtype=torch.float32)
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return shared if isinstance(found, Tensor) else bool(shared)


def summed(values: dict[str, float], device: torch.device) -> dict[str, float]:
    """Sum each number over the processes."""
    if num_ranks() == 1 or not values:
        return values
    total = torch.tensor(list(values.values()), dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return dict(zip(values, total.tolist(), strict=True))


def everybodys(value: Any) -> list[Any]:
    """Each process's value, in rank order, in every process."""
    if num_ranks() == 1:
        return [value]
    values = [None] * num_ranks()
    dist.all_gather_object(values, value)
    return values


def wait_for_all() -> None:
    """Wait until every process is here."""
    if num_ranks() > 1:
        dist.barrier()
