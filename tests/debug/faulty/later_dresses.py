"""More faults in two further dresses each: weights apart, parts of a batch, passes, critics."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import distributions, nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

from course.debug.relations import apart, curve, hidden, networks, parts, passes, policy, resumed
from tests.debug.faulty.dresses import dress, numbers, setup, stepping, trained_by
from tests.debug.faulty.fourth.kit import accuracy, batches, blobs, mlp

# Two optimizers that hold the same weights


@dress(networks.opposed, "optimizer-holds-another")
def domain_critic_moves_the_features(bug):
    """Features shall not tell the domain; the optimizer of who tells it holds them as well."""
    x, y = blobs(96)
    domain = (torch.arange(96) % 2).float()
    x[:, 0] += 2 * domain
    net = nn.ModuleDict({"body": mlp(10, 16, 8), "head": nn.Linear(8, 3), "tell": nn.Linear(8, 1)})
    main = torch.optim.SGD([*net["body"].parameters(), *net["head"].parameters()], 0.05)
    told = net.parameters() if bug else net["tell"].parameters()
    critic = torch.optim.SGD(told, 0.05)

    def train_step(batch):
        x, y, domain = batch
        critic.zero_grad()
        F.binary_cross_entropy_with_logits(
            net["tell"](net["body"](x)).squeeze(1), domain
        ).backward()
        critic.step()
        main.zero_grad()
        h = net["body"](x)
        fooled = F.binary_cross_entropy_with_logits(net["tell"](h).squeeze(1), domain)
        loss = 0.02 * F.cross_entropy(net["head"](h), y) - fooled
        loss.backward()
        main.step()
        return loss.item()

    return dict(
        model=net,
        optimizer=[main, critic],
        train_loader=batches(x, y, domain, bs=16),
        train_step=train_step,
    )


@dress(networks.opposed, "optimizer-holds-another")
def adversary_shares_its_noise(bug):
    """A learned noise is made to hurt, by one optimizer; the other one's list holds it too."""
    x, y = numbers()
    model = nn.ModuleDict({"net": mlp(6, 16, 1), "noise": nn.Linear(6, 6)})
    own = model if bug else model["net"]
    good = torch.optim.Adam(own.parameters(), 3e-3)
    bad = torch.optim.Adam(model["noise"].parameters(), 3e-3)

    def cost(batch):
        moved = batch[0] + 0.3 * torch.tanh(model["noise"](batch[0]))
        return F.smooth_l1_loss(model["net"](moved).squeeze(1), batch[1])

    def train_step(batch):
        bad.zero_grad()
        (-cost(batch)).backward()
        bad.step()
        good.zero_grad()
        loss = cost(batch)
        loss.backward()
        good.step()
        return loss.item()

    return dict(
        model=model, optimizer=[good, bad], train_loader=batches(x, y), train_step=train_step
    )


# Parts of a batch


@dress(parts.weighed, "accum-mean-of-means")
def unequal_chunks(bug):
    """16 rows in chunks of 5: the last one has a single row and weighs a quarter."""
    x, y = numbers()
    model, loss_fn = mlp(6, 8, 1), nn.SmoothL1Loss()
    optimizer = torch.optim.SGD(model.parameters(), 0.02)

    def train_step(batch):
        optimizer.zero_grad()
        chunks = list(zip(batch[0].split(5), batch[1].split(5), strict=True))
        for a, b in chunks:
            share = 1 / len(chunks) if bug else len(a) / len(batch[0])
            (share * loss_fn(model(a), b)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=batches(x, y[:, None], bs=16),
        train_step=train_step,
        loss_fn=loss_fn,
    )


@dress(parts.weighed, "accum-mean-of-means")
def unlabelled_rows_in_chunks(bug):
    """Labels of -100 do not count; halves of a batch have more or fewer of them."""
    x, y = blobs(96)
    y[torch.rand(96) < 0.6] = -100
    model = mlp(10, 8, 3)
    found = setup(model, batches(x, y, bs=12), loss_fn=nn.CrossEntropyLoss())

    def train_step(batch):
        found["optimizer"].zero_grad()
        for a, b in ((batch[0][::2], batch[1][::2]), (batch[0][1::2], batch[1][1::2])):
            if bug:
                loss = F.cross_entropy(model(a), b) / 2
            else:
                loss = F.cross_entropy(model(a), b, reduction="sum") / (batch[1] >= 0).sum()
            loss.backward()
        found["optimizer"].step()

    return found | {"train_step": train_step}


