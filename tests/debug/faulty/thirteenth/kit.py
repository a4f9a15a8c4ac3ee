"""What the programs of the thirteenth set share beside the kits of the sets before."""

import contextlib
import copy
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.eleventh.kit import Columns


def loader(ds, bs, seed=0, shuffle=True, **kw):
    if not isinstance(ds, Dataset):
        ds = TensorDataset(*ds)
    return DataLoader(ds, bs, shuffle=shuffle, generator=gen(seed), **kw)


@contextlib.contextmanager
def evaluating(*models):
    """eval mode, no grad; every submodule's mode is put back after."""
    was = [(m, m.training) for r in models for m in r.modules()]
    for r in models:
        r.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for m, t in was:
            m.training = t


def runner(loader, step):
    """train(n): n steps, going on through the loader where the last call stopped."""
    st = {"it": None}

    def train(n):
        out = []
        while len(out) < n:
            if st["it"] is None:
                st["it"] = iter(loader)
            b = next(st["it"], None)
            if b is None:
                st["it"] = None
                continue
            out.append(step(b))
        return out

    return train


def set_up(model, optimizer, train_loader, step, **more):
    """A set-up by its parts; train(n) makes n of the steps."""
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train_loader,
        train_step=step,
        train=runner(train_loader, step),
        **more,
    )


def blobs(n, d, k, seed, noise=1.0, centres=7, scale=1.0, shift=0.0):
    g = gen(seed)
    c = torch.randn(k, d, generator=gen(centres))
    y = torch.randint(k, (n,), generator=g)
    return (c[y] + noise * torch.randn(n, d, generator=g)) * scale + shift, y


def mlp(*sizes, bn=False, drop=0.0):
    ls = []
    for a, b in pairwise(sizes[:-1]):
        ls.append(nn.Linear(a, b))
        if bn:
            ls.append(nn.BatchNorm1d(b))
        ls.append(nn.ReLU())
        if drop:
            ls.append(nn.Dropout(drop))
    return nn.Sequential(*ls, nn.Linear(sizes[-2], sizes[-1]))


def accuracy(model, dl):
    ok = n = 0
    ls = 0.0
    with evaluating(model):
        for x, y in dl:
            o = model(x).float()
            ok += (o.argmax(1) == y).sum().item()
            n += len(y)
            ls += F.cross_entropy(o, y, reduction="sum").item()
    return {"val_acc": ok / n, "val_loss": ls / n}


def sup_step(model, opt, loss_fn, after=None):
    def step(batch):
        x, y = batch
        model.train()
        opt.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        opt.step()
        if after:
            after()
        return loss.item()

    return step


class Block(nn.Module):
    def __init__(self, d, h=2, drop=0.0):
        super().__init__()
        self.att = nn.MultiheadAttention(d, h, dropout=drop, batch_first=True)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x, attn_mask=None, pad=None):
        h = self.n1(x)
        x = x + self.att(h, h, h, attn_mask=attn_mask, key_padding_mask=pad, need_weights=False)[0]
        return x + self.ff(self.n2(x))


def save_load(model, opt, **more):
    def save(path=None):
        s = copy.deepcopy(
            {
                "model": model.state_dict(),
                "opt": opt.state_dict(),
                **{k: v.state_dict() for k, v in more.items()},
            }
        )
        if path is not None:
            torch.save(s, path)
        return s

    def load(s):
        if not isinstance(s, dict):
            s = torch.load(s)
        model.load_state_dict(s["model"])
        opt.load_state_dict(s["opt"])
        for k, v in more.items():
            v.load_state_dict(s[k])

    return save, load


def plain(model, opt, ce, tr, va, step, **k):
    return set_up(
        model, opt, tr, step, loss_fn=ce, val_loader=va, evaluate=lambda: accuracy(model, va), **k
    )


__all__ = ["Columns", "gen"]
