"""What the programs of the eighteenth set share beside the kits of the sets before."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.fourteenth.kit import mlp, saving
from tests.debug.faulty.seventeenth.kit import costed, squares
from tests.debug.faulty.sixteenth.kit import averaged, by_cost, by_epochs, by_pairs, loaders
from tests.debug.faulty.thirteenth.kit import (
    Columns,
    accuracy,
    evaluating,
    gen,
    loader,
    runner,
    set_up,
    sup_step,
)
from tests.debug.faulty.twelfth.kit import plain_step, seed


def begun(number):
    """All draws begin anew; a generator for the data."""
    seed(number)
    return gen(number)


def blobs(g, n, d, k, noise=1.0, centres=None):
    """Rows round one centre for each class: [n, d], [n]."""
    if centres is None:
        centres = torch.randn(k, d, generator=gen(77))
    y = torch.randint(k, (n,), generator=g)
    return centres[y] + noise * torch.randn(n, d, generator=g), y


def table(g, n, w, d=10):
    """Rows [n, d] and a bent sum of their numbers [n, 1], by two columns of weights."""
    x = torch.randn(n, d, generator=g)
    bent = torch.tanh(x @ w[:, :1]) * 2 + x @ w[:, 1:]
    return x, bent + 0.1 * torch.randn(n, 1, generator=g)


def chain(g, n, t, v, p=0.75):
    """Tokens [n, t]: in a share of `p` each is 5 times the one before plus 3, else any of `v`."""
    token = torch.randint(v, (n,), generator=g)
    tokens = [token]
    for _ in range(t - 1):
        follows = torch.rand(n, generator=g) < p
        token = torch.where(follows, (5 * token + 3) % v, torch.randint(v, (n,), generator=g))
        tokens.append(token)
    return torch.stack(tokens, 1)


def shifted(model, b, reduction="mean"):
    """The cost of the next tokens."""
    x = b[0]
    out = model(x[:, :-1])
    return F.cross_entropy(out.flatten(0, 1), x[:, 1:].flatten(), reduction=reduction)


def points(g, n):
    """Points [n, 2] round (2, -1), wider than they are high."""
    return torch.randn(n, 2, generator=g) * torch.tensor([0.5, 0.2]) + torch.tensor([2.0, -1.0])


def leaky():
    return nn.LeakyReLU(0.2)


class Transfer(nn.Module):
    """A backbone, with a batch norm or without, and a head."""

    def __init__(self, d, k, bn=True):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Linear(d, 32),
            nn.BatchNorm1d(32) if bn else nn.Identity(),
            nn.ReLU(),
            nn.Linear(32, 24),
            nn.ReLU(),
        )
        self.head = nn.Linear(24, k)

    def forward(self, x):
        return self.head(self.backbone(x))


def fit_old_task(model, x, y):
    """60 quick steps on rows of an old task, in the mode that the model is in."""
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        rows = torch.randint(len(x), (64,))
        opt.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        opt.step()


__all__ = [
    "Columns",
    "accuracy",
    "averaged",
    "by_cost",
    "by_epochs",
    "by_pairs",
    "costed",
    "evaluating",
    "loader",
    "loaders",
    "mlp",
    "plain_step",
    "runner",
    "saving",
    "set_up",
    "squares",
    "sup_step",
]
