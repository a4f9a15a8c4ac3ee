"""Faults of pictures, boxes, students and frozen bodies."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.thirteenth.kit import (
    Columns,
    accuracy,
    blobs,
    evaluating,
    gen,
    loader,
    mlp,
    set_up,
    sup_step,
)


def _shapes(
    n, seed, C=3, S=12
):  # a square and a bar of different brightness; pixel classes 0, 1, 2
    g = gen(seed)
    x = 0.3 * torch.randn(n, 1, S, S, generator=g)
    y = torch.zeros(n, S, S, dtype=torch.long)
    for i in range(n):
        a, b, c, d = torch.randint(0, S - 4, (4,), generator=g).tolist()
        x[i, 0, a : a + 4, b : b + 4] += 2
        y[i, a : a + 4, b : b + 4] = 1
        x[i, 0, c : c + 2, d : d + 4] = x[i, 0, c : c + 2, d : d + 4].clamp(-0.5, 0.5) - 2
        y[i, c : c + 2, d : d + 4] = 2
    return x, y


def _fcn(C):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, C, 1),
    )


def _iou(model, va, C):
    inter, uni = torch.zeros(C), torch.zeros(C)
    with evaluating(model):
        for x, y in va:
            p = model(x).argmax(1)
            for c in range(C):
                inter[c] += ((p == c) & (y == c)).sum()
                uni[c] += ((p == c) | (y == c)).sum()
    return {"mean_iou": (inter / uni).mean().item()}


@pair("logits-reshaped")
def seg_view(bug):
    """Segmentation: (N, C, H, W) logits flattened with view(-1, C) without the permute: logits and
    pixel labels are mixed up. After 300 steps mean_iou is 0.061 instead of 1.0."""
    torch.manual_seed(0)
    C = 3
    model = _fcn(C)
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def crit(o, y):
        return F.cross_entropy(
            o.reshape(-1, C) if bug else o.permute(0, 2, 3, 1).reshape(-1, C), y.reshape(-1)
        )

    tr = loader(_shapes(200, 1), 8, 1)
    va = loader(_shapes(60, 2), 16, shuffle=False)
    step = sup_step(model, opt, crit)
    return set_up(
        model,
        opt,
        tr,
        step,
        loss_fn=crit,
        val_loader=va,
        evaluate=lambda: _iou(model, va, C),
        num_classes=C,
    )


class _Flip(Dataset):
    def __init__(s, x, y, seed, both):
        s.x, s.y, s.g, s.both = x, y, gen(seed), both

    def __len__(s):
        return len(s.x)

    def __getitem__(s, i):
        x, y = s.x[i], s.y[i]
        if torch.rand(1, generator=s.g) < 0.5:
            x = x.flip(-1)
            if s.both:
                y = y.flip(-1)
        return x, y


@pair("augmentation-mismatch")
def seg_flip(bug):
    """Segmentation: the random horizontal flip is applied to the image and not to its mask. After
    300 steps mean_iou is 0.93 instead of 1.0."""
    torch.manual_seed(0)
    C = 3
    model = _fcn(C)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    ce = nn.CrossEntropyLoss()
    tr = loader(_Flip(*_shapes(200, 1), 4, not bug), 8, 1)
    va = loader(_shapes(60, 2), 16, shuffle=False)
    step = sup_step(model, opt, ce)
    return set_up(
        model,
        opt,
        tr,
        step,
        loss_fn=ce,
        val_loader=va,
        evaluate=lambda: _iou(model, va, C),
        num_classes=C,
    )


@pair("metric-wrong")
def box_format_eval(bug):
    """Box regression: evaluation computes IoU of predictions left in (cx, cy, w, h) against targets
    converted to (x1, y1, x2, y2). After 300 steps mean_iou is 0.009 instead of 0.721."""
    torch.manual_seed(0)
    S = 12

    def data(n, s):
        g = gen(s)
        x = 0.1 * torch.randn(n, 1, S, S, generator=g)
        b = torch.zeros(n, 4)
        for i in range(n):
            w, h = torch.randint(3, 7, (2,), generator=g).tolist()
            left, top = (int(torch.randint(0, S - q + 1, (1,), generator=g)) for q in (w, h))
            x[i, 0, top : top + h, left : left + w] += 1
            b[i] = torch.tensor([left + w / 2, top + h / 2, w, h]) / S
        return Columns(image=x, box=b)

    model = nn.Sequential(nn.Flatten(), mlp(S * S, 64, 4), nn.Sigmoid())
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    tr = loader(data(500, 1), 20, 1)
    va = loader(data(120, 2), 50, shuffle=False)

    def xyxy(b):
        return torch.cat([b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2], 1)

    def iou(a, b):
        wh = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0)
        i = wh.prod(1)
        return i / ((a[:, 2:] - a[:, :2]).clamp(min=0).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - i)

    def loss_of(m, b):
        return F.smooth_l1_loss(m(b["image"]), b["box"], beta=0.05)

    def step(b):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        t = e = n = 0
        with evaluating(model):
            for b in va:
                p = model(b["image"])
                t += iou(p if bug else xyxy(p), xyxy(b["box"])).sum().item()
                e += (p - b["box"]).abs().mean(1).sum().item()
                n += len(p)
        return {"mean_iou": t / n, "box_mae": e / n}

    return set_up(model, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate)


@pair("missing-log-softmax")
def kd_softmax(bug):
    """Distillation: F.kl_div gets softmax of the student where it wants log-probabilities. After
    300 steps kl_to_teacher is 4.851 instead of 0.016."""
    torch.manual_seed(0)
    teacher = mlp(8, 32, 5)
    [p.data.mul_(2.5) for p in teacher.parameters()]
    teacher.eval().requires_grad_(False)
    student = mlp(8, 24, 5)
    opt = torch.optim.Adam(student.parameters(), 5e-3)
    T = 2.0
    tr = loader((torch.randn(600, 8, generator=gen(1)),), 30, 1)
    va = loader((torch.randn(150, 8, generator=gen(2)),), 50, shuffle=False)

    def loss_of(m, b):
        with torch.no_grad():
            t = (teacher(b[0]) / T).softmax(1)
        s = m(b[0]) / T
        return F.kl_div(s.softmax(1) if bug else s.log_softmax(1), t, reduction="batchmean") * T * T

    def step(b):
        student.train()
        opt.zero_grad()
        loss = loss_of(student, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        ok = kl = n = 0
        with evaluating(student):
            for (x,) in va:
                s, t = student(x), teacher(x)
                ok += (s.argmax(1) == t.argmax(1)).sum().item()
                kl += (t.softmax(1) * (t.log_softmax(1) - s.log_softmax(1))).sum().item()
                n += len(x)
        return {"agreement": ok / n, "kl_to_teacher": kl / n}

    return set_up(
        student, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate, num_classes=5
    )


@pair("frozen-params-drift")
def frozen_bn(bug):
    """Fine-tuning a new head on a frozen backbone: model.train() puts the backbone's BatchNorm into
    train mode, so its running statistics drift to the new data and the old head, still served,
    breaks. After 300 steps old_task_acc is 0.777 instead of 0.954."""
    torch.manual_seed(0)
    K = 4
    body = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU())
    old, new = nn.Linear(32, K), nn.Linear(32, K)
    model = nn.Sequential(body, new)
    o0 = torch.optim.Adam([*body.parameters(), *old.parameters()], 1e-2)
    X, Y = blobs(400, 10, K, 1)
    for _i in range(60):
        j = torch.randperm(400)[:40]
        o0.zero_grad()
        F.cross_entropy(old(body(X[j])), Y[j]).backward()
        o0.step()
    body.requires_grad_(False)
    body.eval()
    opt = torch.optim.Adam(new.parameters(), 1e-2)
    ce = nn.CrossEntropyLoss()
    tr = loader(blobs(400, 10, K, 3, centres=8, shift=2.0), 20, 1)
    va = loader(blobs(130, 10, K, 4, centres=8, shift=2.0), 50, shuffle=False)
    ov = loader(blobs(130, 10, K, 5), 50, shuffle=False)

    def step(b):
        model.train()
        if not bug:
            body.eval()
        opt.zero_grad()
        loss = ce(model(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    both = nn.Sequential(body, old)
    return set_up(
        model,
        opt,
        tr,
        step,
        loss_fn=ce,
        val_loader=va,
        num_classes=K,
        declared={"frozen": [n for n, _ in model.named_parameters() if n.startswith("0.")]},
        evaluate=lambda: {
            "new_task_acc": accuracy(model, va)["val_acc"],
            "old_task_acc": accuracy(both, ov)["val_acc"],
        },
    )
