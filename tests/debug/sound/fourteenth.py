"""Ten of the fourteenth set, of unusual make, by an author who had not read the doctor."""

import copy
import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.fourteenth.kit import (
    acc,
    blobs,
    columns,
    curve,
    digits,
    energy,
    gen,
    knn,
    loader,
    mean_eval,
    mlp,
    pairloss,
    plain_step,
    ring,
    seed,
    set_up,
    sq,
    views,
)
from tests.debug.sound.programs import sound


@sound
def autoencoder_of_noise_and_holes():
    """Input is the target plus noise and holes; the bottleneck is wider than the input on
    purpose."""
    seed(101)
    x, v = digits(512, 11), digits(128, 12)
    g = gen(1)

    def hurt(z, g=None):
        return (z + 0.3 * torch.randn(z.shape, generator=g)) * (
            torch.rand(z.shape, generator=g) > 0.3
        )

    def collate(rows):
        clean = torch.stack(rows)
        return {"noisy": hurt(clean), "clean": clean}

    tr = DataLoader(x, 32, shuffle=True, generator=gen(101), collate_fn=collate)
    va = columns(bs=50, shuffle=False, noisy=hurt(v, g), clean=v)
    model = mlp(64, 96, 64)
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_of(m, b):
        return F.mse_loss(m(b["noisy"]), b["clean"])

    step = plain_step(model, opt, loss_of)
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_of=loss_of,
        evaluate=mean_eval(
            model, va, {"mse": lambda m, b: ((m(b["noisy"]) - b["clean"]) ** 2).mean(1)}
        ),
    )


@sound
def echo_state_reservoir():
    """The recurrent weights are random and stay so (declared frozen); only the read-out is
    trained."""
    seed(102)
    t = torch.arange(1200) * 0.1
    s = (t.sin() + (1.7 * t).sin()) / 2
    w = s.unfold(0, 21, 2)[:, :, None]
    n = len(w)
    k = int(n * 0.7)
    tr, va = (
        loader(w[:k, :20], w[:k, 20], s=102),
        loader(w[k + 11 :, :20], w[k + 11 :, 20], bs=50, shuffle=False),
    )

    class ESN(nn.Module):
        def __init__(self):
            super().__init__()
            self.res = nn.RNN(1, 40, batch_first=True)
            self.read = nn.Linear(40, 1)
            with torch.no_grad():
                self.res.weight_hh_l0.mul_(
                    0.9 / torch.linalg.eigvals(self.res.weight_hh_l0).abs().max()
                )
            self.res.requires_grad_(False)

        def forward(self, x):
            return self.read(self.res(x)[0][:, -1])

    model = ESN()
    opt = torch.optim.Adam(model.read.parameters(), 1e-2)
    loss_fn = nn.MSELoss()
    step = plain_step(model, opt, pairloss(loss_fn))
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        evaluate=mean_eval(model, va, {"mse": sq}),
        declared={"frozen": [n for n, p in model.named_parameters() if n.startswith("res")]},
    )


@sound
def reptile_meta_learning():
    """No backward into the model: its gradient is written by hand as old minus adapted weights of a
    copy."""
    seed(103)
    amp, ph = torch.rand(300) * 4 + 1, torch.rand(300) * 3.14
    X = torch.rand(300, 20, 1) * 10 - 5
    Y = amp[:, None, None] * torch.sin(X + ph[:, None, None])
    tr, va = (
        columns(bs=1, s=103, x=X[:270], y=Y[:270]),
        columns(bs=1, shuffle=False, x=X[270:], y=Y[270:]),
    )
    model = mlp(1, 32, 32, 1, act=nn.Tanh)
    opt = torch.optim.SGD(model.parameters(), 0.1)

    def adapt(x, y, k):
        fast = copy.deepcopy(model)
        o = torch.optim.SGD(fast.parameters(), 0.02)
        first = None
        for _ in range(k):
            o.zero_grad()
            loss = F.mse_loss(fast(x), y)
            loss.backward()
            o.step()
            first = loss.item() if first is None else first
        return fast, first

    def step(b):
        fast, loss = adapt(b["x"][0], b["y"][0], 4)
        opt.zero_grad()
        for p, q in zip(model.parameters(), fast.parameters(), strict=True):
            p.grad = p.detach() - q.detach()
        opt.step()
        return loss

    def evaluate():
        tot = 0.0
        for b in va:
            x, y = b["x"][0], b["y"][0]
            fast, _ = adapt(x[:10], y[:10], 8)
            with torch.no_grad():
                tot += F.mse_loss(fast(x[10:]), y[10:]).item()
        return {"query_mse": tot / len(va)}

    return set_up(model, opt, tr, step, val_loader=va, evaluate=evaluate)


