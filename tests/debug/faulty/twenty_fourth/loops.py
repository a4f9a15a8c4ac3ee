"""Faults of loops: rates, gradients, micro-batches, freezing, averages, checkpoints, modes."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.thirteenth.kit import runner, save_load
from tests.debug.faulty.twenty_fourth.kit import (
    averaged,
    blobs,
    by_classes,
    by_cost,
    by_pairs,
    costed,
    feed,
    follow,
    halves,
    hits,
    loaders,
    mlp,
    patterns,
    plain_step,
    seed,
    small_conv,
    sup_step,
    then,
)


@pair("scheduler-misplaced")
def scheduler_stepped_per_batch(bug):
    """A schedule of three epochs a stage is stepped after each batch: the rate is near 0 within two
    epochs. After 150 steps mse is 1.4 instead of 0.502."""
    seed(21)

    def data(n):
        x = torch.randn(n, 8)
        return {"features": x, "price": torch.sin(x[:, 0] * 2) + x[:, 1] * x[:, 2]}

    tl, vl = loaders(data(320), data(150), 32, 64)
    m = nn.Sequential(mlp(8, 48, 48, 1), nn.Flatten(0))
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(opt, step_size=3, gamma=0.5)
    steps = 0

    def loss_of(model, b):
        return F.mse_loss(model(b["features"]), b["price"])

    def after():
        nonlocal steps
        steps += 1
        if bug or steps % len(tl) == 0:
            scheduler.step()

    step = then(plain_step(m, opt, loss_of), after)
    more = {"scheduler": scheduler, "declared": {"scheduler_unit": "epoch"}}
    return by_cost(m, opt, tl, vl, loss_of, costed(loss_of, "price", "mse"), step=step, **more)


@pair("missing-zero-grad")
def zero_grad_forgotten(bug):
    """Gradients are never cleared and pile up. After 150 steps the loss is 712,000 instead of
    0.016."""
    seed(22)
    base = torch.randn(4, 1, 8, 8)
    tl, vl = loaders(patterns(320, base, 1.2), patterns(150, base, 1.2), 32, 64)
    m = small_conv()
    opt = torch.optim.SGD(m.parameters(), 0.01, momentum=0.9)
    crit = nn.CrossEntropyLoss()

    def step(b):
        m.train()
        loss = crit(m(b[0]), b[1])
        if not bug:
            opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    return by_classes(m, opt, tl, vl, 4, step)


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(30, 16, mode="mean")
        self.fc = mlp(16, 32, 3)

    def forward(self, ids):
        return self.fc(self.emb(ids))


@pair("accum-not-divided")
def accumulation_not_divided(bug):
    """Four micro-batches are accumulated with their whole mean losses: the gradient is four times
    too large. After 150 steps accuracy is 0.29 instead of 0.96."""
    seed(23)

    def data(n):
        ids = torch.randint(0, 30, (n, 9))
        counts = torch.stack([(ids % 3 == i).sum(1) for i in range(3)], 1)
        return {"ids": ids, "label": counts.argmax(1)}

    tl, vl = loaders(data(640), data(200), 64)
    m = Bag()
    opt = torch.optim.SGD(m.parameters(), 0.7, momentum=0.9)

    def loss_of(model, b):
        return F.cross_entropy(model(b["ids"]), b["label"])

    def step(b):
        m.train()
        opt.zero_grad()
        total = 0.0
        for i in range(4):
            loss = loss_of(m, {name: column[i::4] for name, column in b.items()})
            (loss if bug else loss / 4).backward()
            total += loss.item() / 4
        opt.step()
        return total

    def sums_of(model, b):
        return {"accuracy": ((model(b["ids"]).argmax(1) == b["label"]).sum(), len(b["label"]))}

    more = {"num_classes": 3, "declared": {"accumulate": 4}}
    return by_cost(m, opt, tl, vl, loss_of, sums_of, step=step, **more)


@pair("clip-misplaced")
def clipped_while_still_scaled(bug):
    """Gradients are clipped while they are multiplied by the scaler's scale: each update is
    thousands of times too small. After 150 steps mse is 4.86 instead of 0.112."""
    seed(24)

    def data(n):
        x = torch.randn(n, 10)
        return {"x": x, "y": (x @ torch.linspace(-1, 1, 10) + x[:, 0] * x[:, 1])[:, None]}

    tl, vl = loaders(data(320), data(150), 32, 64)
    m = mlp(10, 32, 1)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")

    def loss_of(model, b):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(b["x"])
        return F.mse_loss(out.float(), b["y"])

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

    more = {"step": step, "declared": {"max_grad_norm": 1.0}}
    return by_cost(m, opt, tl, vl, loss_of, costed(loss_of, "y", "mse"), **more)


class Headed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp(12, 24, 8)
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.body(x)))


@pair("optimizer-stale-params")
def new_head_in_no_group(bug):
    """The head is replaced after the optimizer was made: the new one is in no group and stays
    random. After 150 steps accuracy is 0.58 instead of 0.833."""
    seed(25)
    m = Headed()
    tl, vl = loaders(*halves(320, 12, 6), 32, 64)
    if bug:
        opt = torch.optim.Adam(m.parameters(), 1e-3)
        m.fc = nn.Linear(8, 6)
    else:
        m.fc = nn.Linear(8, 6)
        opt = torch.optim.Adam(m.parameters(), 1e-3)
    return by_classes(m, opt, tl, vl, 6)


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp(10, 64, 16)
        self.head = nn.Linear(16, 1)

    def forward(self, a, b):
        return self.head((self.body(a) - self.body(b)).abs()).squeeze(1)


@pair("frozen-params-drift")
def require_grad_typo(bug):
    """The body's parameters get a new attribute, `require_grad`: the trained body that is to be
    frozen is overwritten. After 150 steps loss is 0.232 instead of 0.192."""
    seed(26)

    def pairs(n, s):
        x, y = blobs(2 * n, 10, 6, s, 0.6)
        return {"a": x[:n], "b": x[n:], "same": (y[:n] == y[n:]).float()}

    m = Siamese()

    def loss_of(model, b):
        return F.binary_cross_entropy_with_logits(model(b["a"], b["b"]), b["same"])

    whole = next(iter(feed(pairs(1500, 7), 1500)))
    step = plain_step(m, torch.optim.Adam(m.parameters(), 3e-3), loss_of)
    for _ in range(40):
        step(whole)
    m.head = nn.Linear(16, 1)
    for p in m.body.parameters():
        if bug:
            p.require_grad = False
        else:
            p.requires_grad = False
    m.zero_grad()
    tl, vl = loaders(pairs(48, 1), pairs(300, 2), 16, 64)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def sums_of(model, b):
        n = len(b["same"])
        told = model(b["a"], b["b"]) > 0
        return {
            "loss": (loss_of(model, b) * n, n),
            "accuracy": ((told == (b["same"] > 0.5)).sum(), n),
        }

    declared = {"frozen": ["body." + name for name, _ in m.body.named_parameters()]}
    return by_cost(m, opt, tl, vl, loss_of, sums_of, declared=declared)


@pair("average-without-statistics")
def slow_copy_of_weights_alone(bug):
    """The average follows the parameters but not batch norm's statistics, which stay at 0 and 1.
    After 150 steps ema_accuracy is 0.88 instead of 0.973."""
    seed(27)
    train, held = halves(320, 12, 4, scale=4, shift=3)
    tl, vl = loaders(train, held, 32, 64)
    m = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    ema = copy.deepcopy(m).requires_grad_(False).eval()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    step = sup_step(m, opt, nn.CrossEntropyLoss(), lambda: follow(ema, m, is_whole=not bug))
    score = averaged(m, vl, hits)
    score_average = averaged(ema, vl, hits)

    def evaluate():
        return score() | {"ema_accuracy": score_average()["accuracy"]}

    return by_classes(m, opt, tl, vl, 4, step, evaluate=evaluate)


class Factors(nn.Module):
    def __init__(self, users, items):
        super().__init__()
        self.u = nn.Embedding(users, 6)
        self.i = nn.Embedding(items, 6)
        nn.init.normal_(self.u.weight, std=0.3)
        nn.init.normal_(self.i.weight, std=0.3)

    def forward(self, u, i):
        return (self.u(u) * self.i(i)).sum(1)


@pair("checkpoint-incomplete")
def resume_without_optimizer_state(bug):
    """load() restores the model and the count of steps, but not the optimizer: its moments are
    lost and the rate is back at its start. 30 steps after a load mse is 0.047 instead of 0.029."""
    seed(28)
    users, items = 40, 60
    tastes = torch.randn(users, 3)
    traits = torch.randn(items, 3)
    cells = torch.randperm(users * items)

    def data(cells):
        """Each user rates each item once at most."""
        u, i = cells // items, cells % items
        noise = 0.1 * torch.randn(len(cells))
        return {"user": u, "item": i, "rating": (tastes[u] * traits[i]).sum(1) + noise}

    tl, vl = loaders(data(cells[:1920]), data(cells[1920:2120]), 64)
    m = Factors(users, items)
    opt = torch.optim.Adam(m.parameters(), 3e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.997)
    steps = 0

    def loss_of(model, b):
        return F.mse_loss(model(b["user"], b["item"]), b["rating"])

    def after():
        nonlocal steps
        scheduler.step()
        steps += 1

    def save():
        parts = {"model": m, "opt": opt, "scheduler": scheduler}
        state = {name: part.state_dict() for name, part in parts.items()}
        return copy.deepcopy(state | {"steps": steps})

    def load(state):
        nonlocal steps
        state = copy.deepcopy(state)
        m.load_state_dict(state["model"])
        steps = state["steps"]
        if not bug:
            opt.load_state_dict(state["opt"])
            scheduler.load_state_dict(state["scheduler"])

    more = {
        "step": then(plain_step(m, opt, loss_of), after),
        "scheduler": scheduler,
        "declared": {"scheduler_unit": "batch"},
        "save": save,
        "load": load,
    }
    return by_cost(m, opt, tl, vl, loss_of, costed(loss_of, "user", "mse"), **more)


class Stopped:
    """A trainer that ends each call with the best weights so far."""

    def __init__(self, keeps):
        past = torch.randn(200, 10)
        future = past[:, :1] - past[:, 1:2] * 0.5 + torch.randn(200, 1)
        train = {"past": past[:48], "future": future[:48]}
        held = {"past": past[48:], "future": future[48:]}
        self.train_loader, self.val_loader = loaders(train, held, 16, 64)
        self.model = mlp(10, 64, 64, 1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 5e-3)
        self.keeps = keeps
        self.best = None
        self.best_mse = float("inf")
        self.step = plain_step(self.model, self.optimizer, self.loss_of)
        sums_of = costed(self.loss_of, "past", "mse")
        self.evaluate = averaged(self.model, self.val_loader, sums_of)

    @staticmethod
    def loss_of(model, b):
        return F.mse_loss(model(b["past"]), b["future"])

    def train(self, n):
        losses = []
        while len(losses) < n:
            for b in self.train_loader:
                losses.append(self.step(b))
                if len(losses) == n:
                    break
            mse = self.evaluate()["mse"]
            if mse < self.best_mse:
                self.best_mse = mse
                self.best = self.keeps(self.model.state_dict())
        self.model.load_state_dict(self.best)
        return losses

    def save(self):
        return {
            "model": copy.deepcopy(self.model.state_dict()),
            "best": self.best,
            "best_mse": self.best_mse,
            "optimizer": copy.deepcopy(self.optimizer.state_dict()),
        }

    def load(self, state):
        state = copy.deepcopy(state)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.best = state["best"]
        self.best_mse = state["best_mse"]


@pair("checkpoint-by-reference")
def early_stop_keeps_live_weights(bug):
    """Early stopping keeps the best weights without a copy: what comes back is the last. After 150
    steps mse is 1.57 instead of 1.04."""
    seed(29)
    t = Stopped(keeps=(lambda state: state) if bug else copy.deepcopy)
    parts = t.model, t.optimizer, t.train_loader, t.val_loader
    more = {"step": t.step, "evaluate": t.evaluate, "save": t.save, "load": t.load}
    return by_cost(*parts, t.loss_of, None, **more) | {"train": t.train}


def regularised(d, k):
    return nn.Sequential(
        nn.Linear(d, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(0.4), nn.Linear(48, k)
    )  # fmt: skip


@pair("eval-mode-in-training")
def no_train_mode_after_scoring(bug):
    """evaluate() sets eval mode and nothing sets train mode again: dropout and the batches'
    statistics are off from then on. After 500 steps the held loss is 0.61 instead of 0.35."""
    seed(30)
    tl, vl = loaders(*halves(160, 12, 4, 1.6, held=300, scale=3, shift=2), 32, 64)
    m = regularised(12, 4)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    crit = nn.CrossEntropyLoss()
    if bug:
        m.train()

    def step(b):
        if not bug:
            m.train()
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        m.eval()
        right = total = n = 0
        with torch.no_grad():
            for x, y in vl:
                out = m(x)
                right += (out.argmax(1) == y).sum().item()
                total += crit(out, y).item() * len(y)
                n += len(y)
        return {"accuracy": right / n, "loss": total / n}

    run = runner(tl, step)

    def train(n):
        losses = []
        while len(losses) < n:
            losses += run(min(len(tl), n - len(losses)))
            evaluate()
        return losses

    return by_classes(m, opt, tl, vl, 4, step, train=train, evaluate=evaluate)


@pair("train-mode-in-eval")
def evaluated_in_train_mode(bug):
    """evaluate() does not set eval mode: dropout is on, and batch norm uses the held batches and
    learns from them. After 150 steps label_accuracy is 0.861 instead of 0.939."""
    seed(31)
    W = torch.randn(12, 5)

    def data(n):
        x = torch.randn(n, 12)
        return x, (x @ W > 1).float()

    tl, vl = loaders(data(320), data(150), 32, 8)
    m = regularised(12, 5)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def evaluate():
        if not bug:
            m.eval()
        right = n = 0
        with torch.no_grad():
            for x, y in vl:
                right += ((m(x) > 0) == (y > 0.5)).sum().item()
                n += y.numel()
        return {"label_accuracy": right / n}

    return by_pairs(m, opt, tl, vl, nn.BCEWithLogitsLoss(), evaluate=evaluate)


class SetNet(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.blocks = kind([mlp(3, 24, 24), mlp(24, 24, 4)])
        self.out = nn.Linear(4, 1)

    def forward(self, points):
        h = points
        for block in self.blocks:
            h = torch.relu(block(h))
        return self.out(h.mean(1)).squeeze(1)


@pair("plain-list-layers")
def layers_in_a_plain_list(bug):
    """The blocks are in a list: they are no parameters, are not trained and not saved. After 150
    steps mse is 11.3 instead of 0.125."""
    seed(32)

    def data(n):
        p = torch.randn(n, 10, 3) * (0.5 + torch.rand(n, 1, 1))
        return {"points": p, "target": (p**2).sum(2).mean(1) + p[:, :, 0].mean(1)}

    tl, vl = loaders(data(320), data(150), 32, 64)
    m = SetNet(list if bug else nn.ModuleList)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        return F.mse_loss(model(b["points"]), b["target"])

    save, load = save_load(m, opt)
    sums_of = costed(loss_of, "target", "mse")
    return by_cost(m, opt, tl, vl, loss_of, sums_of, save=save, load=load)
