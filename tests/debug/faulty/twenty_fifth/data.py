"""Faults of data, targets, losses and metrics."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, WeightedRandomSampler

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_fifth.kit import (
    Flat,
    averaged,
    bars,
    blobs,
    by_cost,
    by_pairs,
    class_sums,
    evaluating,
    feed,
    gen,
    halves,
    house,
    loaders,
    mlp,
    right,
    seed,
)


@pair("double-softmax")
def softmax_at_the_end_of_the_network(bug):
    """The network ends in a softmax, and the loss takes one of its own. After 150 steps the held
    cross-entropy is 0.90 instead of 0.40."""
    seed(41)
    tl, vl = loaders(bars(320, 411, 0.9), bars(200, 412, 0.9), 32, 64)
    end = [nn.Softmax(dim=1)] if bug else []
    m = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 4), *end
    )
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    return by_pairs(m, opt, tl, vl, evaluate=averaged(m, vl, class_sums), num_classes=4)


@pair("broadcast-loss")
def every_price_against_every_other(bug):
    """Outputs [B, 1] minus prices [B] are all pairs' differences: all outputs become the mean.
    After 150 steps the held mse is 0.79 instead of 0.099."""
    seed(42)
    tl, vl = loaders(house(320, 421), house(150, 422), 32, 64)
    m = mlp(6, 48, 1)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def loss_fn(out, y):
        return ((out - y) ** 2).mean() if bug else ((out[:, 0] - y) ** 2).mean()

    def sums_of(model, b):
        return {"val_mse": (((model(b[0])[:, 0] - b[1]) ** 2).sum(), len(b[1]))}

    evaluate = averaged(m, vl, sums_of)
    return by_pairs(m, opt, tl, vl, loss_fn, evaluate=evaluate, task="regression")


def rare(n, s):
    """Rows of three classes of which the last two are rare: [n, 10], [n]."""
    x, y = blobs(12 * n, 10, 3, s, 1.5)
    keep = torch.cat([(y == 0).nonzero()[: n * 8 // 10, 0], (y == 1).nonzero()[: n // 10, 0],
                      (y == 2).nonzero()[: n // 10, 0]])  # fmt: skip
    keep = keep[torch.randperm(len(keep), generator=gen(s))]
    return x[keep], y[keep]


def recalls(m, held):
    """evaluate(): the share of each class that is found."""

    def sums_of(model, b):
        told = model(b[0]).argmax(1)
        return {f"recall_{k}": ((told[b[1] == k] == k).sum(), (b[1] == k).sum()) for k in range(3)}

    counted = averaged(m, held, sums_of)

    def evaluate():
        each = counted()
        return each | {"balanced_accuracy": sum(each.values()) / 3}

    return evaluate


@pair("class-weights-inverted")
def weights_are_the_shares_themselves(bug):
    """Each class is weighted by its share, not by what this divides: the rare ones fade. After 150
    steps the balanced accuracy is 0.876 instead of 0.953."""
    seed(43)
    train = rare(400, 431)
    tl, vl = loaders(train, rare(300, 432), 32, 64)
    m = mlp(10, 32, 3)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    share = torch.bincount(train[1]) / len(train[1])
    crit = nn.CrossEntropyLoss(weight=share if bug else 1 / (3 * share))
    return by_pairs(m, opt, tl, vl, crit, evaluate=recalls(m, vl), num_classes=3)


@pair("few-examples-drawn")
def sampler_given_one_weight_a_class(bug):
    """The sampler gets a weight for each class, not for each row: it draws the first three rows.
    After 150 steps the balanced accuracy is 0.333 instead of 0.940."""
    seed(44)
    x, y = rare(400, 441)
    weight = 1 / torch.bincount(y)
    draws = WeightedRandomSampler(weight if bug else weight[y], len(y), generator=gen(44))
    tl = feed((x, y), 32, shuffle=False, sampler=draws)
    vl = feed(rare(300, 442), 64, shuffle=False)
    m = mlp(10, 32, 3)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_pairs(m, opt, tl, vl, evaluate=recalls(m, vl), num_classes=3)


class Flipped(Dataset):
    """Pictures and masks of which half are mirrored, each time anew."""

    def __init__(self, x, masks, mirrors_mask):
        self.x = x
        self.masks = masks
        self.mirrors_mask = mirrors_mask

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x, mask = self.x[i], self.masks[i]
        if torch.rand(()) < 0.5:
            x = x.flip(-1)
            if self.mirrors_mask:
                mask = mask.flip(-1)
        return x, mask


def cells(n, s):
    """Pictures [n, 1, 10, 10] with one bright square and the mask of it [n, 10, 10]."""
    g = gen(s)
    at = torch.randint(0, 8, (n, 2), generator=g)
    masks = torch.zeros(n, 10, 10)
    for i, (r, c) in enumerate(at.tolist()):
        masks[i, r : r + 3, c : c + 3] = 1
    return (1.2 * masks + 0.5 * torch.randn(n, 10, 10, generator=g))[:, None], masks


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(),
            nn.Conv2d(12, 1, 1),
        )  # fmt: skip

    def forward(self, x):
        return self.net(x)[:, 0]


@pair("augmentation-mismatch")
def mirrored_picture_with_its_old_mask(bug):
    """A picture is mirrored and its mask is not. After 150 steps the iou is 0 instead of 0.84."""
    seed(45)
    tl = feed(Flipped(*cells(256, 451), mirrors_mask=not bug), 32)
    vl = feed(cells(120, 452), 40, shuffle=False)
    m = Segmenter()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.BCEWithLogitsLoss()

    def evaluate():
        both = any_ = 0
        with evaluating(m):
            for x, mask in vl:
                told, true = m(x) > 0, mask > 0
                both += (told & true).sum().item()
                any_ += (told | true).sum().item()
        return {"iou": both / max(any_, 1)}

    return by_pairs(m, opt, tl, vl, crit, evaluate=evaluate, task="binary")


class Pixels(Dataset):
    """Pictures of bytes; made numbers round 0 if they are to be."""

    def __init__(self, x, y, normalises):
        self.x = (x * 40 + 100).clamp(0, 255).to(torch.uint8)
        self.y = y
        self.normalises = normalises

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.x[i].float() / 255
        return ((x - 0.45) / 0.15 if self.normalises else x), self.y[i]


@pair("covariate-shift", "range-not-normalised", "augmentation-mismatch")
def held_pictures_not_normalised(bug):
    """Mean and deviation are taken off in training and not in validation. After 150 steps the
    accuracy is 0.50 instead of 0.99."""
    seed(46)
    tl = feed(Pixels(*bars(320, 461), True), 32)
    vl = feed(Pixels(*bars(160, 462), not bug), 64, shuffle=False)
    m = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 4)
    )
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_pairs(m, opt, tl, vl, evaluate=averaged(m, vl, class_sums), num_classes=4)


@pair("leak-overlap")
def rare_rows_repeated_before_the_split(bug):
    """The rare class is repeated to the size of the other and then split: copies of rows trained on
    are held out. After 150 steps the recall of the rare class seems to be 1.0; it is 0.3."""
    seed(47)
    g = gen(470)
    y = (torch.rand(420, generator=g) < 0.1).long()
    x = torch.randn(420, 20, generator=g)
    x[:, :4] += y[:, None]

    def repeated(x, y):
        is_rare = y == 1
        times = (~is_rare).sum() // is_rare.sum()
        x = torch.cat([x, x[is_rare].repeat(times - 1, 1)])
        y = torch.cat([y, y[is_rare].repeat(times - 1)])
        order = torch.randperm(len(y), generator=g)
        return x[order], y[order]

    if bug:
        x, y = repeated(x, y)
        n = len(y) * 3 // 4
        train, held = (x[:n], y[:n]), (x[n:], y[n:])
    else:
        train, held = repeated(x[:315], y[:315]), (x[315:], y[315:])
    tl, vl = loaders(train, held, 32, 64)
    m = mlp(20, 64, 2)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def sums_of(model, b):
        told = model(b[0]).argmax(1)
        is_rare = b[1] == 1
        return {"rare_recall": ((told[is_rare] == 1).sum(), is_rare.sum())}

    return by_pairs(m, opt, tl, vl, evaluate=averaged(m, vl, sums_of), num_classes=2)


@pair("metric-batch-mean", "metric-wrong")
def root_of_each_batch_averaged(bug):
    """The root of the mean squared error is taken in each batch, and the roots are averaged over
    batches, the last of which has 3 rows. After 150 steps it is said to be 0.939 and is 1.107."""
    seed(48)
    g = gen(480)
    x, y = house(320, 483)
    vx, vy = house(67, 484)
    y = y + 3 * torch.randn(320, generator=g) * (torch.rand(320, generator=g) < 0.2)
    vy = vy + 3 * torch.randn(67, generator=g) * (torch.rand(67, generator=g) < 0.2)
    tl, vl = loaders((x, y), (vx, vy), 32, 8)
    m = Flat(6, 48, 1)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def evaluate():
        squares = roots = batches = n = 0
        with evaluating(m):
            for x, y in vl:
                error = ((m(x) - y) ** 2).mean()
                roots += error.sqrt().item()
                squares += error.item() * len(y)
                batches += 1
                n += len(y)
        return {"val_rmse": roots / batches if bug else (squares / n) ** 0.5}

    return by_pairs(m, opt, tl, vl, nn.MSELoss(), evaluate=evaluate, task="regression")


class Named(Dataset):
    """Rows whose class has a name; the names are numbered by the order of `names`."""

    def __init__(self, rows, labels, names):
        self.rows = rows
        self.number = {name: k for k, name in enumerate(names)}
        self.labels = labels

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i], self.number[self.labels[i]]


@pair("labels-renamed", "labels-moved")
def classes_numbered_as_they_come(bug):
    """Each split numbers its classes by their first rows: the same name has two numbers. After 150
    steps the accuracy is 0.013 instead of 0.947."""
    seed(49)
    (x, y), (vx, vy) = halves(320, 10, 5)
    names = ["wren", "crow", "tern", "rook", "gull"]
    labels = [names[k] for k in y.tolist()]
    held = [names[k] for k in vy.tolist()]

    def order(labels):
        return list(dict.fromkeys(labels)) if bug else sorted(names)

    tl = feed(Named(x, labels, order(labels)), 32)
    vl = feed(Named(vx, held, order(held)), 64, shuffle=False)
    m = mlp(10, 32, 5)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_pairs(m, opt, tl, vl, evaluate=averaged(m, vl, class_sums), num_classes=5)


@pair("classes-compete")
def tags_told_by_one_softmax(bug):
    """Tags of which several may hold are trained by one softmax: they take shares from each other.
    After 150 steps 0.84 of the tags are right instead of 0.955."""
    seed(50)

    def tagged(n, s):
        g = gen(s)
        x = torch.randn(n, 10, generator=g)
        y = ((x @ torch.randn(10, 5, generator=gen(501))) > 0.8).float()
        return x, y

    tl, vl = loaders(tagged(320, 1), tagged(200, 2), 32, 64)
    m = mlp(10, 48, 5)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.CrossEntropyLoss() if bug else nn.BCEWithLogitsLoss()

    def sums_of(model, b):
        hits = (model(b[0]) > 0) == (b[1] > 0.5)
        return {"tag_accuracy": (hits.sum(), hits.numel())}

    return by_pairs(m, opt, tl, vl, crit, evaluate=averaged(m, vl, sums_of), task="multilabel")


class Graph(nn.Module):
    """Two rounds of taking the neighbours' means."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.second = nn.Linear(32, 3)

    def forward(self, x, adj):
        return self.second(adj @ F.relu(self.first(adj @ x)))


