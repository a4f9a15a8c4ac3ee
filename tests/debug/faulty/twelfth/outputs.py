"""Faults of outputs and their targets: labels, shapes, boxes, samples, likelihoods."""

import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twelfth.kit import (
    Columns,
    G,
    loader,
    mlp,
    pack,
    seed,
)


@pair("classes-compete")
def multilabel_softmax(bug):
    """Multi-label tags trained with CrossEntropyLoss (accepts float targets silently) and
    thresholded sigmoids. After 200 steps micro_f1 is 0.805 instead of 0.897."""
    seed(0)
    g = G(0)
    K = 6
    x = torch.randn(800, 20, generator=g)
    W = torch.randn(20, K, generator=g)
    y = ((x @ W + 0.5 * torch.randn(800, K, generator=g)) > 1).float()
    m = mlp(20, 32, K)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    lf = nn.CrossEntropyLoss() if bug else nn.BCEWithLogitsLoss()
    tr, va = loader(x[:600], y[:600]), loader(x[600:], y[600:], bs=100, shuffle=False)

    def evaluate():
        m.eval()
        with torch.no_grad():
            p = torch.cat([m(a).sigmoid() > 0.5 for a, _ in va]).float()
        t = torch.cat([b for _, b in va])
        tp = (p * t).sum()
        return {"micro_f1": (2 * tp / (p.sum() + t.sum())).item()}

    return pack(m, opt, tr, loss_fn=lf, val_loader=va, evaluate=evaluate, num_classes=K)


@pair("broadcast-loss")
def regression_broadcast(bug):
    """House-price regression: predictions (N,1) minus targets (N,) broadcast to (N,N). After 200
    steps r2 is 0.0522 instead of 0.997."""
    seed(1)
    g = G(1)
    x = torch.randn(800, 10, generator=g)
    y = (
        x @ torch.randn(10, generator=g)
        + 0.3 * x[:, 0] * x[:, 1]
        + 0.1 * torch.randn(800, generator=g)
    )

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = mlp(10, 32, 1)

        def forward(self, x):
            return self.f(x) if bug else self.f(x).squeeze(-1)

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def rmse(out, y):
        return ((out - y) ** 2).mean().sqrt()

    tr, va = loader(x[:600], y[:600]), loader(x[600:], y[600:], bs=100, shuffle=False)

    def evaluate():
        m.eval()
        with torch.no_grad():
            p = torch.cat([m(a) for a, _ in va]).flatten()
        t = torch.cat([b for _, b in va])
        return {"r2": 1 - ((p - t) ** 2).sum().item() / ((t - t.mean()) ** 2).sum().item()}

    return pack(m, opt, tr, loss_fn=rmse, val_loader=va, evaluate=evaluate)


def shapes(n, g, S=16):
    yy, xx = torch.meshgrid(torch.arange(S), torch.arange(S), indexing="ij")
    c = torch.randint(4, S - 4, (n, 2), generator=g)
    r = torch.randint(2, 4, (n,), generator=g)
    k = torch.randint(1, 3, (n,), generator=g)
    m = ((yy[None] - c[:, :1, None]).abs() <= r[:, None, None]) & (
        (xx[None] - c[:, 1:, None]).abs() <= r[:, None, None]
    )
    mask = m.long() * k[:, None, None]
    img = (
        0.4 * torch.randn(n, 1, S, S, generator=g)
        + torch.where(mask == 1, 1.0, torch.where(mask == 2, -1.0, 0.0))[:, None]
    )
    return img, mask, c.float(), r.float()


@pair("missing-log-softmax")
def seg_softmax_dim(bug):
    """Segmentation net normalises over the image width instead of over the classes, then NLLLoss.
    After 200 steps miou is 0.374 instead of 0.89."""
    seed(2)
    g = G(2)
    img, mask, _, _ = shapes(300, g)

    class Seg(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(
                nn.Conv2d(1, 8, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(8, 8, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(8, 3, 1),
            )

        def forward(self, x):
            return F.log_softmax(self.f(x), dim=-1 if bug else 1)

    m = Seg()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    lf = nn.NLLLoss()
    tr, va = (
        loader(img[:240], mask[:240], bs=8),
        loader(img[240:], mask[240:], bs=30, shuffle=False),
    )

    def evaluate():
        m.eval()
        with torch.no_grad():
            p = torch.cat([m(a).argmax(1) for a, _ in va])
        t = torch.cat([b for _, b in va])
        return {
            "miou": np.mean(
                [
                    ((p == k) & (t == k)).sum().item() / max(1, ((p == k) | (t == k)).sum().item())
                    for k in range(3)
                ]
            )
        }

    return pack(m, opt, tr, loss_fn=lf, val_loader=va, evaluate=evaluate, num_classes=3)


def iou(a, b):  # xyxy
    lt, rb = torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:])
    wh = (rb - lt).clamp(min=0)
    i = wh[:, 0] * wh[:, 1]

    def ar(z):
        return ((z[:, 2] - z[:, 0]) * (z[:, 3] - z[:, 1])).clamp(min=0)

    return (i / (ar(a) + ar(b) - i + 1e-6)).mean().item()


class Boxer(nn.Module):
    def __init__(self, last=None):
        super().__init__()
        self.f = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(512, 48),
            nn.ReLU(),
            nn.Linear(48, 4),
            last or nn.Identity(),
        )

    def forward(self, x):
        return self.f(x)


def xyxy(c, r):
    return torch.stack([c[:, 1] - r, c[:, 0] - r, c[:, 1] + r + 1, c[:, 0] + r + 1], 1)


