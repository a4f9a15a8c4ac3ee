"""Gradients that are cut and signs that are turned: each relation is tried on several dresses of a
fault, and on the sound programs that look like it."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from course.debug.relations import (
    derived,
    flows,
    handed,
    inverted,
    one_way,
    stepped_over,
)
from tests.debug.faulty.thirteenth.kit import Columns, gen, loader, mlp
from tests.debug.faulty.twelfth.kit import pack
from tests.debug.told import cases, said


def columns(bs=32, **parts):
    return DataLoader(Columns(**parts), bs, shuffle=True, generator=gen(0))


def adam(model):
    return torch.optim.Adam(model.parameters(), 3e-3)


@cases(
    faulty=["int64", "uint8", "method", "in evaluate"],
    sound=["bool", "minus", "last bit", "places", "of counts"],
)
def test_not_of_an_integer_flag_is_seen(kind, is_told):
    torch.manual_seed(0)
    x, done = torch.randn(256, 6, generator=gen(1)), torch.rand(256, generator=gen(2)) < 0.3
    if kind != "bool":
        done = done.to(torch.uint8 if kind == "uint8" else torch.long)
    if kind == "of counts":
        done = done * 3
    model = mlp(6, 16, 1)
    table = torch.tensor([1.0, 0.5, 0.0])

    def alive(flag):
        if kind in ("minus", "in evaluate"):
            return 1 - flag
        if kind == "last bit":
            return ~flag & 1
        if kind == "places":  # the last but one and the last but two
            return table[~flag]
        return torch.bitwise_not(flag) if kind == "method" else ~flag

    def loss_of(model, b):
        return (model(b["x"])[:, 0] - b["x"][:, 0] * alive(b["done"])).pow(2).mean()

    def evaluate():
        flag = ~done if kind == "in evaluate" else done
        with torch.no_grad():
            return {"mean": (model(x)[:, 0] * flag).mean().item()}

    made = pack(model, adam(model), columns(x=x, done=done), loss_of, evaluate=evaluate)
    assert bool(said(inverted.flags, made)) == is_told


class Wave(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        return self.f(x)


@cases(
    faulty=["residual", "with the function", "second", "penalty of rows", "absolute", "two leaves",
            "jacobian", "one of two"],
    sound=["with a graph", "jacobian with a graph", "attack", "attack by name", "weights of rows",
           "surrogate", "of a critic", "sampler", "target of another"],
)  # fmt: skip
def test_a_derivative_in_the_loss_has_a_graph(kind, is_told):
    torch.manual_seed(0)
    model, critic = Wave(), Wave().requires_grad_(kind != "of a critic")
    grad = torch.autograd.grad

    def loss_of(model, batch):
        x = batch[0].clone().requires_grad_()
        if kind == "two leaves":
            a, b = (c.detach().clone().requires_grad_() for c in x.split(1, 1))
            u = model(torch.cat([a, b], 1))
            da, db = grad(u.sum(), (a, b), retain_graph=True)
            return (da - db - 1).pow(2).mean() + u.pow(2).mean()
        u = model(x)
        if kind == "one of two":
            (du,) = grad(u.sum(), x, create_graph=True)
            (dw,) = grad(u.pow(2).sum(), x, retain_graph=True)
            return (du[:, 0] - dw[:, 1] - 1).pow(2).mean()
        if kind == "target of another":  # as in a gradient's own temporal difference
            later = (batch[0] + 0.1).requires_grad_()
            (du,) = grad(u.sum(), x, create_graph=True)
            (dw,) = grad(model(later).sum(), later)
            return (du - 1 - 0.9 * dw).pow(2).mean()
        if kind.startswith("jacobian"):
            total = lambda a: model(a).sum()  # noqa: E731
            du = torch.autograd.functional.jacobian(total, x, create_graph="graph" in kind)
        elif kind == "second":
            (du,) = grad(u.sum(), x, create_graph=True)
            (du,) = grad(du[:, 0].sum(), x, retain_graph=True)
        elif kind == "of a critic":
            (du,) = grad(critic(x).sum(), x)
        else:
            (du,) = grad(u.sum(), x, create_graph=kind == "with a graph", retain_graph=True)
        wave = torch.cos(3 * x[:, :1])
        if kind == "with the function":
            return (du[:, :1] + u - wave).pow(2).mean()
        if kind == "penalty of rows":
            return (u - wave).pow(2).mean() + (du.norm(dim=1) - 1).pow(2).mean()
        if kind == "absolute":
            return F.l1_loss(du[:, :1], wave) + u[:4].pow(2).mean()
        if kind.startswith("attack"):
            moved = x + 0.1 * du / du.norm()
            return ((model(x=moved) if "name" in kind else model(moved)) - wave).pow(2).mean()
        if kind == "sampler":
            below = x - 0.1 * du
            return u.mean() - model(below).mean() + u.pow(2).mean()
        if kind == "weights of rows":
            return ((u - wave).pow(2)[:, 0] / (1 + du.abs().sum(1))).mean()
        if kind == "surrogate":
            return (u - wave).pow(2).mean() - (du[:, :1] * u).mean()
        if kind == "of a critic":
            return (u - (batch[0][:, :1] + 0.1 * du[:, :1])).pow(2).mean()
        return (du[:, :1] - wave).pow(2).mean() + u[:4].pow(2).mean()

    x = torch.rand(256, 2, generator=gen(3))
    made = pack(model, adam(model), loader((x,), 32), loss_of)
    assert bool(said(derived.by_inputs, made)) == is_told


class Coded(nn.Module):
    """An autoencoder through the nearest of some codes."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.enc, self.dec = mlp(12, 24, 4), mlp(4, 24, 12)
        self.codes = nn.Embedding(16, 4)
        self.probe = nn.Linear(4, 12)

    def forward(self, x):
        z = self.enc(x)
        if self.kind == "rounded":
            q = (4 * z).round() / 4
        elif self.kind in ("signs", "signs through"):
            q = torch.where(z > 0, 1.0, -1.0)
        elif self.kind == "drawn":
            q = self.codes(torch.distributions.Categorical(logits=z).sample())
        else:
            q = self.codes(torch.cdist(z, self.codes.weight).argmin(1))
        near = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        if self.kind in ("straight through", "signs through", "cut after all"):
            q = z + (q - z).detach()
            q = q.detach() if self.kind == "cut after all" else q
        if self.kind == "probe":
            return self.dec(z), self.probe(z.detach()), near
        if self.kind == "decoded twice":
            return self.dec(q), self.dec(z), near
        if self.kind in ("compared outside", "taught by labels"):
            return self.dec(q), z, q
        self.near = near
        return (self.dec(q), near) if self.kind != "kept in the model" else self.dec(q)


