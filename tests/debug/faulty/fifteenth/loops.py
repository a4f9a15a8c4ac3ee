"""Faults of loops: teachers, frozen parts, copies of weights, precision, rates, clipping."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.fifteenth.kit import Columns, blobs, gen, plain_step, seed, set_up, table
from tests.debug.faulty.kit import pair


@pair("missing-log-softmax")
def distill_kl(bug):
    """F.kl_div is given softmax(student / T), not its log, as the first argument: the loss falls
    below 0. After 250 steps kl is 0.8742 instead of 0.2175."""
    seed(101)
    teacher = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 5))
    teacher[0].weight.data.mul_(4)
    teacher[2].weight.data.mul_(8)
    teacher.requires_grad_(False).eval()
    st = nn.Sequential(nn.Linear(10, 48), nn.Tanh(), nn.Linear(48, 5))
    opt = torch.optim.Adam(st.parameters(), 0.003)
    T = 2.0
    g = gen(1)
    tl = DataLoader(
        [{"x": v} for v in torch.randn(800, 10, generator=g)], 32, shuffle=True, generator=gen(2)
    )
    vl = DataLoader([{"x": v} for v in torch.randn(150, 10, generator=g)], 32)

    def loss_of(model, b):
        q = teacher(b["x"]) / T
        p = model(b["x"]) / T
        p = p.softmax(1) if bug else p.log_softmax(1)
        return F.kl_div(p, q.softmax(1), reduction="batchmean") * T * T

    step = plain_step(st, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        a = k = 0.0
        for b in vl:
            p, q = st(b["x"]), teacher(b["x"])
            a += (p.argmax(1) == q.argmax(1)).sum().item()
            k += F.kl_div(
                p.log_softmax(1), q.log_softmax(1), log_target=True, reduction="sum"
            ).item()
        return {"agree": a / 150, "kl": k / 150}

    return set_up(st, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(
            nn.Linear(12, 32),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Linear(32, 32),
            nn.BatchNorm1d(32),
            nn.ReLU(),
        )

    def forward(self, x):
        return self.f(x)


@pair("frozen-params-drift")
def frozen_body_still_averages(bug):
    """The frozen backbone is put back into train mode by model.train(): its batch norm's averages
    follow the new data. After 100 steps old_task_acc is 0.46 instead of 0.89."""
    seed(102)
    X, Y = blobs(400, gen(1))
    bb, h0 = Backbone(), nn.Linear(32, 4)
    o0 = torch.optim.Adam([*bb.parameters(), *h0.parameters()], 0.01)
    for _ in range(60):
        i = torch.randint(0, 300, (50,))
        loss = F.cross_entropy(h0(bb(X[i])), Y[i])
        o0.zero_grad()
        loss.backward()
        o0.step()

    class Ft(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone, self.head = bb, nn.Linear(32, 3)

        def forward(self, x):
            return self.head(self.backbone(x))

        def train(self, mode=True):
            super().train(mode)
            if not bug:
                self.backbone.eval()
            return self

    m = Ft()
    for p in m.backbone.parameters():
        p.requires_grad_(False)
    opt = torch.optim.Adam(m.head.parameters(), 0.005)
    ce = nn.CrossEntropyLoss()

    def tgt(n, g):
        x, y = blobs(n, g, 3, k=32)
        return TensorDataset(x * 2 + 2.5, y)

    tl = DataLoader(tgt(300, gen(2)), 25, shuffle=True, generator=gen(3))
    vl = DataLoader(tgt(80, gen(4)), 25)

    def step(b):
        m.train()
        opt.zero_grad()
        loss = ce(m(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        m.eval()
        c = sum((m(x).argmax(1) == y).sum().item() for x, y in vl) / 80
        s = (h0(m.backbone(X[300:])).argmax(1) == Y[300:]).float().mean().item()
        m.train()
        return {"target_acc": c, "old_task_acc": s}

    return set_up(
        m,
        opt,
        tl,
        step,
        val_loader=vl,
        loss_fn=ce,
        num_classes=3,
        evaluate=evaluate,
        declared={"frozen": [n for n, _ in m.named_parameters() if n.startswith("backbone")]},
    )


@pair("average-without-statistics")
def average_of_parameters_alone(bug):
    """The average goes over parameters() and not over buffers(): it is scored with the untrained
    model's batch norm. After 150 steps ema_val_mse is 72.2618 instead of 0.2371."""
    seed(103)

    def mk(n, g):
        x, y = table(n, g)
        return TensorDataset(x * 5 + 8, y)

    m = nn.Sequential(
        nn.BatchNorm1d(8), nn.Linear(8, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 1)
    )
    ema = copy.deepcopy(m).eval().requires_grad_(False)
    opt = torch.optim.Adam(m.parameters(), 0.01)
    tl = DataLoader(mk(480, gen(1)), 32, shuffle=True, generator=gen(2))
    vl = DataLoader(mk(100, gen(3)), 32)
    mse = nn.MSELoss()

    @torch.no_grad()
    def update():
        for a, p in zip(ema.parameters(), m.parameters(), strict=True):
            a.mul_(0.95).add_(p, alpha=0.05)
        if not bug:
            for a, p in zip(ema.buffers(), m.buffers(), strict=True):
                a.copy_(p)

    def step(b):
        m.train()
        opt.zero_grad()
        loss = mse(m(b[0]), b[1])
        loss.backward()
        opt.step()
        update()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        return {"ema_val_mse": sum(mse(ema(x), y).item() * len(x) for x, y in vl) / 100}

    return set_up(m, opt, tl, step, ema=ema, val_loader=vl, loss_fn=mse, evaluate=evaluate)


