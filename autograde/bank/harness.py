"""What several exercises build from a case: models from plain weights, batches, answers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from autograde.exercise import Draw

Batches = list[tuple[Tensor, Tensor]]


def draw_batches(
    draw: Draw, sizes: list[int], features: int, classes: int
) -> list[dict[str, Tensor]]:
    """Batches of inputs [B, features] and class indices [B] as plain data."""
    return [
        {"inputs": draw.normal(size, features), "targets": draw.integers(classes, size)}
        for size in sizes
    ]


def build_batches(plain: list[dict[str, Tensor]], device: torch.device) -> Batches:
    """The same as pairs on a device: a list can stand for a loader."""
    return [(batch["inputs"].to(device), batch["targets"].to(device)) for batch in plain]


def draw_state(draw: Draw, model: nn.Module) -> dict[str, Tensor]:
    """A state_dict of the model's shapes with drawn numbers; running variances are positive."""
    state = {}
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            drawn = draw.normal(*value.shape, scale=0.7)
            state[name] = drawn.abs() + 0.5 if name.endswith("running_var") else drawn
        else:
            state[name] = torch.zeros_like(value)
    return state


def load_state(model: nn.Module, state: dict[str, Tensor], device: torch.device) -> nn.Module:
    """The model with a case's weights, on a device."""
    model.load_state_dict(state)
    return model.to(device)


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """The model's state as an answer: on the CPU, cut from the graph."""
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


def modes_of(model: nn.Module) -> dict[str, bool]:
    """Which modules are in train mode, by name."""
    return {name or "model": module.training for name, module in model.named_modules()}
