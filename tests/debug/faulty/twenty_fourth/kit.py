"""What the programs of the twenty-fourth set share beside the kits of the sets before."""

import torch
from torch import nn

from tests.debug.faulty.nineteenth.kit import clipped, fit, frozen
from tests.debug.faulty.seventeenth.kit import costed
from tests.debug.faulty.thirteenth.kit import blobs as round_centres
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
    seed,
    set_up,
    sup_step,
)
from tests.debug.faulty.twenty_second.kit import follow, right
from tests.debug.faulty.twenty_third.kit import by_squares, then


def blobs(n, d, k, s, noise=1.0, **more):
    """Rows round one centre for each class, the same for every `s`: [n, d], [n]."""
    return round_centres(n, d, k, s, noise, centres=99, **more)


def halves(n, d, k, noise=1.0, held=150, **more):
    """Rows to train on and held ones round the same centres: two pairs of [n, d], [n]."""
    return blobs(n, d, k, 1, noise, **more), blobs(held, d, k, 2, noise, **more)


def chain(n, T, V, s):
    """Tokens [n, T] of which each is 3 times the one before and 1, 2 or 3 more, in a ring of
    `V`."""
    g = gen(s)
    x = torch.zeros(n, T, dtype=torch.long)
    x[:, 0] = torch.randint(0, V, (n,), generator=g)
    for t in range(1, T):
        x[:, t] = (3 * x[:, t - 1] + 1 + torch.randint(0, 3, (n,), generator=g)) % V
    return x


def low_rank(n, s, d=16, r=3):
    """Rows near a curved sheet of three dimensions: [n, d]."""
    A = torch.randn(r, d, generator=gen(77))
    g = gen(s)
    return torch.tanh(torch.randn(n, r, generator=g) @ A) + 0.05 * torch.randn(n, d, generator=g)


def sheets():
    """Loaders of rows near the same sheet."""
    return loaders((low_rank(400, 1),), (low_rank(150, 2),), 32, 64)


def patterns(n, base, noise):
    """Noisy pictures [n, 1, 8, 8] of the patterns in `base`, and which these are [n]."""
    y = torch.randint(0, len(base), (n,))
    return base[y] + noise * torch.randn(n, 1, 8, 8), y


def small_conv():
    """Classes of pictures [n, 1, 8, 8]: four."""
    return nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 4))


def hits(model, b):
    """How many rows are given their class, for `averaged`."""
    return right(model(b[0]), b[1])


def by_classes(m, opt, tl, vl, k, step=None, **more):
    """Pairs of rows and classes in training, scored by the accuracy alone."""
    known = {"evaluate": averaged(m, vl, hits), "num_classes": k}
    return by_pairs(m, opt, tl, vl, None, step, **known | more)


def unscored(m, opt, tl, loss_of, evaluate, **more):
    """The plain loop on what a batch costs, without a loader of held rows."""
    known = {"step": plain_step(m, opt, loss_of), "evaluate": evaluate, "loss_of": loss_of}
    return set_up(m, opt, tl, **known | more)


def rebuilt(model, b):
    """The summed squared error of what an autoencoder makes of its inputs, and their number."""
    out = model(b[0])
    out = out[0] if isinstance(out, tuple) else out
    return ((out - b[0]) ** 2).sum(), b[0].numel()


class Bandit:
    """States with four actions, each of which earns its share of 1."""

    def __init__(self):
        self.W = torch.randn(6, 4)
        self.model = mlp(6, 32, 4)
        self.loader = feed((torch.randn(640, 6),), 64)
        self.held = torch.randn(300, 6)

    def reward(self, states, actions):
        return (states @ self.W).softmax(1).gather(1, actions[:, None])[:, 0]

    def evaluate(self):
        with evaluating(self.model):
            best = self.model(self.held).argmax(1)
        return {"mean_reward": self.reward(self.held, best).mean().item()}


class Scorer(nn.Module):
    """Next tokens by a GRU; the head may have the embedding's weight."""

    def __init__(self, V, d, is_tied=False):
        super().__init__()
        self.emb = nn.Embedding(V, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.out = nn.Linear(d, V, bias=not is_tied)
        if is_tied:
            self.out.weight = self.emb.weight

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


class VAE(nn.Module):
    """Draws a code in training, from a distribution that can be differentiated or by hand, and
    takes its mean in evaluation."""

    def __init__(self, d, z, draw):
        super().__init__()
        self.enc = mlp(d, 48, 2 * z)
        self.dec = mlp(z, 48, d)
        self.draw = draw

    def forward(self, x):
        mu, lv = self.enc(x).chunk(2, 1)
        z = self.draw(mu, lv) if self.training else mu
        return self.dec(z), mu, lv


__all__ = [
    "by_cost",
    "by_squares",
    "clipped",
    "costed",
    "feed",
    "fit",
    "follow",
    "frozen",
    "loaders",
    "plain_step",
    "seed",
    "sup_step",
    "then",
]
