"""Ten more of the fourteenth set: signs, masks, closures, carried states, estimates."""

import math
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.faulty.fourteenth.kit import (
    acc,
    blobs,
    columns,
    curve,
    loader,
    mean_eval,
    mlp,
    pairloss,
    plain_step,
    seed,
    set_up,
    sq,
)
from tests.debug.sound.programs import sound


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, g):
        return g * (ctx.saved_tensors[0].abs() <= 1)


@sound
def binary_network():
    """Weights are used as signs with a straight-through gradient; the real weights are clamped to
    [-1,1] after the step."""
    seed(111)
    tr, va = loader(*blobs(500, 43), s=111), loader(*blobs(200, 44), bs=64, shuffle=False)

    class Bin(nn.Linear):
        def forward(self, x):
            return F.linear(x, Sign.apply(self.weight) / math.sqrt(self.in_features), self.bias)

    model = nn.Sequential(Bin(10, 48), nn.BatchNorm1d(48), nn.Hardtanh(), Bin(48, 6))
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_fn = nn.CrossEntropyLoss()
    base = plain_step(model, opt, pairloss(loss_fn))

    def step(b):
        loss = base(b)
        with torch.no_grad():
            model[0].weight.clamp_(-1, 1)
            model[3].weight.clamp_(-1, 1)
        return loss

    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        num_classes=6,
        evaluate=mean_eval(model, va, {"acc": acc}),
    )


@sound
def sparse_tables_dense_head():
    """SparseAdam for the tables (only the rows of the batch move), Adam for the head."""
    seed(112)
    users, items = 60, 40
    P, Q = torch.randn(users, 3), torch.randn(items, 3)
    u, i = torch.randint(0, users, (4000,)), torch.randint(0, items, (4000,))
    r = ((P[u] * Q[i]).sum(1) > 0).float()
    tr, va = (
        columns(bs=64, s=112, u=u[:3400], i=i[:3400], y=r[:3400]),
        columns(bs=100, shuffle=False, u=u[3400:], i=i[3400:], y=r[3400:]),
    )

    class Rec(nn.Module):
        def __init__(self):
            super().__init__()
            self.u, self.i = (
                nn.Embedding(users, 4, sparse=True),
                nn.Embedding(items, 4, sparse=True),
            )
            self.h = nn.Linear(4, 1)
            nn.init.normal_(self.u.weight, 0, 0.4)
            nn.init.normal_(self.i.weight, 0, 0.4)

        def forward(self, b):
            return self.h(self.u(b["u"]) * self.i(b["i"]))[:, 0]

    model = Rec()
    o1, o2 = (
        torch.optim.SparseAdam([model.u.weight, model.i.weight], 2e-2),
        torch.optim.Adam(model.h.parameters(), 5e-3),
    )

    def loss_of(m, b):
        return F.binary_cross_entropy_with_logits(m(b), b["y"])

    def step(b):
        o1.zero_grad()
        o2.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        o1.step()
        o2.step()
        return loss.item()

    return set_up(
        model,
        [o1, o2],
        tr,
        step,
        val_loader=va,
        loss_of=loss_of,
        evaluate=mean_eval(model, va, {"acc": lambda m, b: (m(b) > 0) == (b["y"] > 0.5)}),
    )


@sound
def lbfgs_two_rounds_a_step():
    """LBFGS with a closure: several forwards a step, one batch an epoch."""
    seed(113)
    tr, va = (
        loader(*curve(400, 45), bs=400, shuffle=False),
        loader(*curve(100, 46), bs=50, shuffle=False),
    )
    model = mlp(6, 12, 1, act=nn.Tanh)
    opt = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=2, history_size=10)
    loss_fn = nn.MSELoss()
    wd = 1e-3

    def step(b):
        model.train()

        def closure():
            opt.zero_grad()
            loss = loss_fn(model(b[0]), b[1]) + wd * sum((p**2).sum() for p in model.parameters())
            loss.backward()
            return loss

        return opt.step(closure).item()

    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        evaluate=mean_eval(model, va, {"mse": sq}),
    )


