"""Faults of policies and values."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.faulty.fourteenth.kit import columns, gen, mlp, plain_step, seed, set_up
from tests.debug.faulty.kit import pair


@pair("wrong-formula")
def reinforce_samples_twice(bug):
    """The action played and the action in log_prob are two draws from the policy. After 400 steps
    greedy_reward is 0.479 instead of 2.7819."""
    seed(21)
    W = torch.randn(6, 4)
    tr = DataLoader(torch.randn(2000, 6), 32, shuffle=True, generator=gen(21))
    S = torch.randn(400, 6)

    def reward(s, a):
        return (s @ W).gather(1, a[:, None])[:, 0] + 0.1 * torch.randn(len(s))

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(6, 32, 4)

        def forward(self, s):
            return torch.distributions.Categorical(logits=self.net(s), validate_args=False)

        def act(self, s):
            with torch.no_grad():
                return self(s).sample()

    pi = Policy()
    opt = torch.optim.Adam(pi.parameters(), 5e-3)
    base = [0.0]

    def step(s):
        a = pi.act(s)
        r = reward(s, a)
        dist = pi(s)
        lp = dist.log_prob(dist.sample() if bug else a)
        loss = -(lp * (r - base[0])).mean() - 0.01 * dist.entropy().mean()
        base[0] = 0.9 * base[0] + 0.1 * r.mean().item()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        with torch.no_grad():
            return {
                "greedy_reward": (S @ W).gather(1, pi.net(S).argmax(1, keepdim=True)).mean().item()
            }

    return set_up(pi, opt, tr, step, evaluate=evaluate)


@pair("wrong-formula")
def dqn_bitwise_not_done(bug):
    """done is int64, so ~done is -1 or -2: the bootstrap term has the wrong sign and the end
    bootstraps too. After 400 steps greedy_return is 0.1 instead of 0.6631."""
    seed(22)
    N = 10
    n = 1500
    s = torch.randint(0, N, (n,))
    a = torch.randint(0, 2, (n,))
    # a chain: right leads to the goal (reward 1, end), left pays 0.05 at cell 0 and stays
    s2 = (s + a * 2 - 1).clamp(0, N - 1)
    done = ((s == N - 1) & (a == 1)).long()
    r = done.float() + 0.05 * ((s == 0) & (a == 0)).float()
    tr = columns(bs=64, s=22, state=s, action=a, reward=r, next_state=s2, done=done)
    model = nn.Sequential(nn.Embedding(N, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
    target = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    box = {"n": 0}

    def loss_of(m, b):
        q = m(b["state"]).gather(1, b["action"][:, None])[:, 0]
        with torch.no_grad():
            alive = ~b["done"] if bug else 1 - b["done"]
            y = b["reward"] + 0.9 * target(b["next_state"]).max(1).values * alive
        return F.smooth_l1_loss(q, y)

    base = plain_step(model, opt, loss_of)

    def step(b):
        loss = base(b)
        box["n"] += 1
        if box["n"] % 20 == 0:
            target.load_state_dict(model.state_dict())
        return loss

    def evaluate():
        with torch.no_grad():
            pos, ret = torch.arange(N), torch.zeros(N)
            live = torch.ones(N)
            for t in range(40):
                act = model(pos).argmax(1)
                end = (pos == N - 1) & (act == 1)
                ret += 0.9**t * live * (end.float() + 0.05 * ((pos == 0) & (act == 0)).float())
                live *= 1 - end.float()
                pos = (pos + act * 2 - 1).clamp(0, N - 1)
        return {"greedy_return": ret.mean().item()}

    return set_up(model, opt, tr, step, loss_of=loss_of, evaluate=evaluate)
