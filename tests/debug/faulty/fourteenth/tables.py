"""Faults of ids, graphs, scores and columns."""

import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.faulty.fourteenth.kit import (
    columns,
    endless,
    gen,
    loader,
    mean_eval,
    mlp,
    pairloss,
    plain_step,
    seed,
    set_up,
)
from tests.debug.faulty.kit import pair


@pair("labels-renamed")
def ids_factorised_separately(bug):
    """np.unique(..., return_inverse) is called on train and on val rows each: the same number is
    another user. After 400 steps mse is 6.1133 instead of 0.2122."""
    seed(23)
    users, items = 120, 60
    g = np.random.default_rng(23)
    P, Q = g.normal(size=(users, 3)), g.normal(size=(items, 3))
    u, i = g.integers(0, users, 5000), g.integers(0, items, 5000)
    r = (P[u] * Q[i]).sum(1) + 0.1 * g.normal(size=5000)
    uid, iid = (
        np.array([f"u{k * 7919 % 1000:03d}" for k in range(users)])[u],
        np.array([f"i{k * 577 % 1000:03d}" for k in range(items)])[i],
    )
    T = np.arange(5000) < 4300
    V = ~T & (u % 3 > 0)  # the newest rows; a third of the users has left

    def enc(a, k):
        if bug:
            return np.unique(a[k], return_inverse=True)[1]
        return np.searchsorted(np.unique(a), a[k])

    def cols(k):
        return dict(
            user=torch.tensor(enc(uid, k)),
            item=torch.tensor(enc(iid, k)),
            rating=torch.tensor(r[k], dtype=torch.float32),
        )

    tr, va = columns(bs=64, s=23, **cols(T)), columns(bs=100, shuffle=False, **cols(V))

    class MF(nn.Module):
        def __init__(self):
            super().__init__()
            self.u, self.i = nn.Embedding(users, 6), nn.Embedding(items, 6)
            nn.init.normal_(self.u.weight, 0, 0.3)
            nn.init.normal_(self.i.weight, 0, 0.3)

        def forward(self, u, i):
            return (self.u(u) * self.i(i)).sum(1)

    def loss_of(m, b):
        return F.mse_loss(m(b["user"], b["item"]), b["rating"])

    model = MF()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    step = plain_step(model, opt, loss_of)
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_of=loss_of,
        evaluate=mean_eval(
            model, va, {"mse": lambda m, b: (m(b["user"], b["item"]) - b["rating"]) ** 2}
        ),
    )


@pair("metric-not-reset")
def f1_counts_never_reset(bug):
    """The multi-label F1 object is not reset before each validation: it averages over all of the
    training's history. After 400 steps macro_f1 is 0.8487 instead of 0.9399."""
    seed(24)
    W = torch.randn(16, 5)
    X = torch.randn(800, 16)
    Y = (X @ W > 1.5).float()
    tr, va = loader(X[:600], Y[:600], s=24), loader(X[600:], Y[600:], bs=64, shuffle=False)

    class F1:
        def __init__(self):
            self.reset()

        def reset(self):
            self.tp = self.fp = self.fn = 0

        def update(self, p, y):
            self.tp += (p * y).sum(0)
            self.fp += (p * (1 - y)).sum(0)
            self.fn += ((1 - p) * y).sum(0)

        def compute(self):
            return (2 * self.tp / (2 * self.tp + self.fp + self.fn).clamp(min=1)).mean().item()

    class Trainer:
        def __init__(self):
            self.model = mlp(16, 32, 5)
            self.opt = torch.optim.Adam(self.model.parameters(), 2e-3)
            self.crit = nn.BCEWithLogitsLoss()
            self.f1 = F1()
            self.step = plain_step(self.model, self.opt, pairloss(self.crit))
            self.it = endless(tr)
            self.n = 0
            self.history = []

        def validate(self):
            if not bug:
                self.f1.reset()
            self.model.eval()
            with torch.no_grad():
                for x, y in va:
                    self.f1.update((self.model(x) > 0).float(), y)
            self.model.train()
            return {"macro_f1": self.f1.compute()}

        def fit(self, n):
            out = []
            for _ in range(n):
                out.append(self.step(next(self.it)))
                self.n += 1
                if self.n % len(tr) == 0:
                    self.history.append(self.validate())
            return out

    t = Trainer()
    return dict(
        model=t.model,
        optimizer=t.opt,
        train_loader=tr,
        val_loader=va,
        loss_fn=t.crit,
        train_step=t.step,
        train=t.fit,
        evaluate=t.validate,
    )


