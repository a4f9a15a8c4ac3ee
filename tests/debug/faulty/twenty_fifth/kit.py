"""What the programs of the twenty-fifth set share beside the kits of the sets before."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.twenty_fourth.kit import (
    averaged,
    blobs,
    by_classes,
    by_cost,
    by_pairs,
    evaluating,
    feed,
    fit,
    gen,
    halves,
    loaders,
    mlp,
    plain_step,
    right,
    seed,
    set_up,
    sup_step,
)


def tones(n, s, noise=1.0):
    """Short clips [n, 1, 64] of one of four tones in noise, by any phase: [n]."""
    g = gen(s)
    y = torch.randint(0, 4, (n,), generator=g)
    rate = torch.tensor([0.2, 0.5, 0.9, 1.4])[y][:, None]
    phase = 6.28 * torch.rand(n, 1, generator=g)
    clip = torch.sin(rate * torch.arange(64.0) + phase)
    return (clip + noise * torch.randn(n, 64, generator=g))[:, None], y


def bars(n, s, noise=0.6):
    """Pictures [n, 1, 8, 8] of a bar that lies or stands in the first or second half: 4 kinds."""
    g = gen(s)
    y = torch.randint(0, 4, (n,), generator=g)
    at = torch.randint(0, 4, (n,), generator=g) + 4 * (y % 2)
    x = torch.zeros(n, 8, 8)
    for i in range(n):
        x[i, at[i]] = 1.5
        if y[i] >= 2:
            x[i] = x[i].T.clone()
    return (x + noise * torch.randn(n, 8, 8, generator=g))[:, None], y


def house(n, s, noise=0.2):
    """Rows [n, 6] and a bent sum of their numbers [n]."""
    g = gen(s)
    x = torch.randn(n, 6, generator=g)
    y = torch.tanh(x[:, 0] + x[:, 1]) + 0.5 * x[:, 2] * x[:, 3]
    return x, y + noise * torch.randn(n, generator=g)


def class_sums(model, b):
    """The summed loss and the hits of rows and classes, for `averaged`."""
    out = model(b[0]).float()
    return {"val_loss": (F.cross_entropy(out, b[1], reduction="sum"), len(out))} | right(out, b[1])


def row_squares(model, b):
    """The summed squared error of one number a row, for `averaged`."""
    return {"val_mse": (((model(b[0]).float() - b[1]) ** 2).sum(), len(b[1]))}


def words(n, T, V, s, p=0.85):
    """Tokens [n, T]: in a share `p` each is followed by its own next one, else by any."""
    after = torch.randperm(V, generator=gen(55))
    g = gen(s)
    x = torch.randint(0, V, (n, T), generator=g)
    for t in range(1, T):
        keep = torch.rand(n, generator=g) < p
        x[:, t] = torch.where(keep, after[x[:, t - 1]], x[:, t])
    return x


class Flat(nn.Module):
    """Layers whose one output loses its dimension."""

    def __init__(self, *sizes):
        super().__init__()
        self.net = mlp(*sizes)

    def forward(self, x):
        return self.net(x)[:, 0]


class BarNet(nn.Module):
    """A small convolutional network with batch norm, for pictures [n, 1, 8, 8]."""

    def __init__(self, k=4, drop=0.0):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(drop),
        )
        self.head = nn.Linear(128, k)

    def forward(self, x):
        return self.head(self.body(x))


__all__ = [
    "averaged",
    "blobs",
    "by_classes",
    "by_cost",
    "by_pairs",
    "evaluating",
    "feed",
    "fit",
    "halves",
    "loaders",
    "plain_step",
    "seed",
    "set_up",
    "sup_step",
]
