"""Ten more of the sixteenth set: averages, climbs, losses by hand, critics, anneals, masks."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.data import DataLoader

from tests.debug.faulty.sixteenth.kit import (
    VAE,
    Columns,
    averaged,
    blobs,
    by_cost,
    by_pairs,
    classes,
    gen,
    loaders,
    manifold,
    mlp,
    named,
    plain_step,
    ring,
    same_draws,
    seed,
    set_up,
    split,
)
from tests.debug.faulty.sixteenth.nearness import neighbours
from tests.debug.faulty.thirteenth.kit import accuracy, sup_step
from tests.debug.sound.programs import sound


@sound
def swa_with_bn_recomputed():
    """The weights are averaged at a constant high rate; evaluate() computes the average's batch
    norm anew."""
    tl, vl = classes(109)
    m = mlp(10, 32, 5, bn=True)
    swa = AveragedModel(m)
    opt = torch.optim.SGD(m.parameters(), 0.2)
    fixed = DataLoader(tl.dataset, 100)
    ce = nn.CrossEntropyLoss()
    step = sup_step(m, opt, ce, lambda: swa.update_parameters(m))

    def evaluate():
        update_bn(fixed, swa)
        return {f"swa_{name}": value for name, value in accuracy(swa, vl).items()}

    return by_pairs(m, opt, tl, vl, ce, step, evaluate=evaluate)


@sound
def sharpness_aware_two_passes():
    """Climbs to w + e, takes the gradient there, goes back and steps: two backward passes per
    update."""
    tl, vl = classes(110)
    m = mlp(10, 32, 32, 5)
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    ce = nn.CrossEntropyLoss()
    weights = list(m.parameters())

    def step(b):
        m.train()
        opt.zero_grad()
        first = ce(m(b[0]), b[1])
        first.backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in weights]).norm() + 1e-12
            climbs = [0.05 * p.grad / norm for p in weights]
            for p, e in zip(weights, climbs, strict=True):
                p.add_(e)
        opt.zero_grad()
        ce(m(b[0]), b[1]).backward()
        with torch.no_grad():
            for p, e in zip(weights, climbs, strict=True):
                p.sub_(e)
        opt.step()
        return first.item()

    return by_pairs(m, opt, tl, vl, ce, step)


@sound
def evolution_strategy_without_backward():
    """.grad is written by hand from differences of losses; there is no backward."""
    tl, vl = classes(111, c=3, bs=64)
    m = nn.Linear(10, 3)
    opt = torch.optim.Adam(m.parameters(), 2e-2)
    ce = nn.CrossEntropyLoss()
    g, weights = gen(111), list(m.parameters())

    @torch.no_grad()
    def step(b):
        base = ce(m(b[0]), b[1]).item()
        grads = [torch.zeros_like(p) for p in weights]
        for _ in range(8):
            ways = [torch.randn(p.shape, generator=g) for p in weights]
            costs = []
            for s in (0.05, -0.1, 0.05):
                for p, way in zip(weights, ways, strict=True):
                    p.add_(way, alpha=s)
                costs.append(ce(m(b[0]), b[1]).item())
            for grad, way in zip(grads, ways, strict=True):
                grad.add_(way, alpha=(costs[0] - costs[1]) / 0.1 / 8)
        for p, grad in zip(weights, grads, strict=True):
            p.grad = grad
        opt.step()
        return base

    return by_pairs(m, opt, tl, vl, ce, step)


@sound
def mixup_and_smoothed_labels():
    """Mixed rows and smoothed labels: the training loss stays far above validation's."""
    tl, vl = classes(112, spread=1.0)
    m, g = mlp(10, 32, 32, 5), gen(112)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)

    def mixed(model, b):
        x, y = b
        share = float(torch.rand((), generator=g))
        other = torch.randperm(len(x), generator=g)
        out = model(share * x + (1 - share) * x[other])
        return share * loss_fn(out, y) + (1 - share) * loss_fn(out, y[other])

    step = plain_step(m, opt, mixed)
    return by_pairs(m, opt, tl, vl, loss_fn, step, declared={"label_smoothing": 0.1})


@sound
def wgan_gp_double_backward():
    """Three steps of the critic per step of the generator, a gradient penalty by double backward,
    losses of either sign."""
    seed(113)
    tl = DataLoader(ring(640, 113), 64, shuffle=True, generator=gen(113))
    m = nn.ModuleDict({"G": mlp(4, 24, 24, 2), "D": mlp(2, 24, 24, 1)})
    og, od = (torch.optim.Adam(m[k].parameters(), 2e-3, betas=(0.0, 0.9)) for k in "GD")
    g = gen(114)

    def fakes(n):
        return m["G"](torch.randn(n, 4, generator=g))

    def step(x):
        m.train()
        for _ in range(3):
            fake = fakes(len(x)).detach()
            t = torch.rand(len(x), 1, generator=g)
            between = (t * x + (1 - t) * fake).requires_grad_()
            (grad,) = torch.autograd.grad(m["D"](between).sum(), between, create_graph=True)
            penalty = 10 * ((grad.norm(dim=1) - 1) ** 2).mean()
            loss = m["D"](fake).mean() - m["D"](x).mean() + penalty
            od.zero_grad()
            loss.backward()
            od.step()
        og.zero_grad()
        (-m["D"](fakes(len(x))).mean()).backward()
        og.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        radius = m["G"](torch.randn(500, 4, generator=gen(1))).norm(dim=1)
        return {"radius_error": (radius - 1.5).abs().mean().item()}

    return set_up(m, [og, od], tl, step, evaluate=evaluate)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -0.3 * grad


