"""Faults of ids, graphs, rankings and embeddings."""

import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.debug.faulty.fifteenth.kit import Columns, gen, plain_step, ratings, seed, set_up
from tests.debug.faulty.kit import pair


@pair("frozen-params")
def pad_item(bug):
    """padding_idx=0, as in a text model, but items are numbered from 0: the embedding of the most
    popular never learns. After 300 steps val_mse is 0.7863 instead of 0.1103."""
    seed(75)

    class MF(nn.Module):
        def __init__(self):
            super().__init__()
            self.u = nn.Embedding(40, 4)
            self.i = nn.Embedding(30, 4, padding_idx=0 if bug else None)
            self.u.weight.data.mul_(0.4)
            self.i.weight.data.mul_(0.4)

        def forward(self, u, i):
            return (self.u(u) * self.i(i)).sum(1)

    m = MF()
    opt = torch.optim.Adam(m.parameters(), 0.04)
    tl = DataLoader(ratings(1200, gen(1)), 64, shuffle=True, generator=gen(2))
    vl = DataLoader(ratings(300, gen(3)), 64)

    def loss_of(model, b):
        return F.mse_loss(model(b["user"], b["item"]), b["rating"])

    step = plain_step(m, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        return {"val_mse": sum(loss_of(m, b).item() * len(b["user"]) for b in vl) / 300}

    return set_up(m, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)


@pair("metric-wrong")
def tie_rank(bug):
    """The rank is the number of items with more stars, and scores are rounded to whole stars: every
    tie is a hit. Where all scores are equal hit@5 is 1 instead of 0.1667."""
    seed(76)
    nu, ni = 80, 30
    users = torch.randn(nu, 3, generator=gen(81))
    items = torch.randn(ni, 3, generator=gen(82))
    like = (users @ items.T).topk(8, 1).indices
    pos = [(u, int(like[u, k])) for u in range(nu) for k in range(8)]
    p = torch.randperm(len(pos), generator=gen(4)).tolist()

    def row(k):
        return {"user": torch.tensor(pos[k][0]), "item": torch.tensor(pos[k][1])}

    tl = DataLoader([row(k) for k in p[:540]], 30, shuffle=True, generator=gen(5))
    vl = DataLoader([row(k) for k in p[540:]], 30)

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.u, self.i = nn.Embedding(nu, 4), nn.Embedding(ni, 4)
            self.b = nn.Parameter(torch.tensor(0.5))
            self.u.weight.data.mul_(0.4)
            self.i.weight.data.mul_(0.4)

        def forward(self, u):
            return self.u(u) @ self.i.weight.T + self.b

    m = Two()
    opt = torch.optim.Adam(m.parameters(), 0.02)

    def loss_of(model, b):
        # implicit feedback: unseen items weigh little
        t = F.one_hot(b["item"], ni).float()
        return ((model(b["user"]) - t) ** 2 * (t + 0.1)).sum(1).mean()

    step = plain_step(m, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        h = n = 0.0
        for b in vl:
            s = m(b["user"])
            if bug:
                # the stars that the site shows
                s = (s * 5).clamp(0, 5).round()
            sp = s.gather(1, b["item"][:, None])
            above = (s > sp).sum(1).float()
            ties = (s == sp).sum(1).float() - 1
            if bug:
                h += (above < 5).sum().item()
            else:
                # the chance of a place among five, with ties broken at random
                h += ((5 - above) / (ties + 1)).clamp(0, 1).sum().item()
            n += len(s)
        return {"hit@5": h / n}

    return set_up(m, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)


@pair("trains-on-validation")
def gcn_mask(bug):
    """The loss runs over all nodes of the graph, without [train_mask]: the test accuracy is of
    nodes trained on. After 150 steps test_acc is 1 instead of 0.55."""
    seed(77)
    g = gen(6)
    N = 120
    y = torch.randint(0, 3, (N,), generator=g)
    A = (torch.rand(N, N, generator=g) < torch.where(y[:, None] == y, 0.05, 0.035)).float()
    A = (A + A.T > 0).float()
    A.fill_diagonal_(1.0)
    d = A.sum(1).rsqrt()
    A = d[:, None] * A * d
    X = torch.randn(N, 40, generator=g)
    X[:, :3] += F.one_hot(y, 3) * 2.2
    r = torch.randperm(N, generator=g)
    tm = torch.zeros(N, dtype=torch.bool)
    sm = torch.zeros(N, dtype=torch.bool)
    tm[r[:60]] = True
    sm[r[60:]] = True
    data = {"x": X, "adj": A, "y": y, "train_mask": tm, "test_mask": sm}

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(40, 32), nn.Linear(32, 3)

        def forward(self, x, adj):
            return adj @ self.b(F.relu(adj @ self.a(x)))

    m = GCN()
    opt = torch.optim.Adam(m.parameters(), 0.01)

    def loss_of(model, b):
        o = model(b["x"], b["adj"])
        if bug:
            return F.cross_entropy(o, b["y"])
        return F.cross_entropy(o[b["train_mask"]], b["y"][b["train_mask"]])

    step = plain_step(m, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        p = m(X, A).argmax(1)
        return {
            "train_acc": (p == y)[tm].float().mean().item(),
            "test_acc": (p == y)[sm].float().mean().item(),
        }

    return set_up(
        m, opt, [data], step, val_loader=[data], loss_of=loss_of, num_classes=3, evaluate=evaluate
    )


@pair("rows-mixed")
def edge_offset(bug):
    """The collate function joins nodes but does not shift the edges: every edge points into the
    first graph. After 200 steps val_mse is 0.5741 instead of 0.0564."""
    seed(78)
    g = gen(7)

    def make(n):
        out = []
        for _ in range(n):
            k = int(torch.randint(4, 8, (1,), generator=g))
            e = torch.randint(0, k, (2, 2 * k), generator=g)
            x = torch.randn(k, 3, generator=g)
            out.append((x, e, torch.tanh(x[e[0]] - 0.5 * x[e[1]]).sum() / k))
        return out

    def collate(gs):
        off, E, B = 0, [], []
        for k, (x, e, _) in enumerate(gs):
            E.append(e if bug else e + off)
            B.append(torch.full((len(x),), k))
            off += len(x)
        return {
            "x": torch.cat([q[0] for q in gs]),
            "edge_index": torch.cat(E, 1),
            "batch": torch.cat(B),
            "y": torch.stack([q[2] for q in gs])[:, None],
        }

    class MP(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 16))
            self.o = nn.Linear(19, 1)

        def forward(self, b):
            x, (i, j), k = b["x"], b["edge_index"], b["batch"]
            h = torch.zeros(len(x), 16).index_add(0, j, self.m(torch.cat([x[i], x[j]], 1)))
            z = torch.cat([x, h], 1)
            n = int(k.max()) + 1
            cnt = torch.bincount(k, minlength=n).clamp(min=1)[:, None]
            return self.o(torch.zeros(n, 19).index_add(0, k, z) / cnt)

    m = MP()
    opt = torch.optim.Adam(m.parameters(), 0.005)
    tl = DataLoader(make(320), 16, shuffle=True, collate_fn=collate, generator=gen(1))
    vl = DataLoader(make(80), 16, collate_fn=collate)

    def loss_of(model, b):
        return F.mse_loss(model(b), b["y"])

    step = plain_step(m, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        return {"val_mse": sum(loss_of(m, b).item() * len(b["y"]) for b in vl) / 80}

    return set_up(m, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)


def queries(n, g):
    w = torch.randn(6, generator=gen(83))
    f = torch.randn(n, 8, 6, generator=g)
    s = f @ w
    q = torch.randn(n, 1, 1, generator=g) * 3
    # each query is shifted as a whole along the useful direction
    f = f + q * w / w.norm() ** 2 * 2
    return TensorDataset(
        f, F.one_hot((s + 0.3 * torch.randn(n, 8, generator=g)).argmax(1), 8).float()
    )


@pair("rows-mixed")
def listnet_dim(bug):
    """log_softmax(scores, dim=0) on [queries, documents]: a query's documents compete with other
    queries'. After 200 steps mrr is 0.603 instead of 0.9241."""
    seed(79)
    net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1), nn.Flatten(-2))
    opt = torch.optim.Adam(net.parameters(), 0.003)
    tl = DataLoader(queries(400, gen(1)), 16, shuffle=True, generator=gen(2))
    vl = DataLoader(queries(90, gen(3)), 16)

    def crit(s, rel):
        return -(rel * F.log_softmax(s, dim=0 if bug else 1)).sum(1).mean()

    def step(b):
        opt.zero_grad()
        loss = crit(net(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        t = 0.0
        for f, r in vl:
            s = net(f)
            t += (1 / (1 + (s > (s * r).sum(1, keepdim=True)).sum(1).float())).sum().item()
        return {"mrr": t / 90}

    return set_up(net, opt, tl, step, val_loader=vl, loss_fn=crit, evaluate=evaluate)


@pair("loss-negated")
def triplet_args(bug):
    """F.triplet_margin_loss(anchor, negative, positive): what is alike is driven apart. After 200
    steps recall@1 is 0.17 instead of 0.94."""
    seed(80)
    g = gen(8)
    pr = torch.randn(8, 20, generator=g) * 0.8
    lab = torch.randint(0, 8, (400,), generator=g)
    X = pr[lab] + torch.randn(400, 20, generator=g)

    class Trip(Dataset):
        def __len__(self):
            return 300

        def __getitem__(self, i):
            same = torch.nonzero(lab[:300] == lab[i]).flatten()
            other = torch.nonzero(lab[:300] != lab[i]).flatten()
            same = same[same != i]
            return {
                "anchor": X[i],
                "positive": X[random.choice(same.tolist())],
                "negative": X[random.choice(other.tolist())],
            }

    class Emb(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 8))

        def forward(self, x):
            return F.normalize(self.f(x), dim=1)

    m = Emb()
    opt = torch.optim.Adam(m.parameters(), 0.002)
    tl = DataLoader(Trip(), 30, shuffle=True, generator=gen(9))

    def loss_of(model, b):
        a, p, n = (model(b[k]) for k in ("anchor", "positive", "negative"))
        if bug:
            return F.triplet_margin_loss(a, n, p, margin=0.3)
        return F.triplet_margin_loss(a, p, n, margin=0.3)

    step = plain_step(m, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        z = m(X)
        nearest = (z[300:] @ z[:300].T).argmax(1)
        return {"recall@1": (lab[:300][nearest] == lab[300:]).float().mean().item()}

    return set_up(m, opt, tl, step, loss_of=loss_of, evaluate=evaluate)


@pair("optimizer-stale-params")
def uncertainty_weights(bug):
    """The log-variances of two tasks are in the loss module, but Adam has the model's parameters
    alone: the loud task drowns the quiet one. After 300 steps r2_rate is 0.3354 instead of
    0.8801."""
    seed(84)
    g = gen(9)

    def make(n):
        x = torch.randn(n, 8, generator=g)
        return Columns(
            x=x,
            price=15 * (x[:, :1] - 0.5 * x[:, 1:2].abs() + 0.3 * torch.randn(n, 1, generator=g)),
            rate=0.2 * torch.tanh(2 * x[:, 2:3]) + 0.04 * torch.randn(n, 1, generator=g),
        )

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.t = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
            self.a, self.b = nn.Linear(16, 1), nn.Linear(16, 1)

        def forward(self, x):
            h = self.t(x)
            return self.a(h), self.b(h)

    class Multi(nn.Module):
        def __init__(self):
            super().__init__()
            self.log_vars = nn.Parameter(torch.zeros(2))

        def forward(self, out, b):
            losses = torch.stack([F.mse_loss(out[0], b["price"]), F.mse_loss(out[1], b["rate"])])
            return (losses * (-self.log_vars).exp() + self.log_vars).sum()

    m, crit = Net(), Multi()
    held = [{"params": m.parameters()}]
    if not bug:
        held.append({"params": crit.parameters(), "lr": 0.1})
    opt = torch.optim.Adam(held, 0.003)
    tl = DataLoader(make(640), 32, shuffle=True, generator=gen(1))
    vl = DataLoader(make(150), 32)

    def loss_of(model, b):
        return crit(model(b["x"]), b)

    step = plain_step(m, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        o = [(m(b["x"]), b) for b in vl]

        def r2(k, n):
            error = torch.cat([p[k] - b[n] for p, b in o]).pow(2).mean()
            spread = torch.cat([b[n] for _, b in o]).var(unbiased=False)
            return 1 - (error / spread).item()

        return {"r2_price": r2(0, "price"), "r2_rate": r2(1, "rate")}

    return set_up(m, opt, tl, step, val_loader=vl, loss_fn=crit, loss_of=loss_of, evaluate=evaluate)
