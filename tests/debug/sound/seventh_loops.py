"""Nine of the seventh set whose loop or data are unusual."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tests.debug.faulty.seventh.kit import saved, texts, wave
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    loaders,
    mean_loss,
    mlp,
    numbers,
    of_pairs,
    setup,
    stepper,
)
from tests.debug.sound.programs import sound


class Words(nn.Module):
    def __init__(self, vocab=13, d=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.head = nn.Linear(d, vocab)

    def forward(self, x):
        return self.head(self.rnn(self.emb(x))[0])


@sound
def tokens_of_a_window():
    """A batch is split into four parts; each part's summed loss is divided by the real tokens of
    the whole batch, so that the gradients add up to the mean over all tokens."""
    text = texts(192)
    loader, held = loaders(text[:, :-1], text[:, 1:], batch=32)
    model = Words()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def summed(m, x, y):
        return F.cross_entropy(m(x).flatten(0, 1), y.flatten(), ignore_index=0, reduction="sum")

    def loss_of(m, batch):
        return summed(m, *batch) / (batch[1] > 0).sum()

    def train_step(batch):
        opt.zero_grad()
        tokens, total = (batch[1] > 0).sum(), 0.0
        for x, y in zip(batch[0].chunk(4), batch[1].chunk(4), strict=True):
            loss = summed(model, x, y) / tokens
            loss.backward()
            total += loss.item()
        opt.step()
        return total

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_of=loss_of,
        **saved(model=model, optimizer=opt),
    )


class Stream(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(1, 16, batch_first=True), nn.Linear(16, 1)

    def forward(self, x, h=None):
        out, h = self.gru(x, h)
        return self.head(out), h


@sound
def streams_in_chunks():
    """Truncated back-propagation: 8 long series run side by side, chunk t + 1 goes on from the
    detached state of chunk t, which the step is told by a flag in the batch. In order, never
    shuffled."""
    series = torch.stack([wave(n=201, seed=s, walk=0.02) for s in range(8)])[..., None]
    chunks = [(series[:, t : t + 20], series[:, t + 1 : t + 21], t == 0) for t in range(0, 200, 20)]
    model = Stream()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    state = None

    def train_step(batch):
        nonlocal state
        x, y, first = batch
        out, h = model(x, None if first else state)
        loss = F.mse_loss(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        state = h.detach()
        return loss.item()

    def train(steps):
        return [train_step(chunks[i % len(chunks)]) for i in range(steps)]

    return setup(
        model,
        opt,
        chunks,
        train_step=train_step,
        train=train,
        loss_of=lambda m, b: F.mse_loss(m(b[0])[0], b[1]),
    )


@sound
def flat_minimum_sought():
    """Sharpness-aware minimisation: two backward passes for one update, weights moved uphill and
    put back in between."""
    x, y = blobs(n=224, spread=1.5, seed=7)
    loader, held = loaders(x, y)
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()

    def train_step(batch):
        loss = loss_fn(model(batch[0]), batch[1])
        opt.zero_grad()
        loss.backward()
        with torch.no_grad():
            size = torch.stack([p.grad.norm() for p in model.parameters()]).norm() + 1e-12
            kept = [p.clone() for p in model.parameters()]
            for p in model.parameters():
                p.add_(0.05 * p.grad / size)
        opt.zero_grad()
        loss_fn(model(batch[0]), batch[1]).backward()
        with torch.no_grad():
            for p, old in zip(model.parameters(), kept, strict=True):
                p.copy_(old)
        opt.step()
        return loss.item()

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_fn=loss_fn,
        num_classes=4,
        evaluate=accuracy(model, held),
        **saved(model=model, optimizer=opt),
    )


@sound
def second_order():
    """L-BFGS with a closure on the whole training set as one batch: many forwards per step, the
    same batch each time."""
    x, y = numbers(n=160, seed=8)
    loader = DataLoader(TensorDataset(x[:128], y[:128]), 128)
    held = DataLoader(TensorDataset(x[128:], y[128:]), 32)
    model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 1))
    opt = torch.optim.LBFGS(
        model.parameters(), lr=0.5, max_iter=5, history_size=10, line_search_fn="strong_wolfe"
    )

    def objective(m, batch):
        return F.mse_loss(m(batch[0]), batch[1]) + 3e-3 * sum((p**2).sum() for p in m.parameters())

    def train_step(batch):
        def closure():
            opt.zero_grad()
            loss = objective(model, batch)
            loss.backward()
            return loss

        return opt.step(closure).item()

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_of=objective,
        evaluate=mean_loss(model, held, lambda m, b: F.mse_loss(m(b[0]), b[1])),
    )


class Painter(nn.Module):
    def __init__(self):
        super().__init__()
        self.make = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
        self.judge = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, z):
        return self.make(z)


@sound
def hinge_duel():
    """A GAN with hinge loss: the maker's loss is negative and neither loss settles; the judge's
    requires_grad is off while the maker learns; two judge updates per maker update."""
    g = torch.Generator().manual_seed(12)
    real = torch.randn(256, 2, generator=g) @ torch.tensor([[0.7, 0.3], [0.0, 0.5]]) + 1.5
    loader = DataLoader(TensorDataset(real), 32, shuffle=True)
    model = Painter()
    opt_m = torch.optim.Adam(model.make.parameters(), 2e-3, betas=(0.0, 0.9))
    opt_j = torch.optim.Adam(model.judge.parameters(), 4e-3, betas=(0.0, 0.9))

    def train_step(batch):
        (x,) = batch
        for _ in range(2):
            fake = model.make(torch.randn(len(x), 4)).detach()
            opt_j.zero_grad()
            loss_j = F.relu(1 - model.judge(x)).mean() + F.relu(1 + model.judge(fake)).mean()
            loss_j.backward()
            opt_j.step()
        model.judge.requires_grad_(False)
        opt_m.zero_grad()
        loss_m = -model.judge(model.make(torch.randn(len(x), 4))).mean()
        loss_m.backward()
        opt_m.step()
        model.judge.requires_grad_(True)
        return loss_m.item()

    def evaluate():
        with torch.no_grad():
            made = model.make(torch.randn(256, 4, generator=torch.Generator().manual_seed(3)))
        return {"mean_off": (made.mean(0) - real.mean(0)).norm().item()}

    return setup(model, [opt_m, opt_j], loader, step=train_step, evaluate=evaluate)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.live = mlp(6, 3, 24)
        self.slow = copy.deepcopy(self.live).requires_grad_(False)

    def forward(self, x):
        return self.live(x)


@sound
def slow_twin():
    """Q-learning with a target network inside the model: its weights have no gradient, are in no
    optimizer, and jump every 20 steps; the checkpoint has both and the counter."""
    g = torch.Generator().manual_seed(14)
    s, t = torch.randn(320, 6, generator=g), torch.randn(320, 6, generator=g)
    a = torch.randint(0, 3, (320,), generator=g)
    r = torch.tanh(s.gather(1, a[:, None])[:, 0])
    done = (torch.rand(320, generator=g) < 0.2).float()
    loader = DataLoader(TensorDataset(s, a, r, t, done), 32, shuffle=True)
    model = Critic()
    opt = torch.optim.Adam(model.live.parameters(), 3e-3)
    made = 0

    def loss_of(m, batch):
        s, a, r, t, done = batch
        with torch.no_grad():
            best = m.live(t).argmax(-1, keepdim=True)
            aim = r + 0.8 * (1 - done) * m.slow(t).gather(1, best)[:, 0]
        return F.smooth_l1_loss(m(s).gather(1, a[:, None])[:, 0], aim)

    def train_step(batch):
        nonlocal made
        loss = loss_of(model, batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
        made += 1
        if made % 20 == 0:
            model.slow.load_state_dict(model.live.state_dict())
        return loss.item()

    def save():
        return copy.deepcopy({"model": model.state_dict(), "opt": opt.state_dict(), "made": made})

    def load(state):
        nonlocal made
        model.load_state_dict(state["model"])
        opt.load_state_dict(copy.deepcopy(state["opt"]))
        made = state["made"]

    return setup(model, opt, loader, step=train_step, loss_of=loss_of, save=save, load=load)


class Steady(nn.Module):
    """Residual blocks that start as the identity: the last layer of each is zero, and so is the
    head."""

    def __init__(self, d=24, k=4):
        super().__init__()
        self.into = nn.Linear(8, d)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))
            for _ in range(3)
        )
        self.head = nn.Linear(d, k)
        for last in [b[-1] for b in self.blocks] + [self.head]:
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, x):
        h = self.into(x)
        for block in self.blocks:
            h = h + block(h)
        return self.head(h)


@sound
def starts_from_zero():
    """Zero-started head and residual ends (all but the head have no gradient at step one), a warm-
    up whose first learning rate is small, no weight decay on biases and norms."""
    x, y = blobs(n=288, spread=1.5, seed=16)
    loader, held = loaders(x, y)
    model = Steady()
    flat = [p for p in model.parameters() if p.ndim == 1]
    opt = torch.optim.AdamW(
        [
            {"params": [p for p in model.parameters() if p.ndim > 1]},
            {"params": flat, "weight_decay": 0.0},
        ],
        5e-3,
        weight_decay=0.05,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: min(1.0, (i + 1) / 20))
    loss_fn = nn.CrossEntropyLoss()

    def train_step(batch):
        model.train()
        loss = loss_fn(model(batch[0]), batch[1])
        loss.backward()
        opt.step()
        schedule.step()
        opt.zero_grad()
        return loss.item()

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        scheduler=schedule,
        loss_fn=loss_fn,
        num_classes=4,
        evaluate=accuracy(model, held),
        declared={"scheduler_unit": "batch"},
        **saved(model=model, optimizer=opt, schedule=schedule),
    )


class Endless(IterableDataset):
    """Makes examples for ever; no length, no epochs."""

    def __iter__(self):
        while True:
            x = torch.randn(2, 6)
            yield x, (x[0] * x[1]).sum()[None].clamp(-4, 4)


class Pairing(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(18, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, x):
        return self.net(torch.cat([x[:, 0], x[:, 1], x[:, 0] * x[:, 1]], -1))


@sound
def made_on_the_fly():
    """An endless loader of simulated examples without length; held-out examples are simulated once
    and kept."""
    loader = DataLoader(Endless(), 32)
    kept = torch.randn(96, 2, 6, generator=torch.Generator().manual_seed(5))
    held = DataLoader(TensorDataset(kept, (kept[:, 0] * kept[:, 1]).sum(-1, True).clamp(-4, 4)), 32)
    model = Pairing()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_fn = nn.SmoothL1Loss()
    step = stepper(model, opt, of_pairs(loss_fn))

    def train(steps):
        return [step(batch) for batch, _ in zip(loader, range(steps), strict=False)]

    return setup(
        model,
        opt,
        loader,
        held,
        loss_fn=loss_fn,
        task="regression",
        train_step=step,
        train=train,
        evaluate=mean_loss(model, held, of_pairs(loss_fn)),
    )


@sound
def weights_swapped_for_a_look():
    """EMA of weights and of the batch norm's statistics; evaluate puts them into the model,
    measures, and puts the model's own back (in a finally). The checkpoint has both."""
    x, y = blobs(n=288, spread=1.5, seed=19)
    loader, held = loaders(x, y)
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    shadow = copy.deepcopy(model.state_dict())
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    inner = stepper(model, opt, of_pairs(loss_fn))
    measure = accuracy(model, held)

    def train_step(batch):
        loss = inner(batch)
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                shadow[name].lerp_(value, 0.05)
            else:
                shadow[name].copy_(value)
        return loss

    def evaluate():
        own = copy.deepcopy(model.state_dict())
        model.load_state_dict(shadow)
        try:
            return measure()
        finally:
            model.load_state_dict(own)

    def save():
        return copy.deepcopy({"model": model.state_dict(), "ema": shadow, "opt": opt.state_dict()})

    def load(state):
        model.load_state_dict(state["model"])
        opt.load_state_dict(copy.deepcopy(state["opt"]))
        for name, value in state["ema"].items():
            shadow[name].copy_(value)

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_fn=loss_fn,
        num_classes=4,
        evaluate=evaluate,
        save=save,
        load=load,
    )
