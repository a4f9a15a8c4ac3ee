"""Ten of the twenty-fifth set, of unusual make, by someone who had not seen the doctor."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Sampler

from tests.debug.faulty.twenty_fifth.kit import (
    Flat,
    averaged,
    bars,
    blobs,
    by_cost,
    by_pairs,
    class_sums,
    gen,
    halves,
    house,
    loaders,
    mlp,
    right,
    seed,
    words,
)
from tests.debug.sound.programs import sound
from tests.debug.sound.sixteenth_loops import Reversed


class Adversary(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 48), nn.ReLU())
        self.kind = nn.Linear(48, 4)
        self.site = nn.Linear(48, 2)

    def forward(self, x):
        h = self.body(x)
        return self.kind(h), self.site(Reversed.apply(h))


@sound
def domain_told_through_a_turned_gradient():
    """A second head tells the site of a row; its gradient is turned round before the body."""
    seed(61)

    def rows(n, s):
        x, y = blobs(n, 12, 4, s)
        site = torch.randint(0, 2, (n,), generator=gen(s + 5))
        x[:, -1] += 2.0 * site
        return {"x": x, "y": y, "site": site}

    tl, vl = loaders(rows(320, 1), rows(160, 2), 32, 64)
    m = Adversary()
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        kind, site = model(b["x"])
        return F.cross_entropy(kind, b["y"]) + F.cross_entropy(site, b["site"])

    def sums_of(model, b):
        return right(model(b["x"])[0], b["y"])

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(1, 32, 9)

    def forward(self, x):
        share, mean, log_std = self.net(x).chunk(3, 1)
        return share.log_softmax(1), mean, log_std.clamp(-4, 2)


@sound
def density_whose_loss_is_below_zero():
    """A mixture of normals is fitted to narrow data: the density is above 1, the loss below 0."""
    seed(62)

    def rows(n, s):
        g = gen(s)
        x = 2 * torch.rand(n, 1, generator=g) - 1
        side = torch.randint(0, 2, (n, 1), generator=g) * 2.0 - 1
        return x, side * 0.3 * (1 + x) + 0.03 * torch.randn(n, 1, generator=g)

    tl, vl = loaders(rows(512, 1), rows(200, 2), 64)
    m = Mixture()
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def row_costs(model, b):
        share, mean, log_std = model(b[0])
        z = (b[1] - mean) / log_std.exp()
        return -(share - 0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi)).logsumexp(1)

    def sums_of(model, b):
        return {"nll": (row_costs(model, b).sum(), len(b[0]))}

    return by_cost(m, opt, tl, vl, lambda model, b: row_costs(model, b).mean(), sums_of)


@sound
def rows_mixed_on_purpose():
    """Each row is blended with another of its batch, and so is what the loss compares."""
    seed(63)
    tl, vl = loaders(bars(320, 631), bars(160, 632), 32, 64)
    m = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 4)
    )
    opt = torch.optim.AdamW(m.parameters(), 5e-3)

    def loss_of(model, b):
        x, y = b
        lam = float(torch.distributions.Beta(0.4, 0.4).sample())
        other = torch.randperm(len(x))
        kinds = F.one_hot(y, 4).float()
        kinds = lam * kinds + (1 - lam) * kinds[other]
        return F.cross_entropy(model(lam * x + (1 - lam) * x[other]), kinds)

    return by_cost(m, opt, tl, vl, loss_of, class_sums, num_classes=4)


class Rungs(nn.Module):
    """One score and three thresholds, in order."""

    def __init__(self):
        super().__init__()
        self.score = Flat(6, 32, 1)
        self.first = nn.Parameter(torch.tensor(-1.0))
        self.gaps = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        steps = torch.cat([self.first[None], F.softplus(self.gaps)])
        return self.score(x)[:, None] - steps.cumsum(0)


@sound
def grades_in_order():
    """Four ordered grades as three yes-or-no questions on one score."""
    seed(64)

    def rows(n, s):
        x, y = house(n, s)
        return x, torch.bucketize(y, torch.tensor([-0.8, 0.0, 0.8]))

    tl, vl = loaders(rows(320, 1), rows(160, 2), 32, 64)
    m = Rungs()
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def loss_fn(out, y):
        return F.binary_cross_entropy_with_logits(out, (y[:, None] > torch.arange(3)).float())

    def sums_of(model, b):
        told = (model(b[0]) > 0).sum(1)
        return {
            "accuracy": ((told == b[1]).sum(), len(told)),
            "off_by": ((told - b[1]).abs().sum(), len(told)),
        }

    return by_pairs(m, opt, tl, vl, loss_fn, evaluate=averaged(m, vl, sums_of))


class Filled(nn.Module):
    def __init__(self, V, T):
        super().__init__()
        self.emb = nn.Embedding(V + 1, 32)
        self.pos = nn.Parameter(0.1 * torch.randn(T, 32))
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(32, V)

    def forward(self, ids):
        return self.out(self.layer(self.emb(ids) + self.pos))


@sound
def hidden_words_told_from_both_sides():
    """A fifth of the words is hidden and told from all the others, before and behind."""
    seed(65)
    V, T = 12, 12
    tl, vl = loaders((words(384, T, V, 1),), (words(160, T, V, 2),), 32, 64)
    m = Filled(V, T)
    opt = torch.optim.AdamW(m.parameters(), 5e-3)

    def masked(ids, g=None):
        hidden = torch.rand(ids.shape, generator=g) < 0.2
        hidden[:, 0] |= ~hidden.any(1)
        return ids.masked_fill(hidden, V), hidden

    def loss_of(model, b):
        (ids,) = b
        read, hidden = masked(ids)
        return F.cross_entropy(model(read)[hidden], ids[hidden])

    def sums_of(model, b):
        (ids,) = b
        read, hidden = masked(ids, gen(650))
        return right(model(read)[hidden], ids[hidden], "hidden_accuracy")

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class ByLength(Sampler):
    """Batches of rows of like length, in an order drawn anew for each epoch."""

    def __init__(self, lengths, size, s):
        self.batches = lengths.argsort(stable=True).split(size)
        self.g = gen(s)

    def __iter__(self):
        for k in torch.randperm(len(self.batches), generator=self.g).tolist():
            yield self.batches[k].tolist()

    def __len__(self):
        return len(self.batches)


class Summed(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(13, 16, padding_idx=0)
        self.gru = nn.GRU(16, 24, batch_first=True)
        self.out = nn.Linear(24, 3)

    def forward(self, ids):
        lengths = (ids != 0).sum(1)
        packed = nn.utils.rnn.pack_padded_sequence(
            self.emb(ids), lengths, batch_first=True, enforce_sorted=False
        )
        return self.out(self.gru(packed)[1][0])


@sound
def sentences_of_like_length_together():
    """Sentences of like length come together and are padded to the longest of their batch."""
    seed(66)

    def sentences(n, s):
        g = gen(s)
        lengths = torch.randint(2, 16, (n,), generator=g)
        y = torch.randint(0, 3, (n,), generator=g)
        rows = []
        for length, kind in zip(lengths.tolist(), y.tolist(), strict=True):
            row = torch.randint(1, 13, (length,), generator=g)
            own = torch.rand(length, generator=g) < 0.4
            rows.append(torch.where(own, 1 + 4 * kind + row % 4, row))
        return list(zip(rows, y, strict=True)), lengths

    def collate(rows):
        ids = nn.utils.rnn.pad_sequence([row for row, _ in rows], batch_first=True)
        return ids, torch.stack([kind for _, kind in rows])

    rows, lengths = sentences(320, 1)
    tl = torch.utils.data.DataLoader(
        rows, batch_sampler=ByLength(lengths, 32, 66), collate_fn=collate
    )
    vl = torch.utils.data.DataLoader(sentences(160, 2)[0], 64, collate_fn=collate)
    m = Summed()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    return by_pairs(m, opt, tl, vl, evaluate=averaged(m, vl, class_sums), num_classes=3)


class Tied(nn.Module):
    """An autoencoder whose decoder has the encoder's weights, turned."""

    def __init__(self):
        super().__init__()
        self.W = nn.Parameter(0.2 * torch.randn(4, 16))
        self.inner = nn.Parameter(torch.zeros(4))
        self.outer = nn.Parameter(torch.zeros(16))

    def forward(self, x):
        return torch.tanh(x @ self.W.T + self.inner) @ self.W + self.outer


