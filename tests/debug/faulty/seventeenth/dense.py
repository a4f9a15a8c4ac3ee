"""Faults of outputs beside targets: activations, shapes, images, boxes, scales."""

import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventeenth.kit import (
    Columns,
    averaged,
    begun,
    by_cost,
    by_pairs,
    loaders,
    mlp,
)


@pair("classes-compete")
def labels_compete_in_softmax(bug):
    """Six independent labels get a softmax before the binary cross-entropy. After 300 steps
    label_acc is 0.486 instead of 0.962."""
    g = begun(11)
    w = torch.randn(12, 6, generator=g)

    def data(n):
        x = torch.randn(n, 12, generator=g)
        return x, (x @ w + 0.3 > 0).float()

    last = nn.Softmax(dim=1) if bug else nn.Sigmoid()
    m = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 6), last)
    tl, vl = loaders(data(512), data(200))
    crit = nn.BCELoss()

    def sums_of(model, b):
        out, n = model(b[0]), len(b[0])
        hits = (out > 0.5) == (b[1] > 0.5)
        return {"loss": (crit(out, b[1]) * n, n), "label_acc": (hits.float().mean(1).sum(), n)}

    opt = torch.optim.Adam(m.parameters(), 3e-3)
    return by_pairs(m, opt, tl, vl, crit, evaluate=averaged(m, vl, sums_of))


@pair("broadcast-loss")
def column_minus_row_of_targets(bug):
    """Predictions [32, 1] minus targets [32] are a 32 x 32 table: the model learns the mean. After
    300 steps rmse is 2.42 instead of 0.33."""
    g = begun(12)

    def data(n):
        x = torch.randn(n, 5, generator=g)
        y = x[:, 0] * 2 - x[:, 1] + 0.5 * x[:, 2] ** 2
        return x, y + 0.1 * torch.randn(n, generator=g)

    m = mlp(5, 32, 1)
    tl, vl = loaders(data(512), data(200))

    def crit(out, y):
        return (((out if bug else out.squeeze(1)) - y) ** 2).mean()

    def sums_of(model, b):
        return {"mse": (((model(b[0])[:, 0] - b[1]) ** 2).sum(), len(b[0]))}

    mean = averaged(m, vl, sums_of)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_pairs(m, opt, tl, vl, crit, evaluate=lambda: {"rmse": mean()["mse"] ** 0.5})


def discs(g, n, s=12):
    """Pictures of a bright and a dark disc, with their masks; the bright ones lie on the left."""
    yy, xx = torch.meshgrid(torch.arange(s), torch.arange(s), indexing="ij")
    masks = torch.zeros(n, s, s, dtype=torch.long)
    for k in (1, 2):
        c = torch.randint(2, s - 2, (n, 2), generator=g)
        c[:, 1] = c[:, 1] * 0.5 + (0 if k == 1 else s / 2)
        masks[((yy - c[:, :1, None]) ** 2 + (xx - c[:, 1:, None]) ** 2) < 6] = k
    images = torch.tensor([0.0, 1.2, -1.2])[masks] + 0.4 * torch.randn(n, s, s, generator=g)
    return images[:, None], masks


def segmented(tl, vl, crit):
    """A small segmenter in training, scored on the discs."""
    m = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 3, padding=1))

    def sums_of(model, b):
        hits, disc = model(b[0]).argmax(1) == b[1], b[1] > 0
        return {"foreground_acc": (hits[disc].sum(), disc.sum())}

    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_pairs(m, opt, tl, vl, crit, num_classes=3, evaluate=averaged(m, vl, sums_of))


@pair("logits-reshaped")
def seg_view_not_permute(bug):
    """Logits [batch, classes, height, width] are viewed as [-1, classes] and not permuted. After
    300 steps foreground_acc is 0.036 instead of 0.982."""
    g = begun(13)

    def crit(out, y):
        if bug:
            out = out.contiguous().view(-1, 3)
        else:
            out = out.permute(0, 2, 3, 1).reshape(-1, 3)
        return F.cross_entropy(out, y.reshape(-1))

    return segmented(*loaders(discs(g, 256), discs(g, 80), 16), crit)


