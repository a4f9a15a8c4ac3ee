"""Two copies of one network, one in train and one in eval mode, given the same input many times.

Example 0 is the same in every forward pass; the other examples of its batch are new each time. The
train copy draws a new dropout mask, normalises by the batch, and updates its running statistics;
the eval copy does none of this. The bytes that autograd keeps for backward are counted in both
modes, with and without no_grad.

Source: Training-loop chapter, c4; ledger S05, N12, N39, N61, F22-F25, F46.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from course.claims.lab import saved_bytes
from course.widgets.base.settings import Checked, slider, steps, toggle

PASSES = 12
FEATURES, UNITS = 4, 8
CENTRE = 2.0
"""Mean of the inputs, far from the 0 at which running statistics start."""
UNIT = 0
"""The unit whose running mean is drawn."""
WARM_PASSES = 100
"""Earlier forward passes in train mode of a settled network: 0.9 ** 100 is almost 0."""


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """The number of forward passes, and the parts of the network."""

    passes: int = slider(6, steps(1, PASSES, 1), "forward passes")
    p: float = slider(0.5, (0.0, 0.2, 0.5, 0.8), "dropout p")
    batch_size: int = slider(8, (2, 8, 32, 128), "batch size", unit="examples")
    warm: bool = toggle(False, "running statistics settled", hint="after 100 earlier batches")
    no_grad: bool = toggle(False, "torch.no_grad()")


def frame(settings: Settings) -> dict[str, Any]:
    """Activations and outputs of both copies per pass, their statistics, and bytes kept."""
    model = _network(settings.p, settings.warm)
    copies = {"train": deepcopy(model).train(), "eval": deepcopy(model).eval()}
    about = (settings.passes, settings.batch_size, settings.no_grad)
    kept = _kept(settings.p, settings.batch_size)
    return {
        "modes": {mode: _asked(copy, *about) for mode, copy in copies.items()},
        "unit": UNIT,
        "centre": _centre(model),
        "kept": kept,
        "now": {mode: kept[mode]["no_grad" if settings.no_grad else "grad"] for mode in copies},
    }


class Network(nn.Module):
    """Linear, BatchNorm, tanh, dropout, linear: layers with two modes and layers without."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, UNITS)
        self.norm = nn.BatchNorm1d(UNITS)
        self.dropout = nn.Dropout(p)
        self.head = nn.Linear(UNITS, 1)

    def hidden(self, inputs: Tensor) -> Tensor:
        return self.dropout(torch.tanh(self.norm(self.linear(inputs))))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.hidden(inputs))


def batch(number: int, batch_size: int) -> Tensor:
    """The inputs [B, 4] of a forward pass: example 0 is always the same, its neighbours are new."""
    first = torch.randn(1, FEATURES, generator=torch.Generator().manual_seed(7))
    drawn = torch.Generator().manual_seed(1000 + number)
    return CENTRE + torch.cat([first, torch.randn(batch_size - 1, FEATURES, generator=drawn)])


@lru_cache
def _network(p: float, warm: bool) -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(5)
        model = Network(p)
        if warm:
            for number in range(WARM_PASSES):
                model.hidden(batch(-1 - number, 128))
    return model


def _asked(model: Network, passes: int, batch_size: int, no_grad: bool) -> dict[str, Any]:
    """Run one copy again and again: example 0's units and output, and the running mean."""
    units, dropped, outputs = [], [], []
    means = [model.norm.running_mean[UNIT].item()]
    seen: list[Tensor] = []
    model.dropout.register_forward_hook(lambda layer, args, out: seen.append((args[0], out)))
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(not no_grad):
        for number in range(passes):
            torch.default_generator.manual_seed(100 + number)
            outputs.append(model(batch(number, batch_size))[0].item())
            before, after = (tensor[0].detach() for tensor in seen.pop())
            units.append(after.tolist())
            dropped.append(((before != 0) & (after == 0)).int().tolist())
            means.append(model.norm.running_mean[UNIT].item())
    return {
        "units": units,
        "dropped": dropped,
        "outputs": outputs,
        "means": means,
        "moved": abs(means[-1] - means[0]),
        "spread": max(outputs) - min(outputs),
        "different": len(set(outputs)),
    }


def _centre(model: Network) -> float:
    """What the unit's running mean approaches: its mean over all possible inputs."""
    with torch.no_grad():
        inputs = torch.full((1, FEATURES), CENTRE)
        return model.linear(inputs)[0, UNIT].item()


@lru_cache
def _kept(p: float, batch_size: int) -> dict[str, dict[str, int]]:
    """Bytes that autograd keeps for backward, by mode, with and without a graph."""
    found: dict[str, dict[str, int]] = {}
    for mode in ("train", "eval"):
        model = deepcopy(_network(p, True)).train(mode == "train")
        own = [*model.parameters(), *model.buffers()]
        found[mode] = {}
        for name, on in (("grad", True), ("no_grad", False)):
            inputs = batch(0, batch_size)
            with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(on):
                found[mode][name] = saved_bytes(lambda m=model, x=inputs: m(x), without=own)
    return found


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """How many different outputs each mode gave, and what is kept."""
    train, calm = (frame["modes"][mode]["different"] for mode in ("train", "eval"))
    now = frame["now"]
    passes = "1 forward pass" if settings.passes == 1 else f"{settings.passes} forward passes"
    return (
        f"Different outputs for the same example in {passes}: {train} in train mode, {calm} in "
        f"eval mode. Kept for backward: {now['train']:,} and {now['eval']:,} bytes."
    )
