"""Losses, weights and scores by a formula that is not the method's."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import (
    blobs,
    chain,
    loaders,
    mlp,
    numbers,
    sentences,
    trained,
    trained_pairs,
)


class VAE(nn.Module):
    def __init__(self, bug, kind):
        super().__init__()
        self.e, self.mu, self.lv, self.d = (
            nn.Linear(16, 32),
            nn.Linear(32, 4),
            nn.Linear(32, 4),
            nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 16)),
        )
        self.bug, self.kind = (bug, kind)

    def forward(self, x):
        h = F.relu(self.e(x))
        mu, lv = (self.mu(h), self.lv(h))
        s = lv.exp() if self.bug and self.kind == "std" else (0.5 * lv).exp()
        z = mu + s * torch.randn_like(s)
        return (self.d(z), mu, lv)


def vae(bug, kind):
    x = torch.tanh(torch.randn(400, 4, generator=gen(1)) @ torch.randn(4, 16, generator=gen(2)))
    m = VAE(bug, kind)
    o = torch.optim.Adam(m.parameters(), 0.003)

    def loss_of(m, b):
        r, mu, lv = m(b[0])
        rec = F.mse_loss(r, b[0], reduction="sum") / len(r)
        kl = -0.5 * (1 + lv - mu**2 - lv.exp()).sum(1).mean()
        if bug and kind == "kl_all":
            kl = -0.5 * (1 + lv - mu**2 - lv.exp()).sum(0).mean()
        return rec + kl

    return trained(m, o, loaders(x, val=100, batch=20), loss_of)


@pair("wrong-formula")
def vae_std_is_the_variance(bug):
    """The noise of a VAE's code is multiplied by exp(log_var), which is the variance; the twin
    takes its root."""
    return vae(bug, "std")


@pair("wrong-formula")
def vae_kl_summed_over_rows(bug):
    """The divergence is summed over the rows of a batch and averaged over the code, beside an
    error that is a mean over rows; the twin sums over the code."""
    return vae(bug, "kl_all")


@pair("loss-negated")
def triplet_sides_exchanged(bug):
    """The margin is asked of the far pair less the near one."""
    x, y = blobs(300, 8, 4, 3)
    m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    o = torch.optim.Adam(m.parameters(), 0.001)
    g = gen(5)
    same = [torch.where(y == c)[0] for c in range(4)]
    diff = [torch.where(y != c)[0] for c in range(4)]
    pos = torch.stack([x[same[c][torch.randint(len(same[c]), (1,), generator=g)]][0] for c in y])
    neg = torch.stack([x[diff[c][torch.randint(len(diff[c]), (1,), generator=g)]][0] for c in y])

    def loss_of(m, b):
        a, p, n = (m(t) for t in b)
        dp, dn = ((a - p).norm(dim=1), (a - n).norm(dim=1))
        return F.relu((dn - dp if bug else dp - dn) + 1.0).mean()

    return trained(m, o, loaders(x, pos, neg, val=60, batch=20), loss_of)


@pair("class-weights-inverted")
def focal_alpha_exchanged(bug):
    """The focal loss gives its 0.9 to the frequent answer."""
    g = gen(7)
    y = (torch.rand(500, generator=g) < 0.12).float()[:, None]
    x = torch.randn(500, 8, generator=g) + 1.2 * y
    m = mlp(8, 1)
    o = torch.optim.Adam(m.parameters(), 0.003)

    def loss_of(m, b):
        z = m(b[0])
        p = z.sigmoid()
        t = b[1]
        ce = F.binary_cross_entropy_with_logits(z, t, reduction="none")
        pt = torch.where(t > 0, p, 1 - p)
        a = torch.where(t > 0, 0.1, 0.9) if bug else torch.where(t > 0, 0.9, 0.1)
        return (a * (1 - pt) ** 2 * ce).mean()

    return trained(m, o, loaders(x, y, val=100, batch=20), loss_of)


class Attn(nn.Module):
    def __init__(self, bug, kind, vocab=12, d=16, k=None):
        super().__init__()
        self.e, self.q, self.k, self.v, self.o = (
            nn.Embedding(vocab, d),
            nn.Linear(d, d),
            nn.Linear(d, d),
            nn.Linear(d, d),
            nn.Linear(d, vocab if k is None else k),
        )
        self.p = nn.Parameter(0.1 * torch.randn(10, d))
        self.bug, self.kind, self.cls = (bug, kind, k)

    def forward(self, ids):
        x = self.e(ids) + self.p
        s = self.q(x) @ self.k(x).transpose(1, 2) / 4
        pad = ids == 0
        if self.kind == "mask":
            keep = pad if self.bug else ~pad
            s = s.masked_fill(~keep[:, None, :], -1000000000.0)
        else:
            s = s.masked_fill(pad[:, None, :], -1000000000.0)
        w = s.softmax(1 if self.bug and self.kind == "axis" else 2)
        h = w @ self.v(x)
        if self.cls is None:
            return self.o(h)
        real = (~pad).float()[..., None]
        return self.o((h * real).sum(1) / real.sum(1))


def attention(bug, kind):
    ids, _ = sentences(400, 10, 12, 3)
    y = (ids == 3).any(1).long() + (ids == 5).any(1).long()
    m = Attn(bug, kind, k=3)
    o = torch.optim.Adam(m.parameters(), 0.003)
    return trained_pairs(
        m, o, loaders(ids, y, val=100, batch=20), nn.CrossEntropyLoss(), num_classes=3
    )


@pair("rows-mixed")
def softmax_over_queries(bug):
    """Attention's weights add up to 1 over the queries, and are summed over the keys."""
    return attention(bug, "axis")


