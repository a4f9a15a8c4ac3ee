"""Faults of data: augmentation, storage, samplers, mixtures, splits, axes, and boxes."""

import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.eleventh.kit import (
    criterion,
    deep,
    grouped,
    groups,
    mean_cost,
    of_classes,
    rows,
    scored,
    share_right,
)
from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import looped, of_pairs, setup, stepper


def shapes(n, seed):
    """One bright box in each picture, and where it is: [n, 1, 12, 12], [n, 12, 12]."""
    g = gen(seed)
    x = 0.3 * torch.randn(n, 1, 12, 12, generator=g)
    y = torch.zeros(n, 12, 12, dtype=torch.long)
    for i in range(n):
        r, c = torch.randint(0, 8, (2,), generator=g).tolist()
        h, w = torch.randint(3, 6, (2,), generator=g).tolist()
        x[i, 0, r : r + h, c : c + w] += 1.5
        y[i, r : r + h, c : c + w] = 1
    return x, y


class Flipped(Dataset):
    def __init__(self, x, y, is_train, moves_mask):
        self.x, self.y, self.is_train, self.moves_mask = x, y, is_train, moves_mask

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x, y = self.x[i], self.y[i]
        for axis in (-1, -2):
            if self.is_train and random.random() < 0.5:
                x = x.flip(axis)
                if self.moves_mask:
                    y = y.flip(axis)
        return x, y


@pair("augmentation-mismatch")
def seg_flip_image_only(bug):
    """Pictures are flipped, and their masks are not. The overlap stays 0, and does not reach 1."""
    random.seed(0)
    train = Flipped(*shapes(192, 1), is_train=True, moves_mask=not bug)
    loader = DataLoader(train, 16, shuffle=True, generator=gen(2))
    held = DataLoader(Flipped(*shapes(64, 2), is_train=False, moves_mask=not bug), 32)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 2, 1),
    )
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def evaluate():
        model.eval()
        both = either = 0
        with torch.no_grad():
            for x, y in held:
                p = model(x).argmax(1)
                both += (p & y).sum().item()
                either += (p | y).sum().item()
        return {"iou": both / max(either, 1)}

    step = stepper(model, opt, of_classes)
    return setup(
        model, opt, loader, held, step=step, loss_fn=criterion, evaluate=evaluate, num_classes=2
    )


def centred(masks):
    """Boxes of masks as centres and sizes, in shares of the picture."""
    found = []
    for mask in masks:
        r, c = mask.nonzero(as_tuple=True)
        x1, x2 = c.min() / 12, (c.max() + 1) / 12
        y1, y2 = r.min() / 12, (r.max() + 1) / 12
        found.append(torch.stack([(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1]))
    return torch.stack(found)


def corners(b):
    return torch.cat([b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2], 1)


def overlap(a, b):
    """Of boxes by their corners, for each row."""
    sides = torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])
    inside = sides.clamp(min=0).prod(1)
    areas = [(q[:, 2:] - q[:, :2]).clamp(min=0).prod(1) for q in (a, b)]
    return inside / (areas[0] + areas[1] - inside + 1e-6)


@pair("metric-wrong")
def boxes_iou_format(bug):
    """Boxes are centres and sizes, and the overlap that scores them takes corners: 0.02 is
    reported of a network that reaches 0.64."""
    (x, masks), (held_x, held_masks) = shapes(384, 1), shapes(96, 2)
    loader = rows(x, centred(masks))
    held = rows(held_x, centred(held_masks), shuffle=False)
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(144, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 4),
        nn.Sigmoid(),
    )
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.SmoothL1Loss(beta=0.1)

    def evaluate():
        model.eval()
        found = []
        with torch.no_grad():
            for x, y in held:
                out = model(x)
                found.append(overlap(out, y) if bug else overlap(corners(out), corners(y)))
        return {
            "mean_iou": torch.cat(found).mean().item(),
            "val_l1": mean_cost(model, held, of_pairs(F.l1_loss)),
        }

    step = stepper(model, opt, of_pairs(loss_fn))
    return setup(model, opt, loader, held, step=step, loss_fn=loss_fn, evaluate=evaluate)


def bars(n, seed):
    """A bar in one of three colours, lying or standing: six classes of [12, 12, 3]."""
    g = gen(seed)
    y = torch.randint(6, (n,), generator=g)
    x = 0.6 * torch.randn(n, 12, 12, 3, generator=g)
    for i in range(n):
        r, c = torch.randint(0, 8, (2,), generator=g).tolist()
        colour, stands = int(y[i]) % 3, int(y[i]) // 3
        if stands:
            x[i, r : r + 5, c, colour] += 1.5
        else:
            x[i, r, c : c + 5, colour] += 1.5
    return x, y


class ChannelsLast(nn.Module):
    def __init__(self, is_viewed):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 5, padding=2)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.head = nn.Linear(16, 6)
        self.is_viewed = is_viewed

    def forward(self, x):
        b, h, w, c = x.shape
        x = x.view(b, c, h, w) if self.is_viewed else x.permute(0, 3, 1, 2)
        return self.head(F.relu(self.second(F.relu(self.first(x)))).amax((2, 3)))


