"""Faults of pictures: flips, axes, boxes, their overlap, and bytes that wrap."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from tests.debug.faulty.eleventh.data import corners, overlap
from tests.debug.faulty.kit import pair
from tests.debug.faulty.twentieth.kit import (
    averaged,
    by_classes,
    by_cost,
    by_pairs,
    evaluating,
    gen,
    loaders,
    mlp,
    seed,
)


def shapes(n, s, size=16):
    """Noise with one bright square, and its mask: both [n, 1, size, size]."""
    g = gen(s)
    x = 0.3 * torch.randn(n, 1, size, size, generator=g)
    mask = torch.zeros(n, 1, size, size)
    for i in range(n):
        a, b = torch.randint(0, size - 5, (2,), generator=g).tolist()
        h = int(torch.randint(3, 6, (1,), generator=g))
        x[i, 0, a : a + h, b : b + h] += 1.2
        mask[i, 0, a : a + h, b : b + h] = 1
    return x, mask


def segmenting(out):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, out, 1),
    )


@pair("augmentation-mismatch")
def squares_flipped_without_masks(bug):
    """The image is flipped in half of the cases, its mask never. After 200 steps iou is 0 instead
    of 0.988."""
    seed()

    class Seg(Dataset):
        def __init__(self, n, s, is_train):
            self.x, self.mask = shapes(n, s)
            self.is_train = is_train

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            x, mask = self.x[i], self.mask[i]
            if self.is_train and torch.rand(1) < 0.5:
                x = x.flip(-1)
                if not bug:
                    mask = mask.flip(-1)
            return x, mask

    m = segmenting(1)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    crit = nn.BCEWithLogitsLoss()
    tl, vl = loaders(Seg(200, 1, True), Seg(60, 2, False), 8)

    def sums_of(model, b):
        p, t = model(b[0]) > 0, b[1] > 0.5
        return {"iou": ((p & t).sum(), (p | t).sum())}

    return by_pairs(m, opt, tl, vl, crit, evaluate=averaged(m, vl, sums_of))


@pair("rows-mixed")
def dice_softmax_over_batch(bug):
    """The softmax of the dice loss runs over the rows of the batch, not over the classes. After 200
    steps miou is 0.091 instead of 0.973."""
    seed()

    def data(n, s):
        x, mask = shapes(n, s)
        y = mask[:, 0].long()
        x2, mask2 = shapes(n, s + 50)
        y[mask2[:, 0] > 0] = 2
        return x - 1.0 * (x2 > 0.8) * (mask2 > 0) - 0.8 * mask2, y

    m = segmenting(3)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    tl, vl = loaders(data(200, 1), data(60, 2), 8)

    def dice(logits, y):
        p = F.softmax(logits, dim=0 if bug else 1)
        t = F.one_hot(y, 3).permute(0, 3, 1, 2).float()
        inside = (p * t).sum((0, 2, 3))
        sizes = (p + t).sum((0, 2, 3))
        return 1 - ((2 * inside + 1) / (sizes + 1)).mean()

    def evaluate():
        both = torch.zeros(3)
        either = torch.zeros(3)
        with evaluating(m):
            for x, y in vl:
                p = m(x).argmax(1)
                for c in range(3):
                    both[c] += ((p == c) & (y == c)).sum()
                    either[c] += ((p == c) | (y == c)).sum()
        return {"miou": (both / either.clamp(min=1)).mean().item()}

    return by_pairs(m, opt, tl, vl, dice, evaluate=evaluate, num_classes=3)


def scenes(n, s):
    """Images of one box each, the cell of a 4x4 grid that holds its centre, and there its box."""
    g = gen(s)
    image = 0.2 * torch.randn(n, 1, 16, 16, generator=g)
    obj = torch.zeros(n, 4, 4)
    box = torch.zeros(n, 4, 4, 4)
    for i in range(n):
        w, h = torch.randint(3, 8, (2,), generator=g).tolist()
        a = int(torch.randint(0, 16 - w, (1,), generator=g))
        b = int(torch.randint(0, 16 - h, (1,), generator=g))
        image[i, 0, b : b + h, a : a + w] += 1
        cx, cy = a + w / 2, b + h / 2
        q, r = int(cx // 4), int(cy // 4)
        obj[i, r, q] = 1
        box[i, r, q] = torch.tensor([cx / 4 - q, cy / 4 - r, w / 4, h / 4])
    return {"image": image, "obj": obj, "box": box}


class Detector(nn.Module):
    """For each cell of a 4x4 grid whether it has an object, and its box: centre and size."""

    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU()
        )
        self.obj = nn.Conv2d(16, 1, 1)
        self.box = nn.Conv2d(16, 4, 1)

    def forward(self, x):
        h = self.f(x)
        return self.obj(h)[:, 0], self.box(h).permute(0, 2, 3, 1)


def by_centres(p, t):
    """The overlap of boxes by their centres and sizes."""
    return overlap(corners(p), corners(t))


def by_corners(p, t):
    """The overlap of boxes by two opposite corners each."""
    sides = torch.minimum(p[:, 2:], t[:, 2:]) - torch.maximum(p[:, :2], t[:, :2])
    inside = sides.clamp(min=0).prod(1)
    areas = [(q[:, 2:] - q[:, :2]).prod(1).abs() for q in (p, t)]
    return inside / (areas[0] + areas[1] - inside + 1e-9)


def detecting(all_cells, iou):
    """A detector in training; its boxes cost where an object is, or in all cells."""
    seed()
    m = Detector()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(scenes(320, 1), scenes(90, 2), 8)

    def loss_of(model, b):
        obj, box = model(b["image"])
        has = b["obj"] > 0
        of_cells = F.binary_cross_entropy_with_logits(obj, b["obj"])
        if all_cells:
            return of_cells + F.smooth_l1_loss(box, b["box"])
        return of_cells + F.smooth_l1_loss(box[has], b["box"][has])

    def sums_of(model, b):
        obj, box = model(b["image"])
        has = b["obj"] > 0
        overlaps = iou(box[has], b["box"][has])
        hits = obj.flatten(1).argmax(1) == b["obj"].flatten(1).argmax(1)
        n = len(overlaps)
        return {"mean_iou": (overlaps.sum(), n), "cell_acc": (hits.sum(), n)}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("padding-in-the-loss")
def det_box_loss_on_background(bug):
    """The box loss is a mean over all cells: zeros are taught as the boxes of the empty ones. After
    200 steps mean_iou is 0.277 instead of 0.631."""
    return detecting(bug, by_centres)


@pair("metric-wrong")
def det_iou_wrong_format(bug):
    """Boxes are centres and sizes, and their overlap takes them for corners. After 200 steps
    mean_iou is 0.353 instead of 0.631."""
    return detecting(False, by_corners if bug else by_centres)


@pair("loss-negated")
def uint8_brightness_wraps(bug):
    """Brightness is added in bytes: what is too bright becomes black. After 200 steps val_acc is
    0.055 instead of 1."""
    seed()
    proto = torch.randint(60, 246, (4, 8, 8), generator=gen(77)).numpy()

    class Images(Dataset):
        def __init__(self, n, s, is_train):
            draws = np.random.RandomState(s)
            self.y = draws.randint(0, 4, n)
            x = proto[self.y] + draws.normal(0, 55, (n, 8, 8))
            self.x = np.clip(x, 0, 255).astype(np.uint8)
            self.is_train = is_train
            self.draws = np.random.RandomState(s + 10)

        def __len__(self):
            return len(self.y)

        def __getitem__(self, i):
            x = self.x[i]
            if self.is_train:
                more = int(self.draws.randint(0, 100))
                if bug:
                    x = x + np.uint8(more)
                else:
                    x = np.clip(x.astype(np.int16) + more, 0, 255).astype(np.uint8)
            return torch.from_numpy(x.astype(np.float32) / 255)[None], int(self.y[i])

    m = nn.Sequential(nn.Flatten(), *mlp(64, 16, 4))
    opt = torch.optim.Adam(m.parameters(), 2e-3)
    tl, vl = loaders(Images(240, 1, True), Images(200, 2, False))
    return by_classes(m, opt, tl, vl, 4)
