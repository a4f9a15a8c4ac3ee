"""Faults of runs: checkpoints, scores, splits, and data."""

import copy
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twelfth.kit import (
    Columns,
    G,
    loader,
    markov,
    mean_loss,
    mlp,
    pack,
    plain_step,
    plain_train,
    regression,
    seed,
)


class Trainer:
    """Denoising auto-encoder trainer with checkpoints."""

    def __init__(self, model, opt, sched, dl, val, full):
        self.__dict__.update(model=model, opt=opt, sched=sched, dl=dl, val=val, full=full, steps=0)

    def loss_of(self, model, b):
        return F.mse_loss(model(b["noisy"]), b["clean"])

    def train_step(self, b):
        self.model.train()
        self.opt.zero_grad()
        loss = self.loss_of(self.model, b)
        loss.backward()
        self.opt.step()
        self.sched.step()
        self.steps += 1
        return loss.item()

    def train(self, n):
        return plain_train(self.train_step, self.dl)(n)

    def evaluate(self):
        return {"val_mse": mean_loss(self.model, self.val, self.loss_of)}

    def save(self, path):
        s = {"model": self.model.state_dict(), "steps": self.steps}
        if self.full:
            s.update(opt=self.opt.state_dict(), sched=self.sched.state_dict())
        torch.save(s, path)

    def load(self, path):
        s = torch.load(path)
        self.model.load_state_dict(s["model"])
        self.steps = s["steps"]
        if self.full:
            self.opt.load_state_dict(s["opt"])
            self.sched.load_state_dict(s["sched"])


@pair("checkpoint-incomplete")
def ckpt_no_opt(bug):
    """save/load keep the weights and step count only: a resume restarts momentum and the learning-
    rate decay."""
    seed(4)
    g = G(4)
    c = torch.tanh(torch.randn(640, 3, generator=g) @ torch.randn(3, 20, generator=g))
    nz = c + 0.3 * torch.randn(640, 20, generator=g)
    m = mlp(20, 32, 20)
    opt = torch.optim.SGD(m.parameters(), 0.3, momentum=0.9)
    sch = torch.optim.lr_scheduler.ExponentialLR(opt, 0.98)
    t = Trainer(
        m,
        opt,
        sch,
        loader(Columns(noisy=nz[:512], clean=c[:512])),
        loader(Columns(noisy=nz[512:], clean=c[512:]), bs=64, shuffle=False),
        not bug,
    )
    return dict(
        model=m,
        optimizer=opt,
        scheduler=sch,
        train_loader=t.dl,
        val_loader=t.val,
        loss_of=t.loss_of,
        train_step=t.train_step,
        train=t.train,
        evaluate=t.evaluate,
        save=t.save,
        load=t.load,
        declared={"scheduler_unit": "batch"},
    )


@pair("checkpoint-incomplete")
def ckpt_prefix_strict_false(bug):
    """Checkpoint keys carry a 'module.' prefix; load uses strict=False, so nothing is loaded.
    After 200 steps 0 is 2.63 instead of 1.5."""
    seed(5)
    g = G(5)
    V = 14
    x, _ = markov(V, 500, 12, g)

    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.r, self.o = (
                nn.Embedding(V, 16),
                nn.GRU(16, 24, batch_first=True),
                nn.Linear(24, V),
            )

        def forward(self, i):
            return self.o(self.r(self.e(i))[0])

    m = LM()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tr, va = loader(x[:420]), loader(x[420:], bs=80, shuffle=False)

    def loss_of(m, b):
        return F.cross_entropy(m(b[0][:, :-1]).transpose(1, 2), b[0][:, 1:])

    def save():
        return copy.deepcopy(
            {
                "state_dict": {"module." + k: v for k, v in m.state_dict().items()},
                "optimizer": opt.state_dict(),
            }
        )

    def load(state):
        sd = state["state_dict"]
        if not bug:
            sd = {k.removeprefix("module."): v for k, v in sd.items()}
        m.load_state_dict(sd, strict=False)
        opt.load_state_dict(state["optimizer"])

    return pack(
        m,
        opt,
        tr,
        loss_of,
        val_loader=va,
        save=save,
        load=load,
        evaluate=lambda: {"val_nll": mean_loss(m, va, loss_of)},
    )