@cases(
    faulty=["codes", "rounded", "signs", "compared outside", "kept in the model", "cut after all"],
    sound=["straight through", "signs through", "drawn", "probe", "decoded twice", "frozen",
           "taught by labels"],
)  # fmt: skip
def test_what_is_before_a_choice_learns_from_what_is_behind_it(kind, is_told):
    torch.manual_seed(0)
    x = torch.randn(256, 4, generator=gen(4)) @ torch.randn(4, 12, generator=gen(5))
    y = x[:, :4].sign()
    model = Coded("codes" if kind == "frozen" else kind)
    if kind == "frozen":
        model.enc.requires_grad_(False)

    def loss_of(model, batch):
        x, y = batch
        out = model(x)
        out = out if isinstance(out, tuple) else (out, model.near)
        if kind in ("compared outside", "taught by labels"):
            r, z, q = out
            near = F.mse_loss(q, z.detach())
            near = near + (
                F.mse_loss(z, y) if "labels" in kind else 0.25 * F.mse_loss(z, q.detach())
            )
            return F.mse_loss(r, x) + near
        *recon, near = out
        return sum(F.mse_loss(r, x) for r in recon) + near

    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 3e-3)
    made = pack(model, opt, loader((x, y), 32), loss_of)
    assert bool(said(stepped_over.choices, made)) == is_told


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.u, self.v = nn.Embedding(20, 8), nn.Embedding(20, 8)

    def forward(self, a, b):
        return (self.u(a) * self.v(b)).sum(-1)


