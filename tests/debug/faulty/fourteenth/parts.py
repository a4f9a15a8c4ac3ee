"""Faults of parts that get no gradient or no rate: frozen, generated, differentiated, scheduled."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.faulty.fourteenth.kit import (
    columns,
    curve,
    gen,
    loader,
    mean_eval,
    mlp,
    pairloss,
    plain_step,
    seed,
    set_up,
    sq,
)
from tests.debug.faulty.kit import pair


@pair("frozen-params-drift")
def frozen_trunk_bn_drifts(bug):
    """requires_grad is off in the shared trunk, but model.train() leaves its batch-norms updating:
    the old head breaks. After 400 steps old_mse is 2.1644 instead of 0.4837."""
    seed(39)
    old, new = curve(400, 7), curve(400, 8)
    new = (new[0] * 2 + 1.5, torch.sin(new[0][:, :2].sum(1, keepdim=True) * 2))
    ntr = (new[0][:300], new[1][:300])

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(6, 48), nn.BatchNorm1d(48), nn.ReLU())
            self.old = nn.Linear(48, 1)
            self.new = mlp(48, 32, 1)

        def forward(self, x, head="new"):
            return getattr(self, head)(self.trunk(x))

        def train(self, mode=True):
            super().train(mode)
            if not bug and not self.trunk[0].weight.requires_grad:
                self.trunk.eval()
                self.old.eval()
            return self

    model = Two()
    pre = torch.optim.Adam([*model.trunk.parameters(), *model.old.parameters()], 1e-2)
    for _ in range(200):
        i = torch.randint(0, 300, (64,))
        pre.zero_grad()
        F.mse_loss(model(old[0][i], "old"), old[1][i]).backward()
        pre.step()
    frozen = [n for n, p in model.named_parameters() if not n.startswith("new")]
    for n, p in model.named_parameters():
        p.requires_grad_(n.startswith("new"))
    tr, va = loader(*ntr, s=39), loader(new[0][300:], new[1][300:], bs=40, shuffle=False)
    vo = loader(old[0][300:], old[1][300:], bs=40, shuffle=False)
    opt = torch.optim.Adam(model.new.parameters(), 3e-3)
    loss_fn = nn.MSELoss()
    step = plain_step(model, opt, pairloss(loss_fn))
    en, eo = (
        mean_eval(model, va, {"new_mse": sq}),
        mean_eval(model, vo, {"old_mse": lambda m, b: (m(b[0], "old") - b[1]) ** 2}),
    )
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        evaluate=lambda: {**en(), **eo()},
        declared={"frozen": frozen},
    )


@pair("bad-start")
def lora_both_factors_zero(bug):
    """A and B are zero at the start, so each one's gradient is zero through the other for ever.
    After 400 steps mse is 10.6427 instead of 0.2002."""
    seed(40)
    base = mlp(6, 48, 48, 1)
    X, Y = curve(500, 9)
    po = torch.optim.Adam(base.parameters(), 1e-2)
    for _ in range(150):
        i = torch.randint(0, 500, (64,))
        po.zero_grad()
        F.mse_loss(base(X[i]), Y[i]).backward()
        po.step()

    class LoRA(nn.Module):
        def __init__(self, lin, r=4):
            super().__init__()
            self.lin = lin.requires_grad_(False)
            self.A = nn.Parameter(torch.zeros(r, lin.in_features))
            self.B = nn.Parameter(torch.zeros(lin.out_features, r))
            if not bug:
                nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))

        def forward(self, x):
            return self.lin(x) + x @ self.A.T @ self.B.T * 2

    base.zero_grad()
    model = nn.Sequential(LoRA(base[0]), nn.ReLU(), LoRA(base[2]), nn.ReLU(), LoRA(base[4]))

    def f(p):
        return (p[0], -p[1] + 0.5 * p[0][:, :1])

    tr, va = loader(*f(curve(300, 10)), s=40), loader(*f(curve(150, 11)), bs=64, shuffle=False)
    opt = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], 1e-2, weight_decay=0.01
    )
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
        declared={"frozen": [n for n, p in model.named_parameters() if not p.requires_grad]},
    )


@pair("evaluate-changes-model")
def hypernet_writes_data(bug):
    """The generated weights are assigned to lin.weight.data; the hypernetwork itself gets no
    gradient. After 400 steps mse is 2.0402 instead of 0.0897."""
    seed(41)
    A = torch.randn(8, 4)
    t = torch.randint(0, 8, (1600,))
    x = torch.randn(1600, 16, 4)
    y = (x * A[t][:, None]).sum(-1, keepdim=True).tanh() * 2

    class Hyper(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(8, 8)
            self.hyper = nn.Linear(8, 8 * 4)
            self.lin = nn.Linear(4, 8)
            self.out = nn.Linear(8, 1)

        def forward(self, task, x):
            w = self.hyper(self.emb(task)).view(8, 4)
            if bug:
                self.lin.weight.data = w.data
                return self.out(torch.tanh(self.lin(x)))
            return self.out(torch.tanh(F.linear(x, w, self.lin.bias)))

    model = Hyper()
    if not bug:
        del model.lin.weight
        model.lin.register_parameter("weight", None)
    tr, va = (
        columns(bs=1, s=41, task=t[:1400], x=x[:1400], y=y[:1400]),
        columns(bs=1, shuffle=False, task=t[1400:], x=x[1400:], y=y[1400:]),
    )

    def loss_of(m, b):
        return F.mse_loss(m(b["task"], b["x"][0]), b["y"][0])

    opt = torch.optim.Adam(model.parameters(), 5e-3)
    step = plain_step(model, opt, loss_of)
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_of=loss_of,
        evaluate=mean_eval(
            model, va, {"mse": lambda m, b: (m(b["task"], b["x"][0]) - b["y"][0]) ** 2}
        ),
    )


@pair("loss-without-gradient")
def pinn_residual_without_graph(bug):
    """A physics-informed net for u' = 3 cos 3t, u(0) = 0: u' comes from autograd.grad without
    create_graph, a constant to backward. After 400 steps max_error is 1.2039 instead of 0.0126."""
    seed(42)
    tr = DataLoader(torch.rand(512, 1) * 2, 32, shuffle=True, generator=gen(42))
    grid = torch.linspace(0, 2, 101)[:, None]
    model = mlp(1, 24, 24, 1, act=nn.Tanh)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    t0 = torch.zeros(1, 1)

    def loss_of(m, t):
        t = t.clone().requires_grad_(True)
        u = m(t)
        du = torch.autograd.grad(u.sum(), t, create_graph=not bug, retain_graph=True)[0]
        return ((du - 3 * torch.cos(3 * t)) ** 2).mean() + 5 * m(t0).pow(2).mean()

    step = plain_step(model, opt, loss_of)

    def evaluate():
        with torch.no_grad():
            return {
                "max_error": (model(grid) - torch.sin(3 * grid)).abs().max().item(),
                "mse": F.mse_loss(model(grid), torch.sin(3 * grid)).item(),
            }

    return set_up(model, opt, tr, step, loss_of=loss_of, evaluate=evaluate)


@pair("lr-too-small")
def lambdalr_absolute_rate(bug):
    """The lambda returns 5e-3 * decay: multiplied by the base rate 5e-3 the rate is 2.5e-5. After
    400 steps mse is 0.4138 instead of 0.0237."""
    seed(43)
    S = 24
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, S), torch.linspace(-1, 1, S), indexing="ij")
    pic = torch.sin(3 * xx) * torch.cos(4 * yy) + (xx**2 + yy**2 < 0.3)
    P, C = torch.stack([xx, yy], -1).view(-1, 2), pic.view(-1, 1)
    k = torch.rand(S * S) < 0.8
    tr, va = loader(P[k], C[k], bs=64, s=43), loader(P[~k], C[~k], bs=50, shuffle=False)

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("B", torch.randn(2, 16) * 2)
            self.f = mlp(32, 48, 1)

        def forward(self, p):
            a = p @ self.B
            return self.f(torch.cat([a.sin(), a.cos()], -1))

    model = Field()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda n: 5e-3 * 0.997**n if bug else 0.997**n)
    loss_fn = nn.MSELoss()
    step = plain_step(model, opt, pairloss(loss_fn), schedule=sched)
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        scheduler=sched,
        evaluate=mean_eval(model, va, {"mse": sq}),
        declared={"scheduler_unit": "batch"},
    )


@pair("scheduler-misplaced")
def scheduler_of_former_optimizer(bug):
    """On unfreezing, the optimizer is built anew; the cosine schedule goes on turning the old one's
    rate. After 400 steps mse is 1.1482 instead of 0.6241."""
    seed(44)
    model = mlp(6, 64, 64, 1)
    X, Y = curve(600, 12, noise=0.4)
    loss_fn = nn.MSELoss()

    def mk(o):
        return torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=400, eta_min=1e-4)

    head = torch.optim.SGD(model[4].parameters(), 0.12, momentum=0.9)
    sched = mk(head)
    model[:4].requires_grad_(False)
    for _ in range(5):
        i = torch.randint(0, 500, (32,))
        head.zero_grad()
        loss_fn(model(X[i]), Y[i]).backward()
        head.step()  # phase 1
    model.requires_grad_(True)
    opt = torch.optim.SGD(model.parameters(), 0.12, momentum=0.9)
    if not bug:
        sched = mk(opt)
    tr, va = (
        loader(X[:500], Y[:500], bs=8, s=44),
        loader(*curve(300, 13, noise=0.4), bs=64, shuffle=False),
    )
    base = plain_step(
        model,
        opt,
        pairloss(loss_fn),
        clip=lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
    )

    def step(b):
        loss = base(b)
        if sched.last_epoch < 400:
            sched.step()
        return loss

    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        scheduler=sched,
        evaluate=mean_eval(model, va, {"mse": sq}),
        declared={"scheduler_unit": "batch", "max_grad_norm": 1.0},
    )
