"""How far each weight moves while one batch is repeated, and whether it has a gradient."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from course.debug.probes.session import as_list
from course.debug.rungs.climbing import Climb

TOO_SMALL_A_STEP = 1e-5
"""Update over weight, per step, below which a batch cannot be learned in a few thousand steps:
3000 steps in one direction would still move the weights by 3 % of their size only."""
USUAL_STEP = 1e-3
"""Update over weight, per step, of a rate that usually trains (Karpathy's rule of thumb)."""


class Moves:
    """The weights at the start, after a few steps, and at the end."""

    def __init__(self, climb: Climb, inputs: Tensor, targets: Tensor) -> None:
        """Record the weights as they are, and each one's gradient on the batch."""
        optimizers = as_list(climb.setup.optimizer)
        self.groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        holds = {id(p) for group in self.groups for p in group["params"]}
        self.named = {n: p for n, p in climb.model.named_parameters() if p.requires_grad}
        self.start = {name: p.detach().clone() for name, p in self.named.items()}
        self.held = [name for name, p in self.named.items() if id(p) in holds]
        self.with_gradient = _with_gradient(climb, self.named, inputs, targets)
        self.per_step = math.nan
        """Update over weight, per step, of all weights together."""
        self.still: list[str] = []
        """Weights that ended where they began."""

    def early(self, steps: int) -> None:
        """Measure the size of a step after the first few."""
        moved = math.sqrt(sum(_size(p.detach() - self.start[n]) for n, p in self.named.items()))
        size = math.sqrt(sum(map(_size, self.start.values())))
        self.per_step = moved / steps / max(size, 1e-30)

    def end(self) -> None:
        """Record which weights never moved."""
        self.still = [n for n, p in self.named.items() if torch.equal(p.detach(), self.start[n])]

    @property
    def left_behind(self) -> list[str]:
        """Weights that have a gradient but are in no optimizer and never moved."""
        return [n for n in self.still if n in self.with_gradient and n not in self.held]

    @property
    def head_only(self) -> bool:
        """Whether all weights that move come after those left behind: a head on a fixed body."""
        names = list(self.named)
        last = max(names.index(name) for name in self.left_behind)
        return all(names.index(n) > last for n in names if n not in self.still)

    @property
    def larger_rates(self) -> list[tuple[float, float]]:
        """Each group's learning rate, and the one that would make updates of a usual size."""
        factor = USUAL_STEP / self.per_step if self.per_step > 0 else 1.0
        return [(float(group["lr"]), float(group["lr"]) * factor) for group in self.groups]


def _with_gradient(
    climb: Climb, named: dict[str, nn.Parameter], inputs: Tensor, targets: Tensor
) -> set[str]:
    """Names of the weights on which the batch's loss depends."""
    place = climb.session.place
    with torch.enable_grad():
        loss = climb.setup.loss_fn(climb.model(place(inputs.clone())), place(targets.clone()))
        if not loss.requires_grad:
            return set()
        found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {name for name, g in zip(named, found, strict=True) if g is not None and g.any()}


def _size(tensor: Tensor) -> float:
    return float(tensor.detach().double().square().sum())
