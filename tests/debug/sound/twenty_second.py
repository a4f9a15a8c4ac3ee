"""Ten of the twenty-second set, of unusual make, by someone who had not seen the doctor."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from tests.debug.faulty.twenty_second.kit import (
    Forecaster,
    TinyLM,
    averaged,
    blobs,
    by_classes,
    by_cost,
    by_pairs,
    feed,
    gen,
    loaders,
    manifold,
    mlp,
    right,
    ring,
    seed,
    set_up,
    spread_from,
    successors,
    towers,
    waves,
)
from tests.debug.sound.programs import sound
from tests.debug.sound.sixteenth_loops import Reversed


@sound
def masked_lm_of_hidden_quarters():
    """There is no causal mask, on purpose: inputs and targets are the same tokens, and only those
    that are hidden count."""
    seed()
    V, T = 12, 12
    m = TinyLM(V + 1, T, causal=False)
    opt = torch.optim.AdamW(m.parameters(), 5e-3)
    tl, vl = loaders({"ids": successors(640, T, V, 1)}, {"ids": successors(200, T, V, 2)}, 24)

    def hidden(model, b, g=None):
        """What is told of the hidden tokens, and these."""
        ids = b["ids"]
        is_hidden = torch.rand(ids.shape, generator=g) < 0.25
        is_hidden[:, 3] |= ~is_hidden.any(1)
        return model(ids.masked_fill(is_hidden, V))[is_hidden], ids[is_hidden]

    def loss_of(model, b):
        return F.cross_entropy(*hidden(model, b))

    def evaluate():
        g = gen(3)

        def sums_of(model, b):
            out, y = hidden(model, b, g)
            nll = {"masked_nll": (F.cross_entropy(out, y, reduction="sum"), len(y))}
            return nll | right(out, y, "masked_accuracy")

        return averaged(m, vl, sums_of)()

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


class Windows(Dataset):
    """Windows of 8 streams side by side, in order; `first` marks the start of a pass."""

    def __init__(self, n, s):
        tokens = successors(8, n * 12 + 1, 12, s)
        starts = range(0, n * 12, 12)
        self.windows = [(tokens[:, i : i + 12], tokens[:, i + 1 : i + 13]) for i in starts]

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, i):
        x, y = self.windows[i]
        return {"x": x, "y": y, "first": i == 0}


@sound
def stateful_gru():
    """Windows come in order, and the state is carried, detached, from batch to batch."""
    seed()
    emb = nn.Embedding(12, 12)
    rnn = nn.GRU(12, 24, batch_first=True)
    out = nn.Linear(24, 12)
    m = nn.ModuleDict({"emb": emb, "rnn": rnn, "out": out})
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl = DataLoader(Windows(40, 1), batch_size=None, shuffle=False)
    vl = DataLoader(Windows(12, 2), batch_size=None, shuffle=False)
    state = None

    def cost(b, h, reduction="mean"):
        o, h = rnn(emb(b["x"]), h)
        told = out(o).flatten(0, 1)
        return F.cross_entropy(told, b["y"].flatten(), reduction=reduction), h.detach()

    def step(b):
        nonlocal state
        m.train()
        if b["first"]:
            state = None
        loss, state = cost(b, state)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        h = None

        def sums_of(model, b):
            nonlocal h
            loss, h = cost(b, h, "sum")
            return {"nll": (loss, b["y"].numel())}

        return averaged(m, vl, sums_of)()

    return set_up(m, opt, tl, step, evaluate=evaluate, val_loader=vl)


@sound
def hinge_gan_two_to_one():
    """The critic has two steps for each of the generator, under a spectral norm; the losses have
    any sign and no level to fall to."""
    seed()
    held_in = nn.utils.parametrizations.spectral_norm
    G = mlp(4, 32, 32, 2)
    D = nn.Sequential(
        held_in(nn.Linear(2, 48)),
        nn.LeakyReLU(0.2),
        nn.Linear(48, 24),
        nn.LeakyReLU(0.2),
        nn.Linear(24, 1),
    )
    og = torch.optim.Adam(G.parameters(), 1e-3, betas=(0.0, 0.9))
    od = torch.optim.Adam(D.parameters(), 2e-3, betas=(0.0, 0.9))
    tl = feed((ring(640, 1),), 32)

    def step(b):
        x = b[0]
        for _ in range(2):
            with torch.no_grad():
                fake = G(torch.randn(len(x), 4))
            od.zero_grad()
            (F.relu(1 - D(x)).mean() + F.relu(1 + D(fake)).mean()).backward()
            od.step()
        og.zero_grad()
        loss = -D(G(torch.randn(len(x), 4))).mean()
        loss.backward()
        og.step()
        return loss.item()

    m = nn.ModuleDict({"G": G, "D": D})
    return set_up(m, [og, od], tl, step, evaluate=spread_from(G, ring(512, 2)))


@sound
def reinforce_maximise():
    """The optimizer climbs (maximize=True), and what a step returns is a reward, which rises."""
    seed()
    w = torch.randn(6, 4, generator=gen(12))

    def data(n, s):
        state = torch.randn(n, 6, generator=gen(s))
        return {"state": state, "payoff": state @ w}

    m = mlp(6, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 5e-3, maximize=True)
    tl, vl = loaders(data(640, 1), data(202, 2), 64)

    def step(b):
        m.train()
        dist = torch.distributions.Categorical(logits=m(b["state"]))
        a = dist.sample()
        r = b["payoff"].gather(1, a[:, None])[:, 0]
        base = (b["payoff"] * dist.probs.detach()).sum(1)
        aim = (dist.log_prob(a) * (r - base)).mean() + 0.01 * dist.entropy().mean()
        opt.zero_grad()
        aim.backward()
        opt.step()
        return r.mean().item()

    def sums_of(model, b):
        a = model(b["state"]).argmax(1, keepdim=True)
        return {"reward": (b["payoff"].gather(1, a).sum(), len(a))}

    return set_up(m, opt, tl, step, evaluate=averaged(m, vl, sums_of), val_loader=vl)


@sound
def gaussian_nll_below_zero():
    """The spread is learnt too: the loss is a density, which rightly falls below zero."""
    seed()
    m = Forecaster()
    m.out = nn.Linear(16, 2)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    tl, vl = loaders(waves(640, 1), waves(202, 2), 32)

    def crit(out, y):
        mu, logvar = out[:, 0], out[:, 1].clamp(-8, 4)
        return 0.5 * (logvar + (y - mu) ** 2 / logvar.exp()).mean()

    def sums_of(model, b):
        out, y = model(b[0]), b[1]
        n = len(y)
        return {"nll": (crit(out, y) * n, n), "mae": ((out[:, 0] - y).abs().sum(), n)}

    return by_pairs(m, opt, tl, vl, crit, evaluate=averaged(m, vl, sums_of))


class TwoDomains(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = mlp(12, 32, 8)
        self.c = nn.Linear(8, 4)
        self.d = mlp(8, 16, 2)

    def forward(self, x):
        h = F.relu(self.f(x))
        return self.c(h), self.d(Reversed.apply(h))


@sound
def features_climb_the_domain_loss():
    """A gradient reversal: the loss of the domains is meant to stay at log 2."""
    seed()
    x, y = blobs(480, 12, 4, 1, 0.9)
    far, _ = blobs(480, 12, 4, 3, 0.9)
    vx, vy = blobs(202, 12, 4, 4, 0.9)
    shift = torch.randn(12, generator=gen(5)) * 0.7
    m = TwoDomains()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders({"source": x, "label": y, "target": far + shift}, (vx + shift, vy), 32)

    def loss_of(model, b):
        out, from_source = model(b["source"])
        _, from_target = model(b["target"])
        zero = torch.zeros(len(out), dtype=torch.long)
        domains = F.cross_entropy(from_source, zero) + F.cross_entropy(from_target, zero + 1)
        return F.cross_entropy(out, b["label"]) + 0.5 * domains

    def sums_of(model, b):
        return right(model(b[0])[0], b[1], "target_accuracy")

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=4)


class VQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = mlp(16, 32, 4)
        self.dec = mlp(4, 32, 16)
        self.code = nn.Embedding(16, 4)
        nn.init.normal_(self.code.weight, std=0.5)

    def forward(self, x):
        z = self.enc(x)
        q = self.code(torch.cdist(z, self.code.weight).argmin(1))
        return self.dec(z + (q - z).detach()), z, q


@sound
def vq_vae_straight_through():
    """detach() stands in three places on purpose, and codes that are not used get no gradient."""
    seed()
    m = VQ()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders((manifold(640, 1),), (manifold(202, 3),), 32)

    def loss_of(model, b):
        out, z, q = model(b[0])
        codes = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        return F.mse_loss(out, b[0]) + codes

    def sums_of(model, b):
        return {"recon_mse": (((model(b[0])[0] - b[0]) ** 2).mean(1).sum(), len(b[0]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Scaled(nn.Module):
    """The likeness of two towers, by a scale that is learnt."""

    def __init__(self):
        super().__init__()
        self.a = mlp(12, 32, 16)
        self.b = mlp(10, 32, 16)
        self.scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, x, y):
        return self.scale.exp() * F.normalize(self.a(x), dim=1) @ F.normalize(self.b(y), dim=1).T


@sound
def clip_learnt_temperature():
    """The scale has a rate of its own and no decay, and is held in its bounds after each step."""
    seed()
    m = Scaled()
    others = [p for name, p in m.named_parameters() if name != "scale"]
    parts = [
        {"params": others, "weight_decay": 0.05},
        {"params": [m.scale], "weight_decay": 0.0, "lr": 1e-2},
    ]
    opt = torch.optim.AdamW(parts, 3e-3)
    tl, vl = loaders(towers(640, 1), towers(160, 5), 32, drop_last=True)

    def loss_of(model, b):
        s = model(b["image"], b["text"])
        y = torch.arange(len(s))
        return 0.5 * (F.cross_entropy(s, y) + F.cross_entropy(s.T, y))

    def step(b):
        m.train()
        opt.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        opt.step()
        with torch.no_grad():
            m.scale.clamp_(0, math.log(100))
        return loss.item()

    def sums_of(model, b):
        s = model(b["image"], b["text"])
        return right(s, torch.arange(len(s)), "recall_at_1")

    return by_cost(m, opt, tl, vl, loss_of, sums_of, step=step)


class Branched(nn.Module):
    """Four branches, of which each is left out of a share of the training steps."""

    def __init__(self, drop=0.0):
        super().__init__()
        self.inp = nn.Linear(12, 16)
        self.blocks = nn.ModuleList([mlp(16, 32, 16) for _ in range(4)])
        self.head = nn.Linear(16, 4)
        self.drop = drop

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            if not (self.training and self.drop):
                h = h + block(h)
            elif torch.rand(()) >= self.drop:
                h = h + block(h) / (1 - self.drop)
        return self.head(h)


@sound
def zero_initialised_branches():
    """The last layer of each branch and the head start at zero, and so do most gradients."""
    seed()
    tl, vl = loaders(blobs(480, 12, 4, 1, 0.7), blobs(202, 12, 4, 2, 0.7), 32)
    m = Branched()
    for layer in [*(block[-1] for block in m.blocks), m.head]:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    return by_classes(m, torch.optim.AdamW(m.parameters(), 3e-3), tl, vl, 4)


@sound
def blocks_skipped_at_random():
    """Blocks that are skipped in a step have no gradient in it."""
    seed()
    tl, vl = loaders(blobs(480, 12, 4, 1, 0.7), blobs(202, 12, 4, 2, 0.7), 32)
    m = Branched(drop=0.4)
    return by_classes(m, torch.optim.SGD(m.parameters(), 0.03, momentum=0.9), tl, vl, 4)
