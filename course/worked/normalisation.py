"""BatchNorm and dropout: what train mode does to four numbers, and what eval mode does."""

import math
from collections.abc import Iterator
from itertools import chain, product, repeat

import torch
from torch import nn

from course.worked.registry import worked
from course.worked.seeded import seeded
from course.worked.step import Step


@worked(
    "N12",
    title="Dropout 0.5 on four activations",
    perturb={"p": 0.25},
)
def dropout_masks(
    activations: tuple[float, ...] = (0.8, 1.2, 0.3, 0.9),
    p: float = 0.5,
    dropped: tuple[tuple[int, ...], ...] = ((1, 3), (0, 2)),
    draws: int = 600,
    seed: int = 0,
) -> Iterator[Step]:
    """The chapter's two masks, then torch's dropout, drawn until every mask has occurred."""
    x = torch.tensor(activations, dtype=torch.float64)
    printed_outputs = chain(([1.6, 0, 0.6, 0], [0, 2.4, 0, 1.8]), repeat(None))
    for indices, printed in zip(dropped, printed_outputs, strict=False):
        keep = torch.ones_like(x)
        keep[list(indices)] = 0
        name = " and ".join(map(str, indices))
        yield Step(
            f"elements {name} dropped", x * keep / (1 - p), printed, formula="x · mask / (1 − p)"
        )

    layer = nn.Dropout(p)
    with seeded(seed):
        outputs = layer(x.cpu().expand(draws, -1))
    yield Step("different outputs in train mode", len({tuple(row) for row in outputs.tolist()}))
    yield Step("possible masks", 2 ** len(activations), formula=f"2^{len(activations)}")
    layer.eval()
    yield Step("eval mode", layer(x), [0.8, 1.2, 0.3, 0.9], formula="x")
    masks = torch.tensor(list(product((0.0, 1.0), repeat=len(x))), dtype=torch.float64)
    chance = (masks * (1 - p) + (1 - masks) * p).prod(dim=1, keepdim=True)
    mean = (chance * masks * x / (1 - p)).sum(dim=0)
    yield Step("mean over all masks", mean, formula="Σ P(mask) · x · mask / (1 − p)")


@worked(
    "N39",
    title="BatchNorm on the column 1, 2, 3, 4",
    tells="running var",
    perturb={"momentum": 0.2},
)
def batch_norm(
    column: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0), momentum: float = 0.1, eps: float = 1e-5
) -> Iterator[Step]:
    """One batch through a fresh BatchNorm1d, then the same batch in eval mode."""
    x = torch.tensor(column, dtype=torch.float64)[:, None]
    layer = nn.BatchNorm1d(1, momentum=momentum, eps=eps, dtype=torch.float64)
    yield Step("train output", layer(x).flatten(), formula="(x − mean) / √(biased var + ε)")
    by_hand = (x - x.mean()) / (x.var(correction=0) + eps).sqrt()
    yield Step("the same by hand", by_hand.flatten())
    keep = 1 - momentum
    yield Step("running mean", layer.running_mean[0], formula=f"{keep:g} · 0 + {momentum:g} · mean")
    yield Step("unbiased variance", x.var(), formula="Σ (x − mean)² / (B − 1)")
    yield Step(
        "running var", layer.running_var[0], formula=f"{keep:g} · 1 + {momentum:g} · unbiased var"
    )
    layer.eval()
    yield Step("eval output", layer(x).flatten(), formula="(x − running mean) / √(running var + ε)")


_PRINTED_SCALE = {"as_printed": "1/(1-p) = 2", "at": "chapter c4, dropout"}


@worked(
    "N40",
    title="Dropout's scale",
    perturb={"rates": (0.1, 0.5)},
)
def dropout_scale(rates: tuple[float, ...] = (0.2, 0.5), seed: int = 0) -> Iterator[Step]:
    """The value of a 1 that dropout keeps."""
    with seeded(seed):
        ones = torch.ones(1000, dtype=torch.float64)
        kept = {p: nn.functional.dropout(ones, p).max().item() for p in rates}
    for p, value in kept.items():
        known = {"printed": 2.0, **_PRINTED_SCALE} if p == 0.5 else {}
        yield Step(f"p = {p:g}: a kept 1 becomes", value, formula="1 / (1 − p)", **known)


@worked(
    "N61",
    title="How much the mean and variance of a batch scatter",
    tells="batch mean",
    perturb={"batch_sizes": (2, 8, 32)},
)
def batch_statistics(
    batch_sizes: tuple[int, ...] = (2, 4, 32), num_batches: int = 20_000, seed: int = 0
) -> Iterator[Step]:
    """Standard deviation over many batches of unit normal numbers, drawn and in closed form."""
    means, variances = [], []
    for size in batch_sizes:
        with seeded(seed):
            batch = torch.randn(num_batches, size)
        means.append(batch.mean(dim=1).std().item())
        variances.append(batch.var(dim=1, correction=0).std().item())
    yield Step("batch mean, drawn", means)
    yield Step("batch mean", [1 / math.sqrt(b) for b in batch_sizes], formula="1 / √B")
    yield Step("batch variance, drawn", variances)
    exact = [math.sqrt(2 * (b - 1)) / b for b in batch_sizes]
    yield Step("batch variance", exact, formula="√(2 (B − 1)) / B, divided by B as BatchNorm does")
