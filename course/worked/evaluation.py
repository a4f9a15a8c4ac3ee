"""Evaluation: an average of averages, and an accuracy that says nothing."""

from collections.abc import Iterator

import torch

from course.worked.registry import worked
from course.worked.step import Step


@worked(
    "N55",
    title="The mean of batch means against the true mean",
    tells="mean of the batch means",
    perturb={"sizes": (16, 16, 8)},
)
def running_loss(
    sizes: tuple[int, ...] = (16, 16, 16, 16, 16, 16, 4),
    loss: float = 1.0,
    last_loss: float = 2.0,
) -> Iterator[Step]:
    """`running_loss / len(loader)` against the loss weighted by batch size."""
    losses = torch.full((len(sizes),), loss, dtype=torch.float64)
    losses[-1] = last_loss
    count = torch.tensor(sizes, dtype=torch.float64)
    yield Step("mean of the batch means", losses.mean(), formula="Σ lossᵢ / batches")
    yield Step(
        "mean over examples", (losses * count).sum() / count.sum(), formula="Σ nᵢ lossᵢ / Σ nᵢ"
    )


@worked(
    "N60",
    title="Always predicting the majority: accuracy and F1",
    tells="F1 of the minority class",
    perturb={"class_sizes": (800, 200)},
)
def majority_vote(class_sizes: tuple[int, int] = (900, 100)) -> Iterator[Step]:
    """A classifier that has never seen the minority."""
    targets = torch.arange(2).repeat_interleave(torch.tensor(class_sizes))
    predicted = torch.zeros_like(targets)
    accuracy = (predicted == targets).double().mean()
    yield Step("accuracy", accuracy, formula=f"{class_sizes[0]} / {sum(class_sizes)}")
    hits = ((predicted == 1) & (targets == 1)).sum()
    wrong = (predicted != targets).sum()  # false positives and false negatives
    yield Step(
        "F1 of the minority class", 2 * hits / (2 * hits + wrong), formula="2TP / (2TP + FP + FN)"
    )
