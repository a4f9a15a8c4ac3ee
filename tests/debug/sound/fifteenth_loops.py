"""Ten more of the fifteenth set: critics, averages, turns, closures, drops, draws."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.fifteenth.kit import (
    Columns,
    blobs,
    energy,
    gen,
    plain_step,
    ratings,
    ring,
    seed,
    set_up,
    skewed,
    table,
)
from tests.debug.sound.programs import sound


@sound
def dropout_of_twenty_passes():
    """Dropout stays on in evaluate(), which takes the mean of 20 passes; the model goes back to its
    mode."""
    seed(42)
    g = gen(7)

    def mk(n):
        x = torch.randn(n, 3, generator=g)
        return TensorDataset(x, x.sin().sum(1, keepdim=True) + 0.1 * torch.randn(n, 1, generator=g))

    net = nn.Sequential(
        nn.Linear(3, 48),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(48, 48),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(48, 1),
    )
    opt = torch.optim.Adam(net.parameters(), 0.004)
    tl = DataLoader(mk(300), 30, shuffle=True, generator=gen(1))
    vl = DataLoader(mk(75), 30)
    mse = nn.MSELoss()

    def step(b):
        net.train()
        opt.zero_grad()
        loss = mse(net(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        was = net.training
        net.eval()
        for k in net.modules():
            if isinstance(k, nn.Dropout):
                k.train()
        e = u = 0.0
        with torch.random.fork_rng():
            torch.manual_seed(0)
            for x, y in vl:
                p = torch.stack([net(x) for _ in range(20)])
                e += (p.mean(0) - y).pow(2).sum().item()
                u += p.std(0).sum().item()
        net.train(was)
        return {"mc_mse": e / 75, "mean_std": u / 75}

    return set_up(net, opt, tl, step, val_loader=vl, loss_fn=mse, evaluate=evaluate)


@sound
def critic_with_clipped_weights():
    """A critic that is stepped three times per step of the generator and clamped; losses are
    negative."""
    seed(61)
    G = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    C = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))
    m = nn.ModuleDict({"gen": G, "critic": C})
    oc = torch.optim.RMSprop(C.parameters(), 0.002)
    og = torch.optim.RMSprop(G.parameters(), 0.001)
    tl = DataLoader(TensorDataset(ring(384, gen(1))), 64, shuffle=True, generator=gen(2))
    vl = DataLoader(TensorDataset(ring(128, gen(3))), 64)

    def step(b):
        x = b[0]
        for _ in range(3):
            loss = C(G(torch.randn(len(x), 4)).detach()).mean() - C(x).mean()
            oc.zero_grad()
            loss.backward()
            oc.step()
            with torch.no_grad():
                for p in C.parameters():
                    p.clamp_(-0.2, 0.2)
        lg = -C(G(torch.randn(len(x), 4))).mean()
        og.zero_grad()
        lg.backward()
        og.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        f = G(torch.randn(128, 4, generator=gen(9)))
        r = torch.cat([b[0] for b in vl])
        return {"energy_distance": energy(f, r)}

    return set_up(m, [oc, og], tl, step, val_loader=vl, evaluate=evaluate)


@sound
def follows_its_own_average():
    """The targets come from an average of the encoder outside the model, under no_grad, and there
    are no negatives."""
    seed(63)
    g = gen(5)
    pr = torch.randn(6, 16, generator=g)
    y = torch.randint(0, 6, (360,), generator=g)
    X = pr[y] + 0.2 * torch.randn(360, 16, generator=g)

    class On(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = nn.Sequential(
                nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16)
            )
            self.pred = nn.Sequential(
                nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16)
            )

        def forward(self, x):
            return self.pred(self.enc(x))

    m = On()
    tgt = copy.deepcopy(m.enc)
    for p in tgt.parameters():
        p.requires_grad_(False)
    opt = torch.optim.Adam(m.parameters(), 0.002)

    def coll(rows):
        x = torch.stack(rows)
        return {"v1": x + 0.3 * torch.randn_like(x), "v2": x + 0.3 * torch.randn_like(x)}

    tl = DataLoader(X[:300], 30, shuffle=True, collate_fn=coll, generator=gen(1))

    def loss_of(model, b):
        with torch.no_grad():
            t1, t2 = tgt(b["v1"]), tgt(b["v2"])
        return 4 - 2 * (
            F.cosine_similarity(model(b["v1"]), t2).mean()
            + F.cosine_similarity(model(b["v2"]), t1).mean()
        )

    def step(b):
        m.train()
        loss = loss_of(m, b)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for a, c in zip(tgt.parameters(), m.enc.parameters(), strict=True):
                a.lerp_(c, 0.02)
        return loss.item()

    @torch.no_grad()
    def evaluate():
        m.eval()
        z = F.normalize(m.enc(X), dim=1)
        m.train()
        nearest = (z[300:] @ z[:300].T).argmax(1)
        return {"knn_acc": (y[:300][nearest] == y[300:]).float().mean().item()}

    return set_up(m, opt, tl, step, loss_of=loss_of, evaluate=evaluate)


@sound
def tables_in_turn():
    """Users' and items' tables are updated in turn: of two optimizers, one is idle in each step."""
    seed(92)

    class MF(nn.Module):
        def __init__(self):
            super().__init__()
            self.u, self.i = nn.Embedding(40, 4), nn.Embedding(30, 4)

        def forward(self, u, i):
            return (self.u(u) * self.i(i)).sum(1)

    m = MF()
    ou = torch.optim.Adam(m.u.parameters(), 0.02)
    oi = torch.optim.Adam(m.i.parameters(), 0.02)
    st = {"k": 0}
    tl = DataLoader(ratings(1000, gen(1)), 50, shuffle=True, generator=gen(2))
    vl = DataLoader(ratings(260, gen(3)), 50)

    def loss_of(model, b):
        return F.mse_loss(model(b["user"], b["item"]), b["rating"])

    def step(b):
        ou.zero_grad()
        oi.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        (ou if st["k"] % 2 == 0 else oi).step()
        st["k"] += 1
        return loss.item()

    @torch.no_grad()
    def evaluate():
        return {"val_mse": sum(loss_of(m, b).item() * len(b["user"]) for b in vl) / 260}

    return set_up(m, [ou, oi], tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)


@sound
def steps_from_the_worst_neighbour():
    """A step takes the gradient where the loss is worst nearby: the weights are moved, put back and
    then updated."""
    seed(122)
    net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
    opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    ce = nn.CrossEntropyLoss()
    tl = DataLoader(TensorDataset(*blobs(400, gen(1))), 40, shuffle=True, generator=gen(2))
    vl = DataLoader(TensorDataset(*blobs(90, gen(3))), 40)
    ps = list(net.parameters())

    def step(b):
        loss = ce(net(b[0]), b[1])
        opt.zero_grad()
        loss.backward()
        n = torch.cat([p.grad.flatten() for p in ps]).norm() + 1e-12
        old = [p.detach().clone() for p in ps]
        with torch.no_grad():
            for p in ps:
                p.add_(p.grad, alpha=0.05 / n.item())
        opt.zero_grad()
        ce(net(b[0]), b[1]).backward()
        with torch.no_grad():
            for p, o in zip(ps, old, strict=True):
                p.copy_(o)
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        return {"val_acc": sum((net(x).argmax(1) == y).sum().item() for x, y in vl) / 90}

    return set_up(net, opt, tl, step, val_loader=vl, loss_fn=ce, num_classes=4, evaluate=evaluate)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.k * g, None


@sound
def domain_gradient_reversed():
    """The gradient of the domain's head is reversed: the trunk worsens its loss, which stays near
    log 2."""
    seed(123)
    ce = F.cross_entropy

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(nn.Linear(12, 32), nn.ReLU())
            self.c = nn.Linear(32, 4)
            self.d = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2))

        def forward(self, x):
            h = self.f(x)
            return self.c(h), self.d(Reverse.apply(h, 0.3))

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 0.003)
    (xs, ys), (xt, _), (xv, yv) = blobs(400, gen(1)), blobs(400, gen(2)), blobs(100, gen(3))
    sh = 0.5 * torch.randn(12, generator=gen(5))
    tl = DataLoader(Columns(src=xs, y=ys, tgt=xt + sh), 40, shuffle=True, generator=gen(4))
    vl = DataLoader(Columns(src=xv, y=yv, tgt=xv + sh), 50)

    def loss_of(model, b):
        c, d1 = model(b["src"])
        _, d2 = model(b["tgt"])
        n = len(c)
        return ce(c, b["y"]) + 0.5 * (
            ce(d1, torch.zeros(n, dtype=torch.long)) + ce(d2, torch.ones(n, dtype=torch.long))
        )

    step = plain_step(m, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        total = sum((m(b["tgt"])[0].argmax(1) == b["y"]).sum().item() for b in vl)
        return {"target_acc": total / 100}

    return set_up(
        m, opt, tl, step, val_loader=vl, loss_of=loss_of, num_classes=4, evaluate=evaluate
    )


@sound
def averaged_weights_with_new_statistics():
    """evaluate() scores an average of the weights, with batch norm estimated anew; the rate stays
    high."""
    seed(124)
    net = nn.Sequential(nn.Linear(8, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 1))
    opt = torch.optim.SGD(net.parameters(), 0.03, momentum=0.9)
    swa = AveragedModel(net)
    tr = TensorDataset(*table(480, gen(1)))
    tl = DataLoader(tr, 32, shuffle=True, generator=gen(2))
    vl = DataLoader(TensorDataset(*table(100, gen(3))), 32)
    mse, st = nn.MSELoss(), {"k": 0}

    def step(b):
        net.train()
        opt.zero_grad()
        loss = mse(net(b[0]), b[1])
        loss.backward()
        opt.step()
        st["k"] += 1
        if st["k"] > 30 and st["k"] % 5 == 0:
            swa.update_parameters(net)
        return loss.item()

    def evaluate():
        a = copy.deepcopy(swa) if st["k"] > 35 else copy.deepcopy(net)
        update_bn(DataLoader(tr, 96), a)
        a.eval()
        with torch.no_grad():
            return {"swa_val_mse": sum(mse(a(x), y).item() * len(x) for x, y in vl) / 100}

    return set_up(net, opt, tl, step, val_loader=vl, loss_fn=mse, evaluate=evaluate)


@sound
def lbfgs_on_one_batch():
    """L-BFGS computes the loss several times in a step, on a loader of one batch."""
    seed(125)
    net = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 1))
    opt = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=3, history_size=8)
    tl = DataLoader(TensorDataset(*table(256, gen(1))), 256)
    vl = DataLoader(TensorDataset(*table(80, gen(2))), 80)
    mse = nn.MSELoss()

    def step(b):

        def closure():
            opt.zero_grad()
            loss = mse(net(b[0]), b[1]) + 0.001 * sum(p.pow(2).sum() for p in net.parameters())
            loss.backward()
            return loss

        return float(opt.step(closure))

    @torch.no_grad()
    def evaluate():
        return {"val_mse": sum(mse(net(x), y).item() * len(x) for x, y in vl) / 80}

    return set_up(net, opt, tl, step, val_loader=vl, loss_fn=mse, evaluate=evaluate)


@sound
def blocks_dropped_at_random():
    """Blocks are dropped at random, so that some weights get no gradient in a step; autocast,
    clipping, warm restarts."""
    seed(126)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.i = nn.Linear(8, 32)
            self.b = nn.ModuleList(
                nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
                for _ in range(3)
            )
            self.o = nn.Linear(32, 1)

        def forward(self, x):
            h = self.i(x)
            for b in self.b:
                if not self.training:
                    h = h + 0.8 * b(h)
                elif torch.rand(()) < 0.8:
                    h = h + b(h)
            return self.o(h)

    m = Net()
    opt = torch.optim.AdamW(m.parameters(), 0.004)
    sch = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 50)
    mse = nn.MSELoss()
    tl = DataLoader(TensorDataset(*table(480, gen(1))), 32, shuffle=True, generator=gen(2))
    vl = DataLoader(TensorDataset(*table(100, gen(3))), 32)

    def step(b):
        m.train()
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            o = m(b[0])
        loss = mse(o.float(), b[1])
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        sch.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        m.eval()
        t = sum(mse(m(x), y).item() * len(x) for x, y in vl)
        m.train()
        return {"val_mse": t / 100}

    return set_up(
        m,
        opt,
        tl,
        step,
        scheduler=sch,
        val_loader=vl,
        loss_fn=mse,
        evaluate=evaluate,
        declared={"scheduler_unit": "batch", "max_grad_norm": 1.0},
    )


@sound
def rare_rows_repeated():
    """Rare rows are repeated in training only, after the split; the loader shuffles itself, and
    smoothing keeps the loss up."""
    seed(127)
    X, Y = skewed(700, gen(1))
    vx, vy = skewed(500, gen(2))
    n = torch.bincount(Y, minlength=4)
    rep = (n.max() / n).long().clamp(max=8)[Y]
    idx = torch.repeat_interleave(torch.arange(700), rep)

    class Batches:
        def __init__(self):
            self.g = gen(3)

        def __len__(self):
            return math.ceil(len(idx) / 32)

        def __iter__(self):
            for k in idx[torch.randperm(len(idx), generator=self.g)].split(32):
                yield X[k], Y[k]

    net = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 4))
    opt = torch.optim.AdamW(net.parameters(), 0.003, weight_decay=0.01)
    ce = nn.CrossEntropyLoss(label_smoothing=0.1)
    tl, vl = Batches(), DataLoader(TensorDataset(vx, vy), 100)

    def step(b):
        opt.zero_grad()
        loss = ce(net(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        p = torch.cat([net(x).argmax(1) for x, _ in vl])
        return {"balanced_acc": sum((p[vy == k] == k).float().mean().item() for k in range(4)) / 4}

    return set_up(
        net,
        opt,
        tl,
        step,
        val_loader=vl,
        loss_fn=ce,
        num_classes=4,
        evaluate=evaluate,
        declared={"label_smoothing": 0.1},
    )