@pair("padding-not-masked")
def attention_mask_turned(bug):
    """The mask keeps the padding and hides the words, in rows of a fixed length."""
    return attention(bug, "mask")


@pair("leak-overlap")
def synthetic_minority_before_the_split(bug):
    """Rows between neighbours of the rare class are made before the split; the twin makes them of
    the training rows."""
    g = gen(11)
    y = (torch.rand(500, generator=g) < 0.15).long()
    x = torch.randn(500, 8, generator=g) + y[:, None] * torch.tensor([1.0, -1, 1, 0, 0, 0, 0, 0])

    def smote(x, y, n):
        a = x[y == 1]
        i = torch.randint(len(a), (n,), generator=g)
        d = torch.cdist(a[i], a)
        d[torch.arange(n), i] = 1000000000.0
        j = d.topk(3, largest=False).indices[torch.arange(n), torch.randint(3, (n,), generator=g)]
        t = torch.rand(n, 1, generator=g)
        nx, ny = (
            torch.cat([x, a[i] + t * (a[j] - a[i])]),
            torch.cat([y, torch.ones(n, dtype=torch.long)]),
        )
        p = torch.randperm(len(nx), generator=g)
        return (nx[p], ny[p])

    if bug:
        x, y = smote(x, y, 300)
        xt, yt, xv, yv = (x[:-160], y[:-160], x[-160:], y[-160:])
    else:
        xt, yt = smote(x[:-120], y[:-120], 220)
        xv, yv = (x[-120:], y[-120:])
    m = mlp(8, 2)
    o = torch.optim.Adam(m.parameters(), 0.001)
    return trained_pairs(
        m,
        o,
        (
            DataLoader(TensorDataset(xt, yt), 20, shuffle=True),
            DataLoader(TensorDataset(xv, yv), 20),
        ),
        nn.CrossEntropyLoss(),
        num_classes=2,
    )


@pair("wrong-formula")
def betas_exchanged(bug):
    """Adam's two betas stand in each other's place."""
    x, y = blobs(300)
    m = mlp()
    o = torch.optim.Adam(m.parameters(), 0.001, betas=(0.999, 0.9) if bug else (0.9, 0.999))
    return trained_pairs(m, o, loaders(x, y, val=60), nn.CrossEntropyLoss(), num_classes=4)


