"""Learning-rate schedules: what counts as a step, and where step() may be called."""

from __future__ import annotations

import math
import statistics
from functools import lru_cache, partial

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, ReduceLROnPlateau

from course.claims.lab import (
    error_of,
    warnings_of,
)
from course.claims.registry import claim
from course.claims.settings import CONV, DIGITS, SPIRAL, Setting
from course.claims.trial import Measured, weigh, weigh_settings


def _sgd(lr: float = 1.0) -> torch.optim.SGD:
    """An optimizer over one weight that has a gradient."""
    weight = nn.Parameter(torch.ones(1))
    weight.grad = torch.zeros(1)
    return torch.optim.SGD([weight], lr=lr)


def _lr(optimizer: torch.optim.Optimizer) -> float:
    return optimizer.param_groups[0]["lr"]


def _cosine(t: int, t_max: int, lr: float = 1e-3) -> float:
    """The lecture's formula, with eta_min 0."""
    return lr * (1 + math.cos(math.pi * t / t_max)) / 2


@claim(
    "F59",
    title="scheduler.step() inside the batch loop is wrong",
    expected="holds if",
    says="Calling scheduler.step() inside the batch loop is a mistake.",
    condition="if the schedule's length was given in epochs; if it was given in updates, the call "
    "belongs there",
)
def schedule_in_the_batch_loop() -> Measured:
    epochs, batches = 4, 32

    def gap(*, per_batch: bool, t_max: int) -> float:
        """Largest deviation from the cosine over the whole run, at the ends of epochs."""
        optimizer = _sgd(1e-3)
        scheduler, gaps = CosineAnnealingLR(optimizer, T_max=t_max), []
        for epoch in range(epochs):
            for _ in range(batches):
                optimizer.step()
                if per_batch:
                    scheduler.step()
            if not per_batch:
                scheduler.step()
            gaps.append(abs(_lr(optimizer) - _cosine(epoch + 1, epochs)))
        return max(gaps)

    gaps = {
        "T_max in epochs, stepped per batch": gap(per_batch=True, t_max=epochs),
        "T_max in updates, stepped per batch": gap(per_batch=True, t_max=epochs * batches),
        "T_max in epochs, stepped per epoch": gap(per_batch=False, t_max=epochs),
    }
    wrong = {name: value > 1e-4 for name, value in gaps.items()}
    evidence = {
        "lr off by at most, T_max in epochs": gaps["T_max in epochs, stepped per batch"],
        "lr off by": gaps,
    }
    return weigh(
        "lr off by at most, T_max in epochs",
        evidence,
        stated=wrong["T_max in epochs, stepped per batch"]
        and wrong["T_max in updates, stepped per batch"],
        conditioned=wrong["T_max in epochs, stepped per batch"]
        and not wrong["T_max in epochs, stepped per epoch"],
    )


@claim(
    "F60",
    title="scheduler.step() before optimizer.step() is subtly wrong",
    expected="holds",
    says="scheduler.step() before optimizer.step() skips the schedule's first value.",
)
def scheduler_before_optimizer() -> Measured:
    def lrs_used(*, before: bool) -> list[float]:
        optimizer = _sgd()
        scheduler, used = LambdaLR(optimizer, lambda t: min(1.0, (t + 1) / 4)), []
        for _ in range(4):
            if before:
                scheduler.step()
            used.append(_lr(optimizer))
            optimizer.step()
            if not before:
                scheduler.step()
        return used

    right, wrong = lrs_used(before=False), lrs_used(before=True)
    warned = warnings_of(lrs_used, before=True)
    evidence = {
        "first lr used": wrong[0],
        "warmup as used, scheduler first": wrong,
        "warmup as used, optimizer first": right,
        "warns": any("lr_scheduler.step()" in text for text in warned),
    }
    stated = evidence["warns"] and wrong[0] == right[1] != right[0]
    return weigh("first lr used", evidence, stated=stated)


