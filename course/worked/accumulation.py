"""Gradient accumulation: two micro-batches of one example against one batch of two."""

from collections.abc import Iterator

import torch

from course.worked.registry import worked
from course.worked.step import Step


def _loss(weight: torch.Tensor, x: float, y: float) -> torch.Tensor:
    return (weight * x - y) ** 2


@worked(
    "N19",
    title="Gradient accumulation by hand",
    perturb={"lr": 0.05},
    reconstructed=(
        "Of the lecture's numbers only the gradients −2, −6 and −8 are left; (wx − y)², lr 0.1, "
        "the pairs (2,1), (3,2) and w = 0.8 are from an earlier public version of the slides. At w "
        "= 0 any pairs with xy = 2 and xy = 6 give the same gradients, e.g. (1,2) and (1,6)."
    ),
)
def gradient_accumulation(
    examples: tuple[tuple[float, float], ...] = ((2.0, 1.0), (3.0, 2.0)),
    w: float = 0.0,
    lr: float = 0.1,
) -> Iterator[Step]:
    """`w.grad` after each micro-batch, the update, and the same update from one big batch.

    By hand, with d/dw (wx − y)²/K = 2(wx − y)x/K at w = 0 and K = 2:
        (2, 1): 2·(0 − 1)·2/2 = −2, .grad = −2
        (3, 2): 2·(0 − 2)·3/2 = −6, .grad = −2 + −6 = −8
    """
    accum_steps = len(examples)
    weight = torch.tensor(w, dtype=torch.float64, requires_grad=True)
    scaled_losses, contributions, before = [], [], 0.0
    for x, y in examples:
        loss = _loss(weight, x, y) / accum_steps
        loss.backward()  # adds to .grad
        scaled_losses.append(loss.item())
        contributions.append(weight.grad.item() - before)
        before = weight.grad.item()
    accumulated = weight.grad.item()
    yield Step("each loss / K", scaled_losses, formula="(w·x − y)² / K")
    yield Step("each gradient", contributions, [-2.0, -6.0], formula="2(w·x − y)·x / K")
    yield Step(".grad after all micro-batches", accumulated, -8.0, formula="sum of the gradients")
    updated = w - lr * accumulated
    yield Step("w after the step", updated, rebuilt=0.8, formula="w − lr · .grad")

    joined = torch.tensor(w, dtype=torch.float64, requires_grad=True)
    big_loss = torch.stack([_loss(joined, x, y) for x, y in examples]).mean()
    big_loss.backward()
    yield Step("big batch: loss", big_loss, formula="mean of (w·x − y)²")
    yield Step("big batch: gradient", joined.grad)
    from_joined = w - lr * joined.grad.item()
    yield Step("big batch: w after the step", from_joined, rebuilt=0.8, formula="w − lr · grad")

    def mean_loss(weight: float) -> float:
        return sum((weight * x - y) ** 2 for x, y in examples) / accum_steps

    yield Step("mean loss after the step", mean_loss(updated))
    forgotten = accumulated * accum_steps
    yield Step("without / K: gradient", forgotten, formula="too long by a factor of K")
    yield Step("without / K: w", w - lr * forgotten)
    yield Step("without / K: mean loss", mean_loss(w - lr * forgotten))
    yield Step("stepping after each micro-batch: w", _step_each(examples, w, lr))
    best = sum(x * y for x, y in examples) / sum(x * x for x, _ in examples)
    yield Step("w that minimises the loss", best, formula="Σxy / Σx²")
    yield Step("smallest mean loss", mean_loss(best))


def _step_each(examples: tuple[tuple[float, float], ...], w: float, lr: float) -> float:
    """No accumulation at all: one step per micro-batch, each with its undivided loss."""
    for x, y in examples:
        w -= lr * 2 * (w * x - y) * x
    return w
