"""Ten more of the nineteenth set: objectives, critics, climbs, restarts, signs, streams."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

from tests.debug.faulty.nineteenth.kit import (
    accuracy,
    averaged,
    blobs,
    by_cost,
    by_pairs,
    evaluating,
    feed,
    gen,
    greedy,
    loaders,
    mlp,
    plain_step,
    reward,
    scheduled,
    seed,
    set_up,
    squared,
    wave,
)
from tests.debug.sound.eleventh_loops import Lion
from tests.debug.sound.programs import sound


@sound
def accumulate_ragged():
    """Four micro-batches to a step, each weighed by its size, with a short last batch."""
    seed(4)
    m = mlp(5, 48, 1)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.MSELoss()
    tl, vl = loaders(wave(500, gen(1)), wave(150, gen(2)), 48)

    def step(b):
        m.train()
        opt.zero_grad()
        total = 0.0
        for x, y in zip(b[0].chunk(4), b[1].chunk(4), strict=True):
            loss = crit(m(x), y) * (len(x) / len(b[0]))
            loss.backward()
            total += loss.item()
        opt.step()
        return total

    return by_pairs(m, opt, tl, vl, crit, step, evaluate=squared(m, vl), declared={"accumulate": 4})


@sound
def policy_gradient_maximised():
    """The expected reward and the entropy are maximised with maximize=True: the number that the
    step returns rises."""
    seed(5)
    m = mlp(5, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 5e-3, maximize=True)
    tl, vl = loaders(*(torch.randn(n, 5, generator=gen(i)) for i, n in ((1, 640), (2, 200))), 64)

    def loss_of(model, s):
        d = torch.distributions.Categorical(logits=model(s))
        a = d.sample()
        r = reward(s, a)
        return ((r - r.mean()) * d.log_prob(a)).mean() + 0.01 * d.entropy().mean()

    step = plain_step(m, opt, loss_of)
    return set_up(m, opt, tl, step, val_loader=vl, evaluate=averaged(m, vl, greedy))


@sound
def wgan_of_five_critic_steps():
    """The critic makes five steps for one of the generator, and its weights are clipped after
    each."""
    seed(7)
    m = nn.ModuleDict({"G": mlp(4, 24, 2), "C": mlp(2, 24, 1)})
    g, c = m["G"], m["C"]
    oc = torch.optim.RMSprop(c.parameters(), 1e-3)
    og = torch.optim.RMSprop(g.parameters(), 1e-3)
    middle = torch.tensor([1.0, -0.5])
    tl = feed(middle + 0.3 * torch.randn(512, 2, generator=gen(1)), 32)
    held = middle + 0.3 * torch.randn(256, 2, generator=gen(2))

    def step(x):
        m.train()
        for _ in range(5):
            oc.zero_grad()
            loss = c(g(torch.randn(len(x), 4)).detach()).mean() - c(x).mean()
            loss.backward()
            oc.step()
            with torch.no_grad():
                for p in c.parameters():
                    p.clamp_(-0.1, 0.1)
        og.zero_grad()
        (-c(g(torch.randn(len(x), 4))).mean()).backward()
        og.step()
        return loss.item()

    def evaluate():
        with evaluating(m):
            f = g(torch.randn(512, 4, generator=gen(5)))
        return {"mean_distance": float((f.mean(0) - held.mean(0)).norm())}

    return set_up(m, [oc, og], tl, step, evaluate=evaluate)


@sound
def sharpness_by_two_passes():
    """Two backward passes to a step, the first only to climb."""
    seed(8)
    m = mlp(10, 32, 4)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    crit = nn.CrossEntropyLoss()
    tl, vl = loaders(blobs(384, gen(1)), blobs(150, gen(2)))

    def step(b):
        m.train()
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        ps = list(m.parameters())
        with torch.no_grad():
            n = torch.stack([p.grad.norm() for p in ps]).norm() + 1e-12
            e = [0.05 * p.grad / n for p in ps]
            for p, d in zip(ps, e, strict=True):
                p.add_(d)
        opt.zero_grad()
        crit(m(b[0]), b[1]).backward()
        with torch.no_grad():
            for p, d in zip(ps, e, strict=True):
                p.sub_(d)
        opt.step()
        return loss.item()

    return by_pairs(m, opt, tl, vl, crit, step, num_classes=4)


@sound
def restarts_every_40_steps():
    """The rate jumps up again every 40 batches, on purpose."""
    seed(9)
    m = mlp(5, 48, 1)
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 40)
    tl, vl = loaders(wave(512, gen(1)), wave(150, gen(2)))
    return scheduled(m, opt, tl, vl, scheduler)


@sound
def mean_teacher():
    """Most labels are -1 and ignored; an averaged copy says what the other rows should be, and is
    scored."""
    seed(12)
    m = mlp(10, 48, 4)
    t = copy.deepcopy(m).requires_grad_(False)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    x, y = blobs(512, gen(1), scale=1.0)
    y = torch.where(torch.rand(512, generator=gen(3)) < 0.3, y, torch.tensor(-1))
    tl, vl = loaders((x, y), blobs(150, gen(2), scale=1.0))

    def loss_of(model, b):
        x, y = b
        o = model(x + 0.2 * torch.randn_like(x))
        k = y >= 0
        with torch.no_grad():
            p = t(x + 0.2 * torch.randn_like(x)).softmax(1)
        known = F.cross_entropy(o, y, ignore_index=-1, reduction="sum") / k.sum().clamp_min(1)
        return known + (o.softmax(1) - p).pow(2).mean()

    base = plain_step(m, opt, loss_of)
    steps = 0

    def step(b):
        nonlocal steps
        loss = base(b)
        steps += 1
        a = min(0.98, 1 - 1 / (steps + 1))
        with torch.no_grad():
            for e, p in zip(t.parameters(), m.parameters(), strict=True):
                e.lerp_(p, 1 - a)
        return loss

    more = {"step": step, "evaluate": lambda: accuracy(t, vl), "num_classes": 4}
    return by_cost(m, opt, tl, vl, loss_of, None, **more)


@sound
def lion_sign_updates():
    """Every weight moves by the rate, whatever its gradient's size."""
    seed(13)
    m = mlp(5, 48, 1)
    opt = Lion(m.parameters(), 1e-3, wd=0.0)
    crit = nn.MSELoss()
    tl, vl = loaders(wave(512, gen(1)), wave(150, gen(2)))
    return by_pairs(m, opt, tl, vl, crit, evaluate=squared(m, vl))


