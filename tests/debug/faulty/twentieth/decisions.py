"""Faults of decisions: advantages, ends of episodes, returns."""

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twentieth.kit import (
    by_cost,
    evaluating,
    feed,
    gen,
    loaders,
    mlp,
    plain_step,
    seed,
    set_up,
)


@pair("loss-through-baseline")
def actor_advantage_not_detached(bug):
    """The advantage keeps its graph: the policy's loss moves the critic away from the returns.
    After 300 steps critic_mse is 0.29 to 0.36 instead of 0.18 to 0.2."""
    seed()
    w = torch.randn(6, 4, generator=gen(3))
    states = (torch.randn(n, 6, generator=gen(i)) for i, n in ((1, 640), (2, 300)))
    tl, vl = loaders(*states, 32, 64)

    class ActorCritic(nn.Module):
        def __init__(self):
            super().__init__()
            self.actor = mlp(6, 32, 4)
            self.critic = mlp(6, 32, 1)

        def forward(self, s):
            return self.actor(s), self.critic(s)[:, 0]

    m = ActorCritic()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def reward(s, a):
        return (s @ w).gather(1, a[:, None])[:, 0] + 2 * s[:, 0]

    def loss_of(model, s):
        logits, v = model(s)
        dist = torch.distributions.Categorical(logits=logits)
        a = dist.sample()
        r = reward(s, a)
        adv = r - v
        actor = -(dist.log_prob(a) * (adv if bug else adv.detach())).mean()
        return actor + 0.5 * F.mse_loss(v, r) - 0.01 * dist.entropy().mean()

    def sums_of(model, s):
        logits, v = model(s)
        mean_r = (logits.softmax(1) * (s @ w)).sum(1) + 2 * s[:, 0]
        n = len(s)
        return {
            "greedy_reward": (reward(s, logits.argmax(1)).sum(), n),
            "critic_mse": (((v - mean_r) ** 2).sum(), n),
        }

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("terminal-bootstrapped")
def corridor_without_an_end(bug):
    """The value of the next state is added after the end of an episode too, where that is the next
    one's start. After 200 steps value_mae is 1.95 instead of 0.028."""
    seed()
    places, start, discount = 7, 3, 0.9
    draws = np.random.RandomState(0)
    rows = []
    s = start
    for _ in range(1200):
        a = draws.randint(2)
        s2 = s + (1 if a else -1)
        is_end = s2 in (0, places - 1)
        following = start if is_end else s2
        rows.append((s, a, float(s2 == places - 1), following, float(is_end)))
        s = following
    S, A, R, S2, D = map(torch.tensor, zip(*rows, strict=True))
    eye = torch.eye(places)
    tl = feed({"obs": eye[S], "action": A, "reward": R, "next_obs": eye[S2], "done": D}, 32)
    m = mlp(places, 32, 2)
    target = copy.deepcopy(m).requires_grad_(False)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    steps = 0

    def loss_of(model, b):
        q = model(b["obs"]).gather(1, b["action"][:, None])[:, 0]
        with torch.no_grad():
            after = target(b["next_obs"]).max(1).values
            y = b["reward"] + discount * after * (1 if bug else 1 - b["done"])
        return F.smooth_l1_loss(q, y)

    base = plain_step(m, opt, loss_of)

    def step(b):
        nonlocal steps
        loss = base(b)
        steps += 1
        if steps % 10 == 0:
            target.load_state_dict(m.state_dict())
        return loss

    def evaluate():
        with evaluating(m):
            q = m(eye[1:-1])
        true = torch.tensor([discount ** (places - 2 - s) for s in range(1, places - 1)])
        return {
            "q_start": q[2].max().item(),
            "value_mae": (q.max(1).values - true).abs().mean().item(),
        }

    return set_up(m, opt, tl, step, loss_of=loss_of, evaluate=evaluate)


@pair("wrong-formula")
def reinforce_forward_returns(bug):
    """Rewards are added up from the start, not to the end: an action is not credited with what it
    leads to. After 200 steps episode_return is 0.735 instead of 5.91."""
    seed()
    T = 6
    w = torch.randn(4, 3, generator=gen(7))
    tl, vl = loaders(*(torch.randn(n, T, 4, generator=gen(i)) for i, n in ((1, 640), (2, 200))),
                     32, 50)  # fmt: skip
    m = mlp(4, 32, 3)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def pay(obs, act):
        """The right action is paid one step later: [B, T + 1]."""
        right = ((obs @ w).argmax(-1) == act).float()
        return torch.cat([torch.zeros_like(right[:, :1]), right], 1)

    def loss_of(model, obs):
        dist = torch.distributions.Categorical(logits=model(obs))
        act = dist.sample()
        rew = pay(obs, act)
        if bug:
            ret = rew.cumsum(1)[:, :T]
        else:
            ret = rew.flip(1).cumsum(1).flip(1)[:, 1:]
        adv = ret - ret.mean(0)
        return -(dist.log_prob(act) * adv).mean()

    def sums_of(model, obs):
        return {"episode_return": (pay(obs, model(obs).argmax(-1)).sum(), len(obs))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)
