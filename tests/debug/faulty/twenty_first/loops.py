"""Faults of loops: micro-batches, rates, digits, modes, iterators, checkpoints, metrics."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.fourteenth.kit import loader
from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_first.kit import (
    Squeezed,
    blobs,
    by_classes,
    by_cost,
    by_rows,
    curve,
    endless,
    evaluating,
    feed,
    gen,
    loaders,
    mean_eval,
    mlp,
    plain_step,
    rights,
    row_errors,
    seed,
    sup_step,
    whole_batches,
)


@pair("grads-cleared-before-step")
def zero_grad_in_micro_loop(bug):
    """The gradients are cleared before each of four micro-batches: the last one counts alone. After
    300 steps val_mse is 0.293 instead of 0.268."""
    seed(37)
    tl, vl = whole_batches(curve(512, 1), curve(200, 2), 32, 64)
    m = Squeezed(8, 32, 1)
    opt = torch.optim.SGD(m.parameters(), 0.02)
    crit = nn.MSELoss()

    def step(batch):
        m.train()
        total = 0.0
        opt.zero_grad()
        for x, y in zip(batch[0].chunk(4), batch[1].chunk(4), strict=True):
            if bug:
                opt.zero_grad()
            loss = crit(m(x), y) * len(x) / len(batch[0])
            loss.backward()
            total += loss.item()
        opt.step()
        return total

    return by_rows(m, opt, tl, vl, crit, step, declared={"accumulate": 4})


@pair("scheduler-misplaced")
def epoch_schedule_stepped_per_batch(bug):
    """A schedule that counts in epochs is stepped after each batch. After 300 steps val_mse is
    0.583 instead of 0.066."""
    seed(38)
    g = gen(1)
    x = torch.tanh(torch.randn(640, 4, generator=g) @ torch.randn(4, 20, generator=g))
    tl, vl = loaders((x[:512],), (x[512:],), 32, 64)
    m = mlp(20, 32, 4, 32, 20)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(opt, 4, 0.3)

    def loss_of(model, b):
        return F.mse_loss(model(b[0]), b[0])

    base = plain_step(m, opt, loss_of)
    seen = 0

    def step(batch):
        nonlocal seen
        loss = base(batch)
        seen += 1
        if bug or seen % len(tl) == 0:
            scheduler.step()
        return loss

    score = mean_eval(m, vl, {"val_mse": lambda m, b: ((m(b[0]) - b[0]) ** 2).mean(1)})

    def evaluate():
        return score() | {"lr": opt.param_groups[0]["lr"]}

    more = {"scheduler": scheduler, "declared": {"scheduler_unit": "epoch"}}
    return by_cost(m, opt, tl, vl, loss_of, None, step=step, evaluate=evaluate, **more)


class Short(nn.Module):
    """Computes in bfloat16, by autocast or with weights that are kept so."""

    def __init__(self, has_short_weights):
        super().__init__()
        self.net = mlp(16, 32, 32, 1)
        if has_short_weights:
            self.net.bfloat16()

    def forward(self, x):
        if self.net[0].weight.dtype == torch.bfloat16:
            return self.net(x.bfloat16()).float().squeeze(-1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = self.net(x)
        return out.float().squeeze(-1)


@pair("updates-rounded-away")
def weights_kept_in_bfloat16(bug):
    """The weights are kept in bfloat16, and most updates are smaller than their last digit. After
    600 steps val_mse is 3.95 instead of 0.187."""
    seed(39)
    g = gen(1)
    x = torch.randn(700, 16, generator=g)
    y = x @ torch.randn(16, generator=g) / 2
    tl, vl = loaders((x[:512], y[:512]), (x[512:], y[512:]), 32, 64)
    m = Short(bug)
    return by_rows(m, torch.optim.Adam(m.parameters(), 2e-4), tl, vl)


class SummingRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(4, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1]).squeeze(-1)


@pair("clip-misplaced")
def clips_when_the_step_is_made(bug):
    """The gradients are clipped after the step, and some targets are far away. After 300 steps
    val_mse is 146 instead of 2.37."""
    seed(40)
    g = gen(1)
    x = torch.randn(640, 6, 4, generator=g)
    total = x.sum((1, 2))
    is_far = torch.rand(640, generator=g) < 0.02
    y = torch.where(is_far, total * 40, total)
    tl, vl = loaders((x[:512], y[:512]), (x[512:], total[512:]), 16, 64)
    m = SummingRNN()
    opt = torch.optim.SGD(m.parameters(), 0.03)
    crit = nn.MSELoss()

    def step(batch):
        m.train()
        opt.zero_grad()
        loss = crit(m(batch[0]), batch[1])
        loss.backward()
        if not bug:
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        if bug:
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        return loss.item()

    return by_rows(m, opt, tl, vl, crit, step, declared={"max_grad_norm": 1.0})


class Trainer:
    """A loop that validates every ten steps."""

    def __init__(self, bug):
        seed(41)
        self.bug = bug
        kind = {"spread": 3.0, "centre": 1.2}
        train, held = blobs(120, 20, 4, 1, noise=0.3, **kind), blobs(500, 20, 4, 2, **kind)
        self.tl, self.vl = loaders(train, held, 16, 64)
        self.model = nn.Sequential(
            nn.Linear(20, 128),
            nn.ReLU(),
            nn.Dropout(0.7),
            nn.Linear(128, 4),
        )
        self.opt = torch.optim.Adam(self.model.parameters(), 3e-3)
        self.crit = nn.CrossEntropyLoss()
        self.stream = endless(self.tl)
        self.k = 0
        self.model.train()

    def validate(self):
        self.model.eval()
        hits = n = 0
        with torch.no_grad():
            for x, y in self.vl:
                hits += (self.model(x).argmax(1) == y).sum().item()
                n += len(y)
        if not self.bug:
            self.model.train()
        return {"val_acc": hits / n}

    def step(self, batch):
        self.opt.zero_grad()
        loss = self.crit(self.model(batch[0]), batch[1])
        loss.backward()
        self.opt.step()
        return loss.item()

    def fit(self, n):
        losses = []
        for _ in range(n):
            losses.append(self.step(next(self.stream)))
            self.k += 1
            if self.k % 10 == 0:
                self.validate()
        return losses


@pair("eval-mode-in-training")
def validates_and_stays_in_eval_mode(bug):
    """The first validation turns the dropout off for good. After 300 steps the loss of training is
    0.026 instead of 0.445, and val_acc 0.618 instead of 0.646."""
    t = Trainer(bug)
    more = {"train": t.fit, "evaluate": t.validate}
    return by_classes(t.model, t.opt, t.tl, t.vl, 4, t.crit, t.step, **more)


class Zipped:
    """Batches of two loaders side by side, anew for each epoch."""

    def __init__(self, first, second):
        self.first = first
        self.second = second

    def __len__(self):
        return min(len(self.first), len(self.second))

    def __iter__(self):
        return zip(self.first, self.second, strict=False)


@pair("loader-exhausted")
def zip_loader_exhausted(bug):
    """zip() of two loaders is used up after the first epoch, and 10 of 300 steps are made. val_acc
    is 0.577 instead of 0.843."""
    seed(42)
    x, y = blobs(320, 8, 3, 1, spread=2.5)
    labelled, other = loader(x[:80], y[:80], bs=8), loader(x[80:], bs=24, s=1)
    tl = zip(labelled, other, strict=False) if bug else Zipped(labelled, other)
    vl = feed(blobs(300, 8, 3, 2, spread=2.5), 64, shuffle=False)
    m = mlp(8, 32, 3)
    opt = torch.optim.Adam(m.parameters(), 2e-3)

    def loss_of(model, batch):
        (x, y), (u,) = batch
        p = model(u).softmax(1)
        entropy = -(p * p.clamp(min=1e-8).log()).sum(1).mean()
        return F.cross_entropy(model(x), y) + 0.1 * entropy

    step = plain_step(m, opt, loss_of)

    def train(n_steps):
        losses = []
        for _ in range(math.ceil(n_steps / min(len(labelled), len(other)))):
            for batch in tl:
                losses.append(step(batch))
                if len(losses) == n_steps:
                    break
        return losses

    more = {"step": step, "evaluate": rights(m, vl), "num_classes": 3}
    return by_cost(m, opt, tl, vl, loss_of, None, **more) | {"train": train}


@pair("checkpoint-incomplete")
def resumes_with_a_fresh_adam(bug):
    """The checkpoint has the weights and the count of steps alone. Ten steps after a resume at step
    100 the loss differs by up to 0.11 instead of 0."""
    seed(43)
    tl, vl = loaders(curve(512, 1), curve(200, 2), 32, 64)
    m = Squeezed(8, 32, 1)
    opt = torch.optim.AdamW(m.parameters(), 1e-2)
    crit = nn.MSELoss()
    scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.98)
    state = {"step": 0}

    def after():
        scheduler.step()
        state["step"] += 1

    def save(path):
        saved = {"model": m.state_dict(), "step": state["step"]}
        if not bug:
            saved |= {"optimizer": opt.state_dict(), "scheduler": scheduler.state_dict()}
        torch.save(saved, path)

    def load(path):
        saved = torch.load(path)
        m.load_state_dict(saved["model"])
        state["step"] = saved["step"]
        if not bug:
            opt.load_state_dict(saved["optimizer"])
            scheduler.load_state_dict(saved["scheduler"])

    more = {
        "scheduler": scheduler,
        "save": save,
        "load": load,
        "declared": {"scheduler_unit": "batch"},
    }
    return by_rows(m, opt, tl, vl, crit, sup_step(m, opt, crit, after), **more)


@pair("checkpoint-by-reference")
def keeps_the_best_by_reference(bug):
    """The best state shares its tensors with the model, so that to put it back does nothing. After
    300 steps val_mse is 1.03 instead of 0.406."""
    seed(44)
    tl, vl = loaders(curve(40, 1, noise=0.6), curve(200, 2), 20, 64)
    m = Squeezed(8, 128, 1)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    crit = nn.MSELoss()
    step = sup_step(m, opt, crit)
    stream = endless(tl)
    score = mean_eval(m, vl, {"val_mse": row_errors})
    best = {"loss": float("inf"), "state": None}

    def train(n_steps):
        losses = []
        for _ in range(n_steps):
            losses.append(step(next(stream)))
            loss = score()["val_mse"]
            if loss < best["loss"]:
                best["loss"] = loss
                best["state"] = m.state_dict() if bug else copy.deepcopy(m.state_dict())
        m.load_state_dict(best["state"])
        return losses

    def evaluate():
        return score() | {"best_val_mse": best["loss"]}

    return by_rows(m, opt, tl, vl, crit, step, train=train, evaluate=evaluate)


class Accuracy:
    def __init__(self):
        self.reset()

    def reset(self):
        self.hits = self.n = 0

    def update(self, out, y):
        self.hits += (out.argmax(1) == y).sum().item()
        self.n += len(y)


@pair("metric-not-reset")
def metric_never_reset(bug):
    """One object counts the hits of all evaluations together. After 300 steps val_acc is 0.867
    instead of 1."""
    seed(45)
    tl, vl = loaders(blobs(512, 8, 5, 1), blobs(300, 8, 5, 2), 32, 64)
    m = mlp(8, 32, 5)
    opt = torch.optim.Adam(m.parameters(), 1e-3)
    crit = nn.CrossEntropyLoss()
    metric = Accuracy()

    def evaluate():
        if not bug:
            metric.reset()
        with evaluating(m):
            for x, y in vl:
                metric.update(m(x), y)
        return {"val_acc": metric.hits / metric.n}

    step = sup_step(m, opt, crit)
    stream = endless(tl)

    def train(n_steps):
        losses = []
        for k in range(n_steps):
            if k % 25 == 0:
                evaluate()
            losses.append(step(next(stream)))
        return losses

    return by_classes(m, opt, tl, vl, 5, crit, step, train=train, evaluate=evaluate)


class Headed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 4), nn.Tanh())
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        return self.head(self.body(x))


@pair("optimizer-stale-params")
def optimizer_holds_the_old_head(bug):
    """The head is replaced when the optimizer is made, and never learns. After 300 steps val_acc is
    0.547 instead of 0.83."""
    seed(46)
    train, held = blobs(400, 12, 6, 1, spread=2.0), blobs(300, 12, 6, 2, spread=2.0)
    tl, vl = loaders(train, held, 32, 64)
    m = Headed()

    def optimizer():
        return torch.optim.SGD(m.parameters(), 0.02, momentum=0.9)

    opt = optimizer()
    m.head = nn.Linear(4, 6)
    if not bug:
        opt = optimizer()
    return by_classes(m, opt, tl, vl, 6)


class Dropped(nn.Module):
    def __init__(self, always):
        super().__init__()
        self.a = nn.Linear(12, 24)
        self.b = nn.Linear(24, 6)
        self.always = always

    def forward(self, x):
        h = F.relu(self.a(x))
        if self.always:
            h = F.dropout(h, 0.6)
        else:
            h = F.dropout(h, 0.6, training=self.training)
        return self.b(h)


@pair("train-mode-in-eval")
def functional_dropout_always_on(bug):
    """F.dropout is not told the mode and drops in evaluation, too. After 300 steps val_acc is 0.66
    instead of 0.782."""
    seed(47)
    kind = {"spread": 2.0, "centre": 1.5}
    tl, vl = loaders(blobs(500, 12, 6, 1, **kind), blobs(400, 12, 6, 2, **kind), 32, 64)
    m = Dropped(bug)
    return by_classes(m, torch.optim.Adam(m.parameters(), 5e-3), tl, vl, 6)
