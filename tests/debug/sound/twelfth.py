"""Ten of the twelfth set, of unusual make, by an author who had not read the doctor."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.twelfth.kit import (
    G,
    loader,
    markov,
    mean_loss,
    mlp,
    pack,
    plain_step,
    pretrained,
    regression,
    seed,
)
from tests.debug.sound.programs import sound


@sound
def accum_micro():
    """An update is 4 micro-batches with the loss divided by 4; clipping once, after the last."""
    seed(100)
    g = G(100)
    x, y = regression(g)
    m = mlp(10, 48, 3)
    opt = torch.optim.AdamW(m.parameters(), 3e-3)
    lf = nn.SmoothL1Loss()
    tr, va = loader(x[:640], y[:640], bs=32), loader(x[640:], y[640:], bs=80, shuffle=False)

    def train_step(b):
        m.train()
        tot = 0.0
        for xb, yb in zip(b[0].chunk(4), b[1].chunk(4), strict=False):
            loss = lf(m(xb), yb) / 4
            loss.backward()
            tot += loss.item()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        return tot

    return pack(
        m,
        opt,
        tr,
        loss_fn=lf,
        step=train_step,
        val_loader=va,
        declared={"accumulate": 4, "max_grad_norm": 1.0},
        evaluate=lambda: {"val_loss": mean_loss(m, va, lambda m, b: lf(m(b[0]), b[1]))},
    )


@sound
def frozen_bn_eval():
    """Linear probe on a frozen batch-norm backbone that overrides train() to stay in eval mode."""
    seed(101)
    g = G(101)
    body, _, x, _ = pretrained(g, bn=True)
    body.requires_grad_(False)
    y = (x[:, 0] + x[:, 1] > 0).long()

    class Probe(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = body, nn.Linear(32, 2)

        def train(self, mode=True):
            super().train(mode)
            self.body.eval()
            return self

        def forward(self, x):
            with torch.no_grad():
                h = self.body(x)
            return self.head(h)

    m = Probe()
    opt = torch.optim.Adam(m.head.parameters(), 1e-2)
    lf = nn.CrossEntropyLoss(label_smoothing=0.1)
    tr, va = loader(x[:450], y[:450]), loader(x[450:], y[450:], bs=50, shuffle=False)

    def evaluate():
        m.eval()
        with torch.no_grad():
            return {
                "val_acc": np.mean([(m(a).argmax(1) == b).float().mean().item() for a, b in va])
            }

    return pack(
        m,
        opt,
        tr,
        loss_fn=lf,
        val_loader=va,
        evaluate=evaluate,
        num_classes=2,
        declared={
            "frozen": [n for n, p in m.named_parameters() if not p.requires_grad],
            "label_smoothing": 0.1,
        },
    )


@sound
def poisson_sum():
    """Count regression: Poisson NLL, reduction='sum', tiny learning rate, loss may be negative."""
    seed(102)
    g = G(102)
    x = torch.randn(800, 6, generator=g)
    y = torch.poisson((0.8 + x @ torch.randn(6, generator=g) * 0.4).exp(), generator=g)[:, None]
    m = nn.Linear(6, 1)
    opt = torch.optim.SGD(m.parameters(), 2e-4)
    lf = nn.PoissonNLLLoss(log_input=True, reduction="sum")
    tr, va = loader(x[:640], y[:640]), loader(x[640:], y[640:], bs=80, shuffle=False)
    return pack(
        m,
        opt,
        tr,
        loss_fn=lf,
        val_loader=va,
        evaluate=lambda: {
            "val_nll_per_row": mean_loss(m, va, lambda m, b: lf(m(b[0]), b[1]) / len(b[0]))
        },
    )


@sound
def maximise_pg():
    """Policy gradient with optimizer(maximize=True): the surrogate is a gain, not a loss, and its
    value need not fall."""
    seed(103)
    g = G(103)
    W = torch.randn(5, 3, generator=g)
    obs = torch.randn(960, 5, generator=g)

    def pay(o, a):
        return (o @ W).gather(1, a[:, None])[:, 0]

    m = mlp(5, 32, 3, nn.Tanh)
    opt = torch.optim.Adam(m.parameters(), 3e-3, maximize=True)
    tr = loader(obs, bs=64)

    def loss_of(m, b):
        d = torch.distributions.Categorical(logits=m(b[0]))
        a = d.sample()
        r = pay(b[0], a)
        return (d.log_prob(a) * (r - r.mean())).mean() + 0.01 * d.entropy().mean()

    ev = torch.randn(300, 5, generator=g)

    def evaluate():
        with torch.no_grad():
            return {"mean_reward": pay(ev, m(ev).argmax(1)).mean().item()}

    return pack(m, opt, tr, loss_of, evaluate=evaluate)


@sound
def masked_words_seen_both_ways():
    """BERT-style: attention is bidirectional on purpose, only the 15% masked positions are scored
    (-100 elsewhere)."""
    seed(104)
    g = G(104)
    V, T, MASK = 17, 14, 16
    x, _ = markov(16, 500, T, g, 4.0)

    class Enc(nn.Module):
        def __init__(self, d=32):
            super().__init__()
            self.e, self.p = nn.Embedding(V, d), nn.Parameter(torch.randn(T, d) * 0.1)
            self.qkv, self.n, self.ff, self.o = (
                nn.Linear(d, 3 * d),
                nn.LayerNorm(d),
                mlp(d, 64, d, nn.GELU),
                nn.Linear(d, V),
            )

        def forward(self, i):
            h = self.e(i) + self.p
            q, k, v = self.qkv(h).chunk(3, -1)
            h = h + F.scaled_dot_product_attention(q, k, v)
            return self.o(h + self.ff(self.n(h)))

    m = Enc()
    opt = torch.optim.AdamW(m.parameters(), 4e-3)

    def collate(items):
        ids = torch.stack([t for (t,) in items])
        hit = torch.rand(ids.shape) < 0.15
        hit[:, 0] |= ~hit.any(1)
        return {"input_ids": ids.masked_fill(hit, MASK), "labels": ids.masked_fill(~hit, -100)}

    tr = loader(x[:420], bs=16, collate_fn=collate)
    va = list(loader(x[420:], bs=40, shuffle=False, collate_fn=collate))

    def loss_of(m, b):
        return F.cross_entropy(m(b["input_ids"]).transpose(1, 2), b["labels"], ignore_index=-100)

    return pack(
        m,
        opt,
        tr,
        loss_of,
        val_loader=va,
        evaluate=lambda: {"val_mlm_loss": mean_loss(m, va, loss_of)},
    )


@sound
def tied_autoencoder():
    """Auto-encoder with decoder weight = encoder weight transposed; target is the input."""
    seed(105)
    g = G(105)
    x = torch.randn(600, 4, generator=g) @ torch.randn(4, 24, generator=g)

    class AE(nn.Module):
        def __init__(self):
            super().__init__()
            self.W = nn.Parameter(torch.randn(4, 24) * 0.1)
            self.b, self.c = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(24))

        def forward(self, x):
            return F.linear(F.linear(x, self.W, self.b), self.W.t(), self.c)

    m = AE()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tr, va = loader(x[:500]), loader(x[500:], bs=100, shuffle=False)

    def loss_of(m, b):
        return F.mse_loss(m(b[0]), b[0])

    return pack(
        m, opt, tr, loss_of, val_loader=va, evaluate=lambda: {"val_mse": mean_loss(m, va, loss_of)}
    )


@sound
def wgan_gp():
    """WGAN-GP: 3 critic updates per generator update, gradient penalty with create_graph, negative
    losses."""
    seed(106)
    g = G(106)
    x = torch.randn(900, 2, generator=g) @ torch.tensor([[1.0, 0.6], [0.0, 0.4]]) + torch.tensor(
        [1.0, -1.0]
    )

    class GAN(nn.Module):
        def __init__(self):
            super().__init__()
            self.G, self.D = mlp(3, 24, 2), mlp(2, 24, 1, lambda: nn.LeakyReLU(0.2))

        def forward(self, z):
            return self.G(z)

    m = GAN()
    og, od = (torch.optim.Adam(p.parameters(), 5e-3, betas=(0.0, 0.9)) for p in (m.G, m.D))
    tr = loader(x, bs=60)

    def train_step(b):
        (real,) = b
        n = len(real)
        for _ in range(3):
            with torch.no_grad():
                fake = m.G(torch.randn(n, 3))
            t = torch.rand(n, 1)
            mix = (t * real + (1 - t) * fake).requires_grad_()
            (gr,) = torch.autograd.grad(m.D(mix).sum(), mix, create_graph=True)
            ld = m.D(fake).mean() - m.D(real).mean() + 5 * ((gr.norm(dim=1) - 1) ** 2).mean()
            od.zero_grad()
            ld.backward()
            od.step()
        lg = -m.D(m.G(torch.randn(n, 3))).mean()
        og.zero_grad()
        lg.backward()
        og.step()
        return lg.item()

    def evaluate():
        with torch.no_grad():
            f = m.G(torch.randn(400, 3, generator=G(9)))
        return {
            "energy_dist": (
                2 * torch.cdist(f, x[:400]).mean()
                - torch.cdist(f, f).mean()
                - torch.cdist(x[:400], x[:400]).mean()
            ).item()
        }

    return pack(m, [og, od], tr, loss_fn=None, step=train_step, evaluate=evaluate)


@sound
def bucketed_lengths():
    """Batches are buckets of equal length (no padding, sampler fixed inside a bucket, order of
    buckets random)."""
    seed(107)
    g = G(107)
    data = []
    for L in (5, 8, 12, 17):
        x = torch.randint(0, 20, (96, L), generator=g)
        data += list(zip(x.split(16), ((x < 10).float().mean(1)).split(16), strict=False))
    va = data[::6]
    tr = DataLoader(
        [d for k, d in enumerate(data) if k % 6], batch_size=None, shuffle=True, generator=G(1)
    )

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.o = nn.Embedding(20, 12), nn.Linear(12, 1)

        def forward(self, t):
            return self.o(self.e(t).mean(1)).squeeze(-1)

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    lf = nn.MSELoss()
    return pack(
        m,
        opt,
        tr,
        loss_fn=lf,
        val_loader=va,
        evaluate=lambda: {"val_mse": mean_loss(m, va, lambda m, b: lf(m(b[0]), b[1]))},
    )


@sound
def weighted_sampler():
    """Rare class (6%) drawn with replacement by WeightedRandomSampler: training batches are
    balanced, validation is not."""
    seed(108)
    g = G(108)
    x = torch.randn(1000, 8, generator=g)
    y = ((x[:, 0] - x[:, 1] + 0.4 * torch.randn(1000, generator=g)) > 2.3).long()
    w = torch.where(y[:700] == 1, 1 / y[:700].float().mean(), 1 / (1 - y[:700].float().mean()))
    tr = DataLoader(
        TensorDataset(x[:700], y[:700]),
        32,
        sampler=torch.utils.data.WeightedRandomSampler(w, 700, generator=G(1)),
    )
    va = loader(x[700:], y[700:], bs=50, shuffle=False)
    m = mlp(8, 24, 2)
    opt = torch.optim.AdamW(m.parameters(), 3e-3)
    lf = nn.CrossEntropyLoss()

    def evaluate():
        m.eval()
        with torch.no_grad():
            p = torch.cat([m(a).argmax(1) for a, _ in va])
        t = y[700:]
        return {"balanced_acc": np.mean([(p[t == k] == k).float().mean().item() for k in (0, 1)])}

    return pack(m, opt, tr, loss_fn=lf, val_loader=va, evaluate=evaluate, num_classes=2)


@sound
def tied_lm_warmup():
    """LM with input and output embeddings tied; warm-up starts at learning rate exactly 0 and is
    stepped per batch."""
    seed(109)
    g = G(109)
    V = 16
    x, _ = markov(V, 500, 12, g)

    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.r, self.o = (
                nn.Embedding(V, 32),
                nn.GRU(32, 32, batch_first=True),
                nn.Linear(32, V, bias=False),
            )
            self.o.weight = self.e.weight
            nn.init.normal_(self.e.weight, std=0.2)

        def forward(self, i):
            return self.o(self.r(self.e(i))[0])

    m = LM()
    opt = torch.optim.AdamW(m.parameters(), 8e-3)
    sch = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: min(1.0, i / 20) * 0.999**i)
    tr, va = loader(x[:420]), loader(x[420:], bs=40, shuffle=False)

    def loss_of(m, b):
        return F.cross_entropy(m(b[0][:, :-1]).transpose(1, 2), b[0][:, 1:])

    return pack(
        m,
        opt,
        tr,
        loss_of,
        step=plain_step(m, opt, loss_of, sch),
        val_loader=va,
        scheduler=sch,
        declared={"scheduler_unit": "batch"},
        evaluate=lambda: {"val_ppl": math.exp(mean_loss(m, va, loss_of))},
    )
