"""Faults of autoencoders, adversaries, flows, diffusion, embeddings, teachers and decisions."""

import copy
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_third.kit import (
    begun,
    by_cost,
    clusters,
    copying,
    evaluating,
    feed,
    gen,
    loaders,
    mlp,
    off_the_ring,
    plain_step,
    ring,
    set_up,
)
from tests.debug.faulty.twenty_third.kit import blobs as around


class VAE(nn.Module):
    """Draws a code in training and takes its mean in evaluation."""

    def __init__(self, d, z):
        super().__init__()
        self.enc = mlp(d, 32, 2 * z)
        self.dec = mlp(z, 32, d)

    def forward(self, x):
        mu, lv = self.enc(x).chunk(2, -1)
        z = mu + torch.randn_like(mu) * (0.5 * lv).exp() if self.training else mu
        return self.dec(z), mu, lv


@pair("wrong-formula")
def kl_of_all_rows_beside_a_mean(bug):
    """The reconstruction is a mean over all numbers, the KL a sum over all rows, which drowns it.
    After 300 steps recon_mse is 0.558 instead of 0.035."""
    g = begun(11)
    d = 16
    W = torch.randn(3, d, generator=g)

    def data(n):
        sheet = torch.tanh(torch.randn(n, 3, generator=g) @ W)
        return {"x": sheet + 0.05 * torch.randn(n, d, generator=g)}

    m = VAE(d, 3)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(data(512), data(100), 32, 50)

    def divergence(mu, lv):
        return -0.5 * (1 + lv - mu**2 - lv.exp())

    def loss_of(model, b):
        out, mu, lv = model(b["x"])
        kl = divergence(mu, lv)
        if bug:
            return F.mse_loss(out, b["x"]) + kl.sum()
        # a Gaussian decoder of variance 0.1
        return (((out - b["x"]) ** 2).sum(1) / (2 * 0.1) + kl.sum(1)).mean()

    def sums_of(model, b):
        out, mu, lv = model(b["x"])
        return {
            "recon_mse": (((out - b["x"]) ** 2).sum(), out.numel()),
            "kl": (divergence(mu, lv).sum(), len(mu)),
        }

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


def drawn(generator):
    """Points of the generator from the same 256 codes each time."""
    with torch.no_grad():
        return generator(torch.randn(256, 4, generator=gen(0)))


@pair("optimizer-stale-params", "optimizer-holds-another")
def gan_wrong_params(bug):
    """The generator's optimizer holds the discriminator's parameters: the generator never changes,
    and its step harms the other. After 300 steps radius_error is 1.85 instead of 0.939."""
    g = begun(12)
    G = mlp(4, 32, 32, 2)
    D = mlp(2, 32, 32, 1)
    m = nn.ModuleDict({"generator": G, "discriminator": D})
    od = torch.optim.Adam(D.parameters(), 2e-3, betas=(0.5, 0.9))
    og = torch.optim.Adam((D if bug else G).parameters(), 1e-3, betas=(0.5, 0.9))
    tl = feed({"real": ring(g, 512)}, 32)
    bce = F.binary_cross_entropy_with_logits

    def step(b):
        m.train()
        real = b["real"]
        n = len(real)
        od.zero_grad()
        fake = G(torch.randn(n, 4)).detach()
        cost = bce(D(real), torch.ones(n, 1)) + bce(D(fake), torch.zeros(n, 1))
        cost.backward()
        od.step()
        og.zero_grad()
        fooled = bce(D(G(torch.randn(n, 4))), torch.ones(n, 1))
        fooled.backward()
        og.step()
        return (cost + fooled).item()

    def evaluate():
        return {"radius_error": off_the_ring(drawn(G))}

    return set_up(m, [od, og], tl, step, evaluate=evaluate)