@sound
def rows_rebuilt_by_tied_weights():
    """What is to be told is the input itself, through four numbers and one matrix both ways."""
    seed(67)
    A = torch.randn(3, 16, generator=gen(670))

    def rows(n, s):
        g = gen(s)
        x = torch.tanh(torch.randn(n, 3, generator=g) @ A) + 0.05 * torch.randn(n, 16, generator=g)
        return x, x

    tl, vl = loaders(rows(320, 1), rows(160, 2), 32, 64)
    m = Tied()
    opt = torch.optim.RMSprop(m.parameters(), 5e-3)

    def sums_of(model, b):
        return {"mse": (((model(b[0]) - b[1]) ** 2).mean(1).sum(), len(b[0]))}

    return by_pairs(m, opt, tl, vl, nn.MSELoss(), evaluate=averaged(m, vl, sums_of))


@sound
def risks_compared_within_the_batch():
    """Cox's partial likelihood: the loss of a row has the risks of all that are at risk then."""
    seed(68)

    def patients(n, s):
        g = gen(s)
        x = torch.randn(n, 8, generator=g)
        risk = x[:, 0] - 0.7 * x[:, 1] + 0.5 * x[:, 2] * x[:, 3]
        time = -torch.rand(n, generator=g).log() / risk.exp()
        until = 3 * torch.rand(n, generator=g)
        return {"x": x, "time": torch.minimum(time, until), "event": time <= until}

    tl, vl = loaders(patients(384, 1), patients(200, 2), 64, 200)
    m = Flat(8, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 5e-3, weight_decay=1e-4)

    def loss_of(model, b):
        risk = model(b["x"])
        order = b["time"].argsort(descending=True)
        risk, event = risk[order], b["event"][order]
        return -(risk - risk.logcumsumexp(0))[event].mean()

    def sums_of(model, b):
        risk = model(b["x"])
        earlier = (b["time"][:, None] < b["time"]) & b["event"][:, None]
        return {"concordance": (((risk[:, None] > risk) & earlier).sum(), earlier.sum())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Members(nn.Module):
    """Five networks in one, each with its own weights: [5, B, k]."""

    def __init__(self, d, h, k):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(5, d, h) / d**0.5)
        self.b1 = nn.Parameter(torch.zeros(5, 1, h))
        self.w2 = nn.Parameter(torch.randn(5, h, k) / h**0.5)
        self.b2 = nn.Parameter(torch.zeros(5, 1, k))

    def forward(self, x):
        return torch.relu(x @ self.w1 + self.b1) @ self.w2 + self.b2


