"""Faults of loops: frozen parts, teachers, averages, rates, digits, checkpoints, streams."""

import copy
import itertools
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from tests.debug.faulty.fourteenth.kit import endless
from tests.debug.faulty.kit import pair
from tests.debug.faulty.twentieth.kit import (
    by_classes,
    by_cost,
    by_errors,
    by_pairs,
    evaluating,
    feed,
    gen,
    groups,
    loaders,
    mlp,
    rights,
    seed,
    squared,
    sup_step,
)


def bent(n, s, noise=0.3):
    """Rows [n, 8] and a bent sum of their numbers [n, 1]."""
    g = gen(s)
    x = torch.randn(n, 8, generator=g)
    y = x @ torch.randn(8, 1, generator=gen(55)) + torch.sin(2 * x[:, :1])
    return x, y + noise * torch.randn(n, 1, generator=g)


@pair("frozen-params-drift")
def frozen_backbone_bn_drifts(bug):
    """An old head shares a frozen backbone, whose batch norm follows the new data. After 200 steps
    old_acc is 0.8 instead of 0.965."""
    seed()
    x, y = groups(400, 4, 10, 1.8, 1)
    old_x, old_y = groups(200, 4, 10, 1.8, 2)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(
                nn.Linear(10, 32),
                nn.BatchNorm1d(32),
                nn.ReLU(),
                nn.Linear(32, 16),
                nn.BatchNorm1d(16),
                nn.ReLU(),
            )
            self.old = nn.Linear(16, 4)
            self.head = nn.Linear(16, 3)

        def forward(self, x):
            return self.head(self.backbone(x))

    m = Net()
    pre = torch.optim.Adam(m.parameters(), 1e-2)
    for _ in range(4):
        for i in range(0, 400, 40):
            pre.zero_grad()
            F.cross_entropy(m.old(m.backbone(x[i : i + 40])), y[i : i + 40]).backward()
            pre.step()

    def data(n, s):
        x = 3 + 4 * torch.randn(n, 10, generator=gen(s))
        return x, (x[:, :3] + x[:, 3:6]).argmax(1)

    tl, vl = loaders(data(320, 5), data(150, 6))
    for name, p in m.named_parameters():
        p.requires_grad_(name.startswith("head."))
    fixed = [name for name, p in m.named_parameters() if not p.requires_grad]
    opt = torch.optim.Adam(m.head.parameters(), 1e-2)
    crit = nn.CrossEntropyLoss()
    score = rights(m, vl)

    def step(b):
        m.train()
        if not bug:
            m.backbone.eval()
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        with evaluating(m):
            old = (m.old(m.backbone(old_x)).argmax(1) == old_y).float().mean().item()
        return {"new_acc": score()["val_acc"], "old_acc": old}

    more = {"evaluate": evaluate, "declared": {"frozen": fixed}}
    return by_classes(m, opt, tl, vl, 3, crit, step, **more)


@pair("missing-log-softmax")
def distill_kl_on_probabilities(bug):
    """kl_div gets the student's probabilities, not their logarithms. After 200 steps kl_to_teacher
    is 0.195 instead of 0.018."""
    seed()
    k, T = 6, 2.0
    x, y = groups(600, k, 12, 1.8, 1)
    teacher = mlp(12, 48, k)
    fitting = torch.optim.Adam(teacher.parameters(), 1e-2)
    for _ in range(3):
        for i in range(0, 600, 50):
            fitting.zero_grad()
            F.cross_entropy(teacher(x[i : i + 50]), y[i : i + 50]).backward()
            fitting.step()
    teacher.eval().requires_grad_(False)
    tl, vl = loaders(x, groups(200, k, 12, 1.8, 2)[0], 32)
    m = mlp(12, 8, k)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def loss_of(model, x):
        with torch.no_grad():
            t = F.softmax(teacher(x) / T, 1)
        s = model(x) / T
        said = F.softmax(s, 1) if bug else F.log_softmax(s, 1)
        return F.kl_div(said, t, reduction="batchmean") * T * T

    def sums_of(model, x):
        a, b = F.log_softmax(teacher(x), 1), F.log_softmax(model(x), 1)
        n = len(x)
        return {
            "kl_to_teacher": (F.kl_div(b, a, log_target=True, reduction="sum"), n),
            "agreement": ((a.argmax(1) == b.argmax(1)).sum(), n),
        }

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=k)


class AveragedTrainer:
    """Trains beside an average of the weights, which it puts into the model to score it."""

    def __init__(self, bug):
        seed()
        self.bug = bug
        self.tl, self.vl = loaders(bent(480, 1), bent(130, 2), 16, 32)
        self.model = mlp(8, 32, 1)
        self.opt = torch.optim.Adam(self.model.parameters(), 3e-3)
        self.shadow = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.score = squared(self.model, self.vl, "ema_val_mse")
        self.n = 0

    def step(self, b):
        self.model.train()
        self.opt.zero_grad()
        loss = F.mse_loss(self.model(b[0]), b[1])
        loss.backward()
        self.opt.step()
        with torch.no_grad():
            for k, v in self.model.state_dict().items():
                self.shadow[k].lerp_(v, 0.02)
        self.n += 1
        if self.n % 10 == 0:
            self.evaluate()
        return loss.item()

    def evaluate(self):
        live = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.model.load_state_dict(self.shadow)
        scores = self.score()
        if not self.bug:
            self.model.load_state_dict(live)
        return scores