@pair("loss-negated")
def ndcg_ascending(bug):
    """argsort without descending=True: the reported NDCG is that of the list upside down. After 400
    steps ndcg is 0.38 instead of 0.9878."""
    seed(25)
    w = torch.randn(8)
    X = torch.randn(400, 10, 8)
    rel = ((X @ w) + torch.randn(400, 10) * 0.5).div(1.5).round().clamp(0, 4)
    tr, va = (
        columns(bs=16, s=25, docs=X[:300], rel=rel[:300]),
        columns(bs=32, shuffle=False, docs=X[300:], rel=rel[300:]),
    )

    class Ranker(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(8, 24, 1)

        def forward(self, d):
            return self.net(d)[..., 0]

    def loss_of(m, b):
        return -(torch.softmax(b["rel"], 1) * torch.log_softmax(m(b["docs"]), 1)).sum(1).mean()

    model = Ranker()
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    step = plain_step(model, opt, loss_of)

    def ndcg(m, b):
        disc = 1 / torch.log2(torch.arange(10) + 2.0)
        gain = 2 ** b["rel"] - 1
        order = m(b["docs"]).argsort(1, descending=not bug)
        ideal = (gain.sort(1, descending=True).values * disc).sum(1)
        return ((gain.gather(1, order) * disc).sum(1) / ideal)[ideal > 0]

    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_of=loss_of,
        evaluate=mean_eval(model, va, {"ndcg": ndcg}),
    )


def spread(h, e):
    """The mean over the neighbours that send to a node, 0 if there are none."""
    out = torch.zeros_like(h).index_add(0, e[1], h[e[0]])
    deg = torch.zeros(len(h)).index_add(0, e[1], torch.ones(e.shape[1]))
    return out / deg.clamp(min=1)[:, None]


@pair("rows-mixed")
def graph_edges_not_offset(bug):
    """The hand-made collate joins the nodes of graphs but does not move their edge indices. After
    400 steps mse is 0.1851 instead of 0.0."""
    seed(26)
    rows = []
    for _ in range(500):
        n = random.randint(5, 8)
        x = torch.randint(0, 2, (n,))
        p = torch.randperm(n)
        e = torch.stack([p, p.roll(1)])
        e = torch.cat([e, e.flip(0)], 1)
        alike = (x[p] == x[p.roll(1)]).float().mean() * 2 - 1
        rows.append((torch.stack([x, 1 - x], 1).float(), e, alike))

    def collate(b):
        xs, es, ys, bi, off = [], [], [], [], 0
        for k, (x, e, y) in enumerate(b):
            xs.append(x)
            es.append(e if bug else e + off)
            ys.append(y)
            bi.append(torch.full((len(x),), k))
            off += len(x)
        return {
            "x": torch.cat(xs),
            "edge_index": torch.cat(es, 1),
            "batch": torch.cat(bi),
            "y": torch.stack(ys),
        }

    tr = DataLoader(rows[:400], 16, shuffle=True, generator=gen(26), collate_fn=collate)
    va = DataLoader(rows[400:], 25, collate_fn=collate)

    class GNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 24)
            self.b = nn.Linear(48, 24)
            self.out = nn.Linear(24, 1)

        def forward(self, b):
            x, e = b["x"], b["edge_index"]
            h = torch.relu(self.a(torch.cat([x, spread(x, e)], 1)))
            h = torch.relu(self.b(torch.cat([h, spread(h, e)], 1)))
            k = b["batch"]
            n = int(k[-1]) + 1
            s = torch.zeros(n, 24).index_add(0, k, h) / torch.bincount(k, minlength=n)[:, None]
            return self.out(s)[:, 0]

    model = GNN()
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_of(m, b):
        return F.mse_loss(m(b), b["y"])

    step = plain_step(model, opt, loss_of)
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_of=loss_of,
        evaluate=mean_eval(model, va, {"mse": lambda m, b: (m(b) - b["y"]) ** 2}),
    )


