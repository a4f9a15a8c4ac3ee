"""Overfitting one batch: how low a healthy loop gets, over 200 seeds at once."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from course.worked.registry import worked
from course.worked.seeded import seeded
from course.worked.step import Step


@worked(
    "N62",
    title="Overfit one batch of 12: the threshold",
    tells="median loss",
    perturb={"steps": 100},
)
def overfit_one_batch(
    num_seeds: int = 200,
    num_examples: int = 12,
    sizes: tuple[int, int, int] = (4, 16, 3),
    lr: float = 0.05,
    steps: int = 200,
    threshold: float = 0.01,
    seed: int = 0,
) -> Iterator[Step]:
    """The probe's final loss for many seeds, and how many seeds miss the threshold.

    None of the first 200 seeds misses it, and 1 of the first 2,000 does (it ends at 0.061). So a
    healthy loop may occasionally fail the probe: try a second seed before you hunt for a bug.
    """
    losses = final_losses(num_seeds, num_examples, sizes, lr, steps, seed)
    fan_in, hidden, num_classes = sizes
    count = (fan_in + 1) * hidden + (hidden + 1) * num_classes
    formula = f"({fan_in} + 1) · {hidden} + ({hidden} + 1) · {num_classes}"
    yield Step("parameters", count, formula=formula)
    yield Step("median loss", losses.median())
    yield Step("99 % of the seeds are below", losses.quantile(0.99))
    yield Step("largest loss", losses.max())
    missed = (losses > threshold).sum()
    yield Step("seeds above the threshold", missed, formula=f"loss > {threshold:g}")


def final_losses(
    num_seeds: int,
    num_examples: int,
    sizes: tuple[int, int, int],
    lr: float,
    steps: int,
    seed: int,
) -> Tensor:
    """Loss of each seed's network after training, shape [seeds].

    All networks train side by side in stacked weights: with the sum of their losses, each gets the
    gradient it would have alone, and Adam works number by number.
    """
    starts = [_start(seed * num_seeds + i, num_examples, sizes) for i in range(num_seeds)]
    w1, b1, w2, b2, inputs, targets = (
        torch.stack(parts).to(torch.get_default_device()) for parts in zip(*starts, strict=True)
    )
    weights = [w.requires_grad_() for w in (w1, b1, w2, b2)]
    optimizer = torch.optim.Adam(weights, lr=lr)
    for step in range(steps + 1):
        hidden = torch.baddbmm(b1[:, None], inputs, w1.mT).relu()
        logits = torch.baddbmm(b2[:, None], hidden, w2.mT)
        each = nn.functional.cross_entropy(logits.mT, targets, reduction="none").mean(dim=1)
        if step < steps:
            optimizer.zero_grad()
            each.sum().backward()
            optimizer.step()
    return each.detach()


def _start(seed: int, num_examples: int, sizes: tuple[int, int, int]) -> tuple[Tensor, ...]:
    """Initial weights, inputs and labels of one seed."""
    fan_in, hidden, num_classes = sizes
    with seeded(seed), torch.no_grad():
        first, second = nn.Linear(fan_in, hidden), nn.Linear(hidden, num_classes)
        inputs = torch.randn(num_examples, fan_in)
        targets = torch.randint(0, num_classes, (num_examples,))
    parameters = (first.weight, first.bias, second.weight, second.bias)
    return *(p.detach() for p in parameters), inputs, targets