@pair("class-weights-inverted")
def sampler_draws_the_frequent(bug):
    """The sampler's weights are the classes' counts; the twin's are one over them."""
    g = gen(13)
    y = torch.multinomial(torch.tensor([0.7, 0.2, 0.1]), 450, True, generator=g)
    x = torch.randn(450, 8, generator=g) + 2 * F.one_hot(y, 8).float()
    n = torch.bincount(y[:350]).float()
    w = (n if bug else 1 / n)[y[:350]]
    tr = DataLoader(
        TensorDataset(x[:350], y[:350]), 20, sampler=WeightedRandomSampler(w.tolist(), 350)
    )
    m = mlp(8, 3)
    o = torch.optim.Adam(m.parameters(), 0.001)
    return trained_pairs(
        m,
        o,
        (tr, DataLoader(TensorDataset(x[350:], y[350:]), 20)),
        nn.CrossEntropyLoss(),
        num_classes=3,
    )


def cox(bug, kind):
    g = gen(17)
    x = torch.randn(400, 6, generator=g)
    risk = x[:, :1] - x[:, 1:2]
    t = -torch.log(torch.rand(400, 1, generator=g)) * torch.exp(-risk)
    c = -torch.log(torch.rand(400, 1, generator=g)) * 1.5
    e = (t <= c).float()
    t = torch.minimum(t, c)
    m = mlp(6, 1)
    o = torch.optim.Adam(m.parameters(), 0.001)

    def loss_of(m, b):
        x, t, e = b
        order = t[:, 0].argsort(descending=not (bug and kind == "order"))
        h, ev = (m(x)[order, 0], e[order, 0])
        if bug and kind == "event":
            ev = 1 - ev
        return -((h - h.logcumsumexp(0)) * ev).sum() / ev.sum()

    return trained(m, o, loaders(x, t, e, val=80, batch=40), loss_of)


@pair("wrong-formula")
def risk_set_in_the_wrong_order(bug):
    """Cox's sums run over those who left before; the twin's over those still there."""
    return cox(bug, "order")


@pair("wrong-targets")
def censored_taken_for_events(bug):
    """Those who left unharmed count as harmed, and the others do not."""
    return cox(bug, "event")


@pair("loss-without-gradient")
def penalty_without_graph(bug):
    """The penalty on the gradient is made without a graph, so that it moves nothing."""
    x, y = numbers(300)
    m = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    o = torch.optim.Adam(m.parameters(), 0.001)

    def loss_of(m, b):
        x = b[0].clone().requires_grad_()
        out = m(x)
        (g,) = torch.autograd.grad(out.sum(), x, create_graph=not bug, retain_graph=True)
        return F.mse_loss(out, b[1]) + 0.1 * (g**2).sum(1).mean()

    def evaluate():
        return {"loss": 0.0}

    tr, va = loaders(x, y, val=60)

    def ev():
        with torch.no_grad():
            return {"mse": sum((F.mse_loss(m(a), b).item() * len(a) for a, b in va)) / 60}

    return trained(m, o, (tr, va), loss_of, evaluate=ev)


@pair("metric-batch-mean")
def perplexity_of_batches(bug):
    """The perplexity is the mean of the batches' perplexities; the twin's is of the mean loss."""
    ids = chain(300)
    m = nn.Sequential(nn.Embedding(12, 32), nn.Linear(32, 12))
    o = torch.optim.Adam(m.parameters(), 0.01)

    def loss_of(m, b):
        return F.cross_entropy(m(b[0][:, :-1]).transpose(1, 2), b[0][:, 1:], ignore_index=0)

    tr, va = loaders(ids, val=75, batch=8)

    def ev():
        m.eval()
        tot = n = 0
        each = []
        with torch.no_grad():
            for b in va:
                cost = loss_of(m, b)
                k = (b[0][:, 1:] != 0).sum().item()
                tot += cost.item() * k
                n += k
                each.append(math.exp(cost.item()))
        m.train()
        return {"perplexity": sum(each) / len(each) if bug else math.exp(tot / n)}

    return trained(m, o, (tr, va), loss_of, evaluate=ev)
