"""Faults of models that see pictures: flips, views, boxes."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_second.kit import (
    by_cost,
    by_pairs,
    evaluating,
    feed,
    gen,
    loaders,
    mlp,
    seed,
)


def scenes(n, s):
    """Pictures with one bright patch of kind 1 or 2, striped or plain, and the masks of these."""
    g = gen(s)
    images = 0.3 * torch.randn(n, 1, 12, 12, generator=g)
    masks = torch.zeros(n, 12, 12, dtype=torch.long)
    for i in range(n):
        r, c = torch.randint(0, 7, (2,), generator=g).tolist()
        kind = int(torch.randint(1, 3, (1,), generator=g))
        patch = torch.ones(5, 5)
        if kind == 1:
            patch[:, 1::2] = -1
        images[i, 0, r : r + 5, c : c + 5] += patch
        masks[i, r : r + 5, c : c + 5] = kind
    return images, masks


class Flipped(Dataset):
    """Half of the pictures are flipped when they are read."""

    def __init__(self, images, masks, leaves_masks):
        self.images = images
        self.masks = masks
        self.leaves_masks = leaves_masks

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        x, mask = self.images[i], self.masks[i]
        if torch.rand(()) < 0.5:
            x = x.flip(-1)
            if not self.leaves_masks:
                mask = mask.flip(-1)
        return x, mask


def segmenting(tl, crit):
    """A net that segments scenes in training, scored by the mean overlap of the kinds."""
    vl = feed(scenes(70, 2), 16, shuffle=False)
    m = nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 3, 1),
    )
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def evaluate():
        both, any_of = torch.zeros(3), torch.zeros(3)
        with evaluating(m):
            for x, mask in vl:
                p = m(x).argmax(1)
                for c in range(3):
                    both[c] += ((p == c) & (mask == c)).sum()
                    any_of[c] += ((p == c) | (mask == c)).sum()
        return {"mean_iou": (both / any_of.clamp(min=1)).mean().item()}

    return by_pairs(m, opt, tl, vl, crit, evaluate=evaluate, num_classes=3)


@pair("augmentation-mismatch")
def patches_flip_without_masks(bug):
    """A random flip turns the picture and not its mask. After 300 steps mean_iou is 0.942 instead
    of 0.997."""
    seed()
    return segmenting(feed(Flipped(*scenes(240, 1), bug), 16), nn.CrossEntropyLoss())


@pair("logits-reshaped")
def view_instead_of_permute(bug):
    """Scores [B, C, H, W] are viewed as [-1, C] without permute. After 300 steps mean_iou is 0.039
    instead of 0.998."""
    seed()

    def crit(out, masks):
        if not bug:
            out = out.permute(0, 2, 3, 1)
        return F.cross_entropy(out.reshape(-1, 3), masks.reshape(-1))

    return segmenting(feed(scenes(240, 1), 16), crit)


class BoxNet(nn.Module):
    """The corners of one box for each picture."""

    def __init__(self):
        super().__init__()
        self.f = mlp(144, 48, 48, 4)

    def forward(self, x):
        c = self.f(x.flatten(1)).sigmoid()
        return torch.cat([c[:, :2] - c[:, 2:] / 2, c[:, :2] + c[:, 2:] / 2], 1)


def overlap(a, b):
    sides = (torch.min(a[:, 2:], b[:, 2:]) - torch.max(a[:, :2], b[:, :2])).clamp(min=0)
    both = sides[:, 0] * sides[:, 1]

    def area(t):
        return (t[:, 2] - t[:, 0]).clamp(min=0) * (t[:, 3] - t[:, 1]).clamp(min=0)

    return both / (area(a) + area(b) - both + 1e-6)


@pair("wrong-formula")
def boxes_of_mixed_format(bug):
    """The data give centres and sizes, the loss takes them for corners. After 300 steps mean_iou is
    0.055 instead of 0.643."""
    seed()

    def data(n, s):
        g = gen(s)
        images = 0.2 * torch.randn(n, 1, 12, 12, generator=g)
        boxes = torch.zeros(n, 4)
        for i in range(n):
            w, h = torch.randint(3, 7, (2,), generator=g).tolist()
            x = int(torch.randint(0, 13 - w, (1,), generator=g))
            y = int(torch.randint(0, 13 - h, (1,), generator=g))
            images[i, 0, y : y + h, x : x + w] += 1
            box = [x + w / 2, y + h / 2, w, h] if bug else [x, y, x + w, y + h]
            boxes[i] = torch.tensor(box) / 12
        return {"image": images, "box": boxes}

    m = BoxNet()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(data(320, 1), data(101, 2), 32)

    def loss_of(model, b):
        p = model(b["image"])
        return (p - b["box"]).abs().sum(1).mean() + (1 - overlap(p, b["box"])).mean()

    def sums_of(model, b):
        return {"mean_iou": (overlap(model(b["image"]), b["box"]).sum(), len(b["box"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)
