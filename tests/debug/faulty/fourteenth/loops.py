"""Faults of loops: samplers, clipping, copies of weights, resuming, precision."""

import copy
import itertools

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

from tests.debug.faulty.fourteenth.kit import (
    acc,
    blobs,
    columns,
    curve,
    endless,
    gen,
    loader,
    mean_eval,
    mlp,
    pairloss,
    plain_step,
    saving,
    seed,
    set_up,
    sq,
)
from tests.debug.faulty.kit import pair


@pair("few-examples-drawn")
def class_weights_as_row_weights(bug):
    """The sampler's weights are the six class weights, not one a row: an epoch is the first six
    rows over and over. After 400 steps acc is 0.5933 instead of 0.95."""
    seed(31)
    X, y = blobs(600, 1)
    keep = (y > 1) | (torch.rand(600) < 0.3)
    X, y = X[keep], y[keep]
    V = blobs(300, 2)
    w = 1.0 / torch.bincount(y, minlength=6).float()
    sampler = WeightedRandomSampler(w if bug else w[y], num_samples=len(y), generator=gen(31))
    tr = DataLoader(TensorDataset(X, y), 32, sampler=sampler)
    va = loader(*V, bs=64, shuffle=False)
    model = mlp(10, 32, 6)
    opt = torch.optim.AdamW(model.parameters(), 3e-3)
    loss_fn = nn.CrossEntropyLoss()
    step = plain_step(model, opt, pairloss(loss_fn))
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        num_classes=6,
        evaluate=mean_eval(model, va, {"acc": acc}),
        **saving(model, opt),
    )


@pair("dataset-changes-itself")
def getitem_jitters_in_place(bug):
    """__getitem__ takes a view of the cached array and adds jitter with +=: the noise piles up
    epoch by epoch. After 400 steps mse is 0.2323 instead of 0.0052."""
    seed(32)
    t = torch.linspace(0, 6, 24)

    def waves(n):
        f = torch.rand(n, 1) * 2 + 1
        return torch.sin(f * t + torch.rand(n, 1) * 6), f

    X, Y = waves(256)
    va = loader(*waves(128), bs=50, shuffle=False)

    class Waves(Dataset):
        def __init__(self):
            self.x, self.y = X.numpy(), Y.numpy()

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            x = self.x[i]
            if not bug:
                x = x.copy()
            x += np.random.normal(0, 0.2, 24).astype(np.float32)
            return x, self.y[i]

    tr = DataLoader(Waves(), 16, shuffle=True, generator=gen(32))
    model = mlp(24, 48, 1)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.MSELoss()
    step = plain_step(model, opt, pairloss(loss_fn))
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        evaluate=mean_eval(model, va, {"mse": sq}),
    )


@pair("same-draws")
def itertools_cycle_keeps_batches(bug):
    """`it = itertools.cycle(loader)` stores the batches of the first pass: no new crops, no new
    order, ever. After 400 steps pixel_error is 4.7684 instead of 2.5357."""
    seed(33)
    S = 12
    big = torch.randn(48, S + 8, S + 8) * 0.3
    pt = torch.randint(9, 11, (48, 2)) + torch.randint(-1, 2, (48, 2))
    big[torch.arange(48), pt[:, 0], pt[:, 1]] += 3

    def crop(i, r):
        dy, dx = (int(v) for v in r.integers(0, 9, 2))
        return big[i, dy : dy + S, dx : dx + S], (pt[i] - torch.tensor([dy, dx])).float() / S

    class Crops(Dataset):
        r = np.random.default_rng(33)

        def __len__(self):
            return 32

        def __getitem__(self, i):
            im, k = crop(i, self.r)
            return {"image": im, "keypoint": k}

    tr = DataLoader(Crops(), 8, shuffle=True, generator=gen(33))
    g = np.random.default_rng(5)
    vs = [crop(32 + j % 16, g) for j in range(128)]
    va = columns(
        bs=40,
        shuffle=False,
        image=torch.stack([a for a, _ in vs]),
        keypoint=torch.stack([b for _, b in vs]),
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(S * S, 64), nn.ReLU(), nn.Linear(64, 2))
    opt = torch.optim.Adam(model.parameters(), 2e-3)

    def loss_of(m, b):
        return F.mse_loss(m(b["image"]), b["keypoint"])

    step = plain_step(model, opt, loss_of)
    it = itertools.cycle(tr) if bug else endless(tr)

    def train(n):
        return [step(next(it)) for _ in range(n)]

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tr,
        val_loader=va,
        loss_of=loss_of,
        train_step=step,
        train=train,
        evaluate=mean_eval(
            model, va, {"pixel_error": lambda m, b: (m(b["image"]) - b["keypoint"]).norm(dim=1) * S}
        ),
    )


@pair("clip-misplaced")
def clip_on_spent_iterator(bug):
    """params = filter(...) goes into the optimizer and again into clip_grad_norm_, where it is
    empty. After 400 steps mae is 2.0395 instead of 0.6407."""
    seed(34)
    x = torch.zeros(700, 20)
    x[:, 0] = torch.randn(700)
    for i in range(1, 20):
        x[:, i] = 0.8 * x[:, i - 1] + 0.4 * torch.randn(700)
    x[torch.rand(700, 20) < 0.004] *= 60  # sensor spikes, in both logs
    tr, va = (
        loader(x[:500, :-1, None], x[:500, -1:], bs=16, s=34),
        loader(x[500:, :-1, None], x[500:, -1:], bs=64, shuffle=False),
    )

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.RNN(1, 16, batch_first=True)
            self.out = nn.Linear(16, 1)

        def forward(self, x):
            return self.out(self.rnn(x)[0][:, -1])

    model = Net()
    params = filter(lambda p: p.requires_grad, model.parameters())
    if not bug:
        params = list(params)
    opt = torch.optim.SGD(params, lr=0.015, momentum=0.9)
    loss_fn = nn.MSELoss()
    step = plain_step(
        model, opt, pairloss(loss_fn), clip=lambda: nn.utils.clip_grad_norm_(params, 0.5)
    )
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        evaluate=mean_eval(model, va, {"mse": sq, "mae": lambda m, b: (m(b[0]) - b[1]).abs()}),
        declared={"max_grad_norm": 0.5},
    )


