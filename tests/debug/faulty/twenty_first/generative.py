"""Faults of models that generate and of those that compare views."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_first.kit import (
    SimSiam,
    TwoViews,
    blobs,
    by_cost,
    evaluating,
    feed,
    gen,
    loaders,
    mean_eval,
    mlp,
    nearest,
    nuisance,
    plain_step,
    seed,
    set_up,
)


class VAE(nn.Module):
    def __init__(self, is_cut):
        super().__init__()
        self.enc = mlp(16, 32, 8)
        self.dec = mlp(4, 32, 16)
        self.is_cut = is_cut

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, -1)
        q = torch.distributions.Normal(mu, (0.5 * logvar).exp())
        z = mu
        if self.training:
            z = q.sample() if self.is_cut else q.rsample()
        return self.dec(z), mu, logvar


@pair("frozen-params")
def vae_sample_not_rsample(bug):
    """Normal.sample() lets no gradient of the decoder reach the encoder. After 300 steps recon is
    66.7 instead of 0.947."""
    seed(13)
    g = gen(1)
    w = torch.randn(4, 16, generator=g)
    x = torch.randn(640, 4, generator=g) @ w + 0.1 * torch.randn(640, 16, generator=g)
    tl, vl = loaders((x[:512],), (x[512:],), 32)
    m = VAE(bug)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def recon(model, b):
        return ((model(b[0])[0] - b[0]) ** 2).sum(1)

    def divergence(mu, logvar):
        return -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1)

    def kl(model, b):
        return divergence(*model(b[0])[1:])

    def loss_of(model, b):
        out, mu, logvar = model(b[0])
        return (((out - b[0]) ** 2).sum(1) + divergence(mu, logvar)).mean()

    evaluate = mean_eval(m, vl, {"recon": recon, "kl": kl})
    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


@pair("compared-with-itself")
def both_views_of_one_seed(bug):
    """Both views of a row are drawn with one seed and are the same. After 300 steps knn_acc is
    0.414 instead of 0.969."""
    seed(14)
    known, held = nuisance(256, 1), nuisance(128, 2)
    tl = feed(TwoViews(known[0], bug), 32, drop_last=True)
    m = mlp(16, 32, 8)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        z = F.normalize(torch.cat([model(b["view1"]), model(b["view2"])]), dim=1)
        n = len(z) // 2
        sim = (z @ z.T / 0.2).masked_fill(torch.eye(2 * n, dtype=torch.bool), -1e9)
        return F.cross_entropy(sim, torch.arange(2 * n).roll(n))

    evaluate = nearest(m, known, held)
    return set_up(m, opt, tl, plain_step(m, opt, loss_of), evaluate=evaluate, loss_of=loss_of)


@pair("wrong-targets", "labels-shuffled")
def triplets_of_any_class(bug):
    """Half of the negatives have the class of their anchor. After 300 steps the loss is 0.261
    instead of 0, and same_dist 0.583 instead of 0.53."""
    seed(15)
    x, y = nuisance(300, 5)
    vx, vy = nuisance(150, 6)
    y, vy = y % 2, vy % 2
    rows_of = [(y == c).nonzero().flatten() for c in range(2)]

    class Triplets(Dataset):
        g = gen(8)

        def __len__(self):
            return len(x)

        def pick(self, c, but):
            while True:
                place = int(torch.randint(0, len(rows_of[c]), (1,), generator=self.g))
                k = int(rows_of[c][place])
                if k != but:
                    return k

        def __getitem__(self, i):
            c = int(y[i])
            offset = int(torch.randint(0 if bug else 1, 2, (1,), generator=self.g))
            p, n = self.pick(c, i), self.pick((c + offset) % 2, i)
            return {
                "anchor": x[i],
                "positive": x[p],
                "negative": x[n],
                "label": c,
                "positive_label": int(y[p]),
                "negative_label": int(y[n]),
            }

    tl = feed(Triplets(), 32)
    m = mlp(16, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        roles = ("anchor", "positive", "negative")
        return F.triplet_margin_loss(*(F.normalize(model(b[k]), dim=1) for k in roles), margin=0.5)

    score = nearest(m, (x, y), (vx, vy))

    def evaluate():
        with evaluating(m):
            z = F.normalize(m(vx), dim=1)
        d = torch.cdist(z, z)
        is_same = vy[:, None] == vy[None]
        is_other = ~torch.eye(len(z), dtype=torch.bool)
        return {
            "same_dist": d[is_same & is_other].mean().item(),
            "diff_dist": d[~is_same].mean().item(),
            "recall_at_1": score()["knn_acc"],
        }

    return set_up(m, opt, tl, plain_step(m, opt, loss_of), evaluate=evaluate, loss_of=loss_of)


@pair("missing-zero-grad")
def gan_generator_fed_by_d_loss(bug):
    """The critic's loss reaches the generator, whose gradients are cleared before it alone. After
    300 steps centre_error is 2.42 instead of 0.235."""
    seed(16)
    x = 2 + 0.4 * torch.randn(512, 2, generator=gen(1))
    tl = feed((x,), 64, drop_last=True)
    G = mlp(4, 32, 2)
    D = mlp(2, 32, 1, act=lambda: nn.LeakyReLU(0.2))
    m = nn.ModuleDict({"G": G, "D": D})
    og = torch.optim.SGD(G.parameters(), 0.05)
    od = torch.optim.RMSprop(D.parameters(), 2e-3)
    noise = gen(2)

    def step(batch):
        real = batch[0]
        m.train()
        og.zero_grad()
        od.zero_grad()
        fake = G(torch.randn(len(real), 4, generator=noise))
        d_loss = D(fake if bug else fake.detach()).mean() - D(real).mean()
        d_loss.backward()
        od.step()
        with torch.no_grad():
            for p in D.parameters():
                p.clamp_(-0.2, 0.2)
        g_loss = -D(G(torch.randn(len(real), 4, generator=noise))).mean()
        g_loss.backward()
        og.step()
        return d_loss.item()

    def evaluate():
        with evaluating(m):
            fake = G(torch.randn(400, 4, generator=gen(5)))
        return {"centre_error": (fake.mean(0) - 2).norm().item()}

    return set_up(m, [og, od], tl, step, evaluate=evaluate)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(3, 48, 48, 2, act=nn.SiLU)

    def forward(self, x, t):
        return self.net(torch.cat([x, t[:, None]], 1))


@pair("targets-unrelated")
def diffusion_fresh_noise_target(bug):
    """The noise that is to be predicted is drawn again, and is not the one that was added. After
    300 steps val_mse is 1.1 instead of 0.378."""
    seed(18)
    x, _ = blobs(640, 2, 4, 1, spread=0.1, centre=1.0)
    tl, vl = loaders((x[:512],), (x[512:],), 64)
    m = Denoiser()
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def costs(model, b, g=None):
        rows = b[0]
        t = torch.rand(len(rows), generator=g)
        a = (torch.cos(t * math.pi / 2) ** 2)[:, None].clamp(1e-4)
        eps = torch.randn(rows.shape, generator=g)
        told = model(a.sqrt() * rows + (1 - a).sqrt() * eps, t)
        target = torch.randn(rows.shape, generator=g) if bug else eps
        return ((told - target) ** 2).mean(1)

    def loss_of(model, b):
        return costs(model, b).mean()

    def evaluate():
        g = gen(4)
        return mean_eval(m, vl, {"val_mse": lambda m, b: costs(m, b, g)})()

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


@pair("loss-through-target")
def simsiam_without_stop_gradient(bug):
    """The targets are not detached, and all embeddings fall together. After 300 steps embedding_std
    is 0.009 instead of 0.193 and knn_acc 0.477 instead of 0.719."""
    seed(19)
    known, held = nuisance(256, 1), nuisance(128, 2)
    tl = feed(TwoViews(known[0]), 32, drop_last=True)
    m = SimSiam()
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)

    def loss_of(model, b):
        z1, z2 = model(b["view1"]), model(b["view2"])
        p1, p2 = model.pred(z1), model.pred(z2)
        if not bug:
            z1, z2 = z1.detach(), z2.detach()
        return -(F.cosine_similarity(p1, z2).mean() + F.cosine_similarity(p2, z1).mean()) / 2

    score = nearest(m, known, held)

    def evaluate():
        with evaluating(m):
            z = F.normalize(m(held[0]), dim=1)
        return {"embedding_std": z.std(0).mean().item()} | score()

    return set_up(m, opt, tl, plain_step(m, opt, loss_of), evaluate=evaluate, loss_of=loss_of)


@pair("wrong-targets")
def denoising_target_noised_in_place(bug):
    """The noise is added in place, so that the target has it too. After 300 steps denoise_mse is
    0.636 instead of 0.086."""
    seed(20)
    g = gen(1)
    w = torch.randn(3, 20, generator=g)
    x = torch.randn(640, 3, generator=g) @ w / 2
    tl, vl = loaders((x[:512],), (x[512:],), 32)
    m = mlp(20, 64, 20)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, batch):
        x = batch[0]
        noise = 0.8 * torch.randn(x.shape)
        noisy = x.add_(noise) if bug else x + noise
        return F.mse_loss(model(noisy), x)

    def evaluate():
        g = gen(2)

        def errors(m, b):
            noisy = b[0] + 0.8 * torch.randn(b[0].shape, generator=g)
            return ((m(noisy) - b[0]) ** 2).mean(1)

        return mean_eval(m, vl, {"denoise_mse": errors})()

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)
