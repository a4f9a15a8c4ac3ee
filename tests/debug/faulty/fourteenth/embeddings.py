"""Faults of embeddings: views, conventions, weights of the criterion."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.faulty.fourteenth.kit import (
    columns,
    gen,
    knn,
    loader,
    mean_eval,
    mlp,
    pairloss,
    plain_step,
    seed,
    set_up,
    views,
)
from tests.debug.faulty.kit import pair


@pair("compared-with-itself")
def simclr_views_identical(bug):
    """The pair transform calls the augmentation once and hands the result out twice: nothing has to
    become invariant. After 400 steps knn_acc is 0.775 instead of 1.0."""
    seed(18)
    X, y = views(600, 1)
    Q, qy = views(200, 2)

    def aug(x):
        return torch.cat([x[:, :8] + torch.randn(len(x), 8) * 0.4, torch.randn(len(x), 12) * 2], 1)

    class TwoViews:
        def __call__(self, rows):
            x = torch.stack(rows)
            if bug:
                v = aug(x)
                return {"v1": v, "v2": v}
            return {"v1": aug(x), "v2": aug(x)}

    tr = DataLoader(X, 48, shuffle=True, generator=gen(18), drop_last=True, collate_fn=TwoViews())
    model = mlp(20, 48, 16)
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_of(m, b):
        z = F.normalize(m(torch.cat([b["v1"], b["v2"]])), dim=1)
        n = len(b["v1"])
        s = (z @ z.T / 0.2).masked_fill(torch.eye(2 * n, dtype=torch.bool), -1e9)
        return F.cross_entropy(s, torch.arange(2 * n).roll(n))

    step = plain_step(model, opt, loss_of)

    def evaluate():
        model.eval()
        with torch.no_grad():
            r = {"knn_acc": knn(model(X), y, model(Q), qy)}
        model.train()
        return r

    return set_up(model, opt, tr, step, loss_of=loss_of, evaluate=evaluate)


@pair("loss-negated")
def siamese_convention_reversed(bug):
    """The contrastive loss from a blog takes 1 for dissimilar; the pairs are marked 1 for similar.
    After 400 steps verification_acc is 0.5267 instead of 1.0."""
    seed(19)
    X, y = views(900, 3)

    def pairs(lo, hi, n):
        i = torch.randint(lo, hi, (n,))
        j = torch.randint(lo, hi, (n,))
        p = torch.rand(n) < 0.4
        for k in p.nonzero()[:, 0].tolist():
            c = (y[lo:hi] == y[i[k]]).nonzero()[:, 0] + lo
            j[k] = c[torch.randint(0, len(c), (1,))]
        return dict(a=X[i], b=X[j], same=(y[i] == y[j]).float())

    tr, va = (
        columns(s=19, **pairs(0, 600, 800)),
        columns(bs=100, shuffle=False, **pairs(600, 900, 300)),
    )

    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(20, 32, 8)

        def forward(self, a, b):
            return (self.net(a) - self.net(b)).pow(2).sum(1).add(1e-6).sqrt()

    def loss_of(m, b):
        d = m(b["a"], b["b"])
        label = b["same"] if bug else 1 - b["same"]
        return ((1 - label) * d**2 + label * (2 - d).clamp(min=0) ** 2).mean()

    model = Siamese()
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    step = plain_step(model, opt, loss_of)
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_of=loss_of,
        evaluate=mean_eval(
            model,
            va,
            {"verification_acc": lambda m, b: (m(b["a"], b["b"]) < 1.0) == (b["same"] > 0.5)},
        ),
    )


@pair("optimizer-stale-params")
def arcface_weights_not_trained(bug):
    """ArcFace lives in the loss module; the optimizer was given model.parameters() alone. After 400
    steps acc is 0.475 instead of 0.9."""
    seed(20)
    X, y = views(700, 4, K=10)
    tr, va = loader(X[:500], y[:500], s=20), loader(X[500:], y[500:], bs=100, shuffle=False)

    class ArcFace(nn.Module):
        def __init__(self, d, K, s=10.0, m=0.2):
            super().__init__()
            self.w = nn.Parameter(torch.rand(K, d))
            self.s, self.m = s, m

        def cos(self, e):
            return F.normalize(e, dim=1) @ F.normalize(self.w, dim=1).T

        def forward(self, e, y):
            c = self.cos(e).clamp(-1 + 1e-6, 1 - 1e-6)
            t = torch.cos(torch.acos(c) + self.m)
            return F.cross_entropy(self.s * torch.where(F.one_hot(y, c.shape[1]).bool(), t, c), y)

    model = mlp(20, 32, 2)
    crit = ArcFace(2, 10)
    opt = torch.optim.Adam(
        model.parameters() if bug else list(model.parameters()) + list(crit.parameters()), 5e-3
    )
    step = plain_step(model, opt, pairloss(crit))
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=crit,
        evaluate=mean_eval(model, va, {"acc": lambda m, b: crit.cos(m(b[0])).argmax(1) == b[1]}),
    )