@sound
def wgan_weight_clipping():
    """Critic weights are clamped after every step, three critic steps a generator step, losses of
    either sign."""
    seed(104)
    tr = loader(ring(2000, 21) + 1, bs=64, s=104, drop_last=True)
    real = ring(400, 22) + 1
    G, C = mlp(2, 32, 2), mlp(2, 32, 32, 1)
    model = nn.ModuleDict({"G": G, "C": C})
    og, oc = torch.optim.RMSprop(G.parameters(), 1e-3), torch.optim.RMSprop(C.parameters(), 1e-3)

    def step(b):
        x = b[0]
        for _ in range(3):
            oc.zero_grad()
            loss = C(G(torch.randn(64, 2)).detach()).mean() - C(x).mean()
            loss.backward()
            oc.step()
            with torch.no_grad():
                for p in C.parameters():
                    p.clamp_(-0.1, 0.1)
        C.requires_grad_(False)
        og.zero_grad()
        (-C(G(torch.randn(64, 2))).mean()).backward()
        og.step()
        C.requires_grad_(True)
        return loss.item()

    def evaluate():
        with torch.no_grad():
            return {"energy_distance": energy(G(torch.randn(400, 2, generator=gen(5))), real)}

    return set_up(model, [og, oc], tr, step, evaluate=evaluate)


@sound
def climbs_before_it_steps():
    """SAM: climb first, take the gradient there, come back, then step."""
    seed(105)
    tr, va = loader(*blobs(500, 31), s=105), loader(*blobs(200, 32), bs=64, shuffle=False)
    model = mlp(10, 32, 6)
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()

    def step(b):
        model.train()
        opt.zero_grad()
        loss = loss_fn(model(b[0]), b[1])
        loss.backward()
        ps = list(model.parameters())
        with torch.no_grad():
            n = torch.stack([p.grad.norm() for p in ps]).norm() + 1e-12
            es = [p.grad * (0.05 / n) for p in ps]
            for p, e in zip(ps, es, strict=True):
                p.add_(e)
        opt.zero_grad()
        loss_fn(model(b[0]), b[1]).backward()
        with torch.no_grad():
            for p, e in zip(ps, es, strict=True):
                p.sub_(e)
        opt.step()
        return loss.item()

    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        num_classes=6,
        evaluate=mean_eval(model, va, {"acc": acc}),
    )


@sound
def cyclic_rate_with_swa():
    """The rate goes up and down every 20 batches; what is evaluated is the average of the weights
    at its lows, with its batch-norm re-estimated."""
    seed(106)
    X, Y = blobs(480, 33)
    tr, va = loader(X, Y, s=106), loader(*blobs(200, 34), bs=64, shuffle=False)
    model = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 6))
    swa = torch.optim.swa_utils.AveragedModel(model)
    opt = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    sched = torch.optim.lr_scheduler.CyclicLR(
        opt, 0.005, 0.1, step_size_up=10, cycle_momentum=False
    )
    loss_fn = nn.CrossEntropyLoss()
    base = plain_step(model, opt, pairloss(loss_fn))
    k = {"n": 0}

    def step(b):
        loss = base(b)
        sched.step()
        k["n"] += 1
        if k["n"] % 20 == 0:
            swa.update_parameters(model)
        return loss

    def evaluate():
        m = copy.deepcopy(swa) if k["n"] >= 20 else copy.deepcopy(model)
        torch.optim.swa_utils.update_bn(DataLoader(TensorDataset(X), 96), m)
        return mean_eval(m, va, {"acc": acc})()

    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        num_classes=6,
        scheduler=sched,
        evaluate=evaluate,
        declared={"scheduler_unit": "batch"},
    )


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return -0.3 * g


