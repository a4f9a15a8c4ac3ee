"""Faults of generative, contrastive and distilled models and of learning from rewards."""

import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F

from tests.debug.faulty.fourteenth.kit import energy
from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_fifth.kit import (
    bars,
    blobs,
    by_cost,
    evaluating,
    feed,
    fit,
    gen,
    loaders,
    mlp,
    right,
    seed,
    set_up,
)


def sheet(n, s):
    """Rows near a curved sheet of two dimensions: [n, 12]."""
    g = gen(s)
    A = torch.randn(2, 12, generator=gen(200))
    return torch.tanh(torch.randn(n, 2, generator=g) @ A) + 0.05 * torch.randn(n, 12, generator=g)


class Coder(nn.Module):
    """A variational autoencoder; in evaluation the code is its mean."""

    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(12, 48), nn.ReLU())
        self.mean = nn.Linear(48, 2)
        self.logvar = nn.Linear(48, 2)
        self.dec = mlp(2, 48, 12)

    def forward(self, x):
        h = self.enc(x)
        mean, logvar = self.mean(h), self.logvar(h)
        z = mean
        if self.training:
            z = mean + torch.randn_like(mean) * torch.exp(0.5 * logvar)
        return self.dec(z), mean, logvar


@pair("loss-negated", "wrong-formula")
def divergence_of_the_other_sign(bug):
    """The divergence from the prior is written without its minus: codes are rewarded for straying
    from the prior. After 150 steps what is drawn is 0.86 away instead of 0.23."""
    seed(21)
    tl, vl = loaders((sheet(384, 1),), (sheet(160, 2),), 32, 64)
    m = Coder()
    opt = torch.optim.Adam(m.parameters(), 2e-3)

    def loss_of(model, b):
        (x,) = b
        out, mean, logvar = model(x)
        rec = ((out - x) ** 2).sum(1).mean()
        kl = (1 + logvar - mean**2 - logvar.exp()).sum(1).mean()
        return rec + 0.1 * (0.5 if bug else -0.5) * kl

    real = sheet(300, 3)

    def evaluate():
        with evaluating(m):
            errors = torch.cat([((m(x)[0] - x) ** 2).mean(1) for (x,) in vl])
            made = m.dec(torch.randn(300, 2, generator=gen(4)))
        return {"rec_mse": errors.mean().item(), "sample_distance": energy(made, real)}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


def ring(n, s):
    g = gen(s)
    a = 6.2832 * torch.rand(n, generator=g)
    return torch.stack([a.cos(), a.sin()], 1) + 0.05 * torch.randn(n, 2, generator=g)


class Denoiser(nn.Module):
    """Tells the noise in a point, given the time."""

    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(20, 16)
        self.net = mlp(18, 128, 128, 2)

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], 1))


@pair("wrong-targets", "wrong-formula")
def point_told_in_place_of_the_noise(bug):
    """The network is trained to tell the point and the sampler takes what it tells for the noise.
    After 150 steps what is drawn is 2.23 away instead of 0.027."""
    seed(22)
    data = ring(2048, 1)
    tl = feed((data,), 256)
    m = Denoiser()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    betas = torch.linspace(0.01, 0.4, 20)
    alphas = 1 - betas
    kept_by = alphas.cumprod(0)

    def loss_of(model, b):
        (x,) = b
        t = torch.randint(0, 20, (len(x),))
        noise = torch.randn_like(x)
        kept = kept_by[t][:, None]
        out = model(kept.sqrt() * x + (1 - kept).sqrt() * noise, t)
        return F.mse_loss(out, x if bug else noise)

    real = ring(400, 2)

    def evaluate():
        g = gen(5)
        with evaluating(m):
            x = torch.randn(400, 2, generator=g)
            for t in reversed(range(20)):
                eps = m(x, torch.full((400,), t))
                x = (x - betas[t] / (1 - kept_by[t]).sqrt() * eps) / alphas[t].sqrt()
                if t:
                    x = x + betas[t].sqrt() * torch.randn(400, 2, generator=g)
        return {"sample_distance": energy(x, real)}

    return by_cost(m, opt, tl, feed((real,), 64, shuffle=False), loss_of, None, evaluate=evaluate)


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.G = mlp(4, 32, 2)
        self.D = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, z):
        return self.G(z)


@pair("loss-negated", "wrong-targets")
def generator_wants_to_be_found_out(bug):
    """The generator's own loss has the label of made points: it helps the discriminator. After 150
    steps what is made is 8.9 away instead of 0.35."""
    seed(23)
    real, held = (ring(n, n) + torch.tensor([2.0, 0.0]) for n in (512, 300))
    tl = feed((real,), 64)
    m = GAN()
    opt_g = torch.optim.Adam(m.G.parameters(), 2e-3, betas=(0.5, 0.99))
    opt_d = torch.optim.Adam(m.D.parameters(), 2e-3, betas=(0.5, 0.99))
    bce = nn.BCEWithLogitsLoss()

    def step(b):
        (x,) = b
        m.train()
        ones, zeros = torch.ones(len(x), 1), torch.zeros(len(x), 1)
        made = m.G(torch.randn(len(x), 4))
        opt_d.zero_grad()
        loss_d = bce(m.D(x), ones) + bce(m.D(made.detach()), zeros)
        loss_d.backward()
        opt_d.step()
        opt_g.zero_grad()
        loss_g = bce(m.D(made), zeros if bug else ones)
        loss_g.backward()
        opt_g.step()
        return loss_d.item()

    z = torch.randn(300, 4, generator=gen(7))

    def evaluate():
        with evaluating(m):
            return {"sample_distance": energy(m(z), held)}

    return set_up(m, [opt_g, opt_d], tl, step, evaluate=evaluate)


