"""Faults of classes: weights, draws, names, scores."""

from collections import Counter

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from tests.debug.faulty.fifteenth.kit import Columns, gen, plain_step, seed, set_up, skewed
from tests.debug.faulty.kit import pair


@pair("class-weights-inverted")
def value_counts(bug):
    """Class weights are taken in the order of Counter.most_common() instead of the classes': they
    land on others. After 150 steps balanced_acc is 0.4378 instead of 0.6779."""
    seed(109)
    X, Y = skewed(900, gen(1))
    c = Counter(Y.tolist())
    freq = [v for _, v in c.most_common()] if bug else [c[k] for k in range(4)]
    w = 900 / (4 * torch.tensor(freq, dtype=torch.float))
    ce = nn.CrossEntropyLoss(weight=w)
    net = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 4))
    opt = torch.optim.Adam(net.parameters(), 0.003)
    vx, vy = skewed(600, gen(2))
    tl = DataLoader(TensorDataset(X, Y), 30, shuffle=True, generator=gen(3))
    vl = DataLoader(TensorDataset(vx, vy), 100)

    def step(b):
        opt.zero_grad()
        loss = ce(net(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        p = torch.cat([net(x).argmax(1) for x, _ in vl])
        return {"balanced_acc": sum((p[vy == k] == k).float().mean().item() for k in range(4)) / 4}

    return set_up(net, opt, tl, step, val_loader=vl, loss_fn=ce, num_classes=4, evaluate=evaluate)


@pair("few-examples-drawn")
def sampler_classes(bug):
    """WeightedRandomSampler is given one weight per class: an epoch is made of rows 0 to 3. After
    150 steps balanced_acc is 0.4065 instead of 0.7291."""
    seed(110)
    X, Y = skewed(800, gen(4))
    cw = 1.0 / torch.bincount(Y, minlength=4).float()
    smp = WeightedRandomSampler(cw if bug else cw[Y], 800, generator=gen(5))
    vx, vy = skewed(600, gen(6))
    tl = DataLoader(TensorDataset(X, Y), 32, sampler=smp)
    vl = DataLoader(TensorDataset(vx, vy), 100)
    net = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 4))
    opt = torch.optim.AdamW(net.parameters(), 0.003)
    ce = nn.CrossEntropyLoss()

    def step(b):
        opt.zero_grad()
        loss = ce(net(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        p = torch.cat([net(x).argmax(1) for x, _ in vl])
        return {"balanced_acc": sum((p[vy == k] == k).float().mean().item() for k in range(4)) / 4}

    return set_up(net, opt, tl, step, val_loader=vl, loss_fn=ce, num_classes=4, evaluate=evaluate)


@pair("labels-renamed")
def refit_labels(bug):
    """The encoder is fitted anew on the names of the validation part, which lack 'bream': all later
    ones move down by one. After 150 steps val_acc is 0.2035 instead of 1."""
    seed(111)
    names = ["bass", "bream", "carp", "perch", "pike", "tench"]
    g = gen(7)
    pr = torch.randn(6, 9, generator=gen(34)) * 2

    def raw(n, ban):
        k = torch.randint(0, 6, (n,), generator=g)
        k = k[k != ban] if ban is not None else k
        return pr[k] + 0.7 * torch.randn(len(k), 9, generator=g), [names[i] for i in k]

    def fit(labs):
        return {s: i for i, s in enumerate(sorted(set(labs)))}

    (X, L), (vx, vl_names) = raw(420, None), raw(140, 1)
    enc = fit(L)
    venc = fit(vl_names) if bug else enc
    tl = DataLoader(
        TensorDataset(X, torch.tensor([enc[s] for s in L])), 30, shuffle=True, generator=gen(8)
    )
    vl = DataLoader(TensorDataset(vx, torch.tensor([venc[s] for s in vl_names])), 30)
    net = nn.Sequential(nn.Linear(9, 24), nn.ReLU(), nn.Linear(24, 6))
    opt = torch.optim.Adam(net.parameters(), 0.004)
    ce = nn.CrossEntropyLoss()

    def step(b):
        opt.zero_grad()
        loss = ce(net(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        total = sum((net(x).argmax(1) == y).sum().item() for x, y in vl)
        return {"val_acc": total / len(vl.dataset)}

    return set_up(net, opt, tl, step, val_loader=vl, loss_fn=ce, num_classes=6, evaluate=evaluate)


@pair("metric-batch-mean")
def f1_batches(bug):
    """F1 is averaged over small batches, and one without positives counts as 1. For a model that
    never tags micro_f1 is 0.4 instead of 0."""
    seed(112)
    g = gen(9)
    W = torch.randn(10, 3, generator=g)

    def mk(n):
        x = torch.randn(n, 10, generator=g)
        return Columns(feats=x, tags=(x @ W + torch.randn(n, 3, generator=g) > 5.5).float())

    m = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 3))
    opt = torch.optim.Adam(m.parameters(), 0.003)
    tl = DataLoader(mk(600), 30, shuffle=True, generator=gen(1))
    vl = DataLoader(mk(240), 4)

    def loss_of(model, b):
        return F.binary_cross_entropy_with_logits(model(b["feats"]), b["tags"])

    step = plain_step(m, opt, loss_of)

    def f1(tp, fp, fn):
        return 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else 1.0

    @torch.no_grad()
    def evaluate():
        rows = []
        for b in vl:
            p, t = m(b["feats"]) > 0, b["tags"] > 0
            rows.append(((p & t).sum().item(), (p & ~t).sum().item(), (~p & t).sum().item()))
        if bug:
            return {"micro_f1": sum(f1(*r) for r in rows) / len(rows)}
        return {"micro_f1": f1(*map(sum, zip(*rows, strict=True)))}

    return set_up(m, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)
