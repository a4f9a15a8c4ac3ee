"""Six real recorded runs on the digits whose curves show different things.

    epochs = recorded("run 1")        # a dictionary per epoch, as a History holds them
    read_curves(epochs)

Curves that a reader has to judge must be the same on every machine, so they were recorded once
(`python -m course.analysis.recorded`), and a test repeats them. `RUNS` says how each was made.

Source: Lecture 3, figure "Training curves"; ledger S15, X06.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from course.data import load
from course.data.datasets import Data
from course.engine import Trainer, seed_everything

FILE = Path(__file__).with_suffix(".json")
KEPT = ("epoch", "train_loss", "val_loss", "val_accuracy", "grad_norm")
DIGITS = 5
"""Significant digits kept in a recording."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a recorded run was made."""

    says: str
    """What was done, in words."""
    lr: float = 3e-3
    """Learning rate of Adam."""
    hidden: int = 64
    epochs: int = 30
    num_train: int = 1_000
    """Training images."""
    num_val: int = 359
    """Validation images."""
    wrong_labels: float = 0.0
    """Share of the training labels that are random."""
    torn_epoch: int = 0
    """The epoch in which four batches have the labels of other images; 0 for none."""


RUNS = {
    "run 1": Recipe(says="stopped after 12 epochs, at a small rate", lr=2e-4, epochs=12),
    "run 2": Recipe(says="1,000 images, a moderate rate"),
    "run 3": Recipe(says="200 images, a fifth of their labels random", num_train=200,
                    wrong_labels=0.2, hidden=256, lr=1e-2, epochs=45),
    "run 4": Recipe(says="a tenth of the labels random, validated on 16 images",
                    num_val=16, wrong_labels=0.1, lr=3e-2, epochs=24),
    "run 5": Recipe(says="four batches of epoch 18 had the labels of other images", torn_epoch=18),
    "run 6": Recipe(says="a learning rate of 1e-7", lr=1e-7),
}  # fmt: skip
"""How each run was made, by name."""
TORN = 4
"""Batches with the labels of other images, as if a file was read one row off."""


def recorded(name: str) -> list[dict[str, float]]:
    """The epochs of a recorded run.

    Raises:
        ValueError: There is no such run.
    """
    if name not in RUNS:
        raise ValueError(f"{name!r} is not a recorded run; they are {', '.join(RUNS)}.")
    return json.loads(FILE.read_text(encoding="utf-8"))[name]


def record(name: str) -> list[dict[str, float]]:
    """Train a recorded run again."""
    recipe = RUNS[name]
    data = _data(recipe)
    seed_everything(0)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, recipe.hidden), nn.ReLU(), nn.Linear(recipe.hidden, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.lr)
    trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, seed=0, device="cpu")
    loader, val_loader = data.loaders(64, seed=0)
    if recipe.torn_epoch:
        loader = _Torn(loader, recipe.torn_epoch)
    trainer.fit(loader, val_loader, epochs=recipe.epochs, progress=False)
    return [_kept(epoch) for epoch in trainer.history]


def _data(recipe: Recipe) -> Data:
    whole = load("digits", seed=0)
    parts = vars(whole) | {
        "train_inputs": whole.train_inputs[: recipe.num_train],
        "train_targets": whole.train_targets[: recipe.num_train].clone(),
        "val_inputs": whole.val_inputs[: recipe.num_val],
        "val_targets": whole.val_targets[: recipe.num_val],
    }
    count = round(recipe.wrong_labels * recipe.num_train)
    generator = torch.Generator().manual_seed(1)
    rows = torch.randperm(recipe.num_train, generator=generator)[:count]
    parts["train_targets"][rows] = torch.randint(10, (count,), generator=generator)
    return Data(**parts)


class _Torn:
    """A loader whose first batches have the labels of other images in one epoch."""

    def __init__(self, loader: Any, epoch: int) -> None:
        self.loader, self.torn, self.epoch = loader, epoch, 0

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Any:
        self.epoch += 1
        for place, (inputs, targets) in enumerate(self.loader):
            torn = self.epoch == self.torn and place < TORN
            yield inputs, (targets.roll(1) if torn else targets)


def _kept(epoch: dict[str, Any]) -> dict[str, float]:
    return {name: float(f"{epoch[name]:.{DIGITS}g}") for name in KEPT}


def main() -> None:
    """Record all runs again."""
    text = json.dumps({name: record(name) for name in RUNS}, indent=0)
    FILE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
