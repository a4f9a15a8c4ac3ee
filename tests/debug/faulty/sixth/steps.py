"""Faults of the step and of the optimizer: what is scaled, moved, scheduled, frozen."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    chain,
    loaders,
    looped,
    mean_loss,
    mlp,
    numbers,
    of_pairs,
    setup,
    stepper,
)


@pair("clip-misplaced")
def clipped_at_the_scale(bug):
    """Gradients are clipped before unscale_: what is clipped is 1024 times too large."""
    x, y = numbers(160)
    loader, held = loaders(x, y)
    model = mlp(8, 1)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    loss_fn = nn.MSELoss()

    def train_step(batch):
        opt.zero_grad()
        loss = loss_fn(model(batch[0]), batch[1])
        scaler.scale(loss).backward()
        if not bug:
            scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return loss.item()

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_fn=loss_fn,
        evaluate=mean_loss(model, held, of_pairs(loss_fn)),
        declared={"max_grad_norm": 1.0},
    )


class Writer(nn.Module):
    def __init__(self, vocab=12, d=24):
        super().__init__()
        self.embed, self.gru = nn.Embedding(vocab, d), nn.GRU(d, d, batch_first=True)
        self.head = nn.Linear(d, vocab)

    def forward(self, x):
        return self.head(self.gru(self.embed(x))[0]).transpose(1, 2)


@pair("accum-mean-of-means")
def tokens_weigh_by_micro_batch(bug):
    """Accumulation takes the mean of each micro-batch's mean: tokens of short texts weigh
    more."""
    x = chain(160)
    loader, held = loaders(x[:, :-1], x[:, 1:])
    model = Writer()
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def summed(net, x, y):
        return F.cross_entropy(net(x), y, ignore_index=0, reduction="sum")

    def train_step(batch):
        x, y = batch
        order = (x != 0).sum(1).argsort()  # alike lengths together: less padding
        opt.zero_grad()
        total = 0.0
        for part in order.chunk(4):
            count = 4 * (y[part] != 0).sum() if bug else (y != 0).sum()
            loss = summed(model, x[part], y[part]) / count
            loss.backward()
            total += loss.item()
        opt.step()
        return total

    def evaluate():
        x, y = held.dataset.tensors
        with torch.no_grad():
            return {"loss": (summed(model, x, y) / (y != 0).sum()).item()}

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_fn=lambda scores, y: F.cross_entropy(scores, y, ignore_index=0),
        evaluate=evaluate,
    )


def gan(seed=0):
    real = torch.randn(128, 2) * 0.3 + torch.tensor([2.0, -1.0])
    net = nn.ModuleDict({"g": mlp(4, 2, 16), "d": mlp(2, 1, 16)})
    return net, DataLoader(TensorDataset(real), 16, shuffle=True)


@pair("loss-without-gradient")
def penalty_without_a_graph(bug):
    """The gradient penalty is made without create_graph: it has a value and no effect."""
    net, loader = gan()
    og, od = (torch.optim.Adam(net[k].parameters(), 2e-3, (0.0, 0.9)) for k in "gd")

    def train_step(batch):
        (real,) = batch
        fake = net["g"](torch.randn(len(real), 4)).detach()
        mix = torch.lerp(real, fake, torch.rand(len(real), 1)).requires_grad_()
        (slope,) = torch.autograd.grad(net["d"](mix).sum(), mix, create_graph=not bug)
        penalty = 10 * (slope.norm(dim=1) - 1).pow(2).mean()
        d_loss = net["d"](fake).mean() - net["d"](real).mean() + penalty
        od.zero_grad()
        d_loss.backward()
        od.step()
        og.zero_grad()
        (-net["d"](net["g"](torch.randn(len(real), 4))).mean()).backward()
        og.step()
        return d_loss.item()

    def evaluate():
        real = loader.dataset.tensors[0].clone().requires_grad_()
        (slope,) = torch.autograd.grad(net["d"](real).sum(), real)
        return {"slope of the critic": slope.norm(dim=1).mean().item()}

    return setup(net, [og, od], loader, step=train_step, evaluate=evaluate)


@pair("optimizer-holds-another")
def discriminator_moves_the_generator(bug):
    """The discriminator's optimizer holds the generator too and makes its fakes worse."""
    net, loader = gan()
    og = torch.optim.Adam(net["g"].parameters(), 2e-3)
    od = torch.optim.Adam((net if bug else net["d"]).parameters(), 2e-3)
    bce = F.binary_cross_entropy_with_logits

    def train_step(batch):
        (real,) = batch
        one, zero = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = net["g"](torch.randn(len(real), 4))
        od.zero_grad()
        d_loss = bce(net["d"](real), one) + bce(net["d"](fake), zero)
        d_loss.backward()
        od.step()
        og.zero_grad()
        g_loss = bce(net["d"](net["g"](torch.randn(len(real), 4))), one)
        g_loss.backward()
        og.step()
        return (d_loss + g_loss).item()

    def evaluate():
        with torch.no_grad():
            made = net["g"](torch.randn(256, 4)).mean(0)
        return {"distance of the means": (made - torch.tensor([2.0, -1.0])).norm().item()}

    return setup(net, [og, od], loader, step=train_step, evaluate=evaluate)


