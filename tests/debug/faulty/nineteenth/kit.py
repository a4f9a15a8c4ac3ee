"""What the programs of the nineteenth set share beside the kits of the sets before."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.eighteenth.kit import blobs as round_centres
from tests.debug.faulty.fourteenth.kit import mlp
from tests.debug.faulty.seventeenth.kit import squares
from tests.debug.faulty.sixteenth.kit import averaged, by_cost, by_pairs
from tests.debug.faulty.thirteenth.kit import (
    Columns,
    accuracy,
    evaluating,
    gen,
    set_up,
    sup_step,
)
from tests.debug.faulty.twelfth.kit import plain_step, seed


def feed(data, bs=32, shuffle=True, number=7, **more):
    """Batches of a tensor's rows, of pairs, of columns by their names or of a data set."""
    if isinstance(data, tuple):
        data = TensorDataset(*data)
    elif isinstance(data, dict):
        data = Columns(**data)
    return DataLoader(data, bs, shuffle=shuffle, generator=gen(number), **more)


def loaders(train, held, bs=32, vbs=64, **more):
    return feed(train, bs, **more), feed(held, vbs, shuffle=False, **more)


def squared(model, loader, name="val_mse"):
    """evaluate(): the mean squared error by its name."""
    return averaged(model, loader, lambda m, b: {name: squares(m, b)["mse"]})


def clipped(model, opt, loss_of, limit):
    """The step that clips the gradient's norm, and that it does."""

    def clip():
        nn.utils.clip_grad_norm_(model.parameters(), limit)

    step = plain_step(model, opt, loss_of, clip=clip)
    return {"step": step, "declared": {"max_grad_norm": limit}}


def scheduled(m, opt, tl, vl, scheduler):
    """A regression in training whose rate is another in each step."""
    crit = nn.MSELoss()
    step = sup_step(m, opt, crit, scheduler.step)
    more = {"scheduler": scheduler, "declared": {"scheduler_unit": "batch"}}
    return by_pairs(m, opt, tl, vl, crit, step, evaluate=squared(m, vl), **more)


def frozen(model):
    return [name for name, p in model.named_parameters() if not p.requires_grad]


def fit(model, opt, loss_fn, x, y, steps):
    """Some steps on all rows at once, before the training proper."""
    for _ in range(steps):
        opt.zero_grad()
        loss_fn(model(x), y).backward()
        opt.step()


def blobs(n, g, k=4, d=10, noise=1.0, shift=0.0, key=100, scale=1.5):
    """Rows round one centre for each class: [n, d], [n]."""
    centres = scale * torch.randn(k, d, generator=gen(key))
    x, y = round_centres(g, n, d, k, noise, centres)
    return x + shift, y


def wave(n, g):
    """Rows [n, 5] and a bent sum of their numbers [n, 1]."""
    x = torch.randn(n, 5, generator=g)
    bent = torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3]
    return x, bent + 0.1 * torch.randn(n, 1, generator=g)


def lowrank(n, g, d=16, r=3):
    """Rows near a curved sheet of three dimensions: [n, d]."""
    sheet = torch.tanh(torch.randn(n, r, generator=g) @ torch.randn(r, d, generator=gen(70)))
    return sheet + 0.05 * torch.randn(n, d, generator=g)


def clusters(n, g, k=6):
    """Rows [n, 12] whose first 4 numbers tell the class [n]; the rest is to be ignored."""
    y = torch.randint(k, (n,), generator=g)
    x = torch.zeros(n, 12)
    x[:, :4] = torch.randn(k, 4, generator=gen(80))[y] + 0.35 * torch.randn(n, 4, generator=g)
    x[:, 4:] = 1.5 * torch.randn(n, 8, generator=g)
    return x, y


def by_neighbours(model, known, held):
    """evaluate(): the share of held rows whose five nearest known ones have their class."""
    (x, y), (vx, vy) = known, held

    def evaluate():
        with evaluating(model):
            near = F.normalize(model(vx), dim=1) @ F.normalize(model(x), dim=1).T
            votes = F.one_hot(y[near.topk(5).indices], 6).sum(1)
        return {"knn_acc": (votes.argmax(1) == vy).float().mean().item()}

    return evaluate


def markov(n, length, v, g, sharp=2.0, key=99):
    """Tokens [n, length] of which each follows from the one before, by one law for all."""
    law = (sharp * torch.randn(v, v, generator=gen(key))).softmax(-1)
    tokens = torch.randint(v, (n, 1), generator=g)
    for _ in range(length - 1):
        tokens = torch.cat([tokens, torch.multinomial(law[tokens[:, -1]], 1, generator=g)], 1)
    return tokens


def windows(series, w, at):
    """Stretches of w values [n, w, 1], each with the one that is `at` places behind its first."""
    i = torch.arange(len(series) - w)
    return series[i[:, None] + torch.arange(w)].unsqueeze(-1), series[i + at].unsqueeze(-1)


def discs(centres, radii, size):
    """Masks [n, size, size] of one disc each."""
    k = torch.arange(float(size))
    down = (k[None, :, None] - centres[:, :1, None]) ** 2
    across = (k[None, None] - centres[:, 1:, None]) ** 2
    return down + across < (radii**2)[:, None, None]


def reward(states, actions):
    """1 for the best of four actions in a state [5], else 0."""
    best = (states @ torch.randn(5, 4, generator=gen(90))).argmax(1)
    return (actions == best).float()


def greedy(model, states):
    return {"greedy_reward": (reward(states, model(states).argmax(1)).sum(), len(states))}


class Attn(nn.Module):
    """Each place attends to those that are allowed."""

    def __init__(self, d, h=2):
        super().__init__()
        self.h = h
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)

    def forward(self, x, allowed=None):
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, D // self.h).permute(2, 0, 3, 1, 4)
        a = q @ k.transpose(-1, -2) / math.sqrt(D // self.h)
        if allowed is not None:
            a = a.masked_fill(~allowed, float("-inf"))
        return self.out((a.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D))


class Block(nn.Module):
    def __init__(self, d, h=2):
        super().__init__()
        self.n1 = nn.LayerNorm(d)
        self.n2 = nn.LayerNorm(d)
        self.att = Attn(d, h)
        self.ff = mlp(d, 2 * d, d, act=nn.GELU)

    def forward(self, x, allowed=None):
        x = x + self.att(self.n1(x), allowed)
        return x + self.ff(self.n2(x))


def next_tokens(model, ids, reduction="mean"):
    out = model(ids[:, :-1]).flatten(0, 1)
    return F.cross_entropy(out, ids[:, 1:].flatten(), reduction=reduction)


def language(m, opt, tl, vl, v):
    """A language model in training, scored by the loss of a token and by what this makes of it."""

    def sums_of(model, ids):
        return {"loss": (next_tokens(model, ids, "sum"), ids[:, 1:].numel())}

    mean = averaged(m, vl, sums_of)

    def evaluate():
        loss = mean()["loss"]
        return {"val_loss": loss, "perplexity": math.exp(loss)}

    return by_cost(m, opt, tl, vl, next_tokens, None, evaluate=evaluate, num_classes=v)


__all__ = [
    "accuracy",
    "averaged",
    "by_cost",
    "by_pairs",
    "evaluating",
    "gen",
    "mlp",
    "plain_step",
    "seed",
    "set_up",
    "sup_step",
]
