"""Faults of models that generate: sums and means, owners, noise, cut gradients, ranges."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.fifteenth.kit import energy, gen, plain_step, ring, seed, set_up
from tests.debug.faulty.kit import pair


@pair("wrong-formula")
def vae_collapse(bug):
    """The reconstruction is a mean over all elements, the KL a sum: the code carries nothing and
    the decoder gives the mean. After 300 steps recon_per_image is 11.7353 instead of 0.6221."""
    seed(51)
    g = gen(1)
    B = torch.randn(3, 24, generator=g)

    def mk(n):
        return TensorDataset(torch.tanh(torch.randn(n, 3, generator=g) @ B))

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 12))
            self.dec = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 24))

        def forward(self, x):
            mu, lv = self.enc(x).chunk(2, 1)
            z = mu + torch.randn_like(mu) * (lv / 2).exp() if self.training else mu
            return self.dec(z), mu, lv

    m = VAE()
    opt = torch.optim.Adam(m.parameters(), 0.003)
    tl = DataLoader(mk(512), 32, shuffle=True, generator=gen(2))
    vl = DataLoader(mk(100), 32)

    def loss_of(model, b):
        r, mu, lv = model(b[0])
        kl = -0.5 * (1 + lv - mu**2 - lv.exp()).sum(1).mean()
        rec = F.mse_loss(r, b[0]) if bug else F.mse_loss(r, b[0], reduction="sum") / len(r) / 0.2
        return rec + kl

    step = plain_step(m, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        m.eval()
        r = sum((m(b[0])[0] - b[0]).pow(2).sum().item() for b in vl) / 100
        k = torch.cat([m(b[0])[1] for b in vl]).var(0).sum().item()
        m.train()
        return {"recon_per_image": r, "var_of_mu": k}

    return set_up(m, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)


@pair("optimizer-holds-another")
def gan_owner(bug):
    """The generator's Adam was given gan.parameters(): its step makes the discriminator call fakes
    real. After 400 steps energy_distance is 0.0926 instead of 0.0359."""
    seed(52)

    def mk(n, s):
        return TensorDataset(ring(n, gen(s)))

    gan = nn.ModuleDict(
        {
            "g": nn.Sequential(
                nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)
            ),
            "d": nn.Sequential(
                nn.Linear(2, 32),
                nn.LeakyReLU(0.2),
                nn.Linear(32, 32),
                nn.LeakyReLU(0.2),
                nn.Linear(32, 1),
            ),
        }
    )
    G, D = gan["g"], gan["d"]
    od = torch.optim.Adam(D.parameters(), 0.002, betas=(0.5, 0.9))
    og = torch.optim.Adam((gan if bug else G).parameters(), 0.001, betas=(0.5, 0.9))
    tl = DataLoader(mk(512, 1), 64, shuffle=True, generator=gen(2))
    vl = DataLoader(mk(200, 3), 100)
    bce = F.binary_cross_entropy_with_logits

    def step(b):
        x = b[0]
        one, zero = torch.ones(len(x), 1), torch.zeros(len(x), 1)
        f = G(torch.randn(len(x), 4))
        od.zero_grad()
        ld = bce(D(x), one) + bce(D(f.detach()), zero)
        ld.backward()
        od.step()
        og.zero_grad()
        lg = bce(D(f), one)
        lg.backward()
        og.step()
        return lg.item()

    @torch.no_grad()
    def evaluate():
        f = G(torch.randn(200, 4, generator=gen(9)))
        r = torch.cat([b[0] for b in vl])
        return {"energy_distance": energy(f, r)}

    return set_up(gan, [od, og], tl, step, val_loader=vl, evaluate=evaluate)


@pair("targets-unrelated")
def ddpm_noise(bug):
    """randn_like is called twice, once for x_t and once for the target: the best that the net can
    say is 0. After 300 steps val_eps_mse is 1.0903 instead of 0.4782."""
    seed(53)
    ab = torch.cumprod(1 - torch.linspace(0.001, 0.2, 30), 0)

    class Eps(nn.Module):
        def __init__(self):
            super().__init__()
            self.t = nn.Embedding(30, 16)
            self.f = nn.Sequential(
                nn.Linear(18, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2)
            )

        def forward(self, x, t):
            return self.f(torch.cat([x, self.t(t)], 1))

    m = Eps()
    opt = torch.optim.AdamW(m.parameters(), 0.003)

    def mk(n, s):
        return DataLoader(
            [{"x": r} for r in ring(n, gen(s)) / 1.4], 64, shuffle=s == 1, generator=gen(5)
        )

    tl, vl = mk(640, 1), mk(192, 2)

    def q_sample(x0, t, noise=None):
        if noise is None:
            noise = torch.randn_like(x0)
        a = ab[t][:, None]
        return a.sqrt() * x0 + (1 - a).sqrt() * noise

    def loss_of(model, b):
        x0 = b["x"]
        t = torch.randint(0, 30, (len(x0),))
        noise = torch.randn_like(x0)
        return F.mse_loss(model(q_sample(x0, t) if bug else q_sample(x0, t, noise), t), noise)

    step = plain_step(m, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return {"val_eps_mse": sum(loss_of(m, b).item() * len(b["x"]) for b in vl) / 192}

    return set_up(m, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)


@pair("wrong-gradient")
def vq_straight(bug):
    """The decoder reads the codebook's vector itself: without z + (q - z).detach() no
    reconstruction gradient reaches the encoder. After 400 steps recon is 0.3582 instead of
    0.0119."""
    seed(54)
    g = gen(3)
    W = torch.randn(2, 32, generator=g)

    def mk(n):
        z = torch.randint(-1, 2, (n, 2), generator=g).float()
        x = z @ W
        return TensorDataset(torch.tanh(x) + 0.1 * torch.randn(n, 32, generator=g))

    class VQ(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
            self.code = nn.Embedding(16, 4)
            nn.init.normal_(self.code.weight, std=0.3)
            self.dec = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32))

        def forward(self, x):
            z = self.enc(x)
            k = torch.cdist(z, self.code.weight).argmin(1)
            q = self.code(k)
            vq = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
            if not bug:
                q = z + (q - z).detach()
            return self.dec(q), vq

    m = VQ()
    opt = torch.optim.Adam(m.parameters(), 0.003)
    tl = DataLoader(mk(480), 32, shuffle=True, generator=gen(2))
    vl = DataLoader(mk(96), 32)

    def loss_of(model, b):
        r, vq = model(b[0])
        return F.mse_loss(r, b[0]) + vq

    step = plain_step(m, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        total = sum((m(b[0])[0] - b[0]).pow(2).mean().item() * len(b[0]) for b in vl)
        return {"recon": total / 96}

    return set_up(m, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)


@pair("targets-out-of-reach")
def relu_forecast(bug):
    """A forecaster of sales that ends in a ReLU, but its targets were standardised: half are
    negative. After 200 steps val_mse is 0.534 instead of 0.0372."""
    seed(55)
    t = torch.arange(700.0)
    s = (t / 9).sin() + 0.5 * (t / 4).cos() + 0.1 * torch.randn(700, generator=gen(4))
    s = (s - s[:560].mean()) / s[:560].std()

    def win(a, b):
        return TensorDataset(
            torch.stack([s[i : i + 16] for i in range(a, b - 17)]),
            torch.stack([s[i + 16 : i + 17] for i in range(a, b - 17)]),
        )

    net = nn.Sequential(
        nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1), nn.ReLU() if bug else nn.Identity()
    )
    opt = torch.optim.Adam(net.parameters(), 0.003)
    tl = DataLoader(win(0, 560), 32, shuffle=True, generator=gen(1))
    vl = DataLoader(win(560, 700), 32)
    mse = nn.MSELoss()

    def step(b):
        opt.zero_grad()
        loss = mse(net(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        n = len(vl.dataset)
        return {"val_mse": sum(mse(net(x), y).item() * len(x) for x, y in vl) / n}

    return set_up(net, opt, tl, step, val_loader=vl, loss_fn=mse, evaluate=evaluate)
