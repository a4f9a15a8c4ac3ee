"""Faults of the data: splits, augmentations, order, data sets that change."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, Subset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_first.kit import (
    by_classes,
    by_cost,
    by_rows,
    evaluating,
    feed,
    gen,
    loaders,
    mean_eval,
    mlp,
    rights,
    seed,
)


def recordings(n):
    """Overlapping windows of `n` wearers' signals, the mean rate in each, and whose they are."""
    g = gen(1)
    xs, ys, who = [], [], []
    t = torch.arange(100) * 2 * math.pi / 12
    for k in range(n):
        shape = torch.randn(2, 4, generator=g)
        offset = torch.randn(1, generator=g)
        rate = torch.cumsum(0.2 * torch.randn(100, generator=g), 0)
        rate = rate - rate.mean()
        wave = sum(
            shape[0, h] * torch.sin((h + 1) * t) + shape[1, h] * torch.cos((h + 1) * t)
            for h in range(4)
        )
        signal = 0.4 * wave + rate + 0.1 * torch.randn(100, generator=g)
        for i in range(0, 76, 3):
            xs.append(signal[i : i + 24])
            ys.append(1.5 * rate[i : i + 24].mean() + offset[0])
            who.append(k)
    return torch.stack(xs), torch.stack(ys), torch.tensor(who)


@pair("leak-group")
def wearers_on_both_sides(bug):
    """Overlapping windows are split at random and not by their wearers. After 700 steps val_mse is
    0.313 instead of 0.979."""
    seed(51)
    x, y, who = recordings(50)
    if bug:
        p = torch.randperm(len(y), generator=gen(2))
        cut = int(0.8 * len(p))
        train, held = p[:cut], p[cut:]
    else:
        p = torch.randperm(50, generator=gen(2))
        is_held = torch.isin(who, p[:10])
        train, held = (~is_held).nonzero().flatten(), is_held.nonzero().flatten()
    x = (x - x[train].mean()) / x[train].std()
    tl, vl = loaders((x[train], y[train]), (x[held], y[held]), 32, 64)
    m = nn.Sequential(mlp(24, 96, 96, 1), nn.Flatten(0))
    opt = torch.optim.AdamW(m.parameters(), 2e-3, weight_decay=0.05)
    groups = {"train": who[train].tolist(), "val": who[held].tolist()}
    return by_rows(m, opt, tl, vl, groups=groups)


@pair("leak-group")
def rare_rows_copied_before_the_split(bug):
    """Rows of the rare class are repeated and then split. After 300 steps val_recall is 1 instead
    of 0.5."""
    seed(52)
    g = gen(1)
    x = torch.randn(500, 20, generator=g)
    y = ((x[:, 0] + 1.2 * torch.randn(500, generator=g)) > 1.9).long()

    def repeated(ids):
        return torch.cat([ids[y[ids] == 0]] + [ids[y[ids] == 1]] * 6)

    if bug:
        ids = repeated(torch.arange(500))
        ids = ids[torch.randperm(len(ids), generator=gen(2))]
        cut = int(0.75 * len(ids))
        train, held = ids[:cut], ids[cut:]
    else:
        p = torch.randperm(500, generator=gen(2))
        train, held = repeated(p[:375]), p[375:]
    tl, vl = loaders((x[train], y[train]), (x[held], y[held]), 32, 64)
    m = mlp(20, 64, 2)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    score = rights(m, vl)

    def evaluate():
        hits = n = 0
        with evaluating(m):
            for inputs, targets in vl:
                hits += ((m(inputs).argmax(1) == 1) & (targets == 1)).sum().item()
                n += (targets == 1).sum().item()
        return score() | {"val_recall": hits / max(n, 1)}

    groups = {"train": train.tolist(), "val": held.tolist()}
    return by_classes(m, opt, tl, vl, 2, evaluate=evaluate, groups=groups)


class Quarters(Dataset):
    """Images of which one quarter is brighter."""

    def __init__(self, n, s, transform=None):
        g = gen(s)
        self.y = torch.randint(0, 4, (n,), generator=g)
        self.x = 0.7 * torch.randn(n, 1, 8, 8, generator=g)
        for image, c in zip(self.x, self.y.tolist(), strict=True):
            top, left = 4 * (c // 2), 4 * (c % 2)
            image[0, top : top + 4, left : left + 4] += 0.5
        self.transform = transform

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.x[i]
        return (self.transform(x) if self.transform else x), self.y[i]


class Erase:
    """Noise, and a patch of 5 x 5 somewhere that is erased."""

    def __init__(self):
        self.g = gen(5)

    def __call__(self, x):
        r, c = torch.randint(0, 4, (2,), generator=self.g).tolist()
        x = x + 0.3 * torch.randn(x.shape, generator=self.g)
        x[:, r : r + 5, c : c + 5] = 0
        return x


@pair("augmented-validation")
def validation_is_erased_too(bug):
    """Both sides are parts of one augmented data set. After 300 steps val_acc is 0.685 instead of
    0.855."""
    seed(53)
    augmented = Quarters(600, 1, Erase())
    plain = augmented if bug else Quarters(600, 1)
    p = torch.randperm(600, generator=gen(2)).tolist()
    tl, vl = loaders(Subset(augmented, p[:400]), Subset(plain, p[400:]), 32, 64)
    m = nn.Sequential(nn.Flatten(), mlp(64, 32, 4))
    return by_classes(m, torch.optim.Adam(m.parameters(), 3e-3), tl, vl, 4)


@pair("single-class-batches")
def sorted_without_shuffle(bug):
    """The images are in order of their classes and are not shuffled. After 300 steps val_acc is
    0.237 instead of 0.927."""
    seed(54)
    train = Quarters(512, 1)
    order = train.y.argsort(stable=True)
    train.x, train.y = train.x[order], train.y[order]
    tl = feed(train, 32, shuffle=not bug)
    vl = feed(Quarters(300, 2), 64, shuffle=False)
    m = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(96, 4),
    )
    return by_classes(m, torch.optim.SGD(m.parameters(), 0.1, momentum=0.9), tl, vl, 4)


class Normalised(Dataset):
    def __init__(self, x, y, mean, std, in_place):
        self.x = x.clone()
        self.y = y
        self.mean = mean
        self.std = std
        self.in_place = in_place

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.x[i]
        if self.in_place:
            x -= self.mean
            x /= self.std
        else:
            x = (x - self.mean) / self.std
        return {"features": x, "target": self.y[i]}


@pair("dataset-changes-itself")
def normalised_in_place_each_epoch(bug):
    """Each access normalises the stored row again. After 300 steps val_mse is 0.329 instead of
    0.031."""
    seed(55)
    z = torch.randn(420, 6, generator=gen(1))
    y = torch.tanh(z[:, 0] + z[:, 1]) + 0.3 * z[:, 2]
    x = z * 4 + 10
    known = x[:320].mean(0), x[:320].std(0), bug
    train, held = Normalised(x[:320], y[:320], *known), Normalised(x[320:], y[320:], *known)
    tl, vl = loaders(train, held, 32, 50)
    m = nn.Sequential(mlp(6, 32, 1), nn.Flatten(0))
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        return F.mse_loss(model(b["features"]), b["target"])

    def errors(model, b):
        return (model(b["features"]) - b["target"]) ** 2

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=mean_eval(m, vl, {"val_mse": errors}))
