"""Seeds: what they make repeatable, what they miss, and the cost of exactness on a GPU."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.claims.lab import flat, interleaved, mlp, spirals
from course.claims.registry import claim
from course.claims.settings import CONV, DIABETES
from course.claims.trial import Measured, needs_gpu, weigh, weigh_settings


def set_seed(seed: int) -> None:
    """As in the lecture: seed Python, NumPy, torch and every GPU."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


@claim(
    "F102",
    title="The same seed gives the same result",
    expected="holds",
    says="Two runs under the same seed give the same result.",
    gpu=True,
)
def same_seed_same_result(seed: int, device: torch.device) -> Measured:
    inputs, targets = (t.to(device) for t in spirals(seed)[:2])

    def weights(*, seed_first: bool = True) -> Tensor:
        if seed_first:
            set_seed(seed)
        model = mlp(2, 32, 32, 3, dropout=0.1).to(device)
        if not seed_first:
            set_seed(seed)
        for rows in torch.arange(480, device=device).split(32):
            loss = F.cross_entropy(model(inputs[rows]), targets[rows])
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
        return flat(model)

    gap = (weights() - weights()).abs().max().item()
    built_before = (weights(seed_first=False) - weights()).abs().max().item()
    held = {"MLP 2-32-32-3 with dropout on spirals, cross-entropy, plain steps": gap == 0}
    apart = {}
    for one in (CONV.but(steps=30), DIABETES.but(steps=30)):
        first, again, other = (flat(one.train(s).model) for s in (seed, seed, seed + 1))
        apart[one.data] = [(first - run).abs().max().item() for run in (again, other)]
        held[one] = apart[one.data][0] == 0 < apart[one.data][1]
    evidence = {
        "weights of two runs differ by": gap,
        "of two more networks, with the same seed and with another": apart,
        "if the model is built before seeding: differ by": built_before,
        "on": device.type,
    }
    return weigh_settings(
        "weights of two runs differ by",
        evidence,
        held,
        criterion="the weights of two runs are equal in every bit",
    )


@claim(
    "F103",
    title="set_seed covers all random number generators",
    expected="holds if",
    says="After set_seed every random draw of a run is repeatable.",
    condition="if nothing draws from numpy.random.default_rng(), which has its own seed",
)
def set_seed_covers_all(seed: int) -> Measured:
    def draws() -> dict[str, float]:
        set_seed(seed)
        return {
            "random": random.random(),
            "numpy.random": float(np.random.rand()),
            "torch": torch.rand(()).item(),
            "numpy default_rng()": float(np.random.default_rng().random()),
        }

    first, again = draws(), draws()
    repeated = {name: first[name] == again[name] for name in first}
    evidence = {"generators repeated, of 4": sum(repeated.values()), "repeated": repeated}
    return weigh(
        "generators repeated, of 4",
        evidence,
        stated=all(repeated.values()),
        conditioned=all(same for name, same in repeated.items() if "default_rng" not in name),
    )


@claim(
    "F104",
    title="The cuDNN flags give the same bits, at a cost of 10 to 30 %",
    expected="needs GPU",
    says="With deterministic=True and benchmark=False a GPU gives the same bits again, 10 to 30 % "
    "slower.",
    gpu=True,
)
def cudnn_flags(seed: int, device: torch.device) -> Measured:
    gaps, free, times, held = {}, {}, {}, {}
    for name in _CUDNN_NETS:
        with _cudnn(deterministic=True):
            gaps[name] = _repeats(name, seed, device)
        with _cudnn(deterministic=False):
            free[name] = _repeats(name, seed, device)
        held[f"{name}: the bits repeat"] = gaps[name] == 0
        if _has_flags(device):
            times[name] = _slower(name, seed, device)
            held[f"{name}: 10 to 30 % slower"] = 1.08 < times[name][1] < 1.35
    evidence = {
        "weights of two runs differ by": max(gaps.values()),
        "without the flags by": free,
        "on": device.type,
    }
    if not _has_flags(device):
        note = "On the CPU the flags have no effect: bits repeat without them, at no cost."
        return needs_gpu("weights of two runs differ by", evidence, note)
    evidence["time, flags set / benchmark mode: quartiles and median"] = times
    return weigh_settings(
        "weights of two runs differ by",
        evidence,
        held,
        criterion="two runs give equal weights, or the median time is 1.08 to 1.35 times that of "
        "benchmark mode",
        note="Whether the bits repeat is one question, the cost another.",
    )


_CUDNN_NETS = {
    "2 convolutions, SGD": (8, 32, torch.optim.SGD),
    "3 convolutions and BatchNorm, Adam": (32, 64, torch.optim.Adam),
}
"""Number of input channels and of hidden channels, and the optimizer."""


def _has_flags(device: torch.device) -> bool:
    """Whether cuDNN computes on this device."""
    return device.type == "cuda"


def _cudnn(*, deterministic: bool) -> AbstractContextManager[None]:
    """The lecture's two flags, or benchmark mode."""
    return torch.backends.cudnn.flags(
        enabled=True, deterministic=deterministic, benchmark=not deterministic
    )


def _cudnn_trainer(
    name: str, seed: int, device: torch.device
) -> tuple[nn.Module, Callable[[], None]]:
    """A fresh network and a function that takes five steps with it, both from the seed."""
    channels, width, optimizer_type = _CUDNN_NETS[name]
    torch.manual_seed(seed)
    middle = [nn.Conv2d(width, width, 3), nn.BatchNorm2d(width)] if "BatchNorm" in name else []
    layers = [nn.Conv2d(channels, width, 3), nn.ReLU(), *middle, nn.Conv2d(width, width, 3)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * width, 10))
    model = model.to(device)
    side = 64 if device.type == "cuda" else 10
    images = torch.randn(16, channels, side, side, device=device)
    targets = torch.arange(16, device=device) % 10
    optimizer = optimizer_type(model.parameters(), lr=0.01)

    def train() -> None:
        for _ in range(5):
            optimizer.zero_grad()
            F.cross_entropy(model(images), targets).backward()
            optimizer.step()

    return model, train


def _repeats(name: str, seed: int, device: torch.device) -> float:
    """The largest difference between a weight in one run and the same weight in the next."""
    ends = []
    for _ in range(2):
        model, train = _cudnn_trainer(name, seed, device)
        train()
        ends.append(flat(model))
    return (ends[0] - ends[1]).abs().max().item()


def _slower(name: str, seed: int, device: torch.device) -> list[float]:
    """Quartiles of the time of five steps with the flags over the time in benchmark mode."""
    trained = {}
    for deterministic in (True, False):
        _, train = _cudnn_trainer(name, seed, device)

        def timed(train=train, deterministic=deterministic) -> None:
            with _cudnn(deterministic=deterministic):
                train()

        trained[deterministic] = timed
    return interleaved(trained[True], trained[False], warmup=3, device=device).as_list()
