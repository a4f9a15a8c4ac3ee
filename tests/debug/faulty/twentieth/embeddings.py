"""Faults of embeddings: views and the weights of a criterion."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twentieth.kit import (
    averaged,
    by_cost,
    by_pairs,
    gen,
    groups,
    loaders,
    mlp,
    nearest,
    seed,
)


@pair("compared-with-itself")
def simclr_augments_once(bug):
    """Both views are one and the same tensor. After 200 steps knn_acc is 0.344 instead of 0.965."""
    seed()
    centres = 1.5 * torch.randn(8, 6, generator=gen(99))

    def data(n, s):
        """Rows whose first 6 numbers tell the class; an augmentation draws the others anew."""
        g = gen(s)
        y = torch.randint(8, (n,), generator=g)
        own = centres[y] + 0.7 * torch.randn(n, 6, generator=g)
        return torch.cat([own, 2 * torch.randn(n, 10, generator=g)], 1), y

    known, held = data(480, 1), data(256, 2)
    tl, vl = loaders(known[0], held, 32)
    m = mlp(16, 64, 8)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def nt_xent(a, b, t=0.2):
        z = F.normalize(torch.cat([a, b]), dim=1)
        n = len(a)
        s = (z @ z.T / t).masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
        return F.cross_entropy(s, torch.cat([torch.arange(n) + n, torch.arange(n)]))

    def augment(x):
        own = x[:, :6] + 0.2 * torch.randn_like(x[:, :6])
        return torch.cat([own, 2 * torch.randn_like(x[:, 6:])], 1)

    def loss_of(model, x):
        a = augment(x)
        b = a if bug else augment(x)
        return nt_xent(model(a), model(b))

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=nearest(m, known, held))


class ArcFace(nn.Module):
    def __init__(self, d, k, s=12.0, m=0.2):
        super().__init__()
        self.W = nn.Parameter(torch.randn(k, d))
        self.s = s
        self.m = m

    def forward(self, emb, y):
        c = F.linear(F.normalize(emb), F.normalize(self.W)).clamp(-1 + 1e-6, 1 - 1e-6)
        hit = F.one_hot(y, len(self.W)).bool()
        return F.cross_entropy(self.s * torch.where(hit, (c.acos() + self.m).cos(), c), y)


@pair("optimizer-stale-params")
def arcface_left_out_of_the_optimizer(bug):
    """The criterion has weights of its own for the classes, and the optimizer holds the model's
    alone. After 200 steps val_acc is 0.52 instead of 0.58."""
    seed()
    k = 20
    tl, vl = loaders(groups(800, k, 24, 1.6, 1), groups(200, k, 24, 1.6, 2), 32)
    m = mlp(24, 32, 3)
    crit = ArcFace(3, k)
    own = [] if bug else [*crit.parameters()]
    opt = torch.optim.Adam([*m.parameters(), *own], 5e-3)

    def sums_of(model, b):
        hits = (F.normalize(model(b[0])) @ F.normalize(crit.W).T).argmax(1) == b[1]
        return {"val_acc": (hits.sum(), len(hits))}

    return by_pairs(m, opt, tl, vl, crit, evaluate=averaged(m, vl, sums_of), num_classes=k)
