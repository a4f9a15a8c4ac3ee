"""Pictures: thawed bodies, points, heat maps, rounded and pruned nets."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from tests.debug.sound.odd_kit import G, dl, going, keeping, shapes, still
from tests.debug.sound.programs import sound


def accuracy(m, vl):
    def evaluate():
        hit = n = c = 0
        with still(m):
            for x, y in vl:
                o = m(x)
                hit, n, c = (
                    hit + (o.argmax(1) == y).sum().item(),
                    n + len(y),
                    c + F.cross_entropy(o, y, reduction="sum").item(),
                )
        return {"accuracy": hit / n, "loss": c / n}

    return evaluate


def convnet(k=3, width=12):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * width, k),
    )


def body_of_a_sister_task():
    net = convnet(2)
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    x, y, *_ = shapes(600, 50)
    for _ in range(30):
        i = torch.randperm(600)[:40]
        opt.zero_grad()
        F.cross_entropy(net(x[i]), (y[i] == 2).long()).backward()
        opt.step()
    return net[:-1]


def pictures(n=600, held=240, bs=30, noise=0.3, **more):
    x, y, *_ = shapes(n, 1, noise=noise)
    vx, vy, *_ = shapes(held, 2, noise=noise)
    return dl(x, y, bs=bs, **more), dl(vx, vy, bs=80, shuffle=False)


@sound
def layers_thawed_one_after_another():
    """The head alone for 30 steps, then the last block, then all, each at its own rate."""
    body = body_of_a_sister_task()
    net = nn.Sequential(*body, nn.Linear(96, 3))
    opt = torch.optim.Adam(
        [
            {"params": net[9].parameters(), "lr": 5e-3},
            {"params": net[4:6].parameters(), "lr": 1e-3},
            {"params": net[:2].parameters(), "lr": 3e-4},
        ]
    )
    tl, vl = pictures(n=240, held=120)
    clock = {"steps": 0}
    ce = nn.CrossEntropyLoss()

    def thaw():
        for part, since in ((net[4:6], 30), (net[:2], 60)):
            part.requires_grad_(clock["steps"] >= since)

    thaw()

    def step(b):
        net.train()
        thaw()
        opt.zero_grad()
        loss = ce(net(b[0]), b[1])
        loss.backward()
        opt.step()
        clock["steps"] += 1
        return loss.item()

    class Clock:
        state_dict = staticmethod(lambda: dict(clock))
        load_state_dict = staticmethod(lambda s: (clock.update(s), thaw()))

    return {
        "model": net,
        "loss_fn": ce,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "num_classes": 3,
        "train_step": step,
        "train": going(tl, step),
        "evaluate": accuracy(net, vl),
        "clock": Clock,
        **keeping(net=net, opt=opt, clock=Clock),
    }


@sound
def a_point_by_soft_argmax():
    """The centre as the mean place under a softmax over pixels; flips turn the target too."""
    tr, va = shapes(480, 1, noise=0.5), shapes(150, 2, noise=0.5)

    class Points(Dataset):
        def __init__(self, x, c, turned):
            self.x, self.c, self.turned = x, c, turned

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            x, c = self.x[i], self.c[i]
            if self.turned and torch.rand(()) < 0.5:
                x, c = x.flip(-1), torch.stack([c[0], 11 - c[1]])
            return x, c

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(
                nn.Conv2d(1, 12, 5, padding=2),
                nn.ReLU(),
                nn.Conv2d(12, 12, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(12, 1, 1),
            )
            self.register_buffer("at", torch.arange(12.0))

        def forward(self, x):
            p = self.f(x)[:, 0].flatten(1).softmax(1).view(-1, 12, 12)
            return torch.stack([p.sum(2) @ self.at, p.sum(1) @ self.at], 1)

    tl, vl = (
        DataLoader(Points(tr[0], tr[2], True), 24, shuffle=True, generator=G(1)),
        DataLoader(Points(va[0], va[2], False), 50),
    )
    net = Net()
    opt = torch.optim.Adam(net.parameters(), 4e-3)
    crit = nn.SmoothL1Loss()

    def evaluate():
        with still(net):
            return {"pixels_off": sum((net(x) - c).norm(dim=1).sum().item() for x, c in vl) / 150}

    return {
        "model": net,
        "loss_fn": crit,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "task": "regression",
        "evaluate": evaluate,
    }


def bent(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.SiLU())


class UNet(nn.Module):
    def __init__(self, out=1):
        super().__init__()
        self.a, self.b, self.c = bent(1, 8), bent(8, 16), bent(24, 16)
        self.out = nn.Conv2d(16, out, 1)

    def forward(self, x):
        a = self.a(x)
        b = F.interpolate(
            self.b(F.max_pool2d(a, 2)), scale_factor=2, mode="bilinear", align_corners=False
        )
        return self.out(self.c(torch.cat([a, b], 1)))


@sound
def centres_as_a_heat_map():
    """One map per kind by the centre-point focal loss, an offset only where a centre is."""

    def rows(n, s):
        x, y, c, _ = shapes(n, s)
        k = torch.arange(12.0)
        heat = torch.zeros(n, 3, 12, 12)
        cell = c.round().long()
        blob = (
            -(
                (k[None, :, None] - cell[:, 0, None, None]) ** 2
                + (k[None, None] - cell[:, 1, None, None]) ** 2
            )
            / 2
        ).exp()
        heat[torch.arange(n), y] = blob
        return x, heat, cell, c - cell, y

    tl, vl = dl(*rows(480, 1), bs=24), dl(*rows(120, 2), bs=40, shuffle=False)
    net = UNet(5)
    opt = torch.optim.Adam(net.parameters(), 6e-3)
    with torch.no_grad():
        net.out.bias[:3] = -3.0

    def loss_of(m, b):
        x, heat, cell, off, _ = b
        o = m(x)
        p = o[:, :3].sigmoid().clamp(1e-4, 1 - 1e-4)
        peak = heat == 1
        focal = torch.where(peak, (1 - p) ** 2 * p.log(), (1 - heat) ** 4 * p**2 * (1 - p).log())
        at = o[torch.arange(len(x)), 3:, cell[:, 0], cell[:, 1]]
        return -focal.sum() / peak.sum() + F.l1_loss(at, off)

    def evaluate():
        found = n = 0
        with still(net):
            for x, _, cell, _, y in vl:
                top = net(x)[:, :3].flatten(1).argmax(1)
                i, j = top % 144 // 12, top % 12
                found += (
                    (
                        (top // 144 == y)
                        & ((i - cell[:, 0]).abs() <= 1)
                        & ((j - cell[:, 1]).abs() <= 1)
                    )
                    .sum()
                    .item()
                )
                n += len(y)
        return {"found": found / n}

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "loss_of": loss_of,
        "evaluate": evaluate,
    }


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


class Q(nn.Linear):
    """A layer whose weights and inputs are rounded to 8 bits; a range follows the inputs."""

    def __init__(self, a, b):
        super().__init__(a, b)
        self.register_buffer("top", torch.zeros(()))

    def forward(self, x):
        if self.training:
            now = x.detach().abs().max()
            self.top.copy_(torch.where(self.top == 0, now, 0.95 * self.top + 0.05 * now))
        s = self.top.clamp(min=1e-6) / 127
        w = self.weight.detach().abs().amax(1, keepdim=True).clamp(min=1e-6) / 127
        return F.linear(
            Round.apply(x / s).clamp(-127, 127) * s, Round.apply(self.weight / w) * w, self.bias
        )


@sound
def rounded_in_training_as_in_use():
    """Quantisation-aware: rounding passes the gradient straight through."""
    tl, vl = pictures(3000)
    net = nn.Sequential(nn.Flatten(), Q(144, 64), nn.ReLU(), Q(64, 3))
    with torch.no_grad():
        net(next(iter(tl))[0])  # the ranges of the first batch
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    return {
        "model": net,
        "loss_fn": nn.CrossEntropyLoss(),
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "num_classes": 3,
        "evaluate": accuracy(net, vl),
        **keeping(net=net, opt=opt),
    }


class Bytes(Dataset):
    """Pictures in uint8, scaled as read; in training shifted by up to one pixel and flipped."""

    def __init__(self, x, y, change):
        self.x, self.y, self.change = ((x + 1) * 85).clamp(0, 255).byte(), y, change

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.x[i].float() / 255 - 0.5
        if self.change:
            dy, dx = torch.randint(0, 3, (2,)).tolist()
            x = F.pad(x, (1, 1, 1, 1), value=-0.17)[:, dy : dy + 12, dx : dx + 12]
            x = x.flip(-1) if torch.rand(()) < 0.5 else x
        return x, self.y[i]


@sound
def looked_at_from_four_sides():
    """Bytes on disk, augmentation in training, the mean of four flips in evaluation."""
    (x, y, *_), (vx, vy, *_) = shapes(600, 1), shapes(200, 2)
    tl, vl = (
        DataLoader(Bytes(x, y, True), 30, shuffle=True, generator=G(1), drop_last=True),
        DataLoader(Bytes(vx, vy, False), 50),
    )
    net = convnet()
    opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def evaluate():
        hit = 0
        with still(net):
            for a, b in vl:
                p = sum(net(v).softmax(1) for v in (a, a.flip(-1), a.flip(-2), a.flip(-1, -2)))
                hit += (p.argmax(1) == b).sum().item()
        return {"accuracy_of_four_views": hit / 200}

    return {
        "model": net,
        "loss_fn": nn.CrossEntropyLoss(),
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "num_classes": 3,
        "evaluate": evaluate,
    }
