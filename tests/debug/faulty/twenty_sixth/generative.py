"""Faults of generation, representations, distillation, reinforcement and fine-tuning."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.fifteenth.kit import energy
from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_sixth.kit import (
    averaged,
    blobs,
    by_cost,
    by_pairs,
    class_sums,
    evaluating,
    feed,
    fit,
    gen,
    halves,
    loaders,
    mlp,
    plain_step,
    right,
    seed,
    set_up,
    sheet,
)


class Adversaries(nn.Module):
    def __init__(self):
        super().__init__()
        self.G = mlp(4, 32, 2)
        self.D = mlp(2, 32, 1)


@pair("loss-without-gradient", "frozen-params", "no-gradient")
def generators_points_detached_for_both(bug):
    """The made points are detached once and both losses take them, so that the generator learns
    nothing. After 150 steps the energy distance to real points is 2.5 instead of 0.11."""
    seed(21)
    g = gen(210)
    x = torch.randn(640, 2, generator=g) * torch.tensor([0.4, 0.3]) + torch.tensor([1.5, -1.0])
    tl = feed((x,), 64)
    m = Adversaries()
    o_g = torch.optim.Adam(m.G.parameters(), 3e-3, betas=(0.5, 0.9))
    o_d = torch.optim.Adam(m.D.parameters(), 3e-3, betas=(0.5, 0.9))
    bce = F.binary_cross_entropy_with_logits

    def step(b):
        m.train()
        real = b[0]
        fake = m.G(torch.randn(len(real), 4))
        if bug:
            fake = fake.detach()
        yes, no = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        o_d.zero_grad()
        loss_d = bce(m.D(real), yes) + bce(m.D(fake.detach()), no)
        loss_d.backward()
        o_d.step()
        o_g.zero_grad()
        loss_g = bce(m.D(fake), yes)
        loss_g.backward()
        o_g.step()
        return loss_g.item() + loss_d.item()

    z = torch.randn(300, 4, generator=g)

    def evaluate():
        with evaluating(m):
            return {"energy": energy(m.G(z), x[:300])}

    return set_up(m, [o_d, o_g], tl, step, evaluate=evaluate)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = mlp(14, 48, 6)
        self.dec = mlp(3, 48, 14)

    def forward(self, x):
        mu, lv = self.enc(x).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * lv).exp() if self.training else mu
        return self.dec(z), mu, lv


@pair("wrong-formula", "loss-negated")
def divergence_with_its_sign_lost(bug):
    """The divergence of the codes lacks its minus, so that codes are rewarded for going far from
    the prior. After 150 steps the mean square of the codes is 5259 instead of 1.5."""
    seed(22)
    tl, vl = loaders((sheet(480, 221),), (sheet(160, 222),), 32, 80)
    m = VAE()
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        out, mu, lv = model(b[0])
        rebuilt = ((out - b[0]) ** 2).sum(1).mean()
        kl = 0.5 * (1 + lv - mu**2 - lv.exp()).sum(1).mean()
        return rebuilt + 0.1 * (kl if bug else -kl)

    def sums_of(model, b):
        out, mu, _ = model(b[0])
        return {
            "val_mse": (((out - b[0]) ** 2).sum(), b[0].numel()),
            "code_square": ((mu**2).sum(), mu.numel()),
        }

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("rng-reseeded", "same-draws")
def noise_seeded_inside_the_step(bug):
    """The helper that makes times and noise seeds the generator for the sake of repeatability:
    every batch has the same ones. After 150 steps the held error of the noise is 0.68 instead of
    0.31."""
    seed(23)
    tl, vl = loaders((sheet(480, 231),), (sheet(160, 232),), 32, 80)
    m = mlp(15, 96, 96, 14)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    kept = torch.cos(torch.linspace(0.05, 1.5, 20))

    def noised(x):
        if bug:
            torch.manual_seed(42)
        t = torch.randint(0, 20, (len(x),))
        e = torch.randn_like(x)
        a = kept[t][:, None]
        return torch.cat([a * x + (1 - a**2).sqrt() * e, t[:, None] / 20], 1), e

    def loss_of(model, b):
        x, e = noised(b[0])
        return F.mse_loss(model(x), e)

    e0 = torch.randn(160, 14, generator=gen(5))
    t0 = torch.randint(0, 20, (160,), generator=gen(6))
    held = sheet(160, 232)

    def evaluate():
        a = kept[t0][:, None]
        with evaluating(m):
            out = m(torch.cat([a * held + (1 - a**2).sqrt() * e0, t0[:, None] / 20], 1))
        return {"noise_mse": F.mse_loss(out, e0).item()}

    return set_up(
        m, opt, tl, plain_step(m, opt, loss_of), val_loader=vl, loss_of=loss_of, evaluate=evaluate
    )


class Towers(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.image = mlp(14, 48, 8)
        self.text = mlp(10, 48, 8)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.dim = dim

    def forward(self, x, t):
        a = F.normalize(self.image(x), dim=self.dim)
        b = F.normalize(self.text(t), dim=self.dim)
        return self.scale.exp() * a @ b.T


@pair("rows-mixed")
def towers_normalised_over_the_batch(bug):
    """The embeddings of two towers are normalised along dimension 0, over the rows of the batch.
    After 150 steps the share of held images whose own text is nearest is 0.62 instead of 0.86."""
    seed(24)

    def rows(n, s):
        x = sheet(n, s)
        view = torch.randn(14, 10, generator=gen(77)) / 14**0.5
        return {"image": x, "text": torch.tanh(x @ view)}

    tl, vl = loaders(rows(480, 241), rows(160, 242), 32, 32)
    m = Towers(0 if bug else 1)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        s = model(b["image"], b["text"])
        own = torch.arange(len(s))
        return (F.cross_entropy(s, own) + F.cross_entropy(s.T, own)) / 2

    def sums_of(model, b):
        s = model(b["image"], b["text"])
        return right(s, torch.arange(len(s)), "recall_at_1")

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("missing-log-softmax")
def divergence_from_probabilities(bug):
    """kl_div is given the student's probabilities where it takes their logarithms. After 150 steps
    the divergence from the teacher on held rows is 0.42 instead of 0.17."""
    seed(25)
    train, held = halves(400, 12, 5, 1.6)
    tl, vl = loaders(train, held, 40, 75)
    teacher = mlp(12, 64, 5)
    fit(teacher, torch.optim.Adam(teacher.parameters(), 1e-2), F.cross_entropy, *train, 80)
    teacher.eval().requires_grad_(False)
    m = mlp(12, 16, 5)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        told = (teacher(b[0]) / 2).softmax(1)
        out = model(b[0]) / 2
        out = out.softmax(1) if bug else out.log_softmax(1)
        return 4 * F.kl_div(out, told, reduction="batchmean")

    def sums_of(model, b):
        out = model(b[0])
        told = teacher(b[0]).log_softmax(1)
        apart = F.kl_div(out.log_softmax(1), told, reduction="sum", log_target=True)
        return right(out, b[1]) | {"from_teacher": (apart, len(out))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=5)


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(12, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16)
        )
        self.predictor = mlp(16, 16, 16)

    def forward(self, x):
        z = self.encoder(x)
        return z, self.predictor(z)


@pair("loss-through-target")
def both_views_pulled_together(bug):
    """The target view of a siamese pair is not detached: all embeddings become alike. After 150
    steps their spread over the held rows, normalised, is 0.056 instead of 0.7."""
    seed(26)
    (x, _), (vx, _) = halves(480, 12, 5, 0.7)
    tl, vl = loaders((x,), (vx,), 48, 75)
    m = Siamese()
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)

    def near(p, z):
        return -F.cosine_similarity(p, z if bug else z.detach()).mean()

    def loss_of(model, b):
        z1, p1 = model(b[0] + 0.4 * torch.randn_like(b[0]))
        z2, p2 = model(b[0] + 0.4 * torch.randn_like(b[0]))
        return (near(p1, z2) + near(p2, z1)) / 2

    def evaluate():
        with evaluating(m):
            z = F.normalize(m.encoder(vx), dim=1)
        return {"spread": (z.std(0).mean() * 16**0.5).item()}

    return set_up(
        m, opt, tl, plain_step(m, opt, loss_of), val_loader=vl, loss_of=loss_of, evaluate=evaluate
    )


@pair("inplace-modified", "wrong-targets", "memory-shared", "compared-with-itself")
def denoiser_whose_rows_become_noisy(bug):
    """The noise of a denoising autoencoder is added in place, so that the clean rows it is
    compared with are noisy too. After 150 steps the held error against clean rows is 0.34 instead
    of 0.089."""
    seed(27)
    tl, vl = loaders((sheet(480, 271),), (sheet(160, 272),), 32, 80)
    m = mlp(14, 96, 14)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def step(b):
        m.train()
        (x,) = b
        noisy = x if bug else x.clone()
        noisy += 0.6 * torch.randn_like(x)
        loss = F.mse_loss(m(noisy), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    held = sheet(160, 272)
    noise = 0.6 * torch.randn(160, 14, generator=gen(9))

    def evaluate():
        with evaluating(m):
            return {"clean_mse": F.mse_loss(m(held + noise), held).item()}

    return set_up(m, opt, tl, step, val_loader=vl, evaluate=evaluate)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = mlp(6, 48, 4)
        self.critic = mlp(6, 48, 1)

    def forward(self, s):
        return torch.distributions.Categorical(logits=self.actor(s)), self.critic(s)[:, 0]


@pair("loss-through-baseline")
def actor_that_moves_its_critic(bug):
    """The advantage of an actor and critic keeps its gradient, so that the actor's loss moves the
    critic as well. After 150 steps the held error of the critic is 0.8 instead of 0.35."""
    seed(28)
    W = torch.randn(6, 4, generator=gen(281))
    held = torch.randn(300, 6, generator=gen(282))
    tl = feed((torch.randn(640, 6, generator=gen(283)),), 64)
    m = ActorCritic()
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def paid(states, actions):
        return 2 * torch.tanh((states @ W).gather(1, actions[:, None])[:, 0])

    def step(b):
        m.train()
        policy, value = m(b[0])
        action = policy.sample()
        earned = paid(b[0], action)
        gain = earned - value
        if not bug:
            gain = gain.detach()
        actor_loss = -(policy.log_prob(action) * gain).mean()
        loss = actor_loss + 0.5 * F.mse_loss(value, earned) - 0.01 * policy.entropy().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    every = torch.arange(4)

    def evaluate():
        with evaluating(m):
            policy, value = m(held)
            pay = torch.stack([paid(held, a.expand(300)) for a in every], 1)
            due = (policy.probs * pay).sum(1)
        return {"critic_mse": F.mse_loss(value, due).item(), "mean_reward": due.mean().item()}

    return set_up(m, opt, tl, step, evaluate=evaluate)


class Lora(nn.Module):
    def __init__(self, linear, bug, rank=4):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        first = torch.randn(rank, linear.in_features) / linear.in_features**0.5
        self.A = nn.Parameter(torch.zeros_like(first) if bug else first)
        self.B = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x):
        return self.linear(x) + 2 * x @ self.A.T @ self.B.T


@pair("bad-start", "frozen-params", "no-gradient", "loss-without-gradient")
def both_adapters_begin_at_zero(bug):
    """Both matrices of a low-rank adapter begin at zero, where neither has a gradient. After 150
    steps the held accuracy is 0.0067 instead of 0.98."""
    seed(29)
    train, held = halves(400, 12, 4)
    old = blobs(400, 12, 4, 8)
    base = mlp(12, 48, 4)
    perm = torch.tensor([2, 0, 3, 1])
    fit(base, torch.optim.Adam(base.parameters(), 1e-2), F.cross_entropy, old[0], perm[old[1]], 60)
    base.requires_grad_(False)
    m = nn.Sequential(Lora(base[0], bug), nn.ReLU(), Lora(base[2], bug))
    tl, vl = loaders(train, held, 40, 75)
    opt = torch.optim.Adam([p for p in m.parameters() if p.requires_grad], 5e-3)
    frozen = [n for n, p in m.named_parameters() if not p.requires_grad]
    return by_pairs(
        m, opt, tl, vl, num_classes=4, evaluate=averaged(m, vl, class_sums),
        declared={"frozen": frozen},
    )  # fmt: skip
