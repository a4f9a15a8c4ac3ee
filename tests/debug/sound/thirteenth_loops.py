"""Ten more of the thirteenth set: streams, sparse weights, averages, tasks, weights of losses."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

from tests.debug.faulty.thirteenth.kit import (
    accuracy,
    blobs,
    evaluating,
    gen,
    loader,
    mlp,
    plain,
    save_load,
    set_up,
    sup_step,
)
from tests.debug.sound.programs import sound


@sound
def streaming_iterable():
    """Endless IterableDataset of fresh synthetic examples: no length, no epochs, never the same
    example twice."""
    torch.manual_seed(0)
    w = torch.randn(6, generator=gen(9))

    class Stream(IterableDataset):
        def __init__(s):
            s.g = gen(1)

        def __iter__(s):
            while True:
                x = torch.randn(6, generator=s.g)
                yield x, (x @ w).sin()[None]

    m = mlp(6, 48, 1)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    crit = nn.MSELoss()
    vx = torch.randn(150, 6, generator=gen(2))
    tr = DataLoader(Stream(), 32)
    va = loader((vx, (vx @ w).sin()[:, None]), 50, shuffle=False)
    step = sup_step(m, opt, crit)

    def evaluate():
        t = n = 0
        with evaluating(m):
            for x, y in va:
                t += F.mse_loss(m(x), y, reduction="sum").item()
                n += len(y)
        return {"val_mse": t / n}

    return set_up(m, opt, tr, step, loss_fn=crit, val_loader=va, evaluate=evaluate)


@sound
def pruned_finetune():
    """Half the weights of each layer are pruned to zero and held there after each step; gradients
    there are not used."""
    torch.manual_seed(0)
    m = mlp(10, 64, 5)
    masks = {p: (p.abs() >= p.abs().median()).float() for p in m.parameters() if p.dim() > 1}

    def hold():
        with torch.no_grad():
            [p.mul_(k) for p, k in masks.items()]

    hold()
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    ce = nn.CrossEntropyLoss()
    return plain(
        m,
        opt,
        ce,
        loader(blobs(400, 10, 5, 1), 20, 1),
        loader(blobs(130, 10, 5, 2), 50, shuffle=False),
        sup_step(m, opt, ce, hold),
        num_classes=5,
        declared={"sparsity": 0.5},
    )


@sound
def swa_eval():
    """Polyak average of the parameters, BatchNorm statistics recomputed (update_bn) at evaluation:
    only the averaged model is evaluated, so the metric lags behind the loss."""
    torch.manual_seed(0)
    m = mlp(10, 32, 4, bn=True)
    avg = torch.optim.swa_utils.AveragedModel(
        m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.95), use_buffers=False
    )
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    ce = nn.CrossEntropyLoss()
    tr = loader(blobs(400, 10, 4, 1, shift=2.0), 20, 1)
    va = loader(blobs(130, 10, 4, 2, shift=2.0), 50, shuffle=False)
    ordered = loader(blobs(400, 10, 4, 1, shift=2.0), 100, shuffle=False)
    step = sup_step(m, opt, ce, lambda: avg.update_parameters(m))

    def evaluate():
        torch.optim.swa_utils.update_bn(ordered, avg)
        return {"avg_" + k: v for k, v in accuracy(avg, va).items()}

    return {**plain(m, opt, ce, tr, va, step, num_classes=4), "evaluate": evaluate}


@sound
def vq_vae():
    """VQ-VAE: the codebook is a buffer updated by EMA (no gradient, not in the optimizer),
    straight-through estimator."""
    torch.manual_seed(0)
    D, Z, K = 16, 4, 12

    class VQ(nn.Module):
        def __init__(s):
            super().__init__()
            s.enc, s.dec = mlp(D, 32, Z), mlp(Z, 32, D)
            s.register_buffer("code", torch.randn(K, Z) * 0.3)
            s.register_buffer("n", torch.ones(K))
            s.register_buffer("m", s.code.clone())

        def forward(s, x):
            z = s.enc(x)
            k = torch.cdist(z, s.code).argmin(1)
            q = s.code[k]
            if s.training:
                with torch.no_grad():
                    o = F.one_hot(k, K).float()
                    s.n.mul_(0.95).add_(o.sum(0), alpha=0.05)
                    s.m.mul_(0.95).add_(o.T @ z, alpha=0.05)
                    s.code = s.m / s.n.clamp(min=1e-3)[:, None]
            return s.dec(z + (q - z).detach()), F.mse_loss(z, q)

    def X(n, s):
        return blobs(n, D, 8, s, 0.3)[0]

    m = VQ()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tr = loader((X(512, 1),), 32, 1)
    va = loader((X(150, 2),), 50, shuffle=False)

    def loss_of(m, b):
        r, c = m(b[0])
        return F.mse_loss(r, b[0]) + 0.25 * c

    def step(b):
        m.train()
        opt.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        t = n = 0
        with evaluating(m):
            for (x,) in va:
                t += (m(x)[0] - x).pow(2).mean(1).sum().item()
                n += len(x)
        return {"recon_mse": t / n}

    return set_up(m, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate)


@sound
def alternating_tasks():
    """Multi-task: batches of the two tasks alternate, in each step one head gets no gradient."""
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
            s.heads = nn.ModuleDict({"cls": nn.Linear(32, 3), "reg": nn.Linear(32, 1)})

        def forward(s, x, task):
            return s.heads[task](s.body(x))

    w = torch.randn(8, generator=gen(9))
    X, Y = blobs(300, 8, 3, 1)
    R = torch.randn(300, 8, generator=gen(3))
    VX, VY = blobs(130, 8, 3, 2)
    VR = torch.randn(130, 8, generator=gen(4))

    def f(r):
        return (r @ w)[:, None].tanh()

    class Alt:
        def __init__(s):
            s.a, s.b = loader((X, Y), 20, 1), loader((R, f(R)), 20, 2)

        def __len__(s):
            return len(s.a) + len(s.b)

        def __iter__(s):
            for a, b in zip(s.a, s.b, strict=False):
                yield {"task": "cls", "x": a[0], "y": a[1]}
                yield {"task": "reg", "x": b[0], "y": b[1]}

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tr = Alt()
    va = [{"task": "cls", "x": VX, "y": VY}, {"task": "reg", "x": VR, "y": f(VR)}]

    def loss_of(m, b):
        o = m(b["x"], b["task"])
        return F.cross_entropy(o, b["y"]) if b["task"] == "cls" else F.mse_loss(o, b["y"])

    def step(b):
        m.train()
        opt.zero_grad(set_to_none=True)
        loss = loss_of(m, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        with evaluating(m):
            return {
                "cls_acc": (m(VX, "cls").argmax(1) == VY).float().mean().item(),
                "reg_mse": F.mse_loss(m(VR, "reg"), f(VR)).item(),
            }

    return set_up(m, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate)


@sound
def imbalanced_weighted():
    """4 % positives: pos_weight in the loss, no resampling; balanced accuracy is reported, plain
    accuracy is not the aim."""
    torch.manual_seed(0)
    w = torch.randn(8, generator=gen(9))

    def data(n, s):
        g = gen(s)
        x = torch.randn(n, 8, generator=g)
        return x, ((x @ w + 0.3 * torch.randn(n, generator=g)) > 1.75 * w.norm()).float()[:, None]

    X, Y = data(1000, 1)
    crit = nn.BCEWithLogitsLoss(pos_weight=(1 - Y).sum() / Y.sum())
    m = mlp(8, 16, 1)
    opt = torch.optim.Adam(m.parameters(), 3e-3, weight_decay=1e-3)
    tr = loader((X, Y), 50, 1)
    va = loader(data(500, 2), 100, shuffle=False)
    step = sup_step(m, opt, crit)

    def evaluate():
        c = torch.zeros(2, 2)
        with evaluating(m):
            for x, y in va:
                p = m(x) > 0
                for t in (0, 1):
                    c[t, 0] += (y == t).sum()
                    c[t, 1] += ((y == t) & (p == bool(t))).sum()
        return {"balanced_acc": (c[:, 1] / c[:, 0]).mean().item()}

    return set_up(m, opt, tr, step, loss_fn=crit, val_loader=va, evaluate=evaluate)


@sound
def sum_loss_tiny_lr():
    """Loss summed over examples and outputs (values in the hundreds) with a rate of 2e-4 to match:
    loss size is only a unit."""
    torch.manual_seed(0)
    W = torch.randn(6, 10, generator=gen(9))

    def data(n, s):
        return (lambda x: (x, (x @ W) + 0.1 * torch.randn(n, 10, generator=gen(s + 9))))(
            torch.randn(n, 6, generator=gen(s))
        )

    crit = nn.MSELoss(reduction="sum")
    m = mlp(6, 48, 10)
    opt = torch.optim.SGD(m.parameters(), 2e-4, momentum=0.9)
    tr = loader(data(500, 1), 25, 1, drop_last=True)
    va = loader(data(130, 2), 50, shuffle=False)
    step = sup_step(m, opt, crit)

    def evaluate():
        t = n = 0
        with evaluating(m):
            for x, y in va:
                t += crit(m(x), y).item()
                n += y.numel()
        return {"val_mse": t / n}

    return set_up(m, opt, tr, step, loss_fn=crit, val_loader=va, evaluate=evaluate)


@sound
def mixup_smooth():
    """Mixup with label smoothing: inputs mixed inside the step, both label sets weighted, training
    loss stays above validation loss."""
    torch.manual_seed(0)
    m = mlp(10, 48, 5)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    ce = nn.CrossEntropyLoss(label_smoothing=0.1)
    tr = loader(blobs(400, 10, 5, 1), 20, 1)
    va = loader(blobs(130, 10, 5, 2), 50, shuffle=False)
    g = gen(6)

    def step(b):
        x, y = b
        m.train()
        lam = torch.rand(1, generator=g).item()
        p = torch.randperm(len(x), generator=g)
        o = m(lam * x + (1 - lam) * x[p])
        loss = lam * ce(o, y) + (1 - lam) * ce(o, y[p])
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    return plain(
        m, opt, ce, tr, va, step, num_classes=5, declared={"label_smoothing": 0.1, "mixup": True}
    )


@sound
def frozen_random_features():
    """ELM-like: the random first layer is frozen for good, only the readout is trained."""
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(10, 128), nn.Tanh(), nn.Linear(128, 4))
    m[0].requires_grad_(False)
    opt = torch.optim.Adam(m[2].parameters(), 5e-3)
    ce = nn.CrossEntropyLoss()
    return plain(
        m,
        opt,
        ce,
        loader(blobs(400, 10, 4, 1), 20, 1),
        loader(blobs(130, 10, 4, 2), 50, shuffle=False),
        sup_step(m, opt, ce),
        num_classes=4,
        declared={"frozen": ["0.weight", "0.bias"]},
    )


@sound
def accum_with_warmup():
    """Accumulate 4 (each part weighted by its share), bf16 autocast with fp32 weights, clip before
    the step, warm-up from a rate of 0.001 of the full one."""
    torch.manual_seed(0)
    m = mlp(10, 48, 5)
    opt = torch.optim.AdamW(m.parameters(), 5e-3)
    sch = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: max(0.001, min(1.0, i / 30)))
    ce = nn.CrossEntropyLoss()
    tr = loader(blobs(480, 10, 5, 1), 32, 1, drop_last=True)
    va = loader(blobs(130, 10, 5, 2), 50, shuffle=False)

    def step(b):
        m.train()
        opt.zero_grad()
        t = 0.0
        for x, y in zip(b[0].chunk(4), b[1].chunk(4), strict=False):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                o = m(x)
            loss = ce(o.float(), y) * len(x) / len(b[0])
            loss.backward()
            t += loss.item()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        sch.step()
        return t

    save, load = save_load(m, opt, sched=sch)
    return plain(
        m,
        opt,
        ce,
        tr,
        va,
        step,
        scheduler=sch,
        num_classes=5,
        declared={"accumulate": 4, "max_grad_norm": 1.0, "scheduler_unit": "batch"},
        save=save,
        load=load,
    )
