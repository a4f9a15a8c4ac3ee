"""Faults of loops: averages, accumulation, checkpoints, schedules, scores, attacks."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, Subset, random_split

from tests.debug.faulty.kit import pair
from tests.debug.faulty.thirteenth.kit import (
    accuracy,
    blobs,
    evaluating,
    gen,
    loader,
    mlp,
    runner,
    save_load,
    set_up,
    sup_step,
)


@pair("optimizer-stale-params")
def unfreeze_opt(bug):
    """Gradual unfreezing: after 4 warm-up steps the backbone gets requires_grad=True, but the
    optimizer was built with the head only: it never trains. After 300 steps val_loss is 1.395
    instead of 0.268."""
    torch.manual_seed(0)
    K = 5

    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.backbone = nn.Sequential(nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU())
            s.head = nn.Linear(6, K)

        def forward(s, x):
            return s.head(s.backbone(x))

    class Trainer:
        def __init__(s):
            s.model = Net()
            s.model.backbone.requires_grad_(False)
            s.n = 0
            s.ce = nn.CrossEntropyLoss()
            s.opt = torch.optim.Adam([p for p in s.model.parameters() if p.requires_grad], 5e-3)
            s.tr = loader(blobs(500, 12, K, 1), 25, 1)
            s.va = loader(blobs(140, 12, K, 2), 50, shuffle=False)

        def step(s, b):
            if s.n == 4:
                s.model.backbone.requires_grad_(True)
                if not bug:
                    s.opt.add_param_group(
                        {"params": list(s.model.backbone.parameters()), "lr": 3e-3}
                    )
            s.n += 1
            s.model.train()
            s.opt.zero_grad()
            loss = s.ce(s.model(b[0]), b[1])
            loss.backward()
            s.opt.step()
            return loss.item()

    t = Trainer()
    return set_up(
        t.model,
        t.opt,
        t.tr,
        t.step,
        loss_fn=t.ce,
        val_loader=t.va,
        evaluate=lambda: accuracy(t.model, t.va),
        num_classes=K,
        declared={"unfreeze_at_step": 4},
    )


@pair("average-without-statistics")
def ema_buffers(bug):
    """EMA model averages the parameters but never takes over the BatchNorm buffers: evaluated with
    running mean 0 and variance 1. After 300 steps ema_val_loss is 6.214 instead of 0.225."""
    torch.manual_seed(0)
    K = 4
    model = mlp(10, 32, 32, K, bn=True)
    ema = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    ce = nn.CrossEntropyLoss()

    def update():
        with torch.no_grad():
            for a, b in zip(ema.parameters(), model.parameters(), strict=False):
                a.mul_(0.9).add_(b, alpha=0.1)
            if not bug:
                for a, b in zip(ema.buffers(), model.buffers(), strict=False):
                    a.copy_(b)

    mk = dict(scale=3.0, shift=5.0)
    tr = loader(blobs(500, 10, K, 1, **mk), 25, 1)
    va = loader(blobs(130, 10, K, 2, **mk), 50, shuffle=False)
    step = sup_step(model, opt, ce, update)
    save, load = save_load(model, opt, ema=ema)
    return set_up(
        model,
        opt,
        tr,
        step,
        loss_fn=ce,
        val_loader=va,
        save=save,
        load=load,
        num_classes=K,
        declared={"ema_decay": 0.9},
        evaluate=lambda: {"ema_" + k: v for k, v in accuracy(ema, va).items()},
    )


@pair("grads-cleared-before-step")
def accum_zero(bug):
    """Gradient accumulation over 4 micro-batches: zero_grad stands inside the micro-batch loop,
    only the last quarter of each batch trains. After 300 steps val_loss is 0.726 instead of
    0.789."""
    torch.manual_seed(0)
    K = 6
    model = mlp(10, 32, K)
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    ce = nn.CrossEntropyLoss()
    tr = loader(blobs(640, 10, K, 1, 1.2), 32, 1, drop_last=True)
    va = loader(blobs(200, 10, K, 2, 1.2), 64, shuffle=False)

    def step(b):
        model.train()
        tot = 0.0
        opt.zero_grad()
        for x, y in zip(b[0].chunk(4), b[1].chunk(4), strict=False):
            if bug:
                opt.zero_grad()
            loss = ce(model(x), y) * len(x) / len(b[0])
            loss.backward()
            tot += loss.item()
        opt.step()
        return tot

    return set_up(
        model,
        opt,
        tr,
        step,
        loss_fn=ce,
        val_loader=va,
        evaluate=lambda: accuracy(model, va),
        num_classes=K,
        declared={"accumulate": 4},
    )


@pair("updates-rounded-away")
def bf16_pure(bug):
    """'bf16 training': the weights themselves are cast to bfloat16, so with lr 2e-3 many updates
    are rounded away (the twin keeps fp32 weights under autocast). After 300 steps val_loss is 0.89
    instead of 0.647."""
    torch.manual_seed(0)
    K = 6
    model = mlp(10, 48, 48, K)
    ce = nn.CrossEntropyLoss()
    if bug:
        model = model.to(torch.bfloat16)
    opt = torch.optim.SGD(model.parameters(), 2e-3, momentum=0.9)
    tr = loader(blobs(600, 10, K, 1), 30, 1)
    va = loader(blobs(160, 10, K, 2), 50, shuffle=False)

    class Cast(nn.Module):
        def __init__(s):
            super().__init__()
            s.m = model

        def forward(s, x):
            if bug:
                return s.m(x.to(torch.bfloat16)).float()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return s.m(x).float()

    net = Cast()
    step = sup_step(net, opt, ce)
    return set_up(
        net,
        opt,
        tr,
        step,
        loss_fn=ce,
        val_loader=va,
        evaluate=lambda: accuracy(net, va),
        num_classes=K,
        declared={"amp": "bfloat16"},
    )


@pair("checkpoint-incomplete")
def ckpt_prefix(bug):
    """Checkpoint of the wrapped (compiled/DataParallel) model has prefixed keys; load uses
    strict=False and silently restores no weight. After 300 steps val_acc is 0.931 instead of
    0.931."""
    torch.manual_seed(0)
    K = 4
    net = mlp(10, 32, K)

    class Wrapped(nn.Module):
        def __init__(s, m):
            super().__init__()
            s.module = m

        def forward(s, x):
            return s.module(x)

    wrapped = Wrapped(net)
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    ce = nn.CrossEntropyLoss()
    tr = loader(blobs(400, 10, K, 1), 20, 1)
    va = loader(blobs(130, 10, K, 2), 50, shuffle=False)
    step = sup_step(wrapped, opt, ce)

    def save(path):
        torch.save({"model": wrapped.state_dict(), "optimizer": opt.state_dict()}, path)

    def load(path):
        c = torch.load(path)
        sd = c["model"] if bug else {k.removeprefix("module."): v for k, v in c["model"].items()}
        net.load_state_dict(sd, strict=not bug)
        opt.load_state_dict(c["optimizer"])

    return set_up(
        net,
        opt,
        tr,
        step,
        loss_fn=ce,
        val_loader=va,
        evaluate=lambda: accuracy(net, va),
        save=save,
        load=load,
        num_classes=K,
    )


@pair("checkpoint-by-reference")
def early_alias(bug):
    """Early stopping keeps best = model.state_dict() (references, no copy): the 'best' weights
    restored at the end are the last ones. After 300 steps val_loss is 2.196 instead of 0.837."""
    torch.manual_seed(0)
    K = 3
    X, Y = blobs(60, 20, K, 1, 2.5)
    model = mlp(20, 64, K)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    ce = nn.CrossEntropyLoss()
    tr = loader((X, Y), 20, 1)
    va = loader(blobs(150, 20, K, 2, 2.5), 50, shuffle=False)
    step = sup_step(model, opt, ce)
    run = runner(tr, step)

    class Fit:
        best, best_state, history = float("inf"), None, []

        def train(s, n):
            out = []
            s.history = []
            for i in range(n):
                out += run(1)
                if (i + 1) % 5 == 0 or i + 1 == n:
                    v = accuracy(model, va)["val_loss"]
                    s.history.append(v)
                    if v < s.best:
                        s.best = v
                        s.best_state = (
                            model.state_dict() if bug else copy.deepcopy(model.state_dict())
                        )
            if s.best_state is not None:
                model.load_state_dict(s.best_state)
            return out

    f = Fit()
    return dict(
        model=model,
        optimizer=opt,
        loss_fn=ce,
        train_loader=tr,
        val_loader=va,
        train_step=step,
        train=f.train,
        evaluate=lambda: {
            **accuracy(model, va),
            **({"best_val_loss": f.best} if f.best_state is not None else {}),
        },
        num_classes=K,
        declared={"restore_best": True},
    )


@pair("scheduler-misplaced")
def onecycle_epoch(bug):
    """OneCycleLR sized in batches (total_steps = epochs * len(loader)) but stepped once an epoch:
    the rate stays at its tiny start value. After 300 steps val_loss is 0.646 instead of 0.478."""
    torch.manual_seed(0)
    K = 5
    model = mlp(10, 32, K)
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    ce = nn.CrossEntropyLoss()
    tr = loader(blobs(400, 10, K, 1), 20, 1)
    va = loader(blobs(130, 10, K, 2), 50, shuffle=False)
    total = 30 * len(tr)
    sch = torch.optim.lr_scheduler.OneCycleLR(opt, 0.05, total_steps=total, div_factor=100)
    seen = [0]

    def after():
        seen[0] += 1
        if sch.last_epoch < total - 1 and (not bug or seen[0] % len(tr) == 0):
            sch.step()

    step = sup_step(model, opt, ce, after)
    _save, _load = save_load(model, opt, sched=sch)
    return set_up(
        model,
        opt,
        tr,
        step,
        scheduler=sch,
        loss_fn=ce,
        val_loader=va,
        evaluate=lambda: accuracy(model, va),
        num_classes=K,
        declared={"scheduler_unit": "batch"},
    )


@pair("metric-wrong")
def multilabel_threshold(bug):
    """Multi-label tagging: evaluation thresholds the raw logits at 0.5 in place of the
    probabilities. After 300 steps recall is 0.629 instead of 0.749."""
    torch.manual_seed(0)
    C = 6
    W = torch.randn(10, C, generator=gen(9))

    def data(n, s):
        g = gen(s)
        x = torch.randn(n, 10, generator=g)
        return x, ((x @ W + 1.5 * torch.randn(n, C, generator=g)) > 2.0).float()

    model = mlp(10, 32, C)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    crit = nn.BCEWithLogitsLoss()
    tr = loader(data(500, 1), 25, 1)
    va = loader(data(170, 2), 50, shuffle=False)
    step = sup_step(model, opt, crit)

    def evaluate():
        tp = fp = fn = 0
        with evaluating(model):
            for x, y in va:
                o = model(x)
                p = (o if bug else o.sigmoid()) > 0.5
                t = y > 0.5
                tp += (p & t).sum().item()
                fp += (p & ~t).sum().item()
                fn += (~p & t).sum().item()
        return {"micro_f1": 2 * tp / max(1, 2 * tp + fp + fn), "recall": tp / max(1, tp + fn)}

    return set_up(
        model, opt, tr, step, loss_fn=crit, val_loader=va, evaluate=evaluate, num_classes=C
    )


@pair("loader-exhausted")
def mapped_once(bug):
    """The train 'loader' is a map() iterator: it is empty after the first epoch, and the other 199
    epochs train on nothing. After 12 steps val_acc is 0.146 instead of 0.862."""
    torch.manual_seed(0)
    K = 5
    X, Y = blobs(240, 10, K, 1)
    model = mlp(10, 32, K)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    ce = nn.CrossEntropyLoss()
    va = loader(blobs(130, 10, K, 2), 50, shuffle=False)
    base = loader((X, Y), 20, 1)

    def prep(b):
        return (b[0] / 2, b[1])

    vprep = [prep(b) for b in va]

    class Mapped:
        def __iter__(s):
            return map(prep, base)

        def __len__(s):
            return len(base)

    tr = map(prep, base) if bug else Mapped()
    step = sup_step(model, opt, ce)

    def train(n):
        out = []
        for _epoch in range(200):
            for b in tr:
                out.append(step(b))
                if len(out) == n:
                    return out
        return out

    return dict(
        model=model,
        optimizer=opt,
        loss_fn=ce,
        train_loader=tr,
        val_loader=vprep,
        train_step=step,
        train=train,
        evaluate=lambda: accuracy(model, vprep),
        num_classes=K,
    )


@pair("metric-batch-mean")
def f1_last_batch(bug):
    """Evaluation overwrites preds/labels in the loop instead of collecting them: macro F1 is that
    of the last, short batch. After 300 steps macro_f1 is 0.167 instead of 0.672."""
    torch.manual_seed(0)
    K = 3
    model = mlp(8, 32, K)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    ce = nn.CrossEntropyLoss()
    tr = loader(blobs(400, 8, K, 1, 2.0), 20, 1)
    va = loader(blobs(166, 8, K, 2, 2.0), 40, shuffle=False)
    step = sup_step(model, opt, ce)

    def evaluate():
        ps, ts = [], []
        with evaluating(model):
            for x, y in va:
                if bug:
                    ps, ts = [], []
                ps.append(model(x).argmax(1))
                ts.append(y)
        p, t = torch.cat(ps), torch.cat(ts)
        f = []
        for c in range(K):
            tp = ((p == c) & (t == c)).sum().item()
            d = (p == c).sum().item() + (t == c).sum().item()
            f.append(2 * tp / d if d else 0.0)
        return {"macro_f1": sum(f) / K}

    return set_up(model, opt, tr, step, loss_fn=ce, val_loader=va, evaluate=evaluate, num_classes=K)


@pair("augmented-validation")
def shared_transform_val(bug):
    """random_split of one dataset object with train augmentation: the validation subset is randomly
    augmented too. After 300 steps val_loss is 0.121 instead of 0.005."""
    torch.manual_seed(0)
    K = 4
    P = torch.randn(K, 1, 8, 8, generator=gen(9))
    g = gen(1)
    y = torch.randint(K, (500,), generator=g)
    x = 1.2 * P[y] + 0.8 * torch.randn(500, 1, 8, 8, generator=g)

    class Images(Dataset):
        def __init__(s, aug, seed=3):
            s.aug, s.g = aug, gen(seed)

        def __len__(s):
            return len(x)

        def __getitem__(s, i):
            v = x[i]
            if s.aug:
                a, b = torch.randint(-1, 2, (2,), generator=s.g).tolist()
                v = v.roll((a, b), (1, 2)).clone()
                c, d = torch.randint(0, 3, (2,), generator=s.g).tolist()
                v[:, c : c + 6, d : d + 6] = 0
            return v, y[i]

    full = Images(True)
    ts, vs = random_split(full, [380, 120], generator=gen(2))
    if not bug:
        vs = Subset(Images(False), vs.indices)
    model = nn.Sequential(nn.Flatten(), mlp(64, 128, K))
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    ce = nn.CrossEntropyLoss()
    tr = loader(ts, 20, 1)
    va = loader(vs, 50, shuffle=False)
    step = sup_step(model, opt, ce)
    return set_up(
        model,
        opt,
        tr,
        step,
        loss_fn=ce,
        val_loader=va,
        evaluate=lambda: accuracy(model, va),
        num_classes=K,
    )


@pair("missing-zero-grad")
def adv_grads_left(bug):
    """PGD adversarial training: the attack's backward() calls leave their (ascent-point) gradients
    in the weights and no zero_grad follows before the real backward. After 300 steps robust_loss is
    1.544 instead of 0.842."""
    torch.manual_seed(0)
    K = 4
    model = mlp(10, 32, K)
    opt = torch.optim.SGD(model.parameters(), 0.08, momentum=0.9)
    ce = nn.CrossEntropyLoss()
    tr = loader(blobs(500, 10, K, 1), 25, 1)
    va = loader(blobs(150, 10, K, 2), 50, shuffle=False)
    eps = 0.4

    def attack(m, x, y, dirty=False):
        a = x.clone()
        for _ in range(3):
            a = a.detach().requires_grad_(True)
            loss = F.cross_entropy(m(a), y)
            if dirty:
                loss.backward()
                gr = a.grad
            else:
                gr = torch.autograd.grad(loss, a)[0]
            a = x + (a + eps / 2 * gr.sign() - x).clamp(-eps, eps)
        return a.detach()

    def step(b):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        ok = n = 0
        loss = 0.0
        was = model.training
        model.eval()
        for x, y in va:
            a = attack(model, x, y)
            o = model(a).detach()
            ok += (o.argmax(1) == y).sum().item()
            loss += F.cross_entropy(o, y, reduction="sum").item()
            n += len(y)
        model.train(was)
        return {"robust_acc": ok / n, "robust_loss": loss / n, **accuracy(model, va)}

    def loss_of(m, b):
        return ce(m(attack(m, *b, dirty=bug)), b[1])

    return set_up(
        model,
        opt,
        tr,
        step,
        loss_fn=ce,
        val_loader=va,
        evaluate=evaluate,
        num_classes=K,
        declared={"adversarial": "PGD-3"},
    )