# Weights that no optimizer holds


class Centres(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.rand(3, 4))

    def forward(self, z, y):
        return -torch.log_softmax(-torch.cdist(z, self.places), 1)[torch.arange(len(y)), y].mean()


@dress(apart.trained, "optimizer-stale-params")
def centres_in_the_closure(bug):
    x, y = blobs(96)
    model, centres = mlp(10, 16, 4), Centres()
    own = [*model.parameters(), *([] if bug else centres.parameters())]
    optimizer = torch.optim.Adam(own, 3e-3)
    step = stepping(model, optimizer, lambda m, b: centres(m(b[0]), b[1]))
    return dict(model=model, optimizer=optimizer, train_loader=batches(x, y), train_step=step)


class Scaled(nn.Module):
    """Similarities of two towers, at a learned temperature."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, a, b):
        table = self.scale.exp() * F.normalize(a, dim=1) @ F.normalize(b, dim=1).T
        return F.cross_entropy(table, torch.arange(len(a)))


@dress(apart.trained, "optimizer-stale-params")
def temperature_left_out(bug):
    x, _ = blobs(96)
    towers, criterion = nn.ModuleList([mlp(5, 16, 8), mlp(5, 16, 8)]), Scaled()
    optimizer = torch.optim.AdamW(towers.parameters(), 3e-3)
    if not bug:
        optimizer.add_param_group({"params": criterion.parameters(), "weight_decay": 0.0})

    def loss_of(model, batch):
        return criterion(model[0](batch[0][:, :5]), model[1](batch[0][:, 5:]))

    return dict(model=towers, optimizer=optimizer, train_loader=batches(x), loss_of=loss_of)


# Numbers that weigh a loss


class Spread(nn.Module):
    """A regression with one learned spread for all examples."""

    def __init__(self):
        super().__init__()
        self.mean, self.spread = mlp(6, 8, 1), nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.mean(x).squeeze(1)


@dress(apart.priced, "loss-without-price")
def spread_without_its_log(bug):
    x, y = numbers()

    def cost(model, batch):
        off = (model(batch[0]) - batch[1]).pow(2) / (2 * model.spread**2)
        return off.mean() if bug else off.mean() + model.spread.abs().log().sum()

    return trained_by(cost, Spread(), batches(x, y + 3), rate=1e-2)


class Shares(nn.Module):
    def __init__(self):
        super().__init__()
        self.raw = nn.Parameter(torch.zeros(2))


@dress(apart.priced, "loss-without-price")
def gates_of_two_losses(bug):
    """Each loss has a learned gate; nothing asks the gates to stay open."""
    x, y = blobs(96)
    model, gates = nn.ModuleDict({"a": nn.Linear(10, 3), "b": nn.Linear(10, 1)}), Shares()
    own = [*model.parameters(), *gates.parameters()]

    def loss_of(model, batch):
        x, y = batch
        costs = torch.stack([
            F.cross_entropy(model["a"](x), y), (model["b"](x).squeeze(1) - x[:, 0]).abs().mean(),
        ])  # fmt: skip
        open_ = gates.raw.sigmoid()
        return (open_ * costs).sum() - (0.0 if bug else 0.3 * open_.log().sum())

    return dict(
        model=model,
        optimizer=torch.optim.Adam(own, 1e-2),
        train_loader=batches(x, y),
        loss_of=loss_of,
    )


# A curve after the mean


@dress(curve.straight, "weighed-after-the-mean")
def power_of_the_mean(bug):
    """Hard examples shall weigh more: a power, of each or of all."""
    x, y = blobs(96)

    def cost(model, batch):
        each = F.cross_entropy(model(batch[0]), batch[1], reduction="mean" if bug else "none")
        return (each**1.5).mean()

    return trained_by(cost, mlp(10, 8, 3), batches(x, y, bs=16))


@dress(curve.straight, "weighed-after-the-mean")
def weight_from_the_mean_probability(bug):
    """The weight is detached, as a focal loss may have it; targets are yes and no."""
    x, y = numbers()
    yes = (y > 0.5).float()

    def loss_fn(logits, targets):
        each = F.binary_cross_entropy_with_logits(
            logits.squeeze(1), targets, reduction="mean" if bug else "none"
        )
        return (each * (1 - torch.exp(-each.detach())) ** 2).mean()

    return setup(mlp(6, 8, 1), batches(x, yes, bs=16), loss_fn=loss_fn)


# A policy that trains its critic


class Steering(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        self.mean, self.value = nn.Linear(16, 2), nn.Linear(16, 1)
        self.log_std = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        h = self.trunk(x)
        return distributions.Normal(self.mean(h), self.log_std.exp()), self.value(h)


@dress(policy.baseline, "loss-through-baseline")
def continuous_actions(bug):
    x, _ = numbers()

    def cost(model, batch):
        law, value = model(batch[0])
        action = law.sample()
        reward = -(action - batch[0][:, :2]).pow(2).sum(1, keepdim=True)
        better = reward - (value if bug else value.detach())
        actor = -(law.log_prob(action).sum(1, keepdim=True) * better).mean()
        return actor + 0.5 * F.smooth_l1_loss(value, reward)

    return trained_by(cost, Steering(), batches(x, bs=16))


@dress(policy.baseline, "loss-through-baseline")
def captions_with_a_learned_baseline(bug):
    """A reward per row, and the cost of the label that was said instead of its log-probability."""
    x, y = blobs(96)
    model = nn.ModuleDict({"say": mlp(10, 16, 3), "guess": mlp(10, 16, 1)})

    def cost(model, batch):
        scores, guess = model["say"](batch[0]), model["guess"](batch[0]).flatten()
        said = torch.multinomial(scores.softmax(1), 1).flatten()
        reward = (said == batch[1]).float()
        over = reward - guess if bug else (reward - guess).detach()
        policy_loss = (F.cross_entropy(scores, said, reduction="none") * over).sum()
        return policy_loss / len(said) + F.mse_loss(guess, reward)

    return trained_by(cost, model, batches(x, y, bs=24))


# Passes in one order


@dress(passes.another_order, "same-order")
def seeded_at_each_epoch(bug):
    x, y = blobs(96)
    found = setup(mlp(10, 8, 3), batches(x, y, bs=16), loss_fn=nn.CrossEntropyLoss())
    step = stepping(found["model"], found["optimizer"], lambda m, b: F.cross_entropy(m(b[0]), b[1]))

    def train(n_steps):
        torch.manual_seed(0)
        for epoch in range(-(-n_steps // len(found["train_loader"]))):
            torch.manual_seed(0 if bug else epoch)  # "for reproducibility"
            for batch in found["train_loader"]:
                step(batch)

    return found | {"train": train}


class ByEpoch(Sampler):
    """Shuffles by the number of the epoch, as it is told."""

    def __init__(self, size):
        self.size, self.epoch = size, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        g = torch.Generator().manual_seed(100 + self.epoch)
        return iter(torch.randperm(self.size, generator=g).tolist())

    def __len__(self):
        return self.size


@dress(passes.another_order, "same-order")
def epoch_told_to_nobody(bug):
    x, y = numbers()
    sampler = ByEpoch(len(x))
    loader = DataLoader(TensorDataset(x, y), batch_size=16, sampler=sampler)
    found = setup(mlp(6, 8, 1), loader, loss_of=lambda m, b: F.mse_loss(m(b[0])[:, 0], b[1]))
    step = stepping(found["model"], found["optimizer"], found["loss_of"])

    def train(n_steps):
        losses, epoch = [], 0
        while len(losses) < n_steps:
            if not bug:
                sampler.set_epoch(epoch)
            losses += [step(batch) for batch in loader]
            epoch += 1
        return losses

    return found | {"train": train, "train_step": step}


# The best, after loading


class Keeper:
    """Trains, and keeps a copy of the model at its best accuracy."""

    def __init__(self, found, score, forgets):
        self.found, self.now, self.forgets = found, score, forgets
        self.best, self.copy = 0.0, copy.deepcopy(found["model"])
        self.step = stepping(
            found["model"], found["optimizer"], lambda m, b: F.cross_entropy(m(b[0]), b[1])
        )

    def train(self, n_steps):
        done = 0
        while done < n_steps:
            for batch in self.found["train_loader"]:
                self.step(batch)
                done += 1
            if (now := self.now()["accuracy"]) > self.best:
                self.best, self.copy = now, copy.deepcopy(self.found["model"])

    def evaluate(self):
        return accuracy(self.copy, self.found["val_loader"])()

    def save(self):
        names = {"model": self.found["model"], "optimizer": self.found["optimizer"]}
        state = {name: copy.deepcopy(thing.state_dict()) for name, thing in names.items()}
        return state | {"copy": copy.deepcopy(self.copy.state_dict()), "best": self.best}

    def load(self, state):
        self.found["model"].load_state_dict(state["model"])
        self.found["optimizer"].load_state_dict(state["optimizer"])
        self.copy.load_state_dict(state["copy"])
        self.best = 0.0 if self.forgets else state["best"]


@dress(resumed.best, "checkpoint-incomplete")
def best_accuracy_from_0(bug):
    x, y = blobs(128)
    found = setup(mlp(10, 16, 3), batches(x[:96], y[:96], bs=16), rate=1e-2)
    found["val_loader"] = batches(x[96:], y[96:], shuffle=False)
    keeper = Keeper(found, accuracy(found["model"], found["val_loader"]), bug)
    return found | {
        name: getattr(keeper, name) for name in ("train", "evaluate", "save", "load")
    } | {"train_step": keeper.step, "loss_fn": nn.CrossEntropyLoss()}  # fmt: skip


@dress(resumed.best, "checkpoint-incomplete")
def best_loss_in_a_file(bug):
    """A file holds the best weights; the lowest loss is in a variable."""
    x, y = numbers()
    found = setup(nn.Linear(6, 1), batches(x, y, bs=24), rate=1e-2)
    model, optimizer, lowest = found["model"], found["optimizer"], [1e9]
    file = {"best": copy.deepcopy(model.state_dict())}
    step = stepping(model, optimizer, lambda m, b: F.mse_loss(m(b[0]).squeeze(1), b[1]))

    def cost(weights):
        with torch.no_grad():
            out = torch.func.functional_call(model, weights, (x,)).squeeze(1)
        return F.mse_loss(out, y).item()

    def train(n_steps):
        for n, batch in zip(range(n_steps), [*found["train_loader"]] * n_steps, strict=False):
            step(batch)
            if n % 4 == 3 and (now := cost(dict(model.named_parameters()))) < lowest[0]:
                lowest[0], file["best"] = now, copy.deepcopy(model.state_dict())

    def save():
        both = model.state_dict(), optimizer.state_dict(), file["best"], lowest[0]
        return copy.deepcopy(both[:3] if bug else both)

    def load(state):
        model.load_state_dict(state[0])
        optimizer.load_state_dict(state[1])
        file["best"] = state[2]
        lowest[0] = state[3] if len(state) > 3 else 1e9

    more = {"train": train, "train_step": step, "save": save, "load": load}
    return found | more | {"evaluate": lambda: {"best_mse": cost(file["best"])}}


# Places that are to be guessed


class Guesser(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(13, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 13)

    def forward(self, ids):
        return self.head(self.layer(self.embed(ids)))


@dress(hidden.guessed, "target-in-inputs")
def masked_tokens_in_a_copy(bug):
    ids = torch.randint(0, 12, (96, 10))

    def cost(model, batch):
        chosen = torch.rand(batch[0].shape) < 0.3
        seen = batch[0].clone()
        seen[chosen] = 12
        scores = model(batch[0] if bug else seen)
        return F.cross_entropy(scores[chosen], batch[0][chosen])

    return trained_by(cost, Guesser(), batches(ids, bs=16))


@dress(hidden.guessed, "target-in-inputs")
def patches_weighed_by_their_mask(bug):
    """The error of each patch, times whether it was drawn; the other way round they are shown."""
    patches = torch.randn(96, 6, 1) @ torch.randn(1, 8)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 48))

    def loss_of(model, batch):
        drawn = (torch.rand(batch[0].shape[:2]) < 0.4).float()
        shown = drawn if bug else 1 - drawn
        out = model(batch[0] * shown[..., None]).unflatten(1, (6, 8))
        each = (out - batch[0]).pow(2).mean(-1)
        return (each * drawn).sum() / drawn.sum()

    return setup(model, batches(patches, bs=16), loss_of=loss_of)
