"""Faults of models that draw, compare or denoise: samples, critics, views, triplets, noise."""

import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventeenth.kit import (
    Columns,
    averaged,
    begun,
    blobs,
    by_cost,
    costed,
    evaluating,
    gen,
    loader,
    loaders,
    mlp,
    plain_step,
    set_up,
)


@pair("frozen-params")
def vae_sample_cuts_gradient(bug):
    """The code is drawn by sample() instead of rsample(): the encoder learns from the divergence
    alone. After 300 steps recon_mse is 2.19 instead of 0.044."""
    g = begun(21)
    basis = torch.randn(2, 16, generator=g)

    def data(n):
        codes = torch.randn(n, 2, generator=g)
        return Columns(x=codes @ basis + 0.2 * torch.randn(n, 16, generator=g))

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = mlp(16, 32, 4)
            self.dec = mlp(2, 32, 16)

        def forward(self, x):
            mu, lv = self.enc(x).chunk(2, 1)
            q = torch.distributions.Normal(mu, (0.5 * lv).exp())
            return self.dec(q.sample() if bug else q.rsample()), mu, lv

    m = VAE()
    tl, vl = loaders(data(512), data(150))

    def loss_of(model, b):
        out, mu, lv = model(b["x"])
        divergence = -0.5 * (1 + lv - mu**2 - lv.exp()).sum(1)
        return (((out - b["x"]) ** 2).sum(1) / 0.5 + divergence).mean()

    def sums_of(model, b):
        mu, _ = model.enc(b["x"]).chunk(2, 1)
        error = ((model.dec(mu) - b["x"]) ** 2).mean(1)
        return {"recon_mse": (error.sum(), len(mu)), "active": ((mu**2).mean(1).sum(), len(mu))}

    return by_cost(m, torch.optim.Adam(m.parameters(), 3e-3), tl, vl, loss_of, sums_of)


@pair("missing-zero-grad")
def gan_critic_keeps_generator_gradients(bug):
    """The critic's gradients are cleared before the generator's backward and not after it: its step
    follows both losses. After 500 steps mean_gap is 3.56 instead of 0.194."""
    g = begun(22)
    real = torch.randn(512, 2, generator=g) * 0.3 + torch.tensor([1.5, -1.0])
    m = nn.ModuleDict({"G": mlp(4, 24, 2), "D": mlp(2, 24, 1, act=nn.Tanh)})
    og, od = (torch.optim.Adam(m[k].parameters(), 2e-3, betas=(0.5, 0.999)) for k in "GD")
    tl = loader(Columns(x=real), 32)

    def step(b):
        x = b["x"]
        fake = m["G"](torch.randn(len(x), 4))
        if not bug:
            od.zero_grad()
        of_critic = F.relu(1 - m["D"](x)).mean() + F.relu(1 + m["D"](fake.detach())).mean()
        of_critic.backward()
        od.step()
        og.zero_grad()
        if bug:
            od.zero_grad()
        of_generator = -m["D"](fake).mean()
        of_generator.backward()
        og.step()
        return of_critic.item() + of_generator.item()

    def evaluate():
        with evaluating(m):
            fake = m["G"](torch.randn(500, 4, generator=gen(9)))
            return {
                "mean_gap": (fake.mean(0) - real.mean(0)).norm().item(),
                "std_gap": (fake.std(0) - real.std(0)).norm().item(),
            }

    return set_up(m, [og, od], tl, step, evaluate=evaluate)


@pair("compared-with-itself")
def ntxent_sees_itself(bug):
    """Each view's similarity to itself is not masked: the largest logit is always its own. After
    300 steps loss is 2.1 instead of 1.7."""
    g = begun(23)
    c = torch.randn(40, 12, generator=g)

    def data(n):
        z = c[torch.randint(0, 40, (n,), generator=g)] + 0.3 * torch.randn(n, 12, generator=g)
        a, b = (z + 0.5 * torch.randn(n, 12, generator=g) for _ in range(2))
        return Columns(a=a, b=b)

    m = mlp(12, 32, 16)
    tl, vl = loaders(data(512), data(128), drop_last=True)

    def loss_of(model, b):
        z = F.normalize(torch.cat([model(b["a"]), model(b["b"])]), dim=1)
        n = len(z) // 2
        alike = z @ z.T / 0.2
        if not bug:
            alike = alike.masked_fill(torch.eye(2 * n, dtype=torch.bool), -1e9)
        return F.cross_entropy(alike, torch.cat([torch.arange(n) + n, torch.arange(n)]))

    opt = torch.optim.Adam(m.parameters(), 3e-3)
    return by_cost(m, opt, tl, vl, loss_of, costed(loss_of, "a"))


@pair("compared-with-itself")
def triplet_positive_is_anchor(bug):
    """The positive is drawn from the rows j == i instead of j != i: it is the anchor. After 300
    steps recall_at_1 is 0.625 instead of 0.767."""
    g = begun(24)
    x, y = blobs(g, 300, 10, 6, 0.8)
    vx, vy = blobs(g, 120, 10, 6, 0.8)
    rows = {k: torch.where(y == k)[0].tolist() for k in range(6)}

    class Triplets(Dataset):
        def __len__(self):
            return len(x)

        def __getitem__(self, i):
            same = [j for j in rows[int(y[i])] if (j == i if bug else j != i)]
            others = rows[random.choice([k for k in range(6) if k != int(y[i])])]
            return {
                "anchor": x[i],
                "positive": x[random.choice(same)],
                "negative": x[random.choice(others)],
            }

    m = mlp(10, 32, 8)
    opt = torch.optim.Adam(m.parameters(), 2e-3)
    crit = nn.TripletMarginLoss(1.0)

    def loss_of(model, b):
        return crit(model(b["anchor"]), model(b["positive"]), model(b["negative"]))

    def evaluate():
        with evaluating(m):
            near = torch.cdist(m(vx), m(x)).argmin(1)
            return {"recall_at_1": (y[near] == vy).float().mean().item()}

    step = plain_step(m, opt, loss_of)
    return set_up(m, opt, loader(Triplets(), 32), step, loss_of=loss_of, evaluate=evaluate)


class Noise(nn.Module):
    """Predicts the noise in x at the time t."""

    def __init__(self):
        super().__init__()
        self.t = nn.Embedding(20, 16)
        self.net = mlp(18, 64, 64, 2)

    def forward(self, x, t):
        return self.net(torch.cat([x, self.t(t)], 1))


@pair("targets-unrelated")
def diffusion_other_noise(bug):
    """The noise that is added is drawn anew and is not the noise to be predicted. After 300 steps
    eps_mse is 0.968 instead of 0.613."""
    g = begun(25)
    angle = torch.rand(512, generator=g) * 6.283
    x = torch.stack([angle.cos(), angle.sin()], 1) * 1.5
    kept = torch.cumprod(1 - torch.linspace(1e-3, 0.25, 20), 0)
    m = Noise()
    tl, vl = loaders(Columns(x=x[:400]), Columns(x=x[400:]))

    def loss_of(model, b, own=None):
        x = b["x"]
        t = torch.randint(0, 20, (len(x),), generator=own)
        share = kept[t][:, None]
        noise = torch.randn(x.shape, generator=own)
        added = torch.randn(x.shape, generator=own) if bug else noise
        return F.mse_loss(model(share.sqrt() * x + (1 - share).sqrt() * added, t), noise)

    def evaluate():
        own = gen(3)
        of_own = costed(lambda model, b: loss_of(model, b, own), "x", "eps_mse")
        return averaged(m, vl, of_own)()

    opt = torch.optim.Adam(m.parameters(), 2e-3)
    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)
