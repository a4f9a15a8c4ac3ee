"""Faults of views, triplets, rankings, recommenders and graphs."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from tests.debug.faulty.fourteenth.kit import knn
from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixteenth.kit import (
    Columns,
    averaged,
    blobs,
    by_cost,
    evaluating,
    gen,
    loaders,
    mlp,
    named,
    plain_step,
    seed,
    set_up,
)


def neighbours(model, x, y, n):
    """evaluate() part: the accuracy of the rows after the nth by their neighbours before it."""
    with evaluating(model):
        return knn(model(x[:n]), y[:n], model(x[n:]), y[n:])


@pair("compared-with-itself")
def simclr_views_from_one_draw(bug):
    """The data set augments once and gives the result twice: both views of a contrastive pair are
    the same. After 300 steps knn_acc is 0.78 instead of 0.893."""
    seed(31)
    g = gen(31)
    y = torch.randint(0, 6, (600,), generator=g)
    z = torch.randn(6, 4, generator=g)[y] + 0.5 * torch.randn(600, 4, generator=g)
    x = torch.cat([z @ torch.randn(4, 16, generator=g), 3 * torch.randn(600, 8, generator=g)], 1)
    x = (x - x[:450].mean(0)) / x[:450].std(0)

    class Views(Dataset):
        def __init__(self):
            self.g = gen(31)

        def view(self, row):
            keep = (torch.rand(row.shape, generator=self.g) > 0.25).float()
            return row * keep + 0.3 * torch.randn(row.shape, generator=self.g)

        def __len__(self):
            return 450

        def __getitem__(self, i):
            first = self.view(x[i])
            return {"view1": first, "view2": first if bug else self.view(x[i])}

    tl = DataLoader(Views(), 32, shuffle=True, generator=gen(32), drop_last=True)
    m = mlp(24, 32, 32, 16)
    opt = torch.optim.Adam(m.parameters(), 2e-3)

    def loss_of(model, b):
        one, two = (F.normalize(model(b[k]), dim=1) for k in ("view1", "view2"))
        s, t = one @ two.T / 0.2, torch.arange(len(one))
        return (F.cross_entropy(s, t) + F.cross_entropy(s.T, t)) / 2

    def evaluate():
        return {"knn_acc": neighbours(m, x, y, 450)}

    return set_up(m, opt, tl, plain_step(m, opt, loss_of), loss_of=loss_of, evaluate=evaluate)


@pair("loss-negated")
def triplet_positive_negative_swapped(bug):
    """TripletMarginLoss is called as (anchor, negative, positive). After 300 steps recall_at_5nn is
    0.355 instead of 0.88."""
    seed(32)
    x, y = blobs(700, 10, 5, 33)

    class Triplets(Dataset):
        def __init__(self):
            self.g = gen(34)
            self.of_class = [torch.where(y[:500] == c)[0] for c in range(5)]

        def __len__(self):
            return 500

        def pick(self, c):
            rows = self.of_class[c]
            return x[rows[torch.randint(0, len(rows), (1,), generator=self.g)[0]]]

        def __getitem__(self, i):
            c = int(y[i])
            other = (c + 1 + int(torch.randint(0, 4, (1,), generator=self.g))) % 5
            return x[i], self.pick(c), self.pick(other)

    tl = DataLoader(Triplets(), 32, shuffle=True, generator=gen(35))
    m = mlp(10, 32, 32, 8)
    opt = torch.optim.Adam(m.parameters(), 2e-3)
    crit = nn.TripletMarginLoss(0.5)

    def loss_of(model, b):
        anchor, positive, negative = (F.normalize(model(t), dim=1) for t in b)
        return crit(anchor, negative, positive) if bug else crit(anchor, positive, negative)

    def evaluate():
        return {"recall_at_5nn": neighbours(m, x, y, 500)}

    return set_up(m, opt, tl, plain_step(m, opt, loss_of), loss_of=loss_of, evaluate=evaluate)


@pair("rows-mixed")
def listwise_softmax_wrong_dim(bug):
    """A listwise loss takes the softmax over queries (dim 0) and not over the documents of a query
    (dim 1). After 300 steps top1 is 0.413 instead of 0.84."""
    seed(33)
    g = gen(36)
    N, L, D = 600, 8, 6
    q = torch.randn(N, 1, 4, generator=g) * 3
    d = torch.randn(N, L, D, generator=g)
    noise = 0.2 * torch.randn(N, L, generator=g)
    relevance = d[:, :, 0] - d[:, :, 1].abs() + noise + 4 * q[:, :, 0]
    docs = torch.cat([d, q.expand(N, L, 4)], 2)
    tl, vl = loaders(*named(450, docs=docs, relevance=relevance))
    m = mlp(10, 32, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    dim = 0 if bug else 1

    def loss_of(model, b):
        wanted = torch.softmax(b["relevance"], dim)
        return -(wanted * torch.log_softmax(model(b["docs"]).squeeze(-1), dim)).sum(dim).mean()

    def sums_of(model, b):
        best = model(b["docs"]).squeeze(-1).argmax(1)
        return {"top1": ((best == b["relevance"].argmax(1)).sum(), len(b["docs"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Factors(nn.Module):
    def __init__(self, users, items, k=8):
        super().__init__()
        self.u, self.i = nn.Embedding(users, k), nn.Embedding(items, k)
        self.ub, self.ib = nn.Embedding(users, 1), nn.Embedding(items, 1)
        for table in (self.u, self.i):
            nn.init.normal_(table.weight, 0, 0.3)
        for table in (self.ub, self.ib):
            nn.init.zeros_(table.weight)

    def forward(self, u, i):
        return (self.u(u) * self.i(i)).sum(-1) + (self.ub(u) + self.ib(i)).squeeze(-1)


@pair("labels-renamed")
def user_ids_encoded_per_split(bug):
    """The users are numbered anew in the validation rows: the same user has another number. After
    300 steps val_mse is 5.05 instead of 0.0932."""
    seed(34)
    g = gen(37)
    U, M, N, n = 60, 40, 4000, 3700
    names = torch.randperm(1000, generator=g)[:U]
    pu, pi = torch.randn(U, 2, generator=g), torch.randn(M, 2, generator=g)
    bu = torch.randn(U, generator=g)
    active = torch.rand(U, generator=g) ** 3 + 0.01
    u = torch.multinomial(active, N, True, generator=g)
    i = torch.randint(0, M, (N,), generator=g)
    rating = (pu[u] * pi[i]).sum(1) + bu[u] + 0.2 * torch.randn(N, generator=g)
    ids = names[u]
    known = ids[:n].unique()
    # validation has no users that training lacks
    held = torch.arange(N)[n:][torch.isin(ids, known)[n:]]
    numbers = ids[held].unique() if bug else known
    tr = Columns(
        user=torch.searchsorted(known, ids[:n]), item=i[:n], raw_user=ids[:n], rating=rating[:n]
    )
    va = Columns(
        user=torch.searchsorted(numbers, ids[held]),
        item=i[held],
        raw_user=ids[held],
        rating=rating[held],
    )
    tl, vl = loaders(tr, va, 64)
    m = Factors(len(known), M)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def loss_of(model, b):
        return F.mse_loss(model(b["user"], b["item"]), b["rating"])

    def sums_of(model, b):
        error = (model(b["user"], b["item"]) - b["rating"]) ** 2
        return {"val_mse": (error.sum(), len(b["user"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class History(nn.Module):
    def __init__(self, n, k=12):
        super().__init__()
        self.emb = nn.Embedding(n, k, padding_idx=0)
        self.out = mlp(k, 24, 24, 1)

    def forward(self, h):
        return self.out(self.emb(h).sum(1)).squeeze(1)


@pair("frozen-params")
def padding_idx_is_real_item(bug):
    """Items are numbered from 0 and histories padded with 0: the embedding of the most popular item
    stays 0. After 300 steps acc is 0.525 instead of 0.985."""
    seed(35)
    g = gen(38)
    N, T, M = 900, 8, 25
    h = torch.randint(0, M, (N, T), generator=g)
    # item 0 is popular
    h = torch.where(torch.rand(N, T, generator=g) < 0.1, torch.zeros_like(h), h)
    w = 0.3 * torch.randn(M, generator=g)
    w[0] = 3.0
    lengths = torch.randint(2, T + 1, (N,), generator=g)
    pad = torch.arange(T)[None] >= lengths[:, None]
    s = w[h].masked_fill(pad, 0).sum(1)
    y = (s - s[:700].median() + 0.2 * torch.randn(N, generator=g) > 0).float()
    ids = (h if bug else h + 1).masked_fill(pad, 0)
    tl, vl = loaders(*named(700, history=ids, length=lengths, clicked=y))
    m = History(M if bug else M + 1)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        return F.binary_cross_entropy_with_logits(model(b["history"]), b["clicked"])

    def sums_of(model, b):
        hits = (model(b["history"]) > 0) == b["clicked"].bool()
        return {"acc": (hits.sum(), len(b["clicked"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Graph(nn.Module):
    def __init__(self, f, h, c):
        super().__init__()
        self.a, self.b = nn.Linear(f, h), nn.Linear(h, c)

    def forward(self, x, adj):
        return adj @ self.b(F.relu(adj @ self.a(x)))


@pair("trains-on-validation")
def gcn_loss_on_all_nodes(bug):
    """The mask of the training nodes is not applied to the loss. After 300 steps val_acc is 1
    instead of 0.711."""
    seed(36)
    g = gen(39)
    n, c = 150, 4
    y = torch.randint(0, c, (n,), generator=g)
    likely = torch.where(y[:, None] == y[None], 0.06, 0.02)
    a = torch.triu((torch.rand(n, n, generator=g) < likely).float(), 1)
    a = a + a.T + torch.eye(n)
    degree = a.sum(1).rsqrt()
    adj = degree[:, None] * a * degree[None]
    x = 0.5 * torch.randn(c, 40, generator=g)[y] + torch.randn(n, 40, generator=g)
    mask = torch.rand(n, generator=g) < 0.4
    tl = [{"x": x, "adj": adj, "y": y, "train_mask": mask, "val_mask": ~mask}]
    m = Graph(40, 24, c)
    opt = torch.optim.Adam(m.parameters(), 1e-2, weight_decay=5e-4)

    def loss_of(model, b):
        out = model(b["x"], b["adj"])
        if bug:
            return F.cross_entropy(out, b["y"])
        return F.cross_entropy(out[b["train_mask"]], b["y"][b["train_mask"]])

    def sums_of(model, b):
        hits = model(b["x"], b["adj"]).argmax(1) == b["y"]
        return {
            f"{part}_acc": (hits[b[f"{part}_mask"]].sum(), b[f"{part}_mask"].sum())
            for part in ("train", "val")
        }

    return set_up(
        m,
        opt,
        tl,
        plain_step(m, opt, loss_of),
        val_loader=tl,
        loss_of=loss_of,
        num_classes=c,
        evaluate=averaged(m, tl, sums_of),
    )
