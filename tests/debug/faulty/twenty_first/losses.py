"""Faults of criteria, of frozen parts and of averages."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_first.kit import (
    blobs,
    by_classes,
    by_pairs,
    class_losses,
    curve,
    evaluating,
    feed,
    gen,
    loaders,
    mean_eval,
    mlp,
    plain_step,
    pretrain,
    rights,
    seed,
    set_up,
    sup_step,
    whole_batches,
)


@pair("double-softmax")
def sigmoids_into_bce_with_logits(bug):
    """The network ends in a sigmoid and is trained by BCEWithLogitsLoss. After 300 steps f1 is 0
    instead of 0.664."""
    seed(31)
    g = gen(1)
    x = torch.randn(800, 12, generator=g)
    w = torch.randn(12, 5, generator=g)
    y = ((x @ w + torch.randn(800, 5, generator=g)) > 3).float()
    tl, vl = loaders((x[:600], y[:600]), (x[600:], y[600:]), 32, 64)
    m = nn.Sequential(mlp(12, 32, 5), nn.Sigmoid())
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    kind = nn.BCEWithLogitsLoss if bug else nn.BCELoss
    costs = kind(reduction="none")
    score = mean_eval(m, vl, {"val_loss": lambda m, b: costs(m(b[0]), b[1])})

    def evaluate():
        hits = false = missed = 0
        with evaluating(m):
            for inputs, targets in vl:
                told, is_true = m(inputs) > 0.5, targets > 0.5
                hits += (told & is_true).sum().item()
                false += (told & ~is_true).sum().item()
                missed += (~told & is_true).sum().item()
        return {"f1": 2 * hits / max(2 * hits + false + missed, 1)} | score()

    return by_pairs(m, opt, tl, vl, kind(), evaluate=evaluate, num_classes=5)


@pair("broadcast-loss")
def squares_of_a_column_less_a_row(bug):
    """Outputs [N, 1] less targets [N] make a table [N, N]. After 300 steps val_rmse is 0.795
    instead of 0.235."""
    seed(32)
    tl, vl = loaders(curve(512, 1), curve(200, 2), 32, 64)
    layers = mlp(8, 48, 48, 1)
    m = layers if bug else nn.Sequential(layers, nn.Flatten(0))
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def crit(out, target):
        return ((out - target) ** 2).mean()

    score = mean_eval(m, vl, {"val_mse": lambda m, b: (m(b[0]).reshape(-1) - b[1]) ** 2})

    def evaluate():
        return {"val_rmse": score()["val_mse"] ** 0.5}

    return by_pairs(m, opt, tl, vl, crit, evaluate=evaluate)


class Rate(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(6, 24, 1)

    def forward(self, x):
        return self.net(x).squeeze(-1).clamp(-8, 8).exp()


@pair("targets-out-of-reach")
def poisson_rate_as_log_rate(bug):
    """PoissonNLLLoss takes the exponential of what is a rate already. After 300 steps
    predicted_mean is 0.962 instead of 3.17, where 3.22 is observed."""
    seed(33)
    g = gen(1)
    x = torch.randn(800, 6, generator=g)
    y = torch.poisson((0.5 * x[:, 0] - 0.4 * x[:, 1] + 1).exp(), generator=g)
    tl, vl = loaders((x[:600], y[:600]), (x[600:], y[600:]), 32, 64)
    m = Rate()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    scores = {
        "predicted_mean": lambda m, b: m(b[0]),
        "observed_mean": lambda m, b: b[1],
        "mae": lambda m, b: (m(b[0]) - b[1]).abs(),
    }
    crit = nn.PoissonNLLLoss(log_input=bug)
    return by_pairs(m, opt, tl, vl, crit, evaluate=mean_eval(m, vl, scores))


class Distiller(nn.Module):
    """A student beside its frozen teacher, which is kept in evaluation mode or not."""

    def __init__(self, teacher, student, keeps):
        super().__init__()
        self.teacher = teacher
        self.student = student
        self.keeps = keeps
        teacher.requires_grad_(False)
        teacher.eval()

    def train(self, mode=True):
        super().train(mode)
        if self.keeps:
            self.teacher.eval()
        return self

    def forward(self, x):
        return self.student(x)


@pair("frozen-params-drift")
def distill_teacher_in_train_mode(bug):
    """model.train() turns on the teacher's dropout, and its statistics drift. After 300 steps
    student_agrees is 0.879 instead of 0.986 and teacher_acc 0.92 instead of 0.963."""
    seed(34)
    x, y = blobs(600, 10, 4, 1, spread=2.0)
    vx, vy = blobs(300, 10, 4, 2, spread=2.0)
    teacher = nn.Sequential(
        nn.Linear(10, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Dropout(0.6),
        nn.Linear(48, 4),
    )
    pretrain(teacher, torch.optim.Adam(teacher.parameters(), 1e-2), x, y, 60)
    narrow, held = x[y < 2] * 0.5, vx[vy < 2] * 0.5
    tl = feed((narrow,), 16, drop_last=True)
    m = Distiller(teacher, mlp(10, 24, 4), not bug)
    opt = torch.optim.Adam(m.student.parameters(), 5e-3)

    def loss_of(model, b):
        with torch.no_grad():
            told = F.softmax(model.teacher(b[0]) / 2, 1)
        said = F.log_softmax(model.student(b[0]) / 2, 1)
        return 4 * F.kl_div(said, told, reduction="batchmean")

    def evaluate():
        with evaluating(m):
            agree = (m.teacher(held).argmax(1) == m(held).argmax(1)).float().mean().item()
            right = (m.teacher(vx).argmax(1) == vy).float().mean().item()
        return {"student_agrees": agree, "teacher_acc": right}

    more = {
        "loss_of": loss_of,
        "num_classes": 4,
        "declared": {"frozen": ["teacher." + name for name, _ in teacher.named_parameters()]},
    }
    return set_up(m, opt, tl, plain_step(m, opt, loss_of), evaluate=evaluate, **more)


class HeadOnBackbone(nn.Sequential):
    def __init__(self):
        super().__init__()
        self.backbone = mlp(16, 64, 32)
        self.act = nn.ReLU()
        self.head = nn.Linear(32, 6)


@pair("frozen-params-drift")
def requires_grad_typo(bug):
    """A misspelt requires_grad freezes nothing, and the backbone is fitted to a few rows. After 300
    steps val_acc is 0.55 instead of 0.593 and val_loss 2.24 instead of 1.39."""
    seed(35)
    kind = {"spread": 2.0, "centre": 1.2}
    x, y = blobs(800, 16, 6, 1, **kind)
    m = HeadOnBackbone()
    pretrain(m, torch.optim.Adam(m.parameters(), 5e-3), x, y, 200)
    for p in m.backbone.parameters():
        if bug:
            p.require_grad = False
        else:
            p.requires_grad = False
    m.head.reset_parameters()
    few = blobs(36, 16, 6, 2, noise=0.3, **kind)
    tl, vl = loaders(few, blobs(400, 16, 6, 3, **kind), 8, 64)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    right, score = rights(m, vl), mean_eval(m, vl, {"val_loss": class_losses})

    def evaluate():
        return right() | score()

    frozen = ["backbone." + name for name, _ in m.backbone.named_parameters()]
    more = {"evaluate": evaluate, "declared": {"frozen": frozen}}
    return by_classes(m, opt, tl, vl, 6, **more)


@pair("average-without-statistics")
def ema_follows_parameters_alone(bug):
    """The averaged copy is scored with the batch norm statistics of the start. After 300 steps
    ema_val_acc is 0.84 instead of 1."""
    seed(36)

    def data(n, s):
        x, y = blobs(n, 10, 4, s)
        return x * 4 + 25, y

    tl, vl = whole_batches(data(600, 1), data(300, 2), 32, 64)
    m = nn.Sequential(
        nn.BatchNorm1d(10),
        nn.Linear(10, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 4),
    )
    ema = copy.deepcopy(m).eval()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    crit = nn.CrossEntropyLoss()

    @torch.no_grad()
    def update():
        for e, p in zip(ema.parameters(), m.parameters(), strict=True):
            e.lerp_(p, 0.05)
        if not bug:
            for e, p in zip(ema.buffers(), m.buffers(), strict=True):
                e.copy_(p)

    of_model, of_copy = rights(m, vl), rights(ema, vl)

    def evaluate():
        return of_model() | {"ema_val_acc": of_copy()["val_acc"]}

    step = sup_step(m, opt, crit, update)
    return by_classes(m, opt, tl, vl, 4, crit, step, evaluate=evaluate)
