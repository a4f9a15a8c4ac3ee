"""Faults of models that choose: baselines, episodes, target networks, sampled negatives."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventeenth.kit import (
    Columns,
    begun,
    by_cost,
    evaluating,
    gen,
    loader,
    loaders,
    mlp,
    plain_step,
    set_up,
)


class ActorCritic(nn.Module):
    def __init__(self, d, actions):
        super().__init__()
        self.pi = mlp(d, 32, actions)
        self.v = mlp(d, 32, 1)

    def forward(self, obs):
        return torch.distributions.Categorical(logits=self.pi(obs)), self.v(obs).squeeze(1)


@pair("loss-through-baseline")
def advantage_trains_the_critic(bug):
    """The advantage is not detached: the policy's loss trains the critic too. After 300 steps
    value_bias is 0.321 instead of -0.018."""
    g = begun(26)
    w = torch.randn(6, 3, generator=g)

    def data(n):
        obs = torch.randn(n, 6, generator=g)
        return Columns(obs=obs, table=(obs @ w).tanh() + 0.3 * torch.randn(n, 3, generator=g))

    m = ActorCritic(6, 3)
    tl, vl = loaders(data(512), data(200))

    def loss_of(model, b):
        pi, v = model(b["obs"])
        action = pi.sample()
        reward = b["table"].gather(1, action[:, None]).squeeze(1)
        advantage = reward - v
        if not bug:
            advantage = advantage.detach()
        of_policy = -(pi.log_prob(action) * advantage).mean()
        return of_policy + 0.5 * F.mse_loss(v, reward) - 0.01 * pi.entropy().mean()

    def sums_of(model, b):
        pi, v = model(b["obs"])
        mean = (pi.probs * b["table"]).sum(1)
        return {"reward": (mean.sum(), len(v)), "value_bias": ((v - mean).sum(), len(v))}

    return by_cost(m, torch.optim.Adam(m.parameters(), 3e-3), tl, vl, loss_of, sums_of)


def rollout(policy, number):
    """60 steps. The first number of a state says which action pays; an episode has 3 to 6 steps
    and pays at its end."""
    own = gen(5000 + number)
    obs = torch.randn(60, 4, generator=own)
    drawn = torch.rand(60, generator=own)
    lengths = torch.randint(3, 7, (20,), generator=own).tolist()
    with torch.no_grad():
        actions = (drawn > policy(obs)[0].probs[:, 0]).long()
    rewards, done, good, k = [], [], 0, 0
    for right in (actions == (obs[:, 0] > 0)).tolist():
        good += 1 if right else -1
        k += 1
        ends = k == lengths[0]
        rewards.append(float(good) if ends else 0.0)
        done.append(float(ends))
        if ends:
            good, k, lengths = 0, 0, lengths[1:]
    return obs, actions, torch.tensor(rewards), torch.tensor(done)


@pair("terminal-bootstrapped")
def returns_cross_episodes(bug):
    """Discounted returns do not begin anew where an episode ends: later ones leak in. After 250
    steps mean_value is 17 instead of 4.37."""
    begun(27)
    m = ActorCritic(4, 2)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    tl = loader(Columns(seed=torch.arange(200)), 1, shuffle=False)

    def returns(rewards, done):
        total, totals = 0.0, []
        for r, d in zip(rewards.tolist()[::-1], done.tolist()[::-1], strict=True):
            total = r + 0.97 * total * (1.0 if bug else 1.0 - d)
            totals.append(total)
        return torch.tensor(totals[::-1])

    def loss_of(model, b):
        parts = rollout(model, int(b["seed"][0]))
        # the last episode, which is not finished, is left out
        end = parts[3].nonzero().max() + 1
        obs, actions, rewards, done = (part[:end] for part in parts)
        total = returns(rewards, done)
        pi, v = model(obs)
        of_policy = -(pi.log_prob(actions) * (total - v.detach())).mean()
        return of_policy + 0.5 * F.mse_loss(v, total)

    def evaluate():
        with evaluating(m):
            obs = torch.randn(500, 4, generator=gen(1))
            pi, v = m(obs)
            right = pi.probs.gather(1, (obs[:, 0] > 0).long()[:, None])
            return {"right_action": right.mean().item(), "mean_value": v.mean().item()}

    step = plain_step(m, opt, loss_of)
    return set_up(m, opt, tl, step, loss_of=loss_of, evaluate=evaluate)


@pair("checkpoint-by-reference")
def dqn_target_is_alias(bug):
    """The target network is the online network itself instead of a copy: the target moves with each
    step. After 300 steps mean_q is 5.19 instead of 2.33."""
    g = begun(28)
    n = 1024
    s, a = torch.randn(n, 4, generator=g), torch.randint(0, 3, (n,), generator=g)
    moves = torch.randn(3, 4, 4, generator=g) * 0.4
    s2 = torch.tanh(torch.einsum("nij,nj->ni", moves[a], s)) * 1.5
    r = s2[:, 0] + 0.1 * torch.randn(n, generator=g)
    done = (torch.rand(n, generator=g) < 0.05).float()

    class DQN(nn.Module):
        def __init__(self):
            super().__init__()
            self.online = mlp(4, 32, 3)
            self.target = self.online if bug else copy.deepcopy(self.online)

        def forward(self, x):
            return self.online(x)

    m = DQN()
    opt = torch.optim.Adam(m.online.parameters(), 2e-3)
    tl = loader(Columns(s=s, a=a, r=r, s2=s2, done=done), 32)
    steps = 0

    def loss_of(model, b):
        with torch.no_grad():
            best = model.target(b["s2"]).max(1).values
        target = b["r"] + 0.95 * (1 - b["done"]) * best
        return F.smooth_l1_loss(model(b["s"]).gather(1, b["a"][:, None]).squeeze(1), target)

    def step(b):
        nonlocal steps
        opt.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        opt.step()
        steps += 1
        if steps % 50 == 0:
            m.target.load_state_dict(m.online.state_dict())
        return loss.item()

    def evaluate():
        with evaluating(m):
            return {"mean_q": m(s).max(1).values.mean().item()}

    targets = [f"target.{name}" for name, _ in m.online.named_parameters()]
    declared = {"target_parameters": targets, "target_sync_every": 50}
    return set_up(m, opt, tl, step, loss_of=loss_of, evaluate=evaluate, declared=declared)


class Factors(nn.Module):
    """Scores of users and items."""

    def __init__(self, users, items):
        super().__init__()
        self.user = nn.Embedding(users, 8)
        self.item = nn.Embedding(items, 8)
        self.bias = nn.Embedding(items, 1)
        for part in (self.user, self.item, self.bias):
            nn.init.normal_(part.weight, std=0.1)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1) + self.bias(i).squeeze(-1)


@pair("few-examples-drawn")
def negatives_from_user_range(bug):
    """Negative items are drawn from the number of users, so most items never are one. After 300
    steps recall_at_20 is 0.4 instead of 0.728."""
    g = begun(33)
    users, items = 30, 300
    likes = torch.randn(users, 3, generator=g) @ torch.randn(3, items, generator=g)
    likes = likes + torch.randn(items, generator=g)[None] * 0.5
    best = likes.topk(24, 1).indices
    best = best.gather(1, torch.rand(users, 24, generator=g).argsort(1))
    known, held = best[:, :18], best[:, 18:]
    seen = torch.zeros(users, items, dtype=torch.bool).scatter_(1, known, True)
    user = torch.arange(users)[:, None].expand(-1, 18)
    m = Factors(users, items)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    tl = loader(Columns(user=user.reshape(-1), item=known.reshape(-1)), 32)

    def loss_of(model, b):
        j = torch.randint(0, users if bug else items, b["item"].shape)
        unseen = ~seen[b["user"], j]
        gap = model(b["user"], b["item"]) - model(b["user"], j)
        return -(F.logsigmoid(gap) * unseen).sum() / unseen.sum().clamp(min=1)

    def evaluate():
        with evaluating(m):
            scores = m.user.weight @ m.item.weight.T + m.bias.weight.T
            top = scores.masked_fill(seen, -1e9).topk(20, 1).indices
            hits = (top[:, :, None] == held[:, None]).any(1)
            return {"recall_at_20": hits.float().mean().item()}

    step = plain_step(m, opt, loss_of)
    return set_up(m, opt, tl, step, loss_of=loss_of, evaluate=evaluate)
