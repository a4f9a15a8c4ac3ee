"""What the programs of the twenty-second set share beside the kits of the sets before."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.eighteenth.kit import blobs as round_centres
from tests.debug.faulty.fifteenth.kit import energy
from tests.debug.faulty.nineteenth.kit import fit, scheduled
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
    squared,
    sup_step,
)


def right(out, y, name="accuracy"):
    """How many of the outputs name their class, for `averaged`."""
    hits = out.argmax(-1) == y
    return {name: (hits.sum(), hits.numel())}


def rated(m, held):
    """evaluate(): the loss of a row and the accuracy."""

    def sums_of(model, b):
        x, y = b
        out = model(x)
        return {"loss": (F.cross_entropy(out, y) * len(y), len(y))} | right(out, y)

    return averaged(m, held, sums_of)


def by_classes(m, opt, tl, vl, k, crit=None, step=None, **more):
    """Pairs of rows and classes in training, scored by their loss and accuracy."""
    known = {"evaluate": rated(m, vl), "num_classes": k}
    return by_pairs(m, opt, tl, vl, crit, step, **known | more)


def spread_from(G, real):
    """evaluate(): the energy distance of 512 points made by G from real ones."""
    z = torch.randn(512, 4, generator=gen(42))

    def evaluate():
        with evaluating(G):
            return {"energy_distance": energy(G(z), real)}

    return evaluate


def nearest(m, known, held):
    """evaluate(): the share of held rows whose nearest known one has their class, and how far the
    embeddings are spread."""
    x, y = known

    def evaluate():
        with evaluating(m):
            e = m(x)

        def sums_of(model, b):
            near = torch.cdist(model(b[0]), e).argmin(1)
            return {"nearest_neighbour_accuracy": ((y[near] == b[1]).sum(), len(near))}

        return averaged(m, held, sums_of)() | {"embedding_std": e.std(0).mean().item()}

    return evaluate


def follow(average, model, is_whole=True):
    """The average takes a twentieth of the weights and, if it is whole, the statistics too."""
    with torch.no_grad():
        for a, p in zip(average.parameters(), model.parameters(), strict=True):
            a.lerp_(p, 0.05)
        if is_whole:
            for a, p in zip(average.buffers(), model.buffers(), strict=True):
                a.copy_(p)


def blobs(n, d, k, s, sep=1.0, task=0):
    """Rows round one centre for each class, by a task's own centres."""
    centres = sep * torch.randn(k, d, generator=gen(1000 + task))
    return round_centres(gen(s), n, d, k, centres=centres)


def topics(n, t, v, k, s):
    """Tokens [n, t] from 1 to v - 1, whose mix tells the class [n]."""
    mix = torch.rand(k, v - 1, generator=gen(77)) ** 4
    g = gen(s)
    y = torch.randint(0, k, (n,), generator=g)
    return torch.multinomial(mix[y], t, replacement=True, generator=g) + 1, y


def successors(n, t, v, s):
    """Tokens [n, t]: a fixed successor with probability 0.6, else any token."""
    g = gen(s)
    follows = torch.randperm(v, generator=gen(5))
    tokens = [torch.randint(0, v, (n,), generator=g)]
    for _ in range(t - 1):
        other = torch.randint(0, v, (n,), generator=g)
        is_next = torch.rand(n, generator=g) < 0.6
        tokens.append(torch.where(is_next, follows[tokens[-1]], other))
    return torch.stack(tokens, 1)


def waves(n, s):
    """12 values of a wave [n, 12, 1] and the next one [n]."""
    g = gen(s)
    t = torch.arange(13.0)
    phase = torch.rand(n, 1, generator=g) * 6.28
    rate = 0.3 + 0.5 * torch.rand(n, 1, generator=g)
    wave = torch.sin(rate * t + phase) + 0.05 * torch.randn(n, 13, generator=g)
    return wave[:, :12, None], wave[:, 12]


