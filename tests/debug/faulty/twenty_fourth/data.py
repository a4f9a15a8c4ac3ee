"""Faults of data, labels, shapes, splits and scores."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_fourth.kit import (
    by_classes,
    by_cost,
    by_squares,
    evaluating,
    feed,
    halves,
    loaders,
    mlp,
    plain_step,
    seed,
    unscored,
)


@pair("double-softmax")
def softmax_before_cross_entropy(bug):
    """The model ends in a softmax and is trained by CrossEntropyLoss, which takes logits. After 150
    steps accuracy is 0.813 instead of 0.867."""
    seed(41)
    tl, vl = loaders(*halves(320, 10, 10), 32, 64)
    m = mlp(10, 32, 10)
    if bug:
        m.append(nn.Softmax(dim=1))
    return by_classes(m, torch.optim.SGD(m.parameters(), 0.05, momentum=0.9), tl, vl, 10)


@pair("broadcast-loss")
def one_column_against_none(bug):
    """The outputs are [N, 1] and the targets [N]: MSELoss broadcasts them to [N, N], and the model
    learns the mean. After 150 steps mse is 4.47 instead of 0.031."""
    seed(42)

    def data(n):
        x = torch.randn(n, 6)
        y = x[:, 0] * 2 - x[:, 1] + 0.1 * torch.randn(n)
        return x, y if bug else y[:, None]

    tl, vl = loaders(data(320), data(160), 32)
    m = mlp(6, 32, 1)
    return by_squares(m, torch.optim.Adam(m.parameters(), 5e-3), tl, vl)


@pair("single-class-batches")
def sorted_and_not_shuffled(bug):
    """The training set is sorted by class and the loader does not shuffle. After 150 steps accuracy
    is 0.487 instead of 0.6."""
    seed(43)
    (x, y), held = halves(320, 12, 6, 1.8)
    order = y.argsort(stable=True)
    m = mlp(12, 32, 6)
    tl = feed((x[order], y[order]), 16, shuffle=not bug)
    vl = feed(held, 64, shuffle=False)
    return by_classes(m, torch.optim.SGD(m.parameters(), 0.05, momentum=0.9), tl, vl, 6)


@pair("covariate-shift")
def held_rows_left_unscaled(bug):
    """Training inputs are standardised and validation inputs are not. After 150 steps accuracy is
    0.74 instead of 0.993."""
    seed(44)
    (x, y), (vx, vy) = halves(320, 10, 4, scale=20, shift=60)
    mean, std = x.mean(0), x.std(0)
    x = (x - mean) / std
    if not bug:
        vx = (vx - mean) / std
    m = mlp(10, 32, 4)
    tl, vl = loaders((x, y), (vx, vy), 32, 64)
    return by_classes(m, torch.optim.Adam(m.parameters(), 3e-3), tl, vl, 4)


@pair("leak-overlap")
def rare_rows_repeated_then_split(bug):
    """Rare rows are repeated to balance the classes, and only then are the rows split: copies are
    on both sides. After 150 steps balanced_accuracy is 0.902 instead of 0.654."""
    seed(45)
    n = 400
    x = torch.randn(n, 20)
    y = (torch.rand(n) < 0.12).long()
    x[y == 1, :3] += 0.8

    def balanced(i):
        return torch.cat([i, i[y[i] == 1].repeat(6)])

    order = torch.randperm(n)
    if bug:
        order = balanced(order)
        order = order[torch.randperm(len(order))]
        share = int(0.75 * len(order))
        a, b = order[:share], order[share:]
    else:
        a, b = balanced(order[:300]), order[300:]
    m = mlp(20, 64, 2)
    tl, vl = loaders((x[a], y[a]), (x[b], y[b]), 32, 64)

    def evaluate():
        with evaluating(m):
            told = torch.cat([m(inputs) for inputs, _ in vl]).argmax(1)
        recalls = [(told[y[b] == k] == k).float().mean().item() for k in (0, 1)]
        return {"balanced_accuracy": sum(recalls) / 2}

    return by_classes(m, torch.optim.Adam(m.parameters(), 3e-3), tl, vl, 2, evaluate=evaluate)


@pair("logits-reshaped")
def segmentation_view_not_permute(bug):
    """Outputs [N, C, H, W] become rows of C by a view, which mixes classes and pixels. After 150
    steps pixel_accuracy is 0.333 instead of 0.972."""
    seed(46)
    C = 3

    def data(n):
        mask = F.interpolate(torch.randn(n, C, 3, 3), size=(12, 12), mode="bilinear").argmax(1)
        image = F.one_hot(mask, C).permute(0, 3, 1, 2).float()
        return {"image": image + 0.5 * torch.randn(n, C, 12, 12), "mask": mask}

    tl, vl = loaders(data(160), data(60), 16)
    m = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, C, 3, padding=1))
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        out = model(b["image"])
        rows = out if bug else out.permute(0, 2, 3, 1)
        return F.cross_entropy(rows.reshape(-1, C), b["mask"].reshape(-1))

    def sums_of(model, b):
        is_right = model(b["image"]).argmax(1) == b["mask"]
        return {"pixel_accuracy": (is_right.sum(), is_right.numel())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=C)


class Boxes(Dataset):
    """Pictures of one bright box each and its corners; in training a picture may be flipped."""

    def __init__(self, n, flips=False, moves_box=True, size=12):
        self.flips = flips
        self.moves_box = moves_box
        w = torch.randint(3, 6, (n,))
        h = torch.randint(3, 6, (n,))
        x = (torch.rand(n) * (size - w)).long()
        y = (torch.rand(n) * (size - h)).long()
        place = torch.arange(size)[None]
        across = (place >= x[:, None]) & (place < (x + w)[:, None])
        down = (place >= y[:, None]) & (place < (y + h)[:, None])
        bright = (down[:, :, None] & across[:, None]).float()[:, None]
        self.images = bright + 0.1 * torch.randn(n, 1, size, size)
        self.boxes = torch.stack([x, y, x + w, y + h], 1).float() / size

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, box = self.images[i], self.boxes[i].clone()
        if self.flips and torch.rand(()) < 0.5:
            image = image.flip(-1)
            if self.moves_box:
                box[[0, 2]] = 1 - box[[2, 0]]
        return {"image": image, "box": box}


def area(corners):
    return (corners[:, 2:] - corners[:, :2]).clamp(min=0).prod(1)


def overlap(a, b):
    """The intersection over the union of boxes, row by row."""
    low, high = torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:])
    shared = area(torch.cat([low, high], 1))
    return shared / (area(a) + area(b) - shared)


@pair("augmentation-mismatch")
def flip_without_boxes(bug):
    """Pictures are flipped at random, and their boxes are those of the pictures before. After 150
    steps iou is 0.393 instead of 0.662."""
    seed(47)
    tl, vl = loaders(Boxes(320, flips=True, moves_box=not bug), Boxes(150), 32, 64)
    m = nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(288, 32),
        nn.ReLU(),
        nn.Linear(32, 4),
    )
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        return F.smooth_l1_loss(model(b["image"]), b["box"], beta=0.1)

    def sums_of(model, b):
        return {"iou": (overlap(model(b["image"]), b["box"]).sum(), len(b["box"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("metric-wrong")
def logits_cut_at_one_half(bug):
    """The score takes outputs above 0.5 for positive, but they are logits: this is a probability of
    0.62. After 150 steps micro_f1 is 0.441 instead of 0.62."""
    seed(48)
    W = torch.randn(10, 4)

    def data(n):
        x = torch.randn(n, 10)
        return {"x": x, "tags": (x @ W + 2.0 * torch.randn(n, 4) > 2.5).float()}

    tl, vl = loaders(data(480), data(300), 32, 64)
    m = mlp(10, 16, 4)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        return F.binary_cross_entropy_with_logits(model(b["x"]), b["tags"])

    def evaluate():
        with evaluating(m):
            out = torch.cat([m(b["x"]) for b in vl])
        due = torch.cat([b["tags"] for b in vl]) > 0.5
        told = (out if bug else out.sigmoid()) > 0.5
        right = (told & due).sum().item()
        count = (told.sum() + due.sum()).item()
        return {"micro_f1": 2 * right / max(count, 1), "recall": right / due.sum().item()}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


class GCN(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.a = nn.Linear(16, 64)
        self.b = nn.Linear(64, k)

    def forward(self, x, adj):
        return adj @ self.b(torch.relu(adj @ self.a(x)))


@pair("trains-on-validation")
def gnn_loss_over_all_nodes(bug):
    """The loss is over all nodes, not over those of train_mask: validation labels are trained on.
    After 150 steps val_accuracy is 1 instead of 0.62."""
    seed(49)
    n, k = 200, 4
    y = torch.randint(0, k, (n,))
    share = torch.where(y[:, None] == y[None], 0.04, 0.012)
    adj = (torch.rand(n, n) < share).float().triu(1)
    adj = adj + adj.T + torch.eye(n)
    scale = adj.sum(1).rsqrt()
    adj = scale[:, None] * adj * scale[None]
    x = F.one_hot(y, k).float() @ torch.randn(k, 16) * 0.4 + torch.randn(n, 16)
    order = torch.randperm(n)
    known = torch.zeros(n, dtype=torch.bool)
    held = torch.zeros(n, dtype=torch.bool)
    known[order[:60]] = True
    held[order[60:160]] = True
    graph = {"x": x, "adj": adj, "y": y, "train_mask": known, "val_mask": held}
    m = GCN(k)
    opt = torch.optim.Adam(m.parameters(), 1e-2, weight_decay=5e-4)

    def loss_of(model, b):
        out = model(b["x"], b["adj"])
        if bug:
            return F.cross_entropy(out, b["y"])
        return F.cross_entropy(out[b["train_mask"]], b["y"][b["train_mask"]])

    def evaluate():
        with evaluating(m):
            is_right = (m(x, adj).argmax(1) == y).float()
        return {
            "train_accuracy": is_right[known].mean().item(),
            "val_accuracy": is_right[held].mean().item(),
        }

    return unscored(m, opt, [graph], loss_of, evaluate, num_classes=k)


class Passes:
    """A new pass through shuffled batches for every epoch."""

    def __init__(self, once, count):
        self.once = once
        self.count = count

    def __iter__(self):
        return self.once()

    def __len__(self):
        return self.count


@pair("loader-exhausted")
def generator_used_up(bug):
    """The loader is a generator: it is empty after the first epoch, and the other epochs do
    nothing. Of 150 steps 8 are made, and top1 is 0.39 instead of 0.91."""
    seed(50)

    def ranked(n):
        docs = torch.randn(n, 8, 6)
        return docs, docs[:, :, 0] - docs[:, :, 1] * docs[:, :, 2]

    docs, relevance = ranked(256)
    held, best = ranked(100)

    def once():
        for i in torch.randperm(len(docs)).split(32):
            yield {"docs": docs[i], "relevance": relevance[i]}

    tl = once() if bug else Passes(once, len(docs) // 32)
    m = nn.Sequential(mlp(6, 32, 1), nn.Flatten(1))
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        scores = model(b["docs"]).log_softmax(1)
        return -(b["relevance"].softmax(1) * scores).sum(1).mean()

    step = plain_step(m, opt, loss_of)

    def train(n):
        losses = []
        for _ in range(-(-n // 8)):
            for b in tl:
                losses.append(step(b))
                if len(losses) == n:
                    return losses
        return losses

    def evaluate():
        with evaluating(m):
            is_right = m(held).argmax(1) == best.argmax(1)
        return {"top1": is_right.float().mean().item()}

    return unscored(m, opt, tl, loss_of, evaluate, step=step) | {"train": train}