@pair("terminal-bootstrapped")
def bootstraps_beyond_the_end(bug):
    """The value of a final state is bootstrapped: the flag of the end is not used."""
    g = torch.Generator().manual_seed(0)
    state, after = torch.randn(160, 6, generator=g), torch.randn(160, 6, generator=g)
    action = torch.randint(0, 3, (160,), generator=g)
    reward = state[torch.arange(160), action]
    done = (torch.rand(160, generator=g) < 0.4).float()
    loader, held = loaders(state, action, reward, after, done)
    q, target = mlp(6, 3), mlp(6, 3)
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), 5e-3)

    def loss_of(net, batch):
        state, action, reward, after, done = batch
        with torch.no_grad():
            rest = target(after).max(1).values
            wanted = reward + 0.95 * (rest if bug else (1 - done) * rest)
        return F.smooth_l1_loss(net(state).gather(1, action[:, None]).squeeze(1), wanted)

    inner = stepper(q, opt, loss_of)

    def train_step(batch):
        loss = inner(batch)
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), q.parameters(), strict=True):
                slow.lerp_(fast, 0.05)
        return loss

    def evaluate():
        state, action, reward, _, done = held.dataset.tensors
        with torch.no_grad():
            said = q(state).gather(1, action[:, None]).squeeze(1)
        return {"error at the end": (said - reward)[done == 1].mean().item()}

    return setup(
        q,
        opt,
        loader,
        held,
        step=train_step,
        loss_of=loss_of,
        evaluate=evaluate,
        extra={"target": target},
    )


class Margin(nn.Module):
    """Classes by the angle to learned centres, with a margin."""

    def __init__(self, d, k):
        super().__init__()
        self.centres = nn.Parameter(torch.rand(k, d))

    def scores(self, z):
        return F.normalize(z, dim=1) @ F.normalize(self.centres, dim=1).T

    def forward(self, z, y):
        return F.cross_entropy(8 * (self.scores(z) - 0.2 * F.one_hot(y, len(self.centres))), y)


@pair("optimizer-stale-params")
def centres_of_the_loss_not_trained(bug):
    """The loss has weights of its own, which no optimizer holds."""
    x, y = blobs(160, k=6)
    loader, held = loaders(x, y)
    model, criterion = mlp(8, 2), Margin(2, 6)
    held_weights = list(model.parameters()) + ([] if bug else list(criterion.parameters()))
    opt = torch.optim.Adam(held_weights, 5e-3)

    def evaluate():
        x, y = held.dataset.tensors
        with torch.no_grad():
            return {"accuracy": (criterion.scores(model(x)).argmax(1) == y).float().mean().item()}

    return setup(model, opt, loader, held, loss_fn=criterion, evaluate=evaluate)