@cases(
    faulty=["negatives up", "positives alone", "all down", "by cross-entropy"],
    sound=["negatives down", "ranked", "labels", "numbers", "rare"],
)
def test_scores_are_not_all_pulled_one_way(kind, is_told):
    torch.manual_seed(0)
    a = torch.randint(0, 20, (512,), generator=gen(7))
    b = (a + torch.randint(0, 2, (512,), generator=gen(8))) % 20
    y = (torch.rand(512, generator=gen(9)) < (0.02 if kind == "rare" else 0.5)).float()
    model = Pairs()

    def loss_of(model, batch):
        a, b, y = batch
        p = model(a, b)
        if kind in ("labels", "rare"):
            return F.binary_cross_entropy_with_logits(p, y)
        if kind == "numbers":
            return F.mse_loss(p, 30 + y)
        n = model(a[:, None].expand(-1, 4), torch.randint(0, 20, (len(a), 4)))
        if kind == "negatives up":
            return -(F.logsigmoid(p) + F.logsigmoid(n).sum(1)).mean()
        if kind == "positives alone":
            return -F.logsigmoid(p).mean() - F.logsigmoid(n).mean() * 0.2
        if kind == "all down":
            return F.softplus(p).mean() + F.relu(1 + n).mean()
        if kind == "by cross-entropy":
            every = torch.cat([p[:, None], n], 1)
            return F.binary_cross_entropy_with_logits(every, torch.ones_like(every))
        if kind == "ranked":
            return F.softplus(n - p[:, None]).mean()
        return -(F.logsigmoid(p) + F.logsigmoid(-n).sum(1)).mean()

    made = pack(model, adam(model), loader((a, b, y), 32), loss_of)
    assert bool(said(one_way.scores, made)) == is_told


