"""Steps that are not SGD's: signs, all rows at once, eight nets, many draws."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.sound.odd_kit import clusters, dl, going, keeping, mlp, still
from tests.debug.sound.programs import sound


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * torch.lerp(p.grad, m, b1).sign())
                m.lerp_(p.grad, 1 - b2)
        return loss


def accuracy(m, vl):
    def evaluate():
        hit = n = c = 0
        with still(m):
            for x, y in vl:
                o = m(x).float()
                hit, n, c = (
                    hit + (o.argmax(1) == y).sum().item(),
                    n + len(y),
                    c + F.cross_entropy(o, y, reduction="sum").item(),
                )
        return {"val_accuracy": hit / n, "val_loss": c / n}

    return evaluate


def pack(net, opt, tl, vl, step=None, k=5, **more):
    known = {
        "model": net,
        "loss_fn": nn.CrossEntropyLoss(),
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "num_classes": k,
        "evaluate": accuracy(net, vl),
    }
    if step:
        known |= {"train_step": step, "train": going(tl, step)}
    return known | more


def rows(bs=40, noise=1.1, n=800, k=5, **more):
    return dl(*clusters(n, 12, k, 1, noise), bs=bs, **more), dl(
        *clusters(300, 12, k, 2, noise), bs=100, shuffle=False
    )


@sound
def signs_of_a_mean_step():
    """Lion by hand: steps of equal size, decoupled decay, a rate that falls by a line after a warm-
    up."""
    tl, vl = rows()
    net = mlp(12, 64, 5)
    opt = Lion(net.parameters(), 1e-3, weight_decay=0.1)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda t: min((t + 1) / 10, max(0.05, 1 - t / 300))
    )
    ce = nn.CrossEntropyLoss()

    def step(b):
        net.train()
        opt.zero_grad(set_to_none=True)
        loss = ce(net(b[0]), b[1])
        loss.backward()
        opt.step()
        sched.step()
        return loss.item()

    return pack(
        net,
        opt,
        tl,
        vl,
        step,
        scheduler=sched,
        declared={"scheduler_unit": "batch"},
        **keeping(net=net, opt=opt, sched=sched),
    )


@sound
def all_rows_at_once_by_lbfgs():
    """Ridge-like logistic regression in float64 on 90 rows, full batch, LBFGS with a closure."""
    x, y = clusters(90, 6, 3, 1, 1.0)
    vx, vy = clusters(200, 6, 3, 2, 1.0)
    mean, std = x.mean(0), x.std(0)
    tl, vl = (
        DataLoader([(((x - mean) / std).double(), y)], batch_size=None),
        DataLoader([(((vx - mean) / std).double(), vy)], batch_size=None),
    )
    net = nn.Linear(6, 3).double()
    opt = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=3, line_search_fn="strong_wolfe")

    def cost(m, b):
        return F.cross_entropy(m(b[0]), b[1]) + 1e-2 * (m.weight**2).sum()

    def step(b):
        net.train()

        def closure():
            opt.zero_grad()
            loss = cost(net, b)
            loss.backward()
            return loss

        return float(opt.step(closure))

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "num_classes": 3,
        "loss_of": cost,
        "train_step": step,
        "train": going(tl, step),
        "evaluate": accuracy(net, vl),
        **keeping(net=net, opt=opt),
    }


@sound
def eight_nets_at_once():
    """An ensemble as batched weights; each member sees its own bootstrap of the batch; the mean
    chance is scored."""
    tl, vl = rows()

    class Eight(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.c = (
                nn.Parameter(torch.randn(8, 12, 24) / 12**0.5),
                nn.Parameter(torch.zeros(8, 1, 24)),
            )
            self.b, self.d = (
                nn.Parameter(torch.randn(8, 24, 5) / 24**0.5),
                nn.Parameter(torch.zeros(8, 1, 5)),
            )

        def each(self, x):
            return torch.baddbmm(self.d, F.relu(torch.baddbmm(self.c, x, self.a)), self.b)

        def forward(self, x):
            return self.each(x.expand(8, *x.shape)).softmax(2).mean(0).log()

    net = Eight()
    opt = torch.optim.Adam(net.parameters(), 4e-3)

    def step(b):
        net.train()
        i = torch.randint(len(b[1]), (8, len(b[1])))
        opt.zero_grad()
        loss = F.cross_entropy(net.each(b[0][i]).flatten(0, 1), b[1][i].flatten()) * 8
        loss.backward()
        opt.step()
        return loss.item() / 8

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "num_classes": 5,
        "train_step": step,
        "train": going(tl, step),
        "evaluate": accuracy(net, vl),
    }


@sound
def many_draws_of_one_net():
    """MC dropout: in evaluation the dropout alone is on again; 12 seeded draws are averaged for the
    score."""
    tl, vl = rows(noise=0.9)
    net = nn.Sequential(nn.Linear(12, 96), nn.ReLU(), nn.Dropout(0.2), nn.Linear(96, 5))
    opt = torch.optim.Adam(net.parameters(), 4e-3)

    def evaluate():
        hit = 0
        with torch.random.fork_rng(devices=[]), still(net):
            torch.manual_seed(0)
            net[2].train()
            for x, y in vl:
                hit += (
                    (torch.stack([net(x).softmax(1) for _ in range(12)]).mean(0).argmax(1) == y)
                    .sum()
                    .item()
                )
        return {"accuracy_of_the_mean": hit / 300}

    return pack(net, opt, tl, vl, evaluate=evaluate)


@sound
def a_temperature_for_a_finished_net():
    """Calibration: a net that is sure too often is frozen, one temperature is fitted on rows apart
    from both sets."""
    x, y = clusters(100, 12, 5, 1, 1.6)
    base = mlp(12, 128, 5)
    warm = torch.optim.Adam(base.parameters(), 5e-3)
    for _ in range(120):
        warm.zero_grad()
        F.cross_entropy(base(x), y).backward()
        warm.step()
    base.requires_grad_(False)

    class Tempered(nn.Module):
        def __init__(self):
            super().__init__()
            self.base, self.log_t = base, nn.Parameter(torch.zeros(()))

        def forward(self, x):
            return self.base(x) / self.log_t.exp()

    net = Tempered()
    tl, vl = (
        dl(*clusters(400, 12, 5, 3, 1.6), bs=80),
        dl(*clusters(400, 12, 5, 4, 1.6), bs=100, shuffle=False),
    )
    opt = torch.optim.Adam([net.log_t], 3e-2)

    def evaluate():
        with still(net):
            return {
                "nll": sum(F.cross_entropy(net(a), b, reduction="sum").item() for a, b in vl) / 400
            }

    return {
        "model": net,
        "loss_fn": nn.CrossEntropyLoss(),
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "num_classes": 5,
        "evaluate": evaluate,
        "declared": {"frozen": [n for n, p in net.named_parameters() if not p.requires_grad]},
    }
