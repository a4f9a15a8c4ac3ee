"""Sampling: 900 examples of one class and 100 of another, drawn uniformly and by weight."""

import math
from collections.abc import Iterator

import torch
from torch.utils.data import WeightedRandomSampler

from course.worked.registry import worked
from course.worked.seeded import seeded
from course.worked.step import Step


@worked(
    "N07",
    title="900 against 100: plain and weighted batches",
    perturb={"class_sizes": (800, 200)},
    figure="sampled_classes",
)
def weighted_sampling(
    class_sizes: tuple[int, int] = (900, 100),
    batch_size: int = 32,
    epochs: int = 20,
    seed: int = 0,
) -> Iterator[Step]:
    """What a batch contains, and how many examples a balanced sampler never draws."""
    total, minority = sum(class_sizes), class_sizes[1]
    shares = [batch_size * size / total for size in class_sizes]
    animals = "29 dogs; 3 cats"
    formula = "B · class size / N"
    yield Step("unweighted batch", shares, [29.0, 3.0], 0.5, formula, as_printed=animals)
    p = minority / total
    spread = math.sqrt(batch_size * p * (1 - p) * (total - batch_size) / (total - 1))
    yield Step("sd of the minority count", spread, formula="√(B p (1 − p) (N − B) / (N − 1))")
    none = math.comb(class_sizes[0], batch_size) / math.comb(total, batch_size)
    chosen = f"C({class_sizes[0]}, B) / C({total}, B)"
    yield Step("batches without the minority, percent", 100 * none, formula=chosen)

    weights = [1 / size for size in class_sizes]
    yield Step("weight per example", weights, [0.00111, 0.01], 5e-6, formula="1 / class size")
    sizes = f"{class_sizes[0]} / {class_sizes[1]}"
    yield Step("ratio of the weights", weights[1] / weights[0], 9.0, formula=sizes, as_printed="9×")
    mass = [weight * size for weight, size in zip(weights, class_sizes, strict=True)]
    yield Step("total weight per class", mass, formula="class size · weight")
    drawn = [batch_size * part / sum(mass) for part in mass]
    animals = "16 dogs; 16 cats"
    formula = "B · total / Σ totals"
    yield Step("weighted batch", drawn, [16.0, 16.0], formula=formula, as_printed=animals)
    half = mass[1] / sum(mass)
    binomial = math.sqrt(batch_size * half * (1 - half))
    yield Step("sd of the minority count, weighted", binomial, formula="√(B q (1 − q))")
    distinct = [
        size * (1 - (1 - weight / sum(mass)) ** total)
        for size, weight in zip(class_sizes, weights, strict=True)
    ]
    yield Step("distinct examples in N draws", distinct, formula="size · (1 − (1 − w / Σw)^N)")
    each = [total * part / sum(mass) / size for part, size in zip(mass, class_sizes, strict=True)]
    yield Step("draws of each example", each, formula="N · total / Σ totals / size")

    touched, counts = simulate(class_sizes, batch_size, epochs, seed)
    yield Step(f"simulated, {epochs} epochs: distinct", touched.mean(dim=0))
    yield Step("simulated: minority in a batch", counts.mean())
    yield Step("simulated: its sd", counts.std())


def simulate(
    class_sizes: tuple[int, int], batch_size: int, epochs: int, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Distinct examples by epoch and class [E, 2]; minority examples in every full batch."""
    touched, counts = [], []
    with seeded(seed):
        labels = torch.arange(2).repeat_interleave(torch.tensor(class_sizes))
        weights = [1 / class_sizes[label] for label in labels.tolist()]
        for _ in range(epochs):
            drawn = torch.tensor(list(WeightedRandomSampler(weights, len(labels))))
            touched.append(labels[drawn.unique()].bincount(minlength=2))
            full = len(labels) // batch_size * batch_size
            counts.append(labels[drawn[:full]].view(-1, batch_size).sum(dim=1))
        return torch.stack(touched).double(), torch.cat(counts).double()