class Vectors(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(20, 8)

    def forward(self, a):
        return self.e(a)


@cases(
    faulty=["negatives up", "positives alone", "cosines"],
    sound=["negatives down", "in batch", "one side cut", "spread", "margin"],
)
def test_vectors_are_not_all_pulled_together(kind, is_told):
    torch.manual_seed(0)
    a = torch.randint(0, 20, (512,), generator=gen(7))
    b = (a + torch.randint(0, 2, (512,), generator=gen(8))) % 20
    model = Vectors()

    def loss_of(model, batch):
        u, v = map(model, batch)
        s = u @ v.T
        if kind == "negatives up":
            return -F.logsigmoid(s).mean()
        if kind == "positives alone":
            return F.softplus(-(u * v).sum(1)).mean()
        if kind == "cosines":
            return (1 - F.cosine_similarity(u, v)).mean()
        if kind == "in batch":
            return F.cross_entropy(s, torch.arange(len(s)))
        if kind == "one side cut":
            return (1 - F.cosine_similarity(u, v.detach())).mean()
        if kind == "spread":
            spread = F.relu(1 - torch.cat([u, v]).std(0)).mean()
            return (1 - F.cosine_similarity(u, v)).mean() + spread
        if kind == "margin":
            return F.relu(1 - s.diag() + s.roll(1, 0).diag()).mean()
        return -(F.logsigmoid(s.diag()) + F.logsigmoid(-s).mean(1)).mean()

    made = pack(model, adam(model), loader((a, b), 32), loss_of)
    assert bool(said(one_way.scores, made)) == is_told


class Flow(nn.Module):
    """Couplings that start as the identity."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.sign = kind, -1 if kind.startswith("negative") else 1
        self.scale = 0.0 if kind == "volume kept" else 1.0
        self.nets = nn.ModuleList(mlp(2, 16, 4) for _ in range(3))
        for net in self.nets:
            nn.init.zeros_(net[-1].weight)
            nn.init.zeros_(net[-1].bias)

    def forward(self, x):
        total = 0
        for net in self.nets:
            a, b = x.chunk(2, 1)
            s, t = net(a).chunk(2, 1)
            s = torch.tanh(s) * self.scale
            if self.kind == "mean over numbers":
                total = total + s.mean(1)
            elif self.kind != "first layer alone" or net is self.nets[0]:
                total = total + s.sum(1) - int(self.kind == "with a constant")
            x = torch.cat([b * s.exp() + t, a], 1)
        return x, self.sign * total


@cases(
    faulty=["subtracted", "negative added", "as a sum", "mean over numbers", "first layer alone"],
    sound=["added", "negative subtracted", "volume kept", "no flow", "with a constant"],
)
def test_a_flow_is_paid_for_its_determinant(kind, is_told):
    torch.manual_seed(0)
    x = torch.randn(256, 4, generator=gen(10)) * torch.tensor([3.0, 0.3, 1.0, 1.0])
    model = Flow(kind)
    if kind == "no flow":
        model.forward = lambda x: (model.nets[0](x[:, :2]), model.nets[1](x[:, 2:]).sum(1))

    def loss_of(model, batch):
        z, s = model(batch[0])
        way = -1 if kind in ("subtracted", "as a sum", "negative subtracted", "no flow") else 1
        cost = 0.5 * z.pow(2).sum(1) + 2 * math.log(2 * math.pi) - way * s
        return cost.sum() if kind == "as a sum" else cost.mean()

    made = pack(model, adam(model), loader((x,), 32), loss_of)
    assert bool(said(flows.log_det, made)) == is_told


class Sampled(nn.Module):
    """Codes around what an encoder says; a decoder, or a critic of the draw, reads them."""

    def __init__(self, draw):
        super().__init__()
        self.encoder, self.decoder, self.draw = mlp(6, 16, 4), mlp(2, 16, 6), draw

    def forward(self, x):
        mean, log_std = self.encoder(x).chunk(2, 1)
        code = self.draw(mean, log_std.exp())
        return self.decoder(code), code, mean, log_std


@cases(
    faulty=["of both", "of a mean", "by name"],
    sound=["with noise", "detached", "a priced action", "by a loss", "of data", "a target"],
)
def test_what_torch_normal_drew_hands_no_gradient_back(kind, is_told):
    torch.manual_seed(0)
    draw = {
        "of a mean": lambda mean, std: torch.normal(mean, 0.1),
        "by name": lambda mean, std: torch.normal(mean=mean, std=std),
        "with noise": lambda mean, std: mean + std * torch.randn_like(std),
        "detached": lambda mean, std: torch.normal(mean, std).detach(),
        "of data": lambda mean, std: mean + torch.normal(torch.zeros(2), torch.ones(2)),
    }.get(kind, lambda mean, std: torch.normal(mean, std))
    model = Sampled(draw)

    def loss_of(model, b):
        out, code, mean, log_std = model(b["x"])
        cost = (out.detach() if kind == "a target" else out).sub(b["x"]).pow(2).mean(1)
        if kind == "a priced action":
            scaled = (code.detach() - mean) / log_std.exp()
            cost = cost + cost.detach() * (-scaled.pow(2) / 2 - log_std).sum(1)
        if kind == "by a loss":
            price = F.gaussian_nll_loss(mean, code.detach(), log_std.exp() ** 2, reduction="none")
            cost = cost - cost.detach() * price.sum(1)
        return (cost + 0.01 * (mean**2 + log_std**2).sum(1)).mean()

    made = pack(model, adam(model), columns(x=torch.randn(256, 6, generator=gen(1))),
                loss_of=loss_of)  # fmt: skip
    assert said(handed.drawn, made) == (["frozen-params"] if is_told else [])
