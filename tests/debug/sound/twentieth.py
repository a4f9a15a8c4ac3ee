"""Ten of the twentieth set, of unusual make, by someone who had not seen the doctor."""

import copy
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.twentieth.kit import (
    Chained,
    TinyGPT,
    averaged,
    by_classes,
    by_cost,
    by_errors,
    by_pairs,
    chain,
    evaluating,
    gen,
    groups,
    language,
    loaders,
    mlp,
    nearest,
    phrases,
    plain_step,
    same_draws,
    seed,
    set_up,
    sup_step,
)
from tests.debug.sound.programs import sound


@sound
def gru_writes_with_its_own_words():
    """The output layer shares the embedding's weight on purpose."""
    seed()
    V = 16
    m = Chained(V)
    m.out.weight = m.emb.weight
    opt = torch.optim.AdamW(m.parameters(), 3e-3)
    tl, vl = loaders(chain(320, 12, V, 1), chain(90, 12, V, 2))
    return language(m, opt, tl, vl, V)


@sound
def mc_dropout_eval():
    """Dropout stays on in evaluate() by design, which averages 20 passes."""
    seed()

    def data(n, s):
        g = gen(s)
        x = torch.randn(n, 5, generator=g)
        return x, x[:, :1] * x[:, 1:2] + 0.2 * torch.randn(n, 1, generator=g)

    tl, vl = loaders(data(480, 1), data(120, 2), 32, 40)
    m = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    @same_draws
    def evaluate():
        errors = spread = n = 0
        with evaluating(m):
            m[2].train()
            for x, y in vl:
                p = torch.stack([m(x) for _ in range(20)])
                errors += ((p.mean(0) - y) ** 2).sum().item()
                spread += p.std(0).sum().item()
                n += len(y)
        return {"mc_mse": errors / n, "mean_std": spread / n}

    return by_errors(m, opt, tl, vl, evaluate=evaluate)


@sound
def byol_momentum_target():
    """A frozen target inside the model is moved by averages alone; there are no negatives, and the
    loss may rise."""
    seed()
    known, held = groups(480, 6, 16, seed=1), groups(120, 6, 16, seed=2)
    tl, vl = loaders(known[0], held, 32, 16)

    class Byol(nn.Module):
        def __init__(self):
            super().__init__()
            self.online = mlp(16, 32, 8)
            self.predictor = mlp(8, 16, 8)
            self.target = copy.deepcopy(self.online).requires_grad_(False)

        def forward(self, x):
            return self.online(x)

    m = Byol()
    opt = torch.optim.Adam([p for p in m.parameters() if p.requires_grad], 2e-3)

    def loss_of(model, x):
        views = [x + 0.5 * torch.randn_like(x) for _ in range(2)]
        total = 0
        for a, b in (views, views[::-1]):
            with torch.no_grad():
                t = F.normalize(model.target(b), dim=1)
            said = F.normalize(model.predictor(model.online(a)), dim=1)
            total = total + (2 - 2 * (said * t).sum(1)).mean()
        return total / 2

    base = plain_step(m, opt, loss_of)

    def step(x):
        loss = base(x)
        with torch.no_grad():
            for t, p in zip(m.target.parameters(), m.online.parameters(), strict=True):
                t.lerp_(p, 0.02)
        return loss

    return by_cost(m, opt, tl, vl, loss_of, None, step=step, evaluate=nearest(m, known, held))


