"""The range test on digits, and next to it the truth: the loss after training with each rate.

The sweep is `course.lr_finder.lr_find` with the lecture's rule. The network is also trained with
each of thirteen rates, from the same weights on the same batches, which is what the sweep should
predict.

Source: Lecture 3, "The learning-rate finder"; ledger S18, N22.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from statistics import mean
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from course.data import InMemoryLoader, load
from course.lr_finder import LRCurve, lr_find
from course.widgets.base.settings import Checked, choice, decades, slider
from course.worked.seeded import seeded

RATES = decades(1e-5, 10)
START, END, SWEPT = 1e-6, 10.0, 100
"""Range of the sweep, and its number of updates."""
UPDATES, TAIL = 40, 5
"""Updates with one rate, and how many of the last ones are averaged."""
HARDLY = 0.9
"""Ratio of final to first loss above which hardly anything was learned."""
JUMPED = 1.5
"""Ratio of highest to first loss above which the steps were too large, not too small."""
MEMORY = 0.9
"""Smoothing by which a sweep decides to stop, whatever smoothing is drawn."""


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """The sweep, how it is smoothed, and the rate to train with."""

    optimizer: str = choice("SGD", ("SGD", "Adam"), "optimizer")
    batch_size: int = choice(64, (16, 64), "batch size", unit="examples")
    sweeps: int = choice(
        1, (1, 3), "sweeps", names=("1, as in the lecture", "3, their median"),
        hint="each from the same weights, on other batches",
    )  # fmt: skip
    smoothing: float = slider(0.9, (0.0, 0.5, 0.9, 0.98), "smoothing", hint="weight of the past")
    rate: float = slider(0.1, RATES, "train with rate")
    seed: int = slider(0, (0, 1), "seed")


def frame(settings: Settings) -> dict[str, Any]:
    """The sweep and its suggestion, the loss each rate reaches, and the chosen rate's run."""
    about = (settings.optimizer, settings.batch_size, settings.seed)
    curve = replace(sweep(*about, settings.sweeps), smoothing=settings.smoothing)
    smoothed, found = curve.smoothed, curve.suggest("decade")
    worth = [_end(trained(*about, rate)) for rate in RATES]
    losses = trained(*about, settings.rate)
    best = min(RATES, key=lambda rate: _end(trained(*about, rate)))
    return {
        "lrs": list(curve.lrs),
        "losses": list(curve.losses),
        "smoothed": smoothed,
        "lowest": curve.lrs[smoothed.index(min(smoothed))],
        "suggestion": math.nan if found.lr is None else found.lr,
        "reason": found.reason,
        "stopped": curve.stopped,
        "rates": list(RATES),
        "worth": worth,
        "best": best,
        "start": losses[0],
        "run": losses,
        "best_run": trained(*about, best),
        "end": _end(losses),
        "zone": zone(losses),
    }


@cache
def _parts() -> tuple[torch.Tensor, torch.Tensor]:
    data = load("digits", seed=0)
    return data.train_inputs.flatten(1), data.train_targets


def _made(optimizer: str, batch_size: int, seed: int, rate: float) -> tuple[Any, ...]:
    """A fresh network with its optimizer and loader."""
    with seeded(seed):
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    kind = {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam}[optimizer]
    loader = InMemoryLoader(*_parts(), batch_size=batch_size, shuffle=True, seed=seed)
    return model, kind(model.parameters(), lr=rate), loader


@cache
def sweep(optimizer: str, batch_size: int, seed: int, sweeps: int) -> LRCurve:
    """The range test with the lecture's rule."""
    model, made, loader = _made(optimizer, batch_size, seed, START)
    return lr_find(
        model, nn.CrossEntropyLoss(), made, loader, start=START, end=END, steps=SWEPT,
        sweeps=sweeps, hold=1, smoothing=MEMORY, rule="decade", progress=False,
    )  # fmt: skip


@cache
def trained(optimizer: str, batch_size: int, seed: int, rate: float) -> list[float]:
    """Losses of `UPDATES` updates with one rate; they end at the first inf or nan."""
    model, made, loader = _made(optimizer, batch_size, seed, rate)
    losses: list[float] = []
    while True:
        for inputs, targets in loader:
            made.zero_grad()
            loss = F.cross_entropy(model(inputs), targets)
            losses.append(loss.item())
            if len(losses) == UPDATES or not math.isfinite(losses[-1]):
                return losses
            loss.backward()
            made.step()


def _end(losses: list[float]) -> float:
    return mean(losses[-TAIL:]) if math.isfinite(losses[-1]) else math.inf


def zone(losses: list[float]) -> str:
    """What a run says about its rate."""
    if _end(losses) <= HARDLY * losses[0]:
        return "learns"
    highest = max(losses) if math.isfinite(losses[-1]) else math.inf
    return "rate too large" if highest > JUMPED * losses[0] else "rate too small"


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """The suggestion, the best rate tried, and the result with the chosen one."""
    suggestion = float(frame["suggestion"])
    told = "The sweep suggests nothing" if math.isnan(suggestion) else (
        f"The sweep suggests {suggestion:.2g}"
    )  # fmt: skip
    return (
        f"{told}; of the rates tried, {float(frame['best']):g} ends with the lowest loss. With "
        f"{settings.rate:g} the loss goes from {float(frame['start']):.3g} to "
        f"{float(frame['end']):.3g} in {len(frame['run'])} updates: {frame['zone']}."
    )
