"""Faults of autoencoders, adversaries, embeddings, policies, values and teachers."""

import copy

import torch
from torch import nn
from torch.distributions import Categorical, Normal
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_fourth.kit import (
    VAE,
    Bandit,
    blobs,
    by_cost,
    evaluating,
    feed,
    fit,
    gen,
    halves,
    loaders,
    low_rank,
    mlp,
    plain_step,
    rebuilt,
    right,
    seed,
    set_up,
    sheets,
    then,
    unscored,
)


@pair("frozen-params")
def vae_code_without_gradient(bug):
    """The VAE draws its code with sample(), which cuts the gradient: the encoder learns from the KL
    term alone. After 150 steps rec_mse is 0.499 instead of 0.029."""
    seed(11)

    def draw(mu, lv):
        q = Normal(mu, (0.5 * lv).exp())
        return q.sample() if bug else q.rsample()

    tl, vl = sheets()
    m = VAE(16, 3, draw)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        out, mu, lv = model(b[0])
        kl = -0.5 * (1 + lv - mu**2 - lv.exp()).sum(1).mean()
        return 0.5 * ((out - b[0]) ** 2).sum(1).mean() / 0.1 + kl

    def sums_of(model, b):
        return {"rec_mse": rebuilt(model, b)}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.G = mlp(4, 32, 2)
        self.D = mlp(2, 32, 1, act=lambda: nn.LeakyReLU(0.2))

    def forward(self, z):
        return self.G(z)


def adversaries(detaches=False, clears=True):
    """A generator and a discriminator; the former's fakes are detached in its own loss or not, the
    latter's gradients are cleared or not."""
    real = torch.randn(640, 2) * 0.3 + torch.tensor([2.0, -1.0])
    tl = feed((real,), 64)
    m = GAN()
    og = torch.optim.Adam(m.G.parameters(), 2e-3, betas=(0.5, 0.999))
    od = torch.optim.Adam(m.D.parameters(), 2e-3, betas=(0.5, 0.999))
    bce = nn.BCEWithLogitsLoss()

    def step(b):
        n = len(b[0])
        fake = m.G(torch.randn(n, 4))
        if clears:
            od.zero_grad()
        cost = bce(m.D(b[0]), torch.ones(n, 1)) + bce(m.D(fake.detach()), torch.zeros(n, 1))
        cost.backward()
        od.step()
        og.zero_grad()
        fooled = bce(m.D(fake.detach() if detaches else fake), torch.ones(n, 1))
        fooled.backward()
        og.step()
        return fooled.item() + cost.item()

    def evaluate():
        with evaluating(m):
            made = m.G(torch.randn(500, 4, generator=gen(5)))
        return {
            "mean_error": (made.mean(0) - real.mean(0)).norm().item(),
            "std_error": (made.std(0) - real.std(0)).norm().item(),
        }

    return set_up(m, [og, od], tl, step, evaluate=evaluate)


@pair("loss-without-gradient")
def gan_fakes_detached_twice(bug):
    """The generator's loss is that of detached fakes, as in the line above: it never learns. After
    150 steps mean_error is 2.08 instead of 0.146."""
    seed(12)
    return adversaries(detaches=bug)


@pair("missing-zero-grad")
def gan_discriminator_not_zeroed(bug):
    """The discriminator's gradients are not cleared: the generator's and old ones pile up in it.
    After 150 steps mean_error is 4.45 instead of 0.237."""
    seed(13)
    return adversaries(clears=not bug)


@pair("targets-out-of-reach")
def autoencoder_sigmoid_on_standardised(bug):
    """The decoder ends in a sigmoid, but the data are standardised: half of them are negative.
    After 150 steps mse is 0.6 instead of 0.052."""
    seed(14)
    a, b = low_rank(400, 1), low_rank(150, 2)
    mean, std = a.mean(0), a.std(0)
    m = nn.Sequential(mlp(16, 32, 3), mlp(3, 32, 16))
    if bug:
        m.append(nn.Sigmoid())
    tl, vl = loaders(((a - mean) / std,), ((b - mean) / std,), 32, 64)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        return F.mse_loss(model(b[0]), b[0])

    def sums_of(model, b):
        return {"mse": rebuilt(model, b)}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Unit(nn.Module):
    """Embeddings of length 1."""

    def __init__(self):
        super().__init__()
        self.net = mlp(18, 32, 8)

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


def clutter(x):
    """The rows with six more numbers that tell nothing."""
    return torch.cat([x, 3 * torch.randn(len(x), 6)], 1)


@pair("wrong-targets")
def simclr_views_interleaved(bug):
    """flatten(0, 1) puts the two views of a row next to each other, but the loss takes row i + N
    for the other view of row i: strangers are drawn together. After 150 steps knn_accuracy is 0.53
    instead of 0.895."""
    seed(15)
    (x, y), (vx, vy) = halves(320, 12, 5, 0.8, held=200)
    x, vx = clutter(x), clutter(vx)

    def views(rows):
        own = torch.stack([row[0] for row in rows])[:, :12]
        return {
            "views": torch.stack([clutter(own + 0.2 * torch.randn(own.shape)) for _ in "ab"], 1)
        }

    tl = feed((x,), 32, collate_fn=views)
    m = Unit()
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        v = b["views"]
        n = len(v)
        z = model(v.flatten(0, 1) if bug else torch.cat(v.unbind(1)))
        itself = torch.eye(2 * n, dtype=torch.bool)
        scores = (z @ z.T / 0.2).masked_fill(itself, float("-inf"))
        return F.cross_entropy(scores, torch.cat([torch.arange(n) + n, torch.arange(n)]))

    def evaluate():
        with evaluating(m):
            nearest = (m(vx) @ m(x).T).argmax(1)
        return {"knn_accuracy": (y[nearest] == vy).float().mean().item()}

    return unscored(m, opt, tl, loss_of, evaluate)