@pair("wrong-targets", "target-in-inputs")
def denoised_towards_the_noise(bug):
    """A denoising network for pictures is compared with the noisy picture it was given. After 150
    steps the mse to the clean one is 0.48 instead of 0.049."""
    seed(24)

    def clean(n, s):
        return (bars(n, s, 0.0)[0],)

    tl, vl = loaders(clean(320, 1), clean(150, 2), 32, 64)
    m = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 1, 3, padding=1),
    )  # fmt: skip
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        (x,) = b
        noisy = x + 0.7 * torch.randn_like(x)
        return F.mse_loss(model(noisy), noisy if bug else x)

    fixed = 0.7 * torch.randn(150, 1, 8, 8, generator=gen(8))

    def evaluate():
        with evaluating(m):
            x = torch.cat([x for (x,) in vl])
            return {"clean_mse": F.mse_loss(m(x + fixed), x).item()}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = mlp(12, 32, 8)
        self.text = mlp(10, 32, 8)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, image, text):
        a = F.normalize(self.image(image), dim=1)
        b = F.normalize(self.text(text), dim=1)
        return self.scale.exp() * a @ b.T


@pair("wrong-targets", "rows-mixed", "depends-on-order")
def every_pair_is_said_to_be_the_first(bug):
    """In a batch of images and texts each is to be matched with the first one, as it was right
    where the positive stands in column 0. After 150 steps the recall is 0 instead of 0.93."""
    seed(25)

    def both(n, s):
        g = gen(s)
        z = torch.randn(n, 4, generator=g)
        image = z @ torch.randn(4, 12, generator=gen(251)) + 0.3 * torch.randn(n, 12, generator=g)
        text = torch.tanh(z @ torch.randn(4, 10, generator=gen(252)))
        return {"image": image, "text": text}

    tl, vl = loaders(both(384, 1), both(96, 2), 32, 32)
    m = Towers()
    opt = torch.optim.AdamW(m.parameters(), 3e-3)

    def loss_of(model, b):
        logits = model(b["image"], b["text"])
        n = len(logits)
        labels = torch.zeros(n, dtype=torch.long) if bug else torch.arange(n)
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2

    def found(model, b):
        logits = model(b["image"], b["text"])
        return right(logits, torch.arange(len(logits)), "recall_at_1_of_32")

    return by_cost(m, opt, tl, vl, loss_of, found)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp(6, 32, 32)
        self.policy = nn.Linear(32, 4)
        self.value = nn.Linear(32, 1)

    def forward(self, s):
        h = F.relu(self.body(s))
        return self.policy(h), self.value(h)[:, 0]


@pair("loss-through-baseline")
def advantage_pulls_on_the_critic(bug):
    """The advantage in the actor's loss is not detached: it pulls the values up. After 150 steps
    they are 0.91 too high instead of 0.05."""
    seed(26)
    W = torch.randn(6, 4)
    m = ActorCritic()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl = feed((torch.randn(640, 6),), 64)
    held = torch.randn(300, 6)

    def earned(states, actions):
        return torch.sigmoid((states @ W).gather(1, actions[:, None])[:, 0])

    def loss_of(model, b):
        (states,) = b
        logits, values = model(states)
        policy = Categorical(logits=logits)
        actions = policy.sample()
        advantage = earned(states, actions) - values
        actor = -(policy.log_prob(actions) * (advantage if bug else advantage.detach())).mean()
        critic = advantage.pow(2).mean()
        return actor + 0.5 * critic - 0.01 * policy.entropy().mean()

    def evaluate():
        with evaluating(m):
            logits, values = m(held)
            expected = (logits.softmax(1) * torch.sigmoid(held @ W)).sum(1)
            best = logits.argmax(1)
            return {
                "greedy_reward": earned(held, best).mean().item(),
                "value_bias": (values - expected).mean().item(),
            }

    return by_cost(m, opt, tl, None, loss_of, None, evaluate=evaluate)


@pair("rows-mixed")
def teacher_softened_over_the_batch(bug):
    """The teacher's softmax goes over dimension 0: the shares of a row depend on its batch. After
    150 steps the student is 0.72 from the teacher instead of 0.15."""
    seed(27)
    noise = 1.6

    def uneven(n, s):
        """Rows without their classes, of which the first is far more frequent than the last."""
        x, y = blobs(4 * n, 12, 5, s, noise)
        keep = torch.rand(len(y), generator=gen(s)) < torch.tensor([1.0, 0.3, 0.1, 0.05, 0.05])[y]
        return (x[keep][:n],)

    tl, vl = feed(uneven(320, 271), 8), feed(uneven(200, 272), 64, shuffle=False)
    teacher = mlp(12, 64, 5)
    fit(teacher, torch.optim.Adam(teacher.parameters(), 1e-2), nn.CrossEntropyLoss(),
        *blobs(800, 12, 5, 270, noise), 80)  # fmt: skip
    teacher.requires_grad_(False).eval()
    m = mlp(12, 24, 5)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    T = 2.0

    def loss_of(model, b):
        (x,) = b
        with torch.no_grad():
            soft = F.softmax(teacher(x) / T, dim=0 if bug else 1)
        return T * T * F.kl_div(F.log_softmax(model(x) / T, dim=1), soft, reduction="batchmean")

    def sums_of(model, b):
        (x,) = b
        mine, told = model(x).log_softmax(1), teacher(x).log_softmax(1)
        far = F.kl_div(mine, told, reduction="sum", log_target=True)
        return {"from_teacher": (far, len(x))} | right(mine, told.argmax(1), "agreement")

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=5)
