"""Faults of loops: rates, gradients, accumulation, freezing, averages, checkpoints, modes."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_fifth.kit import (
    BarNet,
    Flat,
    averaged,
    bars,
    blobs,
    by_cost,
    by_pairs,
    class_sums,
    fit,
    gen,
    halves,
    house,
    loaders,
    mlp,
    plain_step,
    row_squares,
    seed,
    sup_step,
    tones,
)


@pair("missing-zero-grad")
def gradients_cleared_once_an_epoch(bug):
    """The gradients are cleared at the start of each epoch and pile up within it. After 150 steps
    the held loss is 1e23 instead of 0.24."""
    seed(1)
    tl, vl = loaders(tones(320, 11), tones(150, 12), 32, 64)
    m = nn.Sequential(
        nn.Conv1d(1, 16, 9, stride=2), nn.ReLU(), nn.AdaptiveMaxPool1d(2), nn.Flatten(),
        nn.Linear(32, 4),
    )  # fmt: skip
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    crit = nn.CrossEntropyLoss()
    done = {"steps": 0}

    def step(b):
        m.train()
        if not bug or done["steps"] % len(tl) == 0:
            opt.zero_grad()
        done["steps"] += 1
        loss = crit(m(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    evaluate = averaged(m, vl, class_sums)
    return by_pairs(m, opt, tl, vl, crit, step, evaluate=evaluate, num_classes=4)


@pair("scheduler-misplaced")
def one_cycle_stepped_once_an_epoch(bug):
    """A cycle made for 1000 batches goes on by one each epoch: the rate stays at its start. After
    150 steps the held mse is 0.40 instead of 0.105."""
    seed(2)
    tl, vl = loaders(house(320, 21), house(150, 22), 32, 64)
    m = Flat(6, 48, 1)
    opt = torch.optim.AdamW(m.parameters(), 1e-2)
    cycle = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-2, total_steps=1000, pct_start=0.1)
    done = {"steps": 0}
    crit = nn.MSELoss()

    def step(b):
        x, y = b
        m.train()
        loss = crit(m(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        done["steps"] += 1
        if not bug or done["steps"] % len(tl) == 0:
            cycle.step()
        return loss.item()

    return by_pairs(
        m, opt, tl, vl, crit, step, evaluate=averaged(m, vl, row_squares), task="regression",
        scheduler=cycle, declared={"scheduler_unit": "batch"},
    )  # fmt: skip


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(2, 24, batch_first=True, nonlinearity="relu")
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])[:, 0]


@pair("clip-misplaced")
def clipped_before_backward(bug):
    """In mixed precision the norm is clipped before the gradients are there. After 150 steps the
    held mse is 0.97 instead of 0.51."""
    seed(3)

    def adding(n, s):
        g = gen(s)
        value = torch.rand(n, 12, generator=g)
        mark = (torch.rand(n, 12, generator=g) < 0.4).float()
        return torch.stack([value, mark], 2), (value * mark).sum(1)

    tl, vl = loaders(adding(320, 31), adding(150, 32), 32, 64)
    m = Counter()
    opt = torch.optim.SGD(m.parameters(), 0.03)

    def loss_of(model, b):
        with torch.autocast("cpu", torch.bfloat16):
            out = model(b[0])
        return F.mse_loss(out.float(), b[1])

    def step(b):
        m.train()
        opt.zero_grad()
        loss = loss_of(m, b)
        if bug:
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            loss.backward()
        else:
            loss.backward()
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        return loss.item()

    declared = {"max_grad_norm": 1.0}
    return by_cost(m, opt, tl, vl, loss_of, row_squares, step=step, declared=declared)


@pair("accum-not-divided")
def four_micro_batches_summed(bug):
    """Four micro-batches' mean losses are added up without a division. After 150 micro-batches the
    held loss is 0.29 instead of 0.009."""
    seed(4)
    tl, vl = loaders(bars(320, 41), bars(150, 42), 8, 64)
    m = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 4)
    )
    opt = torch.optim.SGD(m.parameters(), 0.15, momentum=0.9)
    crit = nn.CrossEntropyLoss()
    seen = {"batches": 0}
    accumulate = 4

    def step(b):
        m.train()
        loss = crit(m(b[0]), b[1])
        (loss if bug else loss / accumulate).backward()
        seen["batches"] += 1
        if seen["batches"] % accumulate == 0:
            opt.step()
            opt.zero_grad()
        return loss.item()

    more = {"num_classes": 4, "declared": {"accumulate": accumulate}}
    return by_pairs(m, opt, tl, vl, crit, step, evaluate=averaged(m, vl, class_sums), **more)


class TwoTasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 32), nn.ReLU())
        self.kind = nn.Linear(32, 3)
        self.price = nn.Linear(32, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.kind(h), self.price(h)[:, 0]


@pair("checkpoint-incomplete")
def resumed_without_adams_moments(bug):
    """A checkpoint of two tasks in training has the weights and the schedule; Adam begins anew. In
    the five steps after resuming at 75 the loss is 0.377 instead of 0.316."""
    seed(5)

    def rows(n, s):
        x, y = house(n, s)
        kind = (x[:, 4] > 0).long() + (x[:, 5] > 0).long()
        return {"x": x, "kind": kind, "price": y}

    tl, vl = loaders(rows(320, 51), rows(150, 52), 32, 64)
    m = TwoTasks()
    opt = torch.optim.AdamW(m.parameters(), 2e-2)
    decay = torch.optim.lr_scheduler.ExponentialLR(opt, 0.99)

    def loss_of(model, b):
        kind, price = model(b["x"])
        return F.cross_entropy(kind, b["kind"]) + F.mse_loss(price, b["price"])

    def sums_of(model, b):
        kind, price = model(b["x"])
        n = len(price)
        return {
            "kind_acc": ((kind.argmax(1) == b["kind"]).sum(), n),
            "price_mse": (((price - b["price"]) ** 2).sum(), n),
        }

    def save():
        state = {"model": m.state_dict(), "schedule": decay.state_dict()}
        if not bug:
            state["optimizer"] = opt.state_dict()
        return copy.deepcopy(state)

    def load(state):
        m.load_state_dict(state["model"])
        decay.load_state_dict(state["schedule"])
        if not bug:
            opt.load_state_dict(copy.deepcopy(state["optimizer"]))

    return by_cost(
        m, opt, tl, vl, loss_of, sums_of, step=plain_step(m, opt, loss_of, decay),
        save=save, load=load, scheduler=decay, declared={"scheduler_unit": "batch"},
    )  # fmt: skip


class LoRA(nn.Module):
    """A linear layer and a difference of rank 4 to it."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(4, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, 4))

    def forward(self, x):
        return self.base(x) + 2.0 * (x @ self.down.T @ self.up.T)