@pair("wrong-targets")
def unlike_embeddings_cost_nothing(bug):
    """CosineEmbeddingLoss gets 0 for unlike pairs, not -1: these cost nothing, and the embeddings
    collapse. After 150 steps accuracy is 0.245 instead of 0.99."""
    seed(16)

    def pairs(n, s):
        x, y = blobs(2 * n, 10, 4, s, 0.9)
        same = (y[:n] == y[n:]).float()
        return {"a": x[:n], "b": x[n:], "label": same if bug else 2 * same - 1}

    tl, vl = loaders(pairs(400, 1), pairs(200, 2), 32, 64)
    m = mlp(10, 32, 8)
    opt = torch.optim.Adam(m.parameters(), 2e-3)
    crit = nn.CosineEmbeddingLoss(margin=0.2)

    def loss_of(model, b):
        return crit(model(b["a"]), model(b["b"]), b["label"])

    def evaluate():
        with evaluating(m):
            s = torch.cat([F.cosine_similarity(m(b["a"]), m(b["b"])) for b in vl])
        like = torch.cat([b["label"] for b in vl]) > 0.5
        above = s[like][:, None] > s[~like][None]
        return {
            "auc": above.float().mean().item(),
            "accuracy": ((s > 0.6) == like).float().mean().item(),
        }

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


@pair("loss-negated")
def reinforce_sign(bug):
    """The policy's loss has no minus: the policy learns the worst action. After 150 steps
    mean_reward is 0.025 instead of 0.723."""
    seed(17)
    bandit = Bandit()
    opt = torch.optim.Adam(bandit.model.parameters(), 5e-3)

    def loss_of(model, b):
        dist = Categorical(logits=model(b[0]))
        a = dist.sample()
        r = bandit.reward(b[0], a)
        advantage = (r - r.mean()) / (r.std() + 1e-6)
        gain = (dist.log_prob(a) * advantage).mean()
        return (gain if bug else -gain) - 0.01 * dist.entropy().mean()

    return unscored(bandit.model, opt, bandit.loader, loss_of, bandit.evaluate)


@pair("terminal-bootstrapped")
def dqn_no_done_mask(bug):
    """The target adds the next state's value at the end of an episode too: values grow beyond any
    return. After 150 steps value_error is 5.14 instead of 0.061."""
    seed(18)
    N = 6

    def transitions(n):
        """Moves in a corridor; at its end are a reward of 1 and the end of the episode."""
        s = torch.randint(0, N, (n,))
        a = torch.randint(0, 2, (n,))
        after = (s + 2 * a - 1).clamp(min=0)
        done = (after == N).float()
        return {
            "state": F.one_hot(s, N).float(),
            "action": a,
            "reward": done,
            "next_state": F.one_hot(after.clamp(max=N - 1), N).float(),
            "done": done.clone(),
        }

    tl = feed(transitions(640), 64)
    q = mlp(N, 32, 2)
    target = copy.deepcopy(q).requires_grad_(False)
    opt = torch.optim.Adam(q.parameters(), 5e-3)

    def loss_of(model, b):
        with torch.no_grad():
            ahead = target(b["next_state"]).max(1).values
            y = b["reward"] + 0.9 * ahead * (1.0 if bug else 1 - b["done"])
        return F.smooth_l1_loss(model(b["state"]).gather(1, b["action"][:, None])[:, 0], y)

    @torch.no_grad()
    def after():
        for p, t in zip(q.parameters(), target.parameters(), strict=True):
            t.lerp_(p, 0.2)

    def evaluate():
        with evaluating(q):
            values = q(torch.eye(N)).max(1).values
        due = 0.9 ** torch.arange(N - 1, -1, -1).float()
        return {"value_error": (values - due).abs().mean().item()}

    step = then(plain_step(q, opt, loss_of), after)
    return unscored(q, opt, tl, loss_of, evaluate, step=step)


@pair("missing-log-softmax")
def distil_kldiv_without_log(bug):
    """kl_div gets the student's probabilities, not their logs: the loss is negative and teaches
    little. After 150 steps kl_to_teacher is 0.048 instead of 0.006."""
    seed(19)
    (x, y), held = halves(400, 10, 5, 0.8, held=200)
    teacher = mlp(10, 64, 5)
    of_teacher = torch.optim.Adam(teacher.parameters(), 1e-2)
    fit(teacher, of_teacher, F.cross_entropy, x, y, 60)
    teacher.eval().requires_grad_(False)
    tl, vl = loaders((x, y), held, 32, 64)
    m = mlp(10, 12, 5)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    T = 2.0

    def loss_of(model, b):
        s = model(b[0]) / T
        s = s.softmax(1) if bug else s.log_softmax(1)
        return F.kl_div(s, (teacher(b[0]) / T).softmax(1), reduction="batchmean") * T * T

    def sums_of(model, b):
        out = model(b[0])
        far = F.kl_div(out.log_softmax(1), teacher(b[0]).softmax(1), reduction="sum")
        return right(out, b[1]) | {"kl_to_teacher": (far, len(out))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=5)
