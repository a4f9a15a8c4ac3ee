"""Faults of tables and graphs: splits, streams, arguments, masks, units, class numbers."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_second.kit import (
    averaged,
    blobs,
    by_classes,
    by_cost,
    by_pairs,
    evaluating,
    feed,
    gen,
    loaders,
    mlp,
    plain_step,
    seed,
    set_up,
)


@pair("leak-overlap")
def eightfold_rare_rows_before_split(bug):
    """Each row of the rare class is there eight times before the split. After 300 steps recall is 1
    instead of 0.333."""
    seed()
    g = gen(1)
    x = torch.randn(500, 24, generator=g)
    y = (torch.rand(500, generator=g) < torch.sigmoid(1.2 * x[:, 0] - 2.6)).long()

    def multiplied(x, y):
        rare = torch.where(y == 1)[0].repeat(7)
        return torch.cat([x, x[rare]]), torch.cat([y, y[rare]])

    if bug:
        x, y = multiplied(x, y)
    order = torch.randperm(len(x), generator=gen(2))
    cut = int(0.75 * len(x))
    train, held = order[:cut], order[cut:]
    rows = (x[train], y[train])
    tl, vl = loaders(rows if bug else multiplied(*rows), (x[held], y[held]), 32)
    m = mlp(24, 64, 2)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def evaluate():
        hits = is_rare = is_told = 0
        with evaluating(m):
            for x, y in vl:
                p = m(x).argmax(1)
                hits += ((p == 1) & (y == 1)).sum().item()
                is_rare += (y == 1).sum().item()
                is_told += (p == 1).sum().item()
        return {"recall": hits / max(is_rare, 1), "precision": hits / max(is_told, 1)}

    return by_classes(m, opt, tl, vl, 2, evaluate=evaluate)


class Stream:
    """Batches of a shuffled pass, read like a file."""

    def __init__(self, columns, runs_dry):
        self.columns = columns
        self.runs_dry = runs_dry
        self.g = gen(3)
        self.passing = self.rows()

    def rows(self):
        for i in torch.randperm(len(self.columns["x"]), generator=self.g).split(32):
            yield {name: column[i] for name, column in self.columns.items()}

    def __len__(self):
        return (len(self.columns["x"]) + 31) // 32

    def __iter__(self):
        return self.passing if self.runs_dry else self.rows()


@pair("loader-exhausted")
def stream_runs_dry(bug):
    """All passes are of one generator, which has nothing left after the first. After 300 steps
    poisson_nll is 1.05, as at first, instead of -0.589."""
    seed()
    w = torch.randn(8, 1, generator=gen(4))

    def data(n, s):
        x = torch.randn(n, 8, generator=gen(s))
        rate = torch.exp(0.5 * (x @ w).clamp(-4, 4))
        return {"x": x, "y": torch.poisson(rate, generator=gen(s + 1))}

    tl = Stream(data(480, 1), bug)
    vl = feed(data(202, 2), 32, shuffle=False)
    m = mlp(8, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    crit = nn.PoissonNLLLoss(log_input=True)

    def loss_of(model, b):
        return crit(model(b["x"]), b["y"])

    step = plain_step(m, opt, loss_of)

    def train(n):
        losses = []
        for _ in range(math.ceil(n / len(tl))):
            for b in tl:
                if len(losses) < n:
                    losses.append(step(b))
        return losses

    def sums_of(model, b):
        return {"poisson_nll": (loss_of(model, b) * len(b["x"]), len(b["x"]))}

    return {
        "model": m,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "train": train,
        "evaluate": averaged(m, vl, sums_of),
        "loss_of": loss_of,
    }


class Factors(nn.Module):
    def __init__(self, users, items, k=6):
        super().__init__()
        self.u = nn.Embedding(users, k)
        self.i = nn.Embedding(items, k)
        self.bu = nn.Embedding(users, 1)
        self.bi = nn.Embedding(items, 1)
        nn.init.normal_(self.u.weight, std=0.3)
        nn.init.normal_(self.i.weight, std=0.3)
        nn.init.zeros_(self.bu.weight)
        nn.init.zeros_(self.bi.weight)

    def forward(self, user, item):
        likes = (self.u(user) * self.i(item)).sum(-1)
        return likes + self.bu(user)[:, 0] + self.bi(item)[:, 0]


@pair("covariate-shift")
def users_and_items_swapped(bug):
    """Training calls model(item, user), evaluation model(user, item); there are as many of both.
    After 300 steps rmse is 2.91 instead of 0.379."""
    seed()
    g = gen(5)
    likes = torch.randn(60, 3, generator=g) @ torch.randn(3, 60, generator=g)
    likes = likes + torch.randn(60, 1, generator=g) + torch.randn(1, 60, generator=g)
    cells = torch.randperm(3600, generator=g)[:2400]
    user, item = cells // 60, cells % 60
    rating = likes[user, item] + 0.2 * torch.randn(2400, generator=g)
    columns = {"user": user, "item": item, "rating": rating}
    train = {name: column[:2000] for name, column in columns.items()}
    tl, vl = loaders(train, {name: column[2000:] for name, column in columns.items()}, 64)
    m = Factors(60, 60)
    opt = torch.optim.Adam(m.parameters(), 2e-2, weight_decay=1e-4)

    def loss_of(model, b):
        out = model(b["item"], b["user"]) if bug else model(b["user"], b["item"])
        return F.mse_loss(out, b["rating"])

    def sums_of(model, b):
        wrong = (model(b["user"], b["item"]) - b["rating"]) ** 2
        return {"mse": (wrong.sum(), len(wrong))}

    mean = averaged(m, vl, sums_of)

    def evaluate():
        return {"rmse": math.sqrt(mean()["mse"])}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(32, 32)
        self.b = nn.Linear(32, 3)

    def forward(self, x, adj):
        return self.b(adj @ F.dropout(F.relu(self.a(adj @ x)), 0.2, self.training))


@pair("trains-on-validation")
def graph_loss_on_all_nodes(bug):
    """The loss is of all nodes of a graph, the held ones too. After 300 steps val_accuracy is 1
    instead of 0.613."""
    seed()
    g = gen(6)
    n = 150
    y = torch.randint(0, 3, (n,), generator=g)
    odds = torch.where(y[:, None] == y[None], 0.03, 0.015)
    links = (torch.rand(n, n, generator=g) < odds).float().triu(1)
    links = links + links.T + torch.eye(n)
    scale = links.sum(1).rsqrt()
    x = torch.randn(n, 32, generator=g) + 0.5 * F.one_hot(y, 32)
    is_held = torch.rand(n, generator=g) < 0.4
    graph = {
        "x": x,
        "adj": scale[:, None] * links * scale[None],
        "y": y,
        "train_mask": ~is_held,
        "val_mask": is_held,
    }
    m = GCN()
    opt = torch.optim.Adam(m.parameters(), 1e-2, weight_decay=5e-4)

    def loss_of(model, b):
        out, y = model(b["x"], b["adj"]), b["y"]
        if not bug:
            out, y = out[b["train_mask"]], y[b["train_mask"]]
        return F.cross_entropy(out, y)

    def evaluate():
        with evaluating(m):
            p = m(graph["x"], graph["adj"]).argmax(1)
        held = graph["val_mask"]
        return {"val_accuracy": (p[held] == y[held]).float().mean().item()}

    step = plain_step(m, opt, loss_of)
    return set_up(m, opt, [graph], step, evaluate=evaluate, loss_of=loss_of, num_classes=3)


@pair("metric-wrong")
def error_in_mixed_units(bug):
    """The error compares predictions in thousands with prices that are standardised. After 300
    steps rmse_thousands is 257 instead of 18.4."""
    seed()
    w = torch.randn(9, generator=gen(8))

    def data(n, s):
        x = torch.randn(n, 9, generator=gen(s))
        noise = 10 * torch.randn(n, 1, generator=gen(s + 4))
        return x, 250 + 60 * torch.tanh(x @ w / 2)[:, None] * 1.5 + noise

    x, y = data(480, 1)
    vx, vy = data(202, 2)
    mean, std = y.mean(), y.std()
    m = mlp(9, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders((x, (y - mean) / std), (vx, (vy - mean) / std), 32)

    def sums_of(model, b):
        p, y = model(b[0]) * std + mean, b[1]
        if not bug:
            y = y * std + mean
        return {"mse": (((p - y) ** 2).sum(), len(p))}

    score = averaged(m, vl, sums_of)

    def evaluate():
        return {"rmse_thousands": math.sqrt(score()["mse"])}

    return by_pairs(m, opt, tl, vl, nn.MSELoss(), evaluate=evaluate)


@pair("labels-renamed")
def class_numbers_by_first_sight(bug):
    """Each split numbers its classes as it meets them, and the numbers differ. After 300 steps
    accuracy is 0.644 instead of 0.876."""
    seed()
    names = ["cat", "dog", "eel", "fox"]

    def data(n, s):
        x, y = blobs(n, 12, 4, s, 0.8)
        words = [names[int(i)] for i in y]
        order = list(dict.fromkeys(words)) if bug else names
        return x, torch.tensor([order.index(word) for word in words])

    tl, vl = loaders(data(480, 1), data(202, 2), 32)
    m = mlp(12, 32, 4)
    return by_classes(m, torch.optim.Adam(m.parameters(), 5e-3), tl, vl, 4)