@pair("checkpoint-by-reference")
def best_kept_alias(bug):
    """Early stopping keeps best = model.state_dict() without a copy: restoring the best restores
    the last. After 200 steps val_mse is 3.08 instead of 1.92."""
    seed(9)
    g = G(9)
    x, y = regression(g, 400, 10, 1, 1.0)
    m = mlp(10, 128, 1)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    lf = nn.MSELoss()
    tr, va = loader(x[:60], y[:60], bs=20), loader(x[60:], y[60:], bs=170, shuffle=False)
    step = plain_step(m, opt, lambda m, b: lf(m(b[0]), b[1]))

    def evaluate():
        return {"val_mse": mean_loss(m, va, lambda m, b: lf(m(b[0]), b[1]))}

    def train(n_steps):
        out, best, best_v = [], None, float("inf")
        while len(out) < n_steps:
            for b in tr:
                out.append(step(b))
                if len(out) == n_steps:
                    break
            v = evaluate()["val_mse"]
            if v < best_v:
                best_v, best = v, (m.state_dict() if bug else copy.deepcopy(m.state_dict()))
        m.load_state_dict(best)
        return out

    return pack(m, opt, tr, loss_fn=lf, step=step, train=train, val_loader=va, evaluate=evaluate)


@pair("metric-batch-mean")
def f1_batch_avg(bug):
    """F1 of a rare class is averaged over small batches (empty ones count 0) instead of computed
    once. After 200 steps val_f1 is 0.189 instead of 0.636."""
    seed(10)
    g = G(10)
    x = torch.randn(1000, 8, generator=g)
    y = ((x[:, 0] + x[:, 1] + 0.3 * torch.randn(1000, generator=g)) > 2.2).float()
    m = mlp(8, 24, 1)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    lf = nn.BCEWithLogitsLoss()
    tr, va = loader(x[:700], y[:700, None]), loader(x[700:], y[700:, None], bs=10, shuffle=False)

    def f1(p, t):
        return (2 * (p * t).sum() / (p.sum() + t.sum()).clamp(min=1)).item()

    def evaluate():
        m.eval()
        with torch.no_grad():
            out = [((m(a) > 0).float(), b) for a, b in va]
        return {
            "val_f1": np.mean([f1(p, t) for p, t in out])
            if bug
            else f1(*(torch.cat(z) for z in zip(*out, strict=False)))
        }

    return pack(m, opt, tr, loss_fn=lf, val_loader=va, evaluate=evaluate)


@pair("leak-group")
def group_leak(bug):
    """Several recordings per patient are split at random, so every patient is in training and
    validation. After 200 steps val_acc is 0.983 instead of 0.712."""
    seed(11)
    g = G(11)
    Pn, R = 75, 8
    sig = torch.randn(Pn, 16, generator=g) * 2
    lab = torch.randint(0, 2, (Pn,), generator=g)
    sig[:, 0] += lab * 2.5
    pid = torch.arange(Pn).repeat_interleave(R)
    x = sig[pid] + 0.5 * torch.randn(Pn * R, 16, generator=g)
    y = lab[pid]
    if bug:
        idx = torch.randperm(Pn * R, generator=g)
    else:
        order = torch.randperm(Pn, generator=g)
        idx = torch.cat([torch.arange(p * R, p * R + R) for p in order])
    a, b = idx[:416], idx[416:]
    m = mlp(16, 48, 2)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def mk(i, **k):
        return loader(Columns(ecg=x[i], label=y[i], patient=pid[i]), **k)

    tr, va = mk(a), mk(b, bs=60, shuffle=False)

    def loss_of(m, b):
        return F.cross_entropy(m(b["ecg"]), b["label"])

    def evaluate():
        m.eval()
        with torch.no_grad():
            hits = torch.cat([m(b["ecg"]).argmax(1) == b["label"] for b in va])
        return {"val_acc": hits.float().mean().item()}

    return pack(
        m,
        opt,
        tr,
        loss_of,
        val_loader=va,
        evaluate=evaluate,
        num_classes=2,
        groups={"train": pid[a].tolist(), "val": pid[b].tolist()},
    )


