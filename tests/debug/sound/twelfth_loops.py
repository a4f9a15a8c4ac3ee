"""Ten more of the twelfth set: loops, averages and optimizers of unusual make."""

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

from tests.debug.faulty.twelfth.kit import (
    Columns,
    G,
    blobs,
    loader,
    mean_loss,
    mlp,
    pack,
    regression,
    seed,
)
from tests.debug.sound.programs import sound


@sound
def byol_moved_by_averages():
    """BYOL: no negatives, target branch has no gradient and is not in the optimizer; it moves by
    EMA only."""
    seed(110)
    g = G(110)
    s = torch.randn(600, 4, generator=g)
    mixm = torch.randn(4, 16, generator=g)
    x = s @ mixm

    class BYOL(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(
                nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8)
            )
            self.pred = nn.Sequential(
                nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8)
            )
            self.target = copy.deepcopy(self.net).requires_grad_(False)

        def forward(self, x):
            return self.net(x)

    m = BYOL()
    opt = torch.optim.Adam([*m.net.parameters(), *m.pred.parameters()], 2e-3)
    tr = loader(x[:512], bs=64)

    def loss_of(m, b):
        a, c = (b[0] + 0.3 * torch.randn_like(b[0]) for _ in range(2))

        def d(p, t):
            return 2 - 2 * F.cosine_similarity(m.pred(m.net(p)), m.target(t).detach()).mean()

        return d(a, c) + d(c, a)

    def train_step(b):
        m.train()
        opt.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        opt.step()
        with torch.no_grad():
            for p, q in zip(m.target.parameters(), m.net.parameters(), strict=False):
                p.lerp_(q, 0.02)
        return loss.item()

    def evaluate():
        m.eval()
        with torch.no_grad():
            h = m(x)
            w = torch.linalg.lstsq(h[:400], s[:400]).solution
            r = ((h[400:] @ w - s[400:]) ** 2).mean() / s[400:].var()
        m.train()
        return {"probe_r2": 1 - r.item(), "embed_std": F.normalize(h, dim=1).std(0).mean().item()}

    return pack(m, opt, tr, loss_of, step=train_step, evaluate=evaluate)


@sound
def ema_eval():
    """Evaluates and saves averaged weights: swaps them in for evaluation and back afterwards."""
    seed(111)
    g = G(111)
    x, y = regression(g, 800, 10, 2, 0.3)
    m = mlp(10, 48, 2)
    opt = torch.optim.SGD(m.parameters(), 0.1)
    lf = nn.MSELoss()
    tr, va = loader(x[:640], y[:640], bs=16), loader(x[640:], y[640:], bs=80, shuffle=False)
    avg = torch.optim.swa_utils.AveragedModel(
        m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.98)
    )

    def train_step(b):
        m.train()
        opt.zero_grad()
        loss = lf(m(b[0]), b[1])
        loss.backward()
        opt.step()
        avg.update_parameters(m)
        return loss.item()

    def evaluate():
        live = copy.deepcopy(m.state_dict())
        m.load_state_dict(avg.module.state_dict())
        v = mean_loss(m, va, lambda m, b: lf(m(b[0]), b[1]))
        m.load_state_dict(live)
        return {"val_mse_ema": v}

    def save(path):
        torch.save({"m": m.state_dict(), "o": opt.state_dict(), "a": avg.state_dict()}, path)

    def load(path):
        s = torch.load(path)
        m.load_state_dict(s["m"])
        opt.load_state_dict(s["o"])
        avg.load_state_dict(s["a"])

    return pack(
        m,
        opt,
        tr,
        loss_fn=lf,
        step=train_step,
        val_loader=va,
        evaluate=evaluate,
        save=save,
        load=load,
    )