@sound
def stateful_truncated_bptt():
    """Ordered batches of 8 parallel streams; the (detached) state is carried from batch to batch
    and cleared when the streams begin again."""
    seed(114)
    bits = (torch.rand(10, 400) < 0.06).float() * torch.where(torch.rand(10, 400) < 0.5, 1.0, -1.0)
    bits[:, 0] = 1.0
    y = bits.clone()
    for k in range(1, 400):  # a latch: the sign of the last pulse
        y[:, k] = torch.where(bits[:, k] == 0, y[:, k - 1], bits[:, k])
    y = (y > 0).float()

    def cut(s):
        return [
            {"x": bits[s, k : k + 10, None], "y": y[s, k : k + 10], "first": k == 0}
            for k in range(0, 400, 10)
        ]

    tr, va = cut(slice(0, 8)), cut(slice(8, 10))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.r = nn.GRU(1, 12, batch_first=True)
            self.o = nn.Linear(12, 1)

        def forward(self, x, h=None):
            o, h = self.r(x, h)
            return self.o(o)[..., 0], h

    model = Net()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    st = {"h": None}

    def step(b):
        if b["first"]:
            st["h"] = None
        model.train()
        opt.zero_grad()
        o, h = model(b["x"], st["h"])
        loss = F.binary_cross_entropy_with_logits(o, b["y"])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        st["h"] = h.detach()
        return loss.item()

    def evaluate():
        model.eval()
        h, ok, n = None, 0.0, 0
        with torch.no_grad():
            for b in va:
                o, h = model(b["x"], None if b["first"] else h)
                ok += ((o > 0) == (b["y"] > 0.5)).sum().item()
                n += o.numel()
        model.train()
        return {"latch_acc": ok / n}

    return set_up(
        model, opt, tr, step, val_loader=va, evaluate=evaluate, declared={"max_grad_norm": 1.0}
    )


@sound
def evolution_strategy():
    """No backward at all: .grad is estimated from antithetic perturbations of the weights and given
    to Adam."""
    seed(115)
    tr, va = (
        loader(*blobs(400, 51, K=3, d=6), s=115),
        loader(*blobs(200, 52, K=3, d=6), bs=64, shuffle=False),
    )
    model = nn.Linear(6, 3).requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), 3e-2)
    ps = list(model.parameters())
    loss_fn = nn.CrossEntropyLoss()

    @torch.no_grad()
    def step(b):
        w = nn.utils.parameters_to_vector(ps)

        def f(v):
            nn.utils.vector_to_parameters(v, ps)
            return loss_fn(model(b[0]), b[1]).item()

        start = f(w.clone())
        g = torch.zeros_like(w)
        for _ in range(8):
            e = torch.randn_like(w)
            g += e * (f(w + 0.05 * e) - f(w - 0.05 * e)) / (2 * 0.05 * 8)
        nn.utils.vector_to_parameters(w.clone(), ps)
        k = 0
        for p in ps:
            p.grad = g[k : k + p.numel()].view_as(p).clone()
            k += p.numel()
        opt.step()
        opt.zero_grad()
        return start

    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        num_classes=3,
        evaluate=mean_eval(model, va, {"acc": acc}),
    )


@sound
def lottery_ticket_mask():
    """Four fifths of the first weights are pruned: a mask holds them at zero after every step."""
    seed(116)
    tr, va = loader(*blobs(500, 53), s=116), loader(*blobs(200, 54), bs=64, shuffle=False)
    model = mlp(10, 64, 6)
    mask = (torch.rand(64, 10) < 0.2).float()
    with torch.no_grad():
        model[0].weight.mul_(mask)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_fn = nn.CrossEntropyLoss()
    base = plain_step(model, opt, pairloss(loss_fn))

    def step(b):
        loss = base(b)
        with torch.no_grad():
            model[0].weight.mul_(mask)
        return loss

    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        num_classes=6,
        evaluate=mean_eval(model, va, {"acc": acc}),
    )


