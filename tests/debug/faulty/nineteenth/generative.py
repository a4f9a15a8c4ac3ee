"""Faults of generative, contrastive and physical models: signs, noise, views, averages."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.nineteenth.kit import (
    averaged,
    by_cost,
    by_neighbours,
    by_pairs,
    clusters,
    evaluating,
    feed,
    gen,
    loaders,
    lowrank,
    mlp,
    plain_step,
    seed,
    set_up,
    sup_step,
)


@pair("loss-negated")
def vae_rewards_divergence(bug):
    """The divergence has the wrong sign: it is rewarded, and the loss has no lower bound. After 240
    steps kl is -41700 instead of 6.44."""
    seed(1)

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = mlp(16, 32, 8)
            self.dec = mlp(4, 32, 16)

        def forward(self, x):
            mu, lv = self.enc(x).chunk(2, 1)
            z = mu + torch.randn_like(mu) * (0.5 * lv).exp() if self.training else mu
            return self.dec(z), mu, lv

    m = VAE()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(lowrank(512, gen(1)), lowrank(128, gen(2)), vbs=50)

    def parts(m, x):
        out, mu, lv = m(x)
        kl = (0.5 if bug else -0.5) * (1 + lv - mu.pow(2) - lv.exp()).sum(1)
        return (out - x).pow(2).sum(1), kl

    def loss_of(model, x):
        rec, kl = parts(model, x)
        return (rec + 0.1 * kl).mean()

    def sums_of(model, x):
        rec, kl = parts(model, x)
        n = len(x)
        return {"reconstruction": (rec.sum(), n), "kl": (kl.sum(), n)}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("wrong-targets")
def denoiser_changes_its_views(bug):
    """The noise is added in place to a view of the data: the target is as noisy, and the data gets
    worse by the epoch. After 240 steps val_mse is 0.0837 instead of 0.0374."""
    seed(2)
    data = lowrank(512, gen(1))
    val = lowrank(128, gen(2))

    class Slices:
        def __init__(self, x, bs, shuffle):
            self.x = x
            self.bs = bs
            self.shuffle = shuffle
            self.g = gen(7)

        def __len__(self):
            return math.ceil(len(self.x) / self.bs)

        def __iter__(self):
            order = range(len(self))
            if self.shuffle:
                order = torch.randperm(len(self), generator=self.g).tolist()
            for i in order:
                yield self.x[i * self.bs : (i + 1) * self.bs]

    m = mlp(16, 32, 8, 32, 16)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl = Slices(data, 32, True)
    vl = Slices(val, 50, False)

    def loss_of(model, x):
        noisy = x if bug else x.clone()
        noisy += 0.3 * torch.randn_like(x)
        return F.mse_loss(model(noisy), x)

    def evaluate():
        g = gen(5)

        def sums_of(model, x):
            noisy = x + 0.3 * torch.randn(x.shape, generator=g)
            return {"val_mse": ((model(noisy) - x).pow(2).mean(1).sum(), len(x))}

        return averaged(m, vl, sums_of)()

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


@pair("targets-unrelated")
def ddpm_other_noise(bug):
    """The noise to be predicted is drawn anew, not what was mixed in. After 240 steps val_eps_mse
    is 0.863 instead of 0.316."""
    seed(3)
    S = 20
    ab = torch.cumprod(1 - torch.linspace(1e-3, 0.3, S), 0)

    def ring(n, g):
        a = torch.rand(n, generator=g) * 2 * math.pi
        return torch.stack([a.cos(), a.sin()], 1) + 0.05 * torch.randn(n, 2, generator=g)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.t = nn.Embedding(S, 16)
            self.net = mlp(18, 64, 64, 2, act=nn.SiLU)

        def forward(self, x, t):
            return self.net(torch.cat([x, self.t(t)], 1))

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(ring(512, gen(1)), ring(150, gen(2)), 64)

    def errors(m, x):
        t = torch.randint(S, (len(x),))
        a = ab[t][:, None]
        eps = torch.randn_like(x)
        xt = a.sqrt() * x + (1 - a).sqrt() * (torch.randn_like(x) if bug else eps)
        return (m(xt, t) - eps).pow(2).mean(1)

    def loss_of(model, x):
        return errors(model, x).mean()

    def sums_of(model, x):
        return {"val_eps_mse": (errors(model, x).sum(), len(x))}

    def evaluate():
        with torch.random.fork_rng():
            torch.manual_seed(5)
            return averaged(m, vl, sums_of)()

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


@pair("optimizer-holds-another")
def gan_g_optimizer_all(bug):
    """The generator's optimizer holds the discriminator, too, and teaches it to be fooled. After
    240 steps mean_distance is 4.41 instead of 0.0904."""
    seed(4)
    m = nn.ModuleDict({"G": mlp(4, 32, 2), "D": mlp(2, 32, 1)})
    g, d = m["G"], m["D"]
    od = torch.optim.Adam(d.parameters(), 2e-3, betas=(0.5, 0.99))
    og = torch.optim.Adam((m if bug else g).parameters(), 2e-3, betas=(0.5, 0.99))
    mean = torch.tensor([2.0, -1.0])
    tl = feed(mean + 0.5 * torch.randn(512, 2, generator=gen(1)), 64)
    val = mean + 0.5 * torch.randn(256, 2, generator=gen(2))
    bce = F.binary_cross_entropy_with_logits

    def step(x):
        m.train()
        fake = g(torch.randn(len(x), 4))
        od.zero_grad()
        ld = bce(d(x), torch.ones(len(x), 1)) + bce(d(fake.detach()), torch.zeros(len(x), 1))
        ld.backward()
        od.step()
        og.zero_grad()
        lg = bce(d(fake), torch.ones(len(x), 1))
        lg.backward()
        og.step()
        return (ld + lg).item()

    def evaluate():
        with evaluating(m):
            f = g(torch.randn(512, 4, generator=gen(5)))
            real = torch.sigmoid(d(val)).mean()
            made = torch.sigmoid(d(f)).mean()
        return {
            "mean_distance": float((f.mean(0) - val.mean(0)).norm()),
            "std_gap": float((f.std(0) - val.std(0)).abs().mean()),
            "d_real": float(real),
            "d_fake": float(made),
        }

    return set_up(m, [od, og], tl, step, evaluate=evaluate)


@pair("compared-with-itself")
def simclr_same_view(bug):
    """Each item is augmented once and given twice, so that its two views are equal. After 240 steps
    knn_acc is 0.667 instead of 0.953."""
    seed(5)
    x, y = clusters(384, gen(1))
    vx, vy = clusters(150, gen(2))

    class Views(Dataset):
        def __len__(self):
            return len(x)

        def aug(self, v):
            v = v + 0.1 * torch.randn(12)
            v[4:] = 1.5 * torch.randn(8)
            return v

        def __getitem__(self, i):
            if bug:
                v = self.aug(x[i])
                return v, v
            return self.aug(x[i]), self.aug(x[i])

    m = mlp(12, 48, 16)
    opt = torch.optim.Adam(m.parameters(), 2e-3)
    tl = feed(Views(), 64, drop_last=True)

    def loss_of(model, b):
        z = F.normalize(model(torch.cat(b)), dim=1)
        n = len(b[0])
        s = (z @ z.T / 0.2).masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
        return F.cross_entropy(s, torch.arange(2 * n).roll(n))

    evaluate = by_neighbours(m, (x, y), (vx, vy))
    return set_up(m, opt, tl, plain_step(m, opt, loss_of), loss_of=loss_of, evaluate=evaluate)


@pair("targets-out-of-reach")
def two_tower_temperature(bug):
    """The similarities are multiplied by the temperature, not divided: the loss stays near the log
    of the batch's size. After 240 steps recall_at_1 is 0.734 instead of 0.867."""
    seed(6)
    A = torch.randn(5, 14, generator=gen(81))
    B = torch.randn(5, 10, generator=gen(82))

    def data(n, g):
        z = torch.randn(n, 5, generator=g)
        return {
            "image": z @ A + 0.1 * torch.randn(n, 14, generator=g),
            "text": torch.tanh(z @ B) + 0.1 * torch.randn(n, 10, generator=g),
        }

    m = nn.ModuleDict({"image": mlp(14, 48, 16), "text": mlp(10, 48, 16)})
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl = feed(data(512, gen(1)), 64, drop_last=True)
    vl = feed(data(128, gen(2)), 128, shuffle=False)

    def logits(m, b):
        image, text = (F.normalize(m[name](b[name]), dim=1) for name in ("image", "text"))
        s = image @ text.T
        return s * 0.07 if bug else s / 0.07

    def both_ways(s, reduction="mean"):
        t = torch.arange(len(s))
        costs = [F.cross_entropy(of, t, reduction=reduction) for of in (s, s.T)]
        return sum(costs) / 2

    def loss_of(model, b):
        return both_ways(logits(model, b))

    def sums_of(model, b):
        s = logits(model, b)
        n = len(s)
        hits = s.argmax(1) == torch.arange(n)
        return {"recall_at_1": (hits.sum(), n), "val_loss": (both_ways(s, "sum"), n)}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("metric-wrong")
