"""Makers of data: flows, noise, ways, codes, switches, features."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.sound.odd_kit import G, going, keeping, mlp, still
from tests.debug.sound.programs import sound


class Coupling(nn.Module):
    def __init__(self, d, turn):
        super().__init__()
        self.net, self.turn, self.h = mlp(d // 2, 32, d), turn, d // 2
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x[:, : self.h], x[:, self.h :]
        if self.turn:
            a, b = b, a
        s, t = self.net(a).chunk(2, 1)
        s = torch.tanh(s) * 1.5
        b = b * s.exp() + t
        return torch.cat([b, a] if self.turn else [a, b], 1), s.sum(1)


def both(make, n=800, held=300, bs=50):
    return DataLoader(make(n, 1), bs, shuffle=True, generator=G(5)), DataLoader(make(held, 2), 100)


def sheet(n, s, d=10):
    z = torch.randn(n, 2, generator=G(s))
    A, B = torch.randn(2, d, generator=G(900)), torch.randn(2, d, generator=G(901))
    return (
        torch.tanh(z @ A) + 0.4 * torch.sin(z @ B) + 0.03 * torch.randn(n, d, generator=G(s + 70))
    )


@sound
def flow_that_begins_as_the_identity():
    """Coupling layers whose last weights begin at zero; exact likelihood of narrow data."""
    tl, vl = both(sheet)
    net = nn.ModuleList(Coupling(10, k % 2) for k in range(4))
    opt = torch.optim.Adam(net.parameters(), 3e-3)

    def nll(m, x):
        total = 0.0
        for c in m:
            x, s = c(x)
            total = total + s
        return 0.5 * (x**2).sum(1) + 5 * math.log(2 * math.pi) - total

    def evaluate():
        with still(net):
            return {"nats_per_dim": sum(nll(net, x).sum().item() for x in vl) / 3000}

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "loss_of": lambda m, x: nll(m, x).mean(),
        "evaluate": evaluate,
        **keeping(net=net, opt=opt),
    }


class Eps(nn.Module):
    def __init__(self, d=2):
        super().__init__()
        self.net = mlp(d + 8, 96, 96, d, act=nn.SiLU)
        self.register_buffer("f", torch.tensor([1.0, 2.0, 4.0, 8.0]))

    def forward(self, x, t):
        a = t[:, None] * self.f
        return self.net(torch.cat([x, a.sin(), a.cos()], 1))


def fixed_draws(net, vl, cost):
    """The mean held cost under times and noise from one seed."""

    def evaluate():
        g, total, n = G(123), 0.0, 0
        with still(net):
            for x in vl:
                for _ in range(4):
                    total, n = total + cost(net, x, g).sum().item(), n + len(x)
        return {"held_cost": total / n}

    return evaluate


def spots(n, s):
    g = G(s)
    a = torch.randint(5, (n,), generator=g) * (2 * math.pi / 5)
    return torch.stack([a.cos(), a.sin()], 1) * 1.4 + 0.15 * torch.randn(n, 2, generator=g)


@sound
def noise_told_at_any_time():
    """Diffusion, eps-prediction under a cosine plan; the loss soon levels off above 0."""
    tl, vl = both(spots, bs=100)
    net = Eps()
    opt = torch.optim.AdamW(net.parameters(), 2e-3)

    def cost(m, x, g=None):
        t = torch.rand(len(x), generator=g)
        e = torch.randn(x.shape, generator=g)
        a = (t * math.pi / 2).cos()[:, None]
        return ((m(a * x + (1 - a**2).clamp(min=0).sqrt() * e, t) - e) ** 2).mean(1)

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "loss_of": lambda m, x: cost(m, x).mean(),
        "evaluate": fixed_draws(net, vl, cost),
        **keeping(net=net, opt=opt),
    }


@sound
def straight_ways_from_noise():
    """Flow matching: the velocity from noise to data; held cost under times and noise from one
    seed."""
    tl, vl = both(spots, bs=100)
    net = Eps()
    opt = torch.optim.Adam(net.parameters(), 3e-3)

    def cost(m, x, g=None):
        t, z = torch.rand(len(x), generator=g), torch.randn(x.shape, generator=g)
        return ((m(torch.lerp(z, x, t[:, None]), t) - (x - z)) ** 2).mean(1)

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "loss_of": lambda m, x: cost(m, x).mean(),
        "evaluate": fixed_draws(net, vl, cost),
    }


class VQ(nn.Module):
    def __init__(self, K=16, d=4):
        super().__init__()
        self.enc, self.dec = mlp(10, 64, d), mlp(d, 64, 10)
        self.register_buffer("book", 0.3 * torch.randn(K, d))
        self.register_buffer("count", torch.ones(K))
        self.register_buffer("total", self.book.clone())

    def forward(self, x):
        z = self.enc(x)
        i = torch.cdist(z, self.book).argmin(1)
        q = self.book[i]
        if self.training:
            with torch.no_grad():
                hot = F.one_hot(i, len(self.book)).float()
                self.count.lerp_(hot.sum(0), 0.1)
                self.total.lerp_(hot.T @ z, 0.1)
                self.book.copy_(self.total / self.count.clamp(min=1e-2)[:, None])
                dead = self.count < 0.05
                if dead.any():
                    new = z[torch.randint(len(z), (int(dead.sum()),))]
                    self.book[dead], self.total[dead], self.count[dead] = new, new, 1.0
        return self.dec(z + (q - z).detach()), F.mse_loss(z, q.detach())


@sound
def codes_that_follow_by_averages():
    """VQ-VAE: the book is a buffer that follows the encoder; dead codes begin again; straight
    through."""
    tl, vl = both(sheet)
    net = VQ()
    opt = torch.optim.Adam(net.parameters(), 4e-3)

    def loss_of(m, x):
        out, commit = m(x)
        return F.mse_loss(out, x) + 0.25 * commit

    def evaluate():
        with still(net):
            return {"squared_error": sum(((net(x)[0] - x) ** 2).sum().item() for x in vl) / 3000}

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "loss_of": loss_of,
        "evaluate": evaluate,
        **keeping(net=net, opt=opt),
    }


@sound
def switches_by_gumbel():
    """Eight binary-like switches of three positions by gumbel softmax, cooled from 1.5 to 0.5."""
    tl, vl = both(sheet)

    class Switches(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.dec = mlp(10, 64, 24), mlp(24, 64, 10)
            self.register_buffer("heat", torch.tensor(1.5))

        def forward(self, x):
            z = self.enc(x).view(-1, 8, 3)
            if self.training:
                h = F.gumbel_softmax(z, tau=float(self.heat), dim=2)
            else:
                h = F.one_hot(z.argmax(2), 3).float()
            return self.dec(h.flatten(1)), z.log_softmax(2)

    net = Switches()
    opt = torch.optim.Adam(net.parameters(), 4e-3)

    def loss_of(m, x):
        out, lp = m(x)
        kl = (lp.exp() * (lp + math.log(3))).sum((1, 2))
        return ((out - x) ** 2).sum(1).mean() + 0.02 * kl.mean()

    def step(x):
        net.train()
        opt.zero_grad()
        loss = loss_of(net, x)
        loss.backward()
        opt.step()
        net.heat.mul_(0.993).clamp_(min=0.5)
        return loss.item()

    def evaluate():
        with still(net):
            return {
                "squared_error_of_hard_codes": sum(((net(x)[0] - x) ** 2).sum().item() for x in vl)
                / 3000
            }

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "loss_of": loss_of,
        "train_step": step,
        "train": going(tl, step),
        "evaluate": evaluate,
        **keeping(net=net, opt=opt),
    }


@sound
def many_dear_features_seldom_used():
    """A sparse autoencoder: L1 on codes, decoder rows kept at length 1 after each step."""
    tl, vl = both(sheet)

    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.dec = (
                nn.Linear(10, 64),
                nn.Parameter(F.normalize(torch.randn(64, 10), dim=1)),
            )
            self.mid = nn.Parameter(torch.zeros(10))

        def forward(self, x):
            c = F.relu(self.enc(x - self.mid))
            return c @ self.dec + self.mid, c

    net = Sparse()
    opt = torch.optim.Adam(net.parameters(), 3e-3)

    def loss_of(m, x):
        out, c = m(x)
        return ((out - x) ** 2).sum(1).mean() + 0.05 * c.sum(1).mean()

    def step(x):
        net.train()
        opt.zero_grad()
        loss = loss_of(net, x)
        loss.backward()
        opt.step()
        with torch.no_grad():
            net.dec.copy_(F.normalize(net.dec, dim=1))
        return loss.item()

    def evaluate():
        e = used = 0
        with still(net):
            for x in vl:
                out, c = net(x)
                e, used = e + ((out - x) ** 2).sum().item(), used + (c > 0).float().sum().item()
        return {"squared_error": e / 300, "codes_used": used / 300}

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "loss_of": loss_of,
        "train_step": step,
        "train": going(tl, step),
        "evaluate": evaluate,
    }
