"""Faults of games: fakes, advantages, ends of episodes, ratios."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twelfth.kit import (
    Columns,
    G,
    loader,
    mlp,
    pack,
    seed,
)


@pair("loss-without-gradient")
def gan_detached_g(bug):
    """GAN: the generator step reuses fake.detach(), so the generator never receives a gradient.
    After 200 steps energy_dist is 3.4 instead of 0.472."""
    seed(0)
    g = G(0)
    a = torch.rand(1000, generator=g) * 6.283
    x = torch.stack([2 + a.cos(), a.sin() - 1], 1) + 0.05 * torch.randn(1000, 2, generator=g)

    class GAN(nn.Module):
        def __init__(self):
            super().__init__()
            self.G, self.D = mlp(4, 32, 2), mlp(2, 32, 1, lambda: nn.LeakyReLU(0.2))

        def forward(self, z):
            return self.G(z)

    m = GAN()
    og, od = (torch.optim.Adam(p.parameters(), 3e-3, betas=(0.5, 0.999)) for p in (m.G, m.D))
    bce = nn.BCEWithLogitsLoss()
    tr = loader(x, bs=50)

    def train_step(b):
        (real,) = b
        n = len(real)
        one, zero = torch.ones(n, 1), torch.zeros(n, 1)
        fake = m.G(torch.randn(n, 4))
        od.zero_grad()
        ld = bce(m.D(real), one) + bce(m.D(fake.detach()), zero)
        ld.backward()
        od.step()
        og.zero_grad()
        lg = bce(m.D(fake.detach() if bug else fake), one)
        lg.backward()
        og.step()
        return lg.item()

    def evaluate():
        with torch.no_grad():
            f = m.G(torch.randn(500, 4, generator=G(9)))
        return {
            "energy_dist": (
                2 * torch.cdist(f, x[:500]).mean()
                - torch.cdist(f, f).mean()
                - torch.cdist(x[:500], x[:500]).mean()
            ).item()
        }

    return pack(m, [og, od], tr, step=train_step, evaluate=evaluate)


@pair("broadcast-loss")
def pg_adv_broadcast(bug):
    """Actor-critic: rewards come as (N,1), values as (N,), so the advantage is an (N,N) matrix.
    After 200 steps return is 0.606 instead of 0.936."""
    seed(1)
    g = G(1)
    W = torch.randn(6, 4, generator=g)
    obs = torch.randn(1000, 6, generator=g)

    def env(o, a):
        return ((o @ W).argmax(1) == a).float()[:, None]  # (N,1), as the vec-env returns it

    class AC(nn.Module):
        def __init__(self):
            super().__init__()
            self.pi, self.v = mlp(6, 32, 4), mlp(6, 32, 1)

        def forward(self, o):
            return torch.distributions.Categorical(logits=self.pi(o)), self.v(o).squeeze(-1)

    m = AC()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tr = loader(obs, bs=64, drop_last=True)

    def loss_of(m, b):
        dist, v = m(b[0])
        a = dist.sample()
        r = env(b[0], a)
        if not bug:
            r = r.squeeze(-1)
        adv = r - v.detach()
        return (
            -(dist.log_prob(a) * adv).mean()
            + 0.5 * ((r - v) ** 2).mean()
            - 0.005 * dist.entropy().mean()
        )

    ev = torch.randn(500, 6, generator=g)

    def evaluate():
        with torch.no_grad():
            return {"return": env(ev, m(ev)[0].probs.argmax(1)).mean().item()}

    return pack(m, opt, tr, loss_of, evaluate=evaluate)


@pair("terminal-bootstrapped")
def dqn_done_ignored(bug):
    """DQN bootstraps through the end of an episode (done is never used). After 200 steps
    greedy_return is 0.3 instead of 0.815 and mean_q is 4.16 instead of 0.907."""
    seed(2)
    g = G(2)
    S, n, gam = 7, 1500, 0.95
    s = torch.randint(1, S - 1, (n,), generator=g)
    a = torch.randint(0, 2, (n,), generator=g)
    t = s + 2 * a - 1
    done = (t == 0) | (t == S - 1)
    r = torch.where(t == 0, 0.3, torch.where(t == S - 1, 1.0, 0.0))
    t = torch.where(done, 1, t)  # auto-reset

    def oh(k):
        return F.one_hot(k, S).float()

    class DQN(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = mlp(S, 48, 2)
            self.target = copy.deepcopy(self.q).requires_grad_(False)

        def forward(self, o):
            return self.q(o)

        @torch.no_grad()
        def sync(self):
            for p, q in zip(self.target.parameters(), self.q.parameters(), strict=False):
                p.lerp_(q, 0.1)

    m = DQN()
    opt = torch.optim.Adam(m.q.parameters(), 5e-3)
    tr = loader(
        Columns(obs=oh(s), action=a, reward=r, next_obs=oh(t), done=done.float()),
        bs=64,
        drop_last=True,
    )

    def loss_of(m, b):
        q = m(b["obs"]).gather(1, b["action"][:, None])[:, 0]
        with torch.no_grad():
            nq = m.target(b["next_obs"]).max(1).values
            y = b["reward"] + gam * nq * (1 if bug else 1 - b["done"])
        return F.smooth_l1_loss(q, y)

    def train_step(b):
        opt.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        opt.step()
        m.sync()
        return loss.item()

    def evaluate():
        with torch.no_grad():
            pos, ret = 1, 0.0
            for k in range(20):
                pos += 2 * int(m(oh(torch.tensor([pos]))).argmax()) - 1
                if pos in (0, S - 1):
                    ret = gam**k * (0.3 if pos == 0 else 1.0)
                    break
            return {
                "greedy_return": ret,
                "mean_q": m(oh(torch.arange(1, S - 1))).max(1).values.mean().item(),
            }

    return pack(m, opt, tr, loss_of, step=train_step, evaluate=evaluate)


@pair("loss-without-gradient")
def ppo_ratio_const(bug):
    """PPO: old log-probabilities are recomputed from the live policy with gradient, so the ratio
    is always 1. After 200 steps return is 0.244 instead of 0.878."""
    seed(3)
    g = G(3)
    W = torch.randn(6, 4, generator=g)
    obs = torch.randn(1200, 6, generator=g)

    class AC(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.pi, self.v = (
                nn.Sequential(nn.Linear(6, 32), nn.Tanh()),
                nn.Linear(32, 4),
                nn.Linear(32, 1),
            )

        def forward(self, o):
            h = self.body(o)
            return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)

    m = AC()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    with torch.no_grad():
        d, _ = m(obs)
        act = d.sample()
        old = d.log_prob(act)
    rew = ((obs @ W).argmax(1) == act).float()
    adv = (rew - rew.mean()) / rew.std()
    tr = loader(Columns(obs=obs, act=act, old_logp=old, adv=adv, ret=rew), bs=64, drop_last=True)

    def loss_of(m, b):
        d, v = m(b["obs"])
        logp = d.log_prob(b["act"])
        old = d.log_prob(b["act"]) if bug else b["old_logp"]
        ratio = (logp - old).exp()
        pg = -torch.min(ratio * b["adv"], ratio.clamp(0.8, 1.2) * b["adv"]).mean()
        return pg + 0.5 * F.mse_loss(v, b["ret"]) - 0.005 * d.entropy().mean()

    ev = torch.randn(500, 6, generator=g)

    def evaluate():
        with torch.no_grad():
            return {
                "return": ((ev @ W).argmax(1) == m(ev)[0].probs.argmax(1)).float().mean().item()
            }

    return pack(m, opt, tr, loss_of, evaluate=evaluate)
