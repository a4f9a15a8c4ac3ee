"""Faults of tables, series and graphs: windows, splits, samplers, masks, thresholds, scales."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twentieth.kit import (
    averaged,
    by_cost,
    by_errors,
    by_pairs,
    evaluating,
    gen,
    loaders,
    mlp,
    seed,
    squared,
    windows,
)


@pair("target-in-inputs")
def window_ends_with_the_answer(bug):
    """The number to be forecast is the last of its own window. After 200 steps val_rmse is 0.084
    instead of 1.05."""
    seed()
    e = torch.randn(900, generator=gen(1))
    x = torch.zeros(900)
    for t in range(2, 900):
        x[t] = 0.6 * x[t - 1] - 0.5 * x[t - 2] + e[t]
    w = 12

    def data(series):
        rows, y = windows(series, w, w - 1 if bug else w)
        return rows.squeeze(-1), y

    tl, vl = loaders(data(x[:700]), data(x[700:]), 32)
    m = mlp(w, 24, 1)
    opt = torch.optim.Adam(m.parameters(), 5e-3, weight_decay=1e-4)
    mean = squared(m, vl)

    def evaluate():
        return {"val_rmse": math.sqrt(mean()["val_mse"])}

    return by_errors(m, opt, tl, vl, evaluate=evaluate)


@pair("leak-group")
def split_by_row_not_subject(bug):
    """Each subject has many rows with an offset of its own, and the rows are split at random. After
    200 steps val_mse is 0.468 instead of 3.45."""
    seed()
    subjects, each = 40, 20
    n = subjects * each
    g = gen(1)
    known_by = torch.randn(subjects, 8, generator=g)
    offset = 2 * torch.randn(subjects, generator=g)
    subject = torch.arange(subjects).repeat_interleave(each)
    signal = torch.randn(n, 4, generator=g)
    x = torch.cat([known_by[subject] + 0.1 * torch.randn(n, 8, generator=g), signal], 1)
    y = signal @ torch.tensor([1.0, -1.0, 0.5, 0.2])
    y = (y + offset[subject] + 0.2 * torch.randn(n, generator=g))[:, None]
    if bug:
        order = torch.randperm(n, generator=g)
        own, held = order[:600], order[600:]
    else:
        is_own = torch.isin(subject, torch.randperm(subjects, generator=g)[:30])
        own, held = is_own.nonzero()[:, 0], (~is_own).nonzero()[:, 0]
    tl, vl = loaders((x[own], y[own]), (x[held], y[held]), 32)
    m = mlp(12, 48, 1)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    groups = {"train": subject[own].tolist(), "val": subject[held].tolist()}
    return by_errors(m, opt, tl, vl, groups=groups)


@pair("same-draws")
def bpr_negatives_reseeded(bug):
    """The items that are not liked come from a new generator of the same seed in each step. After
    200 steps hit@20 is 0.228 instead of 0.533."""
    seed()
    U, items = 60, 300
    g = gen(1)
    taste = torch.randn(U, 4, generator=g) @ torch.randn(4, items, generator=g)
    liked = taste.topk(24, 1).indices
    liked = liked.gather(1, torch.stack([torch.randperm(24, generator=g) for _ in range(U)]))
    own, held = liked[:, :18], liked[:, 18:]
    seen = torch.zeros(U, items, dtype=torch.bool).scatter_(1, own, True)

    def users(n):
        return torch.arange(U).repeat_interleave(n)

    tl, vl = loaders((users(18), own.flatten()), (users(6), held.flatten()))

    class MF(nn.Module):
        def __init__(self, d=12):
            super().__init__()
            self.u = nn.Embedding(U, d)
            self.i = nn.Embedding(items, d)
            self.b = nn.Embedding(items, 1)
            for e in (self.u, self.i):
                nn.init.normal_(e.weight, std=0.1)
            nn.init.zeros_(self.b.weight)

        def forward(self, u, i):
            return (self.u(u) * self.i(i)).sum(-1) + self.b(i)[..., 0]

    m = MF()
    opt = torch.optim.Adam(m.parameters(), 1e-2, weight_decay=1e-5)
    draws = gen(42)

    def negatives(u):
        g = gen(42) if bug else draws
        j = torch.randint(items, (len(u),), generator=g)
        while (bad := seen[u, j]).any():
            j[bad] = torch.randint(items, (int(bad.sum()),), generator=g)
        return j

    def loss_of(model, b):
        u, i = b
        return -F.logsigmoid(model(u, i) - model(u, negatives(u))).mean()

    def sums_of(model, b):
        u, i = b
        s = model(u[:, None], torch.arange(items)[None]).masked_fill(seen[u], -1e9)
        return {"hit@20": ((s.topk(20, 1).indices == i[:, None]).any(1).sum(), len(u))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("trains-on-validation")
def gcn_without_the_train_mask(bug):
    """The loss is a mean over all nodes, those to be tested on included. After 200 steps the
    accuracy on these is 1 instead of 0.5."""
    seed()
    n, k = 160, 4
    g = gen(1)
    y = torch.randint(k, (n,), generator=g)
    linked = torch.where(y[:, None] == y[None], 0.03, 0.015)
    edges = (torch.rand(n, n, generator=g) < linked).float().triu(1)
    edges = edges + edges.T + torch.eye(n)
    scale = edges.sum(1).rsqrt()
    adj = scale[:, None] * edges * scale[None]
    own = 0.5 * F.one_hot(y, k).float() @ torch.randn(k, 24, generator=g)
    x = own + torch.randn(n, 24, generator=g)
    u = torch.rand(n, generator=g)
    graph = {
        "x": x,
        "adj": adj,
        "y": y,
        "train_mask": u < 0.4,
        "val_mask": (u >= 0.4) & (u < 0.6),
        "test_mask": u >= 0.6,
    }

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(24, 32)
            self.b = nn.Linear(32, k)

        def forward(self, x, adj):
            return adj @ self.b(F.relu(adj @ self.a(x)))

    m = GCN()
    opt = torch.optim.Adam(m.parameters(), 1e-2, weight_decay=5e-4)

    def loss_of(model, b):
        out, labels = model(b["x"], b["adj"]), b["y"]
        if not bug:
            out, labels = out[b["train_mask"]], labels[b["train_mask"]]
        return F.cross_entropy(out, labels)

    def evaluate():
        with evaluating(m):
            hits = (m(x, adj).argmax(1) == y).float()
        return {
            name: hits[graph[name + "_mask"]].mean().item() for name in ("train", "val", "test")
        }

    return by_cost(m, opt, [graph], [graph], loss_of, None, evaluate=evaluate, num_classes=k)


@pair("metric-wrong")
def multilabel_threshold_on_logits(bug):
    """Logits count as a label from 0.5 on, which is the threshold of probabilities. After 200 steps
    recall is 0.5 instead of 0.62."""
    seed()
    w = torch.randn(16, 10, generator=gen(9))

    def data(n, s):
        g = gen(s)
        x = torch.randn(n, 16, generator=g)
        return x, (x @ w + 2 * torch.randn(n, 10, generator=g) > 3.5).float()

    tl, vl = loaders(data(600, 1), data(210, 2), 32)
    m = mlp(16, 32, 10)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def evaluate():
        hits = extra = missing = 0
        with evaluating(m):
            for x, t in vl:
                out = m(x)
                p = (out > 0.5) if bug else (out.sigmoid() > 0.5)
                t = t > 0
                hits += (p & t).sum().item()
                extra += (p & ~t).sum().item()
                missing += (~p & t).sum().item()
        return {
            "recall": hits / max(hits + missing, 1),
            "micro_f1": 2 * hits / max(2 * hits + extra + missing, 1),
        }

    return by_pairs(m, opt, tl, vl, nn.BCEWithLogitsLoss(), evaluate=evaluate)


@pair("wrong-formula")
def gaussian_nll_given_sigma(bug):
    """The loss wants a variance and gets the standard deviation. After 200 steps coverage95 is 0.54
    instead of 0.963."""
    seed()

    def data(n, s):
        g = gen(s)
        x = torch.randn(n, 3, generator=g)
        spread = 0.2 * (1 + 0.5 * x[:, 2:].tanh()) * torch.randn(n, 1, generator=g)
        return x, torch.sin(x[:, :1]) + 0.5 * x[:, 1:2] + spread

    class MuSigma(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = mlp(3, 32, 2)

        def forward(self, x):
            mu, s = self.f(x).chunk(2, 1)
            return mu, F.softplus(s) + 1e-3

    tl, vl = loaders(data(800, 1), data(400, 2), 32, 64)
    m = MuSigma()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    nll = nn.GaussianNLLLoss()

    def crit(out, y):
        mu, sigma = out
        return nll(mu, y, sigma if bug else sigma**2)

    def sums_of(model, b):
        mu, sigma = model(b[0])
        error = (b[1] - mu).abs()
        n = len(error)
        return {"coverage95": ((error < 1.96 * sigma).sum(), n), "mse": ((error**2).sum(), n)}

    mean = averaged(m, vl, sums_of)

    def evaluate():
        scores = mean()
        return {"coverage95": scores["coverage95"], "rmse": math.sqrt(scores["mse"])}

    return by_pairs(m, opt, tl, vl, crit, evaluate=evaluate)


@pair("leak-overlap")
def copies_of_rare_rows_on_both_sides(bug):
    """The rare class is balanced by copies before the split, which come to both sides. After 200
    steps balanced_acc is 0.918 instead of 0.667."""
    seed()
    x = torch.randn(700, 10, generator=gen(1))
    y = (x[:, 0] + 0.8 * torch.randn(700, generator=gen(2)) > 1.6).long()

    def balanced(rows):
        rare, others = rows[y[rows] == 1], rows[y[rows] == 0]
        return torch.cat([others, rare.repeat(len(others) // len(rare))])

    def mixed(rows):
        return rows[torch.randperm(len(rows), generator=gen(3))]

    rows = torch.arange(700)
    if bug:
        rows = mixed(balanced(rows))
        cut = int(0.75 * len(rows))
        own, held = rows[:cut], rows[cut:]
    else:
        rows = mixed(rows)
        own, held = balanced(rows[:525]), rows[525:]
    tl, vl = loaders((x[own], y[own]), (x[held], y[held]), 32)
    m = mlp(10, 64, 2)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def evaluate():
        hits = torch.zeros(2)
        count = torch.zeros(2)
        with evaluating(m):
            for a, t in vl:
                right = m(a).argmax(1) == t
                for c in (0, 1):
                    hits[c] += (right & (t == c)).sum()
                    count[c] += (t == c).sum()
        return {"balanced_acc": (hits / count).mean().item()}

    return by_pairs(m, opt, tl, vl, evaluate=evaluate, num_classes=2)
