"""Ten of the nineteenth set, of unusual make, by someone who had not seen the doctor."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.nineteenth.kit import (
    Block,
    averaged,
    blobs,
    by_cost,
    by_neighbours,
    by_pairs,
    clipped,
    clusters,
    evaluating,
    feed,
    fit,
    frozen,
    gen,
    language,
    loaders,
    lowrank,
    markov,
    mlp,
    plain_step,
    seed,
    set_up,
    squared,
    wave,
    windows,
)
from tests.debug.sound.programs import sound
from tests.debug.sound.sixteenth_loops import Reversed


@sound
def albert_shared_block():
    """One block is applied three times on purpose, with the same weights."""
    seed(1)
    V = 10
    tr = markov(256, 13, V, gen(1))
    va = markov(100, 13, V, gen(2))

    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(V, 16)
            self.pos = nn.Embedding(12, 16)
            self.blocks = nn.ModuleList([Block(16)] * 3)
            self.norm = nn.LayerNorm(16)
            self.head = nn.Linear(16, V)
            self.register_buffer("allowed", torch.ones(12, 12, dtype=torch.bool).tril())

        def forward(self, ids):
            x = self.emb(ids) + self.pos.weight[: ids.shape[1]]
            for b in self.blocks:
                x = b(x, self.allowed)
            return self.head(self.norm(x))

    m = LM()
    opt = torch.optim.AdamW(m.parameters(), 3e-3)
    tl, vl = loaders(tr, va, 16, vbs=40)

    return language(m, opt, tl, vl, V)


@sound
def tied_softmax_gru():
    """The output layer is the embedding itself, and the token of padding is ignored by the loss."""
    seed(2)
    V = 11

    def data(n, g):
        s = markov(n, 15, V - 1, g) + 1
        ln = torch.randint(6, 16, (n,), generator=g)
        s[torch.arange(15)[None] >= ln[:, None]] = 0
        return {"input_ids": s[:, :-1], "targets": s[:, 1:]}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(V, 24)
            self.rnn = nn.GRU(24, 24, batch_first=True)
            self.out = nn.Linear(24, V)
            nn.init.normal_(self.emb.weight, 0, 0.2)
            self.out.weight = self.emb.weight

        def forward(self, ids):
            return self.out(self.rnn(self.emb(ids))[0])

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(data(384, gen(1)), data(100, gen(2)), vbs=40)

    def cost(model, b, reduction="mean"):
        out = model(b["input_ids"]).transpose(1, 2)
        return F.cross_entropy(out, b["targets"], ignore_index=0, reduction=reduction)

    def sums_of(model, b):
        return {"val_loss": (cost(model, b, "sum"), (b["targets"] != 0).sum())}

    return by_cost(m, opt, tl, vl, cost, sums_of, **clipped(m, opt, cost, 1.0))


@sound
def echo_reservoir():
    """A fixed random recurrent layer, of which only the read-out is trained."""
    seed(3)
    t = torch.arange(1000.0)
    s = torch.sin(t / 7) * torch.cos(t / 19) + 0.05 * torch.randn(1000, generator=gen(1))

    class ESN(nn.Module):
        def __init__(self):
            super().__init__()
            self.res = nn.RNN(1, 40, batch_first=True)
            self.read = nn.Linear(40, 1)
            with torch.no_grad():
                w = self.res.weight_hh_l0
                w.mul_(0.9 / torch.linalg.eigvals(w).abs().max())
            self.res.requires_grad_(False)

        def forward(self, x):
            return self.read(self.res(x)[0][:, -1])

    m = ESN()
    opt = torch.optim.Adam(m.read.parameters(), 1e-2)
    crit = nn.MSELoss()
    tl, vl = loaders(*(windows(part, 20, 20) for part in (s[:700], s[700:])))
    more = {"evaluate": squared(m, vl), "declared": {"frozen": frozen(m)}}
    return by_pairs(m, opt, tl, vl, crit, **more)


@sound
def heteroscedastic_nll():
    """The likelihood of narrow bells: the loss is rightly below zero."""
    seed(6)

    def data(n, g):
        x = torch.rand(n, 1, generator=g) * 2 - 1
        spread = (0.02 + 0.08 * x.abs()) * torch.randn(n, 1, generator=g)
        return x, 0.3 * torch.sin(3 * x) + spread

    m = mlp(1, 32, 32, 2, act=nn.Tanh)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(data(512, gen(1)), data(150, gen(2)))

    def crit(o, y, reduction="mean"):
        return F.gaussian_nll_loss(o[:, :1], y, F.softplus(o[:, 1:]) + 1e-4, reduction=reduction)

    def sums_of(model, b):
        return {"val_nll": (crit(model(b[0]), b[1], "sum"), len(b[0]))}

    return by_pairs(m, opt, tl, vl, crit, evaluate=averaged(m, vl, sums_of))


@sound
def mean_of_twenty_passes():
    """Dropout stays on in evaluate(), which averages twenty passes."""
    seed(10)
    m = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.MSELoss()
    va = wave(150, gen(2))
    tl, vl = loaders(wave(512, gen(1)), va)

    def evaluate():
        with evaluating(m), torch.random.fork_rng():
            torch.manual_seed(5)
            m[2].train()
            s = torch.stack([m(va[0]) for _ in range(20)])
        return {
            "val_mse": float(F.mse_loss(s.mean(0), va[1])),
            "predictive_std": float(s.std(0).mean()),
        }

    return by_pairs(m, opt, tl, vl, crit, evaluate=evaluate)


@sound
def linear_probe_bn_eval():
    """train() is overridden to keep a frozen backbone in eval mode, batch norm included."""
    seed(11)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(nn.Linear(10, 48), nn.BatchNorm1d(48), nn.ReLU())
            self.head = nn.Linear(48, 4)

        def train(self, mode=True):
            super().train(mode)
            self.backbone.eval()
            return self

        def forward(self, x):
            with torch.no_grad():
                h = self.backbone(x)
            return self.head(h)

    m = Net()
    crit = nn.CrossEntropyLoss()
    tr = blobs(384, gen(1))
    nn.Module.train(m, True)
    probe = nn.Linear(48, 4)
    old = nn.Sequential(m.backbone, probe)
    fitting = torch.optim.Adam(old.parameters(), 5e-3)
    fit(old, fitting, crit, *blobs(256, gen(3), key=103), steps=40)
    m.backbone.requires_grad_(False)
    m.zero_grad(set_to_none=True)
    m.train()
    opt = torch.optim.Adam(m.head.parameters(), 1e-2)
    tl, vl = loaders(tr, blobs(150, gen(2)))
    declared = {"frozen": frozen(m)}
    return by_pairs(m, opt, tl, vl, crit, num_classes=4, declared=declared)


@sound
def features_against_domains():
    """The gradient of the domains' loss is turned round, which should not fall."""
    seed(14)

    m = nn.ModuleDict(
        {"f": nn.Sequential(mlp(10, 32, 16), nn.ReLU()), "y": nn.Linear(16, 4), "d": mlp(16, 16, 1)}
    )
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    sx, sy = blobs(384, gen(1))
    tx, _ = blobs(384, gen(3), shift=0.7)
    vl = feed(blobs(150, gen(2), shift=0.7), 64, shuffle=False)
    tl = feed({"source": sx, "label": sy, "target": tx})

    def loss_of(model, b):
        hs = model["f"](b["source"])
        ht = model["f"](b["target"])
        d = model["d"](Reversed.apply(torch.cat([hs, ht]))).squeeze(1)
        want = torch.cat([torch.ones(len(hs)), torch.zeros(len(ht))])
        of_domain = F.binary_cross_entropy_with_logits(d, want)
        return F.cross_entropy(model["y"](hs), b["label"]) + of_domain

    def sums_of(model, b):
        hits = model["y"](model["f"](b[0])).argmax(1) == b[1]
        return {"target_acc": (hits.sum(), len(hits))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=4)


