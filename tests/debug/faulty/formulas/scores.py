"""Scores, ranges, members and penalties that are not what they are called."""

import torch
from sklearn.metrics import r2_score, roc_auc_score
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.eighth.kit import gen, predict
from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    chain,
    loaders,
    mlp,
    numbers,
    trained,
    trained_pairs,
)


@pair("padding-in-the-loss")
def masked_then_mean_of_all(bug):
    """What padding costs is set to 0 and counts in the mean: rows with little text count less."""
    ids = chain(300)
    m = nn.Sequential(nn.Embedding(12, 32), nn.Linear(32, 12))
    o = torch.optim.Adam(m.parameters(), 0.01)

    def loss_of(m, b):
        x, y = (b[0][:, :-1], b[0][:, 1:])
        each = F.cross_entropy(m(x).transpose(1, 2), y, reduction="none")
        real = (y != 0).float()
        return (each * real).mean() if bug else (each * real).sum() / real.sum()

    return trained(m, o, loaders(ids, val=60, batch=20), loss_of)


def scored(bug, make, seed=21, n=300, val=92, k=4, spread=1.5):
    x, y = blobs(n, 8, k, seed, spread)
    m = mlp(8, k)
    o = torch.optim.Adam(m.parameters(), 0.003)
    tr, va = loaders(x, y, val=val, batch=20)
    return trained_pairs(m, o, (tr, va), nn.CrossEntropyLoss(), evaluate=make(m, va), num_classes=k)


@pair("metric-wrong")
def accuracy_of_the_last_batch(bug):
    """Hits and answers begin again with each batch, so that only the last is scored."""

    def make(m, va):

        def ev():
            m.eval()
            hits = n = 0
            with torch.no_grad():
                for x, y in va:
                    if bug:
                        hits = n = 0
                    hits += (m(x).argmax(1) == y).sum().item()
                    n += len(y)
            m.train()
            return {"accuracy": hits / n}

        return ev

    return scored(bug, make)


@pair("metric-wrong")
def divided_by_full_batches(bug):
    """Hits are divided by as many answers as full batches would have."""

    def make(m, va):

        def ev():
            m.eval()
            hits = n = 0
            with torch.no_grad():
                for x, y in va:
                    hits += (m(x).argmax(1) == y).sum().item()
                    n += va.batch_size if bug else len(y)
            m.train()
            return {"accuracy": hits / n}

        return ev

    return scored(bug, make, val=84)


def binary(bug, make, seed=31):
    g = gen(seed)
    y = (torch.rand(420, 1, generator=g) < 0.3).float()
    x = torch.randn(420, 8, generator=g) + y
    m = mlp(8, 1)
    o = torch.optim.Adam(m.parameters(), 0.003)
    tr, va = loaders(x, y, val=120, batch=20)
    return trained_pairs(m, o, (tr, va), nn.BCEWithLogitsLoss(), evaluate=make(m, va))


@pair("metric-wrong")
def auc_of_hard_answers(bug):
    """The area under the curve is of answers, and not of scores."""

    def make(m, va):

        def ev():
            p, y = predict(m, va)
            p = p.sigmoid()
            return {"auc": float(roc_auc_score(y.numpy(), (p > 0.5).numpy() if bug else p.numpy()))}

        return ev

    return binary(bug, make)


@pair("metric-wrong")
def r2_sides_exchanged(bug):
    """Outputs are handed in as targets: what is explained is relative to their spread."""
    x, y = numbers(400)
    m = mlp(8, 1)
    o = torch.optim.Adam(m.parameters(), 0.003)
    tr, va = loaders(x, y, val=100, batch=20)

    def ev():
        p, t = predict(m, va)
        return {"r2": float(r2_score(p, t) if bug else r2_score(t, p))}

    return trained_pairs(m, o, (tr, va), nn.MSELoss(), evaluate=ev)


@pair("bad-start")
def one_layer_many_times(bug):
    """[layer] * 4 is one layer, four times."""
    x, y = blobs(300)
    layers = [nn.Linear(8, 8)] * 4 if bug else [nn.Linear(8, 8) for _ in range(4)]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(layers)
            self.head = nn.Linear(8, 4)

        def forward(self, x):
            for layer in self.layers:
                x = x + F.relu(layer(x))
            return self.head(x)

    m = Net()
    o = torch.optim.Adam(m.parameters(), 0.003)
    return trained_pairs(m, o, loaders(x, y, val=60), nn.CrossEntropyLoss(), num_classes=4)