@pair("rows-mixed")
def hwc_view_not_permute(bug):
    """Pictures [H, W, C] become [C, H, W] by view(), which mixes places and colours: 18 % are
    right on new pictures, and not 97 %."""
    model = ChannelsLast(is_viewed=bug)
    opt = torch.optim.Adam(model.parameters(), 4e-3)
    loader, held = rows(*bars(512, 1)), rows(*bars(192, 2), shuffle=False)
    step, evaluate = stepper(model, opt, of_classes), scored(model, held, "val_acc")
    return setup(
        model, opt, loader, held, step=step, loss_fn=criterion, evaluate=evaluate, num_classes=6
    )


class Scaled(Dataset):
    def __init__(self, x, y, mean, std, in_place):
        self.x, self.y, self.mean, self.std, self.in_place = x, y, mean, std, in_place

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        if self.in_place:
            x -= self.mean
            x /= self.std
        else:
            x = (x - self.mean) / self.std
        return x, self.y[i]


@pair("dataset-changes-itself")
def inplace_normalise_dataset(bug):
    """__getitem__ scales a view of what is stored, once more in each epoch. 20 % instead of
    94 %."""
    x, y = groups(256, seed=1, noise=1.5)
    held_x, held_y = groups(128, seed=2, noise=1.5)
    x, held_x = x * 2 + 5, held_x * 2 + 5
    mean, std = x.mean(), x.std()
    train = Scaled(x, y, mean, std, in_place=bug)
    loader = DataLoader(train, 32, shuffle=True, generator=gen(1))
    held = DataLoader(Scaled(held_x, held_y, mean, std, in_place=bug), 64)
    model = deep(8, 4)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    step, evaluate = stepper(model, opt, of_classes), scored(model, held, "val_acc")
    return setup(
        model, opt, loader, held, step=step, loss_fn=criterion, evaluate=evaluate, num_classes=4,
        train=looped(loader, step, evaluate),
    )  # fmt: skip


@pair("few-examples-drawn")
def weighted_sampler_class_weights(bug):
    """A sampler gets one weight for each class, and not for each row: only the first two rows are
    ever drawn."""
    x, y = groups(600, k=2, seed=1, noise=1.5, spread=0.8)
    kept = (y == 0) | (torch.arange(600) % 8 == 0)
    x, y = x[kept], y[kept]
    weights = 1.0 / torch.bincount(y).float()
    sampler = WeightedRandomSampler(weights if bug else weights[y], len(y), generator=gen(3))
    loader = DataLoader(TensorDataset(x, y), 32, sampler=sampler)
    held = rows(*groups(200, k=2, seed=2, noise=1.5, spread=0.8), shuffle=False)
    model = deep(8, 2)
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    step, evaluate = stepper(model, opt, of_classes), scored(model, held, "val_acc")
    return setup(
        model, opt, loader, held, step=step, loss_fn=criterion, evaluate=evaluate, num_classes=2
    )


@pair("wrong-targets")
def mixup_two_perms(bug):
    """Rows are mixed in one order and their labels in another. What is not sure costs 0.52 instead
    of 0.11."""
    loader, held = grouped(384, 128)
    model = deep(8, 4)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    shares = np.random.RandomState(0)

    def loss_of(model, batch):
        x, y = batch
        share = float(shares.beta(1.0, 1.0))
        order = torch.randperm(len(x))
        out = model(share * x + (1 - share) * x[order])
        other = y[torch.randperm(len(y))] if bug else y[order]
        return share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, other)

    def evaluate():
        return {
            "val_acc": share_right(model, held),
            "val_nll": mean_cost(model, held, of_classes),
        }

    step = stepper(model, opt, loss_of)
    return setup(
        model, opt, loader, held, step=step, loss_of=loss_of, evaluate=evaluate, num_classes=4
    )


@pair("leak-group")
def patient_split_leak(bug):
    """Rows are split and not patients, of whom each has eight rows that are nearly the same. All
    are right, where it is 55 % of patients that are new."""
    g = gen(6)
    patients = torch.randn(60, 10, generator=g)
    labels = ((patients[:, 0] + 1.5 * torch.randn(60, generator=g)) > 0).long()
    who = torch.arange(60).repeat_interleave(8)
    x, y = patients[who] + 0.15 * torch.randn(480, 10, generator=g), labels[who]
    if bug:
        order = torch.randperm(480, generator=g)
        train, new = order[:360], order[360:]
    else:
        is_new = torch.isin(who, torch.randperm(60, generator=g)[:15])
        train, new = (~is_new).nonzero()[:, 0], is_new.nonzero()[:, 0]
    loader, held = rows(x[train], y[train]), rows(x[new], y[new], shuffle=False)
    model = deep(10, 2, 64)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    step, evaluate = stepper(model, opt, of_classes), scored(model, held, "val_acc")
    return setup(
        model, opt, loader, held, step=step, loss_fn=criterion, evaluate=evaluate, num_classes=2,
        groups={"train": who[train].tolist(), "val": who[new].tolist()},
    )  # fmt: skip
