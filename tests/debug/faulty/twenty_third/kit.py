"""What the programs of the twenty-third set share beside the kits of the sets before."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.eighteenth.kit import blobs
from tests.debug.faulty.nineteenth.kit import clipped, fit, frozen
from tests.debug.faulty.seventeenth.kit import begun, squares
from tests.debug.faulty.sixteenth.kit import by_epochs
from tests.debug.faulty.twentieth.kit import (
    averaged,
    by_cost,
    by_pairs,
    evaluating,
    feed,
    gen,
    loaders,
    mlp,
    plain_step,
    set_up,
    sup_step,
)
from tests.debug.faulty.twenty_second.kit import copying, follow


def clusters(g, n, held, d, k, spread):
    """Rows to train on and held ones round the same centres: two pairs of [n, d], [n]."""
    centres = spread * torch.randn(k, d, generator=g)
    return blobs(g, n, d, k, centres=centres), blobs(g, held, d, k, centres=centres)


def chain(g, n, T, V, p=0.85, first=0):
    """Tokens [n, T] from `first` on: in a share of `p` each is 3 more than the one before, in a
    ring of `V`, else any."""
    tokens = torch.randint(V, (n, T), generator=g)
    follows = torch.rand(n, T, generator=g) < p
    for t in range(1, T):
        tokens[:, t] = torch.where(follows[:, t], (tokens[:, t - 1] + 3) % V, tokens[:, t])
    return tokens + first


def padded(tokens, lengths):
    """The tokens with 0 behind each row's length."""
    return tokens * (torch.arange(tokens.shape[1]) < lengths[:, None])


def ring(g, n):
    """Points [n, 2] near a circle of radius 2."""
    a = torch.rand(n, generator=g) * 2 * math.pi
    return torch.stack([a.cos(), a.sin()], 1) * 2 + 0.05 * torch.randn(n, 2, generator=g)


def off_the_ring(points):
    return (points.norm(dim=1) - 2).abs().mean().item()


def class_sums(model, b):
    """The summed cross-entropy and the hits of rows and classes, for `averaged`."""
    out = model(b[0])
    return {
        "loss": (F.cross_entropy(out, b[1], reduction="sum"), len(out)),
        "acc": ((out.argmax(1) == b[1]).sum(), len(out)),
    }


def with_recall(model, b):
    """The hits of two classes, and those among the rows of the second, which is rare."""
    told = model(b[0]).argmax(1)
    is_rare = b[1] == 1
    return {
        "acc": ((told == b[1]).sum(), len(told)),
        "recall_rare": ((told[is_rare] == 1).sum(), is_rare.sum()),
    }


def by_classes(m, opt, tl, vl, k, step=None, **more):
    """Pairs of rows and classes in training, scored by loss and accuracy."""
    known = {"evaluate": averaged(m, vl, class_sums), "num_classes": k}
    return by_pairs(m, opt, tl, vl, None, step, **known | more)


def by_squares(m, opt, tl, vl, step=None, **more):
    """A regression in training, scored by its mean squared error."""
    known = {"evaluate": averaged(m, vl, squares)}
    return by_pairs(m, opt, tl, vl, nn.MSELoss(), step, **known | more)


def then(step, after):
    """The step, and something to do after each."""

    def both(batch):
        loss = step(batch)
        after()
        return loss

    return both


class Recurrent(nn.Module):
    """A language model by a GRU of another width than its embedding; gives the state as well."""

    def __init__(self, V, d, h, pad=None):
        super().__init__()
        self.emb = nn.Embedding(V, d, padding_idx=pad)
        self.rnn = nn.GRU(d, h, batch_first=True)
        self.head = nn.Linear(h, V)

    def forward(self, x, h=None):
        out, h = self.rnn(self.emb(x), h)
        return self.head(out), h


__all__ = [
    "begun",
    "blobs",
    "by_cost",
    "by_epochs",
    "clipped",
    "copying",
    "evaluating",
    "feed",
    "fit",
    "follow",
    "frozen",
    "gen",
    "loaders",
    "mlp",
    "plain_step",
    "set_up",
    "sup_step",
]
