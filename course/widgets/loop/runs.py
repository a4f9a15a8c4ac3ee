"""Runs of the loop that is shown: exactly these lines are executed, on a hundred digits."""

from __future__ import annotations

import math
import os
import tempfile
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset

from course.widgets.loop.code import lines_of, source_of

NUM_TRAIN = 100
"""Thirteen batches of 8, the last of 4, so the last accumulation window is short."""
EPOCHS = 8


@dataclass
class LoopRun:
    """The results of a run of the loop."""

    val_losses: list[float] = field(default_factory=list)
    """Validation loss after each epoch."""
    log: list[str] = field(default_factory=list)
    """The lines it printed."""
    weights: torch.Tensor | None = None
    """All weights, in one row."""
    warned: list[str] = field(default_factory=list)
    """The first sentence of each of torch's warnings."""


@cache
def examples() -> tuple[TensorDataset, TensorDataset]:
    """A hundred digits for training, the others for validation."""
    from course.data.datasets import load

    data = load("digits")
    train = TensorDataset(data.train_inputs[:NUM_TRAIN], data.train_targets[:NUM_TRAIN])
    return train, data.val_dataset


def make_model() -> nn.Module:
    """One hidden layer of 32."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def evaluate(model: nn.Module) -> float:
    """The mean loss on the validation examples, in full precision."""
    inputs, targets = examples()[1].tensors
    model.eval()
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model(inputs), targets).item()
    model.train()
    return loss


def run(
    parts: Collection[str],
    order: str = "legal",
    *,
    seed: int = 0,
    epochs: int = EPOCHS,
    path: str | None = None,
    judge: Callable[[nn.Module], float] = evaluate,
) -> LoopRun:
    """Execute the loop with these parts; the generators outside are restored.

    Args:
        parts, order: As for `lines_of`.
        seed: The state in which the generators happen to be when the loop begins.
        epochs: The most epochs to run.
        path: Path of the checkpoint; None for a temporary one.
        judge: Used instead of `evaluate`.
    """
    code = compile(source_of(lines_of(parts, order)), "the loop shown", "exec")
    left = LoopRun()

    def judged(model: nn.Module) -> float:
        left.val_losses.append(judge(model))
        return left.val_losses[-1]

    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        names = _given() | {"evaluate": judged, "print": left.log.append, "epochs": epochs}
        names["path"] = path or os.path.join(folder, "last.pt")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            exec(code, names)  # our own lines, from code.py
    left.warned = [str(one.message).split(". ")[0] for one in caught]
    left.weights = nn.utils.parameters_to_vector(names["model"].parameters()).detach()
    return left


def _given() -> dict[str, Any]:
    """The names that the lines take as given."""
    return {
        "torch": torch, "math": math, "os": os, "islice": islice, "DataLoader": DataLoader,
        "CosineAnnealingLR": CosineAnnealingLR, "clip_grad_norm_": clip_grad_norm_,
        "train": examples()[0], "make_model": make_model, "criterion": nn.CrossEntropyLoss(),
        "device": "cpu",
    }  # fmt: skip
