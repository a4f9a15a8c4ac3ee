"""Faults of models that see pictures: axes, flips, boxes."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixteenth.kit import by_cost, gen, loaders, named, seed


def within(low, high, count, g):
    return [int(v) for v in torch.randint(low, high, (count,), generator=g)]


def shapes(n, number, S=12):
    """A bright rectangle (1) and a dim one (2), which always lies to the left, on noise: images,
    masks, boxes of the bright one."""
    g = gen(number)
    images = 0.3 * torch.randn(n, 1, S, S, generator=g)
    masks = torch.zeros(n, S, S, dtype=torch.long)
    boxes = torch.zeros(n, 4)
    for i in range(n):
        for c, left in ((2, 0), (1, S // 2)):
            w, h = within(2, 5, 2, g)
            x = left + within(0, S // 2 - w + 1, 1, g)[0]
            y = within(0, S - h + 1, 1, g)[0]
            images[i, 0, y : y + h, x : x + w] += 2.0 if c == 1 else 1.0
            masks[i, y : y + h, x : x + w] = c
            if c == 1:
                boxes[i] = torch.tensor([x, y, x + w, y + h]) / S
    return images, masks, boxes


def one_box(n, number, S=12):
    """A bright rectangle anywhere: images, boxes."""
    g = gen(number)
    images = 0.3 * torch.randn(n, 1, S, S, generator=g)
    boxes = torch.zeros(n, 4)
    for i in range(n):
        w, h = within(3, 7, 2, g)
        x = within(0, S - w + 1, 1, g)[0]
        y = within(0, S - h + 1, 1, g)[0]
        images[i, 0, y : y + h, x : x + w] += 2.0
        boxes[i] = torch.tensor([x, y, x + w, y + h]) / S
    return images, boxes


def segmenter(C=3, w=8):
    return nn.Sequential(
        nn.Conv2d(1, w, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(w, w, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(w, C, 1),
    )


def detector(S=12):
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(6 * (S // 2) ** 2, 32),
        nn.ReLU(),
        nn.Linear(32, 4),
        nn.Sigmoid(),
    )


def pixels(model, b):
    hits = model(b["image"]).argmax(1) == b["mask"]
    shape = b["mask"] > 0
    return {"fg_recall": (hits[shape].sum(), shape.sum()), "pixel_acc": (hits.sum(), hits.numel())}


@pair("logits-reshaped")
def seg_view_without_permute(bug):
    """Logits [batch, classes, height, width] are viewed as [-1, classes] although the classes are
    not last. After 300 steps pixel_acc is 0.187 instead of 0.99."""
    seed(11)
    images, masks, _ = shapes(260, 11)
    tl, vl = loaders(*named(200, image=images, mask=masks), 8)
    m = segmenter()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        out = model(b["image"])
        out = out.view(-1, 3) if bug else out.permute(0, 2, 3, 1).reshape(-1, 3)
        return F.cross_entropy(out, b["mask"].view(-1))

    return by_cost(m, opt, tl, vl, loss_of, pixels, num_classes=3)


@pair("augmentation-mismatch")
def seg_flip_without_mask(bug):
    """A random flip moves the image and not its mask. After 300 steps fg_recall is 0 instead of
    0.936."""
    seed(12)

    class Flipping(Dataset):
        def __init__(self, images, masks, flips, number):
            self.images, self.masks = images, masks
            self.flips, self.g = flips, gen(number)

        def __len__(self):
            return len(self.images)

        def __getitem__(self, i):
            image, mask = self.images[i], self.masks[i]
            if self.flips and torch.rand((), generator=self.g) < 0.5:
                image = image.flip(-1)
                if not bug:
                    mask = mask.flip(-1)
            return {"image": image, "mask": mask}

    images, masks, _ = shapes(260, 12)
    tr = Flipping(images[:200], masks[:200], True, 12)
    tl, vl = loaders(tr, Flipping(images[200:], masks[200:], False, 13), 8)
    m = segmenter()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        return F.cross_entropy(model(b["image"]), b["mask"])

    return by_cost(m, opt, tl, vl, loss_of, pixels, num_classes=3)


def area(boxes):
    return (boxes[:, 2:] - boxes[:, :2]).clamp(min=0).prod(1)


def iou(a, b):
    top, bottom = torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:])
    inter = (bottom - top).clamp(min=0).prod(1)
    return inter / (area(a) + area(b) - inter).clamp(min=1e-6)


@pair("metric-wrong")
def iou_of_cxcywh_as_xyxy(bug):
    """A detector learns centres and sizes; the overlap that is reported takes them for corners.
    After 300 steps mean_iou is 0 instead of 0.587."""
    seed(13)
    images, _, boxes = shapes(560, 13)
    boxes = torch.cat([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], 1)
    tl, vl = loaders(*named(460, image=images, boxes=boxes))
    m = detector()
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def corners(t):
        if bug:
            return t
        return torch.cat([t[:, :2] - t[:, 2:] / 2, t[:, :2] + t[:, 2:] / 2], 1)

    def loss_of(model, b):
        return F.smooth_l1_loss(model(b["image"]), b["boxes"], beta=0.1)

    def sums_of(model, b):
        overlap = iou(corners(model(b["image"])), corners(b["boxes"]))
        return {"mean_iou": (overlap.sum(), len(b["boxes"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("augmentation-mismatch")
def box_flip_corners_not_swapped(bug):
    """A flip makes 1 - x of each corner and does not exchange left and right: x1 > x2. After 300
    steps mean_iou is 0.077 instead of 0.725."""
    seed(14)

    class Flipping(Dataset):
        def __init__(self, images, boxes, flips, number):
            self.images, self.boxes = images, boxes
            self.flips, self.g = flips, gen(number)

        def __len__(self):
            return len(self.images)

        def __getitem__(self, i):
            image, (x1, y1, x2, y2) = self.images[i], self.boxes[i]
            if self.flips and torch.rand((), generator=self.g) < 0.5:
                image = image.flip(-1)
                x1, x2 = (1 - x1, 1 - x2) if bug else (1 - x2, 1 - x1)
            return image, {"boxes": torch.stack([x1, y1, x2, y2])}

    images, boxes = one_box(560, 14)
    tr = Flipping(images[:460], boxes[:460], True, 14)
    tl, vl = loaders(tr, Flipping(images[460:], boxes[460:], False, 15))
    m = detector()
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        return F.smooth_l1_loss(model(b[0]), b[1]["boxes"], beta=0.1)

    def sums_of(model, b):
        return {"mean_iou": (iou(model(b[0]), b[1]["boxes"]).sum(), len(b[0]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)