@pair("evaluate-changes-model")
def ema_weights_not_restored(bug):
    """evaluate() loads the averaged weights and leaves them in the model. After 200 steps
    ema_val_mse is 9.8 instead of 0.768."""
    t = AveragedTrainer(bug)
    return by_errors(t.model, t.opt, t.tl, t.vl, t.step, evaluate=t.evaluate)


@pair("average-without-statistics")
def ema_leaves_out_buffers(bug):
    """The averaged copy follows the parameters alone: its batch norm keeps the statistics of the
    start. After 200 steps val_acc is 0.14 instead of 0.82."""
    seed()

    def data(n, s):
        x, y = groups(n, 6, 10, 2.0, s)
        return x * 6 + 40, y

    tl, vl = loaders(data(480, 1), data(150, 2), 32)
    m = nn.Sequential(
        nn.Linear(10, 24),
        nn.BatchNorm1d(24),
        nn.ReLU(),
        nn.Linear(24, 24),
        nn.BatchNorm1d(24),
        nn.ReLU(),
        nn.Linear(24, 6),
    )
    ema = copy.deepcopy(m).requires_grad_(False)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.CrossEntropyLoss()
    base = sup_step(m, opt, crit)
    of_copy, of_model = rights(ema, vl), rights(m, vl)

    def step(b):
        loss = base(b)
        with torch.no_grad():
            for e, p in zip(ema.parameters(), m.parameters(), strict=True):
                e.lerp_(p, 0.05)
            if not bug:
                for e, p in zip(ema.buffers(), m.buffers(), strict=True):
                    e.copy_(p)
        return loss

    def evaluate():
        return of_copy() | {"live_acc": of_model()["val_acc"]}

    return by_classes(m, opt, tl, vl, 6, crit, step, evaluate=evaluate, ema=ema)


@pair("grads-cleared-before-step")
def accumulation_zeroes_each_chunk(bug):
    """The gradients are cleared for each of four micro-batches: only the last one counts. After 200
    steps val_acc is 0.725 instead of 0.735, and the loss of training 0.683 instead of 0.53."""
    seed()
    parts = 4
    tl = feed(groups(640, 8, 12, 2.2, 1), 32, drop_last=True)
    vl = feed(groups(200, 8, 12, 2.2, 2), 32, shuffle=False)
    m = mlp(12, 32, 8)
    opt = torch.optim.SGD(m.parameters(), 0.1)
    crit = nn.CrossEntropyLoss()

    def step(b):
        m.train()
        total = 0
        opt.zero_grad()
        for x, y in zip(b[0].chunk(parts), b[1].chunk(parts), strict=True):
            if bug:
                opt.zero_grad()
            loss = crit(m(x), y) / parts
            loss.backward()
            total += loss.item()
        opt.step()
        return total

    return by_classes(m, opt, tl, vl, 8, crit, step, declared={"accumulate": parts})


@pair("scheduler-misplaced")
def scheduler_of_old_optimizer(bug):
    """All layers are to learn, so that a new optimizer is made, and the schedule stays with the old
    one. After 200 steps val_mse is 1.39 instead of 1.29."""
    seed()
    tl, vl = loaders(bent(480, 1, 0.8), bent(200, 2, 0.8), 8, 32)
    m = mlp(8, 32, 32, 1)

    def scheduled(opt):
        return torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=300, eta_min=1e-4)

    opt = torch.optim.Adam(m[-1].parameters(), 3e-2)
    scheduler = scheduled(opt)
    opt.step()
    opt = torch.optim.Adam(m.parameters(), 3e-2)
    if not bug:
        scheduler = scheduled(opt)

    def advance():
        if scheduler.last_epoch < 300:
            scheduler.step()

    step = sup_step(m, opt, nn.MSELoss(), advance)
    more = {"scheduler": scheduler, "declared": {"scheduler_unit": "batch"}}
    return by_errors(m, opt, tl, vl, step, **more)