@pair("augmentation-mismatch")
def flip_leaves_the_mask(bug):
    """A random flip moves the picture and not its mask. After 300 steps foreground_acc is 0.635
    instead of 0.968."""
    g = begun(14)

    class Flipping(Dataset):
        def __init__(self, x, y):
            self.x, self.y = x, y

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            x, y = self.x[i], self.y[i]
            if random.random() < 0.5:
                x = x.flip(-1)
                if not bug:
                    y = y.flip(-1)
            return x, y

    tl, vl = loaders(Flipping(*discs(g, 256)), discs(g, 80), 16)
    return segmented(tl, vl, nn.CrossEntropyLoss())


class Detector(nn.Module):
    """In each cell whether it holds an object, and the object's box."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(6, 16, 3, padding=1), nn.ReLU())
        self.obj = nn.Conv2d(16, 1, 1)
        self.box = nn.Conv2d(16, 4, 1)

    def forward(self, x):
        h = self.body(x)
        return self.obj(h).flatten(1), self.box(h).flatten(2).transpose(1, 2)


@pair("padding-in-the-loss")
def box_loss_on_background(bug):
    """The loss of the boxes counts all cells; those of the background have boxes of zeros. After
    300 steps box_l1 is 0.18 instead of 0.054."""
    g = begun(15)

    def data(n, side=4):
        cell = torch.randint(0, side * side, (n,), generator=g)
        box = torch.rand(n, 4, generator=g) * 0.8 + 0.1
        image = 0.05 * torch.randn(n, 6, side * side, generator=g)
        objects, boxes = torch.zeros(n, side * side), torch.zeros(n, side * side, 4)
        row = torch.arange(n)
        image[row, 0, cell] += 2
        image[row, 1:5, cell] += box
        objects[row, cell] = 1
        boxes[row, cell] = box
        return Columns(image=image.view(n, 6, side, side), obj=objects, box=boxes)

    m = Detector()
    tl, vl = loaders(data(384), data(100))

    def loss_of(model, b):
        objects, boxes = model(b["image"])
        error = F.smooth_l1_loss(boxes, b["box"], reduction="none").sum(-1)
        of_boxes = error.mean() if bug else (error * b["obj"]).sum() / b["obj"].sum()
        return F.binary_cross_entropy_with_logits(objects, b["obj"]) + of_boxes

    def sums_of(model, b):
        objects, boxes = model(b["image"])
        error = (boxes - b["box"]).abs().mean(-1)[b["obj"] > 0]
        found = objects.argmax(1) == b["obj"].argmax(1)
        return {"box_l1": (error.sum(), len(found)), "found": (found.sum(), len(found))}

    return by_cost(m, torch.optim.Adam(m.parameters(), 4e-3), tl, vl, loss_of, sums_of)


@pair("covariate-shift")
def val_images_left_at_255(bug):
    """Training pictures are scaled by their mean and deviation, those of validation are left at 0
    to 255. After 300 steps val_loss is 11.6 instead of 0.005."""
    g = begun(16)
    kinds = torch.randint(40, 216, (5, 1, 8, 8), generator=g).float()

    def data(n):
        y = torch.randint(0, 5, (n,), generator=g)
        return (kinds[y] + 60 * torch.randn(n, 1, 8, 8, generator=g)).clamp(0, 255), y

    (x, y), (vx, vy) = data(400), data(150)
    mean, deviation = x.mean(), x.std()
    m = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    held = vx if bug else (vx - mean) / deviation
    tl, vl = loaders(((x - mean) / deviation, y), (held, vy))
    opt = torch.optim.SGD(m.parameters(), 0.02, momentum=0.9)
    return by_pairs(m, opt, tl, vl, num_classes=5)


@pair("wrong-targets")
def denoiser_learns_noise(bug):
    """A denoiser is compared with its noisy input instead of the clean signal. After 300 steps
    clean_mse is 0.455 instead of 0.083."""
    g = begun(17)
    basis = torch.randn(3, 24, generator=g)

    def data(n):
        clean = torch.randn(n, 3, generator=g) @ basis * 0.6
        return Columns(noisy=clean + 0.8 * torch.randn(n, 24, generator=g), clean=clean)

    m = mlp(24, 48, 48, 24)
    tl, vl = loaders(data(640), data(150))

    def loss_of(model, b):
        return F.mse_loss(model(b["noisy"]), b["noisy" if bug else "clean"])

    def sums_of(model, b):
        error = (model(b["noisy"]) - b["clean"]) ** 2
        return {"clean_mse": (error.mean(1).sum(), len(error))}

    return by_cost(m, torch.optim.Adam(m.parameters(), 2e-3), tl, vl, loss_of, sums_of)
