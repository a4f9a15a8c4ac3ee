"""Faults of whole runs: keeping the best, metrics, averages, optimizers, splits, schedules."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Subset, random_split

from tests.debug.faulty.eighth.kit import gen, predict
from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventh.kit import saved
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    loaders,
    looped,
    mean_loss,
    mlp,
    numbers,
    of_pairs,
    pictures,
    setup,
    small_conv,
    stepper,
)


@pair("keeps-worse-weights", "checkpoint-by-reference")
def early_stop_restores_the_last(bug):
    """The best weights are kept as model.state_dict(), which goes on changing with the model:
    "restoring the best" restores the last. Costs: early stopping gives the overfitted weights.
    Twin: a deep copy."""
    x, y = numbers(n=96, seed=50)
    y = y + 0.6 * torch.randn(96, 1, generator=gen(50))
    loader, val_loader = loaders(x, y, val=48)
    model = mlp(8, 1, 96)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loss_of = of_pairs(F.mse_loss)
    step = stepper(model, opt, loss_of)
    evaluate = mean_loss(model, val_loader, loss_of)

    def train(steps):
        """At most so many steps; stops after ten epochs without a better loss, keeps the best."""
        best, kept, waited, losses = float("inf"), None, 0, []
        while len(losses) < steps and waited < 10:
            for batch in loader:
                losses.append(step(batch))
                if len(losses) == steps:
                    break
            now = evaluate()["loss"]
            waited += 1
            if now < best:
                best, waited = now, 0
                kept = model.state_dict() if bug else copy.deepcopy(model.state_dict())
        if kept is not None:
            model.load_state_dict(kept)
        return losses

    return setup(
        model,
        opt,
        loader,
        val_loader,
        loss_fn=nn.MSELoss(),
        task="regression",
        train_step=step,
        train=train,
        evaluate=evaluate,
    )


@pair("metric-batch-mean", "metric-wrong")
def mean_of_the_batches_f1(bug):
    """F1 is taken per batch of validation and averaged; of a rare label many batches have none
    and count as 0. Costs: a number that depends on the batch size and is far too low. Twin:
    counts over all rows, one F1."""
    g = gen(51)
    x = torch.randn(320, 8, generator=g)
    w = torch.randn(8, 3, generator=g)
    y = (
        x @ w / 2.5 + 0.3 * torch.randn(320, 3, generator=g) > torch.tensor([0.3, 1.0, 1.6])
    ).float()
    loader, val_loader = loaders(x, y, val=100, batch=8)
    model = mlp(8, 3)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_fn = nn.BCEWithLogitsLoss()
    step = stepper(model, opt, of_pairs(loss_fn))

    def f1(said, true):
        both, either = (said * true).sum(0), said.sum(0) + true.sum(0)
        return (2 * both / either.clamp(min=1)).mean().item()

    def evaluate():
        model.eval()
        with torch.no_grad():
            pairs = [((model(x) > 0).float(), y) for x, y in val_loader]
        model.train()
        if bug:
            return {"macro_f1": sum(f1(s, t) for s, t in pairs) / len(pairs)}
        return {"macro_f1": f1(torch.cat([s for s, _ in pairs]), torch.cat([t for _, t in pairs]))}

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_fn=loss_fn,
        task="multilabel",
        evaluate=evaluate,
    )


@pair("average-without-statistics")
def averages_but_not_the_norm(bug):
    """The running mean of the weights (EMA), which is what is evaluated, is made over the
    parameters only: batch norm's running statistics, being buffers, stay as at the start. Costs:
    accuracy of the averaged model. Twin: buffers are copied too."""
    x, y = blobs(n=192, seed=52, spread=1.5)
    x = 3 * x + 4
    loader, val_loader = loaders(x, y, val=64)
    model = nn.Sequential(
        nn.BatchNorm1d(8), nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)
    )
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    average = copy.deepcopy(model).requires_grad_(False)
    loss_fn = nn.CrossEntropyLoss()

    def train_step(batch):
        model.train()
        loss = loss_fn(model(batch[0]), batch[1])
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters(), strict=False):
                kept.lerp_(new, 0.1)
            if not bug:
                for kept, new in zip(average.buffers(), model.buffers(), strict=False):
                    kept.copy_(new)
        return loss.item()

    def evaluate():
        out, y = predict(average, val_loader)
        return {"accuracy": (out.argmax(1) == y).float().mean().item()}

    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=train_step,
        loss_fn=loss_fn,
        num_classes=4,
        evaluate=evaluate,
        extra={"average": average},
    )


@pair("optimizer-stale-params", "optimizer-holds-another")
def new_head_unknown_to_the_optimizer(bug):
    """The head of a pretrained network is replaced after the optimizer was made: it holds the
    old head, the new one stays random. Costs: only the body learns, through a random head."""
    x, y = blobs(n=192, k=6, seed=53, spread=1.6)
    torch.manual_seed(53)
    model = nn.Sequential()
    model.add_module("body", nn.Sequential(nn.Linear(8, 16), nn.ReLU()))
    model.add_module("head", nn.Linear(16, 10))
    fit = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(30):
        fit.zero_grad()
        F.cross_entropy(model(x[:160]), y[:160] // 2).backward()
        fit.step()
    if not bug:
        model.head = nn.Linear(16, 6)
    opt = torch.optim.AdamW(
        [
            {"params": model.body.parameters(), "lr": 3e-4},
            {"params": model.head.parameters(), "lr": 1e-2},
        ]
    )
    if bug:
        model.head = nn.Linear(16, 6)
    loader, val_loader = loaders(x, y)
    loss_fn = nn.CrossEntropyLoss()
    step = stepper(model, opt, of_pairs(loss_fn))
    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_fn=loss_fn,
        num_classes=6,
        evaluate=accuracy(model, val_loader),
    )


@pair("augmented-validation")
def both_halves_share_the_switch(bug):
    """random_split gives two views of one dataset; switching augmentation on for the one
    switches it on for both. Costs: validation on noisy, shifted pictures: a number too low, and
    another one each time. Twin: a dataset of its own each."""
    x, y, _ = pictures(n=144, seed=54)

    class Pictures(Dataset):
        def __init__(self, augment=False):
            self.augment = augment

        def __len__(self):
            return len(x)

        def __getitem__(self, i):
            picture = x[i]
            if self.augment:
                shift = torch.randint(-2, 3, (2,)).tolist()
                picture = picture.roll(shift, (-2, -1)) + 0.4 * torch.randn_like(picture)
            return picture, y[i]

    train, held = random_split(Pictures(), [104, 40], generator=gen(54))
    if not bug:
        held = Subset(Pictures(), held.indices)
    train.dataset.augment = True
    loader = DataLoader(train, 16, shuffle=True)
    val_loader = DataLoader(held, 16)
    model = small_conv()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loss_fn = nn.CrossEntropyLoss()
    step = stepper(model, opt, of_pairs(loss_fn))
    return setup(
        model,
        opt,
        loader,
        val_loader,
        step=step,
        loss_fn=loss_fn,
        num_classes=2,
        evaluate=accuracy(model, val_loader),
        **saved(model=model, optimizer=opt),
    )


@pair("scheduler-misplaced")
def cosine_of_epochs_stepped_by_batch(bug):
    """CosineAnnealingLR with T_max in epochs is stepped after each batch: the rate falls to zero
    and rises again every few epochs. Costs: no annealing; the last steps are as likely at the
    full rate. Twin: stepped after each epoch."""
    x, y = blobs(n=288, seed=55, spread=1.8)
    loader, val_loader = loaders(x, y, val=64)
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=20)
    loss_fn = nn.CrossEntropyLoss()

    def train_step(batch):
        model.train()
        loss = loss_fn(model(batch[0]), batch[1])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if bug:
            sched.step()
        return loss.item()

    return setup(
        model,
        opt,
        loader,
        val_loader,
        scheduler=sched,
        loss_fn=loss_fn,
        num_classes=4,
        train_step=train_step,
        train=looped(loader, train_step, None if bug else sched.step),
        evaluate=accuracy(model, val_loader),
        declared={"scheduler_unit": "epoch"},
        **saved(model=model, optimizer=opt, scheduler=sched),
    )
