"""Seeds: what they repeat, what they miss, and what exactness on a GPU costs."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.claims.lab import flat, interleaved, mlp, spirals
from course.claims.registry import claim
from course.claims.trial import Measured, needs_gpu, weigh


def set_seed(seed: int) -> None:
    """As the lecture has it: Python, NumPy, torch and every GPU."""
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
    evidence = {
        "weights of two runs differ by": gap,
        "model built before seeding: differ by": built_before,
        "on": device.type,
    }
    return weigh("weights of two runs differ by", evidence, stated=gap == 0)


@claim(
    "F103",
    title="set_seed covers all random number generators",
    expected="holds if",
    says="After set_seed every random draw of a run can be repeated.",
    condition="if nobody draws from numpy.random.default_rng(), which has a seed of its own",
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
    says="With deterministic=True and benchmark=False a GPU repeats its bits, 10 to 30 % slower.",
    gpu=True,
)
def cudnn_flags(seed: int, device: torch.device) -> Measured:
    def weights(steps: int = 5) -> Tensor:
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Conv2d(8, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.Flatten(), nn.LazyLinear(10)
        ).to(device)
        side = 32 if device.type == "cuda" else 8
        images = torch.randn(16, 8, side, side, device=device)
        model(images)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(model(images), torch.arange(16, device=device) % 10).backward()
            optimizer.step()
        return flat(model)

    def under(deterministic: bool) -> Tensor:
        with torch.backends.cudnn.flags(
            enabled=True, deterministic=deterministic, benchmark=not deterministic
        ):
            return weights()

    gap = (under(True) - under(True)).abs().max().item()
    evidence = {"weights of two runs differ by": gap, "on": device.type}
    if device.type != "cuda":
        note = "On the CPU the flags do nothing: bits repeat without them, at no cost."
        return needs_gpu("weights of two runs differ by", evidence, note)
    ratio = interleaved(lambda: under(True), lambda: under(False), warmup=3, device=device)
    free = (under(False) - under(False)).abs().max().item()
    evidence |= {
        "time, flags set / benchmark mode": ratio.median,
        "quartiles": ratio.as_list(),
        "without the flags runs differ by": free,
    }
    return weigh(
        "time, flags set / benchmark mode",
        evidence,
        stated=gap == 0 and 1.08 < ratio.median < 1.35,
        conditioned=gap == 0,
        note="Whether the bits repeat is one question, the cost another; both figures are above.",
    )
