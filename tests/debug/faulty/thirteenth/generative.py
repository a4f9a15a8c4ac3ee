"""Faults of generative models and embeddings: terms, noise, views, proxies."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.thirteenth.kit import (
    blobs,
    evaluating,
    gen,
    loader,
    mlp,
    set_up,
    sup_step,
)


@pair("wrong-formula")
def vae_kl_scale(bug):
    """VAE: reconstruction averaged over all pixels and examples, KL summed over all of them: KL is
    hundreds of times too heavy, posterior collapse. After 300 steps kl_per_example is 0.0 instead
    of 3.24."""
    torch.manual_seed(0)
    D, Z = 32, 4
    protos = (torch.rand(6, D, generator=gen(9)) < 0.5).float()

    def data(n, s):
        g = gen(s)
        x = protos[torch.randint(6, (n,), generator=g)]
        return (x - (torch.rand(n, D, generator=g) < 0.05).float()).abs()

    class VAE(nn.Module):
        def __init__(s):
            super().__init__()
            s.enc = mlp(D, 48, 2 * Z)
            s.dec = mlp(Z, 48, D)

        def forward(s, x):
            mu, lv = s.enc(x).chunk(2, 1)
            z = mu + torch.randn_like(mu) * (0.5 * lv).exp() if s.training else mu
            return s.dec(z), mu, lv

    model = VAE()
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    tr = loader((data(512, 1),), 32, 1)
    va = loader((data(150, 2),), 40, shuffle=False)

    def parts(m, x):
        r, mu, lv = m(x)
        return r, -0.5 * (1 + lv - mu**2 - lv.exp())

    def loss_of(m, b):
        r, kl = parts(m, b[0])
        if bug:
            return F.binary_cross_entropy_with_logits(r, b[0]) + kl.sum()
        return (
            F.binary_cross_entropy_with_logits(r, b[0], reduction="sum") / len(r) + kl.sum(1).mean()
        )

    def step(b):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        a = k = n = 0
        with evaluating(model):
            for (x,) in va:
                r, kl = parts(model, x)
                a += F.binary_cross_entropy_with_logits(r, x, reduction="sum").item()
                k += kl.sum().item()
                n += len(x)
        return {"recon_per_example": a / n, "kl_per_example": k / n}

    return set_up(model, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate)


@pair("wrong-targets")
def dae_inplace_noise(bug):
    """Denoising autoencoder adds the noise in place, so the 'clean' target is the noisy input too.
    After 300 steps denoise_mse is 2.081 instead of 0.355."""
    torch.manual_seed(0)
    D = 20
    W = torch.randn(3, D, generator=gen(9))

    def data(n, s):
        return torch.randn(n, 3, generator=gen(s)) @ W

    model = mlp(D, 64, D)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    g = gen(11)
    tr = loader((data(512, 1),), 32, 1)
    cv = data(150, 2)
    va = loader((cv, cv + 1.5 * torch.randn(cv.shape, generator=gen(4))), 40, shuffle=False)

    def loss_of(m, b):
        clean = b[0]
        noise = 1.5 * torch.randn(clean.shape, generator=g)
        noisy = clean.add_(noise) if bug else clean + noise
        return F.mse_loss(m(noisy), clean)

    def step(b):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        t = n = 0
        with evaluating(model):
            for c, z in va:
                t += (model(z) - c).pow(2).mean(1).sum().item()
                n += len(c)
        return {"denoise_mse": t / n}

    return set_up(model, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate)


@pair("targets-unrelated")
def ddpm_fresh_noise(bug):
    """Diffusion: the noise the net has to predict is drawn anew, and is not the noise that was
    mixed into x_t. After 300 steps val_noise_mse is 0.934 instead of 0.389."""
    torch.manual_seed(0)
    K = 50
    ab = torch.cumprod(1 - torch.linspace(1e-3, 0.15, K), 0)

    def ring(n, s):
        g = gen(s)
        a = 2 * math.pi * torch.rand(n, generator=g)
        return torch.stack([a.cos(), a.sin()], 1) + 0.03 * torch.randn(n, 2, generator=g)

    class Eps(nn.Module):
        def __init__(s):
            super().__init__()
            s.t = nn.Embedding(K, 16)
            s.f = mlp(18, 64, 64, 2)

        def forward(s, x, t):
            return s.f(torch.cat([x, s.t(t)], 1))

    model = Eps()
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    g = gen(12)
    tr = loader((ring(1024, 1),), 64, 1)
    va = loader((ring(200, 2),), 64, shuffle=False)

    def loss_of(m, b, g=g):
        x = b[0]
        t = torch.randint(K, (len(x),), generator=g)
        e = torch.randn(x.shape, generator=g)
        a = ab[t][:, None]
        xt = a.sqrt() * x + (1 - a).sqrt() * e
        target = torch.randn(x.shape, generator=g) if bug else e
        return F.mse_loss(m(xt, t), target)

    def step(b):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        h = gen(77)
        t = n = 0
        with evaluating(model):
            for b in va:
                t += loss_of(model, b, h).item() * len(b[0])
                n += len(b[0])
        return {"val_noise_mse": t / n}

    return set_up(model, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate)


def _real(n, s):
    g = gen(s)
    return torch.tensor([2.0, -1.0]) + torch.randn(n, 2, generator=g) * torch.tensor([0.5, 0.3])


def _two(n, s):
    g = gen(s)
    return torch.tensor([[1.5, 0.0], [-1.5, 0.0]])[
        torch.randint(2, (n,), generator=g)
    ] + 0.15 * torch.randn(n, 2, generator=g)


@pair("optimizer-holds-another")
def gan_opt_both(bug):
    """GAN: the generator's optimizer was built with the parameters of both nets: each generator
    step also teaches D to call fakes real. After 300 steps std_gap is 7.072 instead of 0.038."""
    torch.manual_seed(0)
    G, D = mlp(4, 32, 2), mlp(2, 32, 1)
    model = nn.ModuleDict({"G": G, "D": D})
    og, od = (
        torch.optim.Adam((model if bug else G).parameters(), 2e-3, (0.5, 0.9)),
        torch.optim.Adam(D.parameters(), 2e-3, (0.5, 0.9)),
    )
    g = gen(5)
    tr = loader((_two(1024, 1),), 64, 1, drop_last=True)
    va = loader((_two(300, 2),), 64, shuffle=False)
    bce = F.binary_cross_entropy_with_logits

    def step(b):
        x = b[0]
        model.train()
        fake = G(torch.randn(len(x), 4, generator=g))
        od.zero_grad()
        r, f = D(x), D(fake.detach())
        ld = bce(r, torch.ones_like(r)) + bce(f, torch.zeros_like(f))
        ld.backward()
        od.step()
        og.zero_grad()
        f = D(fake)
        lg = bce(f, torch.ones_like(f))
        lg.backward()
        og.step()
        return ld.item()

    def evaluate():
        with evaluating(model):
            f = G(torch.randn(500, 4, generator=gen(8)))
            x = torch.cat([b[0] for b in va])
        n = len(x)
        c = torch.cdist
        e = 2 * c(f, x).mean() - c(f, f).sum() / (500 * 499) - c(x, x).sum() / (n * (n - 1))
        return {"energy_distance": e.item(), "std_gap": (f.std(0) - x.std(0)).norm().item()}

    return set_up(model, [og, od], tr, step, val_loader=va, evaluate=evaluate)


@pair("loss-without-gradient")
def wgan_gp_no_graph(bug):
    """WGAN-GP: autograd.grad of the penalty without create_graph=True: the penalty is a constant
    and constrains nothing. After 300 steps critic_gap is 1.702 instead of 0.156."""
    torch.manual_seed(0)
    G, D = mlp(4, 32, 2), mlp(2, 32, 1)
    model = nn.ModuleDict({"G": G, "critic": D})
    og, od = (
        torch.optim.Adam(G.parameters(), 1e-3, (0.0, 0.9)),
        torch.optim.Adam(D.parameters(), 3e-3, (0.0, 0.9)),
    )
    g = gen(5)
    tr = loader((_real(1024, 1),), 64, 1, drop_last=True)
    va = loader((_real(300, 2),), 64, shuffle=False)

    def penalty(x, f, train):
        a = torch.rand(len(x), 1, generator=g if train else gen(3))
        m = (a * x + (1 - a) * f).detach().requires_grad_(True)
        return torch.autograd.grad(D(m).sum(), m, create_graph=train and not bug)[0].norm(dim=1)

    def step(b):
        x = b[0]
        model.train()
        for xs in x.chunk(2):
            f = G(torch.randn(len(xs), 4, generator=g)).detach()
            gp = ((penalty(xs, f, True) - 1) ** 2).mean()
            ld = D(f).mean() - D(xs).mean() + 10 * gp
            od.zero_grad()
            ld.backward()
            od.step()
        lg = -D(G(torch.randn(len(x), 4, generator=g))).mean()
        og.zero_grad()
        lg.backward()
        og.step()
        return ld.item()

    def evaluate():
        x = torch.cat([b[0] for b in va])
        with evaluating(model):
            f = G(torch.randn(len(x), 4, generator=gen(8)))
            w = (D(x).mean() - D(f).mean()).item()
        return {
            "critic_gap": w,
            "critic_grad_norm": penalty(x, f, False).mean().item(),
            "mean_gap": (f.mean(0) - x.mean(0)).norm().item(),
        }

    return set_up(model, [og, od], tr, step, val_loader=va, evaluate=evaluate)


class _Views(Dataset):
    def __init__(s, n, seed, fixed):
        s.x = blobs(n, 12, n, seed)[0]
        s.g = gen(seed + 50)
        s.fixed = fixed
        s.w = torch.randn(12, 12, generator=gen(4))
        s.i = torch.randn(n, 2, 12, generator=gen(seed + 60))

    def __len__(s):
        return len(s.x)

    def __getitem__(s, i):
        e = s.i[i] if s.fixed else torch.randn(2, 12, generator=s.g)
        return tuple(s.x[i] + (1.5 * e[k] * torch.linspace(0, 2, 12)) @ s.w / 3.5 for k in (0, 1))


@pair("compared-with-itself")
def infonce_same_view(bug):
    """Two-view InfoNCE: logits = z1 @ z1.T (typo for z1 @ z2.T), so each positive is the example
    itself and the views are never brought together. After 300 steps retrieval_top1 is 0.17 instead
    of 0.69."""
    torch.manual_seed(0)
    model = mlp(12, 64, 16)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    tr = loader(_Views(512, 1, False), 32, 1, drop_last=True)
    va = loader(_Views(200, 2, True), 50, shuffle=False)

    def loss_of(m, b):
        n = len(b[0])
        z1, z2 = F.normalize(m(torch.cat(b)), dim=1).split(n)
        return F.cross_entropy(z1 @ (z1 if bug else z2).T / 0.1, torch.arange(n))

    def step(b):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        with evaluating(model):
            a, c = (
                F.normalize(torch.cat(v), dim=1)
                for v in zip(*[(model(p), model(q)) for p, q in va], strict=False)
            )
        return {
            "retrieval_top1": ((a @ c.T).argmax(1) == torch.arange(len(a))).float().mean().item(),
            "pair_cosine": (a * c).sum(1).mean().item(),
        }

    return set_up(model, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate)


@pair("compared-with-itself")
def triplet_self_positive(bug):
    """Triplet sampler picks the anchor itself as its positive: d(a, p) is always 0 and nothing
    pulls a class together. After 300 steps knn_acc is 0.273 instead of 0.853."""
    torch.manual_seed(0)
    K = 6

    def data(n, s):
        g = gen(s)
        x, y = blobs(n, 4, K, s, 0.5)
        return torch.cat([x, 2.5 * torch.randn(n, 8, generator=g)], 1), y

    class Trip(Dataset):
        def __init__(s, x, y, seed):
            s.x, s.y, s.g = x, y, gen(seed)
            s.of = {c: (y == c).nonzero()[:, 0] for c in range(K)}

        def __len__(s):
            return len(s.x)

        def pick(s, pool):
            return pool[torch.randint(len(pool), (1,), generator=s.g)].item()

        def __getitem__(s, i):
            c = s.y[i].item()
            pool = s.of[c]
            neg = s.pick((s.y != c).nonzero()[:, 0])
            pos = pool[(pool == i).nonzero()[0, 0]].item() if bug else s.pick(pool[pool != i])
            return {"anchor": s.x[i], "positive": s.x[pos], "negative": s.x[neg]}

    X, Y = data(300, 1)
    vx, vy = data(150, 2)
    model = mlp(12, 48, 8)
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    crit = nn.TripletMarginLoss(1.0)
    tr = loader(Trip(X, Y, 3), 20, 1)
    va = loader((vx, vy), 50, shuffle=False)

    def loss_of(m, b):
        return crit(m(b["anchor"]), m(b["positive"]), m(b["negative"]))

    def step(b):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        with evaluating(model):
            z = model(X)
            p = torch.cat([torch.cdist(model(v), z).topk(5, 1, largest=False)[1] for v, _ in va])
        return {"knn_acc": (Y[p].mode(1)[0] == vy).float().mean().item()}

    return set_up(
        model, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate, num_classes=K
    )


@pair("optimizer-stale-params")
def proxy_not_in_opt(bug):
    """Metric learning: the proxy loss is a module with its own learnable proxies and scale; the
    optimizer got only the model's parameters. After 300 steps val_loss is 1.765 instead of
    0.267."""
    torch.manual_seed(0)
    K, E = 12, 4

    class ProxyLoss(nn.Module):
        def __init__(s):
            super().__init__()
            s.proxies = nn.Parameter(torch.randn(K, E))
            s.log_scale = nn.Parameter(torch.zeros(()))

        def logits(s, z):
            return s.log_scale.exp() * F.normalize(z, dim=1) @ F.normalize(s.proxies, dim=1).T

        def forward(s, z, y):
            return F.cross_entropy(s.logits(z), y)

    model, crit = mlp(12, 48, E), ProxyLoss()
    opt = torch.optim.Adam(
        list(model.parameters()) + ([] if bug else list(crit.parameters())), 1e-2
    )
    tr = loader(blobs(600, 12, K, 1, 0.7), 30, 1)
    va = loader(blobs(200, 12, K, 2, 0.7), 60, shuffle=False)
    step = sup_step(model, opt, crit)

    def evaluate():
        z, y = [], []
        with evaluating(model):
            for a, b in va:
                z.append(F.normalize(model(a), dim=1))
                y.append(b)
        z, y = torch.cat(z), torch.cat(y)
        s = z @ z.T
        s.fill_diagonal_(-2)
        ok = s.argmax(1)
        return {"recall_at_1": (y[ok] == y).float().mean().item(), "val_loss": crit(z, y).item()}

    return set_up(
        model, opt, tr, step, loss_fn=crit, val_loader=va, evaluate=evaluate, num_classes=K
    )
