"""Twenty of the sixth set, of unusual make, by an author who had not read the doctor."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    chain,
    loaders,
    mean_loss,
    mlp,
    numbers,
    of_pairs,
    setup,
    split,
    stepper,
)
from tests.debug.sound.programs import sound


def adam(model, lr=5e-3):
    return torch.optim.Adam(model.parameters(), lr)


def with_loss(model, loader, held, loss_of, **more):
    return (
        setup(
            model,
            adam(model),
            loader,
            held,
            loss_of=loss_of,
            evaluate=mean_loss(model, held, loss_of),
        )
        | more
    )


@sound
def cox_survival():
    """Partial likelihood: each example is compared with those still at risk in its batch."""
    x, _ = numbers(160)
    time = torch.distributions.Exponential(torch.exp(x[:, 0])).sample()
    loader, held = loaders(x, time, (torch.rand(160) < 0.7).float(), batch=32)

    def loss_of(net, batch):
        x, time, event = batch
        order = time.argsort(descending=True)
        risk = net(x[order]).squeeze(1)
        return -((risk - risk.logcumsumexp(0)) * event[order]).sum() / event.sum().clamp(min=1)

    return with_loss(mlp(8, 1), loader, held, loss_of)


@sound
def physics_informed():
    """Solves u' = -u, u(0) = 1: the loss differentiates the network by its input."""
    points = torch.rand(128, 1) * 3
    loader, held = loaders(points)
    model = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1))

    def loss_of(net, batch):
        t = batch[0].clone().requires_grad_()
        u = net(t)
        (slope,) = torch.autograd.grad(u.sum(), t, create_graph=True)
        return (slope + u).pow(2).mean() + (net(torch.zeros(1, 1)) - 1).pow(2).mean()

    return setup(model, adam(model), loader, held, loss_of=loss_of)


@sound
def three_quantiles():
    x, y = numbers(160)
    loader, held = loaders(x, y)
    levels = torch.tensor([0.1, 0.5, 0.9])

    def pinball(said, y):
        miss = y - said
        return torch.maximum(levels * miss, (levels - 1) * miss).mean()

    model = mlp(8, 3)
    return setup(
        model,
        adam(model),
        loader,
        held,
        loss_fn=pinball,
        task="regression",
        evaluate=mean_loss(model, held, lambda net, b: pinball(net(b[0]), b[1])),
    )


@sound
def ctc_speech():
    g = torch.Generator().manual_seed(0)
    words = torch.randint(1, 6, (96, 4), generator=g)
    frames = F.one_hot(words.repeat_interleave(3, 1), 6).float()
    frames = frames + 0.3 * torch.randn(frames.shape, generator=g)
    loader, held = loaders(frames, words)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 6))

    def loss_of(net, batch):
        frames, words = batch
        scores = net(frames).log_softmax(-1).transpose(0, 1)
        n = len(words)
        return F.ctc_loss(scores, words, torch.full((n,), 12), torch.full((n,), 4))

    return with_loss(model, loader, held, loss_of)


class Ensemble(nn.Module):
    """Four networks in stacked weights, each with its own random prior that is never trained."""

    def __init__(self, members=4, d=8, h=16):
        super().__init__()
        self.a = nn.Parameter(torch.randn(members, d, h) / math.sqrt(d))
        self.b = nn.Parameter(torch.randn(members, h, 1) / math.sqrt(h))
        self.register_buffer("prior", torch.randn(members, d, 1) / math.sqrt(d))

    def forward(self, x):
        h = torch.relu(torch.einsum("nd,mdh->mnh", x, self.a))
        return torch.einsum("mnh,mho->nm", h, self.b) + torch.einsum("nd,mdo->nm", x, self.prior)


@sound
def ensemble_with_priors():
    loader, held = loaders(*numbers(160))
    return with_loss(Ensemble(), loader, held, lambda net, b: (net(b[0]) - b[1]).pow(2).mean())


