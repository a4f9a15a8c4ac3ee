"""Faults of pictures: flips, reshaped maps, boxes, transforms of the wrong part."""

import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split

from tests.debug.faulty.fifteenth.kit import gen, plain_step, seed, set_up
from tests.debug.faulty.kit import pair


def cells(n, g):
    """Noisy images with a bright box, and the box as their mask."""
    M = torch.zeros(n, 1, 12, 12)
    for i in range(n):
        r, c = (int(v) for v in torch.randint(0, 7, (2,), generator=g))
        k = int(torch.randint(2, 6, (1,), generator=g))
        M[i, 0, r : r + k, c : c + 3] = 1
    return M + 0.3 * torch.randn(n, 1, 12, 12, generator=g), M


@pair("augmentation-mismatch")
def flips_by_two_coins(bug):
    """Two throws of a coin, one for the image's flip and one for the mask's: half the pairs do not
    match. After 150 steps iou is 0 instead of 0.9556."""
    seed(31)
    g = gen(1)
    X, M = cells(320, g)
    vx, vm = cells(64, g)

    class Seg(Dataset):
        def __init__(self, x, m, aug):
            self.x, self.m, self.aug = x, m, aug

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            x, m = self.x[i], self.m[i]
            if self.aug:
                a = random.random() < 0.5
                b = random.random() < 0.5 if bug else a
                if a:
                    x = x.flip(-1)
                if b:
                    m = m.flip(-1)
            return x, m

    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 1, 1),
    )
    opt = torch.optim.Adam(net.parameters(), 0.01)
    tl = DataLoader(Seg(X, M, True), 16, shuffle=True, generator=gen(2))
    vl = DataLoader(Seg(vx, vm, False), 32)
    crit = nn.BCEWithLogitsLoss()

    def step(b):
        net.train()
        opt.zero_grad()
        loss = crit(net(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        net.eval()
        i = u = 0
        for x, m in vl:
            p = net(x) > 0
            i += (p & (m > 0)).sum().item()
            u += (p | (m > 0)).sum().item()
        net.train()
        return {"iou": i / max(u, 1)}

    return set_up(net, opt, tl, step, val_loader=vl, loss_fn=crit, evaluate=evaluate)


@pair("logits-reshaped")
def logits_viewed_flat(bug):
    """Logits [B, C, H, W] are reshaped to [-1, C] without permute: a pixel's target meets other
    pixels' scores. After 150 steps pixel_acc is 0.2726 instead of 0.9946."""
    seed(32)
    g = gen(2)
    C = 3

    def make(n):
        x, m = cells(n, g)
        y = m.long().squeeze(1)
        bot = torch.zeros_like(y)
        bot[:, 8:] = 1
        return TensorDataset(
            torch.cat([x, torch.linspace(-1, 1, 12).view(1, 1, 12, 1).expand(n, 1, 12, 12)], 1),
            torch.where(y == 1, y, bot * 2),
        )

    net = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, C, 1))
    opt = torch.optim.Adam(net.parameters(), 0.01)
    tl = DataLoader(make(256), 16, shuffle=True, generator=gen(3))
    vl = DataLoader(make(48), 16)

    def crit(o, y):
        return F.cross_entropy((o if bug else o.permute(0, 2, 3, 1)).reshape(-1, C), y.reshape(-1))

    def step(b):
        opt.zero_grad()
        loss = crit(net(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        total = sum((net(x).argmax(1) == y).float().mean().item() * len(x) for x, y in vl)
        return {"pixel_acc": total / 48}

    return set_up(net, opt, tl, step, val_loader=vl, loss_fn=crit, num_classes=C, evaluate=evaluate)


@pair("wrong-formula")
def yolo_boxes(bug):
    """GIoU is computed on (cx, cy, w, h) as if it were (x1, y1, x2, y2): most of these boxes are
    inside out. After 300 steps mean_iou is 0.3556 instead of 0.5242."""
    seed(33)
    g = gen(3)

    def make(n):
        X, B = 0.1 * torch.randn(n, 1, 12, 12, generator=g), []
        for i in range(n):
            w, h = (int(v) for v in torch.randint(2, 6, (2,), generator=g))
            x = int(torch.randint(0, 13 - w, (1,), generator=g))
            y = int(torch.randint(0, 13 - h, (1,), generator=g))
            X[i, 0, y : y + h, x : x + w] += 1
            B.append([(x + w / 2) / 12, (y + h / 2) / 12, w / 12, h / 12])
        return [{"image": a, "box_cxcywh": torch.tensor(b)} for a, b in zip(X, B, strict=True)]

    def ar(z):
        return (z[:, 2:] - z[:, :2]).clamp(min=0).prod(1)

    def iou(a, b):
        lt = torch.maximum(a[:, :2], b[:, :2])
        rb = torch.minimum(a[:, 2:], b[:, 2:])
        i = (rb - lt).clamp(min=0).prod(1)
        return i / (ar(a) + ar(b) - i + 1e-6)

    def giou(a, b):
        v = iou(a, b)
        lt = torch.minimum(a[:, :2], b[:, :2])
        rb = torch.maximum(a[:, 2:], b[:, 2:])
        c = (rb - lt).clamp(min=0).prod(1)
        # the union: what both cover is v * u
        u = (ar(a) + ar(b)) / (1 + v)
        return v - (c - u) / (c + 1e-6)

    def xyxy(z):
        return torch.cat([z[:, :2] - z[:, 2:] / 2, z[:, :2] + z[:, 2:] / 2], 1)

    net = nn.Sequential(nn.Flatten(), nn.Linear(144, 48), nn.ReLU(), nn.Linear(48, 4), nn.Sigmoid())
    opt = torch.optim.Adam(net.parameters(), 0.002)
    tl = DataLoader(make(1200), 32, shuffle=True, generator=gen(4))
    vl = DataLoader(make(96), 32)

    def loss_of(model, b):
        p, t = model(b["image"]), b["box_cxcywh"]
        v = giou(p, t) if bug else giou(xyxy(p), xyxy(t))
        return (1 - v).mean() + 0.05 * F.l1_loss(p, t)

    step = plain_step(net, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        total = sum(iou(xyxy(net(b["image"])), xyxy(b["box_cxcywh"])).sum().item() for b in vl)
        return {"mean_iou": total / 96}

    return set_up(net, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)


@pair("augmented-validation")
def split_transform(bug):
    """The training transform sits on the one data set under both parts of random_split: validation
    is augmented too. After 150 steps val_acc is 0.925 instead of 1."""
    seed(34)
    g = gen(4)
    y = torch.randint(0, 4, (400,), generator=g)
    pr = torch.randn(4, 1, 8, 8, generator=g)
    x = pr[y] + 0.8 * torch.randn(400, 1, 8, 8, generator=g)

    def augment(im):
        im = im.clone()
        r, c = random.randrange(0, 4), random.randrange(0, 4)
        im[:, r : r + 5, c : c + 5] = 0
        return torch.roll(im, random.choice([-1, 0, 0, 1]), -1) + 0.6 * torch.randn_like(im)

    class Pics(Dataset):
        def __init__(self, transform=None):
            self.transform = transform

        def __len__(self):
            return 400

        def __getitem__(self, i):
            return self.transform(x[i]) if self.transform else x[i], y[i]

    if bug:
        tr, va = random_split(Pics(augment), [320, 80], generator=gen(5))
    else:
        p = torch.randperm(400, generator=gen(5)).tolist()
        tr = Subset(Pics(augment), p[:320])
        va = Subset(Pics(), p[320:])
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
    opt = torch.optim.SGD(net.parameters(), 0.03, momentum=0.9)
    tl = DataLoader(tr, 16, shuffle=True, generator=gen(6))
    vl = DataLoader(va, 16)
    ce = nn.CrossEntropyLoss()

    def step(b):
        net.train()
        opt.zero_grad()
        loss = ce(net(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        net.eval()
        c = t = 0.0
        for a, b in vl:
            o = net(a)
            c += (o.argmax(1) == b).sum().item()
            t += ce(o, b).item() * len(a)
        net.train()
        return {"val_acc": c / 80, "val_loss": t / 80}

    return set_up(net, opt, tl, step, val_loader=vl, loss_fn=ce, num_classes=4, evaluate=evaluate)


@pair("dataset-changes-itself")
def inplace_getitem(bug):
    """sub_ and div_ on a row of the stored array: each visit normalises the same row again. After
    155 steps val_mse is 1.518 instead of 0.0158."""
    seed(35)
    g = gen(5)
    X = torch.rand(300, 24, generator=g) * 255
    w = torch.randn(24, generator=g)
    Y = ((X / 255 - 0.5) @ w)[:, None]

    class Spectra(Dataset):
        def __init__(self, a, b):
            self.a, self.b = X[a:b].clone(), Y[a:b].clone()

        def __len__(self):
            return len(self.a)

        def __getitem__(self, i):
            v = self.a[i]
            v = v.sub_(127.5).div_(73.6) if bug else (v - 127.5) / 73.6
            return {"signal": v, "conc": self.b[i]}

    net = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 1))
    opt = torch.optim.Adam(net.parameters(), 0.005)
    tl = DataLoader(Spectra(0, 240), 16, shuffle=True, generator=gen(1))
    vl = DataLoader(Spectra(240, 300), 16)

    def loss_of(model, b):
        return F.mse_loss(model(b["signal"]), b["conc"])

    step = plain_step(net, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        return {"val_mse": sum(loss_of(net, b).item() * len(b["conc"]) for b in vl) / 60}

    return set_up(net, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)
