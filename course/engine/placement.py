"""Placement: which device, and how a batch gets there without the loop waiting for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from course.engine.errors import EngineError
from course.engine.window import Batch


def choose_device(device: torch.device | str) -> torch.device:
    """`"auto"` is the accelerator where there is one, else the CPU."""
    if device != "auto":
        return torch.device(device)
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def device_of(model: nn.Module) -> torch.device:
    """Where the model's first parameter or buffer lies; CPU for a model without any."""
    tensor = next(model.parameters(), None)
    if tensor is None:
        tensor = next(model.buffers(), None)
    return tensor.device if tensor is not None else torch.device("cpu")


def check_device(model: nn.Module, device: torch.device | str | None) -> torch.device:
    """The device to train on; the model must be there already."""
    here = device_of(model)
    if device is None:
        return here
    device = torch.device(device)
    if device.type != here.type or (device.index or 0) != (here.index or 0):
        raise EngineError(
            f"the model is on {here} and device = {device}. "
            f"Move it first: model.to({str(device)!r})."
        )
    return device


def move_training_(
    model: nn.Module, criterion: Any, optimizer: Optimizer, device: torch.device
) -> None:
    """Move model, criterion and the optimizer's state to `device`, keeping every object."""
    try:
        model.to(device)
    except (NotImplementedError, RuntimeError) as error:
        raise EngineError(
            f"the model (on {device_of(model)}) cannot go to {device}: {error} "
            "Build it on a real device, or choose another device."
        ) from error
    if isinstance(criterion, nn.Module):
        criterion.to(device)
    if optimizer.state:
        optimizer.load_state_dict(optimizer.state_dict())  # casts the state to its parameters


def to_device(loader: Iterable[Batch], device: torch.device) -> Iterator[Batch]:
    """The loader's batches on `device`."""
    for batch in loader:
        yield move(as_pair(batch), device)


def as_pair(batch: Any) -> Batch:
    """The batch as (inputs, targets)."""
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise EngineError(
            f"a batch is a {type(batch).__name__}"
            + (f" of {len(batch)}" if hasattr(batch, "__len__") else "")
            + ", expected a pair (inputs, targets). Let the dataset or collate_fn return pairs."
        )
    return batch


def move(value: Any, device: torch.device) -> Any:
    """`value` with every tensor in it on `device`; pinned memory is copied without waiting."""
    if isinstance(value, Tensor):
        return value if value.device == device else value.to(device, non_blocking=True)
    if isinstance(value, Mapping):
        return {key: move(item, device) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        moved = [move(item, device) for item in value]
        return type(value)(*moved) if hasattr(value, "_fields") else type(value)(moved)
    return value
