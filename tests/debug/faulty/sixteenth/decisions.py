"""Faults of agents in a corridor: returns, probabilities, ends of episodes."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixteenth.kit import (
    by_cost,
    gen,
    loaders,
    named,
    plain_step,
    seed,
    set_up,
)

CELLS = 7
STEPS = 10


def seen(s):
    return F.one_hot(s, CELLS).float()


def rollout(policy, s, g, act, lure=0.0):
    """Many episodes at once: states, actions, rewards and who is still on the way, [n, steps] each.
    The goal is the last cell and pays 1; a step before costs 0.05, less `lure` to the left."""
    alive = torch.ones(len(s), dtype=torch.bool)
    passed = []
    for _ in range(STEPS):
        a = act(policy(seen(s)), g)
        after = (s + 2 * a - 1).clamp(0, CELLS - 1)
        paid = torch.where(after == CELLS - 1, 1.0, -0.05 + lure * (a == 0))
        passed.append((s, a, torch.where(alive, paid, 0.0), alive))
        alive = alive & (after != CELLS - 1)
        s = after
    return [torch.stack(column, 1) for column in zip(*passed, strict=True)]


def policy_gradient(number, forward=False, squeezed=False, lure=0.0):
    """REINFORCE. Faulty where returns are summed `forward`, or where probabilities are taken for
    logits (`squeezed`)."""
    seed(number)
    cells = torch.randint(0, CELLS - 1, (640,), generator=gen(number))
    tl = DataLoader(cells, 32, shuffle=True, generator=gen(number + 1))
    m = nn.Sequential(nn.Linear(CELLS, 24), nn.Tanh(), nn.Linear(24, 2))
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    g = gen(number + 2)

    def log_probabilities(out):
        return torch.log_softmax(torch.softmax(out, -1) if squeezed else out, -1)

    def draw(out, g):
        return torch.multinomial(log_probabilities(out).exp(), 1, generator=g)[:, 0]

    def step(batch):
        m.train()
        with torch.no_grad():
            s, a, r, alive = rollout(m, batch, g, draw, lure)
        total, returns = torch.zeros(len(s)), torch.zeros_like(r)
        for t in range(STEPS) if forward else reversed(range(STEPS)):
            total = r[:, t] + 0.95 * total
            returns[:, t] = total
        advantage = (returns - returns[alive].mean()) / (returns[alive].std() + 1e-6)
        taken = log_probabilities(m(seen(s))).gather(-1, a[..., None])[..., 0]
        loss = -(taken * advantage)[alive].mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        cells = torch.randint(0, CELLS - 1, (300,), generator=gen(5))
        _, _, r, _ = rollout(m, cells, gen(6), draw, lure)
        solved = (r == 1).any(1).float().mean().item()
        return {"mean_return": r.sum(1).mean().item(), "solved": solved}

    return set_up(m, opt, tl, step, evaluate=evaluate)


@pair("wrong-formula")
def reinforce_returns_forward(bug):
    """The rewards are summed from first to last, so an action is credited with what came before it.
    A step to the left pays 0.05 at once. After 300 steps solved is 0.17 instead of 1."""
    return policy_gradient(41, forward=bug, lure=0.1)


@pair("double-softmax")
def policy_softmax_as_logits(bug):
    """Probabilities are handed over as logits, so no action can be likelier than 0.73. After 300
    steps solved is 0.747 instead of 1."""
    return policy_gradient(44, squeezed=bug)


@pair("terminal-bootstrapped")
def dqn_ignores_done(bug):
    """The transitions are of an environment that starts anew by itself, and the target adds the
    value of the next state where an episode is done too. After 300 steps q_when_done is 2.71
    instead of 1."""
    seed(47)
    g = gen(47)
    N = 3000
    s = torch.randint(0, CELLS - 1, (N,), generator=g)
    a = torch.randint(0, 2, (N,), generator=g)
    after = (s + 2 * a - 1).clamp(0, CELLS - 1)
    done = after == CELLS - 1
    reward = torch.where(done, 1.0, 0.0)
    after = torch.where(done, torch.randint(0, CELLS - 1, (N,), generator=g), after)
    parts = named(
        2600, obs=seen(s), action=a, reward=reward, next_obs=seen(after), done=done.float()
    )
    tl, vl = loaders(*parts, 64)
    m = nn.Sequential(nn.Linear(CELLS, 32), nn.ReLU(), nn.Linear(32, 2))
    slow = copy.deepcopy(m).requires_grad_(False)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def value(model, b):
        return model(b["obs"]).gather(1, b["action"][:, None])[:, 0]

    def loss_of(model, b, reduction="mean"):
        q = value(model, b)
        with torch.no_grad():
            ahead = slow(b["next_obs"]).max(1).values
            target = b["reward"] + 0.9 * ahead * (1 if bug else 1 - b["done"])
        return F.smooth_l1_loss(q, target, reduction=reduction)

    update = plain_step(m, opt, loss_of)

    def step(b):
        loss = update(b)
        with torch.no_grad():
            for p, q in zip(slow.parameters(), m.parameters(), strict=True):
                p.lerp_(q, 0.05)
        return loss

    def sums_of(model, b):
        at_end = (value(model, b) * b["done"]).sum(), b["done"].sum()
        return {"td_error": (loss_of(model, b, "sum"), len(b["obs"])), "q_when_done": at_end}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, step=step)