@sound
def single_rows_accumulated():
    """Batches of one row with GroupNorm; an update every eighth call, the rest of the calls only
    add gradients."""
    seed(117)
    tr, va = loader(*curve(320, 55), bs=1, s=117), loader(*curve(100, 56), bs=30, shuffle=False)
    model = nn.Sequential(nn.Linear(6, 32), nn.GroupNorm(4, 32), nn.ReLU(), nn.Linear(32, 1))
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loss_fn = nn.MSELoss()
    k = {"n": 0}

    def step(b):
        model.train()
        loss = loss_fn(model(b[0]), b[1])
        (loss / 8).backward()
        k["n"] += 1
        if k["n"] % 8 == 0:
            opt.step()
            opt.zero_grad()
        return loss.item()

    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        evaluate=mean_eval(model, va, {"mse": sq}),
        declared={"accumulate": 8},
    )


@sound
def length_curriculum():
    """The loader is not shuffled: short sums first, long ones later, again in every epoch; the loss
    jumps up within an epoch."""
    seed(118)

    def rows(n):
        xs = [torch.rand(random.randint(2, 10)) for _ in range(n)]
        return [(x, x.sum()) for x in xs]

    def collate(b):
        L = torch.tensor([len(x) for x, _ in b])
        return {
            "x": nn.utils.rnn.pad_sequence([x for x, _ in b], batch_first=True),
            "len": L,
            "y": torch.stack([y for _, y in b]),
        }

    tr, va = (
        DataLoader(sorted(rows(400), key=lambda r: len(r[0])), 20, collate_fn=collate),
        DataLoader(rows(100), 16, collate_fn=collate),
    )

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.r = nn.GRU(1, 16, batch_first=True)
            self.o = nn.Linear(16, 1)

        def forward(self, b):
            o, _ = self.r(b["x"][..., None])
            return self.o(o[torch.arange(len(o)), b["len"] - 1])[:, 0]

    def loss_of(m, b):
        return F.smooth_l1_loss(m(b), b["y"])

    model = Net()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
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


@sound
def mixup_with_smoothing():
    """Mixup and label smoothing: the training loss has a high floor and lies above the validation
    loss."""
    seed(119)
    tr, va = loader(*blobs(500, 57), s=119), loader(*blobs(200, 58), bs=64, shuffle=False)
    model = mlp(10, 48, 6)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)

    def step(b):
        x, y = b
        lam = float(np.random.beta(0.4, 0.4))
        p = torch.randperm(len(x))
        model.train()
        opt.zero_grad()
        o = model(lam * x + (1 - lam) * x[p])
        loss = lam * loss_fn(o, y) + (1 - lam) * loss_fn(o, y[p])
        loss.backward()
        opt.step()
        return loss.item()

    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        num_classes=6,
        evaluate=mean_eval(model, va, {"acc": acc}),
        declared={"label_smoothing": 0.1},
    )


@sound
def pinball_upper_quantile():
    """Predicts the 90% quantile, so predictions lie above nine targets in ten by design."""
    seed(120)

    def f(s, n):
        x, y = curve(n, s)
        over = torch.distributions.Exponential(1.0).sample((n, 1))
        return x, y + over * (1 + x[:, :1].abs())

    tr, va = loader(*f(59, 600), s=120), loader(*f(60, 300), bs=64, shuffle=False)

    def loss_fn(o, y):
        return torch.maximum(0.9 * (y - o), -0.1 * (y - o)).mean()

    model = mlp(6, 32, 1)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
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
                "coverage": lambda m, b: b[1] <= m(b[0]),
                "pinball": lambda m, b: torch.maximum(
                    0.9 * (b[1] - m(b[0])), -0.1 * (b[1] - m(b[0]))
                ),
            },
        ),
    )
