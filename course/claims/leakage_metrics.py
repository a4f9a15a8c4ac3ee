"""Leakage, and numbers that mislead: what a split, a mean and an accuracy may hide."""

from __future__ import annotations

import statistics

import torch
from torch import Tensor
from torch.nn import functional as F

from course.claims.lab import digits, mlp
from course.claims.registry import Measured, claim, weigh


def _nearest(inputs: Tensor, targets: Tensor, queries: Tensor) -> Tensor:
    """Targets of the nearest training example of each query."""
    return targets[torch.cdist(queries, inputs).argmin(1)]


def _random_split(num: int, num_val: int) -> tuple[Tensor, Tensor]:
    order = torch.randperm(num)
    return order[num_val:], order[:num_val]


@claim(
    "F99",
    title="Leakage inflates validation",
    source='Lecture 3, "Leakage"; training-loop chapter, c5',
    expected="holds",
    says="Information from validation that leaks into training makes validation look too good.",
)
def leakage_inflates() -> Measured:
    grouped, series, features = _grouped(), _series(), _features()
    evidence = {
        "accuracy gained by splitting groups apart, true is 0.5": grouped[0] - grouped[1],
        "groups: random split, split by group": grouped,
        "series: error of a random split, of a split in time": series,
        "features chosen by all labels, by training labels": features,
    }
    stated = (
        grouped[0] > grouped[1] + 0.2
        and series[0] < 0.5 * series[1]
        and features[0] > features[1] + 0.15
    )
    return weigh("accuracy gained by splitting groups apart, true is 0.5", evidence, stated=stated)


def _grouped() -> list[float]:
    """Accuracy on 100 groups of near copies with coin-flip labels: random split, group split."""
    groups = torch.arange(100).repeat_interleave(10)
    labels = torch.randint(0, 2, (100,))[groups]
    inputs = torch.randn(100, 10)[groups] + 0.1 * torch.randn(1000, 10)
    train, val = _random_split(1000, 200)
    train_groups, val_groups = _random_split(100, 50)
    by_group = torch.isin(groups, train_groups), torch.isin(groups, val_groups)
    return [
        (_nearest(inputs[a], labels[a], inputs[b]) == labels[b]).float().mean().item()
        for a, b in ((train, val), by_group)
    ]


def _series() -> list[float]:
    """Error of the nearest point in time on random walks: split at random, split in time."""
    errors = []
    for _ in range(20):
        walk, time = torch.randn(500).cumsum(0), torch.arange(500.0)[:, None]
        splits = _random_split(500, 100), (torch.arange(400), torch.arange(400, 500))
        errors.append([
            (_nearest(time[a], walk[a], time[b]) - walk[b]).square().mean().sqrt().item()
            for a, b in splits
        ])  # fmt: skip
    return [statistics.fmean(column) for column in zip(*errors, strict=True)]


def _features() -> list[float]:
    """Accuracy on pure noise, the 20 best of 2,000 features chosen by all or training labels."""
    results = []
    for _ in range(10):
        inputs, labels = torch.randn(100, 2000), torch.arange(100) % 2
        train, val = _random_split(100, 30)
        results.append([])
        for seen in (torch.arange(100), train):
            centred = inputs[seen] - inputs[seen].mean(0)
            best = (centred * (labels[seen, None] - 0.5)).sum(0).abs().topk(20).indices
            chosen = inputs[:, best]
            centres = torch.stack([chosen[train][labels[train] == c].mean(0) for c in (0, 1)])
            guesses = torch.cdist(chosen[val], centres).argmin(1)
            results[-1].append((guesses == labels[val]).float().mean().item())
    return [statistics.fmean(column) for column in zip(*results, strict=True)]


@claim(
    "F100",
    title="Mean and std over all data explain 95 % against 70 %",
    source="Training-loop chapter, c5 bug 6",
    expected="does not hold",
    says="Normalising by the mean and std of all data inflates validation, as from 70 to 95 %.",
)
def normalisation_leak(seed: int) -> Measured:
    inputs, targets, val_inputs, val_targets = digits(seed)
    inputs, targets = torch.cat([inputs, val_inputs])[:600], torch.cat([targets, val_targets])[:600]
    scales = torch.exp(torch.randn(64))  # features on scales of their own, so that it matters
    inputs = inputs * scales
    gains, right = [], []
    for _ in range(30):
        train, val = _random_split(600, 150)
        scores = []
        for seen in (torch.arange(600), train):
            mean, std = inputs[seen].mean(0), inputs[seen].std(0).clamp_min(1e-6)
            x = (inputs - mean) / std
            guesses = _nearest(x[train], targets[train], x[val])
            scores.append((guesses == targets[val]).float().mean().item())
        gains.append(scores[0] - scores[1])
        right.append(scores)
    evidence = {
        "accuracy gained by the leak, mean of 30 splits": statistics.fmean(gains),
        "accuracy with statistics of all data, of the training part": [
            statistics.fmean(column) for column in zip(*right, strict=True)
        ],
    }
    return weigh(
        "accuracy gained by the leak, mean of 30 splits",
        evidence,
        stated=statistics.fmean(gains) > 0.1,
        note="Wrong in principle, invisible in effect: look for another leak, or a shift.",
    )


