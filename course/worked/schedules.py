"""Schedules: torch's learning rates next to closed forms, stepped in the right or wrong unit."""

import math
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, ReduceLROnPlateau, StepLR

from course.worked.registry import worked
from course.worked.step import Step


def learning_rates(
    make_scheduler: Callable[[torch.optim.Optimizer], object], lr: float, steps: int
) -> list[float]:
    """Learning rate before the first and after each of `steps` calls of scheduler.step()."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    scheduler = make_scheduler(optimizer)
    rates = [optimizer.param_groups[0]["lr"]]
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def cosine_rates(lr: float, t_max: int, eta_min: float, steps: int) -> list[float]:
    """The same for torch's cosine schedule."""
    return learning_rates(lambda o: CosineAnnealingLR(o, t_max, eta_min), lr, steps)


def _cosine(t: float, lr: float, t_max: int, eta_min: float) -> float:
    return eta_min + (lr - eta_min) * (1 + math.cos(math.pi * t / t_max)) / 2


@worked(
    "N26",
    title="Cosine annealing over 100 epochs",
    perturb={"eta_min": 1e-5},
    figure="cosine",
)
def cosine(
    lr: float = 1e-3,
    t_max: int = 100,
    eta_min: float = 0.0,
    at: tuple[int, ...] = (0, 1, 25, 50, 75, 99, 100),
    past: tuple[int, ...] = (150, 200),
) -> Iterator[Step]:
    """torch's scheduler, the closed form, and the learning rate after T_max."""
    rates = cosine_rates(lr, t_max, eta_min, max(t_max, *at, *past))
    name = ", ".join(map(str, at))
    yield Step(
        f"lr at t = {name}",
        [_cosine(t, lr, t_max, eta_min) for t in at],
        formula="η_min + (lr − η_min)(1 + cos(π t / T_max)) / 2",
    )
    yield Step("torch's", [rates[t] for t in at])
    off = max(abs(rates[t] - _cosine(t, lr, t_max, eta_min)) for t in range(t_max + 1))
    yield Step("torch within 1e-17 of the closed form", off < 1e-17)
    late = ", ".join(map(str, past))
    yield Step(f"past T_max it rises: lr at t = {late}", [rates[t] for t in past])


@worked(
    "N27",
    title="The same cosine, stepped once per batch",
    tells="over the run, the learning rate",
    perturb={"num_batches": 30},
    figure="cosine_per_batch",
)
def cosine_per_batch(
    lr: float = 1e-3, t_max: int = 100, num_batches: int = 32, epochs: int = 100
) -> Iterator[Step]:
    """T_max counts epochs, but step() is called after every batch."""
    rates = cosine_rates(lr, t_max, 0.0, epochs * num_batches)
    ends = rates[num_batches::num_batches]
    first = min(8, epochs)
    at_ends = f"cosine at t = {num_batches} · epoch"
    yield Step(f"lr at the ends of epochs 1-{first}", ends[:first], formula=at_ends)
    climbs = any(later > earlier for earlier, later in pairwise(rates))
    yield Step(
        "over the run, the learning rate",
        "falls and rises again" if climbs else "only falls",
        formula="the cosine has period 2 · T_max calls",
    )
    yield Step("lr after all batches", rates[-1], formula=f"cosine at t = {epochs * num_batches:,}")
    yield Step("periods", epochs * num_batches / (2 * t_max), formula="calls / (2 · T_max)")


@worked(
    "N28",
    title="Linear warmup, then cosine",
    tells="the first step moves the weight by",
    perturb={"warmup": 200},
    figure="warmup",
)
def warmup_cosine(
    warmup: int = 100,
    total: int = 10_000,
    at: tuple[int, ...] = (0, 1, 50, 100, 2575, 5050, 7525, 10_000),
) -> Iterator[Step]:
    """Factors of the essay's LambdaLR, and a first step that does not move the weights."""
    factor = warmup_factor(warmup, total)
    name = ", ".join(map(str, at))
    formula = "t / W, then (1 + cos(π (t − W) / (T − W))) / 2"
    yield Step(f"factor at t = {name}", [factor(t) for t in at], formula=formula)
    early = learning_rates(lambda o: LambdaLR(o, factor), 1.0, warmup)
    yield Step("torch, during the warmup", [early[t] for t in at if t <= warmup])
    yield Step("warmup, percent of the run", 100 * warmup / total, formula="100 · W / T")
    weight = torch.ones((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    LambdaLR(optimizer, factor)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    yield Step(
        "the first step moves the weight by", abs(weight.item() - 1), formula="0 / W · lr · g"
    )


def warmup_factor(warmup: int, total: int) -> Callable[[int], float]:
    """The essay's factor of the learning rate at step t."""

    def factor(t: int) -> float:
        if t < warmup:
            return t / warmup
        return (1 + math.cos(math.pi * (t - warmup) / (total - warmup))) / 2

    return factor


@worked(
    "N29",
    title="StepLR with step size 100, stepped once per batch",
    perturb={"steps": 250},
)
def step_lr(
    lr: float = 0.01, step_size: int = 100, gamma: float = 0.1, steps: int = 313
) -> Iterator[Step]:
    """One epoch of 313 batches already brings three decays."""
    rates = learning_rates(lambda o: StepLR(o, step_size, gamma), lr, steps)
    yield Step("lr after the epoch", rates[-1], formula=f"lr · γ^⌊{steps} / {step_size}⌋")


@worked(
    "N54",
    title="ReduceLROnPlateau with patience 2",
    perturb={"patience": 1},
)
def plateau(
    losses: tuple[float, ...] = (1.0, 0.9, 0.9, 0.9, 0.9, 0.9), patience: int = 2, lr: float = 1.0
) -> Iterator[Step]:
    """The learning rate after each epoch's loss."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    scheduler = ReduceLROnPlateau(optimizer, patience=patience)
    rates = []
    for loss in losses:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no optimizer.step() in between: only the losses count
            scheduler.step(loss)
        rates.append(optimizer.param_groups[0]["lr"])
    rule = f"lr · 0.1 after {patience + 1} bad epochs in a row"
    yield Step("lr after each loss", rates, formula=rule)
