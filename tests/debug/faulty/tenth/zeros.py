"""Faults that leave something at zero or alike: slopes, averages, and weights of rows."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import accuracy, blobs, loaders, mlp, numbers, setup, stepper


@pair("wrong-gradient")
def codes_rounded_in_the_middle(bug):
    """Binary codes by round(): the encoder's gradient is 0; the twin lets it straight through."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.head = nn.Linear(12, 24), nn.Linear(24, 4)

        def forward(self, x):
            soft = self.encoder(x).sigmoid()
            hard = soft.round()
            return self.head(hard if bug else soft + (hard - soft).detach())

    train, held = loaders(*blobs(n=480, d=12, seed=221), val=96)
    model = Net()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    step = stepper(model, opt, lambda m, b: F.cross_entropy(m(b[0]), b[1]))
    return setup(
        model, opt, train, held, step=step, loss_fn=nn.CrossEntropyLoss(), num_classes=4,
        evaluate=accuracy(model, held),
    )  # fmt: skip


@pair("wrong-gradient")
def expert_by_argmax(bug):
    """Each row goes to the expert that argmax() names: the gate has a slope of 0 in the twin's
    place of its softmax."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(12, 3)
            self.experts = nn.ModuleList(nn.Linear(12, 4) for _ in range(3))

        def forward(self, x):
            soft = self.gate(x).softmax(1)
            share = (soft >= soft.amax(1, keepdim=True)) * soft.sign() if bug else soft
            return sum(share[:, [n]] * one(x) for n, one in enumerate(self.experts))

    train, held = loaders(*blobs(n=480, d=12, seed=223), val=96)
    model = Net()
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def train_step(batch):
        model.train()
        opt.zero_grad()
        loss = F.nll_loss(model(batch[0]).log_softmax(1), batch[1])
        loss.backward()
        opt.step()
        return loss.item()

    return setup(
        model, opt, train, held, step=train_step, num_classes=4, evaluate=accuracy(model, held)
    )


def weighed_rows(x, y, weight, size=32):
    return DataLoader(TensorDataset(x, y, weight), size, shuffle=True)


@pair("weighed-after-the-mean")
def rare_rows_after_the_mean(bug):
    """The loss is averaged, then multiplied with each row's weight."""
    x, y = blobs(n=480, d=12, seed=225)
    weight = torch.where(y == 0, 4.0, 1.0)
    model = mlp(12, 4)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    held = DataLoader(TensorDataset(x[384:], y[384:]), 48)

    def cost(m, batch):
        rows, labels, weight = batch
        each = F.cross_entropy(m(rows), labels, reduction="mean" if bug else "none")
        return (weight * each).mean()

    return setup(
        model, opt, weighed_rows(x[:384], y[:384], weight[:384]), held,
        step=stepper(model, opt, cost), num_classes=4, evaluate=accuracy(model, held),
    )  # fmt: skip


@pair("weighed-after-the-mean")
def exposure_after_the_mean(bug):
    """Squared errors by hand, and a column of exposures that each should count with."""
    x, y = numbers(n=400, d=8, seed=227)
    exposure = 0.2 + torch.rand(len(x), 1)
    model = mlp(8, 1)
    opt = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)

    def cost(m, batch):
        rows, wanted, exposure = batch
        errors = (m(rows) - wanted.reshape(-1, 1)).square()
        errors = errors.mean() if bug else errors
        return (exposure * errors).sum() / len(rows)

    @torch.no_grad()
    def evaluate():
        return {"val_mse": F.mse_loss(model(x[320:]), y[320:]).item()}

    return setup(
        model, opt, weighed_rows(x[:320], y[:320], exposure[:320]), [(x[320:], y[320:])],
        step=stepper(model, opt, cost), evaluate=evaluate,
    )  # fmt: skip


def averaged(bug, seed, evaluate, optimizer, decay=0.98):
    """A model with an average that begins at zero, or with the model's weights."""
    train, held = loaders(*blobs(n=480, d=12, seed=seed), val=96)
    model = mlp(12, 4)
    average = copy.deepcopy(model).requires_grad_(False)
    if bug:
        for p in average.parameters():
            p.zero_()
    opt = optimizer(model.parameters())
    plain = stepper(model, opt, lambda m, b: F.cross_entropy(m(b[0]), b[1]))

    def train_step(batch):
        loss = plain(batch)
        with torch.no_grad():
            for mean, p in zip(average.parameters(), model.parameters(), strict=True):
                mean.mul_(decay).add_(p, alpha=1 - decay)
        return loss

    return setup(
        model, opt, train, held, step=train_step, num_classes=4,
        evaluate=evaluate(model, average, held),
    )  # fmt: skip


@pair("ema-decay")
def average_that_begins_at_zero(bug):
    """The running mean of the weights begins at zero and is what is scored."""
    return averaged(
        bug, 229, lambda model, average, held: accuracy(average, held),
        lambda weights: torch.optim.Adam(weights, 5e-3),
    )  # fmt: skip


@pair("ema-decay")
def average_from_zero_swapped_in(bug):
    """The same, with the mean's weights put into the model for scoring, and taken out again."""

    def evaluate(model, average, held):
        score = accuracy(model, held)

        def swapped():
            kept = copy.deepcopy(model.state_dict())
            model.load_state_dict(average.state_dict())
            found = score()
            model.load_state_dict(kept)
            return found

        return swapped

    return averaged(bug, 231, evaluate, lambda weights: torch.optim.SGD(weights, 0.05))
