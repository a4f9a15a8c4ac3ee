"""Faults of steps: gradients, schedules, weights, modes, and what the optimizer holds."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twelfth.kit import (
    Columns,
    G,
    blobs,
    loader,
    mean_loss,
    mlp,
    pack,
    plain_step,
    pretrained,
    regression,
    seed,
)


@pair("grads-cleared-before-step")
def accum_lost(bug):
    """Gradient accumulation over 4 micro-batches with zero_grad inside the micro loop. After 200
    steps val_mse is 0.256 instead of 0.215."""
    seed(0)
    g = G(0)
    x, y = regression(g)
    m = mlp(10, 48, 3)
    opt = torch.optim.SGD(m.parameters(), 0.1)
    lf = nn.MSELoss()
    tr, va = loader(x[:640], y[:640]), loader(x[640:], y[640:], bs=80, shuffle=False)

    def train_step(batch):
        m.train()
        tot = 0.0
        if not bug:
            opt.zero_grad()
        for xb, yb in zip(batch[0].chunk(4), batch[1].chunk(4), strict=False):
            if bug:
                opt.zero_grad()
            loss = lf(m(xb), yb) / 4
            loss.backward()
            tot += loss.item()
        opt.step()
        return tot

    return pack(
        m,
        opt,
        tr,
        loss_fn=lf,
        step=train_step,
        val_loader=va,
        declared={"accumulate": 4},
        evaluate=lambda: {"val_mse": mean_loss(m, va, lambda m, b: lf(m(b[0]), b[1]))},
    )


@pair("scheduler-misplaced")
def warmup_per_epoch(bug):
    """Forecaster with a warm-up/cosine schedule counted in batches but stepped at the end of the
    epoch. After 200 steps val_mse is 0.42 instead of 0.00743."""
    seed(1)
    g = G(1)
    s = (
        torch.sin(torch.arange(1200) * 0.21)
        + 0.5 * torch.sin(torch.arange(1200) * 0.043)
        + 0.05 * torch.randn(1200, generator=g)
    )
    w = s.unfold(0, 15, 1)
    w, h = w[:, :14, None], w[:, 14:]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.r, self.o = nn.GRU(1, 24, batch_first=True), nn.Linear(24, 1)

        def forward(self, x):
            return self.o(self.r(x)[0][:, -1])

    m = Net()
    opt = torch.optim.AdamW(m.parameters(), 5e-3)
    sch = torch.optim.lr_scheduler.LambdaLR(
        opt,
        lambda i: (
            (i + 1) / 100 if i < 100 else 0.5 * (1 + math.cos(math.pi * min(1, (i - 100) / 700)))
        ),
    )
    tr, va = loader(w[:900], h[:900], bs=16), loader(w[950:], h[950:], bs=100, shuffle=False)
    lf = nn.MSELoss()
    step = plain_step(m, opt, lambda m, b: lf(m(b[0]), b[1]), None if bug else sch)

    def train(n):
        out = []
        while len(out) < n:
            for b in tr:
                out.append(step(b))
                if len(out) == n:
                    return out
            if bug:
                sch.step()
        return out

    return pack(
        m,
        opt,
        tr,
        loss_fn=lf,
        step=step,
        train=train,
        val_loader=va,
        scheduler=sch,
        declared={"scheduler_unit": "batch"},
        evaluate=lambda: {"val_mse": mean_loss(m, va, lambda m, b: lf(m(b[0]), b[1]))},
    )


@pair("clip-misplaced")
def clip_before_backward(bug):
    """clip_grad_norm_ runs before backward(): spikes in the targets go through unclipped. After
    200 steps val_mse_clean is 8.26e+03 instead of 0.37."""
    seed(2)
    g = G(2)
    x, y = regression(g, 800, 10, 1)
    sp = torch.rand(800, generator=g) < 0.015
    y[sp] += 60 * torch.sign(torch.randn(int(sp.sum()), 1, generator=g))
    m = nn.Sequential(nn.Linear(10, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    tr, va = (
        loader(Columns(x=x[:640], y=y[:640]), bs=16),
        loader(Columns(x=x[640:][~sp[640:]], y=y[640:][~sp[640:]]), bs=160, shuffle=False),
    )

    def loss_of(m, b):
        return F.mse_loss(m(b["x"]), b["y"])

    def train_step(b):
        m.train()
        opt.zero_grad()
        loss = loss_of(m, b)
        if bug:
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        loss.backward()
        if not bug:
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        return loss.item()

    return pack(
        m,
        opt,
        tr,
        loss_of,
        step=train_step,
        val_loader=va,
        declared={"max_grad_norm": 1.0},
        evaluate=lambda: {"val_mse_clean": mean_loss(m, va, loss_of)},
    )


@pair("updates-rounded-away")
def bf16_small_updates(bug):
    """Fine-tuning with model.bfloat16() and a small learning rate instead of autocast over float32
    weights. After 200 steps val_mse is 0.409 instead of 0.272."""
    seed(3)
    g = G(3)
    x, y = regression(g, 800, 10, 3)
    m = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 3))
    o = torch.optim.Adam(m.parameters(), 1e-2)  # "pre-training" on the old target
    for _i in range(60):
        o.zero_grad()
        F.mse_loss(m(x), y).backward()
        o.step()
    y = y + 0.6 * torch.tanh(x @ torch.randn(10, 3, generator=g))
    if bug:
        m.bfloat16()
    opt = torch.optim.Adam(m.parameters(), 2e-4)
    tr, va = loader(x[:640], y[:640]), loader(x[640:], y[640:], bs=80, shuffle=False)

    def loss_of(m, b):
        if bug:
            return F.mse_loss(m(b[0].bfloat16()).float(), b[1])
        with torch.autocast("cpu", torch.bfloat16):
            out = m(b[0])
        return F.mse_loss(out.float(), b[1])

    return pack(
        m, opt, tr, loss_of, val_loader=va, evaluate=lambda: {"val_mse": mean_loss(m, va, loss_of)}
    )


@pair("optimizer-stale-params")
def head_set_after_optimizer(bug):
    """Fine-tuning: the new head is attached after the optimizer collected the parameters, so it
    never trains. After 200 steps val_acc is 0.00667 instead of 0.547."""
    seed(6)
    g = G(6)
    body, head, x, _ = pretrained(g)
    y = (x[:, 0] > 0).long() + 2 * (x[:, 1] * x[:, 2] > 0).long() + 4 * (x[:, 3] > 0.3).long()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = body, head

        def forward(self, x):
            return self.head(self.body(x))

    m = Net()
    lf = nn.CrossEntropyLoss()

    def mk():
        return torch.optim.AdamW(
            [
                {"params": m.body.parameters(), "lr": 2e-4},
                {"params": m.head.parameters(), "lr": 1e-2},
            ]
        )

    if bug:
        opt = mk()
    m.head = nn.Linear(32, 8)
    if not bug:
        opt = mk()
    tr, va = loader(x[:450], y[:450]), loader(x[450:], y[450:], bs=150, shuffle=False)

    def evaluate():
        m.eval()
        with torch.no_grad():
            return {"val_acc": (m(x[450:]).argmax(1) == y[450:]).float().mean().item()}

    return pack(m, opt, tr, loss_fn=lf, val_loader=va, evaluate=evaluate, num_classes=8)


@pair("frozen-params-drift")
def frozen_bn_drift(bug):
    """A frozen shared backbone stays in train mode: its running statistics follow the new data and
    the old head breaks. After 200 steps new_mse is 0.528 instead of 0.619 and old_acc is 0.693
    instead of 0.995."""
    seed(7)
    g = G(7)
    body, old, xo, yo = pretrained(g, bn=True)
    body.requires_grad_(False)
    old.requires_grad_(False)
    x = torch.randn(500, 12, generator=g) * 2 + 3
    y = torch.tanh(x[:, :2] - 3).sum(1, keepdim=True)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.old, self.new = body, old, nn.Linear(32, 1)

        def forward(self, x):
            return self.new(self.body(x))

    m = Net()
    opt = torch.optim.Adam(m.new.parameters(), 1e-2)
    lf = nn.MSELoss()
    tr, va = loader(x[:400], y[:400], bs=20), loader(x[400:], y[400:], bs=100, shuffle=False)

    def train_step(b):
        m.train()
        if not bug:
            m.body.eval()
        opt.zero_grad()
        loss = lf(m(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        m.eval()
        with torch.no_grad():
            return {
                "new_mse": lf(m(x[400:]), y[400:]).item(),
                "old_acc": (m.old(m.body(xo)).argmax(1) == yo).float().mean().item(),
            }

    frozen = [n for n, p in m.named_parameters() if not p.requires_grad]
    return pack(
        m,
        opt,
        tr,
        loss_fn=lf,
        step=train_step,
        val_loader=va,
        evaluate=evaluate,
        declared={"frozen": frozen},
    )


@pair("eval-mode-in-training")
def train_never_back(bug):
    """train() is called once; the per-epoch evaluation leaves eval mode on: dropout and batch-norm
    are off from then. After 200 steps val_loss is 0.961 instead of 0.55 and val_acc is 0.78
    instead of 0.793."""
    seed(8)
    g = G(8)
    x, y = blobs(500, 20, 4, g, 2.2)
    x = x * 3 + 4
    m = nn.Sequential(
        nn.Linear(20, 96),
        nn.BatchNorm1d(96),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(96, 96),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(96, 4),
    )
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    lf = nn.CrossEntropyLoss()
    hist = []
    tr, va = loader(x[:200], y[:200], bs=25), loader(x[200:], y[200:], bs=100, shuffle=False)
    m.train()

    def train_step(b):
        opt.zero_grad()
        loss = lf(m(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        m.eval()
        L = A = 0.0
        with torch.no_grad():
            for a, b in va:
                o = m(a)
                L += lf(o, b).item() / len(va)
                A += (o.argmax(1) == b).float().mean().item() / len(va)
        if not bug:
            m.train()
        return {"val_loss": L, "val_acc": A}

    def train(n):
        out = []
        while len(out) < n:
            for b in tr:
                out.append(train_step(b))
                if len(out) == n:
                    break
            hist.append(evaluate())
        return out

    return pack(
        m,
        opt,
        tr,
        loss_fn=lf,
        step=train_step,
        train=train,
        val_loader=va,
        evaluate=evaluate,
        num_classes=4,
    )
