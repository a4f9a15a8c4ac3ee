"""Faults of decisions and rankings: actions, values, replayed states, tables, lists."""

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.nineteenth.kit import (
    by_cost,
    by_pairs,
    evaluating,
    gen,
    greedy,
    loaders,
    mlp,
    plain_step,
    reward,
    seed,
)


@pair("wrong-formula")
def reinforce_resampled(bug):
    """The log-probability is that of a second draw, so that another action than the one taken is
    rewarded. After 240 steps greedy_reward is 0.36 instead of 0.96."""
    seed(1)
    m = mlp(5, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(*(torch.randn(n, 5, generator=gen(i)) for i, n in ((1, 1024), (2, 300))), 64)

    def loss_of(model, s):
        dist = torch.distributions.Categorical(logits=model(s))
        a = dist.sample()
        r = reward(s, a)
        logp = dist.log_prob(dist.sample() if bug else a)
        return -((r - r.mean()) * logp).mean()

    return by_cost(m, opt, tl, vl, loss_of, greedy)


def walks(n, g, K=6):
    """Steps to the left or right along a line of K places, rewarded at its end."""
    s = torch.randint(K - 1, (n,), generator=g)
    a = torch.randint(2, (n,), generator=g)
    s2 = (s + 2 * a - 1).clamp(0, K - 1)
    done = s2 == K - 1
    return {
        "s": F.one_hot(s, K).float(),
        "a": a,
        "r": done.float(),
        "s2": F.one_hot(s2, K).float(),
        "done": done.float(),
    }


@pair("broadcast-loss")
def dqn_broadcast(bug):
    """Values [B, 1] minus targets [B] make a table of all with all. After 240 steps reached_goal is
    0 instead of 1."""
    seed(2)
    m = mlp(6, 32, 2)
    target = copy.deepcopy(m).requires_grad_(False)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(walks(1024, gen(1)), walks(200, gen(2)), 64)
    steps = 0

    def td(m, b):
        q = m(b["s"]).gather(1, b["a"][:, None])
        if not bug:
            q = q.squeeze(1)
        with torch.no_grad():
            y = b["r"] + 0.9 * (1 - b["done"]) * target(b["s2"]).max(1).values
        return q - y

    def loss_of(model, b):
        return td(model, b).pow(2).mean()

    base = plain_step(m, opt, loss_of)

    def step(b):
        nonlocal steps
        loss = base(b)
        steps += 1
        if steps % 20 == 0:
            target.load_state_dict(m.state_dict())
        return loss

    def evaluate():
        with evaluating(m):
            s = torch.arange(5)
            for _ in range(6):
                a = m(F.one_hot(s, 6).float()).argmax(1)
                s = torch.where(s == 5, s, (s + 2 * a - 1).clamp(0, 5))
            q = m(torch.eye(6))[:5, 1]
        return {
            "reached_goal": float((s == 5).float().mean()),
            "value_error": float((q - 0.9 ** torch.arange(4, -1, -1.0)).abs().mean()),
        }

    return by_cost(m, opt, tl, vl, loss_of, None, step=step, evaluate=evaluate)


class Cart:
    """A damped oscillator that changes its own observation array in place."""

    def __init__(self, rng):
        self.rng = rng
        self.obs = np.zeros(2, np.float32)

    def reset(self):
        self.obs[:] = self.rng.normal(size=2)
        return self.obs

    def step(self, a):
        p, v = self.obs
        self.obs[0] = p + 0.2 * v
        self.obs[1] = 0.95 * v - 0.2 * p + 0.3 * (2 * a - 1)
        return self.obs


@pair("memory-shared")
def replay_stores_references(bug):
    """The observation is changed in place and kept without a copy: all states of a run are its last
    one. After 240 steps val_mse is 0.0862 instead of 0.0003."""
    seed(3)

    def rollouts(n, rs, keep):
        env = Cart(np.random.default_rng(rs))
        rows = []
        for _ in range(n):
            env.obs = np.zeros(2, np.float32)
            s = keep(env.reset())
            for _ in range(16):
                a = int(env.rng.integers(2))
                s2 = keep(env.step(a))
                rows.append((s, a, s2))
                s = s2
        return {
            "s": torch.from_numpy(np.stack([r[0] for r in rows])),
            "a": torch.tensor([r[1] for r in rows]),
            "s2": torch.from_numpy(np.stack([r[2] for r in rows])),
        }

    tr = rollouts(40, 1, (lambda o: o) if bug else np.copy)
    va = rollouts(10, 2, np.copy)

    class Dyn(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(4, 32, 2)

        def forward(self, x, a):
            return self.net(torch.cat([x, F.one_hot(a, 2).float()], 1))

    m = Dyn()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(tr, va, 64)

    def loss_of(model, b):
        return F.mse_loss(model(b["s"], b["a"]), b["s2"] - b["s"])

    def sums_of(model, b):
        error = model(b["s"], b["a"]) - b["s2"] + b["s"]
        return {"val_mse": (error.pow(2).mean(1).sum(), len(error))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("rows-mixed")
def fm_without_offsets(bug):
    """One table holds users, items and contexts, but their numbers are not shifted by field: user 3
    is item 3. After 240 steps val_auc is 0.722 instead of 0.846."""
    seed(4)
    fields = [40, 30, 5]
    tu = torch.randn(40, 3, generator=gen(91))
    ti = torch.randn(30, 3, generator=gen(92))
    tc = torch.randn(5, generator=gen(93))

    def data(n, g):
        ids = torch.stack([torch.randint(f, (n,), generator=g) for f in fields], 1)
        p = torch.sigmoid(1.5 * (tu[ids[:, 0]] * ti[ids[:, 1]]).sum(1) + tc[ids[:, 2]])
        return ids, torch.bernoulli(p, generator=g)

    class FM(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(sum(fields), 6)
            self.lin = nn.Embedding(sum(fields), 1)
            self.b = nn.Parameter(torch.zeros(1))
            nn.init.normal_(self.emb.weight, 0, 0.3)
            nn.init.zeros_(self.lin.weight)
            off = torch.tensor([0, 40, 70])
            self.register_buffer("offsets", torch.zeros_like(off) if bug else off)

        def forward(self, ids):
            ids = ids + self.offsets
            e = self.emb(ids)
            crossed = 0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(1)
            return self.b + self.lin(ids).sum((1, 2)) + crossed

    m = FM()
    opt = torch.optim.Adam(m.parameters(), 1e-2, weight_decay=1e-5)
    crit = nn.BCEWithLogitsLoss()
    tl, vl = loaders(data(4096, gen(1)), data(600, gen(2)), 128, vbs=200)

    def evaluate():
        with evaluating(m):
            o = torch.cat([m(b[0]) for b in vl])
            y = torch.cat([b[1] for b in vl])
        p, n = o[y > 0.5], o[y < 0.5]
        above = p[:, None] > n
        return {"val_logloss": crit(o, y).item(), "val_auc": above.float().mean().item()}

    return by_pairs(m, opt, tl, vl, crit, evaluate=evaluate)


@pair("rows-mixed")
def listnet_softmax_batch(bug):
    """The softmax runs over the queries of the batch, not over each list's documents. After 240
    steps ndcg_at_3 is 0.879 instead of 0.979."""
    seed(5)
    w = torch.randn(6, generator=gen(94))

    def data(n, g):
        x = torch.randn(n, 8, 6, generator=g)
        rel = x @ w + 0.3 * torch.randn(n, 8, generator=g)
        rel = (rel.argsort(1).argsort(1).float() / 2).floor()
        x = x + 2.5 * torch.randn(n, 1, 1, generator=g)
        return {"features": x, "relevance": rel}

    m = mlp(6, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(data(512, gen(1)), data(120, gen(2)), vbs=50)
    dim = 0 if bug else 1
    discount = 1 / torch.log2(torch.arange(3) + 2.0)

    def loss_of(model, b):
        s = model(b["features"]).squeeze(-1)
        return -(b["relevance"].softmax(dim) * s.log_softmax(dim)).sum(dim).mean()

    def sums_of(model, b):
        r = b["relevance"]
        top = model(b["features"]).squeeze(-1).topk(3).indices
        dcg = ((2 ** r.gather(1, top) - 1) * discount).sum(1)
        best = ((2 ** r.topk(3).values - 1) * discount).sum(1)
        return {"ndcg_at_3": ((dcg / best).sum(), len(r))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)
