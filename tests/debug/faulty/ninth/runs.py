"""Faults of whole runs: evaluation, the best model, checkpoints."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.eighth.kit import gen, predict
from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    loaders,
    mlp,
    of_pairs,
    setup,
    stepper,
    trained_pairs,
)


def f1(pred, true):
    hit = (pred & true).sum().item()
    return 2 * hit / max(pred.sum().item() + true.sum().item(), 1)


@pair("metric-batch-mean")
def f1_averaged_over_batches(bug):
    """F1 of the rare class is worked out in each batch of eight and averaged; batches without one
    positive count as 0, and F1 is no mean anyway: the figure lies far below the true one. The twin
    gathers all predictions and works it out once."""
    g = gen(501)
    n = 480
    y = (torch.rand(n, generator=g) < 0.15).float()
    x = torch.randn(n, 8, generator=g) + 1.5 * y[:, None] * torch.tensor(
        [1.0, -1, 1, -1, 0, 0, 0, 0]
    )
    loader, held = loaders(x, y[:, None], val=156, batch=8)
    model = mlp(8, 1, 16)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    loss_of = of_pairs(F.binary_cross_entropy_with_logits)

    def evaluate():
        model.eval()
        scores, preds, trues = [], [], []
        with torch.no_grad():
            for xb, yb in held:
                preds.append(model(xb) > 0)
                trues.append(yb > 0.5)
                scores.append(f1(preds[-1], trues[-1]))
        model.train()
        return {"f1": sum(scores) / len(scores) if bug else f1(torch.cat(preds), torch.cat(trues))}

    return setup(
        model,
        opt,
        loader,
        held,
        step=stepper(model, opt, loss_of),
        loss_fn=nn.BCEWithLogitsLoss(),
        task="binary",
        evaluate=evaluate,
    )


class EarlyStopping:
    """Remembers the weights of the best evaluation."""

    def __init__(self, model, worst, better):
        self.model, self.best, self.better, self.state = model, worst, better, None

    def look(self, value):
        if self.better(value, self.best):
            self.best, self.state = value, copy.deepcopy(self.model.state_dict())

    def restore(self):
        if self.state is not None:
            self.model.load_state_dict(self.state)


@pair("keeps-worse-weights")
def accuracy_watched_like_a_loss(bug):
    """The early-stopping helper came from a loss (start at infinity, smaller is better) and is
    given the accuracy: it keeps the weights of the worst evaluation and puts those back at the
    end of training. The twin starts at -infinity and keeps the larger."""
    x, y = blobs(n=360, d=10, k=5, seed=511, spread=1.8)
    loader, held = loaders(x / 2, y, val=90)
    model = mlp(10, 5)
    opt = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    step = stepper(model, opt, of_pairs(F.cross_entropy))
    evaluate = accuracy(model, held)

    def train(steps):
        if bug:
            stopper = EarlyStopping(model, float("inf"), lambda a, b: a < b)
        else:
            stopper = EarlyStopping(model, float("-inf"), lambda a, b: a > b)
        losses, batches = [], iter(loader)
        for k in range(steps):
            try:
                batch = next(batches)
            except StopIteration:
                batches = iter(loader)
                batch = next(batches)
            losses.append(step(batch))
            if (k + 1) % 5 == 0:
                stopper.look(evaluate()["accuracy"])
        stopper.restore()
        return losses

    return trained_pairs(
        model, opt, (loader, held), nn.CrossEntropyLoss(), num_classes=5, evaluate=evaluate
    ) | {"train": train}


class Wrapped(nn.Module):
    """What DataParallel does to the names."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


@pair("checkpoint-refused", "checkpoint-incomplete")
def names_with_a_prefix(bug):
    """The state dict is taken from the data-parallel wrapper, so that all names begin with
    "module.", and is loaded into the bare model with strict=True: not one name fits, nothing is
    loaded, and nobody is told. The twin saves wrapped.module and loads strictly."""
    x, y = blobs(n=320, d=8, k=4, seed=521, spread=1.6)
    loader, held = loaders(x / 2, y, val=80)
    model = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4))
    wrapped = Wrapped(model)
    opt = torch.optim.Adam(model.parameters(), 4e-3)

    def save():
        source = wrapped if bug else wrapped.module
        return copy.deepcopy({"model": source.state_dict(), "optimizer": opt.state_dict()})

    def load(state):
        state = copy.deepcopy(state)
        model.load_state_dict(state["model"], strict=not bug)
        opt.load_state_dict(state["optimizer"])

    return trained_pairs(
        model,
        opt,
        (loader, held),
        nn.CrossEntropyLoss(),
        num_classes=4,
        evaluate=accuracy(model, held),
        save=save,
        load=load,
    )


class ChurnNet(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, rows):
        return self.net(rows)[:, 0]


@pair("metric-wrong")
def half_as_threshold_for_logits(bug):
    """The model gives logits (BCEWithLogitsLoss trains it) and evaluation compares them with 0.5 as
    if they were probabilities: everything between p = 0.5 and p = 0.62 is called negative, and
    recall and accuracy are reported too low. The twin applies the sigmoid first."""
    g = gen(531)
    x = torch.randn(500, 6, generator=g)
    y = (
        torch.rand(500, generator=g)
        < torch.sigmoid(1.0 * x @ torch.tensor([1.0, -0.7, 0.5, 0, 0, 0]))
    ).float()
    loader, held = loaders(x, y, val=180, batch=20)
    model = ChurnNet(6)
    opt = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.05)
    criterion = nn.BCEWithLogitsLoss()

    def evaluate():
        out, t = predict(model, held)
        pred = (out > 0.5) if bug else (torch.sigmoid(out) > 0.5)
        return {
            "accuracy": (pred == (t > 0.5)).float().mean().item(),
            "recall": pred[t > 0.5].float().mean().item(),
        }

    return trained_pairs(model, opt, (loader, held), criterion, task="binary", evaluate=evaluate)
