"""A run that can be interrupted anywhere, and how far a resumed run ends from it.

    whole = Training(seed=3)
    whole.train(2)
    state = whole.state()           # everything that the next step depends on
    whole.train(2)

    resumed = Training(seed=4)      # a new process: other weights, other random numbers
    resumed.load(state, without=["optimizer"])
    resumed.train(2)
    resumed.distance(whole)         # 0 if nothing was missing

Source: Lecture 3, "Five layers of reproducibility"; training-loop chapter, c7, component 1; ledger
X20, T26, T34, F108.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from course.data import load
from course.engine.schedules import warmup_cosine
from course.state import seed_everything, undisturbed

PARTS = {
    "model": "weights",
    "optimizer": "Adam's averages",
    "scheduler": "schedule",
    "dropout": "torch's generator",
    "order": "the loader's generator",
}
"""What the next step depends on: its key in a state, and its name in words."""
SEED = 3
BATCH_SIZE = 128
EPOCHS = 4
"""Epochs of the whole run, which set the length of the cosine."""


class Training:
    """Digits, dropout, Adam, a cosine over the updates, a random order for each epoch.

    Args:
        seed: Seed for torch's global generator and for the order.
        split: Seed of the split into training and validation.
        lr: The learning rate at the start of the cosine.
        activation: The activation between the two layers.
        halves: Whether the last layer processes each batch as two halves: mathematically the same,
            but the gradients are summed in a different order.
    """

    def __init__(
        self,
        *,
        seed: int,
        split: int = 0,
        lr: float = 5e-3,
        activation: type[nn.Module] = nn.ReLU,
        halves: bool = False,
    ) -> None:
        self.order = seed_everything(seed)
        self.data, self.halves = load("digits", seed=split), halves
        hidden = [nn.Flatten(), nn.Linear(64, 64), activation(), nn.Dropout(0.2)]
        self.model = nn.Sequential(*hidden, nn.Linear(64, 10))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        updates = EPOCHS * -(-len(self.data.train_targets) // BATCH_SIZE)
        self.scheduler = warmup_cosine(self.optimizer, warmup=0, total=updates)

    def train(self, epochs: int, after_update: Callable[[], Any] = lambda: None) -> None:
        """Train for this many more epochs; `after_update` is called after each update."""
        self.model.train()
        for _ in range(epochs):
            rows = torch.randperm(len(self.data.train_targets), generator=self.order)
            for batch in rows.split(BATCH_SIZE):
                self.optimizer.zero_grad()
                self._loss(batch).backward()
                self.optimizer.step()
                self.scheduler.step()
                after_update()

    def _loss(self, rows: torch.Tensor) -> torch.Tensor:
        hidden = self.model[:-1](self.data.train_inputs[rows])
        chunk = len(rows) // 2 if self.halves else len(rows)
        logits = torch.cat([self.model[-1](part) for part in hidden.split(chunk)])
        return F.cross_entropy(logits, self.data.train_targets[rows])

    def state(self) -> dict[str, Any]:
        """A copy of everything the next step depends on: tensors and plain numbers."""
        states = {name: getattr(self, name).state_dict() for name in list(PARTS)[:3]}
        random = {"dropout": torch.get_rng_state(), "order": self.order.get_state()}
        return copy.deepcopy(states | random)

    def load(self, state: dict[str, Any], without: Collection[str] = ()) -> None:
        """Load a state, except the parts named in `without`."""
        for name in PARTS:
            if name in without:
                continue
            if name == "dropout":
                torch.set_rng_state(state[name])
            elif name == "order":
                self.order.set_state(state[name])
            else:
                getattr(self, name).load_state_dict(copy.deepcopy(state[name]))

    def weights(self) -> torch.Tensor:
        """All weights as one vector."""
        return nn.utils.parameters_to_vector(self.model.parameters()).detach().clone()

    def distance(self, other: Training) -> float:
        """Largest difference between weights."""
        return (self.weights() - other.weights()).abs().max().item()

    def accuracy(self) -> float:
        """Share of the validation images that are classified correctly; the mode is restored."""
        mode = self.model.training
        with torch.no_grad():
            read = self.model.eval()(self.data.val_inputs).argmax(dim=1)
        self.model.train(mode)
        return (read == self.data.val_targets).float().mean().item()


def distances_without(*parts: str, seed: int = SEED) -> list[float]:
    """How far a run resumed without some parts is from the uninterrupted one.

    Args:
        parts: Some of `PARTS`; with none left out, the resume is exact.
        seed: Seed of the uninterrupted run; the resumed one begins with another.

    Returns:
        The largest difference between weights after each update of the second half.
    """
    with undisturbed():
        whole, half, followed = Training(seed=seed), EPOCHS // 2, []
        whole.train(half)
        state = whole.state()
        whole.train(half, lambda: followed.append(whole.weights()))
        resumed, distances = Training(seed=seed + 1000), []
        resumed.load(state, without=parts)

        def measure() -> None:
            gap = resumed.weights() - followed[len(distances)]
            distances.append(gap.abs().max().item())

        resumed.train(half, measure)
    return distances


def repeated(epochs: int = EPOCHS, **changes: Any) -> tuple[float, float]:
    """A run with seed 3 done twice, the second time with something changed.

    Args:
        epochs: Epochs of both runs.
        changes: Arguments of `Training`; without any, the same run is repeated.

    Returns:
        The largest difference between weights, and how much more accurate the second run is on its
        own validation part.
    """
    with undisturbed():
        first = Training(seed=SEED)
        first.train(epochs)
        second = Training(**{"seed": SEED, **changes})
        second.train(epochs)
        return second.distance(first), second.accuracy() - first.accuracy()