@claim(
    "F61",
    title="scheduler.step() counts weight updates",
    expected="does not hold",
    says="A scheduler counts the updates of the weights.",
)
def scheduler_counts() -> Measured:
    optimizer = _sgd()
    scheduler = LambdaLR(optimizer, lambda t: 1.0)
    for _ in range(7):
        scheduler.step()  # not a single update between the calls
    skipped = _sgd()
    scaler = torch.amp.GradScaler("cpu")
    after_skip = LambdaLR(skipped, lambda t: 1.0)
    weight = skipped.param_groups[0]["params"][0]

    def skipped_update() -> None:
        weight.grad = torch.full_like(weight, math.inf)
        scaler.scale(torch.zeros(1))
        scaler.step(skipped)
        scaler.update()
        after_skip.step()

    warned = warnings_of(skipped_update)
    evidence = {
        "counted, with no update made": scheduler.last_epoch,
        "counted after an update the GradScaler skipped": after_skip.last_epoch,
        "then warns about the order": any("optimizer.step()" in text for text in warned),
    }
    stated = scheduler.last_epoch == 0
    note = "It counts the calls of its step()."
    return weigh("counted, with no update made", evidence, stated=stated, note=note)


@claim(
    "F62",
    title="ReduceLROnPlateau needs the metric",
    expected="holds",
    says="ReduceLROnPlateau.step() must be given the monitored metric.",
)
def plateau_needs_metric() -> Measured:
    optimizer = _sgd()
    scheduler = ReduceLROnPlateau(optimizer, patience=2)
    error = error_of(scheduler.step)
    lrs = []
    for loss in (1, 0.9, 0.9, 0.9, 0.9, 0.9):
        scheduler.step(loss)
        lrs.append(_lr(optimizer))
    evidence = {
        "lr after six losses, patience 2": lrs[-1],
        "lr after each": lrs,
        "step() without the metric raises": error or "nothing",
    }
    stated = error == "TypeError" and lrs[-1] < lrs[0]
    return weigh("lr after six losses, patience 2", evidence, stated=stated)


@claim(
    "F63",
    title="Cosine, momentum, Adam and AdamW as printed are torch's",
    expected="holds",
    says="torch computes the printed formulas of cosine, momentum, Adam and AdamW.",
)
def formulas_as_printed() -> Measured:
    grads = torch.randn(20, dtype=torch.float64).tolist()
    optimizers = {
        "momentum": (torch.optim.SGD, {"momentum": 0.9}, _momentum),
        "Adam": (torch.optim.Adam, {}, _adam),
        "AdamW": (torch.optim.AdamW, {"weight_decay": 0.1}, _adam),
    }
    gaps = {"cosine": _cosine_gap()}
    for name, (optimizer, options, formula) in optimizers.items():
        theirs = _by_torch(optimizer, grads, **options)
        gaps[name] = abs(theirs - formula(grads, decay=options.get("weight_decay", 0.0)))
    evidence = {"largest difference": max(gaps.values()), "differences": gaps}
    return weigh("largest difference", evidence, stated=max(gaps.values()) < 1e-12)


def _cosine_gap() -> float:
    optimizer = _sgd(1e-3)
    scheduler, gaps = CosineAnnealingLR(optimizer, T_max=100), []
    for t in range(101):
        gaps.append(abs(_lr(optimizer) - _cosine(t, 100)))
        optimizer.step()
        scheduler.step()
    return max(gaps)


def _by_torch(optimizer_type, grads: list[float], **options: float) -> float:
    weight = nn.Parameter(torch.ones((), dtype=torch.float64))
    optimizer = optimizer_type([weight], lr=0.1, **options)
    for grad in grads:
        weight.grad = torch.tensor(grad, dtype=torch.float64)
        optimizer.step()
    return weight.item()


def _momentum(grads: list[float], decay: float) -> float:
    weight, velocity = 1.0, 0.0
    for grad in grads:
        velocity = 0.9 * velocity + grad
        weight -= 0.1 * velocity
    return weight


def _adam(grads: list[float], decay: float) -> float:
    weight, mean, square = 1.0, 0.0, 0.0
    for t, grad in enumerate(grads, start=1):
        weight -= 0.1 * decay * weight
        mean = 0.9 * mean + 0.1 * grad
        square = 0.999 * square + 0.001 * grad**2
        m_hat, v_hat = mean / (1 - 0.9**t), square / (1 - 0.999**t)
        weight -= 0.1 * m_hat / (math.sqrt(v_hat) + 1e-8)
    return weight


