"""Faults of graphs and of times to an event: edges, masks, orders."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.nineteenth.kit import by_cost, evaluating, feed, gen, loaders, mlp, seed


@pair("rows-mixed")
def graphs_edges_not_shifted(bug):
    """The edges of joined graphs are not shifted: all of them join nodes of the first. After 240
    steps val_mse is 0.128 instead of 0.0086."""
    seed(6)

    def data(n, g):
        out = []
        for _ in range(n):
            k = int(torch.randint(4, 9, (1,), generator=g))
            x = torch.randn(k, 3, generator=g)
            i = torch.arange(k)
            e = torch.stack([torch.cat([i, (i + 1) % k]), torch.cat([(i + 1) % k, i])])
            nb = x[(i + 1) % k] + x[(i - 1) % k]
            out.append((x, e, torch.tanh(x[:, 0] * nb[:, 1] / 2).mean() * 2))
        return out

    def collate(gs):
        xs, es, bs, off = [], [], [], 0
        for i, (x, e, _) in enumerate(gs):
            xs.append(x)
            es.append(e if bug else e + off)
            bs.append(torch.full((len(x),), i))
            off += len(x)
        return {
            "x": torch.cat(xs),
            "edge_index": torch.cat(es, 1),
            "batch": torch.cat(bs),
            "y": torch.stack([g[2] for g in gs]),
        }

    class GNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.m1 = mlp(6, 32, 32)
            self.m2 = mlp(64, 32, 32)
            self.out = nn.Linear(32, 1)

        def forward(self, b):
            src, dst = b["edge_index"]
            h = b["x"]
            n = len(b["y"])
            for f in (self.m1, self.m2):
                h = f(torch.cat([h, torch.zeros_like(h).index_add_(0, dst, h[src])], 1)).relu()
            cnt = torch.bincount(b["batch"], minlength=n)[:, None]
            return self.out(torch.zeros(n, h.size(1)).index_add_(0, b["batch"], h) / cnt).squeeze(1)

    m = GNN()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(data(384, gen(1)), data(100, gen(2)), vbs=40, collate_fn=collate)

    def loss_of(model, b):
        return F.mse_loss(model(b), b["y"])

    def sums_of(model, b):
        return {"val_mse": (F.mse_loss(model(b), b["y"], reduction="sum"), len(b["y"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("trains-on-validation")
def graph_loss_on_held_nodes(bug):
    """The loss leaves out the mask and fits the labels of held nodes. After 240 steps val_acc is 1
    instead of 0.713."""
    seed(7)
    g = gen(1)
    n, C = 160, 3
    y0 = torch.randint(C, (n,), generator=g)
    adj = torch.rand(n, n, generator=g) < torch.where(y0[:, None] == y0, 0.06, 0.015)
    adj = (adj | adj.T).float()
    adj.fill_diagonal_(1.0)
    d = adj.sum(1).rsqrt()
    adj = d[:, None] * adj * d
    x = F.one_hot(y0, C).float() + torch.randn(n, C, generator=g)
    x = torch.cat([x, torch.randn(n, 24, generator=g)], 1)
    flip = torch.rand(n, generator=g) < 0.15
    y = torch.where(flip, torch.randint(C, (n,), generator=g), y0)
    perm = torch.randperm(n, generator=g)
    tm = torch.zeros(n, dtype=torch.bool)
    tm[perm[:80]] = True
    graph = {"x": x, "adj": adj, "y": y, "train_mask": tm, "val_mask": ~tm}

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(27, 32)
            self.b = nn.Linear(32, C)

        def forward(self, b):
            return b["adj"] @ self.b((b["adj"] @ self.a(b["x"])).relu())

    m = GCN()
    opt = torch.optim.Adam(m.parameters(), 1e-2, weight_decay=5e-4)

    def loss_of(model, b):
        out = model(b)
        if bug:
            return F.cross_entropy(out, b["y"])
        return F.cross_entropy(out[b["train_mask"]], b["y"][b["train_mask"]])

    def evaluate():
        with evaluating(m):
            ok = m(graph).argmax(1) == y
        ok = ok.float()
        return {"train_acc": ok[tm].mean().item(), "val_acc": ok[~tm].mean().item()}

    return by_cost(m, opt, [graph], [graph], loss_of, None, evaluate=evaluate, num_classes=C)


@pair("depends-on-order")
def cox_not_sorted(bug):
    """The risk sets are cumulated over rows that are not sorted by time. After 240 steps c_index is
    0.665 instead of 0.703."""
    seed(8)
    w = 0.5 * torch.randn(6, generator=gen(95))

    def data(n, g):
        x = torch.randn(n, 6, generator=g)
        t = torch.empty(n).exponential_(generator=g) * torch.exp(-(x @ w))
        c = torch.empty(n).exponential_(0.05, generator=g)
        return {"x": x, "time": torch.minimum(t, c), "event": (t <= c).float()}

    m = mlp(6, 16, 1)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl = feed(data(512, gen(1)), 64)
    va = data(200, gen(2))
    vl = feed(va, 200, shuffle=False)

    def loss_of(model, b):
        risk = model(b["x"]).squeeze(1)
        ev = b["event"]
        if not bug:
            o = b["time"].argsort(descending=True)
            risk, ev = risk[o], ev[o]
        return -((risk - risk.logcumsumexp(0)) * ev).sum() / ev.sum().clamp_min(1)

    def evaluate():
        with evaluating(m):
            r = m(va["x"]).squeeze(1)
        comp = (va["time"][:, None] < va["time"]) & (va["event"][:, None] > 0)
        return {"c_index": float((r[:, None] > r)[comp].float().mean())}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)