def recall_with_self(bug):
    """Each query is in its own gallery and finds itself. After 240 steps recall_at_1 is 1 instead
    of 0.975."""
    seed(7)
    x, y = clusters(384, gen(1))
    vx, vy = clusters(160, gen(2))
    m = mlp(12, 32, 8)
    opt = torch.optim.Adam(m.parameters(), 2e-3)
    tl, vl = loaders((x, y), (vx, vy), 48)

    def loss_of(model, b):
        z = F.normalize(model(b[0]), dim=1)
        y = b[1]
        d = (2 - 2 * z @ z.T).clamp_min(1e-6).sqrt()
        same = y[:, None] == y[None]
        eye = torch.eye(len(y), dtype=torch.bool)
        pos, neg = same & ~eye, ~same
        ok = pos.any(1) & neg.any(1)
        hp = d.masked_fill(~pos, -1).max(1).values
        hn = d.masked_fill(~neg, 9).min(1).values
        return F.softplus(hp - hn)[ok].mean()

    def evaluate():
        with evaluating(m):
            z = torch.cat([F.normalize(m(a), dim=1) for a, _ in vl])
        s = z @ z.T
        if not bug:
            s.fill_diagonal_(-float("inf"))
        return {"recall_at_1": (vy[s.argmax(1)] == vy).float().mean().item()}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


