"""Faults of models that make or compare: codes, noise, pairs, views, critics."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.eighteenth.kit import (
    Columns,
    begun,
    by_cost,
    evaluating,
    gen,
    leaky,
    loaders,
    mlp,
    points,
    set_up,
)
from tests.debug.faulty.kit import pair


@pair("wrong-formula")
def vae_kl_sum(bug):
    """The error is a mean over the numbers of a row, the divergence a sum over the code: the code
    carries nothing. After 400 steps active_units is 0 instead of 4."""
    g = begun(25)
    basis = torch.randn(3, 16, generator=g) * 0.6

    def data(n):
        x = torch.tanh(torch.randn(n, 3, generator=g) @ basis)
        return (x + 0.05 * torch.randn(n, 16, generator=g),)

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = mlp(16, 32, 8)
            self.dec = mlp(4, 32, 16)

        def forward(self, x):
            mu, lv = self.enc(x).chunk(2, 1)
            z = mu + torch.randn_like(mu) * (0.5 * lv).exp() if self.training else mu
            return self.dec(z), mu, lv

    tl, vl = loaders(data(512), data(150), 32)
    m = VAE()

    def loss_of(model, b):
        x = b[0]
        out, mu, lv = model(x)
        divergence = -0.5 * (1 + lv - mu**2 - lv.exp()).sum(1).mean()
        if bug:
            return F.mse_loss(out, x) + divergence
        return F.mse_loss(out, x, reduction="sum") / len(x) / (2 * 0.1) + divergence

    def evaluate():
        with evaluating(m):
            x = torch.cat([b[0] for b in vl])
            out, mu, _ = m(x)
        return {
            "recon_mse": F.mse_loss(out, x).item(),
            "data_var": x.var(0).mean().item(),
            "active_units": int((mu.var(0) > 0.01).sum()),
        }

    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


@pair("targets-unrelated")
def noise_drawn_anew_as_target(bug):
    """The noise to predict is drawn anew and is not what was added. After 400 steps val_noise_mse
    is 0.97 instead of 0.41."""
    g = begun(26)
    T = 40
    kept = torch.cumprod(1 - torch.linspace(1e-3, 0.15, T), 0)

    def data(n):
        a = torch.rand(n, generator=g) * 6.28
        return (torch.stack([a.cos(), a.sin()], 1) + 0.05 * torch.randn(n, 2, generator=g),)

    tl, vl = loaders(data(640), data(200), 64)
    m = mlp(3, 64, 64, 2, act=nn.SiLU)

    def loss_of(model, b):
        x = b[0]
        t = torch.randint(T, (len(x),))
        noise = torch.randn_like(x)
        share = kept[t][:, None]
        noised = share.sqrt() * x + (1 - share).sqrt() * noise
        out = model(torch.cat([noised, t[:, None] / T], 1))
        return F.mse_loss(out, torch.randn_like(x) if bug else noise)

    def evaluate():
        total = count = 0
        with evaluating(m):
            for _ in range(4):
                for b in vl:
                    total += loss_of(m, b).item() * len(b[0])
                    count += len(b[0])
        return {"val_noise_mse": total / count}

    opt = torch.optim.Adam(m.parameters(), 3e-3)
    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


@pair("loss-negated")
def siamese_label_convention(bug):
    """The label is 1 for two of one kind, the loss takes it for 1 where they differ: what belongs
    together is pushed apart. After 400 steps verification_auc is 0.432 instead of 0.971."""
    g = begun(27)
    c = torch.randn(12, 10, generator=g)

    def data(n):
        a = torch.randint(12, (n,), generator=g)
        same = (torch.rand(n, generator=g) < 0.5).float()
        b = torch.where(same > 0, a, (a + torch.randint(1, 12, (n,), generator=g)) % 12)
        left, right = (c[k] + 0.6 * torch.randn(n, 10, generator=g) for k in (a, b))
        return Columns(a=left, b=right, same=same)

    tl, vl = loaders(data(640), data(200), 32)
    m = mlp(10, 32, 6)

    def contrastive(distance, differs, margin=1.5):
        apart = differs * F.relu(margin - distance) ** 2
        return ((1 - differs) * distance**2 + apart).mean()

    def distances(model, b):
        return F.pairwise_distance(model(b["a"]), model(b["b"]))

    def loss_of(model, b):
        return contrastive(distances(model, b), b["same"] if bug else 1 - b["same"])

    def evaluate():
        with evaluating(m):
            d = torch.cat([distances(m, b) for b in vl])
        same = torch.cat([b["same"] for b in vl]) > 0
        return {
            "verification_auc": (d[same][:, None] < d[~same][None]).float().mean().item(),
            "dist_same": d[same].mean().item(),
            "dist_different": d[~same].mean().item(),
        }

    opt = torch.optim.Adam(m.parameters(), 2e-3)
    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


@pair("loss-through-target")
def simsiam_no_stopgrad(bug):
    """The target's side of the loss is not detached: all rows go to one point. After 400 steps
    retrieval_at_1 is 0.083 instead of 0.771, and embedding_std 0.011 instead of 0.167."""
    g = begun(28)
    basis = torch.randn(4, 10, generator=g)

    def data(n):
        z = torch.randn(n, 4, generator=g)

        def view():
            own = z @ basis + 0.3 * torch.randn(n, 10, generator=g)
            return torch.cat([own, 2 * torch.randn(n, 10, generator=g)], 1)

        return view(), view()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(
                nn.Linear(20, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 12)
            )
            self.h = mlp(12, 12, 12)

        def forward(self, x):
            return self.f(x)

    tl, vl = loaders(data(512), data(96), 32, vbs=32)
    m = Net()
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)

    def unlike(p, z):
        return -F.cosine_similarity(p, z if bug else z.detach(), dim=1).mean()

    def loss_of(model, b):
        z1, z2 = model(b[0]), model(b[1])
        return 0.5 * (unlike(model.h(z1), z2) + unlike(model.h(z2), z1))

    def evaluate():
        hits, rows = 0, []
        with evaluating(m):
            for a, b in vl:
                z = F.normalize(m(a), dim=1)
                rows.append(z)
                nearest = (z @ F.normalize(m(b), dim=1).T).argmax(1)
                hits += (nearest == torch.arange(len(a))).sum().item()
        rows = torch.cat(rows)
        return {"retrieval_at_1": hits / len(rows), "embedding_std": rows.std(0).mean().item()}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


@pair("optimizer-stale-params")
def gan_opt_wrong(bug):
    """The discriminator's optimizer was given the generator's parameters. After 400 steps mean_gap
    is 19.6 instead of 0.11."""
    g = begun(29)
    tl, vl = loaders((points(g, 512),), (points(g, 150),), 32)
    m = nn.ModuleDict({"G": mlp(4, 24, 2), "D": mlp(2, 24, 1, act=leaky)})
    og, od = (
        torch.optim.Adam(m[k].parameters(), 2e-3, betas=(0.5, 0.999))
        for k in ("G", "G" if bug else "D")
    )
    bce = nn.BCEWithLogitsLoss()

    def step(b):
        m.train()
        x = b[0]
        n = len(x)
        real, made = torch.ones(n, 1), torch.zeros(n, 1)
        fake = m["G"](torch.randn(n, 4)).detach()
        m["D"].zero_grad()
        of_critic = bce(m["D"](x), real) + bce(m["D"](fake), made)
        of_critic.backward()
        od.step()
        m["G"].zero_grad()
        of_generator = bce(m["D"](m["G"](torch.randn(n, 4))), real)
        of_generator.backward()
        og.step()
        return of_generator.item() + of_critic.item()

    def evaluate():
        with evaluating(m):
            fake = m["G"](torch.randn(400, 4, generator=gen(5)))
            real = torch.cat([b[0] for b in vl])
            right = (m["D"](real) > 0).float().mean() + (m["D"](fake) < 0).float().mean()
            return {
                "mean_gap": (fake.mean(0) - real.mean(0)).norm().item(),
                "std_gap": (fake.std(0) - real.std(0)).norm().item(),
                "d_acc": 0.5 * right.item(),
            }

    return set_up(m, [og, od], tl, step, val_loader=vl, evaluate=evaluate)


@pair("loss-without-gradient")
def slope_penalty_without_graph(bug):
    """The penalty on the critic's slope is made without create_graph: it counts in the loss and
    trains nothing. After 400 steps critic_slope is 0.07 instead of 0.974."""
    g = begun(30)
    real, other = points(g, 512), points(g, 150)
    tl, vl = loaders((real,), (other,), 24)
    m = nn.ModuleDict({"G": mlp(4, 24, 2), "D": mlp(2, 24, 1, act=leaky)})
    og, od = (torch.optim.Adam(m[k].parameters(), 2e-3, betas=(0.5, 0.9)) for k in "GD")
    steps = 0

    def slopes(real, fake, **words):
        share = torch.rand(len(real), 1)
        z = (share * real + (1 - share) * fake).requires_grad_(True)
        return torch.autograd.grad(m["D"](z).sum(), z, **words)[0].norm(dim=1)

    def step(b):
        nonlocal steps
        m.train()
        x = b[0]
        fake = m["G"](torch.randn(len(x), 4)).detach()
        penalty = ((slopes(x, fake, create_graph=not bug) - 1) ** 2).mean()
        od.zero_grad()
        loss = m["D"](fake).mean() - m["D"](x).mean() + 10 * penalty
        loss.backward()
        od.step()
        steps += 1
        if steps % 3 == 0:
            og.zero_grad()
            (-m["D"](m["G"](torch.randn(len(x), 4))).mean()).backward()
            og.step()
        return loss.item()

    def evaluate():
        m.eval()
        fake = m["G"](torch.randn(len(other), 4, generator=gen(5))).detach()
        return {
            "mean_gap": (fake.mean(0) - other.mean(0)).norm().item(),
            "critic_slope": slopes(other, fake).mean().item(),
        }

    return set_up(m, [og, od], tl, step, val_loader=vl, evaluate=evaluate)
