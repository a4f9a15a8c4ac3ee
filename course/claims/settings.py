"""Settings in which claims about training are tested: they differ in model, data, loss, optimizer.

One small network on one data set decides nothing about training in general. A claim is tested in at
least two of these, by a criterion that is written before the runs; `course claims F32` shows the
result in each setting.

    for setting in (SPIRAL, DIGITS, DIABETES):
        run = setting.train(seed, clear=False)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.claims.lab import Recorded, cycle_batches, digits, grad_norm, mlp, spirals

Data = tuple[Tensor, Tensor, Tensor, Tensor]


@lru_cache
def diabetes(seed: int) -> Data:
    """Standardised diabetes records: inputs [N, 10] and targets [N, 1], then validation."""
    from sklearn.datasets import load_diabetes

    inputs, targets = load_diabetes(return_X_y=True, scaled=False)
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))
    pair = [torch.tensor(values, dtype=torch.float32)[order] for values in (inputs, targets)]
    x, y = ((v - v[:350].mean(0)) / v[:350].std(0) for v in pair)
    return x[:350], y[:350, None], x[350:], y[350:, None]


def conv(*, dropout: float = 0.0, seed: int | None = None) -> nn.Sequential:
    """A small convolutional network for digits given as flat rows: 8x8 pixels, ten classes."""
    if seed is not None:
        torch.manual_seed(seed)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(dropout), nn.Linear(128, 10),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A task, a network and the way it is trained."""

    model: str
    """In words, e.g. `MLP 2-64-64-3`."""
    data: str
    loss: str
    optimizer: str
    rate: float
    batch_size: int
    steps: int
    make_data: Callable[[int], Data]
    make_model: Callable[[int], nn.Module]
    loss_fn: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    options: tuple[tuple[str, Any], ...] = ()
    """Further arguments of the optimizer."""

    def __str__(self) -> str:
        extra = "".join(f", {name} {value}" for name, value in self.options)
        return (
            f"{self.model} on {self.data}, {self.loss}, {self.optimizer} {self.rate:g}{extra}, "
            f"batches of {self.batch_size}, {self.steps} steps"
        )

    def but(self, **changes: Any) -> Setting:
        """The same setting with something changed, e.g. `SPIRAL.but(rate=0.1)`."""
        return replace(self, **changes)

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """A fresh optimizer for a model."""
        kind = getattr(torch.optim, self.optimizer)
        return kind(model.parameters(), lr=self.rate, **dict(self.options))

    def train(
        self,
        seed: int,
        *,
        model: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        clear: bool = True,
        scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
        shuffle: bool = True,
        data: Data | None = None,
        watch: Callable[[int, nn.Module], bool | None] | None = None,
    ) -> Trained:
        """Train from this seed, which decides weights and batches; seed // 100 decides the data.

        Args:
            seed: Seed for weights, batches and dropout.
            model: A model to train further, instead of a fresh one.
            optimizer: The optimizer of that model.
            clear: Whether gradients are cleared.
            scheduler: Makes a scheduler from the optimizer; it is stepped after every update.
            shuffle: Whether batches are drawn in a new order each epoch.
            data: Data to use instead of the setting's own.
            watch: Called with the step and the model after each step; returning True ends the run.
        """
        inputs, targets, *_ = data or self.make_data(seed // 100)
        model = self.make_model(seed) if model is None else model
        optimizer = optimizer or self.make_optimizer(model)
        schedule = scheduler(optimizer) if scheduler else None
        torch.manual_seed(seed + 7)
        losses, norms = [], []
        batches = cycle_batches(len(targets), self.batch_size, shuffle=shuffle)
        for step, rows in zip(range(self.steps), batches, strict=False):
            if clear:
                optimizer.zero_grad()
            loss = self.loss_fn(model(inputs[rows]), targets[rows])
            loss.backward()
            norms.append(grad_norm(model))
            optimizer.step()
            if schedule is not None:
                schedule.step()
            losses.append(loss.item())
            if not math.isfinite(losses[-1]) or (watch is not None and watch(step, model)):
                break
        return Trained(model, optimizer, Recorded(losses=losses, norms=norms))

    @torch.no_grad()
    def score(self, model: nn.Module, seed: int, *, part: str = "train") -> float:
        """In eval mode: accuracy, or for numeric targets the share of explained variance."""
        x, y, val_x, val_y = self.make_data(seed // 100)
        inputs, targets = (x, y) if part == "train" else (val_x, val_y)
        was, outputs = model.training, model.eval()(inputs)
        model.train(was)
        if targets.is_floating_point():
            left = (outputs - targets).square().mean() / (targets - targets.mean()).square().mean()
            return 1 - left.item()
        return (outputs.argmax(1) == targets).float().mean().item()

    @torch.no_grad()
    def full_loss(self, model: nn.Module, seed: int) -> float:
        """Loss over all training examples at once, in the mode the model is in."""
        inputs, targets, *_ = self.make_data(seed // 100)
        return self.loss_fn(model(inputs), targets).item()


@dataclass(frozen=True)
class Trained:
    """A trained model with its optimizer and the losses along the way."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    run: Recorded


SPIRAL = Setting(
    model="MLP 2-64-64-3", data="spirals", loss="cross-entropy", optimizer="SGD", rate=0.3,
    batch_size=32, steps=300, make_data=spirals, make_model=lambda seed: mlp(seed=seed),
)  # fmt: skip
DIGITS = Setting(
    model="MLP 64-32-10", data="digits", loss="cross-entropy", optimizer="SGD", rate=0.05,
    options=(("momentum", 0.9),), batch_size=64, steps=200, make_data=digits,
    make_model=lambda seed: mlp(64, 32, 10, seed=seed),
)  # fmt: skip
CONV = Setting(
    model="small conv net", data="digits", loss="cross-entropy", optimizer="Adam", rate=0.003,
    batch_size=64, steps=150, make_data=digits, make_model=lambda seed: conv(seed=seed),
)  # fmt: skip
DIABETES = Setting(
    model="MLP 10-32-1", data="diabetes", loss="mean squared error", optimizer="SGD", rate=0.01,
    batch_size=32, steps=500, make_data=diabetes, loss_fn=F.mse_loss,
    make_model=lambda seed: mlp(10, 32, 1, seed=seed),
)  # fmt: skip
