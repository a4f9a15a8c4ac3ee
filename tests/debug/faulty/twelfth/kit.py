"""What the programs of the twelfth set share beside the kits of the sets before."""

import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from course.state.nested import tensors_in
from tests.debug.faulty.eighth.kit import gen as G
from tests.debug.faulty.eleventh.kit import Columns
from tests.debug.faulty.sixth.kit import looped as plain_train_of


def seed(number=0):
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


def loader(*of, bs=32, shuffle=True, **more):
    """Batches of a data set, or of columns."""
    data = of[0] if isinstance(of[0], Dataset) else TensorDataset(*of)
    return DataLoader(data, bs, shuffle=shuffle, generator=G(1), **more)


def plain_step(model, opt, loss_of, schedule=None, clip=None):
    def train_step(batch):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        if clip is not None:
            clip()
        opt.step()
        if schedule is not None:
            schedule.step()
        return loss.item()

    return train_step


def plain_train(step, batches):
    return plain_train_of(batches, step)


def mean_loss(model, batches, loss_of):
    """The mean over rows; the model stays in evaluation mode."""
    model.eval()
    total = count = 0
    with torch.no_grad():
        for batch in batches:
            rows = len(next(tensors_in(batch)))
            total += loss_of(model, batch).item() * rows
            count += rows
    return total / count


def pack(
    model, opt, batches, loss_of=None, loss_fn=None, step=None, train=None, evaluate=None, **more
):
    """A set-up by its parts; what is not given is a plain loop."""
    cost = loss_of or (lambda model, batch: loss_fn(model(batch[0]), batch[1]))
    step = step or plain_step(model, opt, cost)
    found = {
        "model": model, "optimizer": opt, "train_loader": batches, "train_step": step,
        "train": train or plain_train(step, batches), "evaluate": evaluate, **more,
    }  # fmt: skip
    known = {"loss_of": loss_of, "loss_fn": loss_fn}
    return found | {name: given for name, given in known.items() if given}


def mlp(i, h, o, act=nn.ReLU):
    return nn.Sequential(nn.Linear(i, h), act(), nn.Linear(h, o))


def markov(v, n, length, g, sharp=2.5):
    """Tokens [n, length] of which each follows from the one before, by the law [v, v]."""
    law = torch.softmax(torch.randn(v, v, generator=g) * sharp, 1)
    x = torch.zeros(n, length, dtype=torch.long)
    x[:, 0] = torch.randint(0, v, (n,), generator=g)
    for t in range(1, length):
        x[:, t] = torch.multinomial(law[x[:, t - 1]], 1, generator=g)[:, 0]
    return x, law


def blobs(n, d, k, g, spread=1.0):
    c = torch.randn(k, d, generator=g)
    y = torch.randint(0, k, (n,), generator=g)
    return c[y] + spread * torch.randn(n, d, generator=g), y


def regression(g, n=800, d=10, k=3, noise=0.1):
    x = torch.randn(n, d, generator=g)
    hidden = torch.tanh(x @ torch.randn(d, 16, generator=g) * 0.5)
    y = hidden @ torch.randn(16, k, generator=g) * 0.5
    return x, y + noise * torch.randn(n, k, generator=g)


def pretrained(g, d=12, h=32, k=4, bn=False):
    """A body and a head quickly fitted to an old task, and its data."""
    x, y = blobs(600, d, k, g, 0.8)
    body = nn.Sequential(nn.Linear(d, h), nn.BatchNorm1d(h) if bn else nn.Identity(), nn.ReLU())
    head = nn.Linear(h, k)
    opt = torch.optim.Adam([*body.parameters(), *head.parameters()], 1e-2)
    for _ in range(60):
        opt.zero_grad()
        F.cross_entropy(head(body(x)), y).backward()
        opt.step()
    return body, head, x, y


__all__ = ["Columns", "G"]
