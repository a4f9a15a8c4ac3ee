"""Methods with a slip: diffusion, distillation, reinforcement, adversaries, series."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    loaders,
    mlp,
    setup,
    trained,
    trained_pairs,
)


def diffusion(bug, kind):
    x = torch.randn(400, 2, generator=gen(1)) * 0.3 + torch.tensor([1.0, -1.0])
    beta = torch.linspace(0.001, 0.2, 20)
    ab = (1 - beta).cumprod(0)

    class Eps(nn.Module):
        def __init__(self):
            super().__init__()
            self.t = nn.Embedding(20, 8)
            self.f = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 2))

        def forward(self, x, t):
            return self.f(torch.cat([x, self.t(t)], 1))

    m = Eps()
    o = torch.optim.Adam(m.parameters(), 0.003)

    def loss_of(m, b):
        x = b[0]
        t = torch.randint(0, 20, (len(x),))
        e = torch.randn_like(x)
        a = ab[t][:, None]
        if bug and kind == "scale":
            xt = a * x + (1 - a) * e
        else:
            xt = a.sqrt() * x + (1 - a).sqrt() * e
        target = x if bug and kind == "target" else e
        tt = torch.randint(0, 20, (len(x),)) if bug and kind == "time" else t
        return F.mse_loss(m(xt, tt), target)

    return trained(m, o, loaders(x, val=80, batch=20), loss_of)


@pair("targets-unrelated")
def another_time_step_is_told(bug):
    """The model is told a step that is drawn again, and not the one of the noise."""
    return diffusion(bug, "time")


def distil(bug, kind):
    x, y = blobs(300)
    teacher = mlp()
    ot = torch.optim.Adam(teacher.parameters(), 0.01)
    for _ in range(60):
        ot.zero_grad()
        F.cross_entropy(teacher(x), y).backward()
        ot.step()
    teacher.eval().requires_grad_(False)
    m = mlp(h=8)
    o = torch.optim.Adam(m.parameters(), 0.003)
    T = 4.0

    def loss_of(m, b):
        s, t = (m(b[0]) / T, teacher(b[0]) / T)
        if bug and kind == "log":
            kl = F.kl_div(s.softmax(1), t.softmax(1), reduction="batchmean")
        elif bug and kind == "logt":
            kl = F.kl_div(s.log_softmax(1), t.log_softmax(1), reduction="batchmean")
        elif bug and kind == "mean":
            kl = F.kl_div(s.log_softmax(1), t.softmax(1), reduction="mean")
        elif bug and kind == "dim":
            kl = F.kl_div(s.log_softmax(0), t.softmax(0), reduction="batchmean")
        else:
            kl = F.kl_div(s.log_softmax(1), t.softmax(1), reduction="batchmean")
        return T * T * kl + 0.5 * F.cross_entropy(T * s, b[1])

    tr, va = loaders(x, y, val=60)
    return trained(m, o, (tr, va), loss_of, evaluate=accuracy(m, va))


@pair("missing-log-softmax")
def kl_of_shares(bug):
    """kl_div gets the student's shares, and wants their logarithms."""
    return distil(bug, "log")


@pair("non-finite-loss")
def kl_target_is_logs(bug):
    """kl_div gets the teacher's logarithms, and wants shares."""
    return distil(bug, "logt")


@pair("rows-mixed")
def kl_over_the_batch(bug):
    """Student's and teacher's shares add up to 1 over the batch."""
    return distil(bug, "dim")


def reinforce(bug, kind):
    g = gen(3)
    S = torch.randn(40, 8, 4, generator=g)
    A = torch.randint(0, 3, (40, 8), generator=g)
    R = (S[..., :3].argmax(-1) == A).float() - 0.3

    def returns(r):
        out = torch.zeros_like(r)
        run = torch.zeros(len(r))
        order = range(r.shape[1]) if bug and kind == "start" else reversed(range(r.shape[1]))
        for t in order:
            run = r[:, t] + 0.9 * run
            out[:, t] = run
        return out

    m = mlp(4, 3)
    o = torch.optim.Adam(m.parameters(), 0.003)

    def loss_of(m, b):
        s, a, r = b
        lp = m(s).log_softmax(-1).gather(-1, a[..., None])[..., 0]
        G = returns(r)
        adv = (G - G.mean()) / (G.std() + 1e-06)
        return (lp * adv).mean() if bug and kind == "sign" else -(lp * adv).mean()

    return trained(m, o, loaders(S, A, R, val=8, batch=8), loss_of)


@pair("wrong-formula")
def returns_from_the_start(bug):
    """Returns are added up from the first step on; the twin adds from the last."""
    return reinforce(bug, "start")


def dqn(bug, kind):
    g = gen(4)
    s = torch.randn(400, 4, generator=g)
    a = torch.randint(0, 3, (400,), generator=g)
    s2 = s + 0.3 * torch.randn(400, 4, generator=g)
    r = (a == s[:, :3].argmax(1)).float()
    d = (torch.rand(400, generator=g) < 0.2).float()
    q = mlp(4, 3)
    t = copy.deepcopy(q).requires_grad_(False)
    o = torch.optim.Adam(q.parameters(), 0.003)
    tr, va = loaders(s, a, r, s2, d, val=80, batch=20)

    def loss_of(q, b):
        s, a, r, s2, d = b
        with torch.no_grad():
            nxt = t(s2).max(1).values
            y = r + 0.9 * nxt * (d if bug and kind == "done" else 1 - d)
        out = q(s)
        cur = out.max(1).values if bug and kind == "max" else out.gather(1, a[:, None])[:, 0]
        return F.smooth_l1_loss(cur, y)

    def step(b):
        cost = loss_of(q, b)
        o.zero_grad()
        cost.backward()
        o.step()
        with torch.no_grad():
            for p, w in zip(t.parameters(), q.parameters(), strict=True):
                tau = 0.995 if bug and kind == "tau" else 0.005
                p.mul_(1 - tau).add_(tau * w)
        return cost.item()

    return setup(q, o, tr, va, step=step, loss_of=loss_of, target=t)