COSINES = (
    SPIRAL.but(optimizer="Adam", rate=0.01, steps=400),
    DIGITS.but(rate=0.2, batch_size=16, steps=300),
    CONV.but(rate=0.03, batch_size=16, steps=300),
)


@lru_cache
def _cosine_ends(seed: int) -> dict[Setting, list[tuple[float, float, float, float]]]:
    """For three runs per setting: final loss and sharpness with a cosine and a constant rate."""
    found = {}
    for one in COSINES:
        found[one] = []
        for index in range(100 * seed, 100 * seed + 3):
            ends = []
            for annealed in (True, False):
                schedule = partial(CosineAnnealingLR, T_max=one.steps) if annealed else None
                model = one.train(index, scheduler=schedule).model
                ends.append((one.full_loss(model, index), _sharpness(one, model, index)))
            (low, sharp), (high, flat_) = ends
            found[one].append((low, high, sharp, flat_))
    return found


def _sharpness(one: Setting, model: nn.Module, seed: int) -> float:
    """Largest eigenvalue of the loss's Hessian, by 15 power iterations over all training data."""
    inputs, targets, *_ = one.make_data(seed // 100)
    parameters = list(model.parameters())
    generator = torch.Generator().manual_seed(seed)
    vector = [torch.randn(p.shape, generator=generator) for p in parameters]
    loss = one.loss_fn(model(inputs), targets)
    grads = torch.autograd.grad(loss, parameters, create_graph=True)
    norm = 0.0
    for _ in range(15):
        length = math.sqrt(sum(v.square().sum().item() for v in vector)) or 1.0
        vector = [v / length for v in vector]
        dot = sum((g * v).sum() for g, v in zip(grads, vector, strict=True))
        vector = [v.detach() for v in torch.autograd.grad(dot, parameters, retain_graph=True)]
        norm = math.sqrt(sum(v.square().sum().item() for v in vector))
    return norm


@claim(
    "F76",
    title="Cosine ends lower than a constant lr",
    expected="holds if",
    says="Cosine annealing ends at a lower loss than a constant learning rate.",
    condition="if the constant rate is too high to settle; with a moderate rate, cosine ends "
    "higher",
)
def experiment_5(seed: int) -> Measured:
    found = _cosine_ends(seed)
    lower = {one: sum(low < high for low, high, _, _ in runs) for one, runs in found.items()}
    evidence = {
        "moderate rate: runs in which cosine ends lower, of 3": lower[COSINES[0]],
        "final loss, cosine and constant": {
            f"{one.data} {one.optimizer} {one.rate:g}": [[low, high] for low, high, *_ in runs]
            for one, runs in found.items()
        },
    }
    return weigh_settings(
        "moderate rate: runs in which cosine ends lower, of 3",
        evidence,
        {one: count >= 2 for one, count in lower.items()},
        criterion="cosine ends lower in at least two of three runs",
    )


@claim(
    "F153",
    title="With cosine annealing the run settles in a sharper minimum",
    expected="holds if",
    says="The shrinking step size of cosine annealing lets the run settle in a sharper minimum.",
    condition="if the constant rate is moderate; at a high rate with momentum, the constant run is "
    "not in a minimum at all, and its curvature is larger",
)
def sharper_minimum(seed: int) -> Measured:
    found = _cosine_ends(seed)
    sharper = {
        one: statistics.median(a for _, _, a, _ in runs)
        > statistics.median(b for _, _, _, b in runs)
        for one, runs in found.items()
    }
    evidence = {
        "settings in which cosine ends sharper, of 3": sum(sharper.values()),
        "largest eigenvalue of the Hessian, cosine and constant": {
            f"{one.data} {one.optimizer} {one.rate:g}": [[a, b] for _, _, a, b in runs]
            for one, runs in found.items()
        },
    }
    return weigh_settings(
        "settings in which cosine ends sharper, of 3",
        evidence,
        sharper,
        criterion="in the median of three runs, the largest eigenvalue of the Hessian is larger",
    )
