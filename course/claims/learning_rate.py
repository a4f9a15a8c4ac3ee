"""The learning rate: finding it, and what too large a one does."""

from __future__ import annotations

import math
import statistics

import torch
from torch.nn import functional as F

from course.claims.lab import accuracy, cycle_batches, fit, full_loss, mlp, spirals
from course.claims.registry import Measured, claim, weigh


def _range_test(ratio: float, steps: int, seed: int) -> tuple[list[float], list[float]]:
    """Learning rates and smoothed losses of a range test from 1e-7, stopped when it diverges."""
    inputs, targets, _, _ = spirals(seed)
    model = mlp(seed=seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
    lrs, losses, average = [], [], 0.0
    for step, rows in zip(range(steps), cycle_batches(len(targets), 64), strict=False):
        optimizer.param_groups[0]["lr"] = lr = 1e-7 * ratio**step
        loss = F.cross_entropy(model(inputs[rows]), targets[rows])
        average = 0.9 * average + 0.1 * loss.item()
        lrs.append(lr)
        losses.append(average / (1 - 0.9 ** (step + 1)))
        if not loss.isfinite() or losses[-1] > 4 * losses[0]:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return lrs, losses


@claim(
    "F30",
    title="About 100 steps at ×1.05 from 1e-7 find the learning rate",
    source='Lecture 3, "LR finder"',
    expected="does not hold",
    says="A range test from 1e-7, times 1.05 a step, finds the learning rate in about 100 steps.",
)
def range_test_of_100_steps(seed: int) -> Measured:
    evidence = {}
    for ratio, steps in ((1.05, 100), (1.2045, 100), (1.05, 378)):
        lrs, losses = _range_test(ratio, steps, seed)
        low = min(range(len(losses)), key=losses.__getitem__)
        evidence[f"×{ratio}, {steps} steps"] = {
            "last lr": lrs[-1],
            "loss first, lowest": [losses[0], losses[low]],
            "lr at the lowest loss": lrs[low],
        }
    as_printed = evidence["×1.05, 100 steps"]
    evidence = {"last lr reached": as_printed["last lr"]} | evidence
    first, lowest = as_printed["loss first, lowest"]
    found = lowest < 0.9 * first
    return weigh(
        "last lr reached",
        evidence,
        stated=found,
        note="100 steps at ×1.05 climb 2.1 decades; the range to 10 needs ×1.2045 or 378 steps.",
    )


@claim(
    "F33",
    title="Batch 32 to 256 at the same lr diverges",
    source="Lecture 3, P1",
    expected="does not hold",
    says="Going from batch 32 to 256 at the same learning rate makes training diverge.",
)
def larger_batch_same_lr(seed: int) -> Measured:
    inputs, targets, _, _ = spirals(seed)

    def final(batch_size: int, lr: float, updates: int, **options) -> float:
        model = mlp(seed=seed)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        fit(model, optimizer, inputs, targets, steps=updates, batch_size=batch_size, **options)
        return full_loss(model, inputs, targets)

    epochs, rates, chance = 60, (0.1, 0.5, 1.0), math.log(3)
    small, large = (epochs * math.ceil(len(targets) / size) for size in (32, 256))
    by_epochs = {lr: final(256, lr, large) for lr in rates}
    by_updates = {lr: final(256, lr, small) for lr in rates}
    diverged = sum(
        not (by_epochs[lr] < 1.5 * chance and by_updates[lr] < 1.5 * chance) for lr in rates
    )
    evidence = {
        "learning rates at which batch 256 diverges, of 3": diverged,
        f"loss of batch 32 by lr, {epochs} epochs": {lr: final(32, lr, small) for lr in rates},
        f"loss of batch 256 by lr, {epochs} epochs": by_epochs,
        "updates, batch 32 and 256": [small, large],
        f"loss of batch 256 by lr, {small} updates": by_updates,
        f"loss with reduction='sum', lr 0.5/32, {epochs} epochs, batch 32 and 256": [
            final(32, 0.5 / 32, small, reduction="sum"),
            final(256, 0.5 / 32, large, reduction="sum"),
        ],
    }
    return weigh(
        "learning rates at which batch 256 diverges, of 3",
        evidence,
        stated=diverged >= 2,
        note="With a mean loss it is slower by the epoch, which holds fewer updates, and no worse "
        "by the update. A summed loss is another matter, since its gradient grows with the batch.",
    )


def _spiral_runs(optimizer_type, lr: float, seed: int, steps: int = 300) -> list[dict[str, float]]:
    inputs, targets, _, _ = spirals(seed)
    runs = []
    for index in range(6):
        model = mlp(seed=100 * seed + index)
        optimizer = optimizer_type(model.parameters(), lr=lr)
        run = fit(model, optimizer, inputs, targets, steps=steps)
        runs.append(
            {
                "finite": run.finite,
                "highest loss": max(run.losses),
                "last loss": statistics.fmean(run.losses[-20:]),
                "accuracy": accuracy(model, inputs, targets),
            }
        )
    return runs


@claim(
    "F31",
    title="Too large a learning rate gives NaN: divide it by 10",
    source='Lecture 3, "LR finder"',
    expected="holds if",
    says="Too large a learning rate makes the loss NaN; divide it by 10.",
    condition="if the optimizer is plain SGD and the loss unbounded, as MSE; Adam stays finite, "
    "and a ReLU classifier mostly dies first",
)
def too_large_lr(seed: int) -> Measured:
    inputs = torch.randn(64, 8)
    targets = inputs @ torch.randn(8, 1) + 0.1 * torch.randn(64, 1)

    def nonfinite(optimizer_type, lr: float) -> int:
        """Of six regressions with MSE, how many lose their finite loss within 200 steps."""
        count = 0
        for index in range(6):
            model = mlp(8, 32, 1, seed=100 * seed + index)
            optimizer = optimizer_type(model.parameters(), lr=lr)
            for _ in range(200):
                loss = F.mse_loss(model(inputs), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            count += not math.isfinite(loss.item())
        return count

    sgd, adam = torch.optim.SGD, torch.optim.Adam
    mse = {
        "SGD 1": nonfinite(sgd, 1.0),
        "SGD 0.1": nonfinite(sgd, 0.1),
        "Adam 1": nonfinite(adam, 1.0),
        "Adam 10": nonfinite(adam, 10.0),
    }
    classifier = sum(not run["finite"] for run in _spiral_runs(sgd, 10.0, seed, steps=150))
    evidence = {
        "regression, SGD 1: runs that end in NaN, of 6": mse["SGD 1"],
        "regression": mse,
        "spiral classifier, SGD 10": classifier,
    }
    return weigh(
        "regression, SGD 1: runs that end in NaN, of 6",
        evidence,
        stated=min(mse["SGD 1"], mse["Adam 10"], classifier) >= 3,
        conditioned=mse["SGD 1"] >= 4 and mse["SGD 0.1"] == 0,
    )


@claim(
    "F72",
    title="Adam at learning rate 1.0 gives NaN at once",
    source="Training-loop chapter, c6 experiment 1",
    expected="does not hold",
    says="Adam at a learning rate of 1.0 makes the loss NaN immediately.",
)
def experiment_1(seed: int) -> Measured:
    runs = _spiral_runs(torch.optim.Adam, 1.0, seed)
    nonfinite = sum(not run["finite"] for run in runs)
    evidence = {
        "runs that become non-finite, of 6": nonfinite,
        "highest loss, median": statistics.median(run["highest loss"] for run in runs),
        "late loss, median": statistics.median(run["last loss"] for run in runs),
        "accuracy, median": statistics.median(run["accuracy"] for run in runs),
    }
    return weigh(
        "runs that become non-finite, of 6",
        evidence,
        stated=nonfinite >= 3,
        note="Each Adam step is about lr long whatever the gradient: it jumps, and stays finite.",
    )
