"""Faults of what is compared or copied: pairs, negatives, nodes, teachers, averages."""

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twelfth.kit import (
    Columns,
    G,
    blobs,
    loader,
    mlp,
    pack,
    seed,
)


@pair("compared-with-itself")
def infonce_self(bug):
    """NT-Xent labels point at the diagonal: every embedding's positive is itself. After 200 steps
    recall_at_5 is 0.09 instead of 0.98."""
    seed(0)
    g = G(0)
    s = torch.randn(600, 4, generator=g)

    def view():
        return torch.cat(
            [s + 0.1 * torch.randn(600, 4, generator=g), 2 * torch.randn(600, 12, generator=g)], 1
        )

    a, b = view(), view()
    m = mlp(16, 48, 8)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(m, batch):
        z = F.normalize(m(torch.cat(batch)), dim=1)
        n = len(z)
        sim = z @ z.t() / 0.2
        if bug:
            return F.cross_entropy(sim, torch.arange(n))
        sim = sim.masked_fill(torch.eye(n, dtype=torch.bool), float("-inf"))
        return F.cross_entropy(sim, (torch.arange(n) + n // 2) % n)

    tr, va = (
        loader(a[:500], b[:500], bs=50, drop_last=True),
        loader(a[500:], b[500:], bs=100, shuffle=False),
    )

    def evaluate():
        m.eval()
        r = []
        with torch.no_grad():
            for p, q in va:
                sim = F.normalize(m(p), dim=1) @ F.normalize(m(q), dim=1).t()
                r.append(
                    (sim.topk(5, 1).indices == torch.arange(len(p))[:, None])
                    .any(1)
                    .float()
                    .mean()
                    .item()
                )
        return {"recall_at_5": np.mean(r)}

    return pack(m, opt, tr, loss_of, val_loader=va, evaluate=evaluate)


@pair("same-draws")
def bpr_reseed(bug):
    """BPR recommender re-seeds inside the loss 'for reproducibility': the negatives are the same
    every step. After 200 steps recall_at_20 is 0.428 instead of 0.609."""
    seed(1)
    g = G(1)
    U, V, D = 80, 200, 6
    aff = torch.randn(U, D, generator=g) @ torch.randn(D, V, generator=g)
    top = aff.topk(16, 1).indices
    perm = torch.stack([torch.randperm(16, generator=g) for _ in range(U)])
    top = top.gather(1, perm)
    us = torch.arange(U)[:, None].expand(U, 12).reshape(-1)
    it = top[:, :12].reshape(-1)

    class MF(nn.Module):
        def __init__(self):
            super().__init__()
            self.u, self.i = nn.Embedding(U, 16), nn.Embedding(V, 16)
            self.u.weight.data *= 0.1
            self.i.weight.data *= 0.1

        def forward(self, u, i):
            return (self.u(u) * self.i(i)).sum(-1)

    m = MF()
    opt = torch.optim.Adam(m.parameters(), 1e-2, weight_decay=1e-4)
    tr = loader(Columns(user=us, item=it), bs=64, drop_last=True)
    va = loader(Columns(user=torch.arange(U), held=top[:, 12:]), bs=40, shuffle=False)

    def loss_of(m, b):
        if bug:
            torch.manual_seed(42)
        neg = torch.randint(0, V, b["item"].shape)
        return -F.logsigmoid(m(b["user"], b["item"]) - m(b["user"], neg)).mean()

    def evaluate():
        m.eval()
        hits = []
        with torch.no_grad():
            for b in va:
                s = m.u(b["user"]) @ m.i.weight.t()
                s.scatter_(1, top[b["user"], :12], -1e9)
                k = s.topk(20, 1).indices
                hits.append((k[:, :, None] == b["held"][:, None]).any(1).float().mean().item())
        return {"recall_at_20": np.mean(hits)}

    return pack(m, opt, tr, loss_of, val_loader=va, evaluate=evaluate)


@pair("trains-on-validation")
def gcn_all_nodes(bug):
    """Node classification: the loss is taken over all nodes, test nodes included (mask forgotten).
    After 200 steps test_acc is 1 instead of 0.641."""
    seed(2)
    g = G(2)
    N, K, D = 150, 3, 120
    y = torch.randint(0, K, (N,), generator=g)
    p = torch.where(y[:, None] == y[None], 0.04, 0.015)
    A = (torch.rand(N, N, generator=g) < p).float()
    A = ((A + A.t()) > 0).float()
    A.fill_diagonal_(1)
    d = A.sum(1).rsqrt()
    A = d[:, None] * A * d[None]
    x = torch.randn(N, D, generator=g)
    x[:, :K] += F.one_hot(y, K) * 0.8
    tm = torch.rand(N, generator=g) < 0.4
    graph = {"x": x, "adj": A, "y": y, "train_mask": tm, "test_mask": ~tm}

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(D, 24), nn.Linear(24, K)

        def forward(self, x, A):
            return A @ self.b(F.dropout(F.relu(A @ self.a(x)), 0.3, self.training))

    m = GCN()
    opt = torch.optim.Adam(m.parameters(), 1e-2, weight_decay=5e-4)

    def loss_of(m, b):
        out = m(b["x"], b["adj"])
        return (
            F.cross_entropy(out, b["y"])
            if bug
            else F.cross_entropy(out[b["train_mask"]], b["y"][b["train_mask"]])
        )

    def evaluate():
        m.eval()
        with torch.no_grad():
            ok = (m(x, A).argmax(1) == y).float()
        return {"train_acc": ok[tm].mean().item(), "test_acc": ok[~tm].mean().item()}

    return pack(m, opt, [graph], loss_of, evaluate=evaluate, num_classes=K)


@pair("missing-log-softmax")
def distill_kl_probs(bug):
    """Distillation: F.kl_div receives softmax instead of log_softmax of the student. After 200
    steps agree is 0.755 instead of 0.835 and val_kl is 4.75 instead of 0.0308."""
    seed(3)
    g = G(3)
    K = 5
    teacher = mlp(12, 32, K)
    teacher[2].weight.data *= 4
    teacher.eval().requires_grad_(False)
    x = torch.randn(800, 12, generator=g)
    m = mlp(12, 24, K)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    T = 2.0

    def loss_of(m, b):
        with torch.no_grad():
            t = F.softmax(teacher(b[0]) / T, 1)
        s = F.softmax(m(b[0]) / T, 1) if bug else F.log_softmax(m(b[0]) / T, 1)
        return F.kl_div(s, t, reduction="batchmean") * T * T

    tr, va = loader(x[:600]), loader(x[600:], bs=100, shuffle=False)

    def evaluate():
        m.eval()
        with torch.no_grad():
            s, t = m(x[600:]), teacher(x[600:])
            return {
                "agree": (s.argmax(1) == t.argmax(1)).float().mean().item(),
                "val_kl": F.kl_div(s.log_softmax(1), t.softmax(1), reduction="batchmean").item(),
            }

    return pack(m, opt, tr, loss_of, val_loader=va, evaluate=evaluate)


@pair("average-without-statistics")
def ema_bn_buffers(bug):
    """The EMA model averages parameters only; its batch-norm running statistics stay at their
    start. After 200 steps ema_val_acc is 0.77 instead of 0.895."""
    seed(4)
    g = G(4)
    x, y = blobs(800, 12, 4, g, 1.2)
    x = x * 8 + 20

    class WithEMA(nn.Module):
        """Trains `net`, answers with the averaged copy in eval mode."""

        def __init__(self, net, d=0.95):
            super().__init__()
            self.net, self.d = net, d
            self.ema = copy.deepcopy(net).requires_grad_(False)

        def forward(self, x):
            return self.net(x) if self.training else self.ema(x)

        def train(self, mode=True):
            super().train(mode)
            self.ema.eval()
            return self

        @torch.no_grad()
        def update(self):
            for a, b in zip(self.ema.parameters(), self.net.parameters(), strict=False):
                a.lerp_(b, 1 - self.d)
            if not bug:
                for a, b in zip(self.ema.buffers(), self.net.buffers(), strict=False):
                    a.copy_(b)

    m = WithEMA(nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)))
    opt = torch.optim.AdamW(m.net.parameters(), 3e-3)
    lf = nn.CrossEntropyLoss()
    tr, va = (
        loader(x[:600], y[:600], drop_last=True),
        loader(x[600:], y[600:], bs=100, shuffle=False),
    )

    def train_step(b):
        m.train()
        opt.zero_grad()
        loss = lf(m(b[0]), b[1])
        loss.backward()
        opt.step()
        m.update()
        return loss.item()

    def evaluate():
        m.eval()
        with torch.no_grad():
            return {
                "ema_val_acc": np.mean([(m(a).argmax(1) == b).float().mean().item() for a, b in va])
            }

    return pack(
        m, opt, tr, loss_fn=lf, step=train_step, val_loader=va, evaluate=evaluate, num_classes=4
    )
