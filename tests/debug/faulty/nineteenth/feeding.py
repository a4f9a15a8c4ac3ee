"""Faults of data and scores: samplers, windows, boxes, flips, a teacher."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

from tests.debug.faulty.eleventh.data import corners, overlap
from tests.debug.faulty.kit import pair
from tests.debug.faulty.nineteenth.kit import (
    averaged,
    blobs,
    by_cost,
    by_pairs,
    discs,
    feed,
    fit,
    gen,
    loaders,
    mlp,
    seed,
    squared,
    windows,
)


@pair("few-examples-drawn")
def sampler_by_classes(bug):
    """The sampler gets a weight for each class, not for each row: only the first four rows are
    drawn. After 240 steps val_acc is 0.62 instead of 0.96."""
    seed(10)
    x, y = blobs(480, gen(1), 4)
    keep = (y != 3) | (torch.rand(480, generator=gen(3)) < 0.2)
    x, y = x[keep], y[keep]
    cw = 1.0 / torch.bincount(y, minlength=4).float()
    sampler = WeightedRandomSampler(cw if bug else cw[y], len(y), generator=gen(7))
    tl = DataLoader(TensorDataset(x, y), 32, sampler=sampler)
    vl = feed(blobs(150, gen(2), 4), 64, shuffle=False)
    m = mlp(10, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    crit = nn.CrossEntropyLoss()
    return by_pairs(m, opt, tl, vl, crit, num_classes=4)


@pair("target-in-inputs")
def window_ends_at_target(bug):
    """The target is one step too early: it is the window's last value. After 240 steps forecast_mse
    is 0.0005 instead of 0.276."""
    seed(11)
    g = gen(1)
    t = torch.arange(900.0)
    s = torch.sin(t / 9) + 0.5 * torch.sin(t / 3.7)
    e = torch.randn(900, generator=g)
    for i in range(1, 900):
        e[i] = 0.6 * e[i - 1] + 0.5 * e[i]
    s = s + e
    s = (s - s[:650].mean()) / s[:650].std()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(1, 16, batch_first=True)
            self.head = nn.Linear(16, 1)

        def forward(self, x):
            return self.head(self.rnn(x)[0][:, -1])

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.MSELoss()
    tl, vl = loaders(*(windows(part, 16, 15 if bug else 16) for part in (s[:650], s[650:])), 24)
    return by_pairs(m, opt, tl, vl, crit, evaluate=squared(m, vl, "forecast_mse"))


@pair("metric-wrong")
def box_metric_format(bug):
    """The true boxes are scored as corners, the predicted ones as they are: centre and size. After
    240 steps mean_iou is 0.0074 instead of 0.758."""
    seed(12)

    def data(n, g):
        wh = 4 + 5 * torch.rand(n, 2, generator=g)
        c = wh / 2 + torch.rand(n, 2, generator=g) * (16 - wh)
        k = torch.arange(16) + 0.5
        inx = ((k - c[:, :1]).abs() < wh[:, :1] / 2).float()
        iny = ((k - c[:, 1:]).abs() < wh[:, 1:] / 2).float()
        image = iny[:, None, :, None] * inx[:, None, None, :]
        image = image + 0.2 * torch.randn(n, 1, 16, 16, generator=g)
        return {"image": image, "box": torch.cat([c, wh], 1) / 16}

    m = nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 48),
        nn.ReLU(),
        nn.Linear(48, 4),
        nn.Sigmoid(),
    )
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(data(512, gen(1)), data(100, gen(2)), vbs=40)

    def loss_of(model, b):
        return F.smooth_l1_loss(model(b["image"]), b["box"], beta=0.05)

    def sums_of(model, b):
        p = model(b["image"])
        q = p if bug else corners(p)
        n = len(p)
        return {
            "mean_iou": (overlap(q, corners(b["box"])).sum(), n),
            "val_l1": ((p - b["box"]).abs().mean(1).sum(), n),
        }

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("augmentation-mismatch")
def flip_without_the_mask(bug):
    """The image is flipped in half of the cases, its mask never. After 240 steps val_iou is 0.721
    instead of 0.828."""
    seed(13)

    class Seg(Dataset):
        def __init__(self, n, g, train):
            c = torch.rand(n, 2, generator=g) * 8 + 2
            self.y = discs(c, 1.5 + 2 * torch.rand(n, generator=g), 12).long()
            self.x = self.y[:, None] * 1.2 + 0.6 * torch.randn(n, 1, 12, 12, generator=g)
            self.train = train

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            x, y = self.x[i], self.y[i]
            if self.train and torch.rand(()) < 0.5:
                x = x.flip(-1)
                if not bug:
                    y = y.flip(-1)
            return x, y

    m = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 2, 1),
    )
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.CrossEntropyLoss()
    tl, vl = loaders(Seg(256, gen(1), True), Seg(72, gen(2), False), vbs=32)

    def sums_of(model, b):
        p, t = model(b[0]).argmax(1) == 1, b[1] == 1
        return {"val_iou": ((p & t).sum(), (p | t).sum())}

    evaluate = averaged(m, vl, sums_of)
    return by_pairs(m, opt, tl, vl, crit, evaluate=evaluate, num_classes=2)


@pair("missing-log-softmax")
def distil_kl_no_log(bug):
    """kl_div gets probabilities, not log-probabilities: the loss is below zero. After 240 steps
    val_nll is 1.94 instead of 0.785."""
    seed(14)
    T = 2.0
    known, train, held = (
        blobs(n, gen(i), 5, 10, 1.8, scale=1.0) for i, n in ((3, 512), (1, 512), (2, 200))
    )
    teacher = mlp(10, 48, 5)
    fitting = torch.optim.Adam(teacher.parameters(), 1e-2, weight_decay=1e-3)
    fit(teacher, fitting, nn.CrossEntropyLoss(), *known, steps=60)
    teacher.eval().requires_grad_(False)
    m = mlp(10, 16, 5)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(train[0], held, vbs=80)

    def loss_of(model, x):
        p = (teacher(x) / T).softmax(1)
        s = model(x) / T
        said = s.softmax(1) if bug else s.log_softmax(1)
        return F.kl_div(said, p, reduction="batchmean") * T * T

    def sums_of(model, b):
        s, t = model(b[0]), teacher(b[0])
        n = len(b[1])
        return {
            "agreement": ((s.argmax(1) == t.argmax(1)).sum(), n),
            "val_nll": (F.cross_entropy(s, b[1], reduction="sum"), n),
        }

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=5)
