"""What the programs of the seventeenth set share beside the kits of the sets before."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.fourteenth.kit import mlp
from tests.debug.faulty.sixteenth.kit import averaged, by_cost, by_pairs
from tests.debug.faulty.thirteenth.kit import (
    Block,
    Columns,
    accuracy,
    evaluating,
    gen,
    loader,
    set_up,
)
from tests.debug.faulty.twelfth.kit import plain_step, seed


def begun(number):
    """All draws begin anew; a generator for the data."""
    seed(number)
    return gen(number + 1000)


def loaders(train, held, bs=32, **more):
    """Batches to train on, with `more` of their own, and held ones in order."""
    return loader(train, bs, **more), loader(held, bs, shuffle=False)


def blobs(g, n, d=10, k=4, sep=1.0):
    """Rows round one centre for each class: [n, d], [n]."""
    c = torch.randn(k, d, generator=gen(77)) * sep
    y = torch.randint(0, k, (n,), generator=g)
    return c[y] + torch.randn(n, d, generator=g), y


def chain(g, n, t, v=20, fan=3):
    """Tokens [n, t] of which each is one of `fan` that may follow the one before."""
    after = torch.stack([torch.randperm(v, generator=gen(5 + i))[:fan] for i in range(v)])
    token = torch.randint(0, v, (n,), generator=g)
    tokens = [token]
    for _ in range(t - 1):
        token = after[token, torch.randint(0, fan, (n,), generator=g)]
        tokens.append(token)
    return torch.stack(tokens, 1)


def squares(model, b):
    """The summed squared error of rows and their number, for `averaged`."""
    return {"mse": (((model(b[0]) - b[1]) ** 2).mean(1).sum(), len(b[0]))}


def costed(loss_of, rows, name="loss"):
    """Sums for `averaged`: the mean loss of a batch, which counts as often as it has rows."""

    def sums_of(model, b):
        n = len(b[rows])
        return {name: (loss_of(model, b) * n, n)}

    return sums_of


class TinyLM(nn.Module):
    """A language model of one attention block."""

    def __init__(self, v=20, t=16, causal=True):
        super().__init__()
        self.tok = nn.Embedding(v, 32)
        self.pos = nn.Embedding(t, 32)
        self.block = Block(32)
        self.head = nn.Linear(32, v)
        self.causal = causal

    def forward(self, x):
        t = x.shape[1]
        h = self.tok(x) + self.pos(torch.arange(t))
        mask = torch.triu(torch.ones(t, t, dtype=torch.bool), 1) if self.causal else None
        return self.head(self.block(h, attn_mask=mask))


def shifted(model, b):
    """The mean cost of the next tokens."""
    x = b["ids"]
    return F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def language(m, g, loss_of=shifted, held=100):
    """A language model in training, scored by its loss and by the perplexity that this makes."""
    tl, vl = loaders(Columns(ids=chain(g, 384, 16)), Columns(ids=chain(g, held, 16)), 12)
    opt = torch.optim.AdamW(m.parameters(), 3e-3)
    mean = averaged(m, vl, costed(loss_of, "ids"))

    def evaluate():
        loss = mean()["loss"]
        return {"loss": loss, "perplexity": math.exp(loss)}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


__all__ = [
    "accuracy",
    "averaged",
    "by_cost",
    "by_pairs",
    "evaluating",
    "loader",
    "mlp",
    "plain_step",
    "set_up",
]