@pair("trains-on-validation")
def loss_over_all_nodes(bug):
    """The loss of a graph's nodes is taken over all of them, those that are held out too. After 150
    steps the held accuracy seems to be 0.93; it is 0.49."""
    seed(51)
    n = 240
    y = torch.randint(0, 3, (n,))
    x = torch.randn(n, 16)
    x[torch.arange(n), y] += 0.5
    link = (torch.rand(n, n) < torch.where(y[:, None] == y, 0.02, 0.01)).float().triu(1)
    adj = link + link.T + torch.eye(n)
    adj = adj / adj.sum(1, keepdim=True)
    is_train = torch.rand(n) < 0.4
    whole = {"x": x, "adj": adj, "y": y}
    tl = [whole | {"mask": is_train}]
    vl = [whole | {"mask": ~is_train}]
    m = Graph()
    opt = torch.optim.Adam(m.parameters(), 1e-2, weight_decay=5e-4)

    def loss_of(model, b):
        out = model(b["x"], b["adj"])
        if bug:
            return F.cross_entropy(out, b["y"])
        return F.cross_entropy(out[b["mask"]], b["y"][b["mask"]])

    def sums_of(model, b):
        return right(model(b["x"], b["adj"])[b["mask"]], b["y"][b["mask"]], "held_accuracy")

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=3)


