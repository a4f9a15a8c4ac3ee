"""Ten more of the twenty-third set: steps of another make, averages, windows, streams, orders."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

from tests.debug.faulty.twenty_third.kit import (
    averaged,
    begun,
    by_classes,
    by_cost,
    by_squares,
    clusters,
    feed,
    gen,
    loaders,
    mlp,
    set_up,
    squares,
    sup_step,
    with_recall,
)
from tests.debug.sound.programs import sound


@sound
def sharpness_by_two_backwards():
    """Sharpness-aware: the weights go up the gradient for a second pass and are put back before
    the step."""
    g = begun(66)
    tl, vl = loaders(*clusters(g, 300, 110, 8, 3, 0.7), 32, 50)
    m = mlp(8, 32, 3)
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    crit = nn.CrossEntropyLoss()

    def step(b):
        m.train()
        params = list(m.parameters())
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in params]).norm() + 1e-12
            moves = [p.grad * (0.05 / norm) for p in params]
            for p, move in zip(params, moves, strict=True):
                p.add_(move)
        opt.zero_grad()
        crit(m(b[0]), b[1]).backward()
        with torch.no_grad():
            for p, move in zip(params, moves, strict=True):
                p.sub_(move)
        opt.step()
        return loss.item()

    return by_classes(m, opt, tl, vl, 3, step, declared={"sam_rho": 0.05})


@sound
def swa_reported():
    """An average of the weights is scored, once its batch norm is estimated for it; the model that
    is trained is not."""
    g = begun(67)
    x = torch.randn(320, 6, generator=g) * 2 + 1
    y = torch.sin(x[:, :1]) + 0.3 * x[:, 1:2]
    m = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
    average = torch.optim.swa_utils.AveragedModel(m)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    train = x[:256], y[:256]
    tl, vl = loaders(train, (x[256:], y[256:]), 32)
    fixed = feed(train, 64, shuffle=False)
    score = averaged(average, vl, squares)

    def evaluate():
        torch.optim.swa_utils.update_bn(fixed, average)
        return score()

    step = sup_step(m, opt, nn.MSELoss(), lambda: average.update_parameters(m))
    more = {"evaluate": evaluate, "declared": {"evaluates": "weight average"}}
    return by_squares(m, opt, tl, vl, step, **more)


class Clicks(nn.Module):
    def __init__(self, users, items):
        super().__init__()
        self.u = nn.Embedding(users, 12, sparse=True)
        self.i = nn.Embedding(items, 12, sparse=True)
        self.out = mlp(24, 32, 1)

    def forward(self, u, i):
        return self.out(torch.cat([self.u(u), self.i(i)], 1)).squeeze(1)


@sound
def sparse_adam_beside_adamw():
    """Embeddings with sparse gradients have an optimizer of their own, and most of their rows are
    left as they are by each step."""
    g = begun(70)
    users, items, n = 50, 30, 3000
    tastes, traits = torch.randn(users, 3, generator=g), torch.randn(items, 3, generator=g)
    u = torch.randint(users, (n,), generator=g)
    i = torch.randint(items, (n,), generator=g)
    columns = {"user": u, "item": i, "click": ((tastes[u] * traits[i]).sum(1) > 0).float()}
    m = Clicks(users, items)
    of_rows = torch.optim.SparseAdam([*m.u.parameters(), *m.i.parameters()], 2e-2)
    of_rest = torch.optim.AdamW(m.out.parameters(), 5e-3)
    train = {name: column[:2500] for name, column in columns.items()}
    held = {name: column[2500:] for name, column in columns.items()}
    tl, vl = loaders(train, held, 64)

    def loss_of(model, b):
        return F.binary_cross_entropy_with_logits(model(b["user"], b["item"]), b["click"])

    def step(b):
        m.train()
        of_rows.zero_grad()
        of_rest.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        of_rows.step()
        of_rest.step()
        return loss.item()

    def sums_of(model, b):
        hits = (model(b["user"], b["item"]) > 0) == (b["click"] > 0.5)
        return {"acc": (hits.sum(), len(hits))}

    return by_cost(m, [of_rows, of_rest], tl, vl, loss_of, sums_of, step=step)


@sound
def lbfgs_on_one_fixed_batch():
    """All rows are one batch, in one order, and the loss is asked for several times a step."""
    g = begun(71)
    x = torch.randn(200, 5, generator=g)
    y = torch.exp(-(x[:, :1] ** 2)) + 0.2 * x[:, 1:2]
    m = mlp(5, 12, 1, act=nn.Tanh)
    opt = torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=2, history_size=10)
    crit = nn.MSELoss()
    vl = feed((x[150:], y[150:]), 32, shuffle=False)

    def step(b):
        m.train()

        def closure():
            opt.zero_grad()
            loss = crit(m(b[0]), b[1])
            loss.backward()
            return loss

        return float(opt.step(closure))

    tl = [(x[:150], y[:150])]
    return by_squares(m, opt, tl, vl, step, declared={"full_batch": True})


@sound
def gradients_guessed_from_scores():
    """No backward at all: gradients are guessed from the scores of pairs of opposite moves, and
    Adam applies them."""
    g = begun(74)
    x = torch.randn(320, 4, generator=g)
    y = (x[:, 0] > x[:, 1]).long()
    m = mlp(4, 8, 2, act=nn.Tanh).requires_grad_(False)
    params = list(m.parameters())
    opt = torch.optim.Adam(params, 2e-2)
    tl, vl = loaders({"x": x[:256], "y": y[:256]}, {"x": x[256:], "y": y[256:]}, 64, 32)
    size = 0.1

    def score(b):
        return F.cross_entropy(m(b["x"]), b["y"]).item()

    def move(noise, by):
        for p, e in zip(params, noise, strict=True):
            p.add_(e, alpha=by)

    def step(b):
        m.train()
        base = score(b)
        guesses = [torch.zeros_like(p) for p in params]
        for _ in range(8):
            noise = [torch.randn_like(p) for p in params]
            move(noise, size)
            above = score(b)
            move(noise, -2 * size)
            below = score(b)
            move(noise, size)
            for guess, e in zip(guesses, noise, strict=True):
                guess.add_(e, alpha=(above - below) / (2 * size * 8))
        for p, guess in zip(params, guesses, strict=True):
            p.grad = guess
        opt.step()
        opt.zero_grad()
        return base

    def sums_of(model, b):
        return {"acc": ((model(b["x"]).argmax(1) == b["y"]).sum(), len(b["y"]))}

    evaluate = averaged(m, vl, sums_of)
    more = {"num_classes": 2, "declared": {"gradient_free": True}}
    return set_up(m, opt, tl, step, val_loader=vl, evaluate=evaluate, **more)


class Signs(nn.Linear):
    """Computes with the signs of its weights; the gradient passes them by."""

    def forward(self, x):
        w = self.weight
        return F.linear(x, w + (w.sign() - w).detach(), self.bias)


@sound
def straight_through_binary():
    """Weights of -1 and 1 with a straight-through gradient; what lies behind them is clamped after
    each step."""
    g = begun(75)
    m = nn.Sequential(Signs(12, 48), nn.BatchNorm1d(48), nn.ReLU(), Signs(48, 3))
    tl, vl = loaders(*clusters(g, 320, 110, 12, 3, 0.7), 32, 50)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    @torch.no_grad()
    def clamp():
        for layer in m:
            if isinstance(layer, Signs):
                layer.weight.clamp_(-1, 1)

    step = sup_step(m, opt, nn.CrossEntropyLoss(), clamp)
    return by_classes(m, opt, tl, vl, 3, step, declared={"weight_clip": 1.0})


class Local(nn.Module):
    """Blocks that are cut off from each other, each with a head of its own."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(8, 32), nn.Linear(32, 32)])
        self.heads = nn.ModuleList([nn.Linear(32, 2), nn.Linear(32, 2)])

    def forward(self, x):
        outs = []
        for block, head in zip(self.blocks, self.heads, strict=True):
            x = torch.relu(block(x.detach()))
            outs.append(head(x))
        return outs


