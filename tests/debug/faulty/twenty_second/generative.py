"""Faults of models that generate: cut gradients, mixed players, penalties, noise, signs."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_second.kit import (
    averaged,
    by_cost,
    evaluating,
    feed,
    gen,
    loaders,
    manifold,
    mlp,
    ring,
    seed,
    set_up,
    spread_from,
    squared,
)


class VAE(nn.Module):
    def __init__(self, is_cut):
        super().__init__()
        self.enc = mlp(16, 32, 4)
        self.dec = mlp(2, 32, 16)
        self.is_cut = is_cut

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, -1)
        std = (0.5 * logvar).exp()
        if not self.training:
            z = mu
        elif self.is_cut:
            z = torch.normal(mu, std)
        else:
            z = mu + std * torch.randn_like(mu)
        return self.dec(z), mu, logvar


@pair("frozen-params")
def vae_by_torch_normal(bug):
    """torch.normal(mu, std) lets no gradient of the decoder reach the encoder. After 300 steps
    recon_mse is 0.513 instead of 0.012, and kl 0."""
    seed()
    m = VAE(bug)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders((manifold(640, 1),), (manifold(202, 3),), 32)

    def divergence(mu, logvar):
        return -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(-1)

    def loss_of(model, b):
        out, mu, logvar = model(b[0])
        return (((out - b[0]) ** 2).sum(-1) / 0.1 + divergence(mu, logvar)).mean()

    def sums_of(model, b):
        out, mu, logvar = model(b[0])
        n = len(mu)
        return {
            "recon_mse": (((out - b[0]) ** 2).mean(-1).sum(), n),
            "kl": (divergence(mu, logvar).sum(), n),
        }

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("missing-zero-grad")
def gan_generator_grads_in_d(bug):
    """The critic's gradients are not cleared after the generator's turn, and its step takes those
    that help to fool it. After 3000 steps energy_distance is 1.09 instead of 0.137."""
    seed()
    G = mlp(4, 32, 32, 2)
    D = mlp(2, 32, 32, 1)
    m = nn.ModuleDict({"G": G, "D": D})
    og = torch.optim.Adam(G.parameters(), 1e-3, betas=(0.5, 0.99))
    od = torch.optim.Adam(D.parameters(), 1e-3, betas=(0.5, 0.99))
    tl = feed((ring(640, 1),), 64)
    bce = nn.BCEWithLogitsLoss()

    def step(batch):
        x = batch[0]
        one, zero = torch.ones(len(x), 1), torch.zeros(len(x), 1)
        fake = G(torch.randn(len(x), 4))
        og.zero_grad()
        od.zero_grad()
        g_loss = bce(D(fake), one)
        g_loss.backward()
        og.step()
        if not bug:
            od.zero_grad()
        d_loss = 0.5 * (bce(D(x), one) + bce(D(fake.detach()), zero))
        d_loss.backward()
        od.step()
        return (d_loss + g_loss).item()

    return set_up(m, [og, od], tl, step, evaluate=spread_from(G, ring(512, 2)))


@pair("loss-without-gradient")
def wgan_penalty_without_graph(bug):
    """The gradient penalty is made without create_graph and holds nothing back. After 300 steps
    critic_slope is 2.55 instead of 0.969."""
    seed()
    G = mlp(4, 32, 32, 2)
    D = mlp(2, 32, 32, 1)
    m = nn.ModuleDict({"G": G, "critic": D})
    og = torch.optim.Adam(G.parameters(), 1e-3, betas=(0.0, 0.9))
    od = torch.optim.Adam(D.parameters(), 1e-3, betas=(0.0, 0.9))
    tl = feed((ring(640, 1),), 32, drop_last=True)
    count = 0

    def slopes(x, has_graph):
        return torch.autograd.grad(D(x).sum(), x, create_graph=has_graph)[0].norm(dim=1)

    def penalty(real, fake):
        a = torch.rand(len(real), 1)
        x = (a * real + (1 - a) * fake).requires_grad_(True)
        return ((slopes(x, not bug) - 1) ** 2).mean()

    def step(batch):
        nonlocal count
        x = batch[0]
        fake = G(torch.randn(len(x), 4)).detach()
        loss = D(fake).mean() - D(x).mean() + 10 * penalty(x, fake)
        od.zero_grad()
        loss.backward()
        od.step()
        count += 1
        if count % 3 == 0:
            og.zero_grad()
            (-D(G(torch.randn(len(x), 4))).mean()).backward()
            og.step()
        return loss.item()

    score = spread_from(G, ring(512, 2))

    def evaluate():
        x = ring(512, 2).requires_grad_(True)
        return score() | {"critic_slope": slopes(x, False).mean().item()}

    return set_up(m, [og, od], tl, step, evaluate=evaluate)


@pair("wrong-targets")
def denoiser_learns_its_input(bug):
    """The output is compared with the noisy input, and the clean target is not used. After 300
    steps mse_to_clean is 0.246 instead of 0.048."""
    seed()

    def data(n, s):
        clean = manifold(n, s)
        return clean + 0.5 * torch.randn(clean.shape, generator=gen(s + 7)), clean

    m = mlp(16, 64, 16)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(data(960, 1), data(202, 3), 32)

    def loss_of(model, b):
        noisy, clean = b
        return F.mse_loss(model(noisy), noisy if bug else clean)

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=squared(m, vl, "mse_to_clean"))


class NoiseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(2 + 8, 48, 48, 2, act=nn.SiLU)

    def forward(self, x, t):
        f = t[:, None] / 50.0 * torch.tensor([1.0, 2.0, 4.0, 8.0])
        return self.net(torch.cat([x, f.sin(), f.cos()], 1))


@pair("targets-unrelated")
def denoised_against_a_second_draw(bug):
    """The noise to predict is drawn again, and is not the one that was added. After 300 steps
    noise_mse is 0.947 instead of 0.379."""
    seed()
    m = NoiseNet()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    kept = torch.cumprod(1 - torch.linspace(1e-3, 0.12, 50), 0)
    centre = torch.tensor([2.0, -1.0])
    tl, vl = loaders((ring(640, 1) - centre,), (ring(200, 2) - centre,), 64)

    def cost(model, x, g=None):
        t = torch.randint(0, 50, (len(x),), generator=g)
        noise = torch.randn(x.shape, generator=g)
        a = kept[t][:, None]
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        if bug:
            noise = torch.randn(x.shape, generator=g)
        return F.mse_loss(model(noisy, t), noise)

    def loss_of(model, b):
        return cost(model, b[0])

    def evaluate():
        g = gen(11)

        def sums_of(model, b):
            return {"noise_mse": (cost(model, b[0], g) * len(b[0]), len(b[0]))}

        return averaged(m, vl, sums_of)()

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


class Flow(nn.Module):
    def __init__(self, is_negated):
        super().__init__()
        self.nets = nn.ModuleList([mlp(1, 24, 2) for _ in range(4)])
        self.is_negated = is_negated

    def forward(self, x):
        log_det = torch.zeros(len(x))
        a, b = x[:, :1], x[:, 1:]
        for net in self.nets:
            s, t = net(a).chunk(2, 1)
            s = 1.5 * torch.tanh(s)
            b = b * s.exp() + t
            log_det = log_det - s[:, 0] if self.is_negated else log_det + s[:, 0]
            a, b = b, a
        return torch.cat([a, b], 1), log_det


@pair("loss-negated")
def flow_log_det_sign(bug):
    """The log-determinant has the wrong sign: all points are squeezed together. After 300 steps nll
    is -4.15 instead of 1.5, and z_std 0.054 instead of 0.808."""
    seed()
    m = Flow(bug)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders((ring(640, 1),), (ring(200, 2),), 64)

    def nll(model, b):
        z, log_det = model(b[0])
        return 0.5 * (z**2).sum(1) + math.log(2 * math.pi) - log_det

    def loss_of(model, b):
        return nll(model, b).mean()

    def sums_of(model, b):
        return {"nll": (nll(model, b).sum(), len(b[0]))}

    mean = averaged(m, vl, sums_of)

    def evaluate():
        """z_std is about 1 for a fitted flow."""
        scores = mean()
        with evaluating(m):
            return scores | {"z_std": m(ring(200, 2))[0].std().item()}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)
