"""What chapter 3h's scripts to fix share: small nets, batches, optimizers, and how they are paid.

Each script runs without an error and has one bug. `paid` makes its parts: what the bug spoils, all
that the script reports and leaves behind (in a hidden check), and the same with few lines changed.
The bug shows in every case of every part, so a script that still has it earns nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from autograde.bank.harness import build_optimizer
from autograde.exercise import Draw, Part

OPTIMIZERS = ("momentum", "adam", "groups")


def paid(title: str, fields: tuple[str, ...], all_fields: tuple[str, ...], most: int):
    """The three parts of a script: what the bug spoils, the whole, the whole with few lines."""
    return (
        Part("core", title, points=1, fields=fields),
        Part("whole", "all that it reports and leaves behind", points=1, hidden=True,
             fields=(*all_fields, "disturbed")),
        Part("little", f"the same, with at most {most} lines changed", points=1,
             fields=(*all_fields, "changed")),
    )  # fmt: skip


def draw_net(source: Draw, widths: Sequence[int]) -> list[list[Tensor]]:
    """Weights and biases of linear layers, as plain data."""
    return [
        [source.normal(wide, fan_in, scale=0.6), source.normal(wide, scale=0.3)]
        for fan_in, wide in pairwise(widths)
    ]


def build_net(layers: list[list[Tensor]], device: torch.device, *between: nn.Module) -> nn.Module:
    """Linear layers with these weights, tanh (and modules) between them."""
    built: list[nn.Module] = []
    for weight, bias in layers:
        linear = nn.Linear(*weight.T.shape, device=device)
        linear.weight.data.copy_(weight)
        linear.bias.data.copy_(bias)
        built += [linear, nn.Tanh(), *between]
    return nn.Sequential(*built[: -1 - len(between)])


def draw_optimizer(source: Draw) -> dict[str, Any]:
    """A kind, another for the next case, and a rate."""
    return {"kind": OPTIMIZERS[source.index % len(OPTIMIZERS)], "lr": source.uniform(0.05, 0.2)}


def made(about: dict[str, Any], model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer that a case says."""
    return build_optimizer(about["kind"], model, about["lr"])


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Weights and buffers as an answer."""
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


def sent(pairs: list, device: torch.device) -> list[tuple[Tensor, ...]]:
    """Batches on the device."""
    return [tuple(tensor.to(device) for tensor in pair) for pair in pairs]