@sound
def quantiles_by_broadcast():
    """Three quantiles [N, 3] are compared with one column of targets [N, 1]: to broadcast is
    meant."""
    seed()
    q = torch.tensor([0.1, 0.5, 0.9])

    def data(n, s):
        g = gen(s)
        x = torch.randn(n, 4, generator=g)
        spread = (0.3 + 0.3 * x[:, 1:2].abs()) * torch.randn(n, 1, generator=g)
        return x, x[:, :1] + spread

    tl, vl = loaders(data(640, 1), data(300, 2), 32, 50)
    m = mlp(4, 32, 3)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def pinball(out, y):
        e = y - out
        return torch.maximum(q * e, (q - 1) * e).mean()

    def sums_of(model, b):
        below = (b[1] < model(b[0])).float().sum(0)
        return {f"below_q{k}": (c, len(b[1])) for k, c in zip((10, 50, 90), below, strict=True)}

    return by_pairs(m, opt, tl, vl, pinball, evaluate=averaged(m, vl, sums_of))


@sound
def bag_of_items_by_sparse_adam():
    """The embedding has sparse gradients and an optimizer of its own: rows that are not met stay
    where they are."""
    seed()
    V = 400
    w = np.random.RandomState(9).randn(V)

    def data(n, s):
        items = np.minimum(np.random.RandomState(s).geometric(0.02, (n, 8)), V) - 1
        clicked = (w[items].sum(1) > 0).astype(np.float32)
        return {"items": torch.from_numpy(items), "clicked": torch.from_numpy(clicked)}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.EmbeddingBag(V, 8, mode="sum", sparse=True)
            self.head = mlp(8, 16, 1)

        def forward(self, x):
            return self.head(self.emb(x))[:, 0]

    tl, vl = loaders(data(640, 1), data(200, 2), 32)
    m = Net()
    opts = [
        torch.optim.SparseAdam(list(m.emb.parameters()), 1e-2),
        torch.optim.AdamW(m.head.parameters(), 5e-3),
    ]

    def loss_of(model, b):
        return F.binary_cross_entropy_with_logits(model(b["items"]), b["clicked"])

    def step(b):
        m.train()
        for opt in opts:
            opt.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        for opt in opts:
            opt.step()
        return loss.item()

    def sums_of(model, b):
        hits = (model(b["items"]) > 0) == (b["clicked"] > 0.5)
        return {"val_acc": (hits.sum(), len(hits))}

    return by_cost(m, opts, tl, vl, loss_of, sums_of, step=step)


@sound
def bucketed_by_length():
    """A batch has phrases of like lengths; the batches come in any order, with the same rows."""
    seed()

    class Buckets:
        def __init__(self, n, s, shuffle):
            self.g = gen(s)
            rows = sorted(phrases(n, self.g), key=lambda row: -len(row[0]))
            self.batches = [rows[i : i + 16] for i in range(0, n, 16)]
            self.shuffle = shuffle

        def __len__(self):
            return len(self.batches)

        def __iter__(self):
            order = range(len(self))
            if self.shuffle:
                order = torch.randperm(len(self), generator=self.g).tolist()
            for i in order:
                ids, y = zip(*self.batches[i], strict=True)
                yield {
                    "ids": nn.utils.rnn.pad_sequence(ids, batch_first=True),
                    "len": torch.tensor([len(row) for row in ids]),
                    "y": torch.tensor(y),
                }

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(15, 16, padding_idx=0)
            self.out = mlp(16, 32, 3)

        def forward(self, ids, lengths):
            return self.out(self.emb(ids).sum(1) / lengths[:, None])

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        return F.cross_entropy(model(b["ids"], b["len"]), b["y"])

    def sums_of(model, b):
        return {"val_acc": ((model(b["ids"], b["len"]).argmax(1) == b["y"]).sum(), len(b["y"]))}

    tl, vl = Buckets(480, 1, True), Buckets(120, 2, False)
    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=3)


