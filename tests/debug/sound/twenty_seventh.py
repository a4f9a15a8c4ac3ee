"""Ten of the twenty-seventh set, of unusual make, by someone who had not seen the doctor."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.twenty_first.kit import nuisance
from tests.debug.faulty.twenty_seventh.kit import (
    ByLength,
    Packed,
    averaged,
    blobs,
    by_classes,
    by_cost,
    cut,
    evaluating,
    feed,
    fit,
    gen,
    halves,
    loaders,
    mlp,
    moons,
    right,
    seed,
    set_up,
)
from tests.debug.sound.programs import sound


@sound
def weights_that_look_back_every_five_steps():
    """Lookahead: every fifth step the weights go halfway back to where they were five before."""
    seed(71)
    tl, vl = loaders(*halves(320, 12, 5, 1.0), 32, 75)
    m = mlp(12, 48, 5)
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    slow = [p.detach().clone() for p in m.parameters()]
    crit = nn.CrossEntropyLoss()
    done = {"steps": 0}

    def step(b):
        m.train()
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        opt.step()
        done["steps"] += 1
        if done["steps"] % 5 == 0:
            with torch.no_grad():
                for s, p in zip(slow, m.parameters(), strict=True):
                    s.lerp_(p, 0.5)
                    p.copy_(s)
        return loss.item()

    return by_classes(m, opt, tl, vl, 5, step, crit)


@sound
def energy_of_real_less_that_of_made():
    """An energy is lowered at real points and raised at those that a few steps down it lead to: the
    loss is a difference of either sign."""
    seed(72)
    tl = feed((moons(512, 721),), 64)
    held = moons(200, 722)
    g = gen(723)
    other = 3 * torch.rand(200, 2, generator=g) - 1.5
    m = nn.Sequential(nn.Linear(2, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1))
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def made(n):
        x = 3 * torch.rand(n, 2) - 1.5
        for _ in range(6):
            x.requires_grad_(True)
            slope = torch.autograd.grad(m(x).sum(), x)[0]
            x = (x - 0.1 * slope + 0.05 * torch.randn_like(x)).detach().clamp(-2, 2)
        return x

    def step(b):
        m.train()
        fake = made(len(b[0]))
        opt.zero_grad()
        real, told = m(b[0]), m(fake)
        loss = real.mean() - told.mean() + 0.1 * (real**2 + told**2).mean()
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        with evaluating(m):
            lower = m(held) < m(other).T
        return {"told_apart": lower.float().mean().item()}

    return set_up(m, opt, tl, step, evaluate=evaluate)


@sound
def clips_put_together_by_their_length():
    """Batches are made of rows of about one length and always of the same ones; only their order
    changes."""
    seed(73)

    def clips(n, s):
        g = gen(s)
        y = torch.randint(0, 3, (n,), generator=g)
        length = torch.randint(3, 13, (n,), generator=g)
        x = torch.randn(n, 12, 3, generator=g) + 0.9 * F.one_hot(y, 3)[:, None]
        return TensorDataset(x * (torch.arange(12) < length[:, None])[..., None], length, y)

    train = clips(320, 731)
    tl = DataLoader(train, batch_sampler=ByLength(train.tensors[1], 32, gen(732)), collate_fn=cut)
    vl = feed(clips(120, 733), 60, False, collate_fn=cut)
    m = Packed()
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def loss_of(model, b):
        return F.cross_entropy(model(b[0], b[1]), b[2])

    def sums_of(model, b):
        return right(model(b[0], b[1]), b[2])

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=3)


@sound
def shares_of_the_classes_added_in_training_only():
    """Classes are rare and frequent; the logarithms of their shares are added to the scores in
    training and left out when the rows are told, scored by the mean recall."""
    seed(74)

    def rows(n, s):
        x, y = blobs(4 * n, 10, 4, s, 1.2)
        stays = torch.rand(4 * n, generator=gen(s + 5)) < torch.tensor([1.0, 0.4, 0.15, 0.06])[y]
        return x[stays], y[stays]

    train, held = rows(300, 741), rows(200, 742)
    tl, vl = loaders(train, held, 32, 100)
    prior = (torch.bincount(train[1], minlength=4) / len(train[1])).log()
    m = mlp(10, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        return F.cross_entropy(model(b[0]) + prior, b[1])

    def sums_of(model, b):
        hits = model(b[0]).argmax(1) == b[1]
        return {str(k): (hits[b[1] == k].sum(), (b[1] == k).sum()) for k in range(4)}

    each = averaged(m, vl, sums_of)

    def evaluate():
        found = each()
        return {"mean_recall": sum(found.values()) / 4}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate, num_classes=4)


class Cooled(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.log_heat = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        with torch.no_grad():
            scores = self.net(x)
        return scores / self.log_heat.exp()


@sound
def one_temperature_for_a_network_that_stays():
    """All that is trained is one number by which a finished, overconfident network's scores are
    divided."""
    seed(75)
    x, y = blobs(120, 20, 5, 751, 2.2)
    net = mlp(20, 96, 5)
    fit(net, torch.optim.Adam(net.parameters(), 1e-2), nn.CrossEntropyLoss(), x, y, 80)
    net.eval().requires_grad_(False)
    tl, vl = loaders(blobs(320, 20, 5, 752, 2.2), blobs(200, 20, 5, 753, 2.2), 32, 100)
    m = Cooled(net)
    opt = torch.optim.Adam([m.log_heat], 3e-2)
    stays = [f"net.{name}" for name, _ in net.named_parameters()]
    return by_classes(m, opt, tl, vl, 5, declared={"frozen": stays})


class Spring(nn.Module):
    """A damped spring, followed in small steps from where it is let go."""

    def __init__(self):
        super().__init__()
        self.stiff = nn.Parameter(torch.tensor(0.5))
        self.damp = nn.Parameter(torch.tensor(0.5))

    def forward(self, start):
        at, speed = start[:, 0], start[:, 1]
        path = []
        for _ in range(20):
            speed = speed - 0.15 * (self.stiff * at + self.damp * speed)
            at = at + 0.15 * speed
            path.append(at)
        return torch.stack(path, 1)


@sound
def spring_of_two_unknown_numbers():
    """The model has two numbers and no layer: how stiff and how damped a spring is that was seen to
    swing."""
    seed(76)
    true = Spring()
    with torch.no_grad():
        true.stiff.fill_(2.0)
        true.damp.fill_(0.2)

    def seen(n, s):
        g = gen(s)
        start = torch.randn(n, 2, generator=g)
        with torch.no_grad():
            return start, true(start) + 0.05 * torch.randn(n, 20, generator=g)

    tl, vl = loaders(seen(256, 761), seen(100, 762), 32, 100)
    m = Spring()
    opt = torch.optim.Adam(m.parameters(), 5e-2)

    def loss_of(model, b):
        return F.mse_loss(model(b[0]), b[1])

    def sums_of(model, b):
        return {"val_mse": (((model(b[0]) - b[1]) ** 2).sum(), b[1].numel())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@sound
def episodes_whose_classes_are_new():
    """A row is told by the nearest mean of five rows of each class in its episode: rows depend on
    each other, and class 0 is another one each time."""
    seed(77)

    def episodes(n, s):
        g = gen(s)
        hidden = torch.randn(6, 12, generator=gen(771))
        centre = 1.2 * torch.randn(n, 4, 6, generator=g)
        near = centre[:, :, None] + 0.4 * torch.randn(n, 4, 10, 6, generator=g)
        x = near @ hidden + 0.3 * torch.randn(n, 4, 10, 12, generator=g)
        x[..., 6:] += 3 * torch.randn(n, 4, 10, 6, generator=g)
        return {"support": x[:, :, :5], "query": x[:, :, 5:]}

    tl, vl = loaders(episodes(160, 772), episodes(60, 773), 8, 20)
    m = mlp(12, 48, 8)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    own = torch.arange(4).repeat_interleave(5)

    def scores(model, b):
        means = model(b["support"]).mean(2)
        return -torch.cdist(model(b["query"]).flatten(1, 2), means).pow(2)

    def loss_of(model, b):
        out = scores(model, b)
        return F.cross_entropy(out.flatten(0, 1), own.repeat(len(out)))

    def sums_of(model, b):
        out = scores(model, b)
        return right(out.flatten(0, 1), own.repeat(len(out)))

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Queued(nn.Module):
    def __init__(self):
        super().__init__()
        self.asks = mlp(16, 48, 8)
        self.keys = copy.deepcopy(self.asks).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(256, 8, generator=gen(781)), dim=1))
        self.register_buffer("at", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        return F.normalize(self.asks(x), dim=1)


@sound
def queue_of_keys_from_before():
    """Momentum contrast: the other rows' codes come from steps before, out of a buffer, made by a
    copy that follows slowly and never has a gradient."""
    seed(78)
    (x, y), (vx, vy) = nuisance(512, 782), nuisance(200, 783)
    tl = feed((x,), 64)
    m = Queued()
    opt = torch.optim.SGD(m.asks.parameters(), 0.1, momentum=0.9)

    def view(x):
        x = x.clone()
        x[:, 4:] = 1.5 * torch.randn(len(x), 12)
        return x + 0.1 * torch.randn_like(x)

    def step(b):
        m.train()
        asked = m(view(b[0]))
        with torch.no_grad():
            for k, p in zip(m.keys.parameters(), m.asks.parameters(), strict=True):
                k.lerp_(p, 0.05)
            key = F.normalize(m.keys(view(b[0])), dim=1)
        own = (asked * key).sum(1, keepdim=True)
        scores = torch.cat([own, asked @ m.queue.clone().T], 1) / 0.2
        loss = F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            places = (m.at + torch.arange(len(key))) % len(m.queue)
            m.queue[places] = key
            m.at.add_(len(key)).remainder_(len(m.queue))
        return loss.item()

    def evaluate():
        with evaluating(m):
            near = (m(vx) @ m(x).T).argmax(1)
        return {"knn_accuracy": (y[near] == vy).float().mean().item()}

    return set_up(m, opt, tl, step, evaluate=evaluate)


@sound
def dropout_that_is_kept_for_the_spread():
    """Dropout as a guess of what is not known: the held rows are told by the mean of sixteen draws
    with dropout on, from a generator's fixed start."""
    seed(79)
    tl, vl = loaders(*halves(320, 12, 5, 1.2, held=200), 32, 100)
    m = nn.Sequential(
        nn.Linear(12, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 64), nn.ReLU(),
        nn.Dropout(0.3), nn.Linear(64, 5),
    )  # fmt: skip
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def evaluate():
        hits = spread = count = 0
        was = m.training
        m.eval()
        for part in m:
            if isinstance(part, nn.Dropout):
                part.train()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(791)
            for x, y in vl:
                draws = torch.stack([m(x).softmax(1) for _ in range(16)])
                hits += (draws.mean(0).argmax(1) == y).sum().item()
                spread += draws.std(0).mean(1).sum().item()
                count += len(y)
        m.train(was)
        return {"accuracy": hits / count, "spread": spread / count}

    return by_classes(m, opt, tl, vl, 5, evaluate=evaluate)


class Signed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(10))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return x @ self.weight + self.bias


@sound
def margin_of_two_signs():
    """A support vector machine: classes are -1 and 1, all weights begin at 0, and rows beyond the
    margin have no gradient at all."""
    seed(80)

    def rows(n, s):
        x, y = blobs(n, 10, 2, s, 1.3)
        return x, 2.0 * y - 1

    tl, vl = loaders(rows(320, 801), rows(200, 802), 32, 100)
    m = Signed()
    opt = torch.optim.SGD(m.parameters(), 0.05, weight_decay=1e-2)

    def loss_of(model, b):
        return F.relu(1 - b[1] * model(b[0])).mean()

    def sums_of(model, b):
        return {"accuracy": ((model(b[0]) * b[1] > 0).sum(), len(b[1]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)
