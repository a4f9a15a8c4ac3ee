"""Faults of loops: teachers, averages, accumulation, precision, modes, rates, scores, heads."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixteenth.kit import (
    Columns,
    averaged,
    blobs,
    by_cost,
    by_epochs,
    by_pairs,
    evaluating,
    gen,
    loaders,
    mlp,
    named,
    plain_step,
    seed,
    set_up,
    split,
)
from tests.debug.faulty.thirteenth.kit import loader, sup_step


def dropping(d, h, c):
    """A network with batch norm, and dropout after its first layer."""
    return nn.Sequential(
        nn.Linear(d, h),
        nn.BatchNorm1d(h),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(h, h),
        nn.BatchNorm1d(h),
        nn.ReLU(),
        nn.Linear(h, c),
    )


def fitted(model, x, y, steps):
    g, opt = gen(0), torch.optim.Adam(model.parameters(), 5e-3)
    model.train()
    for _ in range(steps):
        i = torch.randint(0, len(x), (64,), generator=g)
        opt.zero_grad()
        F.cross_entropy(model(x[i]), y[i]).backward()
        opt.step()
    return model


@pair("train-mode-in-eval")
def teacher_left_in_train_mode(bug):
    """The teacher of a distillation has no gradients but is in train mode: dropout is on and its
    batch norm drifts. After 300 steps agreement is 0.77 instead of 0.947."""
    seed(61)
    x, y = blobs(1100, 10, 5, 61)
    teacher = fitted(dropping(10, 32, 5), x[:800], y[:800], 120)
    teacher.requires_grad_(False)
    teacher.train(bug)
    tl, vl = loaders(*named(800, x=x, y=y), 8)
    m = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 5))
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b, tau=2.0):
        with torch.no_grad():
            wanted = torch.softmax(teacher(b["x"]) / tau, 1)
        out = model(b["x"])
        near = F.kl_div(torch.log_softmax(out / tau, 1), wanted, reduction="batchmean")
        return 0.9 * tau**2 * near + 0.1 * F.cross_entropy(out, b["y"])

    def sums_of(model, b):
        own, taught = model(b["x"]).argmax(1), teacher(b["x"]).argmax(1)
        n = len(own)
        return {
            "acc": ((own == b["y"]).sum(), n),
            "teacher_acc": ((taught == b["y"]).sum(), n),
            "agreement": ((own == taught).sum(), n),
        }

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=5)


@pair("average-without-statistics")
def ema_without_statistics(bug):
    """The average that is evaluated follows the parameters and not the batch norm's buffers. After
    300 steps ema_acc is 0.58 instead of 0.935."""
    seed(63)
    x, y = blobs(900, 10, 4, 65)
    tl, vl = loaders(*named(700, x=x * 4 + 5, y=y), 32)
    m = mlp(10, 32, 32, 4, bn=True)
    ema = copy.deepcopy(m).requires_grad_(False)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        return F.cross_entropy(model(b["x"]), b["y"])

    update = plain_step(m, opt, loss_of)

    def step(b):
        loss = update(b)
        with torch.no_grad():
            for e, p in zip(ema.parameters(), m.parameters(), strict=True):
                e.lerp_(p, 0.05)
            if not bug:
                for e, p in zip(ema.buffers(), m.buffers(), strict=True):
                    e.copy_(p)
        return loss

    def sums_of(model, b):
        return {"ema_acc": ((model(b["x"]).argmax(1) == b["y"]).sum(), len(b["y"]))}

    return set_up(
        m,
        opt,
        tl,
        step,
        val_loader=vl,
        loss_of=loss_of,
        num_classes=4,
        evaluate=averaged(ema, vl, sums_of),
    )


@pair("grads-cleared-before-step")
def accumulation_zeroed_each_micro(bug):
    """zero_grad() stands in the loop over four micro-batches: only the last counts. After 300 steps
    the loss is 0.254 instead of 0.157."""
    seed(64)
    x, y = blobs(900, 10, 5, 66)
    tl = loader((x[:704], y[:704]), 32, 66, drop_last=True)
    vl = DataLoader(split(x, y, val=196)[1], 64)
    m = mlp(10, 32, 32, 5)
    opt = torch.optim.SGD(m.parameters(), 0.3)
    ce = nn.CrossEntropyLoss()

    def step(b):
        m.train()
        opt.zero_grad()
        total = 0.0
        for inputs, targets in zip(b[0].chunk(4), b[1].chunk(4), strict=True):
            if bug:
                opt.zero_grad()
            loss = ce(m(inputs), targets) / 4
            loss.backward()
            total += loss.item()
        opt.step()
        return total

    return by_pairs(m, opt, tl, vl, ce, step, num_classes=5, declared={"accumulate": 4})


@pair("clip-misplaced")
def clipped_before_unscaling(bug):
    """clip_grad_norm_ sees gradients times 65536, before the scaler divides them. After 300 steps
    tag_acc is 0.518 instead of 0.919."""
    seed(66)
    g = gen(68)
    x = torch.randn(900, 12, generator=g)
    w = torch.randn(12, 6, generator=g)
    y = (x @ w + 0.5 * torch.randn(900, 6, generator=g) > 1).float()
    tl, vl = loaders(*named(704, feats=x, tags=y), 32)
    m = mlp(12, 32, 32, 6)
    opt = torch.optim.SGD(m.parameters(), 0.3, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")

    def loss_of(model, b):
        return F.binary_cross_entropy_with_logits(model(b["feats"]).float(), b["tags"])

    def step(b):
        m.train()
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(m, b)
        scaler.scale(loss).backward()
        if not bug:
            scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return loss.item()

    def sums_of(model, b):
        hits = (model(b["feats"]) > 0) == b["tags"].bool()
        return {"tag_acc": (hits.sum(), hits.numel())}

    declared = {"max_grad_norm": 1.0}
    return by_cost(m, opt, tl, vl, loss_of, sums_of, step=step, declared=declared)


@pair("updates-rounded-away")
def pure_bf16_weights(bug):
    """The weights are held in bfloat16, with a small learning rate, instead of autocast over
    float32. After 300 steps val_mse is 0.703 instead of 0.282."""
    seed(67)
    g = gen(69)
    x = torch.randn(1000, 16, generator=g)
    y = torch.tanh(x @ torch.randn(16, 2, generator=g))
    y = y + 0.05 * torch.randn(1000, 2, generator=g)
    tl, vl = loaders(*named(800, state=x, target=y), 32)
    m = mlp(16, 48, 48, 2)
    if bug:
        m = m.to(torch.bfloat16)
    opt = torch.optim.AdamW(m.parameters(), 2e-4, eps=1e-6, weight_decay=0.0)

    def loss_of(model, b):
        if bug:
            out = model(b["state"].to(torch.bfloat16))
        else:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = model(b["state"])
        return F.mse_loss(out.float(), b["target"])

    def sums_of(model, b):
        n = len(b["state"])
        return {"val_mse": (loss_of(model, b) * n, n)}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("metric-batch-mean")
def f1_mean_of_batches(bug):
    """F1 of rare positives is a mean over batches of 8, of which those without positives count as
    0. After 300 steps f1 is 0.203 instead of 0.7."""
    seed(71)
    g = gen(73)
    x = torch.randn(1500, 8, generator=g)
    s = x[:, 0] + x[:, 1] * x[:, 2] + 0.1 * torch.randn(1500, generator=g)
    tl, vl = loaders(*named(1100, x=x, fraud=(s > 2.2).float()), 32, vbs=8)
    m = mlp(8, 32, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 4e-3)

    def loss_of(model, b):
        return F.binary_cross_entropy_with_logits(model(b["x"]).squeeze(1), b["fraud"])

    def f1(found, true):
        both = (found & true).sum().item()
        return 2 * both / max(1, int(found.sum() + true.sum()))

    def evaluate():
        with evaluating(m):
            batches = [(m(b["x"]).squeeze(1) > 0, b["fraud"].bool()) for b in vl]
        if bug:
            return {"f1": sum(f1(*batch) for batch in batches) / len(batches)}
        return {"f1": f1(*(torch.cat(part) for part in zip(*batches, strict=True)))}

    step = plain_step(m, opt, loss_of)
    return set_up(m, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)


@pair("loader-exhausted")
def generator_loader_used_up(bug):
    """The loader is a generator: it is used up after one epoch, and later epochs make no step. In
    300 steps that are asked for, 25 are made."""
    seed(72)
    g = gen(74)
    x = torch.randn(640, 12, 3, generator=g)
    y = torch.stack([x[:, :, 0].mean(1) * 3, x[:, :, 1].amax(1)], 1)

    def batches(order):
        for i in order.split(20):
            yield {"seq": x[i], "y": y[i]}

    class Again:
        def __iter__(self):
            return batches(torch.randperm(500, generator=g))

        def __len__(self):
            return 25

    tl = batches(torch.randperm(500, generator=g)) if bug else Again()
    vl = DataLoader(Columns(seq=x[500:], y=y[500:]), 64)
    m = nn.Sequential(nn.Conv1d(12, 16, 1), nn.ReLU(), nn.Flatten(), *mlp(48, 32, 2))
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        return F.mse_loss(model(b["seq"]), b["y"])

    def sums_of(model, b):
        return {"val_mse": (((model(b["seq"]) - b["y"]) ** 2).sum(), b["y"].numel())}

    found = by_cost(m, opt, tl, vl, loss_of, sums_of)

    def train(n):
        losses = []
        for _ in range(-(-n // 25)):
            for b in tl:
                losses.append(found["train_step"](b))
                if len(losses) == n:
                    return losses
        return losses

    return found | {"train": train}


@pair("eval-mode-in-training")
def eval_mode_sticks(bug):
    """model.train() is called once, before the loop, and evaluate() leaves the model in eval mode.
    After 300 steps val_bce is 1.11 instead of 0.559."""
    seed(73)
    g = gen(75)
    x = torch.randn(500, 20, generator=g)
    y = torch.stack(
        [
            x[:, k] + x[:, k + 1] * x[:, k + 2] + 0.8 * torch.randn(500, generator=g) > 0
            for k in range(4)
        ],
        1,
    )
    tl, vl = loaders(*named(200, x=x, labels=y.float()))
    m = dropping(20, 64, 4)
    m.train()
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        return F.binary_cross_entropy_with_logits(model(b["x"]), b["labels"])

    def step(b):
        opt.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        m.eval()
        total = hits = n = 0.0
        with torch.no_grad():
            for b in vl:
                out = m(b["x"])
                cost = F.binary_cross_entropy_with_logits(out, b["labels"], reduction="sum")
                total += cost.item()
                hits += ((out > 0) == b["labels"].bool()).sum().item()
                n += out.numel()
        if not bug:
            m.train()
        return {"val_bce": total / n, "val_acc": hits / n}

    found = set_up(m, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)
    return found | {"train": by_epochs(tl, step, evaluate)}


@pair("scheduler-misplaced")
def plateau_min_on_accuracy(bug):
    """ReduceLROnPlateau watches an accuracy in mode 'min': each gain counts as a bad epoch. After
    300 steps val_acc is 0.893 instead of 0.964."""
    seed(74)
    x, y = blobs(900, 10, 5, 76)
    tl, vl = loaders(*split(x, y, val=196), 64)
    m = mlp(10, 32, 32, 5)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        opt, mode="min" if bug else "max", factor=0.2, patience=1
    )
    ce = nn.CrossEntropyLoss()
    step = sup_step(m, opt, ce)
    found = by_pairs(
        m,
        opt,
        tl,
        vl,
        ce,
        step,
        scheduler=scheduler,
        num_classes=5,
        declared={"scheduler_unit": "epoch"},
    )

    def each_epoch():
        scheduler.step(found["evaluate"]()["val_acc"])

    return found | {"train": by_epochs(tl, step, each_epoch)}


@pair("plain-list-layers")
def heads_in_python_list(bug):
    """The heads of three tasks are in a plain list, so no optimizer has them. After 300 steps
    mse_task0 is 20.5 instead of 1.38."""
    seed(75)
    g = gen(77)
    x = torch.randn(900, 10, generator=g)
    y = torch.stack([x[:, 0] * 4 + 3, x[:, 1] * x[:, 2] * 2, x[:, 3].abs() * 3 - 2], 1)
    y = y + 0.1 * torch.randn(900, 3, generator=g)

    class Tasks(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 8), nn.Tanh())
            heads = [nn.Linear(8, 1) for _ in range(3)]
            self.heads = heads if bug else nn.ModuleList(heads)

        def forward(self, x):
            z = self.trunk(x)
            return {f"task{k}": head(z).squeeze(1) for k, head in enumerate(self.heads)}

    tl, vl = loaders(*named(704, x=x, y=y), 32)
    m = Tasks()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        out = model(b["x"])
        return sum(F.mse_loss(out[f"task{k}"], b["y"][:, k]) for k in range(3))

    def sums_of(model, b):
        out = model(b["x"])
        return {
            f"mse_{name}": (((out[name] - b["y"][:, k]) ** 2).sum(), len(b["y"]))
            for k, name in enumerate(out)
        }

    return by_cost(m, opt, tl, vl, loss_of, sums_of)