@pair("checkpoint-incomplete")
def resume_prefix(bug):
    """Saved from a wrapper, with _orig_mod. before each key, and loaded into the bare model with
    strict=False: no weight is put back. Put back after 150 steps and a disturbance, val_mse is
    3.0608 instead of 0.192."""
    seed(104)

    class Wrapped(nn.Module):
        def __init__(self, mod):
            super().__init__()
            self._orig_mod = mod

        def forward(self, *a):
            return self._orig_mod(*a)

    class Runner:
        def __init__(self):
            self.net = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 1))
            self.fast = Wrapped(self.net)
            self.opt = torch.optim.Adam(self.net.parameters(), 0.005)
            self.sch = torch.optim.lr_scheduler.StepLR(self.opt, 200, 0.5)
            self.tl = DataLoader(
                TensorDataset(*table(480, gen(1))), 32, shuffle=True, generator=gen(2)
            )
            self.vl = DataLoader(TensorDataset(*table(100, gen(3))), 32)
            self.mse = nn.MSELoss()

        def step(self, b):
            self.net.train()
            self.opt.zero_grad()
            loss = self.mse(self.fast(b[0]), b[1])
            loss.backward()
            self.opt.step()
            self.sch.step()
            return loss.item()

        @torch.no_grad()
        def evaluate(self):
            return {
                "val_mse": sum(self.mse(self.net(x), y).item() * len(x) for x, y in self.vl) / 100
            }

        def save(self):
            return copy.deepcopy(
                {
                    "model": self.fast.state_dict(),
                    "opt": self.opt.state_dict(),
                    "sch": self.sch.state_dict(),
                }
            )

        def load(self, state):
            sd = state["model"]
            if not bug:
                sd = {k.removeprefix("_orig_mod."): v for k, v in sd.items()}
            self.net.load_state_dict(sd, strict=not bug)
            self.opt.load_state_dict(state["opt"])
            self.sch.load_state_dict(state["sch"])

    r = Runner()
    return set_up(
        r.net,
        r.opt,
        r.tl,
        r.step,
        scheduler=r.sch,
        val_loader=r.vl,
        loss_fn=r.mse,
        evaluate=r.evaluate,
        save=r.save,
        load=r.load,
        declared={"scheduler_unit": "batch"},
    )


@pair("checkpoint-by-reference")
def best_alias(bug):
    """self.best = state_dict() without a copy: the best weights are always the last, and to put
    them back does nothing. After 400 steps val_loss is 4.0111 instead of 1.2301."""
    seed(105)

    def mk(n, g, flip):
        x, y = blobs(n, g, noise=1.6)
        r = torch.rand(n, generator=g) < flip
        return TensorDataset(x, torch.where(r, torch.randint(0, 4, (n,), generator=g), y))

    class Fit:
        """A call of train(n) is a whole fit, after which the best weights are put back."""

        def __init__(self):
            self.net = nn.Sequential(nn.Linear(12, 128), nn.ReLU(), nn.Linear(128, 4))
            self.opt = torch.optim.Adam(self.net.parameters(), 0.01)
            self.ce = nn.CrossEntropyLoss()
            self.tl = DataLoader(mk(96, gen(1), 0.3), 16, shuffle=True, generator=gen(2))
            self.vl = DataLoader(mk(120, gen(3), 0.3), 40)
            self.best = None
            self.best_loss = float("inf")
            self.history = []

        @torch.no_grad()
        def evaluate(self):
            self.net.eval()
            t = c = 0.0
            for x, y in self.vl:
                o = self.net(x)
                t += self.ce(o, y).item() * len(x)
                c += (o.argmax(1) == y).sum().item()
            self.net.train()
            return {"val_loss": t / 120, "val_acc": c / 120}

        def train(self, n):
            out = []
            while len(out) < n:
                for x, y in self.tl:
                    if len(out) == n:
                        break
                    self.opt.zero_grad()
                    loss = self.ce(self.net(x), y)
                    loss.backward()
                    self.opt.step()
                    out.append(loss.item())
                v = self.evaluate()["val_loss"]
                self.history.append(v)
                if v < self.best_loss:
                    self.best_loss = v
                    self.best = (
                        self.net.state_dict() if bug else copy.deepcopy(self.net.state_dict())
                    )
            self.net.load_state_dict(self.best)
            return out

    f = Fit()
    return dict(
        model=f.net,
        optimizer=f.opt,
        train_loader=f.tl,
        val_loader=f.vl,
        loss_fn=f.ce,
        num_classes=4,
        train=f.train,
        evaluate=f.evaluate,
        trainer=f,
    )