def manifold(n, s):
    """Rows near a curved sheet of two dimensions: [n, 16]."""
    w = torch.randn(2, 16, generator=gen(9))
    z = torch.randn(n, 2, generator=gen(s))
    return torch.tanh(z @ w) + 0.05 * torch.randn(n, 16, generator=gen(s + 1))


def ring(n, s):
    """Points on a circle round (2, -1)."""
    g = gen(s)
    a = torch.rand(n, generator=g) * 6.2832
    points = torch.stack([2 + a.cos(), -1 + a.sin()], 1)
    return points + 0.05 * torch.randn(n, 2, generator=g)


def towers(n, s):
    """Two views of the same hidden numbers: an image [n, 12] and a text [n, 10]."""
    z = torch.randn(n, 4, generator=gen(s))
    to_image = torch.randn(4, 12, generator=gen(20))
    to_text = torch.randn(4, 10, generator=gen(21))
    image = z @ to_image + 0.2 * torch.randn(n, 12, generator=gen(s + 1))
    text = torch.tanh(z @ to_text) + 0.1 * torch.randn(n, 10, generator=gen(s + 2))
    return {"image": image, "text": text}


def shapes(n, s):
    """Noisy pictures [n, 1, 8, 8] of three shapes, with a mean of 3."""
    g = gen(s)
    base = torch.randn(3, 1, 8, 8, generator=gen(31))
    y = torch.randint(0, 3, (n,), generator=g)
    return base[y] * 1.5 + torch.randn(n, 1, 8, 8, generator=g) * 1.2 + 3.0, y


def corridor(n, s):
    """Moves in a corridor of 6 places with a goal behind its right end; behind the end of an
    episode comes the place where the next one starts."""
    g = gen(s)
    place = torch.randint(0, 6, (n,), generator=g)
    action = torch.randint(0, 2, (n,), generator=g)
    after = (place + 2 * action - 1).clamp(0, 5)
    is_end = (place == 5) & (action == 1)
    after = torch.where(is_end, torch.randint(0, 6, (n,), generator=g), after)
    return {
        "obs": F.one_hot(place, 6).float(),
        "action": action,
        "reward": is_end.float(),
        "next_obs": F.one_hot(after, 6).float(),
        "done": is_end.float(),
    }


def copying(m, target, opt, loss_of, every):
    """The plain step; once in `every` steps the target becomes a copy of the model."""
    base = plain_step(m, opt, loss_of)
    count = 0

    def step(b):
        nonlocal count
        loss = base(b)
        count += 1
        if count % every == 0:
            target.load_state_dict(m.state_dict())
        return loss

    return step


class TinyLM(nn.Module):
    """One block of a transformer over tokens, with a causal mask or without."""

    def __init__(self, v, t, causal, d=24):
        super().__init__()
        self.emb = nn.Embedding(v, d)
        self.pos = nn.Embedding(t, d)
        self.ln1 = nn.LayerNorm(d)
        self.ln2 = nn.LayerNorm(d)
        self.att = nn.MultiheadAttention(d, 2, batch_first=True)
        self.ff = mlp(d, 48, d, act=nn.GELU)
        self.head = nn.Linear(d, v)
        self.causal = causal

    def forward(self, ids):
        t = ids.size(1)
        h = self.emb(ids) + self.pos(torch.arange(t))
        q = self.ln1(h)
        mask = torch.triu(torch.ones(t, t, dtype=torch.bool), 1) if self.causal else None
        h = h + self.att(q, q, q, attn_mask=mask, need_weights=False)[0]
        return self.head(h + self.ff(self.ln2(h)))


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(self.gru(x)[0][:, -1])


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.out = nn.Linear(32, 3)

    def forward(self, x):
        return self.out(self.f(x).flatten(1))


__all__ = [
    "by_cost",
    "by_pairs",
    "feed",
    "fit",
    "loaders",
    "scheduled",
    "seed",
    "set_up",
    "squared",
    "sup_step",
]
