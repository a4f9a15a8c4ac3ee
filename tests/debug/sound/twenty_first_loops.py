"""Ten more of the twenty-first set: steps of another make, rates, draws, averages, streams."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

from tests.debug.faulty.twenty_first.kit import (
    Squeezed,
    blobs,
    by_classes,
    by_rows,
    curve,
    evaluating,
    feed,
    gen,
    loaders,
    mlp,
    plain_step,
    pretrain,
    rights,
    seed,
    set_up,
    sup_step,
    whole_batches,
)
from tests.debug.sound.programs import sound


@sound
def evolution_of_mirrored_draws():
    """No backward at all: an estimate from mirrored draws is put into grad for the optimizer."""
    seed(110)
    tl, vl = loaders(blobs(512, 4, 2, 1), blobs(200, 4, 2, 2), 64)
    m = mlp(4, 6, 2)
    opt = torch.optim.Adam(m.parameters(), 2e-2)
    g = gen(3)
    crit = nn.CrossEntropyLoss()

    @torch.no_grad()
    def step(b):
        m.train()
        params = list(m.parameters())
        w = torch.cat([p.flatten() for p in params])
        estimate = torch.zeros_like(w)
        total = 0.0
        for _ in range(8):
            e = torch.randn(w.shape, generator=g)
            nn.utils.vector_to_parameters(w + 0.1 * e, params)
            above = crit(m(b[0]), b[1]).item()
            nn.utils.vector_to_parameters(w - 0.1 * e, params)
            below = crit(m(b[0]), b[1]).item()
            estimate += (above - below) / 0.2 * e / 8
            total += (above + below) / 16
        nn.utils.vector_to_parameters(w.clone(), params)
        i = 0
        for p in params:
            p.grad = estimate[i : i + p.numel()].view_as(p).clone()
            i += p.numel()
        opt.step()
        return total

    return by_classes(m, opt, tl, vl, 2, crit, step)


@sound
def curve_by_lbfgs():
    """One batch of all rows for each epoch, several forwards a step, and a priced norm."""
    seed(111)
    tl = feed(curve(200, 1), 200, shuffle=False)
    vl = feed(curve(100, 2), 100, shuffle=False)
    m = Squeezed(8, 6, 1)
    opt = torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")
    crit = nn.MSELoss()

    def step(b):
        m.train()

        def closure():
            opt.zero_grad()
            loss = crit(m(b[0]), b[1]) + 1e-3 * sum((p**2).sum() for p in m.parameters())
            loss.backward()
            return loss

        return opt.step(closure).item()

    return by_rows(m, opt, tl, vl, crit, step)


@sound
def sharpness_aware_by_hand():
    """The weights are moved uphill for the gradient and put back before the step."""
    seed(112)
    tl, vl = loaders(blobs(400, 8, 4, 1, noise=0.1), blobs(300, 8, 4, 2), 32, 64)
    m = mlp(8, 24, 4)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    crit = nn.CrossEntropyLoss()

    def step(b):
        m.train()
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        params = list(m.parameters())
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in params]).norm() + 1e-12
            old = [p.clone() for p in params]
            for p in params:
                p.add_(0.05 * p.grad / norm)
        opt.zero_grad()
        crit(m(b[0]), b[1]).backward()
        with torch.no_grad():
            for p, before in zip(params, old, strict=True):
                p.copy_(before)
        opt.step()
        return loss.item()

    return by_classes(m, opt, tl, vl, 4, crit, step)


@sound
def rare_class_drawn_again():
    """Rows of a rare class are drawn with replacement; validation keeps the true shares."""
    seed(114)
    kind = {"spread": 2.0, "centre": 1.0}
    x, y = blobs(800, 8, 2, 1, **kind)
    keep = (y == 0) | (torch.rand(800, generator=gen(2)) < 0.1)
    x, y = x[keep], y[keep]
    held = blobs(400, 8, 2, 3, **kind)
    weights = (1.0 / y.bincount().float())[y]
    sampler = WeightedRandomSampler(weights, len(y), generator=gen(4))
    tl = DataLoader(TensorDataset(x, y), 32, sampler=sampler)
    vl = feed(held, 64, shuffle=False)
    m = mlp(8, 16, 2)
    opt = torch.optim.Adam(m.parameters(), 3e-3, weight_decay=1e-3)

    def evaluate():
        with evaluating(m):
            told = torch.cat([m(inputs).argmax(1) for inputs, _ in vl])
        recalls = [(told[held[1] == c] == c).float().mean().item() for c in range(2)]
        return {"balanced_acc": sum(recalls) / 2}

    return by_classes(m, opt, tl, vl, 2, evaluate=evaluate)


@sound
def restarts_every_40_batches():
    """The rate jumps up again every 40 batches on purpose."""
    seed(115)
    tl, vl = loaders(blobs(512, 8, 4, 1, spread=1.5), blobs(300, 8, 4, 2, spread=1.5), 32, 64)
    m = mlp(8, 24, 4)
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 40)
    crit = nn.CrossEntropyLoss(label_smoothing=0.1)
    step = sup_step(m, opt, crit, scheduler.step)
    declared = {"scheduler_unit": "batch", "label_smoothing": 0.1}
    return by_classes(m, opt, tl, vl, 4, crit, step, scheduler=scheduler, declared=declared)


@sound
def dqn_polyak_target():
    """Double Q-learning on a log: the targets come from a slow copy outside the model, and the end
    of an episode is masked."""
    seed(116)
    g = gen(1)
    s = torch.randint(0, 6, (1024,), generator=g)
    a = torch.randint(0, 2, (1024,), generator=g)
    after = (s + 2 * a - 1).clamp(0, 5)
    done = after == 5
    reward = torch.where(done, 1.0, -0.05)
    is_open = s != 5
    tl = feed(tuple(t[is_open] for t in (s, a, reward, after, done.float())), 64)
    m = nn.Sequential(nn.Embedding(6, 16), nn.ReLU(), nn.Linear(16, 2))
    slow = copy.deepcopy(m).requires_grad_(False)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def loss_of(m, b):
        s, a, reward, after, done = b
        with torch.no_grad():
            best = m(after).argmax(1, keepdim=True)
            target = reward + 0.9 * (1 - done) * slow(after).gather(1, best).squeeze(1)
        return F.smooth_l1_loss(m(s).gather(1, a[:, None]).squeeze(1), target)

    base = plain_step(m, opt, loss_of)

    def step(b):
        loss = base(b)
        with torch.no_grad():
            for t, p in zip(slow.parameters(), m.parameters(), strict=True):
                t.lerp_(p, 0.02)
        return loss

    def evaluate():
        with evaluating(m):
            q = m(torch.arange(5))
        right = (q.argmax(1) == 1).float().mean().item()
        return {"right_policy": right, "q_last": q[4, 1].item()}

    return set_up(m, opt, tl, step, evaluate=evaluate, loss_of=loss_of)


@sound
def averaged_from_step_50():
    """From step 50 on an average is scored beside the model, once its statistics are renewed."""
    seed(117)
    train = blobs(512, 8, 4, 1, spread=1.5)
    tl, vl = whole_batches(train, blobs(300, 8, 4, 2, spread=1.5), 32, 64)
    m = nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 4))
    average = torch.optim.swa_utils.AveragedModel(m)
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    crit = nn.CrossEntropyLoss()
    fixed = feed(train, 128, shuffle=False)
    of_model, of_average = rights(m, vl), rights(average, vl)
    k = 0

    def after():
        nonlocal k
        k += 1
        if k > 50:
            average.update_parameters(m)

    def evaluate():
        if k <= 50:
            return of_model()
        torch.optim.swa_utils.update_bn(fixed, average)
        return of_model() | {"swa_val_acc": of_average()["val_acc"]}

    step = sup_step(m, opt, crit, after)
    return by_classes(m, opt, tl, vl, 4, crit, step, evaluate=evaluate)


class HeadOnBody(nn.Module):
    """The body can be held in evaluation mode, whatever the mode of the whole."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.head = nn.Linear(32, 4)
        self.is_fixed = False

    def train(self, mode=True):
        super().train(mode)
        if self.is_fixed:
            self.body.eval()
        return self

    def forward(self, x):
        return self.head(self.body(x))


