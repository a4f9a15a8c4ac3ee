"""Faults of models that generate: signs, targets, owners of gradients, noise."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixteenth.kit import (
    VAE,
    averaged,
    by_cost,
    gen,
    loaders,
    manifold,
    mlp,
    ring,
    same_draws,
    seed,
    set_up,
)


@pair("loss-negated")
def vae_divergence_sign(bug):
    """The divergence is subtracted from the reconstruction's error: the loss has no floor. After
    300 steps val_rec is 76.5 instead of 4.28."""
    seed(21)
    x = manifold(900, 21)
    tl = DataLoader(x[:700], 32, shuffle=True, generator=gen(21))
    vl = DataLoader(x[700:], 64)
    m = VAE()
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def parts(model, b):
        r, mu, lv = model(b)
        rec = 0.5 * ((r - b) ** 2 / 0.1).sum(1)
        minus_kl = 0.5 * (1 + lv - mu**2 - lv.exp()).sum(1)
        return rec, (rec + minus_kl if bug else rec - minus_kl)

    def loss_of(model, b):
        return parts(model, b)[1].mean()

    def sums_of(model, b):
        rec, total = parts(model, b)
        return {"val_rec": (rec.sum(), len(b)), "val_loss": (total.sum(), len(b))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Noisy(Dataset):
    def __init__(self, x, number, fixed):
        self.x, self.g = x, gen(number)
        self.noise = torch.randn(x.shape, generator=self.g) if fixed else None

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        clean = self.x[i]
        if self.noise is None:
            noise = torch.randn(clean.shape, generator=self.g)
        else:
            noise = self.noise[i]
        return {"clean": clean, "noisy": clean + 0.5 * noise}


@pair("wrong-targets")
def denoiser_target_is_noisy(bug):
    """A denoising autoencoder is compared with its noisy input, not with the clean signal. After
    300 steps val_mse is 0.245 instead of 0.0743."""
    seed(22)
    x = manifold(900, 22)
    tl, vl = loaders(Noisy(x[:700], 22, False), Noisy(x[700:], 23, True), 32)
    m = mlp(12, 48, 48, 12)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        return F.mse_loss(model(b["noisy"]), b["noisy" if bug else "clean"])

    def sums_of(model, b):
        error = (model(b["noisy"]) - b["clean"]) ** 2
        return {"val_mse": (error.sum(), b["clean"].numel())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("missing-zero-grad")
def gan_generator_grads_leak(bug):
    """The discriminator's gradients are cleared after its step, so it steps next on what the
    generator's backward left. After 2500 steps radius_error is 0.0951 instead of 0.0695."""
    seed(23)
    tl = DataLoader(ring(800, 23), 64, shuffle=True, generator=gen(23), drop_last=True)
    m = nn.ModuleDict({"G": mlp(4, 32, 32, 2), "D": mlp(2, 32, 32, 1)})
    og = torch.optim.Adam(m["G"].parameters(), 1e-3, betas=(0.5, 0.99))
    od = torch.optim.Adam(m["D"].parameters(), 1e-3, betas=(0.5, 0.99))
    bce = nn.BCEWithLogitsLoss()
    noise = gen(24)

    def step(real):
        m.train()
        one, zero = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = m["G"](torch.randn(len(real), 4, generator=noise))
        if not bug:
            od.zero_grad()
        loss = bce(m["D"](real), one) + bce(m["D"](fake.detach()), zero)
        loss.backward()
        od.step()
        if bug:
            od.zero_grad()
        og.zero_grad()
        bce(m["D"](fake), one).backward()
        og.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        f = m["G"](torch.randn(1000, 4, generator=gen(25)))
        radius_error = (f.norm(dim=1) - 1.5).abs().mean().item()
        return {"radius_error": radius_error, "centre": f.mean(0).norm().item()}

    return set_up(m, [og, od], tl, step, evaluate=evaluate)


class Noise(nn.Module):
    def __init__(self, d=2, h=48):
        super().__init__()
        self.net = mlp(d + 2, h, h, d)

    def forward(self, x, kept):
        return self.net(torch.cat([x, kept.sqrt(), (1 - kept).sqrt()], 1))


@pair("targets-unrelated")
def diffusion_target_other_noise(bug):
    """A diffusion model should predict the noise that was added and is compared with noise drawn
    anew. After 300 steps val_eps_mse is 1.03 instead of 0.458."""
    seed(24)
    x = ring(1000, 26)
    tl = DataLoader(x[:800], 32, shuffle=True, generator=gen(27))
    vl = DataLoader(x[800:], 64)
    m = Noise()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    schedule = torch.cumprod(1 - torch.linspace(1e-3, 0.25, 30), 0)

    def loss_of(model, b, reduction="mean"):
        kept = schedule[torch.randint(0, 30, (len(b),))][:, None]
        eps = torch.randn_like(b)
        noisy = kept.sqrt() * b + (1 - kept).sqrt() * eps
        target = torch.randn_like(b) if bug else eps
        return F.mse_loss(model(noisy, kept), target, reduction=reduction)

    def sums_of(model, b):
        return {"val_eps_mse": (loss_of(model, b, "sum"), b.numel())}

    evaluate = same_draws(averaged(m, vl, sums_of))
    return by_cost(m, opt, tl, vl, loss_of, sums_of, evaluate=evaluate)
