"""Ten of the thirteenth set, of unusual make, by an author who had not read the doctor."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.thirteenth import tokens
from tests.debug.faulty.thirteenth.kit import (
    Block,
    Columns,
    blobs,
    evaluating,
    gen,
    loader,
    mlp,
    plain,
    save_load,
    set_up,
    sup_step,
)
from tests.debug.sound.programs import sound


@sound
def ttur_gan():
    """GAN with two rates (D's 4 times G's), one-sided label smoothing, D not optimised in G's step
    (requires_grad off meanwhile)."""
    torch.manual_seed(0)
    G, D = mlp(4, 32, 2), mlp(2, 32, 1)
    model = nn.ModuleDict({"G": G, "D": D})
    og, od = (
        torch.optim.Adam(G.parameters(), 5e-4, (0.5, 0.9)),
        torch.optim.Adam(D.parameters(), 2e-3, (0.5, 0.9)),
    )
    g = gen(5)

    def real(n, s):
        return torch.tensor([1.0, -1.0]) + 0.4 * torch.randn(n, 2, generator=gen(s))

    tr = loader((real(640, 1),), 64, 1)
    va = loader((real(200, 2),), 64, shuffle=False)
    bce = F.binary_cross_entropy_with_logits

    def step(b):
        x = b[0]
        model.train()
        f = G(torch.randn(len(x), 4, generator=g))
        r, k = D(x), D(f.detach())
        ld = bce(r, torch.full_like(r, 0.9)) + bce(k, torch.zeros_like(k))
        od.zero_grad()
        ld.backward()
        od.step()
        D.requires_grad_(False)
        k = D(f)
        lg = bce(k, torch.ones_like(k))
        og.zero_grad()
        lg.backward()
        og.step()
        D.requires_grad_(True)
        return ld.item()

    def evaluate():
        with evaluating(model):
            f = G(torch.randn(400, 4, generator=gen(8)))
            x = torch.cat([b[0] for b in va])
            return {"mean_gap": (f.mean(0) - x.mean(0)).norm().item()}

    return set_up(model, [og, od], tr, step, val_loader=va, evaluate=evaluate)


@sound
def nll_negative():
    """Heteroscedastic regression: the Gaussian NLL goes far below zero, as it should with small
    noise."""
    torch.manual_seed(0)
    w = torch.randn(5, generator=gen(9))

    def data(n, s):
        g = gen(s)
        x = torch.rand(n, 5, generator=g)
        return x, (x @ w + (0.01 + 0.05 * x[:, 0]) * torch.randn(n, generator=g))[:, None]

    def crit(o, y):
        m, lv = o.chunk(2, 1)
        return 0.5 * (lv + (y - m) ** 2 / lv.exp()).mean()

    model = mlp(5, 32, 2)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    tr = loader(data(500, 1), 25, 1)
    va = loader(data(130, 2), 50, shuffle=False)
    base = sup_step(model, opt, crit)

    def evaluate():
        t = n = 0
        with evaluating(model):
            for x, y in va:
                t += crit(model(x), y).item() * len(y)
                n += len(y)
        return {"val_nll": t / n}

    return set_up(model, opt, tr, base, loss_fn=crit, val_loader=va, evaluate=evaluate)


@sound
def simsiam():
    """SimSiam: no negatives, stop-gradient on the target branch, loss between -1 and 0, collapse
    checked in evaluate."""
    torch.manual_seed(0)
    f = mlp(12, 48, 16, bn=True)
    f.add_module("bn", nn.BatchNorm1d(16, affine=False))
    h = mlp(16, 8, 16, bn=True)
    model = nn.ModuleDict({"encoder": f, "predictor": h})
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    g = gen(4)
    tr = loader((blobs(512, 12, 8, 1)[0],), 32, 1)
    va = loader((blobs(160, 12, 8, 2)[0],), 40, shuffle=False)

    def loss_of(m, b):
        x = b[0]
        z = [m["encoder"](x + 0.4 * torch.randn(x.shape, generator=g)) for _ in (0, 1)]
        return (
            -sum(
                F.cosine_similarity(m["predictor"](z[i]), z[1 - i].detach(), dim=1).mean()
                for i in (0, 1)
            )
            / 2
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
            z = F.normalize(torch.cat([f(b[0]) for b in va]), dim=1)
            return {"embedding_std_x_sqrt_d": z.std(0).mean().item() * 4}

    return set_up(model, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate)


@sound
def tied_lm():
    """LM with input and output embedding tied (one tensor, two names), -100 on the prompt part of
    the labels: most positions give no loss."""
    torch.manual_seed(0)
    V, T, d = 14, 12, 32

    def data(n, s):
        g = gen(s)
        a = torch.randint(12, (n, 6), generator=g)
        ids = torch.cat([a, torch.full((n, 1), 12), a.sort(1)[0][:, : T - 6]], 1)[:, : T + 1]
        lab = ids.clone()
        lab[:, :7] = -100
        return Columns(input_ids=ids, labels=lab)

    class LM(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = nn.Embedding(V, d)
            nn.init.normal_(s.e.weight, 0, 0.2)
            s.p = nn.Parameter(0.1 * torch.randn(T, d))
            s.b = Block(d)
            s.o = nn.Linear(d, V, bias=False)
            s.o.weight = s.e.weight

        def forward(s, x):
            n = x.shape[1]
            return s.o(
                s.b(s.e(x) + s.p[:n], attn_mask=torch.triu(torch.ones(n, n, dtype=torch.bool), 1))
            )

    model = LM()
    opt = torch.optim.AdamW(model.parameters(), 3e-3)
    tr = loader(data(320, 1), 10, 1)
    va = loader(data(100, 2), 25, shuffle=False)

    def loss_of(m, b):
        return F.cross_entropy(
            m(b["input_ids"][:, :-1]).flatten(0, 1), b["labels"][:, 1:].flatten(), ignore_index=-100
        )

    def step(b):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        ok = n = 0
        with evaluating(model):
            for b in va:
                y = b["labels"][:, 1:]
                k = y != -100
                ok += ((model(b["input_ids"][:, :-1]).argmax(-1) == y) & k).sum().item()
                n += k.sum().item()
        return {"answer_token_acc": ok / n}

    return set_up(
        model, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate, num_classes=V
    )


@sound
def restarted_rate():
    """SGDR: cosine warm restarts per batch, so that the rate jumps up and the loss with it."""
    torch.manual_seed(0)
    m = mlp(10, 32, 5)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9, weight_decay=1e-2)
    ce = nn.CrossEntropyLoss()
    sch = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 10, 2)
    tr = loader(blobs(400, 10, 5, 1), 25, 1)
    va = loader(blobs(130, 10, 5, 2), 50, shuffle=False)
    save, load = save_load(m, opt, sched=sch)
    return plain(
        m,
        opt,
        ce,
        tr,
        va,
        sup_step(m, opt, ce, sch.step),
        scheduler=sch,
        declared={"scheduler_unit": "batch"},
        save=save,
        load=load,
        num_classes=5,
    )


@sound
def stateful_unshuffled():
    """Contiguous stream, shuffle=False on purpose, hidden state carried and detached; reset at
    chunk 0."""
    s = tokens.chunks_shuffled(False)
    s["declared"] = {"max_grad_norm": 1.0, "stateful": True, "shuffle": False}
    return s


@sound
def dropout_averaged():
    """MC dropout: dropout stays on in evaluation on purpose, 20 seeded passes averaged; BatchNorm
    none."""
    torch.manual_seed(0)
    m = mlp(10, 48, 4, drop=0.3)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    ce = nn.CrossEntropyLoss()
    tr = loader(blobs(400, 10, 4, 1), 20, 1)
    va = loader(blobs(130, 10, 4, 2), 50, shuffle=False)
    step = sup_step(m, opt, ce)

    def evaluate():
        ok = n = 0
        loss = 0.0
        with evaluating(m), torch.random.fork_rng([]):
            torch.manual_seed(1)
            [d.train() for d in m.modules() if isinstance(d, nn.Dropout)]
            for x, y in va:
                p = torch.stack([m(x).softmax(1) for _ in range(20)]).mean(0)
                ok += (p.argmax(1) == y).sum().item()
                loss += F.nll_loss(p.log(), y, reduction="sum").item()
                n += len(y)
        return {"mc_acc": ok / n, "mc_nll": loss / n}

    return {
        **plain(m, opt, ce, tr, va, step, num_classes=4, declared={"mc_dropout": 20}),
        "evaluate": evaluate,
    }


@sound
def one_batch_lbfgs():
    """Logistic regression by LBFGS with a closure, one full batch as the only batch of the
    loader."""
    torch.manual_seed(0)
    m = nn.Linear(8, 3)
    opt = torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=4)
    ce = nn.CrossEntropyLoss()
    tr = loader(blobs(200, 8, 3, 1, 2.0), 200, shuffle=False)
    va = loader(blobs(130, 8, 3, 2, 2.0), 50, shuffle=False)

    def step(b):
        m.train()

        def closure():
            opt.zero_grad()
            loss = ce(m(b[0]), b[1]) + 1e-3 * m.weight.pow(2).sum()
            loss.backward()
            return loss

        return opt.step(closure).item()

    return plain(m, opt, ce, tr, va, step, num_classes=3)


@sound
def blocks_skipped():
    """Residual net with stochastic depth: in some steps a whole block is skipped and gets no
    gradient."""
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.i = nn.Linear(10, 32)
            s.b = nn.ModuleList(mlp(32, 32, 32) for _ in range(4))
            s.o = nn.Linear(32, 5)
            s.keep = 0.7
            s.g = gen(3)

        def forward(s, x):
            x = s.i(x)
            for b in s.b:
                if not s.training:
                    x = x + s.keep * b(x)
                elif torch.rand(1, generator=s.g) < s.keep:
                    x = x + b(x)
            return s.o(x)

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 2e-3)
    ce = nn.CrossEntropyLoss()
    return plain(
        m,
        opt,
        ce,
        loader(blobs(400, 10, 5, 1), 20, 1),
        loader(blobs(130, 10, 5, 2), 50, shuffle=False),
        sup_step(m, opt, ce),
        num_classes=5,
    )


@sound
def dann():
    """Domain adaptation with gradient reversal: the encoder climbs the domain loss on purpose."""
    torch.manual_seed(0)

    class Rev(torch.autograd.Function):
        @staticmethod
        def forward(c, x):
            return x.view_as(x)

        @staticmethod
        def backward(c, g):
            return -0.3 * g

    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.f, s.c, s.d = (
                nn.Sequential(mlp(10, 32, 16), nn.ReLU()),
                nn.Linear(16, 4),
                mlp(16, 16, 2),
            )

        def forward(s, x):
            z = s.f(x)
            return s.c(z), s.d(Rev.apply(z))

    xs, ys = blobs(400, 10, 4, 1)
    xt, _ = blobs(400, 10, 4, 2, shift=0.5)
    m = Net()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tr = loader(Columns(source=xs, label=ys, target=xt), 20, 1)
    va = loader(blobs(130, 10, 4, 3, shift=0.5), 50, shuffle=False)

    def loss_of(m, b):
        n = len(b["source"])
        c, d = m(torch.cat([b["source"], b["target"]]))
        return F.cross_entropy(c[:n], b["label"]) + F.cross_entropy(
            d, torch.arange(2).repeat_interleave(n)
        )

    def step(b):
        m.train()
        opt.zero_grad()
        loss = loss_of(m, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        ok = n = 0
        with evaluating(m):
            for x, y in va:
                ok += (m(x)[0].argmax(1) == y).sum().item()
                n += len(y)
        return {"target_acc": ok / n}

    return set_up(
        m, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate, num_classes=4
    )
