"""Two of torch's optimizers on the same loss of two weights: their paths, update by update.

Every update is `backward()` and the optimizer's own `step()`, in float64. The random noise is the
same for both, and is scaled with the loss, like the noise of a mini-batch.

Source: training-loop essay, "The weight update"; ledger T17, F64, F149.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, optim

from course.widgets.base.frames import as_bytes
from course.widgets.base.settings import Checked, choice, slider, steps
from course.widgets.race.surfaces import SURFACES

UPDATES = 100
THERE = 0.01
"""A racer has arrived when its loss is, and stays, below this share of its first loss."""
LOST = 1e6
"""A weight beyond this has diverged."""
GRID = (60, 40)
"""Columns and rows of the picture of the surface."""
RATES = (0.001, 0.003, 0.01, 0.03, 0.07, 0.1, 0.3, 1.0)

Make = Callable[..., optim.Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "SGD": optim.SGD,
    "momentum": partial(optim.SGD, momentum=0.9),
    "Nesterov": partial(optim.SGD, momentum=0.9, nesterov=True),
    "RMSprop": optim.RMSprop,
    "Adam": optim.Adam,
}


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """The surface, two racers, and how far the race has got."""

    surface: str = choice("valley", tuple(SURFACES), "surface")
    first: str = choice("SGD", tuple(OPTIMIZERS), "first")
    first_lr: float = slider(0.01, RATES, "first's rate")
    second: str = choice("momentum", tuple(OPTIMIZERS), "second")
    second_lr: float = slider(0.01, RATES, "second's rate")
    times: float = choice(1.0, (0.01, 1.0, 100.0), "loss times", names=("0.01", "1", "100"))
    noise: float = choice(0.0, (0.0, 3.0), "gradient noise", names=("none", "like a mini-batch's"))
    update: int = slider(40, steps(0, UPDATES, 5), "update")


def frame(settings: Settings) -> dict[str, Any]:
    """Both complete paths, and where each racer is at the chosen update."""
    about = settings.surface, settings.times, settings.noise
    first = run(settings.first, settings.first_lr, *about)
    second = run(settings.second, settings.second_lr, *about)
    return {
        "surface": picture_of(settings.surface),
        "first": first,
        "second": second,
        "updates": UPDATES,
        "at": [_standing(path, settings.update) for path in (first, second)],
    }


@lru_cache(maxsize=1024)
def run(
    name: str, lr: float, surface: str = "valley", times: float = 1.0, noise: float = 0.0
) -> dict[str, Any]:
    """One racer's path, with one entry more than updates; it ends early if the weights diverge.

    Args:
        name: A key of `OPTIMIZERS`.
        lr: Learning rate.
        surface: A key of `SURFACES`.
        times: Factor of loss and noise.
        noise: Standard deviation of the noise added to each gradient.
    """
    about = SURFACES[surface]
    weights = torch.tensor(about.start, dtype=torch.float64, requires_grad=True)
    optimizer = OPTIMIZERS[name]([weights], lr=lr)
    draws = torch.Generator().manual_seed(0)
    xs, ys, losses = [about.start[0]], [about.start[1]], [about.loss(*weights).item()]
    for _ in range(UPDATES):
        optimizer.zero_grad()
        (times * about.loss(*weights)).backward()
        weights.grad += times * noise * torch.randn(2, generator=draws, dtype=torch.float64)
        optimizer.step()
        x, y = weights.tolist()
        if not max(abs(x), abs(y)) < LOST:
            break
        xs.append(x), ys.append(y), losses.append(about.loss(*weights).item())
    return {"name": name, "lr": lr, "x": xs, "y": ys, "losses": losses, "there": _there(losses)}


def _there(losses: list[float]) -> int | None:
    """The update from which the loss stays below a hundredth of the first; None: never."""
    if len(losses) <= UPDATES:
        return None
    above = [update for update, loss in enumerate(losses) if loss > THERE * losses[0]]
    return above[-1] + 1 if above[-1] < UPDATES else None


def _standing(path: dict[str, Any], update: int) -> dict[str, Any]:
    """Where a racer is, and its last step."""
    last = min(update, len(path["x"]) - 1)
    before = max(0, last - 1)
    moved = math.hypot(path["x"][last] - path["x"][before], path["y"][last] - path["y"][before])
    return {
        "x": path["x"][last],
        "y": path["y"][last],
        "loss": path["losses"][last],
        "step": moved,
        "lost": last < update,
        "updates": last,
    }


@lru_cache
def picture_of(surface: str) -> dict[str, Any]:
    """The surface's heights on a grid, row by row from the top: log10 of the loss as 0 to 255."""
    about = SURFACES[surface]
    left, right, bottom, top = about.box
    columns, rows = GRID
    x = _middles(left, right, columns)[None, :]
    y = _middles(bottom, top, rows).flip(0)[:, None]
    heights = about.loss(x, y).expand(rows, columns).clamp(min=1e-4).log10()
    low, high = heights.min(), heights.max()
    return {
        "box": list(about.box),
        "columns": columns,
        "minima": [list(one) for one in about.minima],
        "heights": as_bytes((255 * (heights - low) / (high - low)).to(torch.uint8)),
    }


def _middles(low: float, high: float, count: int) -> Tensor:
    edges = torch.linspace(low, high, count + 1, dtype=torch.float64)
    return (edges[1:] + edges[:-1]) / 2


def says(settings: Settings, frame: dict[str, Any]) -> str:
    """How far both have got."""
    told = []
    for path, at in zip((frame["first"], frame["second"]), frame["at"], strict=True):
        name = f"{path['name']} at rate {float(path['lr']):g}"
        loss = f"{float(at['loss']):.2g}"
        told.append(f"{name} has diverged" if at["lost"] else f"{name} has loss {loss}")
    return f"After {settings.update} updates " + "; ".join(told) + "."
