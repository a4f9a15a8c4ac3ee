"""Faults of generative models: spreads, sums beside means, targets, and who trains whom."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twentieth.kit import (
    averaged,
    by_cost,
    curves,
    evaluating,
    feed,
    gen,
    loaders,
    mlp,
    same_draws,
    seed,
    set_up,
)


class VAE(nn.Module):
    def __init__(self, variance_as_std=False):
        super().__init__()
        self.enc = mlp(12, 32, 6)
        self.dec = mlp(3, 32, 12)
        self.variance_as_std = variance_as_std

    def forward(self, x):
        mu, lv = self.enc(x).chunk(2, 1)
        std = lv.exp() if self.variance_as_std else (0.5 * lv).exp()
        z = mu + std * torch.randn_like(std)
        return self.dec(z), mu, lv


def divergences(mu, lv):
    return -0.5 * (1 + lv - mu**2 - lv.exp())


def summed(x, rec, mu, lv):
    """Both terms are sums for each row."""
    return 5 * ((rec - x) ** 2).sum(1).mean() + divergences(mu, lv).sum(1).mean()


def autoencoding(m, cost):
    """An autoencoder in training on what its outputs cost, scored by both of its terms."""
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(curves(480, 1), curves(110, 2), 32)

    def loss_of(model, x):
        return cost(x, *model(x))

    def sums_of(model, x):
        rec, mu, lv = model(x)
        n = len(x)
        return {
            "recon_sse": (((rec - x) ** 2).sum(), n),
            "kl_nats": (divergences(mu, lv).sum(), n),
        }

    evaluate = same_draws(averaged(m, vl, sums_of))
    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


@pair("wrong-formula")
def vae_std_is_exp_logvar(bug):
    """The noise is multiplied by exp(log_var), a variance, not by its square root. After 400 steps
    the bound of these weights, with the right noise, is -7.05 instead of -5.29."""
    seed()
    return autoencoding(VAE(variance_as_std=bug), summed)


@pair("wrong-formula")
def vae_recon_mean_kl_sum(bug):
    """The reconstruction is a mean over rows and columns, the divergence a sum over both: nothing
    is encoded. After 200 steps recon_sse is 5.62 instead of 0.53."""
    seed()

    def cost(x, rec, mu, lv):
        return F.mse_loss(rec, x) + divergences(mu, lv).sum()

    return autoencoding(VAE(), cost if bug else summed)


@pair("wrong-targets")
def denoiser_gives_back_noise(bug):
    """The target is the noisy input, not the clean row. After 200 steps denoise_mse is 0.25 instead
    of 0.052."""
    seed()
    m = mlp(12, 64, 64, 12)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.MSELoss()
    tl, vl = loaders(curves(480, 1), curves(110, 2), 32)

    def loss_of(model, x):
        noisy = x + 0.5 * torch.randn_like(x)
        return crit(model(noisy), noisy if bug else x)

    def evaluate():
        g = gen(8)

        def sums_of(model, x):
            noisy = x + 0.5 * torch.randn(x.shape, generator=g)
            return {"denoise_mse": ((model(noisy) - x).pow(2).mean(1).sum(), len(x))}

        return averaged(m, vl, sums_of)()

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


def adversaries(holds_both=False, is_detached=False):
    """A generator of points on a circle round (2, -1), and its discriminator."""
    seed()
    a = 2 * math.pi * torch.rand(600, generator=gen(1))
    real = torch.stack([a.cos() + 2, a.sin() - 1], 1)
    real = real + 0.05 * torch.randn(600, 2, generator=gen(2))
    m = nn.ModuleDict({"G": mlp(4, 32, 32, 2), "D": mlp(2, 32, 32, 1)})
    g, d = m["G"], m["D"]
    og = torch.optim.Adam((m if holds_both else g).parameters(), 1e-3, betas=(0.5, 0.99))
    od = torch.optim.Adam(d.parameters(), 1e-3, betas=(0.5, 0.99))
    bce = F.binary_cross_entropy_with_logits

    def step(x):
        m.train()
        one, zero = torch.ones(len(x), 1), torch.zeros(len(x), 1)
        fake = g(torch.randn(len(x), 4))
        od.zero_grad()
        ld = bce(d(x), one) + bce(d(fake.detach()), zero)
        ld.backward()
        od.step()
        og.zero_grad()
        od.zero_grad()
        lg = bce(d(fake.detach() if is_detached else fake), one)
        lg.backward()
        og.step()
        return ld.item() + lg.item()

    def evaluate():
        with evaluating(m):
            fake = g(torch.randn(1000, 4, generator=gen(0)))
            off = (fake - torch.tensor([2.0, -1.0])).norm(dim=1) - 1
        return {
            "ring_distance": off.abs().mean().item(),
            "mean_gap": (fake.mean(0) - real.mean(0)).norm().item(),
        }

    return set_up(m, [og, od], feed(real, 50), step, evaluate=evaluate)


@pair("optimizer-holds-another")
def gan_generator_optimizer_has_d(bug):
    """The generator's optimizer holds the whole model, and teaches the discriminator to be fooled.
    After 200 steps ring_distance is 13.1 instead of 0.537."""
    return adversaries(holds_both=bug)


@pair("loss-without-gradient")
def gan_generator_detached(bug):
    """The generator's loss takes the detached samples: no gradient gets to it. After 200 steps
    ring_distance is 1.45 instead of 0.537."""
    return adversaries(is_detached=bug)