@sound
def lora_zero_b():
    """One of two low-rank factors begins at zero, so that the other has no gradient in the first
    step; the base is frozen."""
    seed(17)
    crit = nn.MSELoss()
    base = mlp(5, 48, 1)
    fit(base, torch.optim.Adam(base.parameters(), 1e-2), crit, *wave(256, gen(3)), steps=50)

    class LoRA(nn.Module):
        def __init__(self, lin, r=4):
            super().__init__()
            self.lin = lin.requires_grad_(False)
            self.A = nn.Parameter(torch.randn(r, lin.in_features) / math.sqrt(lin.in_features))
            self.B = nn.Parameter(torch.zeros(lin.out_features, r))

        def forward(self, x):
            return self.lin(x) + x @ self.A.T @ self.B.T

    base.zero_grad(set_to_none=True)
    m = nn.Sequential(LoRA(base[0]), nn.ReLU(), LoRA(base[2]))
    opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], 1e-2)

    def data(n, g):
        x, y = wave(n, g)
        return x, y + 0.8 * x[:, 3:4]

    tl, vl = loaders(data(512, gen(1)), data(150, gen(2)))
    more = {"evaluate": squared(m, vl), "declared": {"frozen": frozen(m)}}
    return by_pairs(m, opt, tl, vl, crit, **more)


