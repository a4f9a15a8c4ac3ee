"""Faults of losses: probabilities, tables, ends of episodes, axes, signs."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_second.kit import (
    averaged,
    blobs,
    by_cost,
    by_pairs,
    copying,
    corridor,
    evaluating,
    fit,
    gen,
    loaders,
    mlp,
    right,
    seed,
)


@pair("missing-log-softmax")
def kl_div_of_probabilities(bug):
    """kl_div gets the student's probabilities, not their logarithms, and falls below 0. After 300
    steps nll is 0.532 instead of 0.337."""
    seed()
    x, y = blobs(480, 16, 5, 1, 0.7)
    teacher = mlp(16, 64, 5)
    fit(teacher, torch.optim.Adam(teacher.parameters(), 1e-2), F.cross_entropy, x, y, 80)
    teacher.requires_grad_(False).eval()
    m = mlp(16, 12, 5)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders((x,), blobs(202, 16, 5, 2, 0.7), 32)
    T = 2.0

    def loss_of(model, b):
        s, t = model(b[0]) / T, teacher(b[0]) / T
        told = s.softmax(-1) if bug else s.log_softmax(-1)
        return F.kl_div(told, t.softmax(-1), reduction="batchmean") * T * T

    def sums_of(model, b):
        x, y = b
        out = model(x)
        nll = {"nll": (F.cross_entropy(out, y, reduction="sum"), len(y))}
        return right(out, y) | nll | right(out, teacher(x).argmax(1), "agreement")

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = mlp(6, 32, 4)
        self.v = mlp(6, 32, 1)

    def forward(self, s):
        return self.pi(s), self.v(s)


@pair("broadcast-loss")
def rewards_column_less_values_row(bug):
    """Rewards [B, 1] less values [B] are a table: an action is paid with the whole batch's rewards.
    After 300 steps reward is 1.92 instead of 2.59."""
    seed()
    w = torch.randn(6, 4, generator=gen(12))

    def data(n, s):
        """States, and what each of the actions would be paid."""
        state = torch.randn(n, 6, generator=gen(s))
        noise = 0.3 * torch.randn(n, 4, generator=gen(s + 5))
        return {"state": state, "payoff": state @ w + 4 * state[:, :1] + noise}

    m = ActorCritic()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(data(640, 1), data(202, 2), 64)

    def loss_of(model, b):
        logits, v = model(b["state"])
        dist = torch.distributions.Categorical(logits=logits)
        a = dist.sample()
        r = b["payoff"].gather(1, a[:, None])
        if not bug:
            r = r.squeeze(1)
        adv = r - v.squeeze(1)
        actor = -(dist.log_prob(a) * adv.detach()).mean()
        return actor + 0.5 * (adv**2).mean() - 0.01 * dist.entropy().mean()

    def sums_of(model, b):
        a = model(b["state"])[0].argmax(1)
        return {"reward": (b["payoff"].gather(1, a[:, None]).sum(), len(a))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("terminal-bootstrapped")
def corridor_goes_on_after_done(bug):
    """The value of the next state is added after the end of an episode too. After 300 steps
    q_at_goal is 3.52 instead of 1."""
    seed()
    m = mlp(6, 32, 2)
    target = copy.deepcopy(m).requires_grad_(False)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(corridor(1024, 1), corridor(203, 2), 64)

    def values(model, b):
        q = model(b["obs"]).gather(1, b["action"][:, None])[:, 0]
        with torch.no_grad():
            after = target(b["next_obs"]).max(1).values
            y = b["reward"] + 0.95 * (after if bug else after * (1 - b["done"]))
        return q, y

    def loss_of(model, b):
        return F.smooth_l1_loss(*values(model, b))

    def sums_of(model, b):
        q, y = values(model, b)
        return {"td_error": ((q - y).abs().sum(), len(q)), "mean_q": (q.sum(), len(q))}

    mean = averaged(m, vl, sums_of)

    def evaluate():
        scores = mean()
        with evaluating(m):
            return scores | {"q_at_goal": m(torch.eye(6))[5, 1].item()}

    step = copying(m, target, opt, loss_of, 20)
    return by_cost(m, opt, tl, vl, loss_of, None, step=step, evaluate=evaluate)


@pair("rows-mixed")
def listwise_softmax_over_queries(bug):
    """The softmax of a listwise loss runs over the queries of the batch, not over the documents of
    a query. After 300 steps top_1 is 0.317 instead of 0.436."""
    seed()
    w = torch.randn(10, generator=gen(7))

    def data(n, s):
        """Documents, of which one number is the same for all of a query, and their gains."""
        g = gen(s)
        known = 3 * torch.randn(n, 1, generator=g)
        docs = torch.randn(n, 8, 10, generator=g)
        docs[..., 9] = known
        gain = torch.tanh(docs[..., :9] @ w[:9]) + 2 * known
        return {"docs": docs, "gain": gain + 0.3 * torch.randn(n, 8, generator=g)}

    m = mlp(10, 24, 1)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(data(320, 1), data(101, 2), 32)
    dim = 0 if bug else 1

    def loss_of(model, b):
        s = model(b["docs"])[..., 0]
        t = (b["gain"] / 0.5).softmax(dim)
        return -(t * s.log_softmax(dim)).sum(dim).mean()

    def sums_of(model, b):
        return right(model(b["docs"])[..., 0], b["gain"].argmax(1), "top_1")

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("quantiles-swapped")
def pinball_upside_down(bug):
    """The pinball loss for 0.9 takes the prediction less the target, and so learns the other end.
    After 300 steps coverage_of_0.9 is 0.123 instead of 0.867."""
    seed()
    q = 0.9

    def data(n, s):
        x = torch.rand(n, 3, generator=gen(s)) * 2
        spread = (0.3 + x[:, 1:2]) * torch.randn(n, 1, generator=gen(s + 6))
        return x, x[:, :1] * 2 + spread

    def pinball(out, y):
        e = out - y if bug else y - out
        return torch.max(q * e, (q - 1) * e).mean()

    m = mlp(3, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(data(640, 1), data(203, 2), 32)

    def sums_of(model, b):
        out, y = model(b[0]), b[1]
        n = len(y)
        return {"coverage_of_0.9": ((y <= out).sum(), n), "pinball": (pinball(out, y) * n, n)}

    more = {"evaluate": averaged(m, vl, sums_of), "declared": {"quantile": q}}
    return by_pairs(m, opt, tl, vl, pinball, **more)
