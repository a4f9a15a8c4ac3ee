"""Faults of loops: averages, checkpoints, schedules, accumulation, clips, frozen parts, modes."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_second.kit import (
    ConvNet,
    blobs,
    by_classes,
    by_cost,
    fit,
    follow,
    gen,
    loaders,
    mlp,
    rated,
    scheduled,
    seed,
    shapes,
    squared,
    sup_step,
)


@pair("average-without-statistics")
def average_lacks_batch_norm_buffers(bug):
    """The average that is scored follows the parameters alone: its batch norm keeps 0 and 1. After
    300 steps accuracy is 0.302 instead of 1."""
    seed()
    m = ConvNet()
    average = copy.deepcopy(m).requires_grad_(False)
    opt = torch.optim.AdamW(m.parameters(), 3e-3)
    crit = nn.CrossEntropyLoss()
    tl, vl = loaders(shapes(480, 1), shapes(202, 2), 32)
    step = sup_step(m, opt, crit, lambda: follow(average, m, not bug))
    return by_classes(m, opt, tl, vl, 3, crit, step, evaluate=rated(average, vl))


@pair("checkpoint-by-reference")
def best_state_is_live(bug):
    """The best state is kept without a copy, so that to put it back does nothing. After 300 steps
    loss is 1.8 instead of 0.754."""
    seed()
    tl, vl = loaders(blobs(96, 20, 3, 1, 0.35), blobs(202, 20, 3, 2, 0.35), 32)
    m = mlp(20, 64, 64, 3)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    crit = nn.CrossEntropyLoss()
    evaluate = rated(m, vl)
    step = sup_step(m, opt, crit)

    def save():
        state = {"model": m.state_dict(), "optimizer": opt.state_dict()}
        return state if bug else copy.deepcopy(state)

    def load(state):
        m.load_state_dict(state["model"])
        opt.load_state_dict(copy.deepcopy(state["optimizer"]))

    def train(n):
        losses, best, kept = [], float("inf"), None
        while len(losses) < n:
            for b in tl:
                losses.append(step(b))
                if len(losses) >= n:
                    break
            loss = evaluate()["loss"]
            if loss < best:
                best, kept = loss, save()
        if kept is not None:
            load(kept)
        return losses

    more = {"train": train, "evaluate": evaluate, "save": save, "load": load}
    return by_classes(m, opt, tl, vl, 3, crit, step, **more)


@pair("checkpoint-incomplete")
def resume_of_weights_alone(bug):
    """The checkpoint has neither the averages of Adam nor the place of the schedule. Ten steps
    after a resume at step 150 the loss is 0.448 instead of 0.391."""
    seed()
    w = torch.randn(10, 1, generator=gen(4))

    def data(n, s):
        x = torch.randn(n, 10, generator=gen(s))
        return x, torch.sin(0.4 * x @ w) + 0.1 * torch.randn(n, 1, generator=gen(s + 9))

    m = mlp(10, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.995)
    tl, vl = loaders(data(480, 1), data(202, 2), 32)

    def save(path):
        state = {"model": m.state_dict()}
        if not bug:
            state |= {"optimizer": opt.state_dict(), "scheduler": scheduler.state_dict()}
        torch.save(state, path)

    def load(path):
        state = torch.load(path)
        m.load_state_dict(state["model"])
        if not bug:
            opt.load_state_dict(state["optimizer"])
            scheduler.load_state_dict(state["scheduler"])

    more = {"evaluate": squared(m, vl, "mse"), "save": save, "load": load}
    return scheduled(m, opt, tl, vl, scheduler) | more


@pair("scheduler-misplaced")
def scheduler_drives_old_optimizer(bug):
    """The optimizer is made anew after the schedule, which goes on to move the old one's rate.
    After 300 steps accuracy is 0.688 instead of 0.856."""
    seed()
    tl, vl = loaders(blobs(480, 16, 4, 1, 0.6), blobs(202, 16, 4, 2, 0.6), 32)
    m = nn.Sequential(
        nn.Linear(16, 64),
        nn.LayerNorm(64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 4),
    )

    def rate(i):
        if i < 20:
            return (i + 1) / 20
        return max(0.01, 0.5 * (1 + math.cos(math.pi * min(1.0, (i - 20) / 280))))

    opt = torch.optim.SGD(m.parameters(), 0.5, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(opt, rate)
    weights = [p for p in m.parameters() if p.ndim > 1]
    others = [p for p in m.parameters() if p.ndim == 1]
    parts = [
        {"params": weights, "weight_decay": 1e-3},
        {"params": others, "weight_decay": 0.0},
    ]
    opt = torch.optim.SGD(parts, 0.5, momentum=0.9)
    if not bug:
        scheduler = torch.optim.lr_scheduler.LambdaLR(opt, rate)
    crit = nn.CrossEntropyLoss()
    step = sup_step(m, opt, crit, scheduler.step)
    more = {"scheduler": scheduler, "declared": {"scheduler_unit": "batch"}}
    return by_classes(m, opt, tl, vl, 4, crit, step, **more)


@pair("grads-cleared-before-step")
def accumulation_zeroed_each_micro_batch(bug):
    """Gradients are cleared before each of the four micro-batches that they are to add up over.
    After 300 steps loss is 0.323 instead of 0.195."""
    seed()
    w = torch.randn(12, 5, generator=gen(6))

    def data(n, s):
        x = torch.randn(n, 12, generator=gen(s))
        p = torch.sigmoid(2 * x @ w)
        return {"features": x, "tags": (torch.rand(n, 5, generator=gen(s + 3)) < p).float()}

    m = mlp(12, 32, 5)
    opt = torch.optim.SGD(m.parameters(), 0.3, momentum=0.9)
    tl, vl = loaders(data(640, 1), data(202, 2), 8, 32)
    crit = nn.BCEWithLogitsLoss()
    count = 0

    def loss_of(model, b):
        return crit(model(b["features"]), b["tags"])

    def step(b):
        nonlocal count
        m.train()
        if bug or count % 4 == 0:
            opt.zero_grad()
        loss = loss_of(m, b)
        (loss / 4).backward()
        count += 1
        if count % 4 == 0:
            opt.step()
        return loss.item()

    def sums_of(model, b):
        out, tags = model(b["features"]), b["tags"]
        total = F.binary_cross_entropy_with_logits(out, tags, reduction="sum")
        hits = (out > 0) == (tags > 0.5)
        return {"loss": (total, out.numel()), "tag_accuracy": (hits.sum(), out.numel())}

    declared = {"accumulate": 4}
    return by_cost(m, opt, tl, vl, loss_of, sums_of, step=step, declared=declared)


@pair("clip-misplaced")
def clip_of_scaled_gradients(bug):
    """Gradients are clipped while they are scaled by 65536, and divided only then. After 300 steps
    mse is 1.95 instead of 0.007."""
    seed()

    def data(n, s):
        x = torch.rand(n, 6, generator=gen(s)) * 2 - 1
        bent = x[:, :1] * x[:, 1:2] + x[:, 2:3].sin() + x[:, 3:4] ** 2
        return {"x": x, "target": bent * 2}

    m = mlp(6, 48, 1, act=nn.GELU)
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    tl, vl = loaders(data(480, 1), data(202, 2), 32)

    def loss_of(model, b):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(b["x"])
        return F.mse_loss(out.float(), b["target"])

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
        return {"mse": (((model(b["x"]) - b["target"]) ** 2).sum(), len(b["x"]))}

    declared = {"max_grad_norm": 1.0}
    return by_cost(m, opt, tl, vl, loss_of, sums_of, step=step, declared=declared)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(16, 32)
        self.block1 = nn.Linear(32, 32)
        self.block2 = nn.Linear(32, 6)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        h = F.relu(self.block1(F.relu(self.stem(x))))
        return self.head(F.relu(self.block2(h)))


@pair("frozen-params")
def new_head_frozen_too(bug):
    """All is frozen after the new head was put on, and the last block alone is freed. After 300
    steps accuracy is 0.332 instead of 0.51."""
    seed()
    m = Backbone()
    pre = torch.optim.Adam(m.parameters(), 1e-2)
    fit(m, pre, F.cross_entropy, *blobs(480, 16, 4, 9, 0.7), 60)
    m.zero_grad(set_to_none=True)
    if bug:
        m.head = nn.Linear(6, 7)
        m.requires_grad_(False)
    else:
        m.requires_grad_(False)
        m.head = nn.Linear(6, 7)
    m.block2.requires_grad_(True)
    kept = [name for name, _ in m.named_parameters() if name.startswith(("stem", "block1"))]
    opt = torch.optim.Adam([p for p in m.parameters() if p.requires_grad], 5e-3)
    tl, vl = loaders(blobs(480, 16, 7, 1, 0.8, task=1), blobs(202, 16, 7, 2, 0.8, task=1), 32)
    return by_classes(m, opt, tl, vl, 7, declared={"frozen": kept})


class Trainer:
    """Scores the model every 10 steps."""

    def __init__(self, stays):
        x, y = blobs(160, 20, 3, 1, 0.5)
        vx, vy = blobs(202, 20, 3, 2, 0.5)
        self.stays = stays
        self.model = nn.Sequential(
            nn.Linear(20, 64),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(64, 64),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(64, 3),
        )
        self.train_loader, self.val_loader = loaders((x * 3 + 2, y), (vx * 3 + 2, vy), 32)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 3e-3)
        self.model.train()

    def evaluate(self):
        self.model.eval()
        loss = hits = n = 0
        with torch.no_grad():
            for x, y in self.val_loader:
                out = self.model(x)
                loss += F.cross_entropy(out, y, reduction="sum").item()
                hits += (out.argmax(1) == y).sum().item()
                n += len(y)
        if not self.stays:
            self.model.train()
        return {"loss": loss / n, "accuracy": hits / n}

    def train(self, n):
        losses = []
        while len(losses) < n:
            for x, y in self.train_loader:
                self.optimizer.zero_grad()
                loss = F.cross_entropy(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                losses.append(loss.item())
                if len(losses) % 10 == 0:
                    self.evaluate()
                if len(losses) >= n:
                    break
        return losses


@pair("eval-mode-in-training")
def stays_in_eval_mode(bug):
    """evaluate() leaves the model in evaluation mode, and training goes on in it. After 300 steps
    loss is 1.23 instead of 0.624."""
    seed()
    t = Trainer(bug)
    return {
        "model": t.model,
        "optimizer": t.optimizer,
        "train_loader": t.train_loader,
        "val_loader": t.val_loader,
        "train": t.train,
        "evaluate": t.evaluate,
        "loss_fn": nn.CrossEntropyLoss(),
        "num_classes": 3,
    }