@pair("target-in-inputs")
def ts_target_in_window(bug):
    """Forecasting windows are off by one: the value to predict is the last value of the window.
    After 200 steps val_mse is 0.0171 instead of 0.923."""
    seed(12)
    g = G(12)
    n, T = 1300, 16
    s = torch.zeros(n)
    e = torch.randn(n, generator=g)
    for t in range(2, n):
        s[t] = 0.9 * s[t - 1] - 0.5 * s[t - 2] + e[t]
    i = torch.arange(n - T - 1)
    X = torch.stack([s[i + k] for k in range(T)], 1)
    y = s[i + T - 1] if bug else s[i + T]
    m = mlp(T, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    lf = nn.MSELoss()
    tr, va = (
        loader(X[:1000], y[:1000, None]),
        loader(X[1000 + T :], y[1000 + T :, None], bs=100, shuffle=False),
    )
    return pack(
        m,
        opt,
        tr,
        loss_fn=lf,
        val_loader=va,
        evaluate=lambda: {"val_mse": mean_loss(m, va, lambda m, b: lf(m(b[0]), b[1]))},
    )


@pair("dataset-changes-itself")
def inplace_augment(bug):
    """Dataset adds its noise augmentation in place: every epoch the stored spectra get noisier.
    After 200 steps val_mse is 0.386 instead of 0.187."""
    seed(13)
    g = G(13)
    x, y = regression(g, 500, 10, 1, 0.05)

    class Spectra(Dataset):
        def __init__(self, x, y, aug):
            self.x, self.y, self.aug = x.clone(), y, aug

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            x = self.x[i]
            if self.aug:
                if bug:
                    x += 0.3 * torch.randn(x.shape)
                else:
                    x = x + 0.3 * torch.randn(x.shape)
            return x, self.y[i]

    m = mlp(10, 48, 1)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    lf = nn.MSELoss()
    tr, va = (
        loader(Spectra(x[:320], y[:320], True)),
        loader(Spectra(x[320:], y[320:], False), bs=60, shuffle=False),
    )
    return pack(
        m,
        opt,
        tr,
        loss_fn=lf,
        val_loader=va,
        evaluate=lambda: {"val_mse": mean_loss(m, va, lambda m, b: lf(m(b[0]), b[1]))},
    )


@pair("loader-exhausted")
def generator_exhausted(bug):
    """Ratings loader is a one-shot generator: every epoch after the first has no batches. After
    200 steps val_mse is 3.09 instead of 2.31."""
    seed(14)
    g = G(14)
    U, V = 60, 80
    n = 960
    u, i = torch.randint(0, U, (n,), generator=g), torch.randint(0, V, (n,), generator=g)
    r = (torch.randn(U, 3, generator=g)[u] * torch.randn(V, 3, generator=g)[i]).sum(
        1
    ) + 0.2 * torch.randn(n, generator=g)

    class MF(nn.Module):
        def __init__(self):
            super().__init__()
            self.u, self.i, self.bu = nn.Embedding(U, 8), nn.Embedding(V, 8), nn.Embedding(U, 1)
            self.u.weight.data *= 0.3
            self.i.weight.data *= 0.3

        def forward(self, u, i):
            return (self.u(u) * self.i(i)).sum(-1) + self.bu(u).squeeze(-1)

    m = MF()
    opt = torch.optim.Adam(m.parameters(), 1e-2, weight_decay=1e-4)

    def batches():
        for k in torch.randperm(800).split(40):
            yield {"user": u[k], "item": i[k], "rating": r[k]}

    class Loader:
        def __iter__(self):
            return batches()

        def __len__(self):
            return 20

    tr = batches() if bug else Loader()
    va = [{"user": u[800:], "item": i[800:], "rating": r[800:]}]

    def loss_of(m, b):
        return F.mse_loss(m(b["user"], b["item"]), b["rating"])

    step = plain_step(m, opt, loss_of)

    def train(n_steps):
        out = []
        for _epoch in range(math.ceil(n_steps / 20)):
            for b in tr:
                out.append(step(b))
                if len(out) == n_steps:
                    break
        return out

    return pack(
        m,
        opt,
        tr,
        loss_of,
        step=step,
        train=train,
        val_loader=va,
        evaluate=lambda: {"val_mse": mean_loss(m, va, loss_of)},
    )
