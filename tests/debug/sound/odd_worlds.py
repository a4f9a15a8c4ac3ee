"""Actions, graphs, equations and bodies that move."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

from tests.debug.sound.odd_kit import G, clusters, dl, going, keeping, mlp, still
from tests.debug.sound.programs import sound

W = torch.randn(6, 4, generator=G(99))


def paid(s, a):
    """A bandit's reward in state [n, 6] for action [n]."""
    return (s @ W).softmax(1).gather(1, a[:, None])[:, 0]


def greedy(actor, key="mean_reward"):
    s = torch.randn(300, 6, generator=G(5))

    def evaluate():
        with still(actor):
            return {key: paid(s, actor(s).argmax(1)).mean().item()}

    return evaluate


def states(n=960, bs=64):
    return DataLoader(torch.randn(n, 6, generator=G(1)), bs, shuffle=True, generator=G(2))


@sound
def log_chance_times_what_is_better_than_usual():
    """REINFORCE with a running baseline; its loss is no measure and wanders about 0."""
    tl, net = states(), mlp(6, 32, 4)
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    usual = torch.zeros(())

    def step(s):
        net.train()
        law = torch.distributions.Categorical(logits=net(s))
        a = law.sample()
        r = paid(s, a)
        loss = -(law.log_prob(a) * (r - usual)).mean() - 0.003 * law.entropy().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        usual.lerp_(r.mean(), 0.1)
        return loss.item()

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "train_step": step,
        "train": going(tl, step),
        "evaluate": greedy(net),
        "usual": usual,
    }


class Walk:
    """Sixteen rows that walk along 8 places; right is paid at the end, an episode is cut after
    20."""

    def __init__(self):
        self.at, self.age, self.g = (
            torch.zeros(16, dtype=torch.long),
            torch.zeros(16, dtype=torch.long),
            G(3),
        )

    def step(self, a):
        slip = torch.rand(16, generator=self.g) < 0.1
        new = (self.at + torch.where((a == 1) ^ slip, 1, -1)).clamp(0, 7)
        r, end = (new == 7).float(), new == 7
        self.age = self.age + 1
        cut = end | (self.age >= 20)
        self.at, self.age = torch.where(cut, 0, new), torch.where(cut, 0, self.age)
        return r, new, end


@sound
def values_of_a_walk_with_a_slow_target():
    """DQN: replay, a target net copied each 20 steps, Huber loss; a cut-off episode still
    bootstraps."""
    net = mlp(8, 48, 2)
    slow = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    env, hot = Walk(), torch.eye(8)
    mem, count = torch.zeros(3000, 5), {"rows": 0, "steps": 0}

    def act(eps):
        with torch.no_grad():
            a = torch.where(
                torch.rand(16) < eps, torch.randint(2, (16,)), net(hot[env.at]).argmax(1)
            )
        s = env.at
        r, new, end = env.step(a)
        i = torch.arange(count["rows"], count["rows"] + 16) % 3000
        mem[i] = torch.stack([s.float(), a.float(), r, new.float(), end.float()], 1)
        count["rows"] += 16

    for _ in range(20):
        act(1.0)

    class Replay(IterableDataset):
        def __iter__(self):
            for _ in range(50):
                act(max(0.1, 1 - count["steps"] / 80))
                yield mem[torch.randint(min(count["rows"], 3000), (64,))].clone()

    def step(b):
        s, a, r, new, end = b.T
        with torch.no_grad():
            want = r + 0.95 * (1 - end) * slow(hot[new.long()]).amax(1)
        loss = F.smooth_l1_loss(net(hot[s.long()]).gather(1, a.long()[:, None])[:, 0], want)
        opt.zero_grad()
        loss.backward()
        opt.step()
        count["steps"] += 1
        if count["steps"] % 20 == 0:
            slow.load_state_dict(net.state_dict())
        return loss.item()

    def evaluate():
        with still(net):
            return {"goes_right": (net(hot[:7]).argmax(1) == 1).float().mean().item()}

    tl = DataLoader(Replay(), batch_size=None)
    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "train_step": step,
        "train": going(tl, step),
        "evaluate": evaluate,
        "target": slow,
        "env": env,
        "memory": mem,
        "count": count,
    }


@sound
def papers_by_their_neighbours():
    """Transductive: one graph, one batch; 10 % of nodes in the loss, others for validation."""
    g = G(1)
    x, y = clusters(240, 16, 4, 1, 2.5)
    link = torch.rand(240, 240, generator=g) < torch.where(y[:, None] == y[None], 0.06, 0.008)
    A = (link | link.T | torch.eye(240, dtype=torch.bool)).float()
    A = A / A.sum(1, keepdim=True).sqrt() / A.sum(1).sqrt()
    p = torch.randperm(240, generator=g)
    tr, va = torch.zeros(240, dtype=torch.bool), torch.zeros(240, dtype=torch.bool)
    tr[p[:24]], va[p[24:120]] = True, True

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.drop = nn.Linear(16, 32), nn.Linear(32, 4), nn.Dropout(0.4)

        def forward(self, x, A):
            return A @ self.b(self.drop(F.relu(A @ self.a(self.drop(x)))))

    net = GCN()
    opt = torch.optim.Adam(net.parameters(), 1e-2, weight_decay=5e-4)
    tl, vl = [(x, A, y, tr)], [(x, A, y, va)]

    def loss_of(m, b):
        x, A, y, mask = b
        return F.cross_entropy(m(x, A)[mask], y[mask])

    def evaluate():
        with still(net):
            o = net(x, A)[va]
        return {
            "loss": F.cross_entropy(o, y[va]).item(),
            "accuracy": (o.argmax(1) == y[va]).float().mean().item(),
        }

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "loss_of": loss_of,
        "num_classes": 4,
        "evaluate": evaluate,
        **keeping(net=net, opt=opt),
    }