@sound
def zero_init_residual():
    """Residual branches and the head start at exact zero (as in ReZero/Fixup): some gradients are
    zero at step one only."""
    seed(112)
    g = G(112)
    x, y = regression(g, 800, 10, 1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.g = (
                nn.Linear(32, 32),
                nn.Linear(32, 32),
                nn.Parameter(torch.zeros(())),
            )

        def forward(self, h):
            return h + self.g * self.b(F.relu(self.a(h)))

    head = nn.Linear(32, 1)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    m = nn.Sequential(nn.Linear(10, 32), Block(), Block(), head)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    lf = nn.MSELoss()
    tr, va = loader(x[:640], y[:640]), loader(x[640:], y[640:], bs=80, shuffle=False)
    return pack(
        m,
        opt,
        tr,
        loss_fn=lf,
        val_loader=va,
        evaluate=lambda: {"val_mse": mean_loss(m, va, lambda m, b: lf(m(b[0]), b[1]))},
    )


@sound
def lbfgs_fullbatch():
    """LBFGS with a closure on one full batch that never changes (no shuffling, one batch an
    epoch)."""
    seed(113)
    g = G(113)
    x, y = regression(g, 300, 6, 1)
    m = mlp(6, 12, 1, nn.Tanh)
    opt = torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=4, history_size=10)
    lf = nn.MSELoss()
    tr, va = [(x[:200], y[:200])], [(x[200:], y[200:])]

    def train_step(b):
        def closure():
            opt.zero_grad()
            loss = lf(m(b[0]), b[1]) + 1e-4 * sum((p**2).sum() for p in m.parameters())
            loss.backward()
            return loss

        return opt.step(closure).item()

    return pack(
        m,
        opt,
        tr,
        loss_fn=lf,
        step=train_step,
        val_loader=va,
        evaluate=lambda: {"val_mse": mean_loss(m, va, lambda m, b: lf(m(b[0]), b[1]))},
    )


@sound
def mc_dropout():
    """Monte-Carlo dropout: evaluation keeps dropout on, on purpose, and averages 16 passes (a
    little random)."""
    seed(114)
    g = G(114)
    x, y = regression(g, 800, 8, 1)
    m = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    lf = nn.MSELoss()
    tr, va = loader(x[:640], y[:640]), loader(x[640:], y[640:], bs=160, shuffle=False)

    def evaluate():
        m.train()  # dropout stays on: MC estimate
        with torch.no_grad():
            ps = torch.stack([m(x[640:]) for _ in range(16)])
        return {
            "mc_rmse": F.mse_loss(ps.mean(0), y[640:]).sqrt().item(),
            "mc_std": ps.std(0).mean().item(),
        }

    return pack(m, opt, tr, loss_fn=lf, val_loader=va, evaluate=evaluate)


@sound
def soft_labels():
    """Crowd-annotated targets are probability vectors; cross-entropy takes them as they are, its
    floor is the label entropy."""
    seed(115)
    g = G(115)
    K = 4
    x = torch.randn(800, 10, generator=g)
    p = torch.softmax(x @ torch.randn(10, K, generator=g) * 0.5, 1)
    votes = torch.distributions.Multinomial(8, p).sample() / 8
    m = mlp(10, 32, K)
    opt = torch.optim.AdamW(m.parameters(), 3e-3, weight_decay=1e-2)
    lf = nn.CrossEntropyLoss()
    tr, va = loader(x[:640], votes[:640]), loader(x[640:], votes[640:], bs=80, shuffle=False)
    return pack(
        m,
        opt,
        tr,
        loss_fn=lf,
        val_loader=va,
        evaluate=lambda: {"val_ce": mean_loss(m, va, lambda m, b: lf(m(b[0]), b[1]))},
        num_classes=K,
    )


@sound
def stream_iterable():
    """Endless synthetic stream: every pass gives new samples, so no two epochs agree and there is
    no length."""
    seed(116)
    gw = torch.randn(6, 1, generator=G(116))

    class Stream(IterableDataset):
        def __iter__(self):
            while True:
                x = torch.randn(6)
                yield x, torch.sin(x @ gw)

    class Take:
        def __init__(self, n):
            self.dl, self.n = DataLoader(Stream(), 32), n

        def __iter__(self):
            for _i, b in zip(range(self.n), self.dl, strict=False):
                yield b

    tr = Take(25)
    xv = torch.randn(300, 6, generator=G(7))
    va = [(xv, torch.sin(xv @ gw))]
    m = mlp(6, 48, 1, nn.Tanh)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    lf = nn.MSELoss()
    return pack(
        m,
        opt,
        tr,
        loss_fn=lf,
        val_loader=va,
        evaluate=lambda: {"val_mse": mean_loss(m, va, lambda m, b: lf(m(b[0]), b[1]))},
    )


