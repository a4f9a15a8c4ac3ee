"""Faults of policies, values and series: broadcasts, ends, carried states, shared windows."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

from tests.debug.faulty.fifteenth.kit import Columns, gen, seed, set_up
from tests.debug.faulty.kit import pair


@pair("broadcast-loss")
def reinforce_shape(bug):
    """The advantage keeps its last axis, [B, 1] against [B]: every action is credited with every
    reward. After 300 steps greedy_reward is 0.22 instead of 0.945."""
    seed(71)
    W = torch.randn(6, 4, generator=gen(1))
    g = gen(2)
    pi = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 4))
    opt = torch.optim.Adam(pi.parameters(), 0.005)
    tl = DataLoader(
        [{"obs": o} for o in torch.randn(640, 6, generator=g)], 32, shuffle=True, generator=gen(3)
    )
    vl = DataLoader([{"obs": o} for o in torch.randn(200, 6, generator=g)], 50)

    # a reward is [B, 1], as the simulator gives it
    def env(obs, act):
        return ((obs @ W).argmax(1) == act).float().unsqueeze(1)

    def step(b):
        obs = b["obs"]
        d = torch.distributions.Categorical(logits=pi(obs))
        a = d.sample()
        r = env(obs, a)
        adv = r - r.mean()
        if not bug:
            adv = adv.squeeze(1)
        loss = -(d.log_prob(a) * adv).mean() - 0.001 * d.entropy().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        total = sum(env(b["obs"], pi(b["obs"]).argmax(1)).sum().item() for b in vl)
        return {"greedy_reward": total / 200}

    return set_up(pi, opt, tl, step, val_loader=vl, evaluate=evaluate)


@pair("terminal-bootstrapped")
def dqn_done(bug):
    """The target is r + gamma * max Q(s') where the episode is done, too. After 400 steps q_error
    is 5.7147 instead of 0.0447."""
    seed(72)
    g = gen(1)
    n, gam = 8, 0.95

    # a corridor: its right end pays 1, its left 0.3; s2 of an episode's end is the next one's start
    def roll(k):
        s = torch.randint(1, n - 1, (k,), generator=g)
        a = torch.randint(0, 2, (k,), generator=g)
        s2 = s + 2 * a - 1
        r = (s2 == n - 1).float() + 0.3 * (s2 == 0).float()
        d = (s2 == 0) | (s2 == n - 1)
        s2 = torch.where(d, torch.randint(1, n - 1, (k,), generator=g), s2)
        return Columns(
            s=F.one_hot(s, n).float(), a=a, r=r, s2=F.one_hot(s2, n).float(), done=d.float()
        )

    q = nn.Sequential(nn.Linear(n, 32), nn.ReLU(), nn.Linear(32, 2))
    tgt = copy.deepcopy(q)
    opt = torch.optim.Adam(q.parameters(), 0.005)
    tl = DataLoader(roll(640), 64, shuffle=True, generator=gen(2))
    st = {"k": 0}
    V = torch.zeros(n)
    for _ in range(200):
        for s in range(1, n - 1):
            V[s] = max(*({0: 0.3, n - 1: 1.0}.get(z, gam * V[z].item()) for z in (s - 1, s + 1)))

    def loss_of(model, b):
        with torch.no_grad():
            nxt = tgt(b["s2"]).max(1).values
        y = b["r"] + gam * nxt * (1 if bug else 1 - b["done"])
        return F.smooth_l1_loss(model(b["s"]).gather(1, b["a"][:, None]).squeeze(1), y)

    def step(b):
        loss = loss_of(q, b)
        opt.zero_grad()
        loss.backward()
        opt.step()
        st["k"] += 1
        if st["k"] % 10 == 0:
            tgt.load_state_dict(q.state_dict())
        return loss.item()

    @torch.no_grad()
    def evaluate():
        v = q(torch.eye(n)).max(1).values[1:-1]
        return {"mean_q": v.mean().item(), "q_error": (v - V[1:-1]).abs().mean().item()}

    return set_up(q, opt, tl, step, loss_of=loss_of, evaluate=evaluate)


@pair("state-carried")
def sticky_hidden(bug):
    """The state is detached, kept in self.h and reused for the next, unrelated batch, also of
    validation. After 150 steps val_mse is 0.078 instead of 0.0033."""
    seed(73)
    g = gen(3)

    def make(n):
        x = torch.randn(n, 10, 1, generator=g)
        return TensorDataset(x, x.cumsum(1)[:, -1] / 3)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.r = nn.GRU(1, 24, batch_first=True)
            self.o = nn.Linear(24, 1)
            self.h = None

        def forward(self, x):
            h = self.h if bug and self.h is not None and self.h.size(1) == len(x) else None
            y, h = self.r(x, h)
            self.h = h.detach()
            return self.o(y[:, -1])

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 0.005)
    tl = DataLoader(make(512), 32, shuffle=True, generator=gen(4))
    vl = DataLoader(make(96), 32)
    mse = nn.MSELoss()

    def step(b):
        m.train()
        opt.zero_grad()
        loss = mse(m(b[0]), b[1])
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        m.eval()
        t = sum(mse(m(x), y).item() * len(x) for x, y in vl)
        m.train()
        return {"val_mse": t / 96}

    return set_up(
        m,
        opt,
        tl,
        step,
        val_loader=vl,
        loss_fn=mse,
        evaluate=evaluate,
        declared={"max_grad_norm": 1.0},
    )


@pair("leak-overlap")
def window_leak(bug):
    """random_split over windows of one series that start a step apart: validation is made of steps
    trained on. After 300 steps val_mse reads 0.3248 instead of 0.8443."""
    seed(74)
    T = 420
    s = torch.randn(T, generator=gen(5)).cumsum(0) * 0.3
    s = s - s[:336].mean()
    W, H = 20, 8
    wins = [(s[i : i + W], s[i + W : i + W + H]) for i in range(T - W - H)]
    if bug:
        tr, va = random_split(wins, [312, len(wins) - 312], generator=gen(6))
    else:
        tr = [w for i, w in enumerate(wins) if i + W + H <= 336]
        va = [w for i, w in enumerate(wins) if i >= 336]
    net = nn.Sequential(
        nn.Linear(W, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, H)
    )
    opt = torch.optim.Adam(net.parameters(), 0.002)
    tl = DataLoader(tr, 24, shuffle=True, generator=gen(7))
    vl = DataLoader(va, 24)
    mse = nn.MSELoss()

    def step(b):
        opt.zero_grad()
        loss = mse(net(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        return {"val_mse": sum(mse(net(x), y).item() * len(x) for x, y in vl) / len(va)}

    return set_up(net, opt, tl, step, val_loader=vl, loss_fn=mse, evaluate=evaluate)