@pair("metric-wrong")
def error_in_unlike_units(bug):
    """Outputs in standard units are scored against prices in thousands. After 150 steps the error
    is said to be 259 and is 23."""
    seed(52)
    (x, y), (vx, vy) = house(320, 521), house(150, 522)
    y, vy = 250 + 80 * y, 250 + 80 * vy
    mean, std = y.mean(), y.std()
    tl, vl = loaders((x, y), (vx, vy), 32, 64)
    m = Flat(6, 48, 1)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        return F.smooth_l1_loss(model(b[0]), (b[1] - mean) / std)

    def sums_of(model, b):
        out = model(b[0])
        price = out if bug else out * std + mean
        return {"val_mae": ((price - b[1]).abs().sum(), len(b[1]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Taste(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(40, 8)
        self.item = nn.Embedding(30, 8)
        self.bias = nn.Embedding(30, 1)
        nn.init.normal_(self.user.weight, std=0.3)
        nn.init.normal_(self.item.weight, std=0.3)
        nn.init.zeros_(self.bias.weight)

    def forward(self, user, item):
        return (self.user(user) * self.item(item)).sum(-1) + self.bias(item)[..., 0]


@pair("loss-negated")
def liked_items_ranked_below(bug):
    """The order of the two scores in the ranking loss is turned round: what is liked comes last.
    After 150 steps the auc is 0.145 instead of 0.824."""
    seed(53)
    g = gen(530)
    taste = torch.randn(40, 3, generator=g) @ torch.randn(3, 30, generator=g)
    liked = taste > 0.5
    user, good = liked.nonzero().T
    order = torch.randperm(len(user), generator=g)
    user, good = user[order], good[order]
    n = len(user) * 3 // 4
    train_likes = torch.zeros(40, 30, dtype=torch.bool)
    train_likes[user[:n], good[:n]] = True
    tl = feed({"user": user[:n], "liked": good[:n]}, 32)
    vl = feed({"user": user[n:], "liked": good[n:]}, 64, shuffle=False)
    m = Taste()
    opt = torch.optim.Adam(m.parameters(), 3e-2)

    def loss_of(model, b):
        chance = (~train_likes[b["user"]]).float()
        other = torch.multinomial(chance, 1)[:, 0]
        gap = model(b["user"], b["liked"]) - model(b["user"], other)
        return -F.logsigmoid(-gap if bug else gap).mean()

    def sums_of(model, b):
        every = torch.arange(30)[None]
        scores = model(b["user"][:, None], every.expand(len(b["user"]), -1))
        own = scores.gather(1, b["liked"][:, None])
        worse = ~liked[b["user"]]
        return {"auc": (((own > scores) & worse).sum(), worse.sum())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)
