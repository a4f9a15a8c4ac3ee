"""Faults of embeddings: axes, masks, labels."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_second.kit import (
    blobs,
    by_cost,
    feed,
    gen,
    loaders,
    mlp,
    nearest,
    right,
    seed,
    towers,
)


class TwoTowers(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.a = mlp(12, 32, 16)
        self.b = mlp(10, 32, 16)
        self.dim = dim

    def forward(self, x, y):
        return F.normalize(self.a(x), dim=self.dim), F.normalize(self.b(y), dim=self.dim)


@pair("rows-mixed")
def clip_normalised_over_batch(bug):
    """Each feature is normalised over the batch, not each embedding. After 300 steps recall_at_1 is
    0.775 instead of 0.912."""
    seed()
    m = TwoTowers(0 if bug else 1)
    opt = torch.optim.AdamW(m.parameters(), 3e-3)
    tl, vl = loaders(towers(640, 1), towers(160, 5), 32)

    def likeness(model, b):
        u, v = model(b["image"], b["text"])
        return u @ v.T

    def loss_of(model, b):
        s = likeness(model, b) / 0.1
        y = torch.arange(len(s))
        return 0.5 * (F.cross_entropy(s, y) + F.cross_entropy(s.T, y))

    def sums_of(model, b):
        s = likeness(model, b)
        return right(s, torch.arange(len(s)), "recall_at_1")

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("wrong-formula")
def triplet_masked_min(bug):
    """The distances of a row's own class are set to 0 by a product, and one of these is always the
    smallest: embeddings collapse. After 300 steps embedding_std is 0.003 instead of 0.522."""
    seed()
    known, held = blobs(640, 12, 5, 1, 1.3), blobs(202, 12, 5, 2, 1.3)
    m = mlp(12, 32, 8)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl = feed(known, 40, drop_last=True)
    vl = feed(held, 40, shuffle=False)

    def loss_of(model, b):
        e, y = model(b[0]), b[1]
        d = torch.cdist(e, e)
        same = y[:, None] == y[None]
        far = (d * same).max(1).values
        if bug:
            near = (d * ~same).min(1).values
        else:
            near = d.masked_fill(same, float("inf")).min(1).values
        return F.relu(far - near + 0.5).mean()

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=nearest(m, known, vl))


@pair("wrong-targets")
def cosine_pairs_labelled_by_zero(bug):
    """CosineEmbeddingLoss gets 0 for unlike pairs where it wants -1, and they cost nothing. After
    300 steps verification_accuracy is 0.559 instead of 0.787."""
    seed()

    def data(n, s):
        g = gen(s)
        centres = torch.randn(6, 12, generator=gen(8)) * 0.9
        y = torch.randint(0, 6, (n,), generator=g)
        y2 = torch.randint(0, 6, (n,), generator=g)
        y2[: n // 2] = y[: n // 2]
        x = centres[y] + torch.randn(n, 12, generator=g)
        x2 = centres[y2] + torch.randn(n, 12, generator=g)
        same = (y == y2).float()
        return x, x2, same if bug else same * 2 - 1

    m = mlp(12, 32, 8)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(data(640, 1), data(202, 2), 32)
    crit = nn.CosineEmbeddingLoss(margin=0.2)

    def loss_of(model, b):
        return crit(model(b[0]), model(b[1]), b[2])

    def sums_of(model, b):
        is_like = F.cosine_similarity(model(b[0]), model(b[1])) > 0.6
        return {"verification_accuracy": ((is_like == (b[2] > 0)).sum(), len(is_like))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)