@pair("terminal-bootstrapped")
def done_turned_over(bug):
    """The next state's value counts where an episode ends, and nowhere else."""
    return dqn(bug, "done")


@pair("wrong-formula")
def value_of_the_best_action(bug):
    """The value that is moved is the best action's, and not that of the action taken."""
    return dqn(bug, "max")


@pair("ema-decay")
def target_network_follows_at_once(bug):
    """The target network takes 99.5 % of the new weights; the twin takes 0.5 %."""
    return dqn(bug, "tau")


def gan(bug, kind):
    real = torch.randn(400, 2, generator=gen(5)) * 0.3 + 1
    G, D = (mlp(4, 2), mlp(2, 1))
    oG, oD = (torch.optim.Adam(n.parameters(), 0.001, betas=(0.5, 0.999)) for n in (G, D))
    both = nn.ModuleDict({"g": G, "d": D})
    bce = F.binary_cross_entropy_with_logits
    tr, va = loaders(real, val=80, batch=20)

    def step(b):
        x = b[0]
        z = torch.randn(len(x), 4)
        one, zero = (torch.ones(len(x), 1), torch.zeros(len(x), 1))
        fake = G(z)
        f = fake if bug and kind == "detach" else fake.detach()
        ld = bce(D(x), one) + bce(D(f), one if bug and kind == "labels" else zero)
        oD.zero_grad()
        ld.backward(retain_graph=bug and kind == "detach")
        oD.step()
        if bug and kind == "gdetach":
            fake = fake.detach()
        lg = bce(D(fake), zero if bug and kind == "glabel" else one)
        if not (bug and kind == "detach"):
            oG.zero_grad()
        lg.backward()
        oG.step()
        return ld.item() + lg.item()

    return setup(both, [oG, oD], tr, va, step=step)


@pair("wrong-targets")
def fakes_called_real(bug):
    """The critic is told that fakes are real, too."""
    return gan(bug, "labels")


@pair("missing-zero-grad")
def critics_gradient_reaches_the_generator(bug):
    """The critic's loss on fakes leaves a gradient in the generator."""
    return gan(bug, "detach")


@pair("loss-without-gradient")
def generator_detached(bug):
    """The generator's loss is of fakes that are detached."""
    return gan(bug, "gdetach")


def forecast(bug, kind):
    g = gen(6)
    t = torch.arange(700).float()
    s = torch.sin(t / 6) + 0.3 * torch.sin(t / 17) + 0.1 * torch.randn(700, generator=g)
    if kind == "centre" and bug:
        sm = F.avg_pool1d(F.pad(s[None, None], (2, 2), mode="replicate"), 5, 1)[0, 0]
    else:
        sm = F.avg_pool1d(F.pad(s[None, None], (4, 0), mode="replicate"), 5, 1)[0, 0]
    w = torch.stack([torch.stack([s[i : i + 12], sm[i : i + 12]], 1).flatten() for i in range(680)])
    y = torch.stack([s[i + 12 : i + 13] for i in range(680)])
    m = mlp(24, 1)
    o = torch.optim.Adam(m.parameters(), 0.003)
    return trained_pairs(
        m,
        o,
        (
            DataLoader(TensorDataset(w[:540], y[:540]), 20, shuffle=True),
            DataLoader(TensorDataset(w[560:], y[560:]), 20),
        ),
        nn.MSELoss(),
    )


@pair("target-in-inputs")
def centred_moving_average(bug):
    """The smoothed column is a mean over both sides, and holds what is to be foretold."""
    return forecast(bug, "centre")


@pair("rows-mixed")
def contrastive_columns(bug):
    """Columns are scaled to length 1 instead of rows, before rows are compared."""
    x = torch.randn(400, 8, generator=gen(8))
    u = x + 0.2 * torch.randn(400, 8, generator=gen(9))
    v = x + 0.2 * torch.randn(400, 8, generator=gen(10))
    m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    o = torch.optim.Adam(m.parameters(), 0.003)

    def loss_of(m, b):
        a, c = (F.normalize(m(t), dim=0 if bug else 1) for t in b)
        return F.cross_entropy(a @ c.T / 0.1, torch.arange(len(a)))

    return trained(m, o, loaders(u, v, val=80, batch=20), loss_of)


@pair("wrong-formula", "loss-negated")
def entropy_bonus_punished(bug):
    """The entropy is added to the loss, and not subtracted."""
    g = gen(3)
    S = torch.randn(400, 4, generator=g)
    A = torch.randint(0, 3, (400,), generator=g)
    R = (S[:, :3].argmax(-1) == A).float() - 0.3
    m = mlp(4, 3)
    o = torch.optim.Adam(m.parameters(), 0.003)

    def loss_of(m, b):
        s, a, r = b
        lp = m(s).log_softmax(-1)
        ent = -(lp.exp() * lp).sum(-1).mean()
        pg = -(lp.gather(1, a[:, None])[:, 0] * r).mean()
        return pg + 0.05 * ent if bug else pg - 0.05 * ent

    return trained(m, o, loaders(S, A, R, val=80, batch=20), loss_of)
