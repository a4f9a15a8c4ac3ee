"""Faults of what acts: a critic's shapes, the ratio of two policies."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_seventh.kit import by_cost, gen, loaders, seed


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 48), nn.Tanh())
        self.actor = nn.Linear(48, 4)
        self.critic = nn.Linear(48, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.actor(h), self.critic(h)


def tries(n, s):
    """States, actions drawn evenly, and what these earned."""
    W = torch.randn(6, 4, generator=gen(121))
    g = gen(s)
    obs = torch.randn(n, 6, generator=g)
    action = torch.randint(0, 4, (n,), generator=g)
    earned = (obs @ W).gather(1, action[:, None])[:, 0] + 2 * obs[:, 0]
    return {"obs": obs, "action": action, "returns": earned + 0.1 * torch.randn(n, generator=g)}


def best_share(logits, b):
    W = torch.randn(6, 4, generator=gen(121))
    return ((b["obs"] @ W).argmax(1) == logits.argmax(1)).sum(), len(logits)


@pair("broadcast-loss")
def critics_column_from_a_row_of_returns(bug):
    """The critic's column [n, 1] is taken from the row of returns [n]: each state is drawn to all
    of them. After 150 steps the held error of the values is 6.5 instead of 4.6."""
    seed(12)
    tl, vl = loaders(tries(512, 122), tries(200, 123), 32, 100)
    m = ActorCritic()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        logits, value = model(b["obs"])
        if not bug:
            value = value[:, 0]
        gain = b["returns"] - value
        logp = logits.log_softmax(1).gather(1, b["action"][:, None])[:, 0]
        pull = gain.detach().div(2).clamp(max=2).exp()
        return 0.5 * gain.pow(2).mean() - (pull * logp).mean()

    def sums_of(model, b):
        logits, value = model(b["obs"])
        return {
            "value_mse": (((value.flatten() - b["returns"]) ** 2).sum(), len(value)),
            "best_action": best_share(logits, b),
        }

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("compared-with-itself", "loss-without-gradient", "no-gradient", "wrong-formula")
def ratio_of_the_policy_to_itself(bug):
    """The clipped objective's ratio is that of the policy to itself, both in the graph: always 1,
    and without a slope. After 150 steps the best action is taken in 0.27 of the held states instead
    of 0.94."""
    seed(13)
    rows, held = tries(512, 132), tries(200, 133)
    for part in (rows, held):
        part["logp"] = torch.full_like(part["returns"], -1.3863)
    tl, vl = loaders(rows, held, 64, 100)
    m = ActorCritic()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        logits, value = model(b["obs"])
        value = value[:, 0]
        logp = logits.log_softmax(1).gather(1, b["action"][:, None])[:, 0]
        ratio = (logp - (logp if bug else b["logp"])).exp()
        gain = (b["returns"] - value).detach()
        gain = (gain - gain.mean()) / (gain.std() + 1e-6)
        actor = -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        return actor + 0.5 * F.mse_loss(value, b["returns"])

    def sums_of(model, b):
        logits, value = model(b["obs"])
        return {
            "best_action": best_share(logits, b),
            "value_mse": (((value[:, 0] - b["returns"]) ** 2).sum(), len(value)),
        }

    return by_cost(m, opt, tl, vl, loss_of, sums_of)
