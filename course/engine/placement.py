"""Placement: which device to use, and how a batch gets there without the loop waiting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from course.engine.errors import DeviceError, EngineError
from course.engine.window import Batch, as_pair
from course.state import moved


def choose_device(device: torch.device | str = "auto") -> torch.device:
    """Choose a device that torch can compute on here.

    An accelerator is detected without initialising it, so that processes forked later can use it.

    Args:
        device: `cpu`, `cuda`, `cuda:1`, any other that torch knows, or `auto`: the accelerator if
            there is one, else the CPU.

    Raises:
        DeviceError: torch does not know it, or cannot compute there on this machine.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if device == "auto":
        return accelerator or torch.device("cpu")
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError):
        raise DeviceError(f"'{device}' is not a device. Use auto, cpu, cuda, or cuda:1.") from None
    if accelerator is not None and device.type == accelerator.type:
        if (count := torch.accelerator.device_count()) <= (device.index or 0):
            raise DeviceError(
                f"device '{device}': this machine has {count}, numbered from {device.type}:0. Use "
                "one of them, or auto."
            )
    elif device.type != "cpu":
        _try(device, accelerator)
    return device


def same_device(one: torch.device, other: torch.device) -> bool:
    """Whether both are the same; `cuda` without a number is the current one of that type."""
    if one == other or one.type != other.type or None not in (one.index, other.index):
        return one == other
    current = torch.accelerator.current_device_index()
    return (current if one.index is None else one.index) == (
        current if other.index is None else other.index
    )


def widest_float(device: torch.device) -> torch.dtype:
    """The type in which a device's numbers are summed: float64, which Apple's GPUs do not have."""
    return torch.float32 if device.type == "mps" else torch.float64


def _try(device: torch.device, accelerator: torch.device | None) -> None:
    """Compute on a device that `torch.accelerator` does not count, e.g. XLA, or that is not there.

    Raises:
        DeviceError: torch refuses.
    """
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as fault:
        why = str(fault).splitlines()[0].partition(". ")[0].rstrip(".")
        has = f"{accelerator.type} and the CPU" if accelerator else "only the CPU"
        raise DeviceError(
            f"device '{device}': this torch ({torch.__version__}) cannot compute there ({why}). "
            f"This machine has {has}. Use auto or cpu."
        ) from fault


def device_of(model: nn.Module) -> torch.device:
    """The device of the model's first parameter or buffer; CPU for a model without any."""
    tensor = next(model.parameters(), None)
    if tensor is None:
        tensor = next(model.buffers(), None)
    return tensor.device if tensor is not None else torch.device("cpu")


def check_device(model: nn.Module, device: torch.device | str | None) -> torch.device:
    """The device to train on; the model must already be there."""
    here = device_of(model)
    if device is None:
        return here
    device = torch.device(device)
    if device.type != here.type or (device.index or 0) != (here.index or 0):
        raise EngineError(
            f"the model is on {here}, but device = {device}. Move it first: "
            f"model.to({str(device)!r})."
        )
    return device


def move_training_(
    model: nn.Module, criterion: Any, optimizer: Optimizer, device: torch.device
) -> None:
    """Move model, criterion and the optimizer's state to `device`, keeping every object.

    If `.to()` makes new parameters (on XLA and other backends whose tensors cannot replace a CPU
    tensor in place), the optimizer gets the new ones: otherwise it would keep moving the old ones,
    and nothing would be trained.
    """
    before = _parameters(model, criterion)
    try:
        model.to(device)
    except (NotImplementedError, RuntimeError) as error:
        raise EngineError(
            f"the model (on {device_of(model)}) cannot go to {device}: {error} "
            "Build it on a real device, or choose another device."
        ) from error
    if isinstance(criterion, nn.Module):
        criterion.to(device)
    _hand_over_(optimizer, before, _parameters(model, criterion))
    if optimizer.state:
        optimizer.load_state_dict(optimizer.state_dict())  # casts the state to its parameters


def to_device(loader: Iterable[Batch], device: torch.device) -> Iterator[Batch]:
    """The loader's batches, pairs of inputs and targets, on `device`."""
    for batch in loader:
        yield moved(as_pair(batch), device)


def _parameters(*parts: Any) -> list[nn.Parameter]:
    modules = [part for part in parts if isinstance(part, nn.Module)]
    return [parameter for module in modules for parameter in module.parameters()]


def _hand_over_(
    optimizer: Optimizer, before: list[nn.Parameter], after: list[nn.Parameter]
) -> None:
    """Put the parameters after a move in the place of those before it."""
    new = {old: now for old, now in zip(before, after, strict=True) if old is not now}
    if not new:
        return
    for group in optimizer.param_groups:
        group["params"] = [new.get(parameter, parameter) for parameter in group["params"]]
    for old, now in new.items():
        if old in optimizer.state:
            optimizer.state[now] = optimizer.state.pop(old)
