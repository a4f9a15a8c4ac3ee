"""Laws, episodes, processes and rows that come again by nature."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.sound.odd_kit import G, dl, keeping, mlp, still
from tests.debug.sound.odd_scores import pairs, rows
from tests.debug.sound.programs import sound


@sound
def many_labels_by_their_own_thresholds():
    """Six labels, half of them rare; thresholds from a third set; macro F1 over the whole held
    set."""
    w = torch.randn(12, 6, generator=G(1))
    cut = torch.tensor([0.0, 0.0, 0.5, 4.0, 5.0, 5.0])

    def make(n, s):
        x = torch.randn(n, 12, generator=G(s))
        return x, (x @ w + torch.randn(n, 6, generator=G(s + 50)) > cut).float()

    tl, (cx, cy), (vx, vy) = dl(*make(900, 1), bs=45), make(500, 2), make(400, 3)
    vl = dl(vx, vy, bs=80, shuffle=False)
    net = mlp(12, 64, 6)
    opt = torch.optim.Adam(net.parameters(), 4e-3)
    grid = torch.linspace(0.1, 0.8, 15)

    def f1(pred, y):
        tp = (pred * y).sum(0)
        return 2 * tp / (pred.sum(0) + y.sum(0)).clamp(min=1)

    def evaluate():
        with still(net):
            pc, pv = net(cx).sigmoid(), torch.cat([net(a) for a, _ in vl]).sigmoid()
        best = grid[torch.stack([f1((pc > t).float(), cy) for t in grid]).argmax(0)]
        return {"macro_f1": f1((pv > best).float(), vy).mean().item()}

    return pairs(net, nn.BCEWithLogitsLoss(), opt, tl, vl, evaluate, task="multilabel")


@sound
def weights_drawn_from_a_learned_law():
    """Bayes by backprop: each forward draws weights; the KL is divided by the rows of the set;
    means are scored."""

    class Law(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.m, self.r, self.b = (
                nn.Parameter(torch.randn(b, a) / a**0.5),
                nn.Parameter(torch.full((b, a), -4.0)),
                nn.Parameter(torch.zeros(b)),
            )

        def forward(self, x):
            w = self.m + F.softplus(self.r) * torch.randn_like(self.m) if self.training else self.m
            return F.linear(x, w, self.b)

        def kl(self):
            s = F.softplus(self.r)
            return (s.square() + self.m**2 - 1 - 2 * s.log()).sum() / 2

    tl, vl = rows()
    net = nn.Sequential(Law(12, 48), nn.ReLU(), Law(48, 5))
    opt = torch.optim.Adam(net.parameters(), 5e-3)

    def loss_of(m, b):
        return F.cross_entropy(m(b[0]), b[1]) + (m[0].kl() + m[2].kl()) / 800 * 0.1

    def evaluate():
        with still(net):
            return {"accuracy": sum((net(x).argmax(1) == y).sum().item() for x, y in vl) / 300}

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "num_classes": 5,
        "loss_of": loss_of,
        "evaluate": evaluate,
    }


@sound
def episodes_of_new_kinds():
    """Prototypes: a batch is an episode of 4 kinds of 30, 5 shown and 5 asked; held episodes are of
    other kinds."""
    c = torch.cat([1.2 * torch.randn(45, 8, generator=G(1)), torch.zeros(45, 8)], 1)

    def episode(kinds, g=None):
        k = kinds[torch.randperm(len(kinds), generator=g)[:4]]
        x = c[k][:, None] + torch.cat(
            [0.8 * torch.randn(4, 10, 8, generator=g), 3 * torch.randn(4, 10, 8, generator=g)], 2
        )
        return x[:, :5], x[:, 5:].flatten(0, 1), torch.arange(4).repeat_interleave(5)

    class Episodes(torch.utils.data.IterableDataset):
        def __iter__(self):
            return (episode(torch.arange(30)) for _ in range(50))

    g = G(5)
    held = [episode(torch.arange(30, 45), g) for _ in range(20)]
    tl = DataLoader(Episodes(), batch_size=None)
    net = mlp(16, 64, 16)
    opt = torch.optim.Adam(net.parameters(), 2e-3)

    def logits(m, b):
        return -torch.cdist(m(b[1]), m(b[0]).mean(1)).square()

    def evaluate():
        with still(net):
            return {
                "accuracy": sum((logits(net, b).argmax(1) == b[2]).sum().item() for b in held) / 400
            }

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": held,
        "loss_of": lambda m, b: F.cross_entropy(logits(m, b), b[2]),
        "evaluate": evaluate,
        **keeping(net=net, opt=opt),
    }


@sound
def distances_learned_for_one_kind():
    """Deep SVDD: rows of the normal kind drawn to a fixed centre, no biases; AUC on held rows of
    both."""
    c = torch.randn(4, 10, generator=G(3))
    g = G(4)
    x = torch.randn(600, 4, generator=g) @ c + 0.1 * torch.randn(600, 10, generator=g)
    good = torch.randn(150, 4, generator=g) @ c + 0.1 * torch.randn(150, 10, generator=g)
    bad = good + 1.0 * torch.randn(150, 10, generator=g)
    vx, vy = torch.cat([good, bad]), torch.cat([torch.zeros(150), torch.ones(150)])
    net = nn.Sequential(
        nn.Linear(10, 32, bias=False), nn.LeakyReLU(0.1), nn.Linear(32, 8, bias=False)
    )
    with torch.no_grad():
        centre = net(x).mean(0)
        centre = torch.where(centre.abs() < 0.1, 0.1 * torch.where(centre < 0, -1.0, 1.0), centre)
    tl, vl = DataLoader(x, 40, shuffle=True, generator=G(6)), dl(vx, vy, bs=100, shuffle=False)
    opt = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=1e-3)

    def evaluate():
        with still(net):
            d = torch.cat([(net(a) - centre).square().sum(1) for a, _ in vl])
        return {"auc": (d[vy == 1][:, None] > d[vy == 0][None]).float().mean().item()}

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "loss_of": lambda m, x: (m(x) - centre).square().sum(1).mean(),
        "evaluate": evaluate,
    }


@sound
def a_process_of_one_covariance():
    """A Gaussian process: all 60 rows at once, the loss is the marginal likelihood over rows; held
    RMSE."""

    def make(n, s):
        x = 6 * torch.rand(n, 1, generator=G(s)).double() - 3
        return x, torch.sin(2 * x[:, 0]) + 0.3 * x[:, 0] + 0.1 * torch.randn(
            n, generator=G(s + 5)
        ).double()

    x, y = make(60, 1)
    vx, vy = make(80, 2)

    class GP(nn.Module):
        def __init__(self):
            super().__init__()
            self.log = nn.Parameter(torch.tensor([0.5, 0.0, -0.5], dtype=torch.double))

        def k(self, a, b):
            return (2 * self.log[1]).exp() * (
                -0.5 * torch.cdist(a, b).square() / (2 * self.log[0]).exp()
            ).exp()

        def factor(self, x):
            return torch.linalg.cholesky(
                self.k(x, x) + ((2 * self.log[2]).exp() + 1e-6) * torch.eye(len(x)).double()
            )

        def forward(self, x, y):
            L = self.factor(x)
            return (
                0.5 * y @ torch.cholesky_solve(y[:, None], L)[:, 0]
                + L.diagonal().log().sum()
                + 0.5 * len(y) * math.log(2 * math.pi)
            )

    net = GP()
    opt = torch.optim.Adam(net.parameters(), 3e-2)

    def evaluate():
        with still(net):
            m = net.k(vx, x) @ torch.cholesky_solve(y[:, None], net.factor(x))[:, 0]
        return {"rmse": (m - vy).square().mean().sqrt().item()}

    tl = DataLoader([(x, y)], batch_size=None)
    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "loss_of": lambda m, b: m(*b) / len(b[1]),
        "evaluate": evaluate,
        **keeping(net=net, opt=opt),
    }


@sound
def a_table_of_few_answers():
    """Five questions with three answers each, 243 possible rows: held rows repeat known ones by
    nature; labels are noisy."""
    w = torch.randn(15, 3, generator=G(9))

    def make(n, s):
        g = G(s)
        x = F.one_hot(torch.randint(3, (n, 5), generator=g), 3).flatten(1).float()
        return x, (x @ w).softmax(1).multinomial(1, generator=g)[:, 0]

    tl, vl = dl(*make(900, 1), bs=45), dl(*make(400, 2), bs=100, shuffle=False)
    net = mlp(15, 24, 3)
    opt = torch.optim.Adam(net.parameters(), 3e-3)

    def evaluate():
        hit = c = 0
        with still(net):
            for x, y in vl:
                z = net(x)
                hit, c = (
                    hit + (z.argmax(1) == y).sum().item(),
                    c + F.cross_entropy(z, y, reduction="sum").item(),
                )
        return {"accuracy": hit / 400, "loss": c / 400}

    return pairs(
        net,
        nn.CrossEntropyLoss(),
        opt,
        tl,
        vl,
        evaluate,
        num_classes=3,
        **keeping(net=net, opt=opt),
    )


@sound
def the_next_word_after_two():
    """A two-word context tells the next word; contexts come back in held text as they must."""
    V = 12
    law = (2 * torch.randn(V, V, V, generator=G(1))).softmax(2)

    def make(n, s):
        g = G(s)
        out = [0, 1]
        for _ in range(n):
            out.append(int(law[out[-2], out[-1]].multinomial(1, generator=g)))
        t = torch.tensor(out)
        return torch.stack([t[:-2], t[1:-1]], 1), t[2:]

    tl, vl = dl(*make(2000, 1), bs=50), dl(*make(600, 2), bs=100, shuffle=False)
    net = nn.Sequential(nn.Embedding(V, 16), nn.Flatten(), mlp(32, 64, V))
    opt = torch.optim.Adam(net.parameters(), 1e-2)

    def evaluate():
        with still(net):
            c = sum(F.cross_entropy(net(x), y, reduction="sum").item() for x, y in vl) / 600
        return {"perplexity": float(torch.tensor(c).exp())}

    return pairs(net, nn.CrossEntropyLoss(), opt, tl, vl, evaluate, num_classes=V)
