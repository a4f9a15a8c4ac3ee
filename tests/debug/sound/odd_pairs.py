"""Outputs that are compared with each other, and with a teacher's."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from tests.debug.sound.odd_kit import G, dl, going, keeping, mlp, still
from tests.debug.sound.programs import sound


def styled(n, s, K=5):
    """Rows [n, 16]: the first half tells the kind, the second half is a style without meaning."""
    g = G(s)
    y = torch.randint(K, (n,), generator=g)
    kind = 1.5 * torch.randn(K, 8, generator=G(900))[y] + 0.5 * torch.randn(n, 8, generator=g)
    return torch.cat([kind, 1.5 * torch.randn(n, 8, generator=g)], 1), y


def neighbours(f, s=(1, 2)):
    """evaluate(): held rows by a vote of five known ones in the features."""
    (x, y), (vx, vy) = styled(400, s[0]), styled(200, s[1])

    def evaluate():
        with still(f):
            a, b = F.normalize(f(x), dim=1), F.normalize(f(vx), dim=1)
        votes = F.one_hot(y[(b @ a.T).topk(5).indices], 5).sum(1)
        return {"knn_accuracy": (votes.argmax(1) == vy).float().mean().item()}

    return evaluate


@sound
def half_hard_triplets():
    """Triplets within the batch; of the others that are farther than the friend, the nearest."""
    x, y = styled(600, 1)
    tl, vl = dl(x, y, bs=60), dl(*styled(200, 2), bs=100, shuffle=False)
    net = mlp(16, 64, 12)
    opt = torch.optim.Adam(net.parameters(), 2e-3)

    def loss_fn(z, y):
        d = torch.cdist(*[F.normalize(z, dim=1)] * 2)
        same = y[:, None] == y[None]
        a, p = (same & ~torch.eye(len(y), dtype=torch.bool)).nonzero().T
        dp = d[a, p][:, None]
        far = torch.where(~same[a] & (d[a] > dp), d[a], float("inf")).amin(1)
        any_ = torch.where(~same[a], d[a], float("-inf")).amax(1)
        neg = torch.where(far.isinf(), any_, far)
        return F.relu(dp[:, 0] - neg + 0.3).mean()

    return {
        "model": net,
        "loss_fn": loss_fn,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "evaluate": neighbours(net),
    }


class Few(Dataset):
    """A labelled row of 40 (drawn) beside four rows without labels."""

    def __init__(self):
        x, y = styled(640, 1)
        self.lx, self.ly, self.ux = x[:40], y[:40], x[40:]

    def __len__(self):
        return 150

    def __getitem__(self, i):
        k = torch.randint(40, ()).item()
        return {"x": self.lx[k], "y": self.ly[k], "u": self.ux[4 * i : 4 * i + 4]}


def score(net, n=300):
    x, y = styled(n, 2)

    def evaluate():
        with still(net):
            return {"accuracy": (net(x).argmax(1) == y).float().mean().item()}

    return evaluate


def view(x):
    """Another style, and a little noise on the kind."""
    return torch.cat(
        [x[:, :8] + 0.4 * torch.randn_like(x[:, :8]), 1.5 * torch.randn_like(x[:, 8:])], 1
    )


@sound
def sure_guesses_of_weak_views():
    """FixMatch: the weak view's guess, if surer than 0.9, is the label of the strong view."""
    tl = DataLoader(Few(), 15, shuffle=True, generator=G(2))
    net = mlp(16, 64, 5)
    opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, nesterov=True)

    def loss_of(m, b):
        u = b["u"].flatten(0, 1)
        with torch.no_grad():
            p = m(u + 0.05 * torch.randn_like(u)).softmax(1)
        sure, guess = p.max(1)
        strong = F.cross_entropy(m(view(u)), guess, reduction="none")
        return F.cross_entropy(m(b["x"]), b["y"]) + (strong * (sure > 0.9)).mean()

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "loss_of": loss_of,
        "num_classes": 5,
        "evaluate": score(net),
    }


