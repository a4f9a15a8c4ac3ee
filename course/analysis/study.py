"""A small real study: a network on a few digits, trained in a fraction of a second per seed.

    data = load("digits", val_share=0.8)             # 359 images to train on, 1,438 to validate
    baseline = [points(data, seed) for seed in range(8)]
    wider = [points(data, seed, hidden=256) for seed in range(8)]

One seed sets the weights, the order of the batches, dropout and the shifts; the split belongs to
the data. Two settings with the same seed share their random draws, so they can be compared in
pairs.

Source: Lecture 3, "Ablation discipline"; ledger N23, T27.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.data import InMemoryLoader
from course.data.datasets import Data
from course.state import undisturbed

BATCH_SIZE = 64
CHANGES: dict[str, dict[str, float]] = {
    "wider": {"hidden": 256},
    "dropout": {"dropout": 0.3},
    "smoothing": {"smoothing": 0.1},
    "shift": {"shift": 1},
    "longer": {"epochs": 30},
    "decay": {"weight_decay": 0.1},
    "filters": {"filters": 16},
}
"""Changes to the baseline, one each, by name."""


def train(
    data: Data,
    seed: int,
    *,
    hidden: int = 64,
    dropout: float = 0.0,
    smoothing: float = 0.0,
    shift: int = 0,
    epochs: int = 15,
    weight_decay: float = 0.0,
    filters: int = 0,
    lr: float = 0.01,
) -> nn.Module:
    """A trained network, in eval mode. The global generators are restored.

    Args:
        data: Images [N, 1, H, W] and class indices [N].
        seed: Seed for weights, order of the batches, dropout and shifts.
        hidden: Units of the hidden layer.
        dropout: Share of the hidden units dropped in an update.
        smoothing: Label smoothing.
        shift: Pixels by which a training image may be moved, in each direction.
        epochs: Passes over the training images.
        weight_decay: Weight decay of AdamW.
        filters: Filters of a 3 × 3 convolution before the hidden layer; 0 for none.
        lr: Learning rate of AdamW.
    """
    with undisturbed():
        torch.manual_seed(seed)
        model = _network(data, hidden, dropout, filters)
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay)
        loader = InMemoryLoader(
            data.train_inputs, data.train_targets, batch_size=BATCH_SIZE, shuffle=True, seed=seed
        )
        draws = torch.Generator().manual_seed(seed)
        for _ in range(epochs):
            for inputs, targets in loader:
                inputs = shifted(inputs, shift, draws) if shift else inputs
                optimizer.zero_grad()
                F.cross_entropy(model(inputs), targets, label_smoothing=smoothing).backward()
                optimizer.step()
    return model.eval()


def points(data: Data, seed: int, **settings: float) -> float:
    """Validation accuracy of `train(data, seed, **settings)`, from 0 to 100."""
    model = train(data, seed, **settings)
    with torch.no_grad():
        hits = model(data.val_inputs).argmax(dim=1) == data.val_targets
    return 100 * hits.double().mean().item()


def shifted(images: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Each image moved by up to `most` pixels down, up, left or right, filled with background.

    Args:
        images: [B, C, H, W]. The background is their lowest value.
        most: Pixels, at least 1.
        generator: The generator that draws the moves.
    """
    height, width = images.shape[2:]
    padded = F.pad(images, (most,) * 4, value=images.min().item())
    down, right = torch.randint(2 * most + 1, (2, len(images)), generator=generator)
    rows = down[:, None] + torch.arange(height)
    columns = right[:, None] + torch.arange(width)
    each = torch.arange(len(images))[:, None, None]
    return padded.movedim(1, -1)[each, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)


def _network(data: Data, hidden: int, dropout: float, filters: int) -> nn.Module:
    channels, height, width = data.train_inputs.shape[1:]
    start: list[nn.Module] = [nn.Flatten()]
    if filters:
        start = [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU(), nn.Flatten()]
    features = (filters or channels) * height * width
    return nn.Sequential(
        *start, nn.Linear(features, hidden), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(hidden, data.num_classes),
    )  # fmt: skip
