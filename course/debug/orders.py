"""One update with its operations in any order: what a misplaced line does to training.

    run = train_in_order(("forward", "loss", "backward", "clear", "step"))
    run.moved[0]      # 0.0: nothing was left for step()

Digits, a linear layer with or without a hidden layer before it, plain SGD; the same weights and
batches each time, so that two runs differ only in their order.

Source: Annotated-loop essay, "Where the order really matters"; training-loop chapter, c3; ledger
T15, F27, F28, F29, F132.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor, nn

RIGHT = ("clear", "forward", "loss", "backward", "step")
OPERATIONS = frozenset({*RIGHT, "clip"})
BATCH = 64


@dataclass
class OrderRun:
    """What a run recorded, one number per update."""

    losses: list[float] = field(default_factory=list)
    """Loss of the batch before its update."""
    norms: list[float] = field(default_factory=list)
    """Joint norm of the .grad that step() found; 0 where there was none."""
    moved: list[float] = field(default_factory=list)
    """Distance that the weights moved."""
    error: str = ""
    """The error of torch's that stopped the run; empty if none did."""


def train_in_order(
    order: Sequence[str], *, updates: int = 60, lr: float = 0.1, hidden: int = 0, seed: int = 0
) -> OrderRun:
    """Train with the operations of each update in this order.

    Args:
        order: Of `clear`, `forward`, `loss`, `backward`, `clip` (to a norm of 1) and `step`; each
            may be left out or repeated.
        updates: How many updates to make.
        lr: Learning rate of plain SGD.
        hidden: Units of a hidden layer; 0 for none.
        seed: Seed of the initial weights.

    Raises:
        ValueError: There is no such operation.
    """
    if unknown := [name for name in order if name not in OPERATIONS]:
        raise ValueError(f"{unknown[0]!r} is not one of {', '.join(sorted(OPERATIONS))}.")
    loop, run = _Loop(hidden, lr, seed), OrderRun()
    for update in range(updates):
        loop.take(update)
        before = loop.weights()
        try:
            for name in order:
                if name == "step":
                    run.norms.append(loop.norm())
                getattr(loop, name)()
        except RuntimeError as error:
            run.error = str(error)
            break
        run.losses.append(float("nan") if loop.value is None else loop.value.item())
        run.moved.append((loop.weights() - before).norm().item())
    return run


class _Loop:
    """A model, its optimizer and a batch, with the operations as methods."""

    def __init__(self, hidden: int, lr: float, seed: int) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            widths = [64, hidden, 10] if hidden else [64, 10]
            layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
            self.model = nn.Sequential(layers[0], *(m for x in layers[1:] for m in (nn.Tanh(), x)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.value: Tensor | None = None

    def take(self, update: int) -> None:
        """The batch of an update, in turn."""
        inputs, targets = _digits()
        first = BATCH * update % (len(targets) - BATCH)
        self.inputs, self.targets = inputs[first:][:BATCH], targets[first:][:BATCH]

    def clear(self) -> None:
        self.optimizer.zero_grad()

    def forward(self) -> None:
        self.outputs = self.model(self.inputs)

    def loss(self) -> None:
        self.value = nn.functional.cross_entropy(self.outputs, self.targets)

    def backward(self) -> None:
        self.value.backward()

    def clip(self) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def step(self) -> None:
        self.optimizer.step()

    def weights(self) -> Tensor:
        """All of them as one vector."""
        return nn.utils.parameters_to_vector(self.model.parameters()).detach().clone()

    def norm(self) -> float:
        """Joint norm of what .grad holds now."""
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        return torch.cat([grad.flatten() for grad in grads]).norm().item() if grads else 0.0


@cache
def _digits() -> tuple[Tensor, Tensor]:
    from course.data.datasets import load

    data = load("digits")
    return data.train_inputs.flatten(1), data.train_targets
