"""What the programs of the twenty-first set share beside the kits of the sets before."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from tests.debug.faulty.fourteenth.kit import endless, mean_eval
from tests.debug.faulty.twentieth.kit import (
    by_classes,
    by_cost,
    by_errors,
    by_pairs,
    evaluating,
    feed,
    gen,
    loaders,
    mlp,
    nearest,
    plain_step,
    rights,
    seed,
    set_up,
    squared,
    sup_step,
)


def blobs(n, d, k, s, spread=1.0, centre=2.0, noise=0.0):
    """Classes round the same centres for every seed; a share `noise` of labels is drawn anew."""
    centres = torch.randn(k, d, generator=gen(77)) * centre
    g = gen(s)
    y = torch.randint(0, k, (n,), generator=g)
    x = centres[y] + spread * torch.randn(n, d, generator=g)
    if noise:
        is_drawn = torch.rand(n, generator=g) < noise
        y = torch.where(is_drawn, torch.randint(0, k, (n,), generator=g), y)
    return x, y


def chains(n, T, V, s, p=0.85):
    """Tokens [n, T]: a fixed successor with probability p, else any token."""
    follows = torch.randperm(V, generator=gen(5))
    g = gen(s)
    x = torch.zeros(n, T, dtype=torch.long)
    x[:, 0] = torch.randint(0, V, (n,), generator=g)
    for t in range(1, T):
        other = torch.randint(0, V, (n,), generator=g)
        x[:, t] = torch.where(torch.rand(n, generator=g) < p, follows[x[:, t - 1]], other)
    return x


def curve(n, s, d=8, noise=0.1):
    """Rows [n, d] and a bent sum of their numbers [n]."""
    g = gen(s)
    x = torch.randn(n, d, generator=g)
    w = 0.45 * torch.randn(d, generator=gen(21))
    return x, torch.sin(x @ w) + 0.5 * x[:, 0] + noise * torch.randn(n, generator=g)


def nuisance(n, s):
    """Rows of which 4 numbers tell the class and 12 are noise."""
    g = gen(s)
    y = torch.randint(0, 4, (n,), generator=g)
    centres = torch.randn(4, 4, generator=gen(3)) * 1.5
    own = centres[y] + 0.4 * torch.randn(n, 4, generator=g)
    return torch.cat([own, 1.5 * torch.randn(n, 12, generator=g)], 1), y


def pretrain(model, opt, x, y, steps):
    """Some steps on 64 rows each, before the training proper."""
    for _ in range(steps):
        i = torch.randint(0, len(x), (64,))
        opt.zero_grad()
        F.cross_entropy(model(x[i]), y[i]).backward()
        opt.step()


def row_errors(m, b):
    """The squared error of each row."""
    return (m(b[0]) - b[1]) ** 2


def class_losses(m, b):
    """The cross-entropy of each row."""
    return F.cross_entropy(m(b[0]), b[1], reduction="none")


def whole_batches(train, held, bs=32, vbs=None):
    """Loaders of which the one to train on leaves out a last batch that is smaller."""
    return feed(train, bs, drop_last=True), feed(held, vbs or bs, shuffle=False)


def by_rows(m, opt, tl, vl, crit=None, step=None, **more):
    """A regression to one number for each row, scored by its mean squared error."""
    crit = crit or nn.MSELoss()
    known = {"evaluate": mean_eval(m, vl, {"val_mse": row_errors})}
    return by_pairs(m, opt, tl, vl, crit, step, **known | more)


class Squeezed(nn.Module):
    """Layers whose one output loses its dimension."""

    def __init__(self, *sizes):
        super().__init__()
        self.net = mlp(*sizes)

    def forward(self, x):
        return self.net(x).squeeze(-1)


class SmallGPT(nn.Module):
    """One block of a transformer over tokens, with a causal mask or without."""

    def __init__(self, V=12, d=32, T=16, causal=True):
        super().__init__()
        self.emb = nn.Embedding(V, d)
        self.pos = nn.Parameter(torch.randn(T, d) * 0.5)
        self.blk = nn.TransformerEncoderLayer(
            d, 2, 64, dropout=0.0, batch_first=True, norm_first=True
        )
        self.out = nn.Linear(d, V)
        self.causal = causal

    def forward(self, x):
        T = x.shape[1]
        h = self.emb(x) + self.pos[:T]
        mask = torch.triu(torch.ones(T, T, dtype=torch.bool), 1) if self.causal else None
        return self.out(self.blk(h, src_mask=mask))


class TwoViews(Dataset):
    """Two augmentations of a row: its noise is drawn anew, and a little added to all."""

    def __init__(self, x, is_same=False):
        self.x = x
        self.is_same = is_same
        self.count = 0

    def __len__(self):
        return len(self.x)

    def view(self, x, g):
        x = x.clone()
        x[4:] = 1.5 * torch.randn(12, generator=g)
        return x + 0.1 * torch.randn(16, generator=g)

    def __getitem__(self, i):
        self.count += 1
        s = self.count * 7919
        first = self.view(self.x[i], gen(s))
        return {"view1": first, "view2": self.view(self.x[i], gen(s if self.is_same else s + 1))}


class SimSiam(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Linear(16, 32),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Linear(32, 8),
        )
        self.pred = mlp(8, 8, 8)

    def forward(self, x):
        return self.enc(x)


__all__ = [
    "by_classes",
    "by_cost",
    "by_errors",
    "endless",
    "evaluating",
    "feed",
    "loaders",
    "nearest",
    "plain_step",
    "rights",
    "seed",
    "set_up",
    "squared",
    "sup_step",
]