@dataclass
class Work:
    """A set-up as an object, not a mapping."""

    model: Any
    optimizer: Any
    train_loader: Any
    val_loader: Any = None
    loss_of: Any = None
    evaluate: Any = None
    num_classes: Any = None
    train_step: Any = None
    train: Any = None


@sound
def angles_with_a_margin():
    """ArcFace: an added angle for the true class and a scale of 12 in training, plain cosines in
    use."""
    tl, vl = dl(*styled(600, 1), bs=40), dl(*styled(200, 2), bs=100, shuffle=False)

    class Arc(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.w = mlp(16, 64, 16), nn.Parameter(torch.randn(5, 16))

        def forward(self, x, y=None):
            c = F.normalize(self.body(x), dim=1) @ F.normalize(self.w, dim=1).T
            if y is not None:
                wide = (c.clamp(-0.999, 0.999).acos() + 0.3).cos()
                c = torch.where(F.one_hot(y, 5).bool(), wide, c)
            return 12 * c

    net = Arc()
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    return Work(net, opt, tl, vl, lambda m, b: F.cross_entropy(m(b[0], b[1]), b[1]), score(net), 5)


@sound
def student_of_a_trained_teacher():
    """Distillation at a temperature of 3, its part times 9, with the labels' part at 0.3."""
    x, y = styled(700, 1)
    tl, vl = dl(x, y, bs=50), dl(*styled(300, 2), bs=100, shuffle=False)
    teacher, net = mlp(16, 128, 128, 5), mlp(16, 24, 5)
    warm = torch.optim.Adam(teacher.parameters(), 2e-3)
    for _ in range(40):
        i = torch.randperm(700)[:100]
        warm.zero_grad()
        F.cross_entropy(teacher(x[i]), y[i]).backward()
        warm.step()
    teacher.eval().requires_grad_(False)
    opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)

    def loss_of(m, b):
        out = m(b[0])
        with torch.no_grad():
            want = (teacher(b[0]) / 3).log_softmax(1)
        soft = F.kl_div((out / 3).log_softmax(1), want, reduction="batchmean", log_target=True)
        return 0.7 * 9 * soft + 0.3 * F.cross_entropy(out, b[1])

    def evaluate():
        with still(net):
            return {"accuracy": sum((net(a).argmax(1) == b).sum().item() for a, b in vl) / 300}

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "num_classes": 5,
        "loss_of": loss_of,
        "evaluate": evaluate,
        "teacher": teacher,
        **keeping(net=net, opt=opt),
    }


@sound
def two_students_that_teach_each_other():
    """Mutual learning: two nets with an optimizer each, each with the other's cut-off guess."""
    tl, vl = dl(*styled(600, 1), bs=40), dl(*styled(200, 2), bs=100, shuffle=False)
    two = nn.ModuleList(
        [mlp(16, 48, 5), nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 5))]
    )
    opts = [
        torch.optim.Adam(two[0].parameters(), 3e-3),
        torch.optim.SGD(two[1].parameters(), 0.1, momentum=0.9),
    ]

    def step(b):
        two.train()
        outs = [m(b[0]) for m in two]
        total = 0.0
        for k, opt in enumerate(opts):
            loss = F.cross_entropy(outs[k], b[1]) + F.kl_div(
                outs[k].log_softmax(1), outs[1 - k].detach().softmax(1), reduction="batchmean"
            )
            opt.zero_grad()
            loss.backward()
            total += loss.item()
        for opt in opts:
            opt.step()
        return total

    def evaluate():
        hit = 0
        with still(two):
            for x, y in vl:
                hit += (sum(m(x).softmax(1) for m in two).argmax(1) == y).sum().item()
        return {"accuracy_of_both": hit / 200}

    return Work(two, opts, tl, vl, None, evaluate, 5, step, going(tl, step))
