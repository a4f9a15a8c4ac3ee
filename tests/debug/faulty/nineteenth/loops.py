"""Faults of loops: frozen parts, clips, rates, checkpoints, modes, digits."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.nineteenth.kit import (
    accuracy,
    averaged,
    blobs,
    by_cost,
    by_pairs,
    discs,
    frozen,
    gen,
    loaders,
    mlp,
    scheduled,
    seed,
    squared,
    sup_step,
    wave,
)


@pair("optimizer-stale-params")
def head_after_the_optimizer(bug):
    """The head is replaced once the optimizer is made, which holds the old one. After 240 steps
    val_acc is 0.767 instead of 0.82."""
    seed(1)

    class Net(nn.Module):
        def __init__(self, C):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(10, 12), nn.Tanh())
            self.fc = nn.Linear(12, C)

        def forward(self, x):
            return self.fc(self.body(x))

    m = Net(20)
    before = [*m.parameters()]
    m.fc = nn.Linear(12, 6)
    opt = torch.optim.SGD(before if bug else m.parameters(), 0.02, momentum=0.9)
    crit = nn.CrossEntropyLoss()
    tl, vl = loaders(blobs(512, gen(1), 6, scale=0.8), blobs(150, gen(2), 6, scale=0.8))
    return by_pairs(m, opt, tl, vl, crit, num_classes=6)


@pair("frozen-params-drift")
def frozen_part_decays(bug):
    """The backbone's gradients are zeroed, but AdamW's decay still shrinks it. After 240 steps
    val_bce is 0.541 instead of 0.406."""
    seed(2)
    B = torch.randn(12, 7, generator=gen(101))

    def data(n, g):
        x = torch.randn(n, 12, generator=g)
        return x, (torch.tanh(x) @ B + 0.3 * torch.randn(n, 7, generator=g) > 1.0).float()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = mlp(12, 64, 64)
            self.head = nn.Linear(64, 7)

        def forward(self, x):
            return self.head(self.backbone(x).relu())

    m = Net()
    tl, vl = loaders(data(512, gen(1)), data(150, gen(2)))
    crit = nn.BCEWithLogitsLoss()
    fixed = ["backbone." + n for n, _ in m.backbone.named_parameters()]
    if bug:
        opt = torch.optim.AdamW(m.parameters(), 1e-2, weight_decay=0.3)
    else:
        m.backbone.requires_grad_(False)
        opt = torch.optim.AdamW(m.head.parameters(), 1e-2, weight_decay=0.3)

    def step(b):
        m.train()
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        if bug:
            for p in m.backbone.parameters():
                p.grad.zero_()
        opt.step()
        return loss.item()

    def sums_of(model, b):
        o = model(b[0])
        n = len(b[0])
        return {
            "val_bce": (F.binary_cross_entropy_with_logits(o, b[1], reduction="sum") / 7, n),
            "exact": (((o > 0) == (b[1] > 0.5)).all(1).sum(), n),
        }

    more = {"evaluate": averaged(m, vl, sums_of), "declared": {"frozen": fixed}}
    return by_pairs(m, opt, tl, vl, crit, step, **more)


@pair("frozen-params-drift")
def frozen_bn_moves(bug):
    """Nothing of the backbone is trained, but its batch norm follows the new data. After 240 steps
    old_task_acc is 0.255 instead of 0.965."""
    seed(3)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(
                nn.Linear(10, 32),
                nn.BatchNorm1d(32),
                nn.ReLU(),
                nn.Linear(32, 32),
                nn.BatchNorm1d(32),
                nn.ReLU(),
            )
            self.old = nn.Linear(32, 4)
            self.new = nn.Linear(32, 3)

        def forward(self, x):
            return self.new(self.backbone(x))

    m = Net()
    crit = nn.CrossEntropyLoss()
    old_tl, old_vl = loaders(blobs(320, gen(3)), blobs(200, gen(4)), vbs=100)
    o = torch.optim.Adam([*m.backbone.parameters(), *m.old.parameters()], 5e-3)
    for _ in range(6):
        for x, y in old_tl:
            o.zero_grad()
            crit(m.old(m.backbone(x)), y).backward()
            o.step()
    m.zero_grad(set_to_none=True)
    m.backbone.requires_grad_(False)
    m.old.requires_grad_(False)
    opt = torch.optim.Adam(m.new.parameters(), 5e-3)
    tl, vl = loaders(
        blobs(384, gen(1), 3, shift=2.0, key=102), blobs(150, gen(2), 3, shift=2.0, key=102)
    )

    def step(b):
        m.train()
        if not bug:
            m.backbone.eval()
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    def sums_of(model, b):
        hits = model.old(model.backbone(b[0])).argmax(1) == b[1]
        return {"old_task_acc": (hits.sum(), len(hits))}

    def evaluate():
        return accuracy(m, vl) | averaged(m, old_vl, sums_of)()

    more = {"evaluate": evaluate, "declared": {"frozen": frozen(m)}}
    return by_pairs(m, opt, tl, vl, crit, step, num_classes=3, **more)


@pair("clip-misplaced")
def clip_scaled_gradients(bug):
    """The gradients are clipped while they are still scaled. After 240 steps val_iou is 0.209
    instead of 0.839."""
    seed(4)

    def data(n, g):
        c = torch.randint(3, 7, (n, 2), generator=g).float()
        mask = discs(c, 1.5 + 2 * torch.rand(n, generator=g), 10).float()[:, None]
        return {"image": mask * 1.2 + 0.6 * torch.randn(n, 1, 10, 10, generator=g), "mask": mask}

    m = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.Conv2d(6, 1, 3, padding=1))
    opt = torch.optim.SGD(m.parameters(), 0.2, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    tl, vl = loaders(data(256, gen(1)), data(72, gen(2)), 16, vbs=32)

    def loss_of(model, b):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(b["image"])
        return F.binary_cross_entropy_with_logits(out.float(), b["mask"])

    def step(b):
        m.train()
        opt.zero_grad()
        loss = loss_of(m, b)
        scaler.scale(loss).backward()
        if not bug:
            scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return loss.item()

    def sums_of(model, b):
        p, t = model(b["image"]) > 0, b["mask"] > 0.5
        return {"val_iou": ((p & t).sum(), (p | t).sum())}

    more = {"step": step, "declared": {"max_grad_norm": 1.0}}
    return by_cost(m, opt, tl, vl, loss_of, sums_of, **more)


@pair("lr-too-small")
def warmup_integer_division(bug):
    """The warm-up divides whole numbers: its factor is 0 for 99 steps, then 1. After 240 steps
    val_mse is 0.316 instead of 0.216."""
    seed(5)
    m = mlp(5, 48, 48, 1)
    opt = torch.optim.AdamW(m.parameters(), 3e-3, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) // 100 if bug else (s + 1) / 100)
    )
    tl, vl = loaders(wave(512, gen(1)), wave(150, gen(2)))
    return scheduled(m, opt, tl, vl, scheduler)


@pair("checkpoint-by-reference")
def best_weights_are_live_ones(bug):
    """The best weights are kept without a copy: what is put back at the end are the last ones.
    After 240 steps val_loss is 1.13 instead of 0.627."""
    seed(6)
    m = mlp(20, 64, 64, 3)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    crit = nn.CrossEntropyLoss()
    data = (blobs(n, gen(i), 3, 20, 2.5, scale=0.8) for i, n in ((1, 64), (2, 200)))
    tl, vl = loaders(*data, 16, vbs=100)
    step = sup_step(m, opt, crit)
    best = {"loss": float("inf"), "state": None}

    def check():
        loss = accuracy(m, vl)["val_loss"]
        if loss < best["loss"]:
            state = m.state_dict()
            best.update(loss=loss, state=state if bug else copy.deepcopy(state))

    def train(n):
        losses = []
        while len(losses) < n:
            for b in tl:
                losses.append(step(b))
                if len(losses) % 4 == 0 or len(losses) == n:
                    check()
                if len(losses) == n:
                    break
        m.load_state_dict(best["state"])
        return losses

    def evaluate():
        return {**accuracy(m, vl), "best_val_loss": best["loss"]}

    return by_pairs(m, opt, tl, vl, crit, step, train=train, evaluate=evaluate, num_classes=3)


@pair("checkpoint-incomplete")
def resume_model_only(bug):
    """load() puts back the model alone: the optimizer and the schedule begin anew. 112 steps after
    a resume val_mse is 0.338 instead of 0.233."""
    seed(7)
    m = mlp(5, 48, 1)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    crit = nn.MSELoss()
    scheduler = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-2, total_steps=400)
    tl, vl = loaders(wave(512, gen(1)), wave(150, gen(2)))

    def step(b):
        m.train()
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        opt.step()
        if scheduler.last_epoch < scheduler.total_steps:
            scheduler.step()
        return loss.item()

    def save():
        parts = {"model": m, "optimizer": opt, "scheduler": scheduler}
        return copy.deepcopy({name: part.state_dict() for name, part in parts.items()})

    def load(state):
        m.load_state_dict(state["model"])
        if not bug:
            opt.load_state_dict(state["optimizer"])
            scheduler.load_state_dict(state["scheduler"])

    more = {"scheduler": scheduler, "declared": {"scheduler_unit": "batch"}}
    more |= {"save": save, "load": load, "evaluate": squared(m, vl)}
    return by_pairs(m, opt, tl, vl, crit, step, **more)


@pair("train-mode-in-eval")
def train_override_ignores_mode(bug):
    """train() is overridden and leaves out its mode: eval() leaves dropout on. After 240 steps
    val_mse is 0.499 instead of 0.426."""
    seed(8)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(5, affine=False)
            self.f = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 1))
            self.norm.running_mean.copy_(stat[0])
            self.norm.running_var.copy_(stat[1])
            self.train()

        def train(self, mode=True):
            super().train(True if bug else mode)
            self.norm.eval()
            return self

        def forward(self, x):
            return self.f(self.norm(x))

    tr = wave(512, gen(1))
    va = wave(150, gen(2))
    stat = tr[0].mean(0), tr[0].var(0)
    m = Net()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.MSELoss()
    tl, vl = loaders(tr, va)
    return by_pairs(m, opt, tl, vl, crit, evaluate=squared(m, vl))


@pair("updates-rounded-away")
def bf16_weights_lose_updates(bug):
    """The weights are in bfloat16, and most updates are less than half their last digit. After 240
    steps val_mse is 1.04 instead of 0.897."""
    seed(9)
    pre = mlp(5, 48, 48, 1)
    m = pre.to(torch.bfloat16) if bug else pre
    opt = torch.optim.AdamW(m.parameters(), 2e-4, weight_decay=0.01)
    crit = nn.MSELoss()
    tl, vl = loaders(wave(512, gen(1)), wave(150, gen(2)))

    def out(m, x):
        if bug:
            return m(x.to(torch.bfloat16)).float()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return m(x).float()

    def loss_of(model, b):
        return crit(out(model, b[0]), b[1])

    def sums_of(model, b):
        return {"val_mse": (F.mse_loss(out(model, b[0]), b[1], reduction="sum"), len(b[0]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)