@sound
def reversed_domain_head():
    """A gradient reversal: the trunk is meant to make the domain head worse, whose loss stays near
    ln 2."""
    seed(107)
    xs, ys = blobs(400, 35)
    xt, yt = blobs(400, 36)
    R = torch.linalg.qr(torch.randn(10, 10))[0] * 0.2 + torch.eye(10)
    xt = xt @ R + 0.5
    tr, va = (
        columns(s=107, src=xs, y=ys, tgt=xt),
        columns(bs=64, shuffle=False, src=xs[:200], y=yt[:200], tgt=xt[:200]),
    )

    class Dann(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
            self.c = nn.Linear(32, 6)
            self.d = mlp(32, 16, 1)

        def forward(self, x):
            h = self.f(x)
            return self.c(h), self.d(Reverse.apply(h))[:, 0]

    def loss_of(m, b):
        c, d1 = m(b["src"])
        _, d2 = m(b["tgt"])
        bce = F.binary_cross_entropy_with_logits
        return F.cross_entropy(c, b["y"]) + 0.5 * (
            bce(d1, torch.ones_like(d1)) + bce(d2, torch.zeros_like(d2))
        )

    model = Dann()
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    step = plain_step(model, opt, loss_of)
    return set_up(
        model,
        opt,
        tr,
        step,
        loss_of=loss_of,
        evaluate=mean_eval(
            model, va, {"target_acc": lambda m, b: m(b["tgt"])[0].argmax(1) == b["y"]}
        ),
    )


@sound
def byol_ema_teacher():
    """The target network lives outside the model, has no gradient and follows slowly; there are no
    negatives."""
    seed(108)
    X, y = views(600, 11)
    Q, qy = views(200, 12)

    def aug(x):
        return torch.cat([x[:, :8] + torch.randn(len(x), 8) * 0.4, torch.randn(len(x), 12) * 2], 1)

    def collate(rows):
        x = torch.stack(rows)
        return {"v1": aug(x), "v2": aug(x)}

    tr = DataLoader(X, 48, shuffle=True, generator=gen(108), collate_fn=collate)
    model = nn.ModuleDict(
        {
            "enc": nn.Sequential(
                nn.Linear(20, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 16)
            ),
            "pred": nn.Sequential(
                nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16)
            ),
        }
    )
    target = copy.deepcopy(model["enc"]).requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_of(m, b):
        with torch.no_grad():
            t1, t2 = target(b["v1"]), target(b["v2"])

        def p(v):
            return m["pred"](m["enc"](v))

        return (
            2
            - F.cosine_similarity(p(b["v1"]), t2).mean()
            - F.cosine_similarity(p(b["v2"]), t1).mean()
        )

    base = plain_step(model, opt, loss_of)

    def step(b):
        loss = base(b)
        with torch.no_grad():
            for t, p in zip(target.parameters(), model["enc"].parameters(), strict=True):
                t.lerp_(p, 0.02)
        return loss

    def evaluate():
        model.eval()
        with torch.no_grad():
            r = {"knn_acc": knn(model["enc"](X), y, model["enc"](Q), qy)}
        model.train()
        return r

    return set_up(model, opt, tr, step, loss_of=loss_of, evaluate=evaluate)


@sound
def dropout_kept_on_for_spread():
    """Dropout stays on in evaluation by design: 20 passes are averaged for the mean and the
    spread."""
    seed(109)
    tr, va = loader(*curve(400, 41), s=109), loader(*curve(120, 42), bs=50, shuffle=False)
    model = nn.Sequential(
        nn.Linear(6, 64),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(64, 1),
    )
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.MSELoss()
    step = plain_step(model, opt, pairloss(loss_fn))

    def evaluate():
        was = model.training
        model.eval()
        for layer in model:
            layer.train(isinstance(layer, nn.Dropout))
        se = sd = n = 0
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            for x, y in va:
                p = torch.stack([model(x) for _ in range(20)])
                se += ((p.mean(0) - y) ** 2).sum().item()
                sd += p.std(0).sum().item()
                n += len(x)
        model.train(was)
        return {"mse": se / n, "mean_std": sd / n}

    return set_up(model, opt, tr, step, val_loader=va, loss_fn=loss_fn, evaluate=evaluate)


@sound
def tied_lm_ragged():
    """Output weights are the embedding itself; rows are ragged, padded with 0, whose positions are
    ignored."""
    seed(110)
    V = 14

    def rows(n):
        out = []
        for _ in range(n):
            k, x, r = random.randint(3, 11), random.randint(1, V - 1), []
            for _ in range(k):
                r.append(x)
                x = (x * 2 + (random.random() < 0.2)) % (V - 1) + 1
            out.append(torch.tensor(r))
        return out

    def collate(b):
        p = nn.utils.rnn.pad_sequence(b, batch_first=True)
        y = p[:, 1:].clone()
        return {"x": p[:, :-1], "y": y}

    tr = DataLoader(rows(400), 16, shuffle=True, generator=gen(110), collate_fn=collate)
    va = DataLoader(rows(100), 16, collate_fn=collate)

    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(V, 24)
            self.r = nn.GRU(24, 24, batch_first=True)
            self.o = nn.Linear(24, V)
            self.o.weight = self.e.weight
            nn.init.normal_(self.e.weight, 0, 0.2)

        def forward(self, x):
            return self.o(self.r(self.e(x))[0])

    def nll(m, b, r):
        return F.cross_entropy(m(b["x"]).transpose(1, 2), b["y"], ignore_index=0, reduction=r)

    def loss_of(m, b):
        return nll(m, b, "mean")

    model = LM()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    step = plain_step(model, opt, loss_of)
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_of=loss_of,
        evaluate=mean_eval(model, va, {"nll": lambda m, b: nll(m, b, "none")[b["y"] != 0]}),
    )
