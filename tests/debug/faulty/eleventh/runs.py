"""Faults of runs: modes, averages, checkpoints, scores, and loaders that end."""

import copy

import torch
from torch import nn

from tests.debug.faulty.eleventh.kit import (
    criterion,
    deep,
    grouped,
    groups,
    of_classes,
    rows,
    scored,
)
from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import looped, setup, stepper


@pair("eval-mode-in-training")
def eval_mode_stays(bug):
    """model.train() stands before the loop over epochs, and evaluate() ends it: dropout and batch
    norm sleep for the rest of the run. What is not sure costs 1.8 instead of 1.1."""
    loader = rows(*groups(96, d=20, seed=1, noise=4.0), batch=16)
    held = rows(*groups(384, d=20, seed=2, noise=4.0), shuffle=False)
    model = nn.Sequential(
        nn.Linear(20, 96),
        nn.BatchNorm1d(96),
        nn.ReLU(),
        nn.Dropout(0.6),
        nn.Linear(96, 96),
        nn.ReLU(),
        nn.Dropout(0.6),
        nn.Linear(96, 4),
    )
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    model.train()

    def step(batch):
        if not bug:
            model.train()
        opt.zero_grad()
        loss = of_classes(model, batch)
        loss.backward()
        opt.step()
        return loss.item()

    evaluate = scored(model, held, "val_acc", "val_loss")

    def train(steps):
        model.train()
        return looped(loader, step, evaluate)(steps)

    return setup(
        model, opt, loader, held, step=step, loss_fn=criterion, evaluate=evaluate, num_classes=4,
        train=train,
    )  # fmt: skip


@pair("average-without-statistics")
def ema_buffers_stale(bug):
    """An average of the weights is scored with the batch norm statistics of before training. 70 %
    instead of all."""
    (x, y), (held_x, held_y) = groups(384, seed=1), groups(128, seed=2)
    loader, held = rows(x * 4 + 6, y), rows(held_x * 4 + 6, held_y, shuffle=False)
    model = nn.Sequential(
        nn.Linear(8, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 4),
    )
    average = copy.deepcopy(model).eval().requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def step(batch):
        model.train()
        opt.zero_grad()
        loss = of_classes(model, batch)
        loss.backward()
        opt.step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), model.parameters(), strict=True):
                a.lerp_(p, 0.05)
            if not bug:
                for a, b in zip(average.buffers(), model.buffers(), strict=True):
                    a.copy_(b)
        return loss.item()

    scores = scored(average, held, "val_acc", "val_loss")
    return setup(
        model, opt, loader, held, step=step, loss_fn=criterion, num_classes=4,
        evaluate=lambda: {f"ema_{name}": value for name, value in scores().items()},
    )  # fmt: skip


@pair("checkpoint-by-reference")
def best_state_alias(bug):
    """The best weights are kept without a copy: they are the last. What is not sure costs 3.2
    instead of 1.1."""
    loader = rows(*groups(64, seed=1, noise=4.0), batch=16)
    held = rows(*groups(256, seed=2, noise=4.0), shuffle=False)
    model = deep(8, 4, 64)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    step, evaluate = stepper(model, opt, of_classes), scored(model, held, "val_loss", "val_acc")

    def kept(state):
        return state if bug else copy.deepcopy(state)

    def save():
        return {"model": kept(model.state_dict()), "optimizer": kept(opt.state_dict())}

    def load(state):
        model.load_state_dict(state["model"])
        opt.load_state_dict(kept(state["optimizer"]))

    def train(steps):
        best = {"loss": float("inf"), "state": None}

        def look():
            loss = evaluate()["val_loss"]
            if loss < best["loss"]:
                best.update(loss=loss, state=save())

        losses = looped(loader, step, look)(steps)
        look()
        load(best["state"])
        return losses

    return setup(
        model, opt, loader, held, step=step, loss_fn=criterion, evaluate=evaluate, num_classes=4,
        train=train, save=save, load=load,
    )  # fmt: skip


@pair("checkpoint-incomplete")
def resume_drops_optimizer(bug):
    """A checkpoint holds the weights alone: the optimizer and its schedule begin again. The next
    steps cost 0.34 where going on costs 0.14."""
    loader, held = grouped(384, 192, noise=2.0)
    model = deep(8, 4)
    opt = torch.optim.Adam(model.parameters(), 3e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.98)

    def step(batch):
        model.train()
        opt.zero_grad()
        loss = of_classes(model, batch)
        loss.backward()
        opt.step()
        scheduler.step()
        return loss.item()

    def save(path):
        state = {"model": model.state_dict()}
        if not bug:
            state.update(opt=opt.state_dict(), scheduler=scheduler.state_dict())
        torch.save(state, path)

    def load(path):
        state = torch.load(path)
        model.load_state_dict(state["model"])
        if not bug:
            opt.load_state_dict(state["opt"])
            scheduler.load_state_dict(state["scheduler"])

    return setup(
        model, opt, loader, held, step=step, scheduler=scheduler, loss_fn=criterion, num_classes=4,
        declared={"scheduler_unit": "batch"}, evaluate=scored(model, held, "val_loss"),
        save=save, load=load,
    )  # fmt: skip


class Trainer:
    """A loop as a class, whose counts begin again with each evaluation, or never."""

    def __init__(self, counts_on):
        self.model = deep(8, 4)
        self.opt = torch.optim.Adam(self.model.parameters(), 2e-3)
        self.loader, self.held = grouped(384, 192, noise=1.5)
        self.counts_on = counts_on
        self.reset()

    def reset(self):
        self.correct = self.total = 0

    def step(self, batch):
        self.model.train()
        self.opt.zero_grad()
        loss = of_classes(self.model, batch)
        loss.backward()
        self.opt.step()
        return loss.item()

    def evaluate(self):
        if not self.counts_on:
            self.reset()
        self.model.eval()
        with torch.no_grad():
            for x, y in self.held:
                self.correct += (self.model(x).argmax(1) == y).sum().item()
                self.total += len(y)
        return {"val_acc": self.correct / self.total}

    def fit(self, steps):
        self.evaluate()
        return looped(self.loader, self.step, self.evaluate)(steps)


@pair("metric-not-reset")
def metric_not_reset(bug):
    """Hits are counted on from one evaluation to the next: 85 % are reported of 93 %."""
    t = Trainer(counts_on=bug)
    return setup(
        t.model, t.opt, t.loader, t.held, step=t.step, loss_fn=criterion, num_classes=4,
        train=t.fit, evaluate=t.evaluate,
    )  # fmt: skip


@pair("loader-exhausted", "empty-loader")
def val_generator_exhausted(bug):
    """Validation batches come from a generator, which gives them once: from the second evaluation
    on, all scores are 0."""
    x, y = groups(192, seed=2, noise=1.5)
    loader = rows(*groups(384, seed=1, noise=1.5))
    batches = ((x[i : i + 32], y[i : i + 32]) for i in range(0, 192, 32))
    held = batches if bug else list(batches)
    model = deep(8, 4)
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    step = stepper(model, opt, of_classes)

    def evaluate():
        model.eval()
        loss = hits = count = 0
        with torch.no_grad():
            for a, b in held:
                out = model(a)
                loss += criterion(out, b).item() * len(b)
                hits += (out.argmax(1) == b).sum().item()
                count += len(b)
        return {"val_loss": loss / max(count, 1), "val_acc": hits / max(count, 1)}

    return setup(
        model, opt, loader, held, step=step, loss_fn=criterion, evaluate=evaluate, num_classes=4,
        train=looped(loader, step, evaluate),
    )  # fmt: skip
