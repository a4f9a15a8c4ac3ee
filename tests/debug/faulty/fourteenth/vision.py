"""Faults of label maps and boxes."""

import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from tests.debug.faulty.fourteenth.kit import (
    columns,
    gen,
    loader,
    mean_eval,
    pairloss,
    plain_step,
    seed,
    set_up,
)
from tests.debug.faulty.kit import pair


def scenes(n, S, s, classes=4):
    """Discs of classes 1 to 3 on background 0, each class in a colour of its own."""
    g = np.random.default_rng(s)
    yy, xx = np.mgrid[:S, :S]
    col = np.random.default_rng(0).normal(size=(classes, 3))
    m = np.zeros((n, S, S), int)
    for i in range(n):
        for _ in range(3):
            c = g.integers(1, classes)
            cy, cx = g.integers(2, S - 2, 2)
            r = g.uniform(1.5, 3.5)
            m[i][(yy - cy) ** 2 + (xx - cx) ** 2 < r * r] = c
    x = col[m].transpose(0, 3, 1, 2) + g.normal(size=(n, 3, S, S)) * 0.5
    return torch.tensor(x, dtype=torch.float32), torch.tensor(m)


@pair("wrong-targets")
def mask_resized_bilinear(bug):
    """Masks are brought to the training size by bilinear interpolation; borders 0|3 get the classes
    1 and 2. After 400 steps miou is 0.5299 instead of 0.6594."""
    seed(11)
    x, m = scenes(160, 24, 1)
    vx, vm = scenes(40, 24, 2)

    class Set(Dataset):
        def __len__(self):
            return len(x)

        def __getitem__(self, i):
            im = F.interpolate(x[i][None], (12, 12), mode="bilinear", align_corners=False)[0]
            if bug:
                mk = (
                    F.interpolate(
                        m[i][None, None].float(), (12, 12), mode="bilinear", align_corners=False
                    )[0, 0]
                    .round()
                    .long()
                )
            else:
                mk = F.interpolate(m[i][None, None].float(), (12, 12), mode="nearest-exact")[
                    0, 0
                ].long()
            return im, mk

    tr = DataLoader(Set(), 8, shuffle=True, generator=gen(11))
    va = loader(vx, vm, bs=20, shuffle=False)
    small = loader(
        F.interpolate(vx, (12, 12), mode="bilinear", align_corners=False),
        F.interpolate(vm[:, None].float(), (12, 12), mode="nearest-exact")[:, 0].long(),
        bs=20,
        shuffle=False,
    )
    model = nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 4, 1),
    )
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_fn = nn.CrossEntropyLoss()
    step = plain_step(model, opt, pairloss(loss_fn))

    def evaluate():
        model.eval()  # IoU at the masks' own size, summed over the whole set
        inter, union = torch.zeros(4), torch.zeros(4)
        with torch.no_grad():
            for a, b in va:
                p = model(F.interpolate(a, (12, 12), mode="bilinear", align_corners=False))
                p = F.interpolate(p, (24, 24), mode="bilinear", align_corners=False).argmax(1)
                for c in range(4):
                    inter[c] += ((p == c) & (b == c)).sum()
                    union[c] += ((p == c) | (b == c)).sum()
        model.train()
        iou = inter / union.clamp(min=1)
        return {"miou": iou.mean().item(), **{f"iou_{c}": iou[c].item() for c in range(4)}}

    return set_up(
        model, opt, tr, step, val_loader=small, loss_fn=loss_fn, num_classes=4, evaluate=evaluate
    )


def iou(a, b):
    lt, rb = torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:])
    i = (rb - lt).clamp(min=0).prod(1)

    def ar(z):
        return (z[:, 2:] - z[:, :2]).clamp(min=0).prod(1)

    return i / (ar(a) + ar(b) - i).clamp(min=1e-6)


@pair("augmentation-mismatch")
def flipped_box_corners_not_swapped(bug):
    """Horizontal flip maps x to 1-x for both corners but leaves them in their places. After 400
    steps iou is 0.1925 instead of 0.5988."""
    seed(12)
    S = 16

    def data(n):
        wh = torch.randint(3, 8, (n, 2))
        p = (torch.rand(n, 2) * (S - wh)).long()
        im = torch.randn(n, 1, S, S) * 0.2
        for i in range(n):
            im[i, 0, p[i, 1] : p[i, 1] + wh[i, 1], p[i, 0] : p[i, 0] + wh[i, 0]] += 1
        return im, torch.cat([p, p + wh], 1).float() / S

    X, B = data(320)

    class Boxes(Dataset):
        def __len__(self):
            return 320

        def __getitem__(self, i):
            im, b = X[i], B[i].clone()
            if random.random() < 0.5:
                im = im.flip(-1)
                if bug:
                    b[[0, 2]] = 1 - b[[0, 2]]
                else:
                    b[[0, 2]] = 1 - b[[2, 0]]
            return {"image": im, "boxes": b}

    va = columns(bs=50, shuffle=False, **dict(zip(("image", "boxes"), data(100), strict=True)))
    tr = DataLoader(Boxes(), 16, shuffle=True, generator=gen(12))
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 4), nn.Sigmoid()
    )
    opt = torch.optim.Adam(model.parameters(), 2e-3)

    def loss_of(m, b):
        return F.smooth_l1_loss(m(b["image"]), b["boxes"], beta=0.05)

    step = plain_step(model, opt, loss_of)
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_of=loss_of,
        evaluate=mean_eval(model, va, {"iou": lambda m, b: iou(m(b["image"]), b["boxes"])}),
    )
