"""What the programs of the sixteenth set share beside the kits of the sets before."""

import math

import torch
from torch import nn

from tests.debug.faulty.sixth.kit import split
from tests.debug.faulty.thirteenth.kit import (
    Columns,
    evaluating,
    gen,
    loader,
    mlp,
    plain,
    set_up,
    sup_step,
)
from tests.debug.faulty.twelfth.kit import markov, plain_step, seed


def loaders(train, held, bs=16, number=0, vbs=64):
    return loader(train, bs, number), loader(held, vbs, number + 1, shuffle=False)


def named(n, **columns):
    """The first n rows and the others, each as a dictionary."""
    return (
        Columns(**{name: column[:n] for name, column in columns.items()}),
        Columns(**{name: column[n:] for name, column in columns.items()}),
    )


def averaged(model, loader, sums_of):
    """evaluate(): means over all examples; `sums_of(model, batch)` gives each name's sum and
    count, from one forward."""

    def evaluate():
        totals = {}
        with evaluating(model):
            for batch in loader:
                for name, (value, count) in sums_of(model, batch).items():
                    total = totals.setdefault(name, [0.0, 0.0])
                    total[0] += float(value)
                    total[1] += float(count)
        return {name: value / count for name, (value, count) in totals.items()}

    return evaluate


def same_draws(evaluate):
    """The same evaluate() from the same random numbers each time; the generator is put back."""

    def seeded():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return evaluate()

    return seeded


def by_cost(model, opt, tl, vl, loss_of, sums_of, **more):
    """The plain loop on what a batch costs, scored by sums and counts."""
    known = {"step": plain_step(model, opt, loss_of), "evaluate": averaged(model, vl, sums_of)}
    return set_up(model, opt, tl, val_loader=vl, loss_of=loss_of, **known | more)


def by_pairs(model, opt, tl, vl, loss_fn=None, step=None, **more):
    """The plain loop on pairs of inputs and targets, scored as classes are."""
    loss_fn = loss_fn or nn.CrossEntropyLoss()
    step = step or sup_step(model, opt, loss_fn)
    return plain(model, opt, loss_fn, tl, vl, step) | more


def by_epochs(batches, step, each_epoch):
    """train(n): goes on where the last call stopped; `each_epoch()` comes before each new pass."""
    state = {"it": None}

    def train(n):
        losses = []
        for _ in range(n):
            batch = next(state["it"], None) if state["it"] is not None else None
            if batch is None:
                if state["it"] is not None:
                    each_epoch()
                state["it"] = iter(batches)
                batch = next(state["it"])
            losses.append(step(batch))
        return losses

    return train


def blobs(n, d, c, number, spread=1.6):
    """Overlapping clusters, two to a class: [n, d], [n]."""
    g = gen(number)
    centres = torch.randn(2 * c, d, generator=g)
    k = torch.randint(0, 2 * c, (n,), generator=g)
    return centres[k] + spread * 0.5 * torch.randn(n, d, generator=g), k % c


def classes(number, c=5, bs=32, spread=1.6):
    """Loaders of 700 rows to train on and of 200 others; all draws begin anew."""
    seed(number)
    return loaders(*split(*blobs(900, 10, c, number, spread), val=200), bs, number)


def chain(n, T, V, number):
    """Sequences of tokens [n, T] of which each follows from the one before."""
    return markov(V, n, T, gen(number), sharp=2.0)[0]


def manifold(n, number, d=12):
    """Rows near a curved sheet of three dimensions: [n, d]."""
    g = gen(number)
    A = torch.randn(3, d, generator=gen(99))
    return torch.tanh(torch.randn(n, 3, generator=g) @ A) + 0.05 * torch.randn(n, d, generator=g)


def ring(n, number):
    g = gen(number)
    a = 2 * math.pi * torch.rand(n, generator=g)
    return torch.stack([a.cos(), a.sin()], 1) * 1.5 + 0.1 * torch.randn(n, 2, generator=g)


class Chained(nn.Module):
    """A language model by a GRU."""

    def __init__(self, V, h=32):
        super().__init__()
        self.emb = nn.Embedding(V, h)
        self.rnn = nn.GRU(h, h, batch_first=True)
        self.out = nn.Linear(h, V)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


class VAE(nn.Module):
    def __init__(self, d=12, z=3, h=32):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, h), nn.ReLU())
        self.mu = nn.Linear(h, z)
        self.lv = nn.Linear(h, z)
        self.dec = nn.Sequential(nn.Linear(z, h), nn.ReLU(), nn.Linear(h, d))

    def forward(self, x):
        h = self.enc(x)
        mu, lv = self.mu(h), self.lv(h)
        return self.dec(mu + torch.randn_like(mu) * (0.5 * lv).exp()), mu, lv


__all__ = ["Columns", "evaluating", "gen", "mlp", "plain_step", "seed", "set_up", "split"]
