"""Non-finite values: a loss or gradient of inf or nan must never reach the weights.

On the CPU the check is read at once. On an accelerator, reading would make the loop wait, so a
fused optimizer gets the check's result and skips the update by itself; the loop reads it at the
next log point. With any other optimizer on an accelerator, the loop waits once per update, as
torch's own GradScaler does: weights are worth more than time.

A skipped step does not change the weights, but the forward pass was made: BatchNorm has included
the bad batch in its running statistics, and one nan there means nan in every later evaluation. So a
window that may be skipped first saves the model's buffers; compared with `"raise"`, `"skip"` costs
one copy per update, and nothing for a model without buffers.

Source: Lecture 3, "When the loss is nan"; ledger C07, C21, F41.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from course.engine.errors import NonFiniteError

POLICIES = ("raise", "skip")


class KeptBuffer(NamedTuple):
    """A buffer as it was before a window."""

    owner: dict[str, Tensor | None]
    """The dictionary of its module in which it is found."""
    name: str
    buffer: Tensor
    copy: Tensor


def found_nonfinite(
    loss: Tensor, norm: Tensor | None, parameters: Sequence[Tensor]
) -> bool | Tensor:
    """Whether the loss or any gradient is inf or nan: a bool on the CPU, else a 0-d tensor."""
    if loss.is_cpu:
        if not math.isfinite(loss.item()):
            return True
        if norm is not None:
            return not math.isfinite(norm.item())
        return _any_nonfinite(_gradients_of(parameters)).item() != 0.0
    watched = _gradients_of(parameters) if norm is None else [norm]
    return _any_nonfinite([*watched, loss.clone()]).to(loss.device)


def _gradients_of(parameters: Sequence[Tensor]) -> list[Tensor]:
    return [grad for parameter in parameters if (grad := parameter.grad) is not None]


def _any_nonfinite(tensors: Sequence[Tensor]) -> Tensor:
    """1.0 where any number of any tensor is inf or nan, in one operation."""
    if not tensors:
        return torch.zeros(())
    found, one = _found_and_one(tensors[0])
    try:  # the operation behind GradScaler.unscale_, with a scale of one
        torch._amp_foreach_non_finite_check_and_unscale_(tensors, found, one)
    except RuntimeError:  # not for sparse ones, nor for this mix of devices or dtypes
        for tensor in map(_numbers_of, tensors):
            found += (~torch.isfinite(tensor).all()).to(found)
        found.clamp_(max=1.0)
    return found


class _Here(threading.local):
    """On the CPU the flag is read at once, so each thread's serves again."""

    def __init__(self) -> None:
        self.found = torch.zeros((), device="cpu", dtype=torch.float32)
        self.one = torch.ones_like(self.found)


HERE = _Here()


def _found_and_one(grad: Tensor) -> tuple[Tensor, Tensor]:
    """A 0.0 to be set, and a 1.0, where the gradient is."""
    if not grad.is_cpu:
        return torch.zeros((), device=grad.device), _one(grad.device)
    if HERE.found.item():
        HERE.found.zero_()
    return HERE.found, HERE.one


@lru_cache
def _one(device: torch.device) -> Tensor:
    return torch.ones((), device=device)


def skips_by_itself(optimizer: Optimizer) -> bool:
    """Whether the optimizer's kernel can be made to skip the update without the loop waiting."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


def step_unless(optimizer: Optimizer, found: Tensor) -> None:
    """Make a fused optimizer step unless `found` is 1.0; the decision is made on the device."""
    optimizer.grad_scale, optimizer.found_inf = None, found
    try:
        optimizer.step()
    finally:
        del optimizer.grad_scale, optimizer.found_inf


def remember_buffers(model: nn.Module) -> list[KeptBuffer]:
    """Copy every buffer of a model: what a forward pass may change besides gradients."""
    return [
        KeptBuffer(module._buffers, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None and _can_be_written(buffer)
    ]


def _can_be_written(buffer: Tensor) -> bool:
    """Not a lazy one, which holds no numbers yet, nor one that only repeats itself (`expand`)."""
    if is_lazy(buffer) or buffer.layout != torch.strided:
        return False
    return not any(
        step == 0 and size > 1 for step, size in zip(buffer.stride(), buffer.shape, strict=True)
    )


def restore_buffers(kept: Sequence[KeptBuffer], found: bool | Tensor) -> None:
    """Undo what a window did to the buffers, if it was not finite.

    Args:
        kept: From `remember_buffers`, before the window's first forward.
        found: A bool, or a 0-d tensor with which the device decides without the loop waiting.
    """
    if found is False:
        return
    with torch.no_grad():
        for owner, name, buffer, copy in kept:
            if isinstance(found, Tensor):
                now = owner[name]
                copy = copy.where(found.to(now.device) > 0, now) if now is not None else copy
            buffer.copy_(copy)
            owner[name] = buffer  # a layer may have put a new tensor in its place


def first_nonfinite(model: nn.Module) -> str | None:
    """Name of the first parameter whose gradient contains inf or nan."""
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not torch.isfinite(_numbers_of(parameter.grad)).all():
            return name
    return None


def _numbers_of(grad: Tensor) -> Tensor:
    """All the numbers of a gradient; of a sparse one those that are there."""
    return grad._values() if grad.is_sparse else grad


def nonfinite_error(
    model: nn.Module, loss: Tensor, norm: Tensor | None, optimizer: str | None = None
) -> NonFiniteError:
    """Make the error that says what was not finite, and where it first appeared.

    Args:
        optimizer: Which of several was not stepped.
    """
    untaken = "step not taken, the weights are untouched"
    if optimizer is not None:
        untaken = f"the step of {optimizer!r} was not taken, its weights are untouched"
    seen = [f"loss {float(loss):.3g}"]
    if norm is not None:
        seen.append(f"gradient norm {float(norm):.3g}")
    if name := first_nonfinite(model):
        seen.append(f"first in the gradient of {name}")
    buffer = first_nonfinite_buffer(model)
    return NonFiniteError(
        f"{', '.join(seen)}: {untaken}. Look at this batch first "
        "(range, nan, all targets masked), then try a 10 times smaller lr."
        + (
            f" The forward pass left nan or inf in {buffer}: load the last checkpoint before you "
            "evaluate, or train with on_nonfinite='skip', which restores buffers."
            if buffer
            else ""
        )
    )


def first_nonfinite_buffer(model: nn.Module) -> str | None:
    """Name of the first buffer with nan, such as BatchNorm's running mean after a bad batch.

    An inf may be intended, as in an attention mask; a nan, or an inf in running statistics, is not.
    """
    for name, buffer in model.named_buffers():
        if is_lazy(buffer) or not buffer.is_floating_point():
            continue
        bad = ~torch.isfinite(buffer) if "running" in name else torch.isnan(buffer)
        if bad.any():
            return name
    return None