@sound
def balanced_sampler():
    """Rare rows are drawn with replacement and repeat within a batch, on purpose."""
    seed(15)
    x, y = blobs(600, gen(1))
    k = (y != 2) | (torch.rand(600, generator=gen(3)) < 0.08)
    x, y = x[k], y[k]
    w = (1.0 / torch.bincount(y, minlength=4).float())[y]
    sampler = WeightedRandomSampler(w, len(y), generator=gen(7))
    tl = DataLoader(TensorDataset(x, y), 32, sampler=sampler)
    vl = feed(blobs(150, gen(2)), 64, shuffle=False)
    m = mlp(10, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    crit = nn.CrossEntropyLoss()
    return by_pairs(m, opt, tl, vl, crit, num_classes=4)


@sound
def lbfgs_on_all_rows():
    """The loss is computed several times in a step, on the one batch that there is."""
    seed(16)
    tr = wave(200, gen(1))
    va = wave(100, gen(2))
    m = mlp(5, 16, 1, act=nn.Tanh)
    crit = nn.MSELoss()
    opt = torch.optim.LBFGS(
        m.parameters(), lr=1.0, max_iter=4, history_size=10, line_search_fn="strong_wolfe"
    )
    tl, vl = loaders(tr, va, 200, vbs=100)

    def cost(x, y):
        return crit(m(x), y) + 1e-3 * sum(p.pow(2).sum() for p in m.parameters())

    def step(b):
        m.train()

        def closure():
            opt.zero_grad()
            loss = cost(*b)
            loss.backward()
            return loss

        return opt.step(closure).item()

    return set_up(m, opt, tl, step, val_loader=vl, evaluate=squared(m, vl))


@sound
def stream_without_end():
    """The batches are simulated without end: there is no length and no epoch."""
    seed(18)

    class Stream(IterableDataset):
        def __iter__(self):
            g = gen(int(torch.randint(1 << 30, (1,), generator=src)))
            while True:
                x, y = wave(32, g)
                yield {"x": x, "y": y}

    src = gen(1)
    m = mlp(5, 48, 1)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl = DataLoader(Stream(), batch_size=None)
    va = wave(200, gen(2))
    vl = feed({"x": va[0], "y": va[1]}, 64, shuffle=False)

    def loss_of(model, b):
        return F.mse_loss(model(b["x"]), b["y"])

    def sums_of(model, b):
        return {"val_mse": (F.mse_loss(model(b["x"]), b["y"], reduction="sum"), len(b["y"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)