@sound
def recommender_with_drawn_negatives():
    """Sparse embeddings with SparseAdam; negatives are drawn in the collation."""
    g = torch.Generator().manual_seed(0)
    user = torch.randint(0, 20, (320,), generator=g)
    item = (user * 3 + torch.randint(0, 4, (320,), generator=g)) % 30

    def collate(rows):
        u, i = (torch.stack(c) for c in zip(*rows, strict=True))
        return u, i, torch.randint(0, 30, (len(u),))

    train, val = split(user, item)
    loader = DataLoader(train, 16, shuffle=True, collate_fn=collate)
    held = DataLoader(val, 16, collate_fn=collate)
    model = nn.ModuleDict(
        {"user": nn.Embedding(20, 8, sparse=True), "item": nn.Embedding(30, 8, sparse=True)}
    )

    def loss_of(net, batch):
        u, i, j = batch
        u, i, j = net["user"](u), net["item"](i), net["item"](j)
        return -F.logsigmoid((u * i).sum(1) - (u * j).sum(1)).mean()

    opt = torch.optim.SparseAdam(list(model.parameters()), 2e-2)
    return setup(model, opt, loader, held, loss_of=loss_of)


@sound
def sharpness_aware_of_blobs():
    """Two backwards a step: the weights go up the slope and come back before they move."""
    x, y = blobs(160)
    loader, held = loaders(x, y)
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def train_step(batch):
        loss = loss_fn(model(batch[0]), batch[1])
        opt.zero_grad()
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        with torch.no_grad():
            moves = [p.grad * (0.05 / norm) for p in model.parameters()]
            for p, m in zip(model.parameters(), moves, strict=True):
                p.add_(m)
        opt.zero_grad()
        loss_fn(model(batch[0]), batch[1]).backward()
        with torch.no_grad():
            for p, m in zip(model.parameters(), moves, strict=True):
                p.sub_(m)
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
    )


class Stream(IterableDataset):
    """An endless source: every pass is cut at 64 new examples."""

    def __iter__(self):
        for _ in range(64):
            x = torch.randn(8)
            yield x, (x[:1] * x[1:2]).tanh()


@sound
def endless_stream():
    model, loss_fn = mlp(8, 1), nn.MSELoss()
    g = torch.Generator().manual_seed(9)
    x = torch.randn(48, 8, generator=g)
    held = DataLoader(TensorDataset(x, (x[:, :1] * x[:, 1:2]).tanh()), 16)
    return setup(
        model,
        adam(model),
        DataLoader(Stream(), 16),
        held,
        loss_fn=loss_fn,
        evaluate=mean_loss(model, held, of_pairs(loss_fn)),
    )


class Coupling(nn.Module):
    """A normalising flow of two affine couplings; returns minus the log-likelihood."""

    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList(mlp(1, 2, 16) for _ in range(4))

    def forward(self, x):
        log_det = 0.0
        for i, net in enumerate(self.nets):
            keep, move = (x[:, :1], x[:, 1:]) if i % 2 else (x[:, 1:], x[:, :1])
            shift, scale = net(keep).chunk(2, 1)
            scale = torch.tanh(scale)
            move = (move - shift) * torch.exp(-scale)
            x = torch.cat([keep, move] if i % 2 else [move, keep], 1)
            log_det = log_det - scale.sum(1)
        return 0.5 * x.pow(2).sum(1) - log_det


@sound
def flow_of_small_data():
    """The data are narrow: the negative log-likelihood (without its constant) falls below 0."""
    a = torch.rand(160) * 6
    x = torch.stack([a.cos(), a.sin()], 1) * 0.1 + 0.01 * torch.randn(160, 2)
    loader, held = loaders(x)
    return with_loss(Coupling(), loader, held, lambda net, b: net(b[0]).mean())


@sound
def hard_examples_only():
    """Only the eight largest losses of a batch count."""
    x, y = blobs(160, spread=2.0)
    loader, held = loaders(x, y)

    def hardest(logits, y):
        return F.cross_entropy(logits, y, reduction="none").topk(8).values.mean()

    model = mlp()
    return setup(
        model,
        adam(model),
        loader,
        held,
        loss_fn=hardest,
        num_classes=4,
        evaluate=accuracy(model, held),
    )


class Ordered(nn.Module):
    """Cumulative logits: one score and three rising thresholds."""

    def __init__(self):
        super().__init__()
        self.score = mlp(8, 1)
        self.first, self.gaps = nn.Parameter(torch.tensor([-1.0])), nn.Parameter(torch.zeros(2))

    def forward(self, x):
        steps = torch.cat([self.first, F.softplus(self.gaps)]).cumsum(0)
        return self.score(x) - steps