@pair("clip-misplaced")
def wgan_clip_noop(bug):
    """The critic's weights are clipped into new tensors that nothing keeps. After 300 steps
    critic_max_weight is 3.17 instead of 0.1."""
    g = begun(13)
    G = mlp(4, 32, 2)
    D = mlp(2, 32, 32, 1)
    m = nn.ModuleDict({"generator": G, "critic": D})
    limit = 0.1
    od = torch.optim.RMSprop(D.parameters(), 2e-3)
    og = torch.optim.RMSprop(G.parameters(), 1e-3)
    tl = feed({"real": ring(g, 512)}, 32)

    def step(b):
        m.train()
        real = b["real"]
        n = len(real)
        for _ in range(3):
            od.zero_grad()
            cost = D(G(torch.randn(n, 4)).detach()).mean() - D(real).mean()
            cost.backward()
            od.step()
            with torch.no_grad():
                for p in D.parameters():
                    if bug:
                        p = p.clamp(-limit, limit)
                    else:
                        p.clamp_(-limit, limit)
        og.zero_grad()
        (-D(G(torch.randn(n, 4))).mean()).backward()
        og.step()
        return cost.item()

    def evaluate():
        largest = max(p.abs().max().item() for p in D.parameters())
        return {"radius_error": off_the_ring(drawn(G)), "critic_max_weight": largest}

    declared = {"weight_clip": limit}
    return set_up(m, [od, og], tl, step, evaluate=evaluate, declared=declared)


