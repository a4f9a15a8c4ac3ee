"""Faults of loops: rates, clips, the best weights, modes."""

import copy

import torch
from torch import nn

from tests.debug.faulty.eighteenth.kit import (
    accuracy,
    averaged,
    begun,
    blobs,
    by_epochs,
    by_pairs,
    gen,
    loaders,
    mlp,
    runner,
    set_up,
    squares,
    sup_step,
    table,
)
from tests.debug.faulty.kit import pair


@pair("lr-too-small")
def warmup_absolute(bug):
    """LambdaLR is given a rate where it wants a factor: the rate is 0.003 squared. After 400 steps
    mse is 12.9 instead of 0.709."""
    g = begun(61)
    w = torch.randn(10, 2, generator=g)
    tl, vl = loaders(table(g, 512, w), table(g, 150, w))
    m = mlp(10, 32, 1)
    base, warm = 3e-3, 20
    opt = torch.optim.AdamW(m.parameters(), base)
    crit = nn.MSELoss()
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: (base if bug else 1.0) * min(1.0, (s + 1) / warm)
    )
    more = {"scheduler": scheduler, "declared": {"scheduler_unit": "batch"}}
    step = sup_step(m, opt, crit, scheduler.step)
    return by_pairs(m, opt, tl, vl, crit, step, evaluate=averaged(m, vl, squares), **more)


@pair("scheduler-misplaced")
def plateau_min_of_an_accuracy(bug):
    """ReduceLROnPlateau waits for a number to fall and is given an accuracy. After 400 steps
    val_acc is 0.68 instead of 0.787."""
    g = begun(62)
    tl, vl = loaders(blobs(g, 320, 12, 5, 1.4), blobs(g, 150, 12, 5, 1.4), 32)
    m = mlp(12, 32, 5)
    opt = torch.optim.SGD(m.parameters(), 0.05)
    crit = nn.CrossEntropyLoss()
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        opt, mode="min" if bug else "max", patience=1, factor=0.1
    )

    def each_epoch():
        scheduler.step(accuracy(m, vl)["val_acc"])

    step = sup_step(m, opt, crit)
    return by_pairs(
        m,
        opt,
        tl,
        vl,
        crit,
        step,
        train=by_epochs(tl, step, each_epoch),
        scheduler=scheduler,
        num_classes=5,
        declared={"scheduler_unit": "epoch"},
    )


@pair("clip-misplaced")
def scaler_clip(bug):
    """The gradients are clipped while they are still scaled. After 400 steps mse is 9.67 instead of
    0.276."""
    g = begun(63)
    w = torch.randn(10, 2, generator=g)
    tl, vl = loaders(table(g, 512, w), table(g, 150, w))
    m = mlp(10, 32, 1)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    crit = nn.MSELoss()
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)

    def step(b):
        m.train()
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = m(b[0])
        loss = crit(out.float(), b[1])
        scaler.scale(loss).backward()
        if not bug:
            scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return loss.item()

    more = {"evaluate": averaged(m, vl, squares), "declared": {"max_grad_norm": 1.0}}
    return by_pairs(m, opt, tl, vl, crit, step, **more)


class Stopped:
    """Keeps the weights that did best and puts them back when fit() ends."""

    def __init__(self, bug):
        g = begun(64)
        w = torch.randn(10, 2, generator=g)
        x, y = table(g, 60, w)
        y = y + 2.0 * torch.randn(y.shape, generator=g)
        self.tl, self.vl = loaders((x, y), table(g, 150, w), 12)
        self.m = mlp(10, 128, 128, 1)
        self.bug, self.crit = bug, nn.MSELoss()
        self.opt = torch.optim.Adam(self.m.parameters(), 3e-3)
        self.best, self.best_mse, self.steps = None, float("inf"), 0
        self.run = runner(self.tl, self.step)
        self.evaluate = averaged(self.m, self.vl, squares)

    def save(self):
        state = self.m.state_dict()
        return state if self.bug else copy.deepcopy(state)

    def load(self, state):
        self.m.load_state_dict(state)

    def check(self):
        mse = self.evaluate()["mse"]
        if mse < self.best_mse:
            self.best_mse, self.best = mse, self.save()

    def step(self, b):
        self.m.train()
        self.opt.zero_grad()
        loss = self.crit(self.m(b[0]), b[1])
        loss.backward()
        self.opt.step()
        self.steps += 1
        if self.steps % 5 == 0:
            self.check()
        return loss.item()

    def fit(self, n):
        losses = self.run(n)
        self.check()
        self.load(self.best)
        return losses


@pair("checkpoint-by-reference")
def best_weights_kept_by_reference(bug):
    """The best weights are kept by state_dict() without a copy: what is put back at the end are the
    last ones. After 400 steps mse is 4.66 instead of 1.23."""
    t = Stopped(bug)
    more = {"evaluate": t.evaluate, "train": t.fit, "save": t.save, "load": t.load}
    return by_pairs(t.m, t.opt, t.tl, t.vl, t.crit, t.step, **more)


class Validating:
    """Goes into train mode once, before the steps, and validates after each tenth."""

    def __init__(self, bug):
        g = begun(67)
        centres = torch.randn(4, 12, generator=gen(3))
        train, held = (blobs(g, n, 12, 4, 1.6, centres) for n in (160, 300))
        self.tl, self.vl = loaders(train, held)
        self.bug, self.crit, self.steps = bug, nn.CrossEntropyLoss(), 0
        self.m = nn.Sequential(
            nn.Linear(12, 64),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(64, 4),
        )
        self.opt = torch.optim.Adam(self.m.parameters(), 5e-3)
        self.run = runner(self.tl, self.step)

    def validate(self):
        self.m.eval()
        hits = n = 0
        with torch.no_grad():
            for x, y in self.vl:
                hits += (self.m(x).argmax(1) == y).sum().item()
                n += len(y)
        if not self.bug:
            self.m.train()
        return {"val_acc": hits / n}

    def step(self, b):
        self.opt.zero_grad()
        loss = self.crit(self.m(b[0]), b[1])
        loss.backward()
        self.opt.step()
        self.steps += 1
        if self.steps % 10 == 0:
            self.validate()
        return loss.item()

    def train(self, n):
        self.m.train()
        return self.run(n)


@pair("eval-mode-in-training")
def eval_mode_from_step_ten(bug):
    """The validation leaves the model in eval mode, and train mode is chosen once, before the
    steps. After 400 steps val_acc is 0.7 instead of 0.737."""
    t = Validating(bug)
    found = set_up(t.m, t.opt, t.tl, t.step, val_loader=t.vl, loss_fn=t.crit, num_classes=4)
    return found | {"train": t.train, "evaluate": t.validate}
