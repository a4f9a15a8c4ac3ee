"""Faults of pictures: masks and boxes."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_first.kit import (
    by_cost,
    by_pairs,
    class_losses,
    evaluating,
    gen,
    loaders,
    mean_eval,
    mlp,
    seed,
)


def bright_squares(n, s, H=12):
    """Images with one bright square in noise, and its mask."""
    g = gen(s)
    x = 0.6 * torch.randn(n, 1, H, H, generator=g)
    y = torch.zeros(n, H, H, dtype=torch.long)
    for mask in y:
        r, c = (int(torch.randint(0, H - 4, (1,), generator=g)) for _ in range(2))
        mask[r : r + 4, c : c + 4] = 1
    return x + y[:, None].float(), y


class Mirrored(Dataset):
    """Half of the images mirrored, with their masks or without."""

    def __init__(self, x, y, both):
        self.x = x
        self.y = y
        self.both = both
        self.g = gen(11)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x, y = self.x[i], self.y[i]
        if torch.rand(1, generator=self.g) < 0.5:
            x = x.flip(-1)
            if self.both:
                y = y.flip(-1)
        return x, y


@pair("augmentation-mismatch")
def masks_stay_where_images_flip(bug):
    """Images are mirrored at random, and their masks are not. After 300 steps iou is 0.533 instead
    of 0.794."""
    seed(11)
    held = bright_squares(100, 2)
    tl, vl = loaders(Mirrored(*bright_squares(256, 1), not bug), held, 16, 32)
    m = nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 2, 1),
    )
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    score = mean_eval(m, vl, {"val_loss": class_losses})

    def evaluate():
        inter = union = 0
        with evaluating(m):
            for x, y in vl:
                told = m(x).argmax(1)
                inter += ((told == 1) & (y == 1)).sum().item()
                union += ((told == 1) | (y == 1)).sum().item()
        return {"iou": inter / max(union, 1)} | score()

    return by_pairs(m, opt, tl, vl, evaluate=evaluate, num_classes=2)


def boxed(n, s, H=12):
    """Images of one to three rectangles, one in a colour; some have no box, as in a crowd."""
    g = gen(s)
    rows = []
    for _ in range(n):
        k = int(torch.randint(1, 4, (1,), generator=g))
        img = 0.05 * torch.randn(3, H, H, generator=g)
        box = torch.zeros(3, 4)
        valid = torch.zeros(3)
        for j in torch.randperm(3, generator=g)[:k].tolist():
            r, c = torch.randint(0, H - 5, (2,), generator=g).tolist()
            h, w = torch.randint(2, 6, (2,), generator=g).tolist()
            img[j, r : r + h, c : c + w] = 1
            valid[j] = 1
            box[j] = torch.tensor([c, r, c + w, r + h]) / H
        if torch.rand(1, generator=g) < 0.35 and k > 1:
            j = int(valid.nonzero()[0])
            box[j] = 0
            valid[j] = 0
        rows.append({"image": img, "boxes": box, "valid": valid})
    return rows


def area(q):
    return (q[:, 2:] - q[:, :2]).clamp(min=0).prod(1)


@pair("padding-in-the-loss", "mask-ignored")
def boxes_of_empty_slots(bug):
    """The loss averages over the slots without a box as well. After 300 steps mean_iou is 0.227
    instead of 0.356."""
    seed(12)
    tl, vl = loaders(boxed(320, 1), boxed(100, 2), 16, 32)
    m = nn.Sequential(nn.Flatten(), mlp(432, 48, 12), nn.Unflatten(1, (3, 4)))
    opt = torch.optim.Adam(m.parameters(), 2e-3)

    def loss_of(model, b):
        costs = F.l1_loss(model(b["image"]), b["boxes"], reduction="none").mean(-1)
        if bug:
            return costs.mean()
        return (costs * b["valid"]).sum() / b["valid"].sum().clamp(min=1)

    def overlaps(model, b):
        valid = b["valid"].bool()
        p, t = model(b["image"])[valid], b["boxes"][valid]
        low, high = torch.maximum(p[:, :2], t[:, :2]), torch.minimum(p[:, 2:], t[:, 2:])
        both = (high - low).clamp(min=0).prod(1)
        return both / (area(p) + area(t) - both).clamp(min=1e-9)

    evaluate = mean_eval(m, vl, {"mean_iou": overlaps})
    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)