@pair("metric-wrong")
def eval_counts_in_bf16(bug):
    """The hits are added up in bfloat16, which cannot count past 1024 by fours. After 200 steps
    val_acc is 0.64 instead of 1."""
    seed()
    tl, vl = loaders(groups(480, 4, 10, 0.9, 1), groups(1600, 4, 10, 0.9, 2), 32, 4)
    m = mlp(10, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.CrossEntropyLoss()

    def step(b):
        m.train()
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = crit(m(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        hits, n = None, 0
        with evaluating(m):
            for x, y in vl:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    out = m(x)
                if hits is None:
                    hits = torch.zeros((), dtype=out.dtype if bug else torch.long)
                hits += (out.argmax(1) == y).sum()
                n += len(y)
        return {"val_acc": hits.item() / n}

    return by_classes(m, opt, tl, vl, 4, crit, step, evaluate=evaluate)


class Stopper:
    """Trains, keeps the state of the lowest validation loss, and puts it back at the end."""

    def __init__(self, bug):
        seed()
        self.bug = bug
        self.tl, self.vl = loaders(bent(60, 1, 1.5), bent(200, 2, 1.5), 12, 50)
        self.model = mlp(8, 96, 1)
        self.opt = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.score = squared(self.model, self.vl)
        self.best = None
        self.best_loss = float("inf")

    def step(self, b):
        self.model.train()
        self.opt.zero_grad()
        loss = F.mse_loss(self.model(b[0]), b[1])
        loss.backward()
        self.opt.step()
        return loss.item()

    def check(self):
        loss = self.score()["val_mse"]
        if loss < self.best_loss:
            self.best_loss = loss
            self.best = self.save()

    def save(self):
        state = {"model": self.model.state_dict(), "optimizer": self.opt.state_dict()}
        return state if self.bug else copy.deepcopy(state)

    def load(self, state):
        self.model.load_state_dict(state["model"])
        self.opt.load_state_dict(state["optimizer"])

    def train(self, n):
        losses = []
        while len(losses) < n:
            for b in self.tl:
                losses.append(self.step(b))
                if len(losses) % 5 == 0:
                    self.check()
                if len(losses) >= n:
                    break
        self.check()
        self.load(self.best)
        return losses

    def evaluate(self):
        scores = self.score()
        if self.best is not None:
            scores["best_val_mse"] = self.best_loss
        return scores


@pair("checkpoint-by-reference")
def best_state_goes_on_changing(bug):
    """The best state is kept without a copy, so that to put it back does nothing. After 200 steps
    val_mse is 5.37 instead of 3.69."""
    t = Stopper(bug)
    more = {"train": t.train, "evaluate": t.evaluate, "save": t.save, "load": t.load}
    return by_errors(t.model, t.opt, t.tl, t.vl, t.step, **more)


@pair("checkpoint-incomplete")
def resume_without_optimizer(bug):
    """The checkpoint has the model and the schedule, but not the optimizer's averages. 20 steps
    after a resume the loss differs by up to 1.3 instead of 0."""
    seed()
    tl, vl = loaders(bent(480, 1), bent(130, 2), 16, 32)
    m = mlp(8, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 2e-2, betas=(0.95, 0.999))
    scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda t: 1 / math.sqrt(1 + t / 50))
    step = sup_step(m, opt, nn.MSELoss(), scheduler.step)

    def save(path):
        state = {"model": m.state_dict(), "scheduler": scheduler.state_dict()}
        if not bug:
            state["optimizer"] = opt.state_dict()
        torch.save(state, path)

    def load(path):
        state = torch.load(path)
        m.load_state_dict(state["model"])
        scheduler.load_state_dict(state["scheduler"])
        if "optimizer" in state:
            opt.load_state_dict(state["optimizer"])
        else:
            for group, rate in zip(opt.param_groups, scheduler.get_last_lr(), strict=True):
                group["lr"] = rate

    more = {"scheduler": scheduler, "declared": {"scheduler_unit": "batch"}}
    return by_errors(m, opt, tl, vl, step, save=save, load=load, **more)


@pair("same-draws")
def cycle_freezes_augmentation(bug):
    """itertools.cycle keeps the batches of the first epoch, and what was drawn for them. After 200
    steps val_acc is 0.727 instead of 0.867."""
    seed()
    u = torch.arange(24.0)
    bump = torch.exp(-((u - 12) ** 2) / 4)
    waves = torch.stack([bump, bump * torch.cos(u - 12) * 1.3, -bump])

    class Signals(Dataset):
        """A short wave somewhere in the signal; to train on, each is rolled to any place."""

        def __init__(self, n, s, is_train):
            g = gen(s)
            self.y = torch.randint(3, (n,), generator=g)
            places = torch.randint(24, (n,), generator=g).tolist()
            rows = [waves[y].roll(place) for y, place in zip(self.y, places, strict=True)]
            self.x = torch.stack(rows) + 0.25 * torch.randn(n, 24, generator=g)
            self.is_train = is_train

        def __len__(self):
            return len(self.y)

        def __getitem__(self, i):
            x = self.x[i]
            if self.is_train:
                x = x.roll(int(torch.randint(24, (1,))))
            return x, self.y[i]

    tl, vl = loaders(Signals(32, 1, True), Signals(300, 2, False), 16, 50)
    m = mlp(24, 64, 3)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.CrossEntropyLoss()
    step = sup_step(m, opt, crit)
    stream = itertools.cycle(tl) if bug else endless(tl)

    def train(n):
        return [step(next(stream)) for _ in range(n)]

    return by_pairs(m, opt, tl, vl, crit, step, train=train, num_classes=3)