@pair("augmentation-mismatch")
def box_flip(bug):
    """Random horizontal flip of the image without flipping its box. After 200 steps mean_iou is
    0.381 instead of 0.642."""
    seed(3)
    g = G(3)
    img, _mask, c, r = shapes(500, g)
    img = img.abs()
    box = xyxy(c, r) / 16
    m = Boxer()
    opt = torch.optim.Adam(m.parameters(), 2e-3)
    tr = loader(Columns(image=img[:420], boxes=box[:420]), bs=16)
    va = loader(Columns(image=img[420:], boxes=box[420:]), bs=40, shuffle=False)

    def loss_of(m, b):
        return F.smooth_l1_loss(m(b["image"]), b["boxes"], beta=0.1)

    def hflip(b):
        if random.random() < 0.5:
            t = b["boxes"]
            flipped = t if bug else torch.stack([1 - t[:, 2], t[:, 1], 1 - t[:, 0], t[:, 3]], 1)
            return {"image": b["image"].flip(-1), "boxes": flipped}
        return b

    def train_step(b):
        m.train()
        opt.zero_grad()
        loss = loss_of(m, hflip(b))
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        m.eval()
        with torch.no_grad():
            return {"mean_iou": iou(torch.cat([m(b["image"]) for b in va]), box[420:])}

    return pack(m, opt, tr, loss_of, step=train_step, val_loader=va, evaluate=evaluate)


@pair("targets-out-of-reach")
def box_sigmoid_pixels(bug):
    """Detector head ends in a sigmoid (relative boxes) but targets stay in pixels. After 200 steps
    mean_iou is 0 instead of 0.715."""
    seed(4)
    g = G(4)
    img, mask, c, r = shapes(500, g)
    img = img.abs()
    box = xyxy(c, r)
    data = [(img[i], {"boxes": box[i], "labels": mask[i].max()}) for i in range(500)]

    def coll(items):
        return (torch.stack([a for a, _ in items]), [t for _, t in items])

    tr = DataLoader(data[:420], 16, shuffle=True, collate_fn=coll, generator=G(1))
    va = DataLoader(data[420:], 40, collate_fn=coll)
    m = Boxer(nn.Sigmoid())
    opt = torch.optim.Adam(m.parameters(), 2e-3)
    scale = 1 if bug else 16

    def loss_of(m, b):
        imgs, targets = b
        return F.smooth_l1_loss(
            m(imgs), torch.stack([t["boxes"] for t in targets]) / scale, beta=0.1
        )

    def evaluate():
        m.eval()
        with torch.no_grad():
            return {"mean_iou": iou(torch.cat([m(a) for a, _ in va]) * scale, box[420:])}

    return pack(m, opt, tr, loss_of, val_loader=va, evaluate=evaluate)


@pair("frozen-params")
def vae_no_rsample(bug):
    """VAE draws z with Normal(...).sample(): no reconstruction gradient reaches the encoder. After
    200 steps val_recon_mse is 0.519 instead of 0.0293."""
    seed(5)
    g = G(5)
    x = torch.tanh(torch.randn(600, 3, generator=g) @ torch.randn(3, 24, generator=g))

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.dec = mlp(24, 32, 8), mlp(4, 32, 24)

        def forward(self, x):
            mu, lv = self.enc(x).chunk(2, -1)
            q = torch.distributions.Normal(mu, (0.5 * lv).exp())
            return self.dec(q.sample() if bug else q.rsample()), mu, lv

    m = VAE()
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(m, b):
        rec, mu, lv = m(b[0])
        return ((rec - b[0]) ** 2).sum(1).mean() * 5 - 0.5 * (1 + lv - mu**2 - lv.exp()).sum(
            1
        ).mean()

    tr, va = loader(x[:500]), loader(x[500:], bs=50, shuffle=False)

    def evaluate():
        m.eval()
        with torch.no_grad():
            return {
                "val_recon_mse": np.mean(
                    [F.mse_loss(m.dec(m.enc(b)[:, :4]), b).item() for (b,) in va]
                )
            }

    return pack(m, opt, tr, loss_of, val_loader=va, evaluate=evaluate)


@pair("wrong-formula")
def gauss_nll_sign(bug):
    """Heteroscedastic regression: residual is multiplied by exp(+log_var), so log_var runs to
    minus infinity. After 200 steps rmse is 0.794 instead of 0.511 and coverage_90 is 0 instead of
    0.9."""
    seed(6)
    g = G(6)
    x = torch.rand(800, 4, generator=g) * 2 - 1
    y = torch.sin(3 * x[:, 0]) + (0.05 + 0.4 * (x[:, 1] > 0)) * torch.randn(800, generator=g)
    m = mlp(4, 32, 2, nn.Tanh)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def nll(out, y):
        mu, lv = out.unbind(-1)
        return 0.5 * (lv + (y - mu) ** 2 * (lv.exp() if bug else (-lv).exp())).mean()

    tr, va = loader(x[:600], y[:600]), loader(x[600:], y[600:], bs=100, shuffle=False)

    def evaluate():
        m.eval()
        with torch.no_grad():
            mu, lv = torch.cat([m(a) for a, _ in va]).unbind(-1)
        t = y[600:]
        return {
            "rmse": F.mse_loss(mu, t).sqrt().item(),
            "coverage_90": ((t - mu).abs() < 1.645 * (0.5 * lv).exp()).float().mean().item(),
        }

    return pack(m, opt, tr, loss_fn=nll, val_loader=va, evaluate=evaluate)