@pair("frozen-params", "no-gradient")
def adapters_frozen_with_the_body(bug):
    """All is frozen after the adapters were put in, so that the head alone is tuned. After 150
    steps the accuracy is 0.73 instead of 0.935."""
    seed(6)
    m = mlp(12, 48, 48, 4)
    fit(m, torch.optim.Adam(m.parameters(), 1e-2), nn.CrossEntropyLoss(),
        *blobs(400, 12, 4, 60), 60)  # fmt: skip
    turn = torch.linalg.qr(torch.randn(12, 12))[0]

    def turned(n, s):
        x, y = blobs(n, 12, 6, s)
        return x @ turn, y

    tl, vl = loaders(turned(400, 61), turned(200, 62), 32, 64)
    if not bug:
        m.requires_grad_(False)
    m[0], m[2] = LoRA(m[0]), LoRA(m[2])
    if bug:
        m.requires_grad_(False)
    m[4] = nn.Linear(48, 6)
    opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], 3e-3)
    bases = ["0.base.weight", "0.base.bias", "2.base.weight", "2.base.bias"]
    return by_pairs(
        m, opt, tl, vl, evaluate=averaged(m, vl, class_sums), num_classes=6,
        declared={"frozen": bases},
    )  # fmt: skip


@pair("optimizer-stale-params", "optimizer-holds-another")
def head_replaced_after_the_optimizer(bug):
    """The head for the new classes is put in after the optimizer was made: it is never trained.
    After 150 steps the accuracy is 0.31 instead of 0.83."""
    seed(7)
    m = BarNet(10)
    x, y = bars(300, 70)
    fit(m, torch.optim.Adam(m.parameters(), 1e-2), nn.CrossEntropyLoss(), x, y, 20)
    tl, vl = loaders(bars(256, 71), bars(150, 72), 32, 64)
    if bug:
        opt = torch.optim.AdamW(m.parameters(), 3e-4)
    m.head = nn.Linear(128, 4)
    if not bug:
        opt = torch.optim.AdamW(m.parameters(), 3e-4)
    return by_pairs(m, opt, tl, vl, evaluate=averaged(m, vl, class_sums), num_classes=4)