@sound
def frozen_batchnorm_finetune():
    """The body is frozen and its batch norm stays in evaluation mode; the head learns anew."""
    seed(118)
    m = HeadOnBody()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    pretrain(m, opt, *blobs(600, 10, 4, 1, spread=1.5), 60)
    m.is_fixed = True
    m.body.requires_grad_(False)
    m.head.reset_parameters()
    m.train()

    def data(n, s):
        x, y = blobs(n, 10, 4, s, spread=1.5)
        return x, 3 - y

    tl, vl = loaders(data(96, 5), data(300, 6), 16, 64)
    opt = torch.optim.Adam(m.head.parameters(), 1e-2)
    frozen = ["body." + name for name, _ in m.body.named_parameters()]
    return by_classes(m, opt, tl, vl, 4, declared={"frozen": frozen})


def saddle(x):
    return torch.sin(3 * x[:, 0]) * x[:, 1]


class Stream(IterableDataset):
    def __iter__(self):
        g = gen(int(torch.randint(0, 2**31, (1,))))
        for _ in range(20):
            x = torch.rand(32, 2, generator=g) * 2 - 1
            yield x, saddle(x)


@sound
def synthetic_stream():
    """No row ever comes twice, and the data have no length."""
    seed(119)
    tl = DataLoader(Stream(), batch_size=None)
    x = torch.rand(300, 2, generator=gen(9)) * 2 - 1
    vl = feed((x, saddle(x)), 100, shuffle=False)
    m = Squeezed(2, 48, 48, 1)
    return by_rows(m, torch.optim.Adam(m.parameters(), 3e-3), tl, vl)


class Branch(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a = nn.Linear(d, 32)
        self.b = nn.Linear(32, d)
        nn.init.zeros_(self.b.weight)
        nn.init.zeros_(self.b.bias)

    def forward(self, x):
        return x + self.b(F.relu(self.a(x)))


@sound
def branches_and_head_start_at_zero():
    """Most gradients are zero in the first step, and all outputs are the same."""
    seed(120)
    m = nn.Sequential(Branch(8), Branch(8), nn.Linear(8, 4))
    nn.init.zeros_(m[2].weight)
    nn.init.zeros_(m[2].bias)
    tl, vl = loaders(blobs(512, 8, 4, 1, spread=1.5), blobs(300, 8, 4, 2, spread=1.5), 32, 64)
    return by_classes(m, torch.optim.Adam(m.parameters(), 3e-3), tl, vl, 4)