@sound
def greedy_layerwise_local_losses():
    """Each block has a loss of its own, and what goes on to the next is detached on purpose."""
    g = begun(76)
    x = torch.randn(360, 8, generator=g)
    y = ((x[:, 0] ** 2 + x[:, 1] ** 2) > 1.4).long()
    m = Local()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders({"x": x[:280], "y": y[:280]}, {"x": x[280:], "y": y[280:]}, 40)

    def loss_of(model, b):
        return sum(F.cross_entropy(out, b["y"]) for out in model(b["x"]))

    def sums_of(model, b):
        return {"acc": ((model(b["x"])[-1].argmax(1) == b["y"]).sum(), len(b["y"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=2)


class Endless(IterableDataset):
    """Batches of rows that never came before, without an end."""

    def __init__(self, weights):
        self.weights = weights
        self.g = gen(5)

    def __iter__(self):
        while True:
            yield rows(self.g, 32, self.weights)


def rows(g, n, weights):
    x = torch.randn(n, 6, generator=g)
    return x, torch.tanh(x @ weights)


@sound
def stream_without_an_end():
    """The data have no length, no epochs and no order to shuffle, and no row comes twice."""
    g = begun(77)
    weights = torch.randn(6, 1, generator=g)
    tl = DataLoader(Endless(weights), batch_size=None)
    vl = feed(rows(g, 100, weights), 50, shuffle=False)
    m = mlp(6, 32, 1)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9, nesterov=True)
    return by_squares(m, opt, tl, vl)


class Windows:
    """Lists of up to three batches, of which the last in a pass may be shorter."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return -(-len(self.batches) // 3)

    def __iter__(self):
        window = []
        for batch in self.batches:
            window.append(batch)
            if len(window) == 3:
                yield window
                window = []
        if window:
            yield window


@sound
def accumulate_with_remainder():
    """Three batches are one update, and the rest of an epoch is one by its own number of rows."""
    g = begun(79)

    def data(n):
        x = torch.randn(n, 6, generator=g)
        return x, torch.sin(x[:, :1] * 2) + 0.5 * x[:, 1:2]

    base, vl = loaders(data(250), data(60), 16, 25)
    tl = Windows(base)
    m = mlp(6, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def total(model, batch):
        return F.mse_loss(model(batch[0]), batch[1], reduction="sum")

    def size(window):
        return sum(len(x) for x, _ in window)

    def loss_of(model, window):
        return sum(total(model, batch) for batch in window) / size(window)

    def step(window):
        m.train()
        opt.zero_grad()
        found = 0.0
        for batch in window:
            loss = total(m, batch) / size(window)
            loss.backward()
            found += loss.item()
        opt.step()
        return found

    return by_cost(m, opt, tl, vl, loss_of, squares, step=step, declared={"window": 3})


@sound
def curriculum_sorted_with_oversampling():
    """Rows come from easy to hard without shuffling, and rare ones several times; those held for
    validation come once."""
    g = begun(80)
    x = torch.randn(360, 6, generator=g)
    margin = x[:, 0] + 0.5 * x[:, 1] - 1.2
    y = (margin > 0).long()
    i = torch.arange(280)
    i = torch.cat([i, i[y[i] == 1].repeat(3)])
    i = i[(-margin.abs())[i].argsort()]  # far from the border first
    m = mlp(6, 24, 2)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl = feed((x[i], y[i]), 32, shuffle=False)
    vl = feed((x[280:], y[280:]), 50, shuffle=False)
    more = {
        "evaluate": averaged(m, vl, with_recall),
        "groups": {"train": i.tolist(), "val": list(range(280, 360))},
        "declared": {"oversampled": {1: 4}, "order": "easy to hard"},
    }
    return by_classes(m, opt, tl, vl, 2, **more)
