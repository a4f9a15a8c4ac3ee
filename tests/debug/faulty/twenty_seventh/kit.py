"""What the programs of the twenty-seventh set share beside the kits of the sets before."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Sampler

from tests.debug.faulty.twenty_fifth.kit import (
    BarNet,
    Flat,
    averaged,
    bars,
    blobs,
    by_cost,
    by_pairs,
    class_sums,
    evaluating,
    feed,
    fit,
    gen,
    halves,
    house,
    loaders,
    mlp,
    plain_step,
    right,
    row_squares,
    seed,
    set_up,
    sup_step,
    tones,
)


def by_classes(m, opt, tl, vl, k, step=None, crit=None, **more):
    """Pairs of rows and classes in training, scored by loss and accuracy."""
    known = {"evaluate": averaged(m, vl, class_sums), "num_classes": k}
    return by_pairs(m, opt, tl, vl, crit, step, **known | more)


def numbers(m, opt, tl, vl, step=None, crit=None, **more):
    """One number a row in training, scored by the mean squared error."""
    known = {"evaluate": averaged(m, vl, row_squares), "task": "regression"}
    return by_pairs(m, opt, tl, vl, crit or nn.MSELoss(), step, **known | more)


def spots(n, s, size=10):
    """Pictures [n, 1, size, size] of a bright patch anywhere, and its mask [n, size, size]."""
    g = gen(s)
    at = torch.randint(0, size - 3, (n, 2), generator=g)
    mask = torch.zeros(n, size, size)
    for i, (a, b) in enumerate(at.tolist()):
        mask[i, a : a + 4, b : b + 3] = 1
    return (1.5 * mask + 0.7 * torch.randn(n, size, size, generator=g))[:, None], mask


def overlap(model, b):
    """The summed cross-entropy of pixels, and the intersection and union of masks."""
    out = model(b[0])[:, 0].float()
    told, true = out > 0, b[1] > 0.5
    return {
        "val_loss": (F.binary_cross_entropy_with_logits(out, b[1], reduction="sum"), out.numel()),
        "iou": ((told & true).sum(), (told | true).sum()),
    }


def segmenter():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
        nn.Conv2d(8, 1, 3, padding=1),
    )  # fmt: skip


def mask_loss(model, b):
    return F.binary_cross_entropy_with_logits(model(b[0])[:, 0], b[1])


def sheet_of(n, s, d=16, r=3):
    """Rows near a curved sheet of three dimensions: [n, d]."""
    A = torch.randn(r, d, generator=gen(271))
    g = gen(s)
    return torch.tanh(torch.randn(n, r, generator=g) @ A) + 0.05 * torch.randn(n, d, generator=g)


def moons(n, s):
    """Points [n, 2] on two bent arcs."""
    g = gen(s)
    a = 3.1416 * torch.rand(n, generator=g)
    side = torch.randint(0, 2, (n,), generator=g).float()
    x = torch.where(side > 0, 1 - a.cos(), a.cos())
    y = torch.where(side > 0, 0.5 - a.sin(), a.sin())
    return torch.stack([x - 0.5, y - 0.25], 1) * 1.5 + 0.08 * torch.randn(n, 2, generator=g)


def apart(a, b):
    """The energy distance of two clouds of points."""
    own = torch.cdist(a, a).mean() + torch.cdist(b, b).mean()
    return (2 * torch.cdist(a, b).mean() - own).item()


def ring_words(n, T, V, s, p=0.85):
    """Tokens [n, T] from 0 to V - 1: by a fixed successor in a share `p`, else any."""
    after = torch.randperm(V, generator=gen(272))
    g = gen(s)
    x = torch.randint(0, V, (n, T), generator=g)
    for t in range(1, T):
        keep = torch.rand(n, generator=g) < p
        x[:, t] = torch.where(keep, after[x[:, t - 1]], x[:, t])
    return x


def reviews(n, s, V=30, longest=14, k=3):
    """Words [n, longest] from 1 on with 0 behind each row's length, the lengths and the class [n]
    which its words tell."""
    g = gen(s)
    y = torch.randint(0, k, (n,), generator=g)
    length = torch.randint(3, longest + 1, (n,), generator=g)
    words = torch.randint(1, V, (n, longest), generator=g)
    own = 1 + y[:, None] + k * torch.randint(0, 4, (n, longest), generator=g)
    words = torch.where(torch.rand(n, longest, generator=g) < 0.45, own, words)
    return words * (torch.arange(longest) < length[:, None]), length, y


class Conv(nn.Module):
    """Pictures [n, 1, 8, 8] to classes, without batch norm."""

    def __init__(self, k=4):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(),
            nn.Linear(64, k),
        )  # fmt: skip

    def forward(self, x):
        return self.net(x)


class ByLength(Sampler):
    """Batches of rows of about the same length, in any order."""

    def __init__(self, lengths, size, generator):
        self.order = torch.argsort(lengths)
        self.size = size
        self.generator = generator

    def __len__(self):
        return -(-len(self.order) // self.size)

    def __iter__(self):
        parts = self.order.split(self.size)
        for i in torch.randperm(len(parts), generator=self.generator).tolist():
            yield parts[i].tolist()


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 24, batch_first=True)
        self.out = nn.Linear(24, 3)

    def forward(self, x, length):
        rows = nn.utils.rnn.pack_padded_sequence(x, length, batch_first=True, enforce_sorted=False)
        return self.out(self.rnn(rows)[1][0])


def cut(rows):
    x, length, y = (torch.stack(c) for c in zip(*rows, strict=True))
    return x[:, : int(length.max())], length, y


class Streamed(nn.Module):
    def __init__(self, V):
        super().__init__()
        self.words = nn.Embedding(V, 16)
        self.rnn = nn.GRU(16, 32, batch_first=True)
        self.out = nn.Linear(32, V)

    def forward(self, ids, state=None):
        h, state = self.rnn(self.words(ids), state)
        return self.out(h), state


class Pieces:
    """Sixteen streams side by side, cut into pieces that follow each other; never shuffled."""

    def __init__(self, streams, length):
        self.streams = streams
        self.length = length

    def __len__(self):
        return (self.streams.shape[1] - 1) // self.length

    def __iter__(self):
        for i in range(len(self)):
            a = i * self.length
            yield self.streams[:, a : a + self.length], self.streams[:, a + 1 : a + self.length + 1]


class OldAndNew(nn.Module):
    """A body that serves an old head, which stays, and a new one."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.old = nn.Linear(32, 4)
        self.new = nn.Linear(32, 4)

    def forward(self, x):
        return self.new(self.body(x))


class Bagged(nn.Module):
    """Bags [n, 8, 6] to the score of their strongest row."""

    def __init__(self):
        super().__init__()
        self.net = mlp(6, 32, 1)

    def forward(self, bags):
        return self.net(bags)[..., 0].max(1).values


__all__ = [
    "BarNet",
    "F",
    "Flat",
    "averaged",
    "bars",
    "blobs",
    "by_cost",
    "by_pairs",
    "class_sums",
    "evaluating",
    "feed",
    "fit",
    "gen",
    "halves",
    "house",
    "loaders",
    "mlp",
    "plain_step",
    "right",
    "row_squares",
    "seed",
    "set_up",
    "sup_step",
    "tones",
]