@sound
def sparse_two_optimizers():
    """Recommender: sparse embeddings with SparseAdam, dense tower with Adam, both stepped each
    batch; rows not in the batch rest."""
    seed(117)
    g = G(117)
    U, V, n = 60, 70, 1000
    u, i = torch.randint(0, U, (n,), generator=g), torch.randint(0, V, (n,), generator=g)
    r = ((torch.randn(U, 2, generator=g)[u] * torch.randn(V, 2, generator=g)[i]).sum(1) > 0).float()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.u, self.i, self.t = (
                nn.Embedding(U, 8, sparse=True),
                nn.Embedding(V, 8, sparse=True),
                mlp(24, 32, 1),
            )

        def forward(self, u, i):
            a, b = self.u(u), self.i(i)
            return self.t(torch.cat([a, b, a * b], 1)).squeeze(-1)

    m = Net()
    os, od = (
        torch.optim.SparseAdam([m.u.weight, m.i.weight], 1e-2),
        torch.optim.Adam(m.t.parameters(), 3e-3),
    )
    tr, va = (
        loader(Columns(user=u[:850], item=i[:850], click=r[:850])),
        loader(Columns(user=u[850:], item=i[850:], click=r[850:]), bs=50, shuffle=False),
    )

    def loss_of(m, b):
        return F.binary_cross_entropy_with_logits(m(b["user"], b["item"]), b["click"])

    def train_step(b):
        m.train()
        [o.zero_grad() for o in (os, od)]
        loss = loss_of(m, b)
        loss.backward()
        os.step()
        od.step()
        return loss.item()

    def evaluate():
        m.eval()
        with torch.no_grad():
            return {
                "val_acc": np.mean(
                    [
                        ((m(b["user"], b["item"]) > 0).float() == b["click"]).float().mean().item()
                        for b in va
                    ]
                )
            }

    return pack(m, [os, od], tr, loss_of, step=train_step, val_loader=va, evaluate=evaluate)


@sound
def sam():
    """Sharpness-aware minimisation: two backward passes an update, weights are moved up and put
    back in between."""
    seed(118)
    g = G(118)
    x, y = blobs(600, 12, 3, g, 1.3)
    m = mlp(12, 32, 3)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    lf = nn.CrossEntropyLoss()
    tr, va = loader(x[:450], y[:450]), loader(x[450:], y[450:], bs=50, shuffle=False)

    def train_step(b):
        m.train()
        opt.zero_grad()
        loss = lf(m(b[0]), b[1])
        loss.backward()
        ps = list(m.parameters())
        with torch.no_grad():
            k = 0.05 / (torch.stack([p.grad.norm() for p in ps]).norm() + 1e-12)
            es = [p.grad * k for p in ps]
            for p, e in zip(ps, es, strict=False):
                p.add_(e)
        opt.zero_grad()
        lf(m(b[0]), b[1]).backward()
        with torch.no_grad():
            for p, e in zip(ps, es, strict=False):
                p.sub_(e)
        opt.step()
        return loss.item()

    def evaluate():
        m.eval()
        with torch.no_grad():
            return {"val_acc": (m(x[450:]).argmax(1) == y[450:]).float().mean().item()}

    return pack(
        m, opt, tr, loss_fn=lf, step=train_step, val_loader=va, evaluate=evaluate, num_classes=3
    )


@sound
def gradient_reversal():
    """Domain-adversarial training: a layer flips the gradient's sign on purpose; half of the rows
    have no label (-1) and are masked."""
    seed(119)
    g = G(119)
    x, y = blobs(800, 10, 3, g, 1.0)
    dom = (torch.arange(800) % 2).float()
    x = x + dom[:, None] * torch.randn(10, generator=g)
    lab = torch.where(dom == 0, y, -1)

    class Rev(torch.autograd.Function):
        @staticmethod
        def forward(ctx, h):
            return h.view_as(h)

        @staticmethod
        def backward(ctx, gr):
            return -0.3 * gr

    class DANN(nn.Module):
        def __init__(self):
            super().__init__()
            self.f, self.c, self.d = (
                nn.Sequential(nn.Linear(10, 32), nn.ReLU()),
                nn.Linear(32, 3),
                mlp(32, 16, 1),
            )

        def forward(self, x):
            h = self.f(x)
            return self.c(h), self.d(Rev.apply(h)).squeeze(-1)

    m = DANN()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tr, va = (
        loader(Columns(x=x[:600], y=lab[:600], domain=dom[:600])),
        loader(Columns(x=x[600:], y=y[600:], domain=dom[600:]), bs=50, shuffle=False),
    )

    def loss_of(m, b):
        c, d = m(b["x"])
        k = b["y"] >= 0
        return F.cross_entropy(c[k], b["y"][k]) + F.binary_cross_entropy_with_logits(d, b["domain"])

    def evaluate():
        m.eval()
        with torch.no_grad():
            return {
                "target_acc": np.mean(
                    [
                        (m(b["x"])[0].argmax(1) == b["y"])[b["domain"] == 1].float().mean().item()
                        for b in va
                    ]
                )
            }

    return pack(m, opt, tr, loss_of, step=None, val_loader=va, evaluate=evaluate, num_classes=3)