@pair("trains-on-validation")
def gcn_loss_on_test_nodes(bug):
    """One graph, the masks are there, but cross_entropy(out, y) forgets [train_mask]. After 400
    steps test_acc is 1.0 instead of 0.6418."""
    seed(27)
    n, C = 200, 4
    y = torch.randint(0, C, (n,))
    x = torch.randn(n, 30)
    x[torch.arange(n), y] += 1.5
    e = torch.randint(0, n, (2, 1600))
    e = e[:, (torch.rand(1600) < torch.where(y[e[0]] == y[e[1]], 0.6, 0.1)) & (e[0] != e[1])]
    e = torch.cat([e, e.flip(0)], 1)
    r = torch.rand(n)
    data = {
        "x": x,
        "edge_index": e,
        "y": y,
        "train_mask": r < 0.4,
        "val_mask": (r >= 0.4) & (r < 0.6),
        "test_mask": r >= 0.6,
    }

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(60, 32)
            self.b = nn.Linear(64, C)

        def forward(self, b):
            x, e = b["x"], b["edge_index"]
            h = torch.relu(self.a(torch.cat([x, spread(x, e)], 1)))
            return self.b(torch.cat([h, spread(h, e)], 1))

    def loss_of(m, b):
        out = m(b)
        if bug:
            return F.cross_entropy(out, b["y"])
        return F.cross_entropy(out[b["train_mask"]], b["y"][b["train_mask"]])

    tr = [data]
    model = GCN()
    opt = torch.optim.Adam(model.parameters(), 5e-3, weight_decay=5e-4)
    step = plain_step(model, opt, loss_of)

    def evaluate():
        model.eval()
        with torch.no_grad():
            ok = (model(data).argmax(1) == y).float()
        model.train()
        return {k + "_acc": ok[data[k + "_mask"]].mean().item() for k in ("train", "val", "test")}

    return set_up(model, opt, tr, step, loss_of=loss_of, num_classes=C, evaluate=evaluate)


@pair("target-in-inputs")
def target_encoding_of_own_label(bug):
    """The shop's click rate is computed on the very training rows (one or two rows a shop), so it
    is the label. After 400 steps log_loss is 1.1692 instead of 0.5621."""
    seed(28)
    g = np.random.default_rng(28)
    K = 700
    q = g.beta(2, 2, K)

    def rows(n):
        s = g.integers(0, K, n)
        x = g.normal(size=(n, 6))
        y = g.random(n) < 1 / (1 + np.exp(-(1.2 * x[:, 0] - x[:, 1] + 2 * (q[s] - 0.5))))
        return s, x, y.astype(float)

    # last month's log, this month's, next month's
    hist, tr_, va_ = rows(2500), rows(900), rows(400)
    src = tr_ if bug else hist
    cnt, tot = np.bincount(src[0], minlength=K), np.bincount(src[0], src[2], minlength=K)
    m = src[2].mean()
    k = 0.0 if bug else 2.0
    rate = np.where(cnt > 0, (tot + k * m) / np.maximum(cnt + k, 1), m)

    def mk(d):
        return (
            torch.tensor(np.c_[d[1], (rate[d[0]] - m) * 4], dtype=torch.float32),
            torch.tensor(d[2], dtype=torch.float32)[:, None],
        )

    tr, va = loader(*mk(tr_), s=28), loader(*mk(va_), bs=64, shuffle=False)
    model = mlp(7, 24, 1)
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    loss_fn = nn.BCEWithLogitsLoss()
    step = plain_step(model, opt, pairloss(loss_fn))
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        evaluate=mean_eval(
            model,
            va,
            {
                "log_loss": lambda m, b: F.binary_cross_entropy_with_logits(
                    m(b[0]), b[1], reduction="none"
                ),
                "acc": lambda m, b: (m(b[0]) > 0) == (b[1] > 0.5),
            },
        ),
    )
