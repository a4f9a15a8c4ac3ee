"""Two schedules on the same axes: the rate at every update, and the resulting runs.

Each schedule is a real scheduler (`course.engine.schedules`, or torch's own) on a real optimizer,
and the rates are read from the optimizer as the run goes: a small network on handwritten digits,
SGD with momentum, the same start and batches for both. A scheduler counts its own calls; the second
one may be given its length in one unit and stepped in another.

Source: Lecture 3, "Learning-rate schedules"; essay on the annotated loop, operation 8; ledger
N26-N29, F59-F63, F76, B24.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler, PolynomialLR

from course.claims.lab import digits, mlp
from course.engine.schedules import one_cycle, step_decay, warmup_cosine
from course.widgets.base.settings import Checked, choice, slider

UPDATES_PER_EPOCH = 20
BATCH_SIZE = 32
WARMUP_SHARE = 0.1
STEP_SHARE = 0.6
"""From here on the step schedule uses a tenth of the rate."""

Make = Callable[[torch.optim.Optimizer, int], LRScheduler]
SCHEDULES: dict[str, Make] = {
    "constant": lambda opt, total: LambdaLR(opt, lambda step: 1.0),
    "step": lambda opt, total: step_decay(opt, every=round(STEP_SHARE * total)),
    "linear": lambda opt, total: PolynomialLR(opt, total_iters=total),
    "cosine": lambda opt, total: CosineAnnealingLR(opt, T_max=total),
    "warm-up, cosine": lambda opt, total: warmup_cosine(
        opt, warmup=max(1, round(WARMUP_SHARE * total)), total=total
    ),
    "one cycle": lambda opt, total: one_cycle(opt, max_lr=_lr(opt), total=total),
}
UNITS = {
    "updates": ("update", "update"),
    "epochs": ("epoch", "epoch"),
    "too often": ("epoch", "update"),
    "too rarely": ("update", "epoch"),
}
"""The unit in which the length is given, and how often the scheduler is stepped."""


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """Two schedules, their highest rate, and the length of the run."""

    first: str = choice("constant", tuple(SCHEDULES), "first")
    second: str = choice("cosine", tuple(SCHEDULES), "second")
    unit: str = choice(
        "updates",
        tuple(UNITS),
        "second: length, stepped",
        names=(
            "updates, per update",
            "epochs, per epoch",
            "epochs, per update",
            "updates, per epoch",
        ),
    )
    lr: float = slider(0.3, (0.01, 0.03, 0.1, 0.3), "highest rate")
    epochs: int = choice(10, (5, 10), "run", unit=f"epochs of {UPDATES_PER_EPOCH} updates")


def frame(settings: Settings) -> dict[str, Any]:
    """For both schedules, the rates of all updates, losses by epoch, and a summary."""
    first = _run(settings.first, "updates", settings.lr, settings.epochs)
    second = _run(settings.second, settings.unit, settings.lr, settings.epochs)
    return {"runs": [first, second], "updates": settings.epochs * UPDATES_PER_EPOCH}


@lru_cache(maxsize=1024)
def _run(schedule: str, unit: str, lr: float, epochs: int) -> dict[str, Any]:
    """A whole run: the optimizer's rate at each update, and the mean loss per epoch."""
    inputs, targets, val_inputs, val_targets = digits(0)
    model = mlp(64, 32, 10, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    given, per = UNITS[unit]
    length = epochs * (UPDATES_PER_EPOCH if given == "update" else 1)
    scheduler, stopped = SCHEDULES[schedule](optimizer, length), ""
    order = torch.Generator().manual_seed(0)
    rates, losses = [], []
    for update in range(epochs * UPDATES_PER_EPOCH):
        rows = torch.randint(len(targets), (BATCH_SIZE,), generator=order)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs[rows]), targets[rows])
        loss.backward()
        optimizer.step()
        rates.append(_lr(optimizer))
        losses.append(loss.item())
        if per == "update" or (update + 1) % UPDATES_PER_EPOCH == 0:
            stopped = _step(scheduler)
            if stopped:
                break
    with torch.no_grad():
        hits = (model(val_inputs).argmax(dim=1) == val_targets).float().mean().item()
    return {
        "name": schedule,
        "length": length,
        "calls": epochs * (UPDATES_PER_EPOCH if per == "update" else 1),
        "rates": rates,
        "losses": _by_epoch(losses),
        "share": sum(rates) / (lr * epochs * UPDATES_PER_EPOCH),
        "accuracy": hits,
        "stopped": stopped,
    }


def _lr(optimizer: torch.optim.Optimizer) -> float:
    return optimizer.param_groups[0]["lr"]


def _step(scheduler: LRScheduler) -> str:
    """Step it, and return the error it raises past its end: one cycle has no rate there."""
    try:
        scheduler.step()
    except ValueError as fault:
        return f"ValueError: {fault}"
    return ""


def _by_epoch(losses: list[float]) -> list[float]:
    parts = [losses[at : at + UPDATES_PER_EPOCH] for at in range(0, len(losses), UPDATES_PER_EPOCH)]
    return [sum(part) / len(part) for part in parts]


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """How both runs end."""
    told = []
    for run in frame["runs"]:
        rate, loss = (float(run[key][-1]) for key in ("rates", "losses"))
        ends = "is stopped by an error" if run["stopped"] else "ends"
        told.append(f"{run['name']} {ends} at rate {rate:.2g}, loss {loss:.3g}")
    return ("; ".join(told) + ".").replace("e-0", "e-")
