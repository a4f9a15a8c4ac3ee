"""Ten of the twenty-sixth set, of unusual make, by someone who had not seen the doctor."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

from tests.debug.faulty.twenty_sixth.kit import (
    averaged,
    blobs,
    by_cost,
    by_pairs,
    class_sums,
    evaluating,
    feed,
    gen,
    halves,
    house,
    loaders,
    mlp,
    plain_step,
    right,
    seed,
    set_up,
    sheet,
)
from tests.debug.sound.programs import sound


@sound
def equation_without_targets():
    """A network solves u' = -2u, u(0) = 1 by the derivative of its output: there are no targets,
    and scoring needs gradients."""
    seed(81)
    tl = feed((2 * torch.rand(512, 1, generator=gen(81)),), 32)
    m = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def loss_of(model, b):
        x = b[0].clone().requires_grad_(True)
        u = model(x)
        (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        return ((du + 2 * u) ** 2).mean() + ((model(torch.zeros(1, 1)) - 1) ** 2).mean()

    at = torch.linspace(0, 2, 50)[:, None]

    def evaluate():
        with evaluating(m):
            return {"max_error": (m(at) - torch.exp(-2 * at)).abs().max().item()}

    return set_up(m, opt, tl, plain_step(m, opt, loss_of), loss_of=loss_of, evaluate=evaluate)


@sound
def counts_with_an_exposure():
    """Counts over unlike spans: the log of the span is added to the output, which is the log of a
    rate."""
    seed(82)

    def rows(n, s):
        g = gen(s)
        x, span = torch.randn(n, 5, generator=g), 0.5 + 9 * torch.rand(n, generator=g)
        rate = (0.6 * x[:, 0] - 0.4 * x[:, 1]).exp()
        return {"x": x, "span": span, "count": torch.poisson(rate * span, generator=g)}

    tl, vl = loaders(rows(480, 821), rows(200, 822), 32, 100)
    m = mlp(5, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def log_mean(model, b):
        return model(b["x"])[:, 0] + b["span"].log()

    def loss_of(model, b):
        return F.poisson_nll_loss(log_mean(model, b), b["count"], log_input=True)

    def sums_of(model, b):
        cost = F.poisson_nll_loss(log_mean(model, b), b["count"], log_input=True, reduction="sum")
        return {"val_nll": (cost, len(b["count"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@sound
def survival_by_who_is_still_there():
    """Cox's partial likelihood: what a row costs depends on all rows of its batch, and rows whose
    end is unknown count only among those at risk."""
    seed(83)

    def rows(n, s):
        g = gen(s)
        x = torch.randn(n, 6, generator=g)
        time = -torch.rand(n, generator=g).log() / (x[:, 0] - 0.7 * x[:, 1]).exp()
        end = 3 * torch.rand(n, generator=g)
        return {"x": x, "time": torch.minimum(time, end), "seen": (time <= end).float()}

    tl, vl = loaders(rows(480, 831), rows(200, 832), 48, 200)
    m = mlp(6, 24, 1)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        at = b["time"].argsort(descending=True)
        risk, seen = model(b["x"])[at, 0], b["seen"][at]
        return -((risk - risk.logcumsumexp(0)) * seen).sum() / seen.sum().clamp(min=1)

    def sums_of(model, b):
        risk, t = model(b["x"])[:, 0], b["time"]
        known = (t[:, None] < t[None]) & (b["seen"][:, None] > 0)
        return {"concordance": (((risk[:, None] > risk[None]) & known).sum(), known.sum())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Graded(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = mlp(8, 24, 1)
        self.first = nn.Parameter(torch.tensor(-1.0))
        self.gaps = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        later = self.first + F.softplus(self.gaps).cumsum(0)
        return self.score(x) - torch.cat([self.first[None], later])


@sound
def grades_told_by_four_thresholds():
    """Five ordered grades: one score is compared with four thresholds that are learned, and the
    targets are whether the grade is above each; the grade told is how many are passed."""
    seed(84)

    def rows(n, s):
        g = gen(s)
        x = torch.randn(n, 8, generator=g)
        felt = 1.5 * x[:, 0] - x[:, 1] + 0.4 * torch.randn(n, generator=g)
        return x, torch.bucketize(felt, torch.tensor([-2.0, -0.7, 0.7, 2.0]))

    tl, vl = loaders(rows(480, 841), rows(200, 842), 40, 100)
    m = Graded()
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def loss_of(model, b):
        above = (b[1][:, None] > torch.arange(4)).float()
        return F.binary_cross_entropy_with_logits(model(b[0]), above)

    def sums_of(model, b):
        off = (model(b[0]) > 0).sum(1) - b[1]
        return {"grades_off": (off.abs().sum(), len(off)), "accuracy": ((off == 0).sum(), len(off))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@sound
def random_features_and_a_head():
    """Wide random features stay as they were drawn and only the head is trained."""
    seed(85)
    tl, vl = loaders(house(480, 851), house(200, 852), 40, 100)
    m = nn.Sequential(nn.Linear(6, 300).requires_grad_(False), nn.Tanh(), nn.Linear(300, 1))
    opt = torch.optim.Adam(m[2].parameters(), 3e-3)

    def loss_of(model, b):
        return F.mse_loss(model(b[0])[:, 0], b[1])

    def sums_of(model, b):
        return {"val_mse": (((model(b[0])[:, 0] - b[1]) ** 2).sum(), len(b[1]))}

    return by_cost(
        m, opt, tl, vl, loss_of, sums_of, task="regression",
        declared={"frozen": ["0.weight", "0.bias"]},
    )  # fmt: skip


class Coded(nn.Module):
    def __init__(self, d=14, k=32, h=4):
        super().__init__()
        self.enc = mlp(d, 48, h)
        self.book = nn.Embedding(k, h)
        self.dec = mlp(h, 48, d)

    def forward(self, x):
        z = self.enc(x)
        q = self.book(torch.cdist(z, self.book.weight).argmin(1))
        cost = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        return self.dec(z + (q - z).detach()), cost


@sound
def codes_from_a_book():
    """An autoencoder whose code is the nearest of 32: its gradient goes straight through, and
    entries of the book that no row is near have none."""
    seed(86)
    tl, vl = loaders((sheet(480, 861),), (sheet(160, 862),), 32, 80)
    m = Coded()
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        out, cost = model(b[0])
        return F.mse_loss(out, b[0]) + cost

    def sums_of(model, b):
        return {"val_mse": (((model(b[0])[0] - b[0]) ** 2).sum(), b[0].numel())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Stream(IterableDataset):
    def __init__(self):
        self.g = gen(871)

    def __iter__(self):
        for _ in range(640):
            y = int(torch.randint(0, 4, (1,), generator=self.g))
            x = torch.randn(8, generator=self.g)
            x[y] += 1.7
            yield x, y


@sound
def stream_that_never_repeats():
    """The rows of training come from a stream without a length, other ones in each pass."""
    seed(87)
    tl = DataLoader(Stream(), 32)
    g = gen(872)
    vy = torch.randint(0, 4, (200,), generator=g)
    vl = feed((torch.randn(200, 8, generator=g) + 1.7 * F.one_hot(vy, 8), vy), 100, shuffle=False)
    m = mlp(8, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_pairs(m, opt, tl, vl, num_classes=4, evaluate=averaged(m, vl, class_sums))


@sound
def spread_told_with_the_mean():
    """The network tells mean and log of the spread; the loss goes below zero where it is sure."""
    seed(88)

    def rows(n, s):
        g = gen(s)
        x = 2 * torch.rand(n, 1, generator=g) - 1
        return x, torch.sin(3 * x) + (0.02 + 0.3 * (x > 0)) * torch.randn(n, 1, generator=g)

    tl, vl = loaders(rows(512, 881), rows(200, 882), 64, 100)
    m = mlp(1, 48, 2)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def cost(model, b):
        mean, log_std = model(b[0]).chunk(2, 1)
        return 0.5 * ((b[1] - mean) / log_std.exp()) ** 2 + log_std + 0.5 * math.log(2 * math.pi)

    def sums_of(model, b):
        return {"val_nll": (cost(model, b).sum(), len(b[0]))}

    return by_cost(m, opt, tl, vl, lambda model, b: cost(model, b).mean(), sums_of)


class Chosen(nn.Module):
    def __init__(self):
        super().__init__()
        self.pick = mlp(10, 24, 4)
        self.experts = nn.ModuleList([nn.Linear(10, 5) for _ in range(4)])
        self.heat = 2.0

    def forward(self, x):
        out = torch.stack([e(x) for e in self.experts], 1)
        p = self.pick(x)
        if self.training:
            gate = F.gumbel_softmax(p, self.heat, hard=True)
        else:
            gate = F.one_hot(p.argmax(1), 4).to(p)
        return (gate[..., None] * out).sum(1)


@sound
def experts_drawn_and_cooled():
    """One of four experts is drawn by a Gumbel softmax, whose heat sinks in each step; in
    evaluation the likeliest is taken."""
    seed(89)
    x, y = blobs(480, 10, 5, 1)
    tl, vl = loaders((x, y), blobs(150, 10, 5, 2), 40, 75)
    m = Chosen()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def step(b):
        m.train()
        loss = F.cross_entropy(m(b[0]), b[1])
        opt.zero_grad()
        loss.backward()
        opt.step()
        m.heat = max(0.5, m.heat * 0.99)
        return loss.item()

    return by_pairs(m, opt, tl, vl, None, step, num_classes=5)


class Early(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(12, 32), nn.Linear(32, 32), nn.Linear(32, 32)])
        self.exits = nn.ModuleList([nn.Linear(32, 5) for _ in range(3)])

    def forward(self, x):
        outs = []
        for block, leave in zip(self.blocks, self.exits, strict=True):
            x = F.relu(block(x))
            outs.append(leave(x))
        return outs


@sound
def three_exits_and_the_last_is_scored():
    """Each depth has an exit of its own; all are trained, with unlike weights, and the last is
    scored."""
    seed(90)
    train, held = halves(400, 12, 5)
    tl, vl = loaders(train, held, 40, 75)
    m = Early()
    opt = torch.optim.AdamW(m.parameters(), 3e-3)

    def loss_of(model, b):
        outs = zip((0.2, 0.3, 1.0), model(b[0]), strict=True)
        return sum(w * F.cross_entropy(out, b[1]) for w, out in outs)

    return by_cost(m, opt, tl, vl, loss_of, lambda model, b: right(model(b[0])[-1], b[1]))