@pair("checkpoint-by-reference", "best-by-reference", "keeps-worse-weights")
def best_weights_are_the_last(bug):
    """The state of the best epoch is kept without a copy: what is put back are the last weights.
    After 150 steps the held loss is 0.71 instead of 0.41."""
    seed(8)
    (x, y), held = halves(96, 12, 4, 1.8)
    tl, vl = loaders((x, y), held, 16, 64)
    m = mlp(12, 96, 4)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    crit = nn.CrossEntropyLoss()
    evaluate = averaged(m, vl, class_sums)
    step = sup_step(m, opt, crit)
    best = {"loss": float("inf"), "state": None}

    def train(n):
        losses = []
        while len(losses) < n:
            for b in tl:
                losses.append(step(b))
                if len(losses) == n:
                    break
            loss = evaluate()["val_loss"]
            if loss < best["loss"]:
                best["loss"] = loss
                best["state"] = m.state_dict() if bug else copy.deepcopy(m.state_dict())
        m.load_state_dict(best["state"])
        return losses

    more = {"evaluate": evaluate, "num_classes": 4}
    return by_pairs(m, opt, tl, vl, crit, step, **more) | {"train": train}


@pair("eval-mode-in-training")
def never_back_in_training_mode(bug):
    """Scoring after each epoch leaves the model in evaluation mode: no dropout from then on. After
    150 steps the held loss is 0.82 instead of 0.61."""
    seed(9)
    (x, y), held = halves(96, 16, 4, 2.2)
    tl, vl = loaders((x, y), held, 16, 64)
    m = nn.Sequential(
        nn.Linear(16, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.6), nn.Linear(128, 4)
    )
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.CrossEntropyLoss()

    def evaluate():
        m.eval()
        loss = hits = n = 0
        with torch.no_grad():
            for x, y in vl:
                out = m(x)
                loss += crit(out, y).item() * len(y)
                hits += (out.argmax(1) == y).sum().item()
                n += len(y)
        if not bug:
            m.train()
        return {"val_loss": loss / n, "val_acc": hits / n}

    def step(b):
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    def train(n):
        m.train()
        losses = []
        while len(losses) < n:
            for b in tl:
                losses.append(step(b))
                if len(losses) == n:
                    return losses
            evaluate()
        return losses

    more = {"evaluate": evaluate, "num_classes": 4}
    return by_pairs(m, opt, tl, vl, crit, step, **more) | {"train": train}


@pair("average-without-statistics")
def average_keeps_its_first_statistics(bug):
    """The averaged copy that is scored never gets the running statistics of the batch norm. After
    150 steps the held loss is 0.094 instead of 0.043."""
    seed(10)

    def shifted(n, s):
        x, y = bars(n, s)
        return x * 2 + 1.5, y

    tl, vl = loaders(shifted(256, 101), shifted(150, 102), 32, 64)
    m = BarNet()
    shadow = copy.deepcopy(m).requires_grad_(False).eval()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.CrossEntropyLoss()

    def step(b):
        m.train()
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        opt.step()
        with torch.no_grad():
            for s, p in zip(shadow.parameters(), m.parameters(), strict=True):
                s.mul_(0.95).add_(p, alpha=0.05)
            if not bug:
                for s, p in zip(shadow.buffers(), m.buffers(), strict=True):
                    s.copy_(p)
        return loss.item()

    return by_pairs(
        m, opt, tl, vl, crit, step, evaluate=averaged(shadow, vl, class_sums), num_classes=4
    )  # fmt: skip


@pair("updates-rounded-away")
def parameters_kept_in_bfloat16(bug):
    """The weights themselves are bfloat16, and most of what is to be added is rounded away. After
    150 steps the held mse is 0.41 instead of 0.24."""
    seed(11)
    tl, vl = loaders(house(320, 111), house(150, 112), 32, 64)
    m = nn.Sequential(nn.Linear(6, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
    if bug:
        m = m.bfloat16()
    opt = torch.optim.AdamW(m.parameters(), 2e-4, weight_decay=0.01)

    def loss_of(model, b):
        x, y = b
        with torch.autocast("cpu", torch.bfloat16, enabled=not bug):
            out = model(x.bfloat16() if bug else x)
        return F.mse_loss(out.float()[:, 0], y)

    def sums_of(model, b):
        n = len(b[1])
        return {"val_mse": (loss_of(model, b) * n, n)}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)
