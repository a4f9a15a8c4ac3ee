"""What the programs of the third set share: loaders, small data, the plain step."""

import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader


def loader(items, batch=32, *, shuffle=True, seed=0, **more):
    return DataLoader(
        items,
        batch_size=batch,
        shuffle=shuffle,
        generator=torch.Generator().manual_seed(seed),
        **more,
    )


def both(items, val=128, batch=32, **more):
    """The last `val` items validate."""
    return (loader(items[:-val], batch, **more), loader(items[-val:], batch, shuffle=False, **more))


def stepper(model, optimizer, cost):
    """The plain step of `cost(batch)`."""

    def train_step(batch):
        model.train()
        optimizer.zero_grad()
        loss = cost(batch)
        loss.backward()
        optimizer.step()
        return loss.item()

    return train_step


def rows(*columns):
    """Items of a data set: a tuple per row."""
    return list(zip(*columns, strict=True))


def dicts(**columns):
    """Items of a data set: a dict per row."""
    names = list(columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def blobs(n=512, width=12, classes=4, spread=1.0, seed=0):
    """Rows round a centre per class."""
    g = torch.Generator().manual_seed(seed)
    centres = 1.5 * torch.randn(classes, width, generator=g)
    y = torch.randint(0, classes, (n,), generator=g)
    return centres[y] + spread * torch.randn(n, width, generator=g), y


def tokens(n=512, length=12, words=20, seed=0):
    """Sequences of ids from 1 on, padded with 0, their lengths, and whether ids above the middle
    are the majority."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(length // 3, length + 1, (n,), generator=g)
    y = torch.randint(0, 2, (n,), generator=g)
    low = torch.randint(1, words // 2, (n, length), generator=g)
    high = torch.randint(words // 2, words, (n, length), generator=g)
    pick = torch.rand(n, length, generator=g) < 0.25 + 0.5 * y[:, None]
    ids = torch.where(pick, high, low)
    ids[torch.arange(length) >= lengths[:, None]] = 0
    return ids, lengths, y


def text(n=384, length=16, words=12, seed=0):
    """Sequences of a Markov chain with a few likely successors per word."""
    g = torch.Generator().manual_seed(seed)
    follow = torch.softmax(3.0 * torch.randn(words, words, generator=g), 1)
    ids = torch.zeros(n, length, dtype=torch.long)
    ids[:, 0] = torch.randint(0, words, (n,), generator=g)
    for t in range(1, length):
        ids[:, t] = torch.multinomial(follow[ids[:, t - 1]], 1, generator=g)[:, 0]
    return ids


def pictures(n=320, size=12, seed=0):
    """Grey pictures with a bright block, the block's mask, and its quadrant."""
    g = torch.Generator().manual_seed(seed)
    x = 0.3 * torch.rand(n, 1, size, size, generator=g)
    mask = torch.zeros(n, size, size)
    top = torch.randint(0, size - 4, (n, 2), generator=g)
    for i, (r, c) in enumerate(top.tolist()):
        mask[i, r : r + 4, c : c + 4] = 1
    half = (size - 4) // 2
    quadrant = 2 * (top[:, 0] >= half).long() + (top[:, 1] >= half).long()
    return x + 0.6 * mask[:, None], mask, quadrant


def series(n=600, seed=0):
    """A noisy sum of two waves."""
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(n).float()
    return torch.sin(t / 5) + 0.5 * torch.sin(t / 13) + 0.1 * torch.randn(n, generator=g)


def mlp(*widths):
    layers = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