@sound
def five_members_in_one_product():
    """An ensemble in training by one sum of losses and scored by the mean of its shares."""
    seed(69)
    tl, vl = loaders(*halves(320, 12, 4, 1.4), 32, 64)
    m = Members(12, 24, 4)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        return sum(F.cross_entropy(out, b[1]) for out in model(b[0]))

    def sums_of(model, b):
        return right(model(b[0]).softmax(2).mean(0), b[1])

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=4)


@sound
def nearest_of_the_batch_as_triplets():
    """Batch-hard triplets: each row against the farthest of its class and the nearest other."""
    seed(70)

    def rows(n, s):
        x, y = blobs(n, 8, 6, s, 0.6)
        return torch.cat([x, torch.randn(n, 6, generator=gen(s + 9))], 1), y

    train, held = rows(384, 1), rows(160, 2)
    tl, vl = loaders(train, held, 48, 160)
    m = mlp(14, 48, 8)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        x, y = b
        far = torch.cdist(*[F.normalize(model(x), dim=1)] * 2)
        same = y[:, None] == y
        worst = (far * same).max(1).values
        best = far.masked_fill(same, 9.0).min(1).values
        return F.relu(worst - best + 0.3).mean()

    def sums_of(model, b):
        known = F.normalize(model(train[0]), dim=1)
        near = torch.cdist(F.normalize(model(b[0]), dim=1), known).argmin(1)
        return {"knn_accuracy": ((train[1][near] == b[1]).sum(), len(near))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)