@claim(
    "F101",
    title="Accuracy hides imbalance",
    source='Lecture 3, "Loss and metric"',
    expected="holds",
    says="On imbalanced classes a useless model can have a high accuracy.",
)
def accuracy_and_imbalance() -> Measured:
    targets = torch.tensor([0] * 900 + [1] * 100)
    guesses = torch.zeros_like(targets)
    right = (guesses == targets).double().mean().item()
    true_positive = ((guesses == 1) & (targets == 1)).sum().item()
    f1 = 2 * true_positive / ((guesses == 1).sum() + (targets == 1).sum()).item()
    evidence = {"accuracy of always saying the majority": right, "F1 of the minority": f1}
    return weigh(
        "accuracy of always saying the majority", evidence, stated=right >= 0.9 and f1 == 0
    )


@claim(
    "F124",
    title="running_loss / len(loader) is the epoch's loss",
    source="Engineering module, §4; annotated-loop essay",
    expected="holds if",
    says="The sum of batch losses divided by the number of batches is the epoch's loss.",
    condition="if all batches have the same size",
)
def mean_of_batch_means() -> Measured:
    def gap(num: int) -> float:
        losses = torch.cat([torch.ones(num - num % 16), 2 * torch.ones(num % 16)]).double()
        running = sum(batch.mean().item() for batch in losses.split(16))
        return running / len(losses.split(16)) - losses.mean().item()

    even, uneven = gap(96), gap(100)
    evidence = {"error with a short last batch": uneven, "error with equal batches": even}
    return weigh(
        "error with a short last batch",
        evidence,
        stated=abs(even) < 1e-12 and abs(uneven) < 1e-12,
        conditioned=abs(even) < 1e-12,
    )


@claim(
    "F125",
    title="Loss times batch size averages exactly",
    source="Training-loop chapter, c4",
    expected="holds if",
    says="Weighting each batch's loss by its size gives the exact mean over the epoch.",
    condition="if there are no class weights; with them each batch must count with its weight sum",
)
def sample_weighted_loss(seed: int) -> Measured:
    inputs, targets, _, _ = digits(seed)
    inputs, targets = inputs[:100].double(), targets[:100]
    model = mlp(64, 32, 10, seed=seed).double()

    def gap(weight: Tensor | None) -> float:
        with torch.no_grad():
            logits = model(inputs)
        total = 0.0
        for z, y in zip(logits.split(16), targets.split(16), strict=True):
            total += F.cross_entropy(z, y, weight).item() * len(y)
        return abs(total / len(targets) - F.cross_entropy(logits, targets, weight).item())

    plain = gap(None)
    weighted = gap(torch.linspace(0.1, 10.0, 10, dtype=torch.float64))
    evidence = {"error with class weights": weighted, "error without": plain}
    return weigh(
        "error with class weights",
        evidence,
        stated=plain < 1e-12 and weighted < 1e-9,
        conditioned=plain < 1e-12,
    )


@claim(
    "F126",
    title="The logged train_loss is the epoch's loss",
    source="Training-loop chapter, c7 production script",
    expected="does not hold",
    says="The train_loss that the production script logs is the training loss.",
)
def logged_train_loss() -> Measured:
    """The script keeps `loss = criterion(...) / accum_steps` and logs the last one."""
    accum_steps, losses = 4, [4.0, 3.0, 1.0, 2.0]
    weight = torch.ones(1, requires_grad=True)
    for value in losses:
        loss = (weight * value).sum() / accum_steps
        loss.backward()
    logged, true_mean = loss.item(), sum(losses) / len(losses)
    evidence = {
        "logged": logged,
        "mean loss": true_mean,
        "loss of the last micro-batch": losses[-1],
    }
    return weigh(
        "logged",
        evidence,
        stated=abs(logged - true_mean) < 1e-6,
        note="It is the last micro-batch's loss, already divided by K = 4.",
    )
