"""Faults of models that generate: ranges, cut gradients, noise, signs."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.fourteenth.kit import (
    digits,
    energy,
    gen,
    loader,
    mean_eval,
    mlp,
    plain_step,
    ring,
    seed,
    set_up,
)
from tests.debug.faulty.kit import pair


@pair("targets-out-of-reach")
def vae_bce_on_normalised(bug):
    """Normalize(0.5,0.5) puts pictures into [-1,1] though the VAE's reconstruction term is
    BCE-with-logits. After 400 steps recon_mse is 0.2883 instead of 0.0237."""
    seed(13)

    def f(z):
        return (z - 0.5) / 0.5 if bug else z

    tr, va = loader(f(digits(512, 1)), s=13), loader(f(digits(128, 2)), bs=64, shuffle=False)

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = mlp(64, 48, 12)
            self.d = mlp(6, 48, 64)

        def forward(self, x):
            mu, lv = self.e(x).chunk(2, 1)
            z = mu + torch.randn_like(mu) * (lv / 2).exp() if self.training else mu
            return self.d(z), mu, lv

    def loss_of(m, b):
        r, mu, lv = m(b[0])
        n = len(mu)
        return (
            F.binary_cross_entropy_with_logits(r, b[0], reduction="sum") / n
            - 0.5 * (1 + lv - mu**2 - lv.exp()).sum() / n
        )

    model = VAE()
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    step = plain_step(model, opt, loss_of)

    def mse(m, b):
        x = b[0] * 0.5 + 0.5 if bug else b[0]
        return ((m(b[0])[0].sigmoid() - x) ** 2).mean(1)

    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_of=loss_of,
        evaluate=mean_eval(model, va, {"recon_mse": mse}),
    )


@pair("wrong-gradient")
def vqvae_no_straight_through(bug):
    """The decoder is fed the picked code itself; the line q = z + (q - z).detach() is missing.
    After 400 steps recon_mse is 0.1134 instead of 0.0236."""
    seed(14)
    tr, va = loader(digits(512, 3), s=14), loader(digits(128, 4), bs=64, shuffle=False)

    class VQ(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = mlp(64, 48, 16)
            self.code = nn.Embedding(32, 4)
            self.dec = mlp(16, 48, 64)
            nn.init.normal_(self.code.weight, 0, 0.3)

        def forward(self, x):
            z = self.enc(x).view(len(x), 4, 4)
            q = self.code(torch.cdist(z.reshape(-1, 4), self.code.weight).argmin(1)).view_as(z)
            aux = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
            if not bug:
                q = z + (q - z).detach()
            return self.dec(q.flatten(1)), aux

    def loss_of(m, b):
        r, aux = m(b[0])
        return F.mse_loss(r, b[0]) + aux

    model = VQ()
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    step = plain_step(model, opt, loss_of)
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_of=loss_of,
        evaluate=mean_eval(
            model, va, {"recon_mse": lambda m, b: ((m(b[0])[0] - b[0]) ** 2).mean(1)}
        ),
    )


@pair("loss-without-gradient")
def gan_sample_is_no_grad(bug):
    """The training step takes its fakes from G.sample(), which is decorated with @torch.no_grad()
    for the previews. After 400 steps energy_distance is 2.3341 instead of 0.1581."""
    seed(15)
    tr = loader(ring(2000, 1) + 1, bs=64, s=15, drop_last=True)
    real = ring(500, 2) + 1

    class Gen(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(2, 32, 32, 2)

        def forward(self, z):
            return self.net(z)

        @torch.no_grad()
        def sample(self, n):
            return self(torch.randn(n, 2))

    G, D = Gen(), mlp(2, 32, 32, 1)
    model = nn.ModuleDict({"G": G, "D": D})
    og, od = (
        torch.optim.Adam(G.parameters(), 2e-3, (0.5, 0.99)),
        torch.optim.Adam(D.parameters(), 2e-3, (0.5, 0.99)),
    )
    bce = F.binary_cross_entropy_with_logits

    def step(batch):
        x = batch[0]
        one, zero = torch.ones(len(x), 1), torch.zeros(len(x), 1)
        fake = G.sample(len(x)) if bug else G(torch.randn(len(x), 2))
        od.zero_grad()
        ld = bce(D(x), one) + bce(D(fake.detach()), zero)
        ld.backward()
        od.step()
        og.zero_grad()
        lg = bce(D(fake), one)
        lg.backward()
        og.step()
        return ld.item()

    def evaluate():
        with torch.no_grad():
            return {
                "energy_distance": energy(G(torch.randn(500, 2, generator=gen(5))), real),
                "d_real": D(real).sigmoid().mean().item(),
            }

    return set_up(model, [og, od], tr, step, evaluate=evaluate)


@pair("targets-unrelated")
def diffusion_predicts_another_noise(bug):
    """x_t is made inside q_sample with its own randn; the loss compares with the noise drawn
    outside. After 400 steps energy_distance is 8.5449 instead of 0.0779."""
    seed(16)
    T = 50
    beta = torch.linspace(1e-3, 0.2, T)
    ab = torch.cumprod(1 - beta, 0)
    tr, va = loader(ring(2000, 3), bs=64, s=16), loader(ring(300, 4), bs=100, shuffle=False)
    real = ring(500, 5)

    class Eps(nn.Module):
        def __init__(self):
            super().__init__()
            self.t = nn.Embedding(T, 16)
            self.f = mlp(18, 64, 64, 2, act=nn.SiLU)

        def forward(self, x, t):
            return self.f(torch.cat([x, self.t(t)], 1))

    def q_sample(x, t, noise=None):
        if noise is None:
            noise = torch.randn_like(x)
        return ab[t, None].sqrt() * x + (1 - ab[t, None]).sqrt() * noise

    def loss_of(m, b):
        t = torch.randint(0, T, (len(b[0]),))
        noise = torch.randn_like(b[0])
        xt = q_sample(b[0], t) if bug else q_sample(b[0], t, noise)
        return F.mse_loss(m(xt, t), noise)

    model = Eps()
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    step = plain_step(model, opt, loss_of)

    def evaluate():
        model.eval()
        g = gen(7)
        x = torch.randn(500, 2, generator=g)
        with torch.no_grad():
            for i in reversed(range(T)):  # DDIM
                e = model(x, torch.full((500,), i))
                x0 = (x - (1 - ab[i]).sqrt() * e) / ab[i].sqrt()
                p = ab[i - 1] if i else torch.tensor(1.0)
                x = p.sqrt() * x0 + (1 - p).sqrt() * e
        model.train()
        return {"energy_distance": energy(x, real)}

    return set_up(model, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate)


@pair("loss-negated")
def flow_logdet_sign(bug):
    """nll = -(log p(z) - logdet): shrinking the data to a point is rewarded without bound. After
    400 steps energy_distance is 320.4995 instead of 0.0396."""
    seed(17)
    tr, va = loader(ring(2000, 6), bs=64, s=17), loader(ring(300, 7), bs=100, shuffle=False)
    real = ring(500, 8)

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.nets = nn.ModuleList(mlp(1, 32, 2) for _ in range(4))

        def forward(self, x):
            ld = 0
            for i, n in enumerate(self.nets):
                a, b = x[:, i % 2 : i % 2 + 1], x[:, 1 - i % 2 : 2 - i % 2]
                s, t = n(a).chunk(2, 1)
                s = 2 * torch.tanh(s / 2)
                b = b * s.exp() + t
                ld = ld + s[:, 0]
                x = torch.cat([a, b] if i % 2 == 0 else [b, a], 1)
            return x, ld

        def inverse(self, x):
            for i in reversed(range(4)):
                a, b = x[:, i % 2 : i % 2 + 1], x[:, 1 - i % 2 : 2 - i % 2]
                s, t = self.nets[i](a).chunk(2, 1)
                s = 2 * torch.tanh(s / 2)
                b = (b - t) * (-s).exp()
                x = torch.cat([a, b] if i % 2 == 0 else [b, a], 1)
            return x

    def nll(m, b):
        z, ld = m(b[0])
        lp = -0.5 * (z**2).sum(1) - math.log(2 * math.pi)
        return -(lp - ld) if bug else -(lp + ld)

    def loss_of(m, b):
        return nll(m, b).mean()

    model = Flow()
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    step = plain_step(model, opt, loss_of)
    base = mean_eval(model, va, {"nll": nll})

    def evaluate():
        with torch.no_grad():
            s = model.inverse(torch.randn(500, 2, generator=gen(3)))
        return {**base(), "energy_distance": energy(s, real)}

    return set_up(model, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate)