@sound
def vq_autoencoder():
    """The gradient goes straight through the nearest code, and the codes move by averages, without
    a gradient."""
    seed(19)

    class VQ(nn.Module):
        def __init__(self, K=16, d=4):
            super().__init__()
            self.enc = mlp(16, 32, d)
            self.dec = mlp(d, 32, 16)
            self.register_buffer("code", 0.3 * torch.randn(K, d))
            self.register_buffer("n", torch.ones(K))
            self.register_buffer("sum", self.code.clone())

        def forward(self, x):
            z = self.enc(x)
            i = torch.cdist(z.detach(), self.code).argmin(1)
            q = self.code[i]
            if self.training:
                with torch.no_grad():
                    h = F.one_hot(i, len(self.code)).float()
                    self.n.lerp_(h.sum(0), 0.05)
                    self.sum.lerp_(h.T @ z, 0.05)
                    q_new = self.sum / self.n.clamp_min(1e-3)[:, None]
                    self.code.copy_(torch.where(self.n[:, None] > 1e-2, q_new, self.code))
            return self.dec(z + (q - z).detach()), (z - q.detach()).pow(2).mean(1)

    m = VQ()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(lowrank(512, gen(1)), lowrank(128, gen(2)), vbs=50)

    def loss_of(model, x):
        r, c = model(x)
        return F.mse_loss(r, x) + 0.25 * c.mean()

    def sums_of(model, x):
        return {"val_mse": ((model(x)[0] - x).pow(2).mean(1).sum(), len(x))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@sound
def simcse_same_input_twice():
    """Both views are the same input on purpose; dropout makes them differ."""
    seed(20)
    x, y = clusters(384, gen(1))
    vx, vy = clusters(150, gen(2))
    x[:, 4:] *= 0.1
    vx[:, 4:] *= 0.1
    m = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, 16))
    opt = torch.optim.Adam(m.parameters(), 1e-3)
    tl = feed(x, 32)

    def loss_of(model, x):
        a = F.normalize(model(x), dim=1)
        b = F.normalize(model(x), dim=1)
        return F.cross_entropy(a @ b.T / 0.2, torch.arange(len(x)))

    evaluate = by_neighbours(m, (x, y), (vx, vy))
    return set_up(m, opt, tl, plain_step(m, opt, loss_of), loss_of=loss_of, evaluate=evaluate)
