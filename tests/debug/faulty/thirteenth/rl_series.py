"""Faults of games, series, regressions and rankings."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.faulty.kit import pair
from tests.debug.faulty.thirteenth.kit import (
    Columns,
    evaluating,
    gen,
    loader,
    mlp,
    set_up,
    sup_step,
)


@pair("wrong-formula")
def reinforce_returns(bug):
    """REINFORCE: discounted returns accumulated forwards (rewards not walked in reverse): each
    action is credited with past rewards. After 300 steps mean_return is 1.15 instead of 4.88."""
    torch.manual_seed(0)
    T, d, A, gam = 6, 4, 3, 0.8
    W = torch.randn(d, A, generator=gen(9))
    model = mlp(d, 32, A)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    g = gen(5)
    tr = loader((torch.randn(512, T, d, generator=gen(1)),), 16, 1)
    va = loader((torch.randn(100, T, d, generator=gen(2)),), 50, shuffle=False)

    def rewards(s, a):  # the reward of a right action comes one step later
        r = (a == (s @ W).argmax(-1)).float()
        return torch.cat([torch.zeros(len(r), 1), r[:, :-1]], 1)

    def loss_of(m, b):
        s = b[0]
        lp = m(s).log_softmax(-1)
        a = torch.multinomial(lp.exp().flatten(0, 1), 1, generator=g).view(s.shape[:2])
        r = rewards(s, a)
        R, G = torch.zeros(len(s)), []
        for t in range(T) if bug else reversed(range(T)):
            R = r[:, t] + gam * R
            G.append(R)
        G = torch.stack(G if bug else G[::-1], 1)
        adv = G - G.mean(0)
        return -(adv * lp.gather(2, a[..., None])[..., 0]).mean()

    def step(b):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        t = n = 0
        with evaluating(model):
            for (s,) in va:
                t += rewards(s, model(s).argmax(-1)).sum().item()
                n += len(s)
        return {"mean_return": t / n}

    return set_up(model, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate)


@pair("terminal-bootstrapped")
def dqn_no_done(bug):
    """DQN: the target bootstraps through terminal transitions (no (1 - done)); next_state there is
    the reset state. After 300 steps q_start is 2.36 instead of 0.675."""
    torch.manual_seed(0)
    N, gam, START = 7, 0.9, 2
    eye = torch.eye(N)

    def env(s, a):
        n = s + (1 if a else -1)
        return (START, 0.5, 1.0) if n < 1 else (START, 1.0, 1.0) if n > 5 else (n, 0.0, 0.0)

    g = gen(1)
    S = torch.randint(1, 6, (600,), generator=g)
    A = torch.randint(2, (600,), generator=g)
    tr3 = [env(int(s), int(a)) for s, a in zip(S, A, strict=False)]
    n, r, d = (torch.tensor(v) for v in zip(*tr3, strict=False))
    tr = loader(Columns(state=eye[S], action=A, reward=r, next_state=eye[n], done=d), 32, 1)
    model = mlp(N, 32, 2)
    target = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    cnt = [0]

    def loss_of(m, b):
        with torch.no_grad():
            boot = target(b["next_state"]).max(1)[0]
            y = b["reward"] + gam * boot * (1 if bug else 1 - b["done"])
        return F.smooth_l1_loss(m(b["state"]).gather(1, b["action"][:, None])[:, 0], y)

    def step(b):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        opt.step()
        cnt[0] += 1
        if cnt[0] % 10 == 0:
            target.load_state_dict(model.state_dict())
        return loss.item()

    def evaluate():
        with evaluating(model):
            q = model(eye[START]).max().item()
            s, ret, disc = START, 0.0, 1.0
            for _ in range(30):
                s, rr, dd = env(s, int(model(eye[s]).argmax()))
                ret += disc * rr
                disc *= gam
                if dd:
                    break
        return {"q_start": q, "greedy_return": ret}

    return set_up(model, opt, tr, step, loss_of=loss_of, evaluate=evaluate, declared={"gamma": gam})


def _ar(n, seed):
    e = torch.randn(n, generator=gen(seed))
    s = torch.zeros(n)
    for t in range(2, n):
        s[t] = 1.2 * s[t - 1] - 0.5 * s[t - 2] + e[t]
    return s


def _reg_eval(model, va, f=lambda p: p):
    t = n = 0
    with evaluating(model):
        for x, y in va:
            t += (
                (f(model(x)).reshape(len(y), -1) - y.reshape(len(y), -1))
                .pow(2)
                .mean(1)
                .sum()
                .item()
            )
            n += len(y)
    return math.sqrt(t / n)


@pair("target-in-inputs")
def window_one_long(bug):
    """Forecast windows x = s[i : i+L+1], target s[i+L]: off by one, the window ends with the value
    to forecast. After 300 steps val_rmse is 0.046 instead of 1.048."""
    torch.manual_seed(0)
    L = 12

    def windows(s):
        m = L + 1 if bug else L
        k = range(len(s) - L - 1)
        return torch.stack([s[i : i + m] for i in k]), torch.stack([s[i + L] for i in k])[:, None]

    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.r = nn.GRU(1, 16, batch_first=True)
            s.o = nn.Linear(16, 1)

        def forward(s, x):
            return s.o(s.r(x[..., None])[0][:, -1])

    s = _ar(700, 1)
    model = Net()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    crit = nn.MSELoss()
    tr = loader(windows(s[:500]), 32, 1)
    va = loader(windows(s[500:]), 32, shuffle=False)
    step = sup_step(model, opt, crit)
    return set_up(
        model,
        opt,
        tr,
        step,
        loss_fn=crit,
        val_loader=va,
        evaluate=lambda: {"val_rmse": _reg_eval(model, va)},
    )


@pair("broadcast-loss")
def reg_broadcast(bug):
    """Regression: output (B, 1) minus target (B,) broadcasts to (B, B): the net learns the mean.
    After 300 steps val_rmse is 0.807 instead of 0.296."""
    torch.manual_seed(0)
    w = torch.randn(8, generator=gen(9))

    def data(n, s):
        g = gen(s)
        x = torch.randn(n, 8, generator=g)
        return x, (x @ w).tanh() + 0.05 * torch.randn(n, generator=g)

    def crit(p, y):
        return ((p - y) ** 2).mean() if bug else ((p.squeeze(-1) - y) ** 2).mean()

    model = mlp(8, 32, 1)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    tr = loader(data(500, 1), 25, 1)
    va = loader(data(130, 2), 50, shuffle=False)
    step = sup_step(model, opt, crit)
    return set_up(
        model,
        opt,
        tr,
        step,
        loss_fn=crit,
        val_loader=va,
        evaluate=lambda: {"val_rmse": _reg_eval(model, va)},
    )


@pair("metric-wrong")
def reg_units_eval(bug):
    """House prices: trained on standardised targets, evaluation compares the standardised output
    with raw prices (no inverse transform). After 300 steps val_rmse_kusd is 319.554 instead of
    11.053."""
    torch.manual_seed(0)
    w = torch.randn(6, generator=gen(9))

    def data(n, s):
        g = gen(s)
        x = torch.randn(n, 6, generator=g)
        return x, (300 + 60 * (x @ w) + 10 * torch.randn(n, generator=g))[:, None]

    X, Y = data(500, 1)
    mu, sd = Y.mean(), Y.std()

    def crit(p, y):
        return F.mse_loss(p, (y - mu) / sd)

    model = mlp(6, 32, 1)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    tr = loader((X, Y), 25, 1)
    va = loader(data(130, 2), 50, shuffle=False)
    step = sup_step(model, opt, crit)
    return set_up(
        model,
        opt,
        tr,
        step,
        loss_fn=crit,
        val_loader=va,
        evaluate=lambda: {
            "val_rmse_kusd": _reg_eval(model, va, (lambda p: p) if bug else (lambda p: p * sd + mu))
        },
    )


@pair("quantiles-swapped")
def pinball_sign(bug):
    """Quantile regression: pinball loss with error = prediction - target: the 0.9-quantile head
    learns the 0.1 quantile. After 300 steps coverage_q90 is 0.108 instead of 0.92."""
    torch.manual_seed(0)
    Q = torch.tensor([0.5, 0.75, 0.9])

    def data(n, s):
        g = gen(s)
        x = torch.rand(n, 3, generator=g)
        return x, (2 * x[:, 0] + (0.2 + x[:, 1]) * torch.randn(n, generator=g))[:, None]

    def crit(p, y):
        e = p - y if bug else y - p
        return torch.maximum(Q * e, (Q - 1) * e).mean()

    model = mlp(3, 32, 3)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    tr = loader(data(600, 1), 30, 1)
    va = loader(data(250, 2), 100, shuffle=False)
    step = sup_step(model, opt, crit)

    def evaluate():
        c = loss = n = 0
        with evaluating(model):
            for x, y in va:
                p = model(x)
                c = c + (y <= p).float().sum(0)
                loss += crit(p, y).item() * len(y)
                n += len(y)
        return {
            "val_pinball": loss / n,
            **{
                f"coverage_q{round(100 * q)}": v
                for q, v in zip(Q.tolist(), (c / n).tolist(), strict=False)
            },
        }

    return set_up(
        model,
        opt,
        tr,
        step,
        loss_fn=crit,
        val_loader=va,
        evaluate=evaluate,
        declared={"quantiles": [0.5, 0.75, 0.9]},
    )


@pair("leak-group")
def rec_dup_leak(bug):
    """Recommender: the log holds repeats of the same (user, item, rating) and is split by row: most
    val pairs are in train. After 300 steps val_rmse is 0.461 instead of 1.019."""
    torch.manual_seed(0)
    U, items = 40, 40
    g = gen(1)
    bu, bi = torch.randn(U, 3, generator=g), torch.randn(items, 3, generator=g)
    pairs = torch.randperm(U * items, generator=g)[:400]
    rate = (
        3
        + bu[pairs // items].sum(1) * 0.5
        + bi[pairs % items].sum(1) * 0.5
        + 0.7 * torch.randn(400, generator=g)
    )
    log = torch.cat([torch.arange(400), torch.randint(400, (600,), generator=g)])
    if bug:
        log = log[torch.randperm(len(log), generator=g)]
        tri, vai = log[:800], log[800:]
    else:
        held = torch.randperm(400, generator=g)[:80]
        iv = torch.isin(log, held)
        tri, vai = log[~iv], log[iv]

    def ds(ix):
        return Columns(user=pairs[ix] // items, item=pairs[ix] % items, rating=rate[ix])

    class MF(nn.Module):
        def __init__(s):
            super().__init__()
            s.u, s.i = nn.Embedding(U, 8), nn.Embedding(items, 8)
            s.bu, s.bi = nn.Embedding(U, 1), nn.Embedding(items, 1)
            s.m = nn.Parameter(torch.tensor(3.0))
            [nn.init.normal_(e.weight, 0, 0.1) for e in (s.u, s.i, s.bu, s.bi)]

        def forward(s, u, i):
            return s.m + (s.u(u) * s.i(i)).sum(1) + s.bu(u)[:, 0] + s.bi(i)[:, 0]

    model = MF()
    opt = torch.optim.Adam(model.parameters(), 1e-2, weight_decay=3e-3)
    tr = loader(ds(tri), 40, 1)
    va = loader(ds(vai), 60, shuffle=False)

    def loss_of(m, b):
        return F.mse_loss(m(b["user"], b["item"]), b["rating"])

    def step(b):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        t = n = 0
        with evaluating(model):
            for b in va:
                t += loss_of(model, b).item() * len(b["user"])
                n += len(b["user"])
        return {"val_rmse": math.sqrt(t / n)}

    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_of=loss_of,
        evaluate=evaluate,
        groups={"train": pairs[tri].tolist(), "val": pairs[vai].tolist()},
    )


@pair("rows-mixed")
def listwise_dim(bug):
    """Listwise ranking: log_softmax over dim 0 (the queries of the batch) in place of dim 1 (the
    items of a query's list). After 300 steps val_mrr is 0.578 instead of 0.897."""
    torch.manual_seed(0)
    L, w = 8, torch.randn(4, generator=gen(9))

    def data(n, s):
        g = gen(s)
        q = 3 * torch.randn(n, 1, 4, generator=g)
        x = torch.randn(n, L, 4, generator=g)
        pos = (torch.arange(L).float() / L)[None, :, None].expand(n, -1, -1)
        u = ((x * q.sign()) @ w) - 8 * pos[..., 0]
        return Columns(
            features=torch.cat([x, q.expand(-1, L, -1), pos], -1),
            clicked=F.one_hot((2 * u + torch.randn(n, L, generator=g)).argmax(1), L).float(),
        )

    model = nn.Sequential(mlp(9, 48, 1), nn.Flatten(1))
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    tr = loader(data(500, 1), 20, 1)
    va = loader(data(150, 2), 40, shuffle=False)

    def loss_of(m, b):
        return -(m(b["features"]).log_softmax(0 if bug else 1) * b["clicked"]).sum(1).mean()

    def step(b):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        r = n = 0
        with evaluating(model):
            for b in va:
                s = model(b["features"])
                c = (s * b["clicked"]).sum(1, keepdim=True)
                r += (1 / (1 + (s > c).sum(1).float())).sum().item()
                n += len(s)
        return {"val_mrr": r / n}

    return set_up(model, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate)


@pair("trains-on-validation")
def gnn_all_nodes(bug):
    """Node classification: the loss is taken over all nodes of the graph, the validation nodes
    included (train_mask not applied). After 300 steps val_acc is 1.0 instead of 0.644."""
    torch.manual_seed(0)
    N, K = 90, 3
    g = gen(1)
    y = torch.randint(K, (N,), generator=g)
    p = torch.where(y[:, None] == y[None], 0.07, 0.03)
    a = (torch.rand(N, N, generator=g) < p).float().triu(1)
    a = a + a.T + torch.eye(N)
    dg = a.sum(1).rsqrt()
    adj = dg[:, None] * a * dg
    x = torch.randn(N, 24, generator=g)
    x[:, :3] += 0.8 * F.one_hot(y, 3)
    tm = torch.zeros(N, dtype=torch.bool)
    tm[torch.randperm(N, generator=g)[:45]] = True
    graph = {"x": x, "adj": adj, "y": y, "train_mask": tm, "val_mask": ~tm}

    class GCN(nn.Module):
        def __init__(s):
            super().__init__()
            s.a, s.b = nn.Linear(24, 32), nn.Linear(32, K)

        def forward(s, x, adj):
            return adj @ s.b(F.dropout(F.relu(adj @ s.a(x)), 0.3, s.training))

    model = GCN()
    opt = torch.optim.Adam(model.parameters(), 1e-2, weight_decay=5e-4)
    tr = DataLoader([graph], batch_size=None)

    def loss_of(m, b):
        o = m(b["x"], b["adj"])
        return (
            F.cross_entropy(o, b["y"])
            if bug
            else F.cross_entropy(o[b["train_mask"]], b["y"][b["train_mask"]])
        )

    def step(b):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        with evaluating(model):
            ok = model(x, adj).argmax(1) == y
        return {"train_acc": ok[tm].float().mean().item(), "val_acc": ok[~tm].float().mean().item()}

    return set_up(model, opt, tr, step, loss_of=loss_of, evaluate=evaluate, num_classes=K)