class Patches(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.embed = nn.Linear(4, d)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.place = nn.Parameter(0.02 * torch.randn(1, 5, d))
        self.layer = nn.TransformerEncoderLayer(d, 2, 32, dropout=0.0, batch_first=True)
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 2)

    def forward(self, x):
        h = torch.cat([self.cls.expand(len(x), -1, -1), self.embed(x)], 1) + self.place
        return self.head(self.norm(self.layer(h)[:, 0]))


@pair("optimizer-stale-params")
def groups_leave_out_bare_parameters(bug):
    """Decay groups built module by module leave out the bare parameters (class token,
    places)."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(160, 4, 4, generator=g)
    y = (x[:, 0].mean(1) > x[:, 3].mean(1)).long()
    loader, held = loaders(x, y)
    model = Patches()
    decay, rest = [], []
    for module in model.modules():
        for name, p in module.named_parameters(recurse=False):
            if isinstance(module, nn.Linear | nn.MultiheadAttention) and name.endswith("weight"):
                decay.append(p)
            elif isinstance(module, nn.Linear | nn.MultiheadAttention | nn.LayerNorm) or not bug:
                rest.append(p)
    groups = [{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}]
    return setup(
        model,
        torch.optim.AdamW(groups, 5e-3),
        loader,
        held,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=2,
        evaluate=accuracy(model, held),
    )


@pair("lr-too-small")
def schedule_squares_the_rate(bug):
    """The lambda gives a learning rate where a factor is due: the rate is squared."""
    x, y = blobs(160)
    loader, held = loaders(x, y)
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    base = 5e-3 if bug else 1.0
    scheduler = LambdaLR(opt, lambda n: base * (0.1 + 0.9 * (1 + math.cos(min(n, 200) / 64)) / 2))
    loss_fn = nn.CrossEntropyLoss()
    inner = stepper(model, opt, of_pairs(loss_fn))

    def train_step(batch):
        loss = inner(batch)
        scheduler.step()
        return loss

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_fn=loss_fn,
        num_classes=4,
        scheduler=scheduler,
        evaluate=accuracy(model, held),
        declared={"scheduler_unit": "batch"},
    )


@pair("scheduler-misplaced")
def plateau_of_a_rising_metric(bug):
    """ReduceLROnPlateau waits for a smaller number and is given the accuracy."""
    x, y = blobs(160, spread=2.0)
    loader, held = loaders(x, y)
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.05)
    scheduler = ReduceLROnPlateau(opt, mode="min" if bug else "max", patience=1, factor=0.3)
    loss_fn = nn.CrossEntropyLoss()
    step = stepper(model, opt, of_pairs(loss_fn))
    evaluate = accuracy(model, held)
    return setup(
        model,
        opt,
        loader,
        held,
        loss_fn=loss_fn,
        num_classes=4,
        scheduler=scheduler,
        train_step=step,
        evaluate=evaluate,
        train=looped(loader, step, lambda: scheduler.step(evaluate()["accuracy"])),
        declared={"scheduler_unit": "epoch"},
    )


@pair("frozen-params-drift")
def frozen_by_an_attribute(bug):
    """Module.requires_grad = False sets an attribute and freezes nothing."""
    x, y = blobs(300, spread=3.0)
    loader, held = loaders(x[200:], y[200:], val=70, batch=10)
    model = nn.Sequential()
    model.add_module("backbone", nn.Sequential(nn.Linear(8, 32), nn.ReLU()))
    model.add_module("head", nn.Linear(32, 4))
    first = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(100):  # the pretraining
        first.zero_grad()
        F.cross_entropy(model(x[:200]), y[:200]).backward()
        first.step()
    model.head.reset_parameters()
    if bug:
        model.backbone.requires_grad = False
    else:
        model.backbone.requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), 3e-2)
    return setup(
        model,
        opt,
        loader,
        held,
        num_classes=4,
        loss_fn=nn.CrossEntropyLoss(),
        evaluate=accuracy(model, held),
        declared={"frozen": ["backbone"]},
    )