@sound
def ordinal_stars():
    x, y = numbers(160)
    stars = torch.bucketize(y.squeeze(1), torch.tensor([-0.6, 0.0, 0.6]))
    loader, held = loaders(x, stars)

    def loss_of(net, batch):
        above = (batch[1][:, None] > torch.arange(3)).float()
        return F.binary_cross_entropy_with_logits(net(batch[0]), above)

    return with_loss(Ordered(), loader, held, loss_of)


class Hyper(nn.Module):
    """A network writes the weights of another, from the task's code in the first inputs."""

    def __init__(self):
        super().__init__()
        self.write = mlp(2, 6 + 1, 24)

    def forward(self, x):
        w = self.write(x[:, :2])
        return (w[:, :6] * x[:, 2:]).sum(1, keepdim=True) + w[:, 6:]


@sound
def hypernetwork():
    x, _ = numbers(160)
    y = torch.where(x[:, :1] > 0, x[:, 2:3], -x[:, 3:4])
    loader, held = loaders(x, y)
    return with_loss(Hyper(), loader, held, lambda net, b: F.mse_loss(net(b[0]), b[1]))


@sound
def mixture_density():
    x, y = numbers(160)
    y = y * torch.where(torch.rand(160, 1) < 0.5, 1.0, -1.0)
    loader, held = loaders(x, y)

    def loss_of(net, batch):
        weight, mean, log_std = net(batch[0]).chunk(3, 1)
        each = torch.distributions.Normal(mean, log_std.clamp(-3, 3).exp()).log_prob(batch[1])
        return -(weight.log_softmax(1) + each).logsumexp(1).mean()

    return with_loss(mlp(8, 6), loader, held, loss_of)


class Masked(nn.Module):
    """A masked language model whose output layer is its embedding."""

    def __init__(self, vocab=12, d=16):
        super().__init__()
        self.embed, self.bias = nn.Embedding(vocab + 1, d), nn.Parameter(torch.zeros(vocab + 1))
        nn.init.normal_(self.embed.weight, std=0.1)
        self.place = nn.Parameter(0.1 * torch.randn(10, d))
        self.layer = nn.TransformerEncoderLayer(d, 2, 32, dropout=0.1, batch_first=True)

    def forward(self, x):
        return self.layer(self.embed(x) + self.place) @ self.embed.weight.T + self.bias


@sound
def masked_language_model_tied():
    """Masks are drawn at each step; places that are not masked have the target -100."""
    x = chain(128)

    def collate(rows):
        x = torch.stack([r[0] for r in rows])
        hidden = (torch.rand(x.shape) < 0.2) & (x != 0)
        hidden[0, 0] = True
        return x.masked_fill(hidden, 12), x.masked_fill(~hidden, -100)

    train, val = split(x)
    loader = DataLoader(train, 16, shuffle=True, collate_fn=collate)
    held = DataLoader(val, 16, collate_fn=collate)
    model = Masked()
    return setup(
        model,
        adam(model),
        loader,
        held,
        loss_fn=lambda scores, y: F.cross_entropy(scores.transpose(1, 2), y),
    )


@sound
def byol():
    """No negatives: a predictor follows an average of itself; its target takes no gradient."""
    loader, held = loaders(blobs(160)[0])
    online = nn.ModuleDict({"net": mlp(8, 8), "predict": mlp(8, 8, 16)})
    target = copy.deepcopy(online["net"]).requires_grad_(False)
    opt = adam(online)

    def loss_of(net, batch):
        a, b = (batch[0] + 0.3 * torch.randn_like(batch[0]) for _ in range(2))
        total = 0.0
        for one, other in ((a, b), (b, a)):
            said = net["predict"](net["net"](one))
            total = total - F.cosine_similarity(said, target(other).detach()).mean()
        return 2 + total

    inner = stepper(online, opt, loss_of)

    def train_step(batch):
        loss = inner(batch)
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), online["net"].parameters(), strict=True):
                slow.lerp_(fast, 0.03)
        return loss

    def save():
        parts = {"online": online, "target": target, "optimizer": opt}
        return copy.deepcopy({k: v.state_dict() for k, v in parts.items()})

    def load(state):
        for name, part in (("online", online), ("target", target), ("optimizer", opt)):
            part.load_state_dict(state[name])

    return setup(
        online,
        opt,
        loader,
        held,
        step=train_step,
        loss_of=loss_of,
        save=save,
        load=load,
        extra={"target": target},
    )