@pair("wrong-formula")
def credits_a_fresh_action(bug):
    """REINFORCE takes the log-probability of an action drawn for the loss, not of the one that
    earned the reward. After 300 steps mean_reward is 0.21 instead of 0.95."""
    g = begun(14)
    m = mlp(5, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    W = torch.randn(5, 4, generator=g)
    tl = feed({"state": torch.randn(640, 5, generator=g)}, 64)
    held = torch.randn(300, 5, generator=g)

    def reward(states, actions):
        return ((states @ W).argmax(1) == actions).float()

    def step(b):
        m.train()
        dist = torch.distributions.Categorical(logits=m(b["state"]))
        played = dist.sample()
        r = reward(b["state"], played)
        log_p = dist.log_prob(dist.sample() if bug else played)
        loss = -(log_p * (r - r.mean())).mean() - 0.01 * dist.entropy().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        with evaluating(m):
            return {"mean_reward": reward(held, m(held).argmax(1)).mean().item()}

    return set_up(m, opt, tl, step, evaluate=evaluate)


class Corridor:
    """Seven places in a row, from the middle; the last one gives 1, and both ends are the end."""

    places = 7

    def reset(self):
        self.at = 3
        self.state = np.zeros(self.places, np.float32)
        self.state[self.at] = 1
        return self.state

    def step(self, action):
        self.at += 1 if action else -1
        self.state[:] = 0
        self.state[self.at] = 1
        last = self.places - 1
        return self.state, float(self.at == last), self.at in (0, last)


@pair("memory-shared", "stored-data-changed")
def replay_aliased_state(bug):
    """The buffer keeps the environment's own array, which changes in place: a state and the one
    after it are the same. After 300 steps return is 0 instead of 0.81."""
    begun(15)
    rng = np.random.default_rng(15)
    env = Corridor()

    def kept(state):
        return state if bug else state.copy()

    played = []
    for _ in range(60):
        state, done, t = env.reset(), False, 0
        while not done and t < 40:
            action = int(rng.integers(2))
            before = kept(state)
            state, reward, done = env.step(action)
            played.append((before, action, reward, kept(state), float(done)))
            t += 1
    obs, act, rew, after, ends = (
        torch.tensor(np.array(column)) for column in zip(*played, strict=True)
    )
    columns = {
        "obs": obs.float(),
        "act": act.long(),
        "rew": rew.float(),
        "next_obs": after.float(),
        "done": ends.float(),
    }
    tl = feed(columns, 32)
    m = mlp(env.places, 32, 2)
    target = copy.deepcopy(m).requires_grad_(False)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        with torch.no_grad():
            best = target(b["next_obs"]).max(1).values
            y = b["rew"] + 0.9 * (1 - b["done"]) * best
        return F.smooth_l1_loss(model(b["obs"]).gather(1, b["act"][:, None]).squeeze(1), y)

    def evaluate():
        state, done, t, total = env.reset(), False, 0, 0.0
        with evaluating(m):
            while not done and t < 20:
                state, reward, done = env.step(int(m(torch.tensor(state)).argmax()))
                total += 0.9**t * reward
                t += 1
        return {"return": total}

    step = copying(m, target, opt, loss_of, 20)
    declared = {"target_sync_every": 20}
    return set_up(m, opt, tl, step, evaluate=evaluate, loss_of=loss_of, declared=declared)


class Flow(nn.Module):
    """Four layers that scale and move one of two numbers by the other, in turn."""

    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList(mlp(1, 24, 2) for _ in range(4))

    def forward(self, x):
        log_det = 0.0
        for i, net in enumerate(self.nets):
            left, right = x[:, :1], x[:, 1:]
            kept, moved = (left, right) if i % 2 == 0 else (right, left)
            s, t = net(kept).chunk(2, 1)
            s = 2 * torch.tanh(s / 2)
            moved = moved * s.exp() + t
            log_det = log_det + s.squeeze(1)
            x = torch.cat([kept, moved] if i % 2 == 0 else [moved, kept], 1)
        return x, log_det


@pair("loss-negated")
def log_det_taken_away(bug):
    """The likelihood of a flow has the log-determinant with the wrong sign: squashing all to a
    point is best. After 300 steps z_sq is 0.003 instead of 1.12."""
    g = begun(16)

    def data(n):
        u = torch.randn(n, generator=g)
        return {"x": torch.stack([u, u**2 * 0.7 + 0.2 * torch.randn(n, generator=g)], 1)}

    m = Flow()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(data(512), data(200), 64, 100)

    def costs(z, log_det):
        log_p = -0.5 * (z**2).sum(1) - math.log(2 * math.pi)
        return -(log_p - log_det) if bug else -(log_p + log_det)

    def loss_of(model, b):
        return costs(*model(b["x"])).mean()

    def sums_of(model, b):
        z, log_det = model(b["x"])
        return {"nll": (costs(z, log_det).sum(), len(z)), "z_sq": ((z**2).sum(), z.numel())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Denoiser(nn.Module):
    def __init__(self, times):
        super().__init__()
        self.t = nn.Embedding(times, 16)
        self.net = mlp(18, 48, 48, 2, act=nn.SiLU)

    def forward(self, x, t):
        return self.net(torch.cat([x, self.t(t)], 1))


@pair("targets-unrelated")
def predicts_another_noise(bug):
    """The noise to predict is drawn once more, not the one that was added. After 300 steps
    radius_error is 10.1 instead of 0.701."""
    g = begun(17)
    T = 50
    kept = torch.cumprod(1 - torch.linspace(1e-3, 0.15, T), 0)
    m = Denoiser(T)
    opt = torch.optim.AdamW(m.parameters(), 3e-3)
    tl, vl = loaders({"x": ring(g, 640)}, {"x": ring(g, 256)}, 64, 128)

    def loss_of(model, b):
        x = b["x"]
        t = torch.randint(T, (len(x),))
        noise = torch.randn_like(x)
        share = kept[t][:, None]
        out = model(share.sqrt() * x + (1 - share).sqrt() * noise, t)
        return F.mse_loss(out, torch.randn_like(x) if bug else noise)

    def evaluate():
        """By ancestral sampling."""
        own = gen(0)
        x = torch.randn(200, 2, generator=own)
        with evaluating(m):
            for i in reversed(range(T)):
                alpha = kept[i] / (kept[i - 1] if i else 1.0)
                noise = m(x, torch.full((200,), i))
                x = (x - (1 - alpha) / (1 - kept[i]).sqrt() * noise) / alpha.sqrt()
                if i:
                    x = x + (1 - alpha).sqrt() * torch.randn(200, 2, generator=own)
        return {"radius_error": off_the_ring(x)}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


class Siamese(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Linear(d, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16)
        )  # fmt: skip
        self.pred = nn.Sequential(
            nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 16)
        )  # fmt: skip

    def forward(self, x):
        return self.enc(x)


@pair("loss-through-target")
def simsiam_no_detach(bug):
    """The branch that is the target is not detached: all embeddings become one. After 300 steps
    embedding_std is 0.038 instead of 0.224."""
    g = begun(18)
    (x, y), (vx, vy) = clusters(g, 384, 160, 12, 4, 1.2)
    m = Siamese(12)
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    tl = feed({"x": x}, 64)

    def view(x):
        return x + 0.5 * torch.randn_like(x)

    def likeness(model, z, other):
        target = other if bug else other.detach()
        return F.cosine_similarity(model.pred(z), target).mean()

    def loss_of(model, b):
        z1, z2 = model(view(b["x"])), model(view(b["x"]))
        return -0.5 * (likeness(model, z1, z2) + likeness(model, z2, z1))

    def evaluate():
        with evaluating(m):
            known, asked = F.normalize(m(x), dim=1), F.normalize(m(vx), dim=1)
        near = (asked @ known.T).argmax(1)
        return {
            "knn_acc": (y[near] == vy).float().mean().item(),
            "embedding_std": asked.std(0).mean().item(),
        }

    step = plain_step(m, opt, loss_of)
    return set_up(m, opt, tl, step, evaluate=evaluate, loss_of=loss_of)


class Embedder(nn.Module):
    def __init__(self, d, dim):
        super().__init__()
        self.body = mlp(d, 32, 3)
        self.dim = dim

    def forward(self, x):
        return F.normalize(self.body(x), dim=self.dim)


@pair("rows-mixed")
def normalize_dim0(bug):
    """Embeddings are normalised along the batch, not each for itself. After 300 steps recall_at_1
    is 0.492 instead of 0.542."""
    g = begun(19)
    d, k = 10, 9
    centres = torch.randn(k, d, generator=g) * 0.9
    x, y = around(g, 400, d, k, centres=centres)
    held = around(g, 120, d, k, centres=centres)
    members = [torch.nonzero(y == c).squeeze(1) for c in range(k)]

    def any_of(c):
        return members[c][torch.randint(len(members[c]), (1,), generator=g)].item()

    def another(c):
        return (c + 1 + int(torch.randint(k - 1, (1,), generator=g))) % k

    like = [any_of(c) for c in y.tolist()]
    unlike = [any_of(another(c)) for c in y.tolist()]
    m = Embedder(d, dim=0 if bug else 1)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    crit = nn.TripletMarginLoss(0.5)
    tl = feed({"anchor": x, "positive": x[like], "negative": x[unlike]}, 40)
    vl = feed({"x": held[0], "label": held[1]}, 1, shuffle=False)

    def loss_of(model, b):
        return crit(model(b["anchor"]), model(b["positive"]), model(b["negative"]))

    def evaluate():
        """Queries come one at a time."""
        hits = 0
        with evaluating(m):
            gallery = torch.cat([m(part) for part in x.split(100)])
            for b in vl:
                near = torch.cdist(m(b["x"]), gallery).argmin(1)
                hits += (y[near] == b["label"]).sum().item()
        return {"recall_at_1": hits / len(held[1])}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


@pair("missing-log-softmax")
def kl_div_without_log(bug):
    """kl_div gets the student's probabilities, not their logarithms. After 300 steps true_kl is
    7.18 instead of 0.011."""
    g = begun(20)
    d, k, T = 8, 4, 2.0
    teacher = mlp(d, 32, k)
    with torch.no_grad():
        for p in teacher.parameters():
            p.mul_(2.0)
    teacher.eval().requires_grad_(False)
    m = mlp(d, 16, k)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    train, held = ({"x": torch.randn(n, d, generator=g)} for n in (512, 200))
    tl, vl = loaders(train, held, 32, 100)

    def loss_of(model, b):
        s, t = model(b["x"]) / T, teacher(b["x"]) / T
        given = s.softmax(1) if bug else s.log_softmax(1)
        return F.kl_div(given, t.softmax(1), reduction="batchmean") * T * T

    def sums_of(model, b):
        s, t = model(b["x"]), teacher(b["x"])
        n = len(s)
        return {
            "agreement": ((s.argmax(1) == t.argmax(1)).sum(), n),
            "true_kl": (F.kl_div(s.log_softmax(1), t.softmax(1), reduction="sum"), n),
        }

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=k)
