"""Faults of data: flips, seeds, numbers of classes, graphs, splits, draws, pairs."""

import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_third.kit import (
    averaged,
    begun,
    blobs,
    by_classes,
    by_cost,
    by_squares,
    clusters,
    evaluating,
    feed,
    gen,
    loaders,
    mlp,
    plain_step,
    set_up,
    with_recall,
)


def between(g, low, high):
    return int(torch.randint(low, high, (1,), generator=g))


class Flipping(Dataset):
    """Images and masks that are flipped together, or each by a draw of its own."""

    def __init__(self, images, masks, flips=False, apart=False):
        self.images = images
        self.masks = masks
        self.flips = flips
        self.apart = apart
        self.rng = random.Random(41)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, mask = self.images[i], self.masks[i]
        if self.flips:
            is_flipped = self.rng.random() < 0.5
            if is_flipped:
                image = image.flip(-1)
            if (self.rng.random() < 0.5) if self.apart else is_flipped:
                mask = mask.flip(-1)
        return {"image": image, "mask": mask}


@pair("augmentation-mismatch")
def seg_separate_flips(bug):
    """Image and mask are flipped by two draws. After 300 steps iou is 0.493 instead of 0.833."""
    g = begun(41)
    S = 10

    def data(n):
        masks = torch.zeros(n, S, S)
        for mask in masks:
            top, left = between(g, 0, 6), between(g, 0, 6)
            high, wide = between(g, 3, 5), between(g, 2, 5)
            mask[top : top + high, left : left + wide] = 1
        images = masks * 0.9 + 0.45 * torch.randn(n, S, S, generator=g)
        return images[:, None], masks[:, None]

    m = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1),
    )  # fmt: skip
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    tl, vl = loaders(Flipping(*data(192), flips=True, apart=bug), Flipping(*data(64)), 16, 32)

    def loss_of(model, b):
        return F.binary_cross_entropy_with_logits(model(b["image"]), b["mask"])

    def evaluate():
        both = either = 0.0
        with evaluating(m):
            for b in vl:
                told, true = m(b["image"]) > 0, b["mask"] > 0.5
                both += (told & true).sum().item()
                either += (told | true).sum().item()
        return {"iou": both / either}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


def overlap(told, true):
    """The intersection over union of boxes by two corners each."""

    def area(low, high):
        return (high - low).clamp(min=0).prod(1)

    low = torch.maximum(told[:, :2], true[:, :2])
    both = area(low, torch.minimum(told[:, 2:], true[:, 2:]))
    areas = (area(box[:, :2], box[:, 2:]) for box in (told, true))
    return both / (sum(areas) - both).clamp(min=1e-6)


class FlippingBoxes(Dataset):
    """Images and boxes, flipped together; the left and right side change places, or do not."""

    def __init__(self, images, boxes, flips=False, swaps=True):
        self.images = images
        self.boxes = boxes
        self.flips = flips
        self.swaps = swaps
        self.rng = random.Random(42)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, box = self.images[i], self.boxes[i].clone()
        if self.flips and self.rng.random() < 0.5:
            image = image.flip(-1)
            box[[0, 2]] = 1 - box[[2, 0] if self.swaps else [0, 2]]
        return {"image": image, "boxes": box}


@pair("augmentation-mismatch")
def box_flip_no_swap(bug):
    """Flipped boxes keep the order of their sides, so that left is right of right. After 300 steps
    mean_iou is 0.248 instead of 0.731."""
    g = begun(42)
    S = 12

    def data(n):
        images, boxes = torch.zeros(n, 1, S, S), torch.zeros(n, 4)
        for image, box in zip(images, boxes, strict=True):
            left, top = between(g, 0, 7), between(g, 0, 7)
            right, below = left + between(g, 3, 6), top + between(g, 3, 6)
            image[0, top:below, left:right] = 1
            box[:] = torch.tensor([left, top, right, below]) / S
        return images + 0.1 * torch.randn(n, 1, S, S, generator=g), boxes

    m = nn.Sequential(nn.Flatten(), nn.Linear(S * S, 64), nn.ReLU(), nn.Linear(64, 4))
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    train = FlippingBoxes(*data(320), flips=True, swaps=not bug)
    tl, vl = loaders(train, FlippingBoxes(*data(80)), 32, 40)

    def loss_of(model, b):
        return F.smooth_l1_loss(model(b["image"]), b["boxes"], beta=0.1)

    def sums_of(model, b):
        return {"mean_iou": (overlap(model(b["image"]), b["boxes"]).sum(), len(b["boxes"]))}

    declared = {"boxes": "xyxy in 0..1"}
    return by_cost(m, opt, tl, vl, loss_of, sums_of, declared=declared)


class Scaled(Dataset):
    """Rows at a scale drawn for each item, from the global generator set back or from its own."""

    def __init__(self, x, sets_back):
        self.x = x
        self.sets_back = sets_back
        self.own = gen(0)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        if self.sets_back:
            torch.manual_seed(0)
            scale = torch.rand(1)
        else:
            scale = torch.rand(1, generator=self.own)
        return {"x": self.x[i] * (0.9 + 0.2 * scale)}


