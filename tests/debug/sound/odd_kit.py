"""Small things that the odd programs share."""

import contextlib
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def G(s):
    return torch.Generator().manual_seed(s)


def dl(*tensors, bs=32, shuffle=True, s=3, **more):
    return DataLoader(
        TensorDataset(*tensors), bs, shuffle=shuffle, generator=G(s) if shuffle else None, **more
    )


@contextlib.contextmanager
def still(*models):
    was = [(m, m.training) for top in models for m in top.modules()]
    for top in models:
        top.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for m, t in was:
            m.training = t


def going(loader, step):
    it = None

    def train(n):
        nonlocal it
        losses = []
        while len(losses) < n:
            if it is None:
                it = iter(loader)
            try:
                b = next(it)
            except StopIteration:
                it = None
                continue
            losses.append(step(b))
        return losses

    return train


def keeping(**parts):
    """save and load of all that have a state_dict."""

    def save(path=None):
        state = copy.deepcopy({k: p.state_dict() for k, p in parts.items()})
        if path is not None:
            torch.save(state, path)
        return state

    def load(state):
        if not isinstance(state, dict):
            state = torch.load(state)
        for k, p in parts.items():
            p.load_state_dict(copy.deepcopy(state[k]))

    return {"save": save, "load": load}


def mlp(*s, act=nn.ReLU, drop=0.0):
    out = []
    for i in range(len(s) - 2):
        out += [nn.Linear(s[i], s[i + 1]), act()]
        if drop:
            out.append(nn.Dropout(drop))
    return nn.Sequential(*out, nn.Linear(s[-2], s[-1]))


def auc(score, y):
    """The share of pairs of a positive and a negative in right order."""
    d = score[y == 1][:, None] - score[y == 0][None]
    return ((d > 0).float() + 0.5 * (d == 0).float()).mean().item()


def clusters(n, d, k, s, noise=1.0, p=None, key=500):
    c = torch.randn(k, d, generator=G(key))
    g = G(s)
    p = torch.ones(k) if p is None else torch.tensor(p)
    y = torch.multinomial(p, n, replacement=True, generator=g)
    return c[y] + noise * torch.randn(n, d, generator=g), y


def shapes(n, s, size=12, noise=0.3):
    """Pictures [n,1,S,S] of a disc, a square or a cross at any place; kind [n], centre [n,2],
    mask [n,S,S]."""
    g = G(s)
    y = torch.randint(0, 3, (n,), generator=g)
    c = 3 + (size - 7) * torch.rand(n, 2, generator=g)
    k = torch.arange(float(size))
    dy = (k[None, :, None] - c[:, 0, None, None]).abs().expand(n, size, size)
    dx = (k[None, None] - c[:, 1, None, None]).abs().expand(n, size, size)
    disc = dy**2 + dx**2 <= 6.5
    square = (dy <= 2) & (dx <= 2)
    cross = ((dy <= 0.6) & (dx <= 2.6)) | ((dx <= 0.6) & (dy <= 2.6))
    m = torch.where(
        (y == 0)[:, None, None], disc, torch.where((y == 1)[:, None, None], square, cross)
    )
    x = m.float() + noise * torch.randn(n, size, size, generator=g)
    return x[:, None], y, c, m
