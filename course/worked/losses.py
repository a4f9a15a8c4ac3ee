"""Losses: log-sum-exp, label smoothing, and the effect of a second softmax."""

import math
from collections.abc import Iterator

import torch
from torch.nn import functional as F

from course.worked.registry import worked
from course.worked.step import Step


@worked(
    "N36",
    title="Log-sum-exp and its overflow",
    perturb={"logits": (1000.0, 1001.0, 1003.0)},
)
def log_sum_exp(
    logits: tuple[float, ...] = (1000.0, 1001.0, 1002.0), low: tuple[float, ...] = (-200.0, -201.0)
) -> Iterator[Step]:
    """Log-sum-exp shifted by the largest logit, and computed naively."""
    z = torch.tensor(logits, dtype=torch.float64)
    yield Step("log-sum-exp", z.logsumexp(0), formula="max + log Σ exp(z − max)")
    yield Step("naive log-sum-exp", z.exp().sum().log(), formula="log Σ exp(z)")
    yield Step("naive softmax", z.exp() / z.exp().sum(), formula="exp(z) / Σ exp(z)")
    for target in (len(logits) - 1, 0):
        loss = F.cross_entropy(z, torch.tensor(target))
        yield Step(f"cross-entropy, y = {target}", loss, formula=f"log-sum-exp − z[{target}]")
    z32 = torch.tensor(low, dtype=torch.float32)
    yield Step("low logits, float32: log-sum-exp", z32.logsumexp(0))
    yield Step(
        "low logits, float32: naive",
        z32.exp().sum().log(),
        formula="log Σ exp(z), and exp(z) below 1e-45 is 0",
    )


@worked(
    "N37",
    title="Label smoothing",
    tells="smoothed, torch",
    perturb={"smoothing": 0.2},
)
def label_smoothing(
    logits: tuple[float, ...] = (2.0, 1.0, 0.1), target: int = 0, smoothing: float = 0.1
) -> Iterator[Step]:
    """Smoothed targets, the loss against them by torch and by hand, and its smallest value."""
    for num_classes in (3, 10):
        hit, miss = _smoothed(num_classes, smoothing)
        yield Step(f"targets, C = {num_classes}", [hit, miss], formula="1 − ε + ε/C and ε/C")
    z, y = torch.tensor(logits, dtype=torch.float64), torch.tensor(target)
    yield Step("cross-entropy", F.cross_entropy(z, y), formula="−log softmax(z)[y]")
    smoothed = F.cross_entropy(z, y, label_smoothing=smoothing)
    yield Step("smoothed, torch", smoothed)
    hit, miss = _smoothed(len(logits), smoothing)
    q = torch.full_like(z, miss)
    q[target] = hit
    yield Step("smoothed, by hand", -(q * z.log_softmax(0)).sum(), formula="−Σ q log softmax(z)")
    floors = []
    for num_classes in (2, 3, 10):
        hit, miss = _smoothed(num_classes, smoothing)
        q = torch.tensor([hit] + (num_classes - 1) * [miss], dtype=torch.float64)
        floors.append(torch.special.entr(q).sum().item())  # 0 log 0 is 0
    yield Step("smallest loss, C = 2, 3, 10", floors, formula="−Σ q log q")


def _smoothed(num_classes: int, smoothing: float) -> tuple[float, float]:
    miss = smoothing / num_classes
    return 1 - smoothing + miss, miss


@worked(
    "N38",
    title="Softmax applied twice: the loss that cannot fall",
    tells="smallest loss with a second softmax",
    perturb={"num_classes": (2, 4, 10, 1000)},
)
def softmax_twice(num_classes: tuple[int, ...] = (2, 3, 10, 1000)) -> Iterator[Step]:
    """Cross-entropy of equal logits, and of a perfect softmax output passed as logits."""
    chance, floor = [], []
    for c in num_classes:
        target = torch.tensor([0])
        chance.append(F.cross_entropy(torch.zeros(1, c, dtype=torch.float64), target).item())
        perfect = F.one_hot(target, c).double()  # what a fully confident softmax returns
        floor.append(F.cross_entropy(perfect, target).item())
    yield Step("loss at chance", chance, formula="ln C")
    yield Step("smallest loss with a second softmax", floor, formula="ln(1 + (C − 1) / e)")
    closed = [math.log(1 + (c - 1) / math.e) for c in num_classes]
    yield Step("the same in closed form", closed)