@sound
def domain_adversarial_reversal():
    """The gradient is turned round on its way back: the features become worse for the domains'
    head, on purpose."""
    seed(114)
    x, y = blobs(1100, 10, 3, 115)
    moved = x + torch.randn(10, generator=gen(116))
    tr = Columns(src=x[:450], y=y[:450], tgt=moved[450:900])
    tl, vl = loaders(tr, Columns(x=moved[900:], y=y[900:]), 32)
    m = nn.ModuleDict({"f": mlp(10, 32, 32, 16), "c": nn.Linear(16, 3), "d": mlp(16, 16, 16, 1)})
    opt = torch.optim.Adam(m.parameters(), 2e-3)

    def loss_of(model, b):
        z = model["f"](torch.cat([b["src"], b["tgt"]]))
        n = len(b["y"])
        domain = (torch.arange(len(z)) >= n).float()
        of_domain = F.binary_cross_entropy_with_logits(model["d"](Reversed.apply(z))[:, 0], domain)
        return F.cross_entropy(model["c"](z[:n]), b["y"]) + of_domain

    def sums_of(model, b):
        hits = model["c"](model["f"](b["x"])).argmax(1) == b["y"]
        return {"target_acc": (hits.sum(), len(b["y"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@sound
def lbfgs_with_a_penalty():
    """Logistic regression by L-BFGS with a closure that adds a penalty: one batch is the whole
    training set."""
    seed(115)
    tl, vl = loaders(*split(*blobs(600, 10, 3, 117), val=200), 400)
    m = nn.Linear(10, 3)
    opt = torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=4)
    ce = nn.CrossEntropyLoss()

    def step(b):
        def closure():
            opt.zero_grad()
            loss = ce(m(b[0]), b[1]) + 1e-3 * m.weight.square().sum()
            loss.backward()
            return loss

        return opt.step(closure).item()

    return by_pairs(m, opt, tl, vl, ce, step)


@sound
def vae_kl_annealing():
    """The divergence's weight grows from 0 to 1 over 200 steps, so the training loss may rise while
    all is well."""
    seed(116)
    tl, vl = loaders(*named(700, x=manifold(900, 118)), 32)
    m, done = VAE(), {"step": 0}
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def terms(model, x):
        r, mu, lv = model(x)
        return 5 * ((r - x) ** 2).sum(1), 0.5 * (mu**2 + lv.exp() - 1 - lv).sum(1)

    def loss_of(model, b):
        rec, kl = terms(model, b["x"])
        return (rec + min(1.0, done["step"] / 200) * kl).mean()

    update = plain_step(m, opt, loss_of)

    def step(b):
        loss = update(b)
        done["step"] += 1
        return loss

    def sums_of(model, b):
        return {"val_neg_elbo": (sum(terms(model, b["x"])).sum(), len(b["x"]))}

    evaluate = same_draws(averaged(m, vl, sums_of))
    return by_cost(m, opt, tl, vl, loss_of, sums_of, step=step, evaluate=evaluate)


@sound
def simsiam_one_side_detached():
    """One branch is detached on purpose; the loss goes from 0 towards -1."""
    seed(117)
    x, y = blobs(700, 16, 4, 119, spread=1.0)
    tl = DataLoader(Columns(x=x[:500]), 64, shuffle=True, generator=gen(120), drop_last=True)
    m = nn.ModuleDict(
        {
            "f": nn.Sequential(*mlp(16, 32, 16, bn=True), nn.BatchNorm1d(16)),
            "p": mlp(16, 8, 16),
        }
    )
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    g = gen(121)

    def apart(p, z):
        return -F.cosine_similarity(p, z.detach()).mean()

    def loss_of(model, b):
        one, two = (
            model["f"](b["x"] + 0.4 * torch.randn(b["x"].shape, generator=g)) for _ in range(2)
        )
        return 0.5 * apart(model["p"](one), two) + 0.5 * apart(model["p"](two), one)

    def evaluate():
        return {"knn_acc": neighbours(m["f"], x, y, 500)}

    return set_up(m, opt, tl, plain_step(m, opt, loss_of), loss_of=loss_of, evaluate=evaluate)


@sound
def missing_labels_masked():
    """Labels that were not measured are NaN; a mask keeps them out of loss and score."""
    seed(120)
    g = gen(124)
    x = torch.randn(900, 12, generator=g)
    y = (x @ torch.randn(12, 4, generator=g) > 0).float()
    y[torch.rand(y.shape, generator=g) < 0.6] = float("nan")
    tl, vl = loaders(*named(700, x=x, y=y), 32)
    m = mlp(12, 32, 32, 4)
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        known = ~b["y"].isnan()
        return F.binary_cross_entropy_with_logits(model(b["x"])[known], b["y"][known])

    def sums_of(model, b):
        known = ~b["y"].isnan()
        hits = (model(b["x"]) > 0) == b["y"].bool()
        return {"acc": (hits[known].sum(), known.sum())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)
