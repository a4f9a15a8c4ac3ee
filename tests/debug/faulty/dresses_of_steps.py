"""Two further dresses each of faults of the step: starts, teachers, memory, averages."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from course.debug.relations import (
    averages,
    memory,
    stuck,
    teachers,
    weights,
)
from tests.debug.faulty.dresses import dress, numbers, setup, stepping, trained_by
from tests.debug.faulty.fourth.kit import accuracy, batches, blobs, mlp

# Products of two zeros


class Gated(nn.Module):
    """A branch whose gate is zero at first; its last layer must not be, too."""

    def __init__(self, twice):
        super().__init__()
        self.plain, self.branch = nn.Linear(6, 1), mlp(6, 8, 1)
        self.gate = nn.Parameter(torch.zeros(1))
        if twice:
            nn.init.zeros_(self.branch[-1].weight)
            nn.init.zeros_(self.branch[-1].bias)

    def forward(self, x):
        return (self.plain(x) + self.gate * self.branch(x)).squeeze(1)


@dress(stuck.product, "bad-start")
def branch_behind_a_gate(bug):
    x, y = numbers()
    return trained_by(lambda m, b: F.mse_loss(m(b[0]), b[1]), Gated(bug), batches(x, y, bs=16))


@dress(stuck.product, "bad-start")
def all_layers_start_at_zero(bug):
    model = nn.Sequential(nn.Linear(10, 12), nn.Tanh(), nn.Linear(12, 3))
    for layer in (model[0], model[2]) if bug else (model[2],):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    return setup(model, batches(*blobs(96), bs=16), loss_fn=nn.CrossEntropyLoss())


@dress(stuck.units, "bad-start")
def weights_of_one_size(bug):
    model = mlp(10, 12, 3)
    if bug:
        for p in model.parameters():
            nn.init.constant_(p, 0.05)
    return setup(model, batches(*blobs(96)), loss_fn=nn.CrossEntropyLoss())


@dress(stuck.units, "bad-start")
def filters_of_ones(bug):
    x, y = torch.randn(64, 1, 6, 6), torch.randn(64)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, 1))
    if bug:
        nn.init.ones_(model[0].weight)
        nn.init.zeros_(model[0].bias)
        model[3].weight.data = model[3].weight.data[:, :16].repeat(1, 4)
    return trained_by(lambda m, b: F.l1_loss(m(b[0]).squeeze(1), b[1]), model, batches(x, y, bs=16))


# Networks that give targets


@dress(teachers.in_eval_mode, "train-mode-in-eval")
def teacher_that_drops(bug):
    x, y = blobs(96)
    teacher = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
    teacher.train(bug).requires_grad_(False)

    def cost(model, batch):
        return F.cross_entropy(model(batch[0]), teacher(batch[0]).softmax(1))

    return trained_by(cost, mlp(10, 8, 3), batches(x, y)) | {"teacher": teacher}


class Looked(nn.Module):
    """A distance in the features of a network that was trained elsewhere."""

    def __init__(self, awake):
        super().__init__()
        self.eyes = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.eyes.requires_grad_(False)
        self.train(awake)

    def forward(self, a, b):
        return F.l1_loss(self.eyes(a), self.eyes(b))


@dress(teachers.in_eval_mode, "train-mode-in-eval")
def features_that_move(bug):
    x = torch.randn(48, 1, 8, 8)
    seen = Looked(bug)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))

    def cost(model, batch):
        return seen(model(batch[0] + 0.3 * torch.randn(batch[0].shape)), batch[0])

    return trained_by(cost, model, batches(x, bs=12))


# States of optimizers and modules


class Averaging(torch.optim.Optimizer):
    """Steps along a running mean of the gradients."""

    def __init__(self, parameters, copied, of_weights=False):
        self.copied, self.of_weights = copied, of_weights
        super().__init__(parameters, {"lr": 0.05})

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            source = p if self.of_weights else p.grad
            mean = self.state[p].setdefault("mean", source.clone() if self.copied else source.data)
            if self.of_weights:  # look ahead, and come half of the way back
                p.sub_(p.grad, alpha=0.05)
                p.copy_(mean.lerp_(p, 0.5))
            else:
                p.sub_(mean.mul_(0.9).add_(p.grad, alpha=0.1), alpha=0.05)


def with_own_optimizer(model, cost, loader, optimizer):
    def train_step(batch):
        for p in model.parameters():
            if p.grad is not None:
                p.grad.zero_()
        loss = cost(model, batch)
        loss.backward()
        optimizer.step()
        return loss.item()

    return {"model": model, "optimizer": optimizer, "train_loader": loader,
            "train_step": train_step}  # fmt: skip


@dress(memory.optimizer_state, "memory-shared")
def mean_is_the_gradient(bug):
    model = mlp(10, 8, 3)
    cost = lambda m, b: F.cross_entropy(m(b[0]), b[1])  # noqa: E731
    return with_own_optimizer(model, cost, batches(*blobs(96)),
                              Averaging(model.parameters(), not bug))  # fmt: skip


@dress(memory.optimizer_state, "memory-shared")
def slow_weights_are_the_fast(bug):
    x, y = numbers()
    model = nn.Sequential(nn.Linear(6, 1), nn.Flatten(0))
    cost = lambda m, b: F.huber_loss(m(b[0]), b[1])  # noqa: E731
    return with_own_optimizer(model, cost, batches(x, y),
                              Averaging(model.parameters(), not bug, of_weights=True))  # fmt: skip


@dress(memory.states, "checkpoint-by-reference")
def step_to_the_mean_of_two_tasks(bug):
    """As in Reptile: a copy learns each task for itself, and the model goes to their mean."""
    x, y = numbers()
    model, worker = mlp(6, 8, 1), mlp(6, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)

    def train_step(batch):
        kept, total = {}, 0.0
        for task, sign in (("rise", 1), ("fall", -1)):
            worker.load_state_dict(model.state_dict())
            own = torch.optim.SGD(worker.parameters(), 0.05)
            for _ in range(2):
                own.zero_grad()
                loss = F.mse_loss(worker(batch[0]).squeeze(1), sign * batch[1])
                loss.backward()
                own.step()
            kept[task] = worker.state_dict() if bug else copy.deepcopy(worker.state_dict())
            total += loss.item()
        optimizer.zero_grad()
        for name, p in model.named_parameters():
            p.grad = p.detach() - (kept["rise"][name] + kept["fall"][name]) / 2
        optimizer.step()
        return total

    return {"model": model, "optimizer": optimizer, "train_loader": batches(x, y),
            "train_step": train_step, "worker": worker}  # fmt: skip


@dress(memory.states, "checkpoint-by-reference")
def best_of_three_tries(bug):
    """A step tries three noises on the weights, and goes on from the best."""
    x, y = blobs(96)
    model = nn.Linear(10, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inner = stepping(model, optimizer, lambda m, b: F.cross_entropy(m(b[0]), b[1]))

    def train_step(batch):
        start, tries, costs = copy.deepcopy(model.state_dict()), [], []
        for _ in range(3):
            model.load_state_dict(start)
            costs.append(inner((batch[0] + 0.1 * torch.randn(batch[0].shape), batch[1])))
            tries.append(model.state_dict() if bug else copy.deepcopy(model.state_dict()))
        model.load_state_dict(tries[costs.index(min(costs))])
        return min(costs)

    return setup(model, batches(x, y)) | {"optimizer": optimizer, "train_step": train_step}


# Weights that no gradient reaches, in steps that draw


@dress(weights.silent, "frozen-params")
def code_of_a_noisy_autoencoder(bug):
    x, _ = numbers()
    model = nn.ModuleDict({"into": nn.Linear(6, 3), "out": nn.Linear(3, 6)})

    def cost(model, batch):
        code = model["into"](batch[0])
        code = code.data if bug else code
        return F.mse_loss(model["out"](code + 0.1 * torch.randn(code.shape)), batch[0])

    return trained_by(cost, model, batches(x))


@dress(weights.silent, "frozen-params")
def query_tower_scored_as_numbers(bug):
    x, _ = numbers()
    model = nn.ModuleDict({"ask": nn.Linear(6, 4), "say": nn.Linear(6, 4)})

    def cost(model, batch):
        a, b = model["ask"](batch[0] + torch.randn(6)), model["say"](batch[0])
        scores = (a.detach() if bug else a) @ b.T
        return F.cross_entropy(scores, torch.arange(len(scores)))

    return trained_by(cost, model, batches(x, bs=24))


# Averages made once an epoch


def averaged_each_epoch(bug, model, loader, val, cost):
    mean = copy.deepcopy(model).requires_grad_(False)
    found = setup(model, loader, val_loader=val, evaluate=accuracy(mean, val), mean=mean)
    step = stepping(model, found["optimizer"], cost)

    def train(steps):
        losses = []
        while len(losses) < steps:
            for batch in loader:
                losses.append(step(batch))
            for slow, fast in zip(mean.parameters(), model.parameters(), strict=True):
                slow.data.lerp_(fast.data, 0.5)
            for slow, fast in zip(mean.buffers(), model.buffers(), strict=True):
                slow.copy_(slow if bug else fast)
        return losses[:steps]

    return found | {"train_step": step, "train": train}


@dress(averages.whole, "average-without-statistics")
def mean_of_epochs_of_a_table(bug):
    x, y = blobs(96)
    model = nn.Sequential(nn.Linear(10, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    cost = lambda m, b: F.cross_entropy(m(b[0]), b[1])  # noqa: E731
    return averaged_each_epoch(bug, model, batches(x[:64], y[:64]), batches(x[64:], y[64:]), cost)


@dress(averages.whole, "average-without-statistics")
def mean_of_epochs_of_pictures(bug):
    x, y = torch.randn(64, 1, 6, 6), torch.randint(2, (64,))
    x[:, 0, 2] += 2 * y[:, None]
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 2))
    cost = lambda m, b: F.cross_entropy(m(b[0]), b[1], label_smoothing=0.1)  # noqa: E731
    return averaged_each_epoch(bug, model, batches(x, y, bs=16), batches(x, y), cost)
