"""Bugs around the step: evaluation, kept and saved state, schedules."""

import copy
import io
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.fifth.kit import (
    EMA,
    Tagger,
    Trainer,
    average_with_batch_norm,
    classes,
    loaders,
    mlp,
    table,
    words,
)
from tests.debug.faulty.kit import pair


@pair("metric-wrong")
def last_batch_only(bug):
    """The sums are reset inside the loop: the metrics are of the last batch alone."""
    x, y = classes(spread=2.5)
    tl, vl = loaders(x, y, val=36)
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    t = Trainer(model, opt, tl, vl, faulty="last_batch_only" if bug else "")
    return t.setup(train_step=t.step)


@pair("metric-wrong")
def pads_counted_right(bug):
    """Accuracy of tags counts padding, which is always right: it reads too high."""
    x, _ = words()
    y = (x + torch.roll(x, 1, 1)) % 3 + 1
    y[x == 0] = 0
    tl, vl = loaders(x, y)
    model = Tagger(tags=4)
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_fn(out, y):
        return F.cross_entropy(out.transpose(1, 2), y, ignore_index=0)

    def evaluate():
        model.eval()
        right = count = 0
        with torch.no_grad():
            for x, y in vl:
                said = model(x).argmax(2)
                said[x == 0] = 0
                keep = torch.ones_like(y, dtype=torch.bool) if bug else y != 0
                right += (said == y)[keep].sum().item()
                count += keep.sum().item()
        model.train()
        return {"accuracy": right / count}

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=loss_fn,
        evaluate=evaluate,
    )


@pair("eval-mode-in-training")
def eval_left_on(bug):
    """Evaluate() leaves the model in eval mode and training never calls train(): dropout is
    off from then on."""
    x, y = classes(spread=2.0)
    tl, vl = loaders(x, y)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 4))
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    t = Trainer(model, opt, tl, vl, faulty="eval_left_on" if bug else "")
    return t.setup(train_step=t.step)


@pair("average-without-statistics")
def ema_without_buffers(bug):
    """The EMA averages parameters and forgets BatchNorm's buffers: evaluation runs with the
    initial statistics."""
    return average_with_batch_norm(buffers=not bug)[0]


@pair("checkpoint-by-reference")
def best_of_train_by_reference(bug):
    """Best_state = model.state_dict() is no copy: the best weights move along and the last
    are restored."""
    x, y = classes(spread=2.0)
    tl, vl = loaders(x, y)
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 2e-2)
    t = Trainer(model, opt, tl, vl)

    def train(steps):
        best, kept, losses = math.inf, None, []
        for _ in range(max(1, steps // 4)):
            losses += t.train(4)
            now = t.evaluate()["loss"]
            if now < best:
                best = now
                kept = model.state_dict() if bug else copy.deepcopy(model.state_dict())
        model.load_state_dict(kept)
        return losses

    return t.setup(train=train)


@pair("checkpoint-incomplete")
def average_not_saved(bug):
    """The checkpoint leaves out the EMA, which evaluation uses: after resume it starts
    again from other weights."""
    x, y = table()
    tl, vl = loaders(x, y)
    model = mlp(8, 1)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    ema = EMA(model, buffers=True, decay=0.98)

    def train_step(batch):
        loss = F.mse_loss(model(batch[0]), batch[1])
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(model)
        return loss.item()

    @torch.no_grad()
    def evaluate():
        return {"mse": torch.cat([(ema.model(x) - y) ** 2 for x, y in vl]).mean().item()}

    def save(path):
        torch.save(
            {
                "model": model.state_dict(),
                "opt": opt.state_dict(),
                **({} if bug else {"ema": ema.model.state_dict()}),
            },
            path,
        )

    def load(path):
        state = torch.load(path)
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        if not bug:
            ema.model.load_state_dict(state["ema"])

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.MSELoss(),
        train_step=train_step,
        evaluate=evaluate,
        save=save,
        load=load,
        task="regression",
        extra={"ema": ema.model},
    )


@pair("checkpoint-incomplete")
def prefix_strict_false(bug):
    """Keys are saved with the prefix module. and loaded with strict=True: nothing is
    loaded."""
    x, y = classes()
    tl, vl = loaders(x, y)
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.05)

    def save():
        buf = io.BytesIO()
        torch.save(
            {
                "model": {"module." + k: v for k, v in model.state_dict().items()},
                "opt": opt.state_dict(),
            },
            buf,
        )
        return buf.getvalue()

    def load(raw):
        state = torch.load(io.BytesIO(raw))
        named = (
            state["model"]
            if bug
            else {k.removeprefix("module."): v for k, v in state["model"].items()}
        )
        model.load_state_dict(named, strict=not bug)
        opt.load_state_dict(state["opt"])

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.CrossEntropyLoss(),
        save=save,
        load=load,
        num_classes=4,
    )


@pair("keeps-worse-weights")
def keeps_the_worst(bug):
    """Early stopping keeps the weights of the highest loss (a comparison meant for
    accuracy)."""
    x, y = classes(spread=1.5)
    tl, vl = loaders(x, y)
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    t = Trainer(model, opt, tl, vl)

    def train(steps):
        best, kept, losses = None, None, []
        for _ in range(max(1, steps // 4)):
            losses += t.train(4)
            now = t.evaluate()["loss"]
            if best is None or (now > best if bug else now < best):
                best, kept = now, copy.deepcopy(model.state_dict())
        model.load_state_dict(kept)
        return losses

    return t.setup(train=train)


@pair("scheduler-misplaced")
def onecycle_per_epoch(bug):
    """OneCycle counts batches and is stepped per epoch: the lr never leaves its warm-up."""
    x, y = classes(192)
    tl, vl = loaders(x, y, batch=8)
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=2000)

    def train(steps):
        losses = []
        while len(losses) < steps:
            for x, y in tl:
                loss = F.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
                if not bug:
                    sched.step()
                if len(losses) == steps:
                    break
            if bug:
                sched.step()
        return losses

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.CrossEntropyLoss(),
        scheduler=sched,
        train=train,
        num_classes=4,
        declared={"scheduler_unit": "batch"},
    )


@pair("lr-too-small")
def lambda_is_absolute(bug):
    """LambdaLR's function returns an lr, not a factor: the lr is its square."""
    x, y = classes()
    tl, vl = loaders(x, y)
    model = mlp()
    base = 3e-3
    opt = torch.optim.Adam(model.parameters(), base)

    def factor(step):
        return min(1.0, (step + 1) / 10)

    sched = torch.optim.lr_scheduler.LambdaLR(opt, (lambda s: base * factor(s)) if bug else factor)

    def train_step(batch):
        loss = F.cross_entropy(model(batch[0]), batch[1])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        return loss.item()

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.CrossEntropyLoss(),
        scheduler=sched,
        train_step=train_step,
        num_classes=4,
    )


@pair("scheduler-misplaced")
def plateau_max_of_loss(bug):
    """ReduceLROnPlateau watches the validation loss in mode max: the lr is cut while the
    loss falls."""
    x, y = classes(spread=1.5)
    tl, vl = loaders(x, y)
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.05)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(
        opt, mode="max" if bug else "min", patience=2
    )
    t = Trainer(model, opt, tl, vl)

    def train(steps):
        losses = []
        while len(losses) < steps:
            losses += t.train(min(4, steps - len(losses)))
            sched.step(t.evaluate()["loss"])
        return losses

    return t.setup(train=train, scheduler=sched, declared={"scheduler_unit": "epoch"})
