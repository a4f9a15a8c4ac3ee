"""Tables and lists whose losses are likelihoods of unlike kinds."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from tests.debug.sound.odd_kit import G, dl, going, keeping, mlp, still
from tests.debug.sound.programs import sound


def bent(n, s, d=6):
    g = G(s)
    x = torch.rand(n, d, generator=g) * 2 - 1
    return x, torch.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2], g


@sound
def claims_by_exposure():
    """Counts under a log rate plus the log of the exposure; mean Poisson deviance of held rows."""

    def rows(n, s):
        x, f, g = bent(n, s)
        e = 0.2 + 2 * torch.rand(n, generator=g)
        return {
            "x": x,
            "exposure": e,
            "count": torch.poisson(e * (0.5 * f - 0.5).exp(), generator=g),
        }

    class Rows(Dataset):
        def __init__(self, t):
            self.t = t

        def __len__(self):
            return len(self.t["x"])

        def __getitem__(self, i):
            return {k: v[i] for k, v in self.t.items()}

    tl = DataLoader(Rows(rows(1200, 1)), 48, shuffle=True, generator=G(4))
    vl = DataLoader(Rows(rows(500, 2)), 125)
    net = mlp(6, 32, 1)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    nll = nn.PoissonNLLLoss(log_input=True, full=False)

    def log_mean(m, b):
        return m(b["x"])[:, 0] + b["exposure"].log()

    def loss_of(m, b):
        return nll(log_mean(m, b), b["count"])

    def evaluate():
        dev = n = 0
        with still(net):
            for b in vl:
                lm, k = log_mean(net, b), b["count"]
                dev += 2 * (torch.xlogy(k, k) - k * lm - k + lm.exp()).sum().item()
                n += len(k)
        return {"deviance": dev / n}

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "loss_of": loss_of,
        "evaluate": evaluate,
        **keeping(m=net, o=opt),
    }


@sound
def mean_and_spread_with_a_stopped_weight():
    """Beta-NLL: each row's likelihood is weighed by its own variance, out of the graph."""

    def rows(n, s):
        x, f, g = bent(n, s)
        return x, f + (0.1 + 0.3 * x[:, 4].abs()) * torch.randn(n, generator=g)

    tl, vl = dl(*rows(800, 1), bs=50), dl(*rows(400, 2), bs=100, shuffle=False)
    net = mlp(6, 48, 48, 2)
    opt = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=1e-4)

    def nll(out, y):
        return 0.5 * (out[:, 1] + (y - out[:, 0]) ** 2 * (-out[:, 1]).exp())

    def loss_fn(out, y):
        return (out[:, 1].detach().exp() ** 0.5 * nll(out, y)).mean()

    def evaluate():
        with still(net):
            return {"nll": sum(nll(net(x), y).sum().item() for x, y in vl) / 400}

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "loss_fn": loss_fn,
        "evaluate": evaluate,
    }


