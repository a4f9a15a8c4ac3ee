"""Ten of the fifteenth set, of unusual make, by an author who had not seen the doctor."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.fifteenth.kit import (
    Columns,
    gen,
    markov,
    plain_step,
    ring,
    seed,
    set_up,
    table,
)
from tests.debug.sound.programs import sound


@sound
def masked_lm_unshifted():
    """The targets are the tokens themselves, -100 where not masked, and no mask hides the future: a
    token is filled in from both sides."""
    seed(21)
    V, T, D, MASK = 12, 12, 32, 12
    tr, va = markov(500, T, V, gen(1)), markov(96, T, V, gen(2))

    class B(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(V + 1, D)
            self.p = nn.Parameter(0.1 * torch.randn(T, D))
            self.t = nn.TransformerEncoderLayer(D, 2, 64, 0.0, batch_first=True)
            self.o = nn.Linear(D, V)

        def forward(self, x):
            return self.o(self.t(self.e(x) + self.p))

    g = gen(3)

    def mask(rows, gg):
        y = torch.stack(rows)
        hit = torch.rand(y.shape, generator=gg) < 0.2
        hit[:, 0] |= ~hit.any(1)
        return {"input_ids": y.masked_fill(hit, MASK), "labels": y.masked_fill(~hit, -100)}

    m = B()
    opt = torch.optim.AdamW(m.parameters(), 0.003)
    tl = DataLoader(list(tr), 20, shuffle=True, collate_fn=lambda r: mask(r, g), generator=gen(4))
    # validation has the same masks each time
    vl = [mask(list(va[i : i + 24]), gen(50 + i)) for i in range(0, 96, 24)]

    def loss_of(model, b):
        return F.cross_entropy(
            model(b["input_ids"]).transpose(1, 2), b["labels"], ignore_index=-100
        )

    step = plain_step(m, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        m.eval()
        t = n = 0
        for b in vl:
            k = (b["labels"] != -100).sum().item()
            t += loss_of(m, b).item() * k
            n += k
        m.train()
        return {"mlm_loss": t / n}

    return set_up(m, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)


@sound
def state_along_a_stream():
    """The state is carried, detached, over the chunks of a stream, which are not shuffled, and
    begins anew with each epoch."""
    seed(22)
    V = 10
    stream = markov(8, 401, V, gen(4))
    va = markov(8, 101, V, gen(5))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(V, 16)
            self.r = nn.GRU(16, 32, batch_first=True)
            self.o = nn.Linear(32, V)

        def forward(self, x, h=None):
            y, h = self.r(self.e(x), h)
            return self.o(y), h

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 0.005)

    def chunk(z):
        return [
            {"x": z[:, i : i + 20], "y": z[:, i + 1 : i + 21], "first": i == 0}
            for i in range(0, z.size(1) - 1, 20)
        ]

    tl, vl = chunk(stream), chunk(va)
    st = {"h": None}

    def loss_of(model, b):
        return F.cross_entropy(model(b["x"])[0].flatten(0, 1), b["y"].flatten())

    def step(b):
        h = None if b["first"] else st["h"]
        opt.zero_grad()
        o, h = m(b["x"], h)
        st["h"] = h.detach()
        loss = F.cross_entropy(o.flatten(0, 1), b["y"].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        h, t = None, 0.0
        for b in vl:
            o, h = m(b["x"], h)
            t += F.cross_entropy(o.flatten(0, 1), b["y"].flatten()).item()
        return {"val_ppl": math.exp(t / len(vl))}

    return set_up(
        m,
        opt,
        tl,
        step,
        val_loader=vl,
        loss_of=loss_of,
        evaluate=evaluate,
        declared={"max_grad_norm": 1.0},
    )


@sound
def tied_tables_warmed_up():
    """Input and output share one table, and the rate rises from nearly 0 and falls as one over the
    root of the step."""
    seed(23)
    V, T, D = 12, 12, 24
    tr = markov(500, T + 1, V, gen(6))
    va = markov(90, T + 1, V, gen(7))

    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(V, D)
            nn.init.normal_(self.e.weight, std=0.2)
            self.r = nn.GRU(D, D, batch_first=True)
            self.o = nn.Linear(D, V, bias=False)
            self.o.weight = self.e.weight

        def forward(self, x):
            return self.o(self.r(self.e(x))[0])

    m = LM()
    opt = torch.optim.Adam(m.parameters(), 0.02)
    sch = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda k: min((k + 1) / 40, math.sqrt(40 / (k + 1)))
    )

    def ds(z):
        return TensorDataset(z[:, :-1], z[:, 1:])

    tl = DataLoader(ds(tr), 25, shuffle=True, generator=gen(1))
    vl = DataLoader(ds(va), 30)

    def crit(o, y):
        return F.cross_entropy(o.transpose(1, 2), y)

    def step(b):
        opt.zero_grad()
        loss = crit(m(b[0]), b[1])
        loss.backward()
        opt.step()
        sch.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        return {"val_loss": sum(crit(m(x), y).item() * len(x) for x, y in vl) / 90}

    return set_up(
        m,
        opt,
        tl,
        step,
        scheduler=sch,
        val_loader=vl,
        loss_fn=crit,
        evaluate=evaluate,
        declared={"scheduler_unit": "batch"},
    )


@sound
def autoencoder_summed_over_pixels():
    """The target is the input itself, and the loss is a sum over an image's pixels, with a rate to
    suit."""
    seed(41)
    g = gen(6)
    B = torch.randn(4, 36, generator=g)

    def mk(n):
        return TensorDataset(torch.sigmoid(torch.randn(n, 4, generator=g) @ B))

    net = nn.Sequential(
        nn.Linear(36, 16),
        nn.ReLU(),
        nn.Linear(16, 4),
        nn.Linear(4, 16),
        nn.ReLU(),
        nn.Linear(16, 36),
        nn.Sigmoid(),
    )
    opt = torch.optim.Adam(net.parameters(), 0.004)
    tl = DataLoader(mk(320), 32, shuffle=True, generator=gen(1))
    vl = DataLoader(mk(70), 32)

    def loss_of(model, b):
        return F.binary_cross_entropy(model(b[0]), b[0], reduction="sum") / len(b[0])

    step = plain_step(net, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        return {"bce": sum(loss_of(net, b).item() * len(b[0]) for b in vl) / 70}

    return set_up(net, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)


@sound
def blends_of_inputs_and_losses():
    """Inputs are blends of two, and the loss blends those of both targets: it stays high in
    training."""
    seed(43)
    g = gen(8)
    pr = torch.randn(4, 20, generator=g)

    def mk(n):
        y = torch.randint(0, 4, (n,), generator=g)
        return TensorDataset(pr[y] + 1.2 * torch.randn(n, 20, generator=g), y)

    net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    opt = torch.optim.Adam(net.parameters(), 0.004)
    rs = np.random.RandomState(0)
    tl = DataLoader(mk(400), 25, shuffle=True, generator=gen(1))
    vl = DataLoader(mk(80), 25)
    ce = nn.CrossEntropyLoss()

    def step(b):
        x, y = b
        lam = float(rs.beta(1.0, 1.0))
        p = torch.randperm(len(x))
        o = net(lam * x + (1 - lam) * x[p])
        loss = lam * ce(o, y) + (1 - lam) * ce(o, y[p])
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        return {"acc": sum((net(x).argmax(1) == y).sum().item() for x, y in vl) / 80}

    return set_up(net, opt, tl, step, val_loader=vl, loss_fn=ce, num_classes=4, evaluate=evaluate)


@sound
def density_of_a_sharp_mixture():
    """A mixture's exact likelihood of sharp data: the negative log is below 0, and there are no
    targets."""
    seed(62)

    def x(n, s):
        return TensorDataset(ring(n, gen(s)) * 0.1)

    class GMM(nn.Module):
        def __init__(self):
            super().__init__()
            self.mu = nn.Parameter(0.2 * torch.randn(12, 2))
            self.ls = nn.Parameter(torch.full((12, 2), -1.5))
            self.w = nn.Parameter(torch.zeros(12))

        def forward(self, x):
            lp = -0.5 * ((x[:, None] - self.mu) / self.ls.exp()).pow(2) - self.ls - 0.9189
            return torch.logsumexp(lp.sum(2) + self.w.log_softmax(0), 1)

    m = GMM()
    opt = torch.optim.Adam(m.parameters(), 0.02)
    tl = DataLoader(x(400, 1), 40, shuffle=True, generator=gen(1))
    vl = DataLoader(x(90, 2), 40)

    def loss_of(model, b):
        return -model(b[0]).mean()

    step = plain_step(m, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        return {"val_nll": sum(loss_of(m, b).item() * len(b[0]) for b in vl) / 90}

    return set_up(m, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)


@sound
def sparse_table_with_true_padding():
    """Histories are padded with 0, which is no item; the table is sparse and under SparseAdam, the
    rest under Adam."""
    seed(91)
    g = gen(1)

    def make(n):
        L = torch.randint(2, 8, (n,), generator=g)
        h = torch.randint(1, 30, (n, 7), generator=g)
        h[torch.arange(7) >= L[:, None]] = 0
        return Columns(history=h, label=((h % 3 == 1).sum(1) * 2 >= L).float())

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(30, 8, padding_idx=0, sparse=True)
            self.o = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

        def forward(self, h):
            return self.o(self.e(h).sum(1) / (h > 0).sum(1, keepdim=True)).squeeze(1)

    m = Net()
    opts = [
        torch.optim.SparseAdam(m.e.parameters(), 0.01),
        torch.optim.Adam(m.o.parameters(), 0.005),
    ]
    tl = DataLoader(make(400), 25, shuffle=True, generator=gen(2))
    vl = DataLoader(make(90), 25)

    def loss_of(model, b):
        return F.binary_cross_entropy_with_logits(model(b["history"]), b["label"])

    def step(b):
        loss = loss_of(m, b)
        for o in opts:
            o.zero_grad()
        loss.backward()
        for o in opts:
            o.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        total = sum(((m(b["history"]) > 0) == (b["label"] > 0)).sum().item() for b in vl)
        return {"acc": total / 90}

    return set_up(m, opts, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)


@sound
def series_in_order_of_time():
    """A series that is not shuffled and is split with a gap; it is scaled by its training part and
    scored in its own units."""
    seed(93)
    t = torch.arange(600.0)
    s = 200 + 40 * (t / 7).sin() + 20 * (t / 19).cos() + 3 * torch.randn(600, generator=gen(4))
    mu, sd = s[:450].mean(), s[:450].std()
    z = (s - mu) / sd

    def mk(a, b):
        return TensorDataset(
            torch.stack([z[i : i + 20] for i in range(a, b - 20)]),
            torch.stack([z[i + 20 : i + 21] for i in range(a, b - 20)]),
        )

    net = nn.Sequential(nn.Linear(20, 24), nn.ReLU(), nn.Linear(24, 1))
    opt = torch.optim.Adam(net.parameters(), 0.003)
    tl = DataLoader(mk(0, 450), 32)
    vl = DataLoader(mk(475, 600), 32)
    hub = nn.SmoothL1Loss()

    def step(b):
        opt.zero_grad()
        loss = hub(net(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        total = sum(((net(x) - y).abs() * sd).sum().item() for x, y in vl)
        return {"val_mae_units": total / len(vl.dataset)}

    return set_up(net, opt, tl, step, val_loader=vl, loss_fn=hub, evaluate=evaluate)


@sound
def views_against_the_batch():
    """A row is told from the other rows of its batch, with the diagonal masked: its loss depends on
    them."""
    seed(94)
    g = gen(5)
    pr = torch.randn(8, 16, generator=g)
    y = torch.randint(0, 8, (400,), generator=g)
    X = pr[y] * 0.7 + 0.6 * torch.randn(400, 16, generator=g)

    class Enc(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 12))

        def forward(self, x):
            return F.normalize(self.f(x), dim=1)

    m = Enc()
    opt = torch.optim.Adam(m.parameters(), 0.002)

    def coll(r):
        x = torch.stack(r)
        return {"a": x + 0.3 * torch.randn_like(x), "b": x + 0.3 * torch.randn_like(x)}

    tl = DataLoader(X[:320], 32, shuffle=True, collate_fn=coll, generator=gen(1), drop_last=True)

    def loss_of(model, b):
        z = torch.cat([model(b["a"]), model(b["b"])])
        n = len(z) // 2
        s = (z @ z.T / 0.3).masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
        return F.cross_entropy(s, (torch.arange(2 * n) + n) % (2 * n))

    step = plain_step(m, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        z = m(X)
        nearest = (z[320:] @ z[:320].T).argmax(1)
        return {"knn_acc": (y[:320][nearest] == y[320:]).float().mean().item()}

    return set_up(m, opt, tl, step, loss_of=loss_of, evaluate=evaluate)


@sound
def random_features_with_a_readout():
    """The hidden layer is random and stays so (declared frozen); only the readout learns, with
    weight decay."""
    seed(121)
    net = nn.Sequential(nn.Linear(8, 256), nn.Tanh(), nn.Linear(256, 1))
    net[0].requires_grad_(False)
    opt = torch.optim.SGD(net[2].parameters(), 0.015, momentum=0.9, weight_decay=0.0001)
    tl = DataLoader(TensorDataset(*table(500, gen(1))), 25, shuffle=True, generator=gen(2))
    vl = DataLoader(TensorDataset(*table(110, gen(3))), 25)
    mse = nn.MSELoss()

    def step(b):
        opt.zero_grad()
        loss = mse(net(b[0]), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        return {"val_mse": sum(mse(net(x), y).item() * len(x) for x, y in vl) / 110}

    return set_up(
        net,
        opt,
        tl,
        step,
        val_loader=vl,
        loss_fn=mse,
        evaluate=evaluate,
        declared={"frozen": ["0.weight", "0.bias"]},
    )
