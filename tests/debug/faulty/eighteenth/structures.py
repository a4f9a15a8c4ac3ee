"""Faults of what a model is made of: frozen parts, heads, number formats, statistics, averages."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.eighteenth.kit import (
    Columns,
    Transfer,
    accuracy,
    averaged,
    begun,
    blobs,
    by_cost,
    by_pairs,
    evaluating,
    fit_old_task,
    loaders,
    mlp,
    set_up,
    squares,
    sup_step,
    table,
)
from tests.debug.faulty.kit import pair


@pair("frozen-params-drift")
def ft_bn_drift(bug):
    """The backbone is frozen, but in train mode its batch norm goes on averaging. After 400 steps
    old_task_acc is 0.725 instead of 0.99."""
    g = begun(46)
    x, y = blobs(g, 512, 10, 4, 0.8)
    old_x, old_y = blobs(g, 200, 10, 4, 0.8)
    m = Transfer(10, 4)
    fit_old_task(m.train(), x, y)
    old_head = copy.deepcopy(m.head)
    m.head = nn.Linear(24, 3)
    m.backbone.requires_grad_(False)
    centres = torch.randn(3, 10, generator=g) * 1.2 + 2.0
    train, held = (blobs(g, n, 10, 3, 0.8, centres) for n in (160, 150))
    tl, vl = loaders(train, held, 4, vbs=50)
    opt = torch.optim.Adam(m.head.parameters(), 5e-3)
    crit = nn.CrossEntropyLoss()

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
        """The new task, and the old one, whose head reads the same backbone."""
        found = accuracy(m, vl)
        with evaluating(m):
            hits = old_head(m.backbone(old_x)).argmax(1) == old_y
        return found | {"old_task_acc": hits.float().mean().item()}

    declared = {"frozen": [f"backbone.{name}" for name, _ in m.backbone.named_parameters()]}
    more = {"num_classes": 3, "evaluate": evaluate, "declared": declared}
    return by_pairs(m, opt, tl, vl, crit, step, **more)


@pair("optimizer-stale-params")
def ft_unfreeze_late(bug):
    """The backbone is set free after eight steps, but the optimizer holds the head alone. After 400
    steps val_acc is 0.253 instead of 0.867."""
    g = begun(47)
    centres = torch.randn(4, 10, generator=g)
    x, y = blobs(g, 512, 10, 4, 0.8, centres)
    m = Transfer(10, 4, bn=False)
    fit_old_task(m.train(), x, y)
    m.head = nn.Linear(24, 4)
    m.backbone.requires_grad_(False)

    def data(n):
        z = torch.randn(n, 10, generator=g)
        return z, (z[:, 0] * z[:, 1] > 0).long() * 2 + (z[:, 2] * z[:, 3] > 0).long()

    tl, vl = loaders(data(640), data(150), 32, vbs=50)
    opt = torch.optim.Adam([p for p in m.parameters() if p.requires_grad], 5e-3)
    crit, steps = nn.CrossEntropyLoss(), 0

    def step(b):
        nonlocal steps
        m.train()
        if steps == 8:
            m.backbone.requires_grad_(True)
            if not bug:
                opt.add_param_group({"params": m.backbone.parameters(), "lr": 5e-3})
        steps += 1
        m.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    return by_pairs(m, opt, tl, vl, crit, step, num_classes=4)


class TwoTasks:
    """One trunk, an age by regression and whether someone smokes."""

    def __init__(self, bug):
        g = begun(48)
        w, v = torch.randn(8, generator=g), torch.randn(8, generator=g)

        def data(n):
            x = torch.randn(n, 8, generator=g)
            age = x @ w + 0.2 * torch.randn(n, generator=g)
            return Columns(x=x, age=age, smoker=(x @ v > 0).float())

        self.bug = bug
        self.tl, self.vl = loaders(data(512), data(150))
        self.net = nn.ModuleDict(
            {
                "trunk": nn.Sequential(nn.Linear(8, 32), nn.ReLU()),
                "age": nn.Linear(32, 1),
                "smoker": nn.Linear(32, 1),
            }
        )
        self.opt = torch.optim.Adam(self.net.parameters(), 3e-3)

    def losses(self, net, b):
        h = net["trunk"](b["x"])
        age, smoker = (net[name](h).squeeze(1) for name in ("age", "smoker"))
        of_smoker = F.binary_cross_entropy_with_logits(smoker, b["smoker"])
        return F.mse_loss(age, b["age"]), of_smoker

    def loss_of(self, net, b):
        age, smoker = self.losses(net, b)
        return age + (age if self.bug else smoker)

    def step(self, b):
        self.net.train()
        self.opt.zero_grad()
        loss = self.loss_of(self.net, b)
        loss.backward()
        self.opt.step()
        return loss.item()

    @staticmethod
    def sums_of(net, b):
        h = net["trunk"](b["x"])
        said = (net["smoker"](h).squeeze(1) > 0).float()
        return {
            "age_mse": ((net["age"](h).squeeze(1) - b["age"]).pow(2).sum(), len(h)),
            "smoker_acc": ((said == b["smoker"]).sum(), len(h)),
        }


@pair("frozen-params")
def multitask_copy_paste(bug):
    """The loss of one head is added twice and that of the other never. After 400 steps smoker_acc
    is 0.527 instead of 0.98."""
    t = TwoTasks(bug)
    evaluate = averaged(t.net, t.vl, t.sums_of)
    more = {"val_loader": t.vl, "loss_of": t.loss_of, "evaluate": evaluate}
    return set_up(t.net, t.opt, t.tl, t.step, **more)


class OwnFormat(nn.Sequential):
    """Takes its inputs in the number format of its weights."""

    def forward(self, x):
        return super().forward(x.to(self[0].weight.dtype))


@pair("updates-rounded-away")
def bf16_stall(bug):
    """The weights are kept in bfloat16, where small updates round to nothing, instead of under
    autocast. After 400 steps mse is 2.63 instead of 0.747."""
    g = begun(60)
    w = torch.randn(10, 2, generator=g) * 0.5
    tl, vl = loaders(table(g, 512, w), table(g, 150, w), 32)
    m = OwnFormat(*mlp(10, 128, 1))
    crit = nn.MSELoss()
    with torch.no_grad():
        for p in m.parameters():
            p.mul_(3)
    if bug:
        m.bfloat16()
    opt = torch.optim.Adam(m.parameters(), 2e-4)

    def loss_of(model, b):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not bug):
            out = model(b[0])
        return crit(out.float(), b[1])

    evaluate = averaged(m, vl, squares)
    return by_cost(m, opt, tl, vl, loss_of, None, loss_fn=crit, evaluate=evaluate)


@pair("ema-decay")
def bn_momentum_keras(bug):
    """A batch norm's momentum of 0.99 is meant as in Keras; here it keeps the last batch alone.
    After 400 steps val_acc is 0.847 instead of 0.96."""
    g = begun(69)
    centres = torch.randn(4, 10, generator=g) * 1.2
    momentum = 0.99 if bug else 0.1

    def data(n):
        x, y = blobs(g, n, 10, 4, 1.0, centres)
        return x * 3 + 2, y

    tl, vl = loaders(data(480), data(150), 8, vbs=50)
    m = nn.Sequential(
        nn.Linear(10, 32),
        nn.BatchNorm1d(32, momentum=momentum),
        nn.ReLU(),
        nn.Linear(32, 32),
        nn.BatchNorm1d(32, momentum=momentum),
        nn.ReLU(),
        nn.Linear(32, 4),
    )
    return by_pairs(m, torch.optim.Adam(m.parameters(), 3e-3), tl, vl, num_classes=4)


@pair("average-without-statistics")
def ema_no_buffers(bug):
    """Only the parameters are averaged: the copy's batch norms keep the statistics of the start.
    After 400 steps ema_val_acc is 0.507 instead of 0.967."""
    g = begun(70)
    centres = torch.randn(4, 10, generator=g)

    def data(n):
        x, y = blobs(g, n, 10, 4, 0.8, centres)
        return x * 4 + 12, y

    tl, vl = loaders(data(480), data(150), vbs=50)
    m = nn.Sequential(
        nn.BatchNorm1d(10),
        nn.Linear(10, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 4),
    )
    average = copy.deepcopy(m).requires_grad_(False)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    crit = nn.CrossEntropyLoss()

    def follow():
        with torch.no_grad():
            for late, own in zip(average.parameters(), m.parameters(), strict=True):
                late.lerp_(own, 0.05)
            if not bug:
                for late, own in zip(average.buffers(), m.buffers(), strict=True):
                    late.copy_(own)

    def evaluate():
        return {
            "val_acc": accuracy(m, vl)["val_acc"],
            "ema_val_acc": accuracy(average, vl)["val_acc"],
        }

    step = sup_step(m, opt, crit, follow)
    return by_pairs(m, opt, tl, vl, crit, step, num_classes=4, evaluate=evaluate)