class Settles(nn.Module):
    """A fixed point: found without a graph, then one step with it."""

    def __init__(self, d=16):
        super().__init__()
        self.into, self.out = nn.Linear(8, d), nn.Linear(d, 1)
        self.again = nn.utils.parametrizations.spectral_norm(nn.Linear(d, d))

    def forward(self, x):
        h, drive = torch.zeros(len(x), 16), self.into(x)
        with torch.no_grad():
            for _ in range(12):
                h = torch.tanh(0.9 * self.again(h) + drive)
        return self.out(torch.tanh(0.9 * self.again(h) + drive))


@sound
def deep_equilibrium():
    loader, held = loaders(*numbers(160))
    return with_loss(Settles(), loader, held, lambda net, b: F.mse_loss(net(b[0]), b[1]))


@sound
def double_precision_with_lbfgs():
    x, y = (t.double() for t in numbers(160))
    loader, held = loaders(x, y, batch=64)
    model, loss_fn = mlp(8, 1, 12).double(), nn.MSELoss()
    opt = torch.optim.LBFGS(model.parameters(), lr=0.3, max_iter=4)

    def train_step(batch):
        def closure():
            opt.zero_grad()
            loss = loss_fn(model(batch[0]), batch[1])
            loss.backward()
            return loss

        return opt.step(closure).item()

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_fn=loss_fn,
        evaluate=mean_loss(model, held, of_pairs(loss_fn)),
    )


@sound
def reinforce_with_a_moving_baseline():
    """Bandit with dropout in the policy; rewards are drawn; the baseline is saved."""
    x, best = blobs(160)
    loader, held = loaders(x, best)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
    opt, baseline = adam(model), {"value": 0.25}

    def train_step(batch):
        model.train()
        policy = torch.distributions.Categorical(logits=model(batch[0]))
        action = policy.sample()
        reward = (action == batch[1]).float()
        loss = -(policy.log_prob(action) * (reward - baseline["value"])).mean()
        baseline["value"] += 0.05 * (reward.mean().item() - baseline["value"])
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    def save():
        return copy.deepcopy({"m": model.state_dict(), "o": opt.state_dict(), "b": baseline})

    def load(state):
        model.load_state_dict(state["m"])
        opt.load_state_dict(state["o"])
        baseline.update(state["b"])

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        evaluate=accuracy(model, held),
        save=save,
        load=load,
    )


@sound
def soft_targets_of_mixup_and_cycles():
    """Mixed pairs, soft targets, a rate that goes up and down in cycles."""
    x, y = blobs(160)
    train, val = split(x, F.one_hot(y, 4).float())

    def mix(rows):
        x, y = (torch.stack(c) for c in zip(*rows, strict=True))
        share = torch.distributions.Beta(0.4, 0.4).sample((len(x), 1))
        order = torch.randperm(len(x))
        return x.lerp(x[order], share), y.lerp(y[order], share)

    loader = DataLoader(train, 16, shuffle=True, collate_fn=mix)
    held = DataLoader(val, 16)
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CyclicLR(opt, 0.01, 0.1, step_size_up=6)
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
        scheduler=scheduler,
        declared={"scheduler_unit": "batch"},
    )


@sound
def random_features():
    """A wide random layer stays as drawn; only the readout learns, by ridge-like decay."""
    x, y = numbers(160)
    loader, held = loaders(x, y)
    model = nn.Sequential(nn.Linear(8, 128), nn.Tanh(), nn.Linear(128, 1))
    model[0].requires_grad_(False)
    loss_fn = nn.MSELoss()
    return setup(
        model,
        torch.optim.AdamW(model[2].parameters(), 5e-3, weight_decay=0.1),
        loader,
        held,
        loss_fn=loss_fn,
        evaluate=mean_loss(model, held, of_pairs(loss_fn)),
        declared={"frozen": ["0"]},
    )