@sound
def weights_written_by_another_net():
    """A hypernetwork writes a small net's weights from what a task is; only the writer learns."""

    class Hyper(nn.Module):
        def __init__(self):
            super().__init__()
            self.write = mlp(2, 64, 1 * 16 + 16 + 16 + 1)
            with torch.no_grad():
                self.write[-1].weight.mul_(0.3)
                self.write[-1].bias.normal_(0, 0.7)

        def forward(self, task, x):
            a, b, c, d = self.write(task).split([16, 16, 16, 1], 1)
            return (torch.tanh(x * a + b) * c).sum(1, keepdim=True) / 4 + d

    def rows(n, s):
        g = G(s)
        t, x = torch.rand(n, 2, generator=g), 4 * torch.rand(n, 1, generator=g) - 2
        return t, x, (0.5 + t[:, :1]) * torch.sin(1.5 * x + 2 * t[:, 1:])

    tl, vl = dl(*rows(1000, 1), bs=50), dl(*rows(300, 2), bs=100, shuffle=False)
    net = Hyper()
    opt = torch.optim.Adam(net.parameters(), 3e-3)

    def evaluate():
        with still(net):
            return {"mse": sum(((net(t, x) - y) ** 2).sum().item() for t, x, y in vl) / 300}

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "loss_of": lambda m, b: F.mse_loss(m(b[0], b[1]), b[2]),
        "evaluate": evaluate,
    }


@sound
def an_equation_and_its_edges():
    """A PINN of u'' = -pi^2 sin(pi x), u(-1) = u(1) = 0; other points in each batch; error against
    the solution."""
    net = mlp(1, 32, 32, 1, act=nn.Tanh)
    opt = torch.optim.Adam(net.parameters(), 5e-3)

    class Points(IterableDataset):
        def __iter__(self):
            for _ in range(60):
                yield 2 * torch.rand(64, 1) - 1

    def loss_of(m, x):
        with torch.enable_grad():
            x = x.clone().requires_grad_()
            u = m(x)
            (d,) = torch.autograd.grad(u.sum(), x, create_graph=True)
            (dd,) = torch.autograd.grad(d.sum(), x, create_graph=True)
        edge = m(torch.tensor([[-1.0], [1.0]]))
        return ((dd + math.pi**2 * torch.sin(math.pi * x)) ** 2).mean() / 10 + 10 * (edge**2).mean()

    at = torch.linspace(-1, 1, 101)[:, None]

    def evaluate():
        with still(net):
            return {"rms_error": (net(at) - torch.sin(math.pi * at)).square().mean().sqrt().item()}

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": DataLoader(Points(), batch_size=None),
        "loss_of": loss_of,
        "evaluate": evaluate,
    }


@sound
def pendulum_by_euler_steps():
    """A neural ODE: eight Euler steps of the learned field over trajectories; a rate per parameter
    group."""

    def paths(n, s):
        g = G(s)
        z = 2 * torch.rand(n, 2, generator=g) - 1
        out = [z]
        for _ in range(80):
            z = z + 0.01 * torch.stack([2 * z[:, 1], -2 * torch.sin(z[:, 0]) - 0.2 * z[:, 1]], 1)
            out.append(z)
        return (torch.stack(out[::10], 1),)

    tl, vl = dl(*paths(320, 1), bs=32), dl(*paths(100, 2), bs=50, shuffle=False)
    net = mlp(2, 48, 2, act=nn.Tanh)
    opt = torch.optim.Adam(
        [{"params": net[0].parameters(), "lr": 5e-3}, {"params": net[2].parameters(), "lr": 3e-3}]
    )

    def roll(m, z):
        out = []
        for _ in range(8):
            z = z + 0.1 * m(z)
            out.append(z)
        return torch.stack(out, 1)

    def loss_of(m, b):
        return F.mse_loss(roll(m, b[0][:, 0]), b[0][:, 1:])

    def evaluate():
        with still(net):
            return {
                "end_error": sum(
                    (roll(net, b[0][:, 0])[:, -1] - b[0][:, -1]).norm(dim=1).sum().item()
                    for b in vl
                )
                / 100
            }

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "loss_of": loss_of,
        "evaluate": evaluate,
        **keeping(net=net, opt=opt),
    }
