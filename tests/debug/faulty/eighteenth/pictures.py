"""Faults of models that see: flips, forms of boxes."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.eighteenth.kit import averaged, begun, by_pairs, loaders
from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixteenth.vision import iou
from tests.debug.faulty.unseen.pictures import Flipped

SIZE = 12


def rectangles(g, n):
    """One bright rectangle per picture: pictures [n, 1, 12, 12], masks, and boxes by their upper
    left corner, width and height."""
    x = 0.3 * torch.randn(n, 1, SIZE, SIZE, generator=g)
    masks, boxes = torch.zeros(n, SIZE, SIZE), []
    for mask in masks:
        w, h = torch.randint(3, 7, (2,), generator=g).tolist()
        left = torch.randint(0, SIZE - w + 1, (1,), generator=g).item()
        top = torch.randint(0, SIZE - h + 1, (1,), generator=g).item()
        mask[top : top + h, left : left + w] = 1
        boxes.append([left, top, w, h])
    return x + masks[:, None], masks, torch.tensor(boxes).float() / SIZE


@pair("augmentation-mismatch")
def flip_image_only(bug):
    """A random flip moves the picture and not its mask. After 400 steps iou is 0.784 instead of
    0.979."""
    g = begun(23)
    (x, masks, _), (held_x, held_masks, _) = (rectangles(g, n) for n in (256, 80))
    tl, vl = loaders(Flipped(x, masks, not bug), (held_x, held_masks), vbs=32)
    m = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 1, 3, padding=1),
        nn.Flatten(1),
        nn.Unflatten(1, (SIZE, SIZE)),
    )
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def sums_of(model, b):
        said, true = model(b[0]) > 0, b[1] > 0
        return {"iou": ((said & true).sum(), (said | true).sum())}

    crit = nn.BCEWithLogitsLoss()
    return by_pairs(m, opt, tl, vl, crit, evaluate=averaged(m, vl, sums_of))


@pair("wrong-formula")
def box_format(bug):
    """The targets are corners and sizes, which loss and score take for two corners. After 400 steps
    mean_iou is 0.148 instead of 0.673."""
    g = begun(24)

    def data(n):
        x, _, boxes = rectangles(g, n)
        if not bug:
            boxes = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)
        return x, boxes

    tl, vl = loaders(data(400), data(80), vbs=32)
    m = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(288, 32),
        nn.ReLU(),
        nn.Linear(32, 4),
        nn.Sigmoid(),
    )
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def crit(out, boxes):
        return 5 * F.smooth_l1_loss(out, boxes) + (1 - iou(out, boxes)).mean()

    def sums_of(model, b):
        return {"mean_iou": (iou(model(b[0]), b[1]).sum(), len(b[0]))}

    return by_pairs(m, opt, tl, vl, crit, evaluate=averaged(m, vl, sums_of))