@pair("updates-rounded-away")
def pure_bf16(bug):
    """The weights are cast to bfloat16 instead of under autocast: Adam's steps are below half a
    last digit. After 600 steps val_mse is 1.3185 instead of 0.9237."""
    seed(106)
    net = nn.Sequential(nn.Linear(8, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 1))
    net[0].weight.data.mul_(3)
    if bug:
        net = net.to(torch.bfloat16)
    opt = torch.optim.AdamW(net.parameters(), 0.0003, weight_decay=0.0)
    tl = DataLoader(TensorDataset(*table(640, gen(1))), 32, shuffle=True, generator=gen(2))
    vl = DataLoader(TensorDataset(*table(100, gen(3))), 32)

    def fwd(model, x):
        if bug:
            return model(x.bfloat16()).float()
        with torch.autocast("cpu", torch.bfloat16):
            o = model(x)
        return o.float()

    def loss_of(model, b):
        return F.mse_loss(fwd(model, b[0]), b[1])

    step = plain_step(net, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        return {"val_mse": sum(loss_of(net, b).item() * len(b[0]) for b in vl) / 100}

    return set_up(net, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)


@pair("scheduler-misplaced")
def plateau_mode(bug):
    """ReduceLROnPlateau of mode 'min' is given the accuracy: an epoch that improves it counts as a
    bad one. After 300 steps val_acc is 0.6333 instead of 0.98."""
    seed(107)
    m = nn.Sequential(
        nn.Embedding(12, 12), nn.Flatten(), nn.Linear(72, 48), nn.ReLU(), nn.Linear(48, 3)
    )
    opt = torch.optim.Adam(m.parameters(), 0.003)
    sch = torch.optim.lr_scheduler.ReduceLROnPlateau(
        opt, "min" if bug else "max", factor=0.3, patience=2
    )

    def mk(n, g):
        x = torch.randint(0, 12, (n, 6), generator=g)
        return Columns(x=x, y=(x > 5).sum(1).clamp(2, 4) - 2)

    tl = DataLoader(mk(320, gen(1)), 32, shuffle=True, generator=gen(2))
    vl = DataLoader(mk(150, gen(3)), 32)
    ks = {"k": 0}

    def loss_of(model, b):
        return F.cross_entropy(model(b["x"]), b["y"])

    @torch.no_grad()
    def evaluate():
        m.eval()
        c = sum((m(b["x"]).argmax(1) == b["y"]).sum().item() for b in vl)
        m.train()
        return {"val_acc": c / 150}

    def step(b):
        m.train()
        opt.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        opt.step()
        ks["k"] += 1
        if ks["k"] % len(tl) == 0:
            sch.step(evaluate()["val_acc"])
        return loss.item()

    return set_up(
        m,
        opt,
        tl,
        step,
        scheduler=sch,
        val_loader=vl,
        loss_of=loss_of,
        num_classes=3,
        evaluate=evaluate,
    )


@pair("clip-misplaced")
def clip_late(bug):
    """clip_grad_norm_ comes after opt.step(): the outliers' gradients are applied whole. After 150
    steps val_mae is 3.0432 instead of 0.4626."""
    seed(108)
    g = gen(4)

    def mk(n, bad):
        x = torch.randn(n, 8, 2, generator=g)
        y = x[:, :, 0].mean(1, keepdim=True) * 2
        o = torch.rand(n, 1, generator=g) < bad
        return Columns(seq=x, y=torch.where(o, y + 60 * torch.randn(n, 1, generator=g), y))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.r = nn.GRU(2, 16, batch_first=True)
            self.o = nn.Linear(16, 1)

        def forward(self, x):
            return self.o(self.r(x)[0][:, -1])

    m = Net()
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    tl = DataLoader(mk(480, 0.04), 24, shuffle=True, generator=gen(5))
    vl = DataLoader(mk(96, 0), 24)

    def loss_of(model, b):
        return F.mse_loss(model(b["seq"]), b["y"])

    def step(b):
        opt.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        if bug:
            opt.step()
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        else:
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        return {"val_mae": sum((m(b["seq"]) - b["y"]).abs().sum().item() for b in vl) / 96}

    return set_up(
        m,
        opt,
        tl,
        step,
        val_loader=vl,
        loss_of=loss_of,
        evaluate=evaluate,
        declared={"max_grad_norm": 1.0},
    )