@sound
def cox_partial_likelihood():
    """Times to an event, a third censored; risk sets are those of the batch; held concordance."""

    def rows(n, s):
        x, f, g = bent(n, s)
        t = -torch.rand(n, generator=g).log() / (1.2 * f).exp()
        c = -torch.rand(n, generator=g).log() * 2
        return x, torch.stack([torch.minimum(t, c), (t <= c).float()], 1)

    tl = dl(*rows(1000, 1), bs=100, drop_last=True)
    vx, vt = rows(300, 2)
    vl = dl(vx, vt, bs=300, shuffle=False)
    net = mlp(6, 32, 1)
    opt = torch.optim.Adam(net.parameters(), 3e-3)

    def cox(risk, te):
        order = te[:, 0].argsort(descending=True)
        r, e = risk[order, 0], te[order, 1]
        return -((r - r.logcumsumexp(0)) * e).sum() / e.sum().clamp(min=1)

    def evaluate():
        with still(net):
            r = net(vx)[:, 0]
        t, e = vt.T
        ok = (t[:, None] < t[None]) & (e[:, None] == 1)
        return {"concordance": (r[:, None] > r[None])[ok].float().mean().item()}

    def step(b):
        net.train()
        opt.zero_grad()
        loss = cox(net(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    return {
        "model": net,
        "loss_fn": cox,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "train_step": step,
        "train": going(tl, step),
        "evaluate": evaluate,
        **keeping(net=net, opt=opt),
    }


class Factors(nn.Module):
    def __init__(self, users, items, d=8):
        super().__init__()
        self.u, self.i = nn.Embedding(users, d, sparse=True), nn.Embedding(items, d, sparse=True)
        self.bu, self.bi = nn.Embedding(users, 1), nn.Embedding(items, 1)
        self.mean = nn.Parameter(torch.zeros(()))
        for e in (self.u, self.i):
            nn.init.normal_(e.weight, std=0.3)
        for e in (self.bu, self.bi):
            nn.init.zeros_(e.weight)

    def forward(self, ui):
        u, i = ui.T
        return (self.u(u) * self.i(i)).sum(1) + self.bu(u)[:, 0] + self.bi(i)[:, 0] + self.mean


@sound
def ratings_with_a_sparse_optimizer():
    """Known users and items, ratings split by rows; SparseAdam for factors, Adam for the rest."""
    U, V = torch.randn(60, 3, generator=G(1)), torch.randn(40, 3, generator=G(2))
    pairs = torch.cartesian_prod(torch.arange(60), torch.arange(40))[
        torch.randperm(2400, generator=G(3))
    ]
    r = (
        (U[pairs[:, 0]] * V[pairs[:, 1]]).sum(1) * 0.7
        + 3.5
        + 0.3 * torch.randn(2400, generator=G(4))
    )
    tl, vl = dl(pairs[:1900], r[:1900], bs=64), dl(pairs[1900:], r[1900:], bs=250, shuffle=False)
    net = Factors(60, 40)
    with torch.no_grad():
        net.mean.copy_(r[:1900].mean())
    opts = [
        torch.optim.SparseAdam([net.u.weight, net.i.weight], 2e-2),
        torch.optim.Adam([net.bu.weight, net.bi.weight, net.mean], 5e-2),
    ]

    def step(b):
        net.train()
        for o in opts:
            o.zero_grad()
        loss = F.mse_loss(net(b[0]), b[1])
        loss.backward()
        for o in opts:
            o.step()
        return loss.item()

    def evaluate():
        with still(net):
            return {"rmse": (sum(((net(x) - y) ** 2).sum().item() for x, y in vl) / 500) ** 0.5}

    return {
        "model": net,
        "loss_fn": nn.MSELoss(),
        "optimizer": opts,
        "train_loader": tl,
        "val_loader": vl,
        "task": "regression",
        "train_step": step,
        "train": going(tl, step),
        "evaluate": evaluate,
        **keeping(net=net, sparse=opts[0], dense=opts[1]),
    }


@sound
def bought_against_drawn_items():
    """BPR: each bought item against one drawn for it in the collate; held hits among 10."""
    U, V = torch.randn(50, 4, generator=G(1)), torch.randn(80, 4, generator=G(2))
    like = (U @ V.T).topk(16, 1).indices
    keep = torch.stack([torch.randperm(16, generator=G(9 + u)) for u in range(50)])
    like = like.gather(1, keep)
    train, held = like[:, :12], like[:, 12:]
    known = torch.zeros(50, 80, dtype=torch.bool).scatter_(1, train, True)
    pos = torch.stack([torch.arange(50).repeat_interleave(12), train.flatten()], 1)
    net = nn.ModuleDict({"user": nn.Embedding(50, 12), "item": nn.Embedding(80, 12)})
    for e in net.values():
        nn.init.normal_(e.weight, std=0.1)
    opt = torch.optim.Adam(net.parameters(), 1e-2)

    def collate(rows):
        ui = torch.stack(rows)
        draw = torch.rand(len(ui), 80).masked_fill(known[ui[:, 0]], -1.0).argmax(1)
        return {"user": ui[:, 0], "bought": ui[:, 1], "other": draw}

    tl = DataLoader(pos, 50, shuffle=True, generator=G(5), collate_fn=collate)

    def loss_of(m, b):
        u = m["user"](b["user"])
        gap = (u * (m["item"](b["bought"]) - m["item"](b["other"]))).sum(1)
        return -F.logsigmoid(gap).mean() + 1e-4 * (u**2).sum(1).mean()

    def evaluate():
        with still(net):
            s = (net["user"].weight @ net["item"].weight.T).masked_fill(known, -1e9)
        top = s.topk(10, 1).indices
        return {"recall_at_10": (held[:, :, None] == top[:, None]).any(2).float().mean().item()}

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "loss_of": loss_of,
        "evaluate": evaluate,
        **keeping(net=net, opt=opt),
    }


@sound
def lists_of_unlike_length():
    """ListNet over padded lists of 4 to 9 documents; the padding is at minus infinity; NDCG."""
    w = torch.randn(6, generator=G(1))

    def lists(n, s):
        g = G(s)
        x = torch.randn(n, 9, 6, generator=g)
        has = torch.arange(9)[None] < torch.randint(4, 10, (n, 1), generator=g)
        rel = ((x @ w + 0.5 * torch.randn(n, 9, generator=g)).clamp(0, 4)).round()
        return x * has[..., None], rel * has, has

    tl, vl = dl(*lists(300, 1), bs=25), dl(*lists(150, 2), bs=50, shuffle=False)
    net = mlp(6, 24, 1)
    opt = torch.optim.Adam(net.parameters(), 3e-3)

    def loss_of(m, b):
        x, rel, has = b
        z = m(x)[..., 0].masked_fill(~has, -1e9)
        want = rel.masked_fill(~has, -1e9).softmax(1)
        return -(want * z.log_softmax(1))[has].sum() / len(x)

    def evaluate():
        total = n = 0.0
        disc = 1 / torch.log2(torch.arange(9) + 2.0)
        with still(net):
            for x, rel, has in vl:
                gain = (2**rel - 1) * has
                best = (gain.sort(1, descending=True).values * disc).sum(1)
                by = net(x)[..., 0].masked_fill(~has, -1e9).argsort(1, descending=True)
                some = best > 0
                total += ((gain.gather(1, by) * disc).sum(1)[some] / best[some]).sum().item()
                n += some.sum().item()
        return {"ndcg": total / n}

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "loss_of": loss_of,
        "evaluate": evaluate,
        **keeping(net=net, opt=opt),
    }
