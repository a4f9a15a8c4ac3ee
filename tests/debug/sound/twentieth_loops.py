"""Ten more of the twentieth set: carried states, critics, mixtures, restarts, closures, streams."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

from tests.debug.faulty.twentieth.kit import (
    averaged,
    by_classes,
    by_cost,
    chain,
    curves,
    evaluating,
    feed,
    gen,
    groups,
    loaders,
    mlp,
    plain_step,
    rights,
    seed,
    set_up,
    sup_step,
)
from tests.debug.sound.programs import sound
from tests.debug.sound.sixteenth_loops import Reversed


@sound
def pieces_of_sixteen_streams():
    """Streams are read in consecutive pieces, never shuffled; the state goes on from piece to
    piece, detached, and starts anew in each pass."""
    seed()
    V, length = 12, 10

    class Streams:
        def __init__(self, n, s):
            self.ids = chain(n, 201, V, s)

        def __len__(self):
            return 20

        def __iter__(self):
            for i in range(20):
                piece = self.ids[:, i * length : (i + 1) * length + 1]
                yield {"x": piece[:, :-1], "y": piece[:, 1:], "first": i == 0}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(V, 24)
            self.rnn = nn.GRU(24, 24, batch_first=True)
            self.out = nn.Linear(24, V)

        def forward(self, x, h=None):
            y, h = self.rnn(self.emb(x), h)
            return self.out(y), h

    tl, vl = Streams(16, 1), Streams(8, 2)
    m = Net()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    state = None

    def step(b):
        nonlocal state
        m.train()
        opt.zero_grad()
        out, h = m(b["x"], None if b["first"] else state)
        state = h.detach()
        loss = F.cross_entropy(out.flatten(0, 1), b["y"].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        return loss.item()

    def evaluate():
        h = None
        total = n = 0
        with evaluating(m):
            for b in vl:
                out, h = m(b["x"], h)
                y = b["y"].flatten()
                total += F.cross_entropy(out.flatten(0, 1), y, reduction="sum").item()
                n += len(y)
        return {"val_nll": total / n}

    more = {"num_classes": V, "declared": {"max_grad_norm": 1.0}}
    return set_up(m, opt, tl, step, val_loader=vl, evaluate=evaluate, **more)


@sound
def wgan_of_three_critic_steps():
    """The critic makes three steps for one of the generator, its weights are clipped, and the
    losses are below zero."""
    seed()
    real = torch.randn(600, 2, generator=gen(1)) * torch.tensor([0.5, 0.2])
    real = real + torch.tensor([1.0, -1.0])
    m = nn.ModuleDict({"G": mlp(4, 32, 2), "C": mlp(2, 32, 32, 1)})
    g, c = m["G"], m["C"]
    og = torch.optim.RMSprop(g.parameters(), 1e-3)
    oc = torch.optim.RMSprop(c.parameters(), 1e-3)

    def step(x):
        m.train()
        for part in x.chunk(3):
            oc.zero_grad()
            loss = c(g(torch.randn(len(part), 4)).detach()).mean() - c(part).mean()
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
            fake = g(torch.randn(1000, 4, generator=gen(0)))
        return {"mean_gap": (fake.mean(0) - real.mean(0)).norm().item()}

    return set_up(m, [og, oc], feed(real, 60), step, evaluate=evaluate)


@sound
def mixup_soft_labels():
    """The collate function mixes rows, and the targets are shares of classes; held rows are as they
    are."""
    seed()
    k = 4
    g = gen(4)

    def collate(rows):
        x = torch.stack([row[0] for row in rows])
        y = F.one_hot(torch.stack([row[1] for row in rows]), k).float()
        share = float(np.random.beta(0.4, 0.4))
        p = torch.randperm(len(x), generator=g)
        return share * x + (1 - share) * x[p], share * y + (1 - share) * y[p]

    tl = feed(groups(400, k, 12, 1.5, 1), 32, collate_fn=collate)
    vl = feed(groups(150, k, 12, 1.5, 2), 32, shuffle=False)
    m = mlp(12, 32, k)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_classes(m, opt, tl, vl, k)


@sound
def sgdr_per_batch():
    """The rate jumps up again every 15 batches and later on every 30, on purpose."""
    seed()
    tl, vl = loaders(groups(480, 5, 12, 1.6, 1), groups(150, 5, 12, 1.6, 2), 16, 32)
    m = mlp(12, 32, 5)
    opt = torch.optim.SGD(m.parameters(), 0.2, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 15, 2)
    crit = nn.CrossEntropyLoss(label_smoothing=0.1)
    step = sup_step(m, opt, crit, scheduler.step)
    declared = {"scheduler_unit": "batch", "label_smoothing": 0.1}
    return by_classes(m, opt, tl, vl, 5, crit, step, scheduler=scheduler, declared=declared)


@sound
def logistic_by_lbfgs():
    """The loss is computed several times in a step, on all rows at once."""
    seed()
    tl = [groups(200, 3, 6, 1.5, 1)]
    vl = feed(groups(90, 3, 6, 1.5, 2), 32, shuffle=False)
    m = nn.Linear(6, 3)
    nn.init.zeros_(m.weight)
    nn.init.zeros_(m.bias)
    crit = nn.CrossEntropyLoss()
    opt = torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=4)

    def step(b):
        m.train()

        def closure():
            opt.zero_grad()
            loss = crit(m(b[0]), b[1]) + 1e-3 * m.weight.pow(2).sum()
            loss.backward()
            return loss

        return opt.step(closure).item()

    return by_classes(m, opt, tl, vl, 3, crit, step)


@sound
def sharpness_with_copied_weights():
    """The weights are pushed up the gradient for a second pass, and put back for the step."""
    seed()
    tl, vl = loaders(groups(480, 4, 10, 1.5, 1), groups(150, 4, 10, 1.5, 2), 32)
    m = mlp(10, 32, 4)
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    crit = nn.CrossEntropyLoss()

    def step(b):
        m.train()
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        ps = list(m.parameters())
        norm = torch.sqrt(sum((p.grad**2).sum() for p in ps))
        before = [p.detach().clone() for p in ps]
        with torch.no_grad():
            for p in ps:
                p.add_(p.grad, alpha=0.05 / (norm.item() + 1e-12))
        opt.zero_grad()
        crit(m(b[0]), b[1]).backward()
        with torch.no_grad():
            for p, was in zip(ps, before, strict=True):
                p.copy_(was)
        opt.step()
        return loss.item()

    return by_classes(m, opt, tl, vl, 4, crit, step)


@sound
def examples_made_for_ever():
    """An endless data set makes new examples: there is no length, no epoch, and none comes
    twice."""
    seed()
    w = torch.randn(8, 3, generator=gen(9))

    class Stream(IterableDataset):
        def __init__(self):
            self.g = gen(1)

        def __iter__(self):
            while True:
                x = torch.randn(8, generator=self.g)
                yield {"x": x, "y": (x @ w).argmax()}

    tl = DataLoader(Stream(), batch_size=16)
    held = torch.randn(200, 8, generator=gen(2))
    vl = feed((held, (held @ w).argmax(1)), 32, shuffle=False)
    m = mlp(8, 24, 3)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        return F.cross_entropy(model(b["x"]), b["y"])

    step = plain_step(m, opt, loss_of)
    batches = iter(tl)

    def train(n):
        return [step(next(batches)) for _ in range(n)]

    more = {"step": step, "evaluate": rights(m, vl), "num_classes": 3}
    return by_cost(m, opt, tl, vl, loss_of, None, **more) | {"train": train}


@sound
def dann_gradient_reversal():
    """The gradient of the domains' head is turned round on its way to the features, on purpose;
    half of each batch has no label."""
    seed()
    x, y = groups(320, 4, 10, 1.2, 1)
    shift = torch.randn(10, generator=gen(8))
    target = groups(320, 4, 10, 1.2, 3)[0] + shift
    held_x, held_y = groups(150, 4, 10, 1.2, 2)
    tl, vl = loaders({"src": x, "label": y, "tgt": target}, (held_x + shift, held_y), 32)

    class Dann(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
            self.y = nn.Linear(32, 4)
            self.d = mlp(32, 16, 2)

        def forward(self, x):
            return self.y(self.f(x))

    m = Dann()
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        fs, ft = model.f(b["src"]), model.f(b["tgt"])
        domain = torch.cat([torch.zeros(len(fs)), torch.ones(len(ft))]).long()
        of_domain = F.cross_entropy(model.d(Reversed.apply(torch.cat([fs, ft]))), domain)
        return F.cross_entropy(model.y(fs), b["label"]) + of_domain

    def sums_of(model, b):
        return {"target_acc": ((model(b[0]).argmax(1) == b[1]).sum(), len(b[1]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=4)


@sound
def listwise_ranker():
    """The softmax runs over the documents of each query, in lists of which padding is masked."""
    seed()
    w = torch.randn(6, generator=gen(9))

    def data(n, s):
        g = gen(s)
        x = torch.randn(n, 10, 6, generator=g)
        mask = torch.arange(10) < torch.randint(4, 11, (n,), generator=g)[:, None]
        rel = (x @ w + 0.5 * torch.randn(n, 10, generator=g)).clamp(-2, 2).round() + 2
        return {"docs": x * mask[..., None], "rel": rel * mask, "mask": mask}

    tl, vl = loaders(data(320, 1), data(90, 2))
    m = mlp(6, 16, 1)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    discount = 1 / torch.log2(torch.arange(10) + 2.0)

    def scores(model, b):
        return model(b["docs"])[..., 0].masked_fill(~b["mask"], -1e9)

    def loss_of(model, b):
        t = b["rel"].masked_fill(~b["mask"], -1e9).softmax(1)
        return -(t * scores(model, b).log_softmax(1)).sum(1).mean()

    def sums_of(model, b):
        order = scores(model, b).argsort(1, descending=True)
        gain = (2 ** b["rel"] - 1) * b["mask"]
        dcg = (gain.gather(1, order) * discount).sum(1)
        best = (gain.sort(1, descending=True).values * discount).sum(1)
        some = best > 0
        return {"ndcg": ((dcg[some] / best[some]).sum(), some.sum())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@sound
def noise2noise():
    """The target is another noisy reading of the same signal, on purpose: the loss stays above the
    noise, and the error does not."""
    seed()
    tl, vl = loaders(curves(480, 1), curves(110, 2), 32)
    m = mlp(12, 48, 12)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def noisy(x, g=None):
        return x + 0.4 * torch.randn(x.shape, generator=g)

    def loss_of(model, x):
        return F.mse_loss(model(noisy(x)), noisy(x))

    def evaluate():
        g = gen(8)

        def sums_of(model, x):
            return {"clean_mse": ((model(noisy(x, g)) - x).pow(2).mean(1).sum(), len(x))}

        return averaged(m, vl, sums_of)()

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)