@pair("average-without-statistics")
def average_copies_no_buffers(bug):
    """The averaged copy follows the weights alone: its batch norm keeps its first statistics. After
    240 steps ema_val_mse is 11.2 instead of 0.0698."""
    seed(8)

    def data(n, g):
        x = 4 + 3 * torch.randn(n, 6, generator=g)
        return x, torch.sin((x[:, :1] - 4) / 3) + 0.3 * (x[:, 1:2] - 4)

    m = nn.Sequential(
        nn.BatchNorm1d(6), nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1)
    )
    ema = copy.deepcopy(m).requires_grad_(False).eval()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    crit = nn.MSELoss()
    tl, vl = loaders(data(512, gen(1)), data(150, gen(2)))
    base = sup_step(m, opt, crit)

    def step(b):
        loss = base(b)
        with torch.no_grad():
            for e, p in zip(ema.parameters(), m.parameters(), strict=True):
                e.lerp_(p, 0.1)
            if not bug:
                for e, p in zip(ema.buffers(), m.buffers(), strict=True):
                    e.copy_(p)
        return loss

    def sums_of(model, b):
        return {"ema_val_mse": (F.mse_loss(model(b[0]), b[1], reduction="sum"), len(b[0]))}

    return by_pairs(m, opt, tl, vl, crit, step, evaluate=averaged(ema, vl, sums_of))


@pair("loss-without-gradient")
def pinn_no_create_graph(bug):
    """The derivative is taken without create_graph: no gradient flows through it. After 240 steps
    residual_mse is 0.0026 instead of 0.0005."""
    seed(9)
    m = mlp(1, 24, 24, 1, act=nn.Tanh)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl = feed(torch.rand(512, 1, generator=gen(1)) * 3, 64)
    grid = torch.linspace(0, 3, 61)[:, None]

    def residual(m, x):
        """Of u' = -u."""
        x = x.detach().clone().requires_grad_()
        u = m(x)
        return torch.autograd.grad(u.sum(), x, retain_graph=True, create_graph=not bug)[0] + u

    def loss_of(model, x):
        start = (model(torch.zeros(1, 1)) - 1).pow(2).mean()
        return residual(model, x).pow(2).mean() + start

    def evaluate():
        m.eval()
        r = residual(m, grid).detach()
        with torch.no_grad():
            err = (m(grid) - torch.exp(-grid)).abs().max()
        m.train()
        return {"residual_mse": float(r.pow(2).mean()), "max_error": float(err)}

    return set_up(m, opt, tl, plain_step(m, opt, loss_of), loss_of=loss_of, evaluate=evaluate)
