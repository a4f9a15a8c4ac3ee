"""What the programs of the fourteenth set share beside the kits of the sets before."""

import copy
import math
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.thirteenth.kit import Columns, gen, set_up
from tests.debug.faulty.twelfth.kit import plain_step, seed


def loader(*t, bs=32, shuffle=True, s=0, **kw):
    return DataLoader(TensorDataset(*t), bs, shuffle=shuffle, generator=gen(s), **kw)


def columns(bs=32, shuffle=True, s=0, collate_fn=None, **cols):
    return DataLoader(Columns(**cols), bs, shuffle=shuffle, generator=gen(s), collate_fn=collate_fn)


def endless(loader):
    while True:
        yield from loader


def mlp(*sizes, act=nn.ReLU):
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), act())]
    return nn.Sequential(*layers[:-1])


def pairloss(loss_fn):
    return lambda m, b: loss_fn(m(b[0]), b[1])


def mean_eval(model, loader, fns):
    """Averages over examples; `fns` gives for each name a function of model and batch."""

    def evaluate():
        was = model.training
        model.eval()
        tot = {}
        with torch.no_grad():
            for b in loader:
                for k, f in fns.items():
                    v = f(model, b).float().reshape(-1)
                    a = tot.setdefault(k, [0.0, 0])
                    a[0] += v.sum().item()
                    a[1] += v.numel()
        model.train(was)
        return {k: a / n for k, (a, n) in tot.items()}

    return evaluate


def acc(m, b):
    return m(b[0]).argmax(-1) == b[1]


def saving(model, opt):
    def save():
        return copy.deepcopy({"model": model.state_dict(), "opt": opt.state_dict()})

    def load(s):
        model.load_state_dict(s["model"])
        opt.load_state_dict(copy.deepcopy(s["opt"]))

    return dict(save=save, load=load)


def energy(a, b):
    """Energy distance between two samples of points."""
    n, m = len(a), len(b)
    return (
        2 * torch.cdist(a, b).mean()
        - torch.cdist(a, a).sum() / (n * (n - 1))
        - torch.cdist(b, b).sum() / (m * (m - 1))
    ).item()


def digits(n, s, S=8):
    """Smooth 8x8 pictures in [0,1]: two soft strokes."""
    g = gen(s)
    yy, xx = torch.meshgrid(torch.arange(S), torch.arange(S), indexing="ij")
    a = torch.rand(n, 4, generator=g)[:, :, None, None] * (S - 1)
    across, down = ((-((s - a[:, k]) ** 2) / 2).exp() for k, s in enumerate((yy, xx)))
    im = across + down * (yy < a[:, 2] + 2)
    return im.clamp(0, 1).flatten(1)


def ring(n, s):
    g = gen(s)
    k = torch.randint(0, 6, (n,), generator=g) * (2 * math.pi / 6)
    return torch.stack([k.cos(), k.sin()], 1) * 1.5 + torch.randn(n, 2, generator=g) * 0.1


def views(n, s, K=6, d=20):
    """Rows whose first 8 numbers tell the class; the rest is style."""
    g = gen(s)
    c = torch.randn(K, 8, generator=gen(99)) * 1.5
    y = torch.randint(0, K, (n,), generator=g)
    own, style = torch.randn(n, 8, generator=g), torch.randn(n, d - 8, generator=g)
    return torch.cat([c[y] + own * 0.5, style * 2], 1), y


def knn(emb, y, q, qy, k=5):
    v = y[(F.normalize(q, dim=1) @ F.normalize(emb, dim=1).T).topk(k, 1).indices].mode(1).values
    return (v == qy).float().mean().item()


def blobs(n, s, K=6, d=10, noise=1.0):
    c = torch.randn(K, d, generator=gen(77)) * 1.2
    g = gen(s)
    y = torch.randint(0, K, (n,), generator=g)
    return c[y] + torch.randn(n, d, generator=g) * noise, y


def curve(n, s, d=6, noise=0.1):
    W = torch.randn(d, 3, generator=gen(78))
    g = gen(s)
    x = torch.randn(n, d, generator=g)
    h = x @ W
    y = h[:, :1].sin() + h[:, 1:2] * h[:, 2:].tanh()
    return x, y + noise * torch.randn(n, 1, generator=g)


def sq(m, b):
    return ((m(b[0]) - b[1]) ** 2).flatten(1).mean(1)


__all__ = ["gen", "plain_step", "seed", "set_up"]