@sound
def siren_fits_one_image():
    """The pixels of one image are learnt by heart: there is one batch, and the score is on it."""
    seed()
    u = torch.linspace(-1, 1, 24)
    at = torch.cartesian_prod(u, u)
    image = torch.sin(5 * at[:, :1]) * torch.cos(3 * at[:, 1:])
    image = image + 0.3 * (at.norm(dim=1, keepdim=True) < 0.5)

    class Siren(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 32)
            self.b = nn.Linear(32, 32)
            self.c = nn.Linear(32, 1)
            most = math.sqrt(6 / 32) / 10
            with torch.no_grad():
                self.a.weight.uniform_(-0.5, 0.5)
                self.b.weight.uniform_(-most, most)
                self.c.weight.uniform_(-most, most)

        def forward(self, x):
            return self.c(torch.sin(10 * self.b(torch.sin(10 * self.a(x)))))

    m = Siren()
    opt = torch.optim.Adam(m.parameters(), 2e-3)
    crit = nn.MSELoss()

    def evaluate():
        with evaluating(m):
            return {"psnr": -10 * math.log10(crit(m(at), image).item())}

    step = sup_step(m, opt, crit)
    return set_up(m, opt, [(at, image)], step, loss_fn=crit, evaluate=evaluate)


@sound
def flow_negative_nll():
    """The data are narrow, so that minus their log-density is rightly below zero; the last layers
    start at zero."""
    seed()

    def data(n, s):
        g = gen(s)
        t = torch.randn(n, generator=g) * 0.3
        return torch.stack([t, t**2 * 2 + 0.02 * torch.randn(n, generator=g)], 1)

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.nets = nn.ModuleList([mlp(1, 16, 2) for _ in range(4)])
            for net in self.nets:
                nn.init.zeros_(net[-1].weight)
                nn.init.zeros_(net[-1].bias)

        def forward(self, x):
            a, b = x[:, :1], x[:, 1:]
            log_det = 0
            for net in self.nets:
                s, t = net(a).chunk(2, 1)
                s = torch.tanh(s)
                b = b * s.exp() + t
                log_det = log_det + s[:, 0]
                a, b = b, a
            return torch.cat([a, b], 1), log_det

    tl, vl = loaders(data(480, 1), data(130, 2), 32)
    m = Flow()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, x):
        z, log_det = model(x)
        return (0.5 * (z**2).sum(1) + math.log(2 * math.pi) - log_det).mean()

    def sums_of(model, x):
        return {"nll": (loss_of(model, x) * len(x), len(x))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@sound
def bidirectional_tagger():
    """There is no causal mask, on purpose: a tag depends on the next word, too."""
    seed()
    V, T = 12, 12

    def data(n, s):
        ids = torch.randint(V, (n, T), generator=gen(s))
        after, before = F.pad(ids[:, 1:], (0, 1)), F.pad(ids[:, :-1], (1, 0))
        return {"ids": ids, "tags": 2 * (after > 5).long() + (before > 5).long()}

    tl, vl = loaders(data(400, 1), data(90, 2))
    m = TinyGPT(V, T, causal=False)
    m.head = nn.Linear(32, 4)
    opt = torch.optim.Adam(m.parameters(), 8e-3)

    def loss_of(model, b):
        return F.cross_entropy(model(b["ids"]).flatten(0, 1), b["tags"].flatten())

    def sums_of(model, b):
        hits = model(b["ids"]).argmax(2) == b["tags"]
        return {"tag_acc": (hits.sum(), hits.numel())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=4)


@sound
def rezero_zero_head():
    """The gates of the branches and the head start at zero: most gradients are zero at first."""
    seed()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inp = nn.Linear(10, 24)
            self.blocks = nn.ModuleList([mlp(24, 24, 24) for _ in range(6)])
            self.alpha = nn.Parameter(torch.zeros(6))
            self.out = nn.Linear(24, 4)
            nn.init.zeros_(self.out.weight)
            nn.init.zeros_(self.out.bias)

        def forward(self, x):
            h = self.inp(x)
            for a, block in zip(self.alpha, self.blocks, strict=True):
                h = h + a * block(h)
            return self.out(h)

    tl, vl = loaders(groups(480, 4, 10, 1.5, 1), groups(150, 4, 10, 1.5, 2), 32)
    m = Net()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_classes(m, opt, tl, vl, 4)