@pair("rng-reseeded")
def getitem_reseeds_torch(bug):
    """Each item sets the global generator back: the noise of every step is the same. After 300
    steps denoise_mse is 0.23 instead of 0.13."""
    g = begun(43)
    d = 24
    W = torch.randn(3, d, generator=g)

    def data(n):
        return torch.tanh(torch.randn(n, 3, generator=g) @ W)

    m = mlp(d, 96, d)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl = feed(Scaled(data(160), bug), 4)
    held = data(80)
    vl = feed({"x": held}, 40, shuffle=False)
    noise = 0.8 * torch.randn(80, d, generator=g)

    def loss_of(model, b):
        return F.mse_loss(model(b["x"] + 0.8 * torch.randn_like(b["x"])), b["x"])

    def evaluate():
        total = seen = 0
        with evaluating(m):
            for b in vl:
                out = m(b["x"] + noise[seen : seen + len(b["x"])])
                total += F.mse_loss(out, b["x"], reduction="sum").item()
                seen += len(out)
        return {"denoise_mse": total / held.numel()}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


@pair("labels-renamed")
def class_index_per_split(bug):
    """Each split numbers the names of the classes as they come: the same number is another class.
    After 300 steps acc is 0.292 instead of 0.958."""
    g = begun(44)
    names = ["cat", "dog", "fox", "owl"]
    (x, y), (vx, vy) = clusters(g, 320, 120, 8, 4, 1.2)
    labels, held = ([names[i] for i in part.tolist()] for part in (y, vy))

    def numbers(of):
        return {name: i for i, name in enumerate(dict.fromkeys(of))}

    number = numbers(labels)
    held_number = numbers(held) if bug else number
    y = torch.tensor([number[name] for name in labels])
    vy = torch.tensor([held_number[name] for name in held])
    tl, vl = loaders((x, y), (vx, vy), 32, 50)
    m = mlp(8, 24, 4)
    return by_classes(m, torch.optim.Adam(m.parameters(), 5e-3), tl, vl, 4)


class GCN(nn.Module):
    def __init__(self, d, k):
        super().__init__()
        self.a = nn.Linear(d, 32)
        self.b = nn.Linear(32, k)

    def forward(self, x, adj):
        return adj @ self.b(torch.relu(adj @ self.a(x)))


@pair("trains-on-validation")
def graph_loss_of_every_node(bug):
    """The loss of a graph counts the nodes that are held for the test. After 300 steps test_acc is
    1 instead of 0.533."""
    g = begun(45)
    n, d, k = 90, 60, 3
    y = torch.randint(k, (n,), generator=g)
    x = torch.randn(n, d, generator=g) + F.one_hot(y, d).float() * 0.8
    share = torch.where(y[:, None] == y[None], 0.06, 0.03)
    edges = (torch.rand(n, n, generator=g) < share).float().triu(1)
    edges = edges + edges.T + torch.eye(n) * 2
    scale = edges.sum(1).rsqrt()
    adj = scale[:, None] * edges * scale[None]
    trained = torch.zeros(n, dtype=torch.bool)
    trained[torch.randperm(n, generator=g)[:45]] = True
    m = GCN(d, k)
    opt = torch.optim.Adam(m.parameters(), 1e-2, weight_decay=1e-4)
    tl = [{"x": x, "adj": adj, "y": y, "train_mask": trained, "test_mask": ~trained}]

    def loss_of(model, b):
        out = model(b["x"], b["adj"])
        if bug:
            return F.cross_entropy(out, b["y"])
        return F.cross_entropy(out[b["train_mask"]], b["y"][b["train_mask"]])

    def evaluate():
        with evaluating(m):
            hits = (m(x, adj).argmax(1) == y).float()
        return {"train_acc": hits[trained].mean().item(), "test_acc": hits[~trained].mean().item()}

    step = plain_step(m, opt, loss_of)
    return set_up(m, opt, tl, step, evaluate=evaluate, loss_of=loss_of, num_classes=k)


@pair("leak-overlap")
def oversample_then_split(bug):
    """Rows of the rare class are copied before the split: validation has them, too. After 300 steps
    recall_rare is 1 instead of 0.333."""
    g = begun(46)
    x = torch.randn(330, 12, generator=g)
    y = (torch.arange(330) < 30).long()
    x[y == 1, :3] += 0.8

    def more_of_the_rare(i):
        return torch.cat([i[y[i] == 0], i[y[i] == 1].repeat(8)])

    def split(i):
        i = i[torch.randperm(len(i), generator=g)]
        n = int(0.75 * len(i))
        return i[:n], i[n:]

    if bug:
        train, held = split(more_of_the_rare(torch.arange(330)))
    else:
        train, held = split(torch.arange(330))
        train = more_of_the_rare(train)
    m = mlp(12, 64, 2)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    tl, vl = loaders((x[train], y[train]), (x[held], y[held]), 32, 50)
    return by_classes(m, opt, tl, vl, 2, evaluate=averaged(m, vl, with_recall))