@pair("checkpoint-by-reference")
def best_state_shallow_copy(bug):
    """best = model.state_dict().copy() is a shallow copy, so loading the best at the end loads the
    last. After 400 steps mse is 2.5563 instead of 2.2384."""
    seed(35)
    tr, va = (
        loader(*curve(96, 1, noise=1.0), bs=16, s=35),
        loader(*curve(400, 2, noise=1.0), bs=150, shuffle=False),
    )
    model = mlp(6, 96, 96, 1)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.MSELoss()
    step = plain_step(model, opt, pairloss(loss_fn))
    val = mean_eval(model, va, {"mse": sq})
    best = {"mse": float("inf"), "state": None}

    def train(n):
        out, it = [], endless(tr)
        for k in range(n):
            out.append(step(next(it)))
            if k % 6 == 5 or k == n - 1:
                v = val()["mse"]
                if v < best["mse"]:
                    best.update(
                        mse=v,
                        state=model.state_dict().copy()
                        if bug
                        else copy.deepcopy(model.state_dict()),
                    )
        model.load_state_dict(best["state"])  # hand out the best model
        return out

    def evaluate():
        return {**val(), "best_mse_seen": best["mse"] if best["state"] else val()["mse"]}

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tr,
        val_loader=va,
        loss_fn=loss_fn,
        train_step=step,
        train=train,
        evaluate=evaluate,
    )


@pair("average-without-statistics")
def ema_of_parameters_only(bug):
    """EMA follows parameters() only: its running means stay at 0 and its variances at 1. After 400
    steps ema_acc is 0.88 instead of 0.94."""
    seed(36)

    def f(p):
        return (p[0] * 5 + 4, p[1])

    tr, va = loader(*f(blobs(600, 3)), s=36), loader(*f(blobs(200, 4)), bs=64, shuffle=False)
    model = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 6))
    ema = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.CrossEntropyLoss()
    base = plain_step(model, opt, pairloss(loss_fn))

    def step(b):
        loss = base(b)
        with torch.no_grad():
            for e, p in zip(ema.parameters(), model.parameters(), strict=True):
                e.lerp_(p, 0.05)
            if not bug:
                for e, p in zip(ema.buffers(), model.buffers(), strict=True):
                    e.copy_(p)
        return loss

    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        num_classes=6,
        evaluate=mean_eval(ema, va, {"ema_acc": acc}),
    )


@pair("checkpoint-incomplete")
def resume_rebuilds_head(bug):
    """load() builds a new head to the checkpoint's size and loads into it; the optimizer keeps the
    old head's tensors. Resumed after 150 steps, 400 more give a validation mse of 1.32 instead of
    0.25."""
    seed(37)
    tr, va = loader(*curve(400, 3), s=37), loader(*curve(150, 4), bs=64, shuffle=False)

    class Job:
        def __init__(self):
            self.model = nn.Sequential()
            self.model.body = nn.Sequential(nn.Linear(6, 48), nn.Tanh())
            self.model.head = nn.Linear(48, 1)
            self.opt = torch.optim.Adam(self.model.parameters(), 5e-3)
            self.loss_fn = nn.MSELoss()
            self.step = plain_step(self.model, self.opt, pairloss(self.loss_fn))

        def save(self):
            return copy.deepcopy(
                {
                    "model": self.model.state_dict(),
                    "opt": self.opt.state_dict(),
                    "out": self.model.head.out_features,
                }
            )

        def load(self, st):
            if bug:
                self.model.head = nn.Linear(48, st["out"])
            self.model.load_state_dict(st["model"])
            self.opt.load_state_dict(copy.deepcopy(st["opt"]))

    j = Job()
    return set_up(
        j.model,
        j.opt,
        tr,
        j.step,
        val_loader=va,
        loss_fn=j.loss_fn,
        evaluate=mean_eval(j.model, va, {"mse": sq}),
        save=j.save,
        load=j.load,
    )


@pair("updates-rounded-away")
def bf16_weights_swallow_steps(bug):
    """model.bfloat16() instead of autocast: most SGD updates are less than half a bf16 step of the
    weight. After 400 steps mse is 0.5682 instead of 0.3777."""
    seed(38)
    tr, va = loader(*curve(600, 5), bs=64, s=38), loader(*curve(200, 6), bs=64, shuffle=False)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = mlp(6, 64, 64, 1, act=nn.Tanh)

        def forward(self, x):
            if bug:
                return self.f(x.bfloat16()).float()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.f(x).float()

    model = Net()
    if bug:
        model.bfloat16()
    opt = torch.optim.SGD(model.parameters(), 3e-3, momentum=0.9)
    loss_fn = nn.MSELoss()
    step = plain_step(model, opt, pairloss(loss_fn))
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        evaluate=mean_eval(model, va, {"mse": sq}),
    )
