"""Faults of data and targets: leaks, weights, shapes, samplers, graphs, boxes, scores."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_sixth.kit import (
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
    row_squares,
    seed,
)


@pair("target-in-inputs", "leak-preprocessing")
def category_told_by_the_mean_of_its_targets(bug):
    """A category of a few rows is coded by the mean target of its rows in training, each row's own
    among them; the twin takes the means of earlier rows. After 150 steps the held error is 2.4
    instead of 1.5."""
    seed(61)
    worth = 0.7 * torch.randn(200, generator=gen(611))

    def rows(n, s):
        g = gen(s)
        x, shop = torch.randn(n, 6, generator=g), torch.randint(0, 200, (n,), generator=g)
        y = torch.sin(2 * x[:, 0]) + x[:, 1] + worth[shop] + torch.randn(n, generator=g)
        return x, shop, y

    train, held, earlier = rows(600, 612), rows(200, 613), rows(600, 614)
    _, shop, y = train if bug else earlier
    total = torch.zeros(200).index_add(0, shop, y)
    count = torch.zeros(200).index_add(0, shop, torch.ones(600))
    code = torch.where(count > 0, total / count.clamp(min=1), y.mean())

    def coded(x, shop, y):
        return torch.cat([x, code[shop][:, None]], 1), y[:, None]

    tl, vl = loaders(coded(*train), coded(*held), 40, 100)
    m = mlp(7, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_pairs(
        m, opt, tl, vl, nn.MSELoss(), task="regression", evaluate=averaged(m, vl, row_squares)
    )


@pair("leak-overlap", "leak-group")
def copies_made_before_the_split(bug):
    """Each row gets two copies, of a little noise and of another scale, and only then are some
    held out: nearly each held row has a like in training. After 150 steps the reported accuracy
    is 1 instead of 0.88."""
    seed(62)
    x, y = blobs(240, 24, 3, 31, 2.2)

    def enlarged(x, y):
        noisy = x + 0.1 * torch.randn(x.shape, generator=gen(5))
        return torch.cat([x, noisy, 1.05 * x]), y.repeat(3)

    def cut(x, y):
        at = torch.randperm(len(x), generator=gen(6))
        k = int(0.7 * len(x))
        return (x[at[:k]], y[at[:k]]), (x[at[k:]], y[at[k:]])

    if bug:
        train, held = cut(*enlarged(x, y))
    else:
        train, held = cut(x, y)
        train = enlarged(*train)
    tl, vl = loaders(train, held, 40, 72)
    m = mlp(24, 128, 3)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_pairs(m, opt, tl, vl, num_classes=3, evaluate=averaged(m, vl, class_sums))


@pair("class-weights-inverted")
def weights_that_grow_with_the_count(bug):
    """The weights of the classes are their shares instead of the inverse. After 150 steps the
    mean recall over classes is 0.63 instead of 0.9."""
    seed(63)

    def rows(n, s):
        x, y = blobs(3 * n, 10, 4, s, 1.6)
        keep = torch.rand(3 * n, generator=gen(s + 9)) < torch.tensor([1.0, 0.3, 0.12, 0.08])[y]
        return x[keep], y[keep]

    train, held = rows(500, 31), rows(400, 41)
    tl, vl = loaders(train, held, 32, 200)
    share = torch.bincount(train[1], minlength=4) / len(train[1])
    weights = share * 4 if bug else 1 / (4 * share)
    m = mlp(10, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def evaluate():
        with evaluating(m):
            told = m(held[0]).argmax(1)
        recalls = [(told[held[1] == k] == k).float().mean().item() for k in range(4)]
        return {"balanced_accuracy": sum(recalls) / 4}

    crit = nn.CrossEntropyLoss(weight=weights)
    return by_pairs(m, opt, tl, vl, crit, num_classes=4, evaluate=evaluate)


@pair("broadcast-loss")
def column_against_a_row(bug):
    """Outputs [n, 1] are compared with targets [n], each with all. After 150 steps the held error
    is 0.77 instead of 0.1."""
    seed(64)
    tl, vl = loaders(house(400, 64), house(160, 65), 40, 80)
    m = mlp(6, 48, 1)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        out = model(b[0])
        return (((out if bug else out[:, 0]) - b[1]) ** 2).mean()

    def sums_of(model, b):
        return {"val_mse": (((model(b[0])[:, 0] - b[1]) ** 2).sum(), len(b[1]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, task="regression")


@pair("double-softmax")
def softmax_before_the_cross_entropy(bug):
    """The network ends in a softmax and the loss takes another. After 150 steps the held accuracy
    is 0.76 instead of 0.86."""
    seed(65)
    tl, vl = loaders(bars(320, 651, 1.0), bars(160, 652, 1.0), 32, 80)
    m = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(128, 4), nn.Softmax(1) if bug else nn.Identity(),
    )  # fmt: skip
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    return by_pairs(m, opt, tl, vl, num_classes=4)


@pair("metric-batch-mean", "metric-wrong")
def f_score_meaned_over_batches(bug):
    """The F1 of a rare class is taken in each batch of ten and meaned, with 0 where a batch has
    none of it. After 150 steps the reported F1 is 0.67 instead of 0.92."""
    seed(66)

    def rows(n, s):
        x, y = blobs(n, 10, 8, s, 1.0)
        return x, (y == 0).long()

    tl, vl = loaders(rows(480, 661), rows(250, 662), 40, 10)
    m = mlp(10, 32, 2)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def f1(told, y):
        hits = ((told == 1) & (y == 1)).sum().item()
        return 2 * hits / max((told == 1).sum().item() + (y == 1).sum().item(), 1)

    def evaluate():
        with evaluating(m):
            told = [(m(x).argmax(1), y) for x, y in vl]
        if bug:
            return {"f1": sum(f1(*b) for b in told) / len(told)}
        return {"f1": f1(*(torch.cat(c) for c in zip(*told, strict=True)))}

    return by_pairs(m, opt, tl, vl, num_classes=2, evaluate=evaluate)


@pair("classes-compete")
def labels_that_are_not_exclusive_in_a_softmax(bug):
    """Several labels of a row can be true and the loss is the cross-entropy of a softmax over
    them. After 150 steps the share of right labels at the threshold of a half is 0.59 instead of
    0.93."""
    seed(67)
    A = torch.randn(12, 5, generator=gen(671))

    def rows(n, s):
        x = torch.randn(n, 12, generator=gen(s))
        return x, (x @ A + 0.5 * torch.randn(n, 5, generator=gen(s + 1)) > 0).float()

    tl, vl = loaders(rows(400, 672), rows(200, 682), 40, 100)
    m = mlp(12, 48, 5)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def sums_of(model, b):
        out = model(b[0])
        p = out.softmax(1) if bug else out.sigmoid()
        return {"label_accuracy": (((p > 0.5) == (b[1] > 0)).sum(), b[1].numel())}

    crit = nn.CrossEntropyLoss() if bug else nn.BCEWithLogitsLoss()
    return by_pairs(m, opt, tl, vl, crit, task="multilabel", evaluate=averaged(m, vl, sums_of))


@pair("few-examples-drawn")
def one_weight_for_each_class_in_the_sampler(bug):
    """A weighted sampler is given one weight for each class where it takes one for each row: it
    draws the first four rows alone. After 150 steps the held accuracy is 0.71 instead of 0.99."""
    seed(68)
    train, held = halves(400, 10, 4)
    weight = 1 / torch.bincount(train[1], minlength=4).float()
    sampler = WeightedRandomSampler(
        weight if bug else weight[train[1]], len(train[1]), generator=gen(7)
    )
    tl = DataLoader(TensorDataset(*train), 40, sampler=sampler)
    vl = feed(held, 75, shuffle=False)
    m = mlp(10, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_pairs(m, opt, tl, vl, num_classes=4)


class Box(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.out = nn.Linear(8 * 16, 4)

    def forward(self, x):
        return self.out(F.max_pool2d(F.relu(self.conv(x)), 2).flatten(1)).sigmoid()


@pair("targets-out-of-reach", "range-not-normalised")
def boxes_in_pixels_from_a_sigmoid(bug):
    """The edges of a box come from a sigmoid and are compared with pixels of 0 to 8. After 150
    steps the held overlap is 0 instead of 0.65."""
    seed(69)

    def rows(n, s):
        g = gen(s)
        at = torch.randint(0, 4, (n, 2), generator=g)
        to = at + torch.randint(2, 5, (n, 2), generator=g)
        k = torch.arange(8)
        down = (k >= at[:, :1]) & (k < to[:, :1])
        across = (k >= at[:, 1:]) & (k < to[:, 1:])
        x = 1.5 * (down[:, :, None] & across[:, None]) + 0.3 * torch.randn(n, 8, 8, generator=g)
        return x[:, None], torch.cat([at, to], 1).float()

    tl, vl = loaders(rows(400, 691), rows(160, 692), 40, 80)
    m = Box()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        return F.smooth_l1_loss(model(b[0]), b[1] if bug else b[1] / 8)

    def sums_of(model, b):
        p, y = model(b[0]) * (1 if bug else 8), b[1]
        low, high = torch.max(p[:, :2], y[:, :2]), torch.min(p[:, 2:], y[:, 2:])
        both = (high - low).clamp(min=0).prod(1)
        area = (p[:, 2:] - p[:, :2]).clamp(min=0).prod(1) + (y[:, 2:] - y[:, :2]).prod(1)
        return {"overlap": ((both / (area - both)).sum(), len(y))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, task="regression")


class GraphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 32)
        self.b = nn.Linear(64, 3)

    def forward(self, x, edges, of_graph, k):
        source, target = edges
        near = torch.zeros_like(x).index_add(0, target, x[source])
        h = F.relu(self.a(torch.cat([x, near], 1)))
        n = torch.zeros(k, 1).index_add(0, of_graph, torch.ones(len(x), 1))
        mean = torch.zeros(k, 32).index_add(0, of_graph, h) / n
        top = torch.full((k, 32), -9.0).scatter_reduce(
            0, of_graph[:, None].expand(-1, 32), h, "amax"
        )
        return self.b(torch.cat([mean, top], 1))


@pair("rows-mixed")
def edges_not_moved_to_their_graph(bug):
    """Graphs are joined to a batch and the numbers of their edges' nodes are not moved on: all
    edges lie in the first graph. After 150 steps the held accuracy is 0.34 instead of 0.96."""
    seed(70)

    def graphs(n, s):
        g = gen(s)
        out = []
        for _ in range(n):
            k = int(torch.randint(5, 9, (1,), generator=g))
            y = int(torch.randint(0, 3, (1,), generator=g))
            kind = torch.randint(0, 4, (k,), generator=g)
            pairs = torch.randint(0, k, (2, 60), generator=g)
            step = (kind[pairs[1]] - kind[pairs[0]]) % 4
            keep = (step == y + 1) | (torch.rand(60, generator=g) < 0.1)
            out.append((F.one_hot(kind, 4).float(), pairs[:, keep][:, :10], y))
        return out

    def joined(rows):
        x = torch.cat([r[0] for r in rows])
        sizes = torch.tensor([len(r[0]) for r in rows])
        first = (sizes.cumsum(0) - sizes).tolist()
        edges = torch.cat([r[1] + (0 if bug else f) for r, f in zip(rows, first, strict=True)], 1)
        of_graph = torch.arange(len(rows)).repeat_interleave(sizes)
        y = torch.tensor([r[2] for r in rows])
        return {"x": x, "edges": edges, "of_graph": of_graph, "y": y}

    tl = DataLoader(graphs(320, 701), 32, shuffle=True, generator=gen(7), collate_fn=joined)
    vl = DataLoader(graphs(160, 702), 40, collate_fn=joined)
    m = GraphNet()
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def out_of(model, b):
        return model(b["x"], b["edges"], b["of_graph"], len(b["y"]))

    def loss_of(model, b):
        return F.cross_entropy(out_of(model, b), b["y"])

    def sums_of(model, b):
        return right(out_of(model, b), b["y"])

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=3)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 48), nn.ReLU())
        self.kind = nn.Linear(48, 2)
        self.size = nn.Linear(48, 1)

    def forward(self, x):
        h = self.body(x)
        return self.kind(h), self.size(h)[:, 0]


@pair("loss-without-gradient", "frozen-params", "no-gradient")
def second_task_added_as_a_number(bug):
    """The loss of the second of two tasks is logged by item() and the number is what is added.
    After 150 steps the held error of that task is 0.89 instead of 0.11."""
    seed(71)

    def rows(n, s):
        x, y = house(n, s)
        return {"x": x, "kind": (x[:, 4] > x[:, 5]).long(), "size": y}

    tl, vl = loaders(rows(400, 711), rows(160, 712), 40, 80)
    m = TwoHeads()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        kind, size = model(b["x"])
        other = F.mse_loss(size, b["size"])
        return F.cross_entropy(kind, b["kind"]) + (other.item() if bug else other)

    def sums_of(model, b):
        kind, size = model(b["x"])
        return right(kind, b["kind"]) | {"size_mse": (((size - b["size"]) ** 2).sum(), len(size))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("labels-shuffled", "targets-unrelated")
def rows_sorted_without_their_labels(bug):
    """The rows are brought into the order of their time and the labels stay in the old one. After
    150 steps the held accuracy is 0.16 instead of 0.99."""
    seed(72)
    train, held = halves(400, 10, 4)
    order = torch.rand(400, generator=gen(72)).argsort()
    train = (train[0][order], train[1] if bug else train[1][order])
    tl, vl = loaders(train, held, 40, 75)
    m = mlp(10, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_pairs(m, opt, tl, vl, num_classes=4)
