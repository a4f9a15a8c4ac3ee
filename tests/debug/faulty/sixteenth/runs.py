"""Faults of what a run keeps: checkpoints, schedules, the best weights."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventh.kit import saved
from tests.debug.faulty.sixteenth.kit import (
    blobs,
    by_cost,
    by_pairs,
    gen,
    loaders,
    mlp,
    named,
    plain_step,
    seed,
    split,
)


@pair("checkpoint-incomplete")
def checkpoint_prefix_strict_false(bug):
    """Saved from a wrapped model, with module. before each key, and loaded into the bare one with
    strict=False. After 300 steps and a load into a fresh set-up val_acc is 0.23 instead of
    0.888."""
    seed(68)
    x, y = blobs(900, 10, 5, 70)
    tl, vl = loaders(*split(x, y, val=196), 32)
    m = mlp(10, 32, 32, 5, bn=True)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def save(path):
        model = {f"module.{name}": value for name, value in m.state_dict().items()}
        torch.save({"model": model, "opt": opt.state_dict()}, path)

    def load(path):
        state = torch.load(path, weights_only=True)
        if bug:
            m.load_state_dict(state["model"], strict=False)
        else:
            m.load_state_dict({k.removeprefix("module."): v for k, v in state["model"].items()})
        opt.load_state_dict(state["opt"])

    return by_pairs(m, opt, tl, vl, num_classes=5, save=save, load=load)


@pair("checkpoint-incomplete")
def resume_without_scheduler(bug):
    """save() and load() forget the schedule: its warm-up runs again. On resuming after 150 steps
    the rate is 0.002 instead of 0.0073."""
    seed(69)
    g = gen(71)
    x = torch.randint(0, 30, (900, 6), generator=g)
    w = torch.randn(30, generator=g)
    y = w[x].sum(1) + 0.1 * torch.randn(900, generator=g)

    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.EmbeddingBag(30, 16, mode="sum")
            self.out = nn.Linear(16, 1)

        def forward(self, ids):
            return self.out(self.emb(ids)).squeeze(1)

    tl, vl = loaders(*named(704, ids=x, score=y), 32)
    m = Bag()
    opt = torch.optim.Adam(m.parameters(), 2e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda k: min((k + 1) / 20, 20**0.5 / max(k, 1) ** 0.5)
    )

    def loss_of(model, b):
        return F.mse_loss(model(b["ids"]), b["score"])

    def sums_of(model, b):
        return {"val_mse": (((model(b["ids"]) - b["score"]) ** 2).sum(), len(b["score"]))}

    kept = {"model": m, "opt": opt} | ({} if bug else {"sched": scheduler})
    return by_cost(
        m,
        opt,
        tl,
        vl,
        loss_of,
        sums_of,
        step=plain_step(m, opt, loss_of, scheduler),
        scheduler=scheduler,
        declared={"scheduler_unit": "batch"},
        **saved(**kept),
    )


@pair("checkpoint-by-reference")
def best_state_not_copied(bug):
    """The best weights are kept as model.state_dict() without a copy and put back at the end: they
    are the last. After 300 steps val_loss is 1.87 instead of 0.986."""
    seed(70)
    x, y = blobs(500, 10, 5, 72, spread=2.5)
    tl, vl = loaders(*split(x, y, val=300), 32)
    m = mlp(10, 64, 64, 5)
    found = by_pairs(m, torch.optim.Adam(m.parameters(), 5e-3), tl, vl, num_classes=5)

    class Fitter:
        """Asks for the score every 10 steps."""

        def __init__(self):
            self.best, self.state = float("inf"), None

        def fit(self, n):
            losses = []
            while len(losses) < n:
                losses += found["train"](min(10, n - len(losses)))
                score = found["evaluate"]()["val_loss"]
                if score < self.best:
                    self.best = score
                    self.state = m.state_dict() if bug else copy.deepcopy(m.state_dict())
            m.load_state_dict(self.state)
            return losses

        def evaluate(self):
            return {**found["evaluate"](), "best_val_loss": self.best}

    fitter = Fitter()
    return found | {"train": fitter.fit, "evaluate": fitter.evaluate}