@pair("bad-start")
def ensemble_of_one_seed(bug):
    """Three members start with the same weights and learn from the same batches."""
    x, y = blobs(300)
    members = []
    for i in range(3):
        torch.manual_seed(0 if bug else i)
        members.append(mlp())

    class Ens(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = nn.ModuleList(members)

        def forward(self, x):
            return torch.stack([m(x) for m in self.m]).mean(0)

    m = Ens()
    o = torch.optim.Adam(m.parameters(), 0.003)

    def loss_of(m, b):
        return sum(F.cross_entropy(k(b[0]), b[1]) for k in m.m)

    tr, va = loaders(x, y, val=60)
    return trained(m, o, (tr, va), loss_of, evaluate=accuracy(m, va))


@pair("targets-out-of-reach")
def multiplied_by_the_temperature(bug):
    """Cosines are multiplied by the temperature, and not divided."""
    x = torch.randn(400, 8, generator=gen(8))
    u = x + 0.2 * torch.randn(400, 8, generator=gen(9))
    v = x + 0.2 * torch.randn(400, 8, generator=gen(10))
    m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    o = torch.optim.Adam(m.parameters(), 0.003)

    def loss_of(m, b):
        a, c = (F.normalize(m(t), dim=1) for t in b)
        s = a @ c.T
        return F.cross_entropy(s * 0.1 if bug else s / 0.1, torch.arange(len(a)))

    return trained(m, o, loaders(u, v, val=80, batch=20), loss_of)


@pair("targets-out-of-reach")
def cosines_without_a_scale(bug):
    """Cosines are logits as they are, so that no share comes near 1."""
    x, y = blobs(400, 8, 10, 3)

    class Cos(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
            self.w = nn.Parameter(torch.randn(10, 16))

        def forward(self, x):
            c = F.normalize(self.f(x), dim=1) @ F.normalize(self.w, dim=1).T
            return c if bug else 16 * c

    m = Cos()
    o = torch.optim.Adam(m.parameters(), 0.003)
    return trained_pairs(
        m, o, loaders(x, y, val=80, batch=20), nn.CrossEntropyLoss(), num_classes=10
    )


@pair("wrong-targets")
def hinge_of_zeros_and_ones(bug):
    """A hinge that takes -1 and 1 gets 0 and 1: a no costs 1, whatever the score."""
    x, y = blobs(300, 8, 2, 5)
    y = y.float()[:, None]
    y = y if bug else 2 * y - 1
    m = mlp(8, 1)
    o = torch.optim.Adam(m.parameters(), 0.001)

    def loss_of(m, b):
        return F.relu(1 - b[1] * m(b[0])).mean()

    tr, va = loaders(x, y, val=60)

    def ev():
        p, t = predict(m, va)
        return {"accuracy": float(((p > 0) == (t > 0)).float().mean())}

    return trained(m, o, (tr, va), loss_of, evaluate=ev)


@pair("targets-out-of-reach")
def signs_into_bce(bug):
    """A binary cross-entropy gets -1 and 1."""
    x, y = blobs(300, 8, 2, 5)
    y = y.float()[:, None]
    y = 2 * y - 1 if bug else y
    m = mlp(8, 1)
    o = torch.optim.Adam(m.parameters(), 0.001)
    return trained_pairs(m, o, loaders(x, y, val=60), nn.BCEWithLogitsLoss())


@pair("rows-mixed")
def positions_of_the_batch(bug):
    """Positions are counted along the batch and not along the row."""
    ids = chain(300, 10)
    pe = torch.randn(64, 16, generator=gen(3))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(12, 16)
            self.l = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
            self.h = nn.Linear(16, 12)

        def forward(self, x):
            z = self.e(x)
            z = z + pe[: x.shape[0], None] if bug else z + pe[: x.shape[1]]
            return self.h(
                self.l(
                    z,
                    src_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1]),
                    is_causal=True,
                )
            )

    m = Net()
    o = torch.optim.Adam(m.parameters(), 0.003)

    def loss_of(m, b):
        return F.cross_entropy(m(b[0][:, :-1]).transpose(1, 2), b[0][:, 1:], ignore_index=0)

    return trained(m, o, loaders(ids, val=60, batch=20), loss_of)


@pair("loss-without-gradient")
def argmax_in_the_loss(bug):
    """The term for consistency compares hard answers, which have no gradient."""
    x, y = blobs(300)
    m = mlp()
    o = torch.optim.Adam(m.parameters(), 0.003)

    def loss_of(m, b):
        a = m(b[0])
        c = m(b[0] + 0.1 * torch.randn_like(b[0]))
        extra = (
            F.mse_loss(a.argmax(1).float(), c.argmax(1).float())
            if bug
            else F.mse_loss(a.softmax(1), c.softmax(1))
        )
        return F.cross_entropy(a, b[1]) + extra

    tr, va = loaders(x, y, val=60)
    return trained(m, o, (tr, va), loss_of, evaluate=accuracy(m, va))


@pair("wrong-formula")
def penalised_twice(bug):
    """The weights are decayed by the optimizer and penalised in the loss."""
    x, y = blobs(300)
    m = mlp()
    o = torch.optim.AdamW(m.parameters(), 0.003, weight_decay=0.01)

    def loss_of(m, b):
        cost = F.cross_entropy(m(b[0]), b[1])
        return cost + 0.01 * sum((p**2).sum() for p in m.parameters()) if bug else cost

    tr, va = loaders(x, y, val=60)
    return trained(m, o, (tr, va), loss_of, evaluate=accuracy(m, va))