class Factors(nn.Module):
    def __init__(self, users, items, padding):
        super().__init__()
        self.u = nn.Embedding(users, 8)
        self.i = nn.Embedding(items, 8, padding_idx=padding)
        self.bias = nn.Embedding(users, 1)
        with torch.no_grad():
            self.u.weight.mul_(0.5)
            self.i.weight.mul_(0.5)

    def forward(self, u, i):
        return (self.u(u) * self.i(i)).sum(1) + self.bias(u).squeeze(1)


@pair("frozen-params", "inputs-ignored")
def padding_idx_on_real_item(bug):
    """padding_idx is the number of the item that most users rate: its vector stays zero. After 300
    steps mse_item0 is 0.725 instead of 0.017."""
    g = begun(47)
    users, items, n = 40, 20, 1600
    tastes = torch.randn(users, 4, generator=g)
    traits = torch.randn(items, 4, generator=g)
    u = torch.randint(users, (n,), generator=g)
    i = torch.multinomial(1 / (torch.arange(items) + 1.0), n, True, generator=g)
    r = (tastes[u] * traits[i]).sum(1) + 0.1 * torch.randn(n, generator=g)
    m = Factors(users, items, 0 if bug else None)
    opt = torch.optim.Adam(m.parameters(), 2e-2)
    columns = {"user": u, "item": i, "rating": r}
    train = {name: column[:1300] for name, column in columns.items()}
    held = {name: column[1300:] for name, column in columns.items()}
    tl, vl = loaders(train, held, 64)

    def loss_of(model, b):
        return F.mse_loss(model(b["user"], b["item"]), b["rating"])

    def sums_of(model, b):
        errors = (model(b["user"], b["item"]) - b["rating"]) ** 2
        is_first = b["item"] == 0
        return {
            "mse": (errors.sum(), len(errors)),
            "mse_item0": (errors[is_first].sum(), is_first.sum()),
        }

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("few-examples-drawn")
def draws_by_class_weights(bug):
    """The sampler has one weight for each class, not for each example: three rows are all that is
    drawn. After 300 steps acc is 0.542 instead of 0.883."""
    g = begun(48)
    centres = torch.randn(3, 8, generator=g) * 0.8
    x, y = blobs(g, 400, 8, 3, centres=centres)
    keep = (y == 0) | (torch.rand(400, generator=g) < 0.3)
    x, y = x[keep], y[keep]
    held = blobs(g, 120, 8, 3, centres=centres)
    weights = 1.0 / torch.bincount(y, minlength=3).float()
    sampler = WeightedRandomSampler(weights if bug else weights[y], len(y), generator=gen(48))
    m = mlp(8, 24, 3)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl = DataLoader(TensorDataset(x, y), 32, sampler=sampler, generator=gen(0))
    vl = feed(held, 50, shuffle=False)
    return by_classes(m, opt, tl, vl, 3)


def bent(x):
    return torch.sin(x[:, :1]) + 0.5 * x[:, 1:2]


class Noisy(Dataset):
    """Rows with noise, which is added to a copy or to what is stored."""

    def __init__(self, x, in_place):
        self.x = x.clone()
        self.y = bent(x)
        self.in_place = in_place
        self.g = gen(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        row = self.x[i]
        noise = 0.3 * torch.randn(8, generator=self.g)
        if self.in_place:
            row += noise
        else:
            row = row + noise
        return row, self.y[i]


@pair("dataset-changes-itself")
def augment_in_place(bug):
    """The noise is added to the stored rows, where it piles up. After 300 steps mse is 0.476
    instead of 0.045."""
    g = begun(49)
    x, held = (torch.randn(n, 8, generator=g) for n in (260, 80))
    m = mlp(8, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(Noisy(x, bug), (held, bent(held)), 26, 40)
    return by_squares(m, opt, tl, vl)


@pair("wrong-targets")
def unlike_pairs_labelled_zero(bug):
    """CosineEmbeddingLoss gets 0 for unlike pairs, not -1: they cost nothing. After 300 steps
    cos_unlike is 0.998 instead of -0.177."""
    g = begun(50)
    centres = torch.randn(5, 10, generator=g) * 1.2

    def data(n):
        left, y = blobs(g, n, 10, 5, centres=centres)
        is_like = torch.rand(n, generator=g) < 0.5
        y = torch.where(is_like, y, (y + torch.randint(1, 5, (n,), generator=g)) % 5)
        right = centres[y] + torch.randn(n, 10, generator=g)
        return {"left": left, "right": right, "same": is_like.float()}

    m = mlp(10, 32, 8)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    crit = nn.CosineEmbeddingLoss(margin=0.2)
    tl, vl = loaders(data(400), data(120), 32, 60)

    def loss_of(model, b):
        same = b["same"] if bug else b["same"] * 2 - 1
        return crit(model(b["left"]), model(b["right"]), same)

    def sums_of(model, b):
        cosine = F.cosine_similarity(model(b["left"]), model(b["right"]))
        is_like = b["same"] > 0.5
        return {
            "pair_acc": (((cosine > 0.6) == is_like).sum(), len(cosine)),
            "cos_unlike": (cosine[~is_like].sum(), (~is_like).sum()),
        }

    return by_cost(m, opt, tl, vl, loss_of, sums_of)
