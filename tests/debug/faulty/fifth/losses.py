"""Bugs of the loss: what it is handed, counts, or cannot pull."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.fifth.kit import (
    VAE,
    Detector,
    Tagger,
    classes,
    loaders,
    mlp,
    pictures,
    segmenter,
    table,
    words,
)
from tests.debug.faulty.kit import pair


@pair("labels-merged")
def grades_off_by_one(bug):
    """Ordinal levels are y >= k instead of y > k: the first level is always 1 and the top
    grade needs one that is no longer told."""
    x, _ = table()
    score = x[:, 0] + 0.5 * x[:, 1]
    y = torch.bucketize(score, torch.tensor([-0.8, 0.0, 0.8]))
    tl, vl = loaders(x, y)
    model = mlp(8, 3)
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_fn(logits, y):
        k = torch.arange(3)
        levels = (y[:, None] >= k) if bug else (y[:, None] > k)
        return F.binary_cross_entropy_with_logits(logits, levels.float())

    def evaluate():
        model.eval()
        with torch.no_grad():
            off = [((model(x) > 0).sum(1) - y).abs().float() for x, y in vl]
        model.train()
        return {"mae_grades": torch.cat(off).mean().item()}

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=loss_fn,
        evaluate=evaluate,
    )


@pair("missing-log-softmax")
def kd_probs_for_logprobs(bug):
    """Distillation: kl_div wants log-probabilities of the student and gets
    probabilities."""
    x, y = classes(spread=2.0)
    tl, vl = loaders(x, y)
    teacher = mlp(8, 4, 64)
    warm = torch.optim.Adam(teacher.parameters(), 1e-2)
    for _ in range(60):
        warm.zero_grad()
        F.cross_entropy(teacher(x[:64]), y[:64]).backward()
        warm.step()
    teacher.eval().requires_grad_(False)
    model = mlp(8, 4, 16)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    t = 2.0

    def loss_of(model, batch):
        x, y = batch
        out = model(x)
        with torch.no_grad():
            soft = F.softmax(teacher(x) / t, 1)
        told = F.softmax(out / t, 1) if bug else F.log_softmax(out / t, 1)
        return F.kl_div(told, soft, reduction="batchmean") * t * t + 0.1 * F.cross_entropy(out, y)

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_of=loss_of,
        num_classes=4,
        extra={"teacher": teacher},
    )


@pair("loss-negated")
def vae_kl_sign(bug):
    """VAE: the KL term has the wrong sign; it pushes the posterior away from the prior,
    without a floor."""
    x, _ = classes()
    tl = DataLoader(TensorDataset(x[:64]), 16, shuffle=True)
    vl = DataLoader(TensorDataset(x[64:]), 16)
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), 2e-3)

    def loss_of(model, batch):
        out, mu, logvar = model(batch[0])
        kl = 0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
        rec = ((out - batch[0]) ** 2).sum(1).mean()
        return rec + kl if bug else rec - kl

    return dict(model=model, optimizer=opt, train_loader=tl, val_loader=vl, loss_of=loss_of)


@pair("padding-in-the-loss", "padding-not-masked")
def loss_over_pads(bug):
    """Padding is tagged 0 and counted in the loss: no ignore_index."""
    x, _ = words()
    y = (x + torch.roll(x, 1, 1)) % 3
    y[x == 0] = 0 if bug else -100
    tl, vl = loaders(x, y)
    model = Tagger()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_fn(out, y):
        return F.cross_entropy(out.transpose(1, 2), y)

    return dict(model=model, optimizer=opt, train_loader=tl, val_loader=vl, loss_fn=loss_fn)


@pair("broadcast-loss")
def weights_broadcast(bug):
    """Example weights [B] times losses [B, 1]: broadcast to [B, B], each row gets the mean
    weight."""
    x, y = table()
    bad = torch.rand(96) < 0.3
    y = torch.where(bad[:, None], y + 8, y)
    w = torch.where(bad, 0.02, 1.0)
    tl, vl = loaders(x, y, w)
    model = mlp(8, 1)
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_of(model, batch):
        x, y, w = batch
        each = F.mse_loss(model(x), y, reduction="none")
        return ((each if bug else each.squeeze(1)) * w).mean()

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_of=loss_of,
        task="regression",
    )


@pair("loss-without-gradient")
def hard_dice(bug):
    """The dice term is taken of thresholded masks: it has no gradient and never trains
    anything."""
    tl, vl = loaders(*pictures(), val=16)
    model = segmenter()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_fn(out, mask):
        p = out.sigmoid()
        if bug:
            p = (p > 0.5).float()
        dice = 1 - (2 * (p * mask).sum((1, 2, 3)) + 1) / (
            p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1
        )
        return dice.mean() + 0.1 * F.binary_cross_entropy_with_logits(out, mask)

    return dict(
        model=model, optimizer=opt, train_loader=tl, val_loader=vl, loss_fn=loss_fn, task="binary"
    )


@pair("compared-with-itself")
def ntxent_self(bug):
    """NT-Xent: an example's similarity with itself stays in the denominator and swamps
    it."""
    x, _ = classes(64)
    loader = DataLoader(TensorDataset(x), 16, shuffle=True, drop_last=True)
    model = mlp(8, 8)
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_of(model, batch):
        (x,) = batch
        views = torch.cat([x + 0.2 * torch.randn_like(x), x + 0.2 * torch.randn_like(x)])
        z = F.normalize(model(views), dim=1)
        sim = z @ z.T / 0.1
        if not bug:
            sim = sim.masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
        n = len(x)
        return F.cross_entropy(sim, torch.cat([torch.arange(n) + n, torch.arange(n)]))

    return dict(model=model, optimizer=opt, train_loader=loader, loss_of=loss_of)


@pair("padding-not-masked")
def boxes_over_background(bug):
    """The box loss runs over background anchors too, whose boxes are zeros: boxes shrink
    towards 0."""
    g = torch.Generator().manual_seed(0)
    img = 0.1 * torch.randn(48, 1, 8, 8, generator=g)
    pos, box = torch.zeros(48, 16), torch.zeros(48, 16, 4)
    for i in range(48):
        cell = int(torch.randint(0, 16, (1,), generator=g))
        r, c = 2 * (cell // 4), 2 * (cell % 4)
        h, w = torch.randint(1, 3, (2,), generator=g).tolist()
        img[i, 0, r : r + h, c : c + w] += 2
        pos[i, cell] = 1
        box[i, cell] = torch.tensor([r / 8, c / 8, h / 2, w / 2])
    tl, vl = loaders(img, pos, box, val=16)
    model = Detector()
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_of(model, batch):
        img, pos, box = batch
        score, out = model(img)
        cls = F.binary_cross_entropy_with_logits(score, pos)
        each = F.l1_loss(out, box, reduction="none").sum(2)
        reg = each.mean() if bug else (each * pos).sum() / pos.sum().clamp(min=1)
        return cls + reg

    return dict(model=model, optimizer=opt, train_loader=tl, val_loader=vl, loss_of=loss_of)


@pair("targets-out-of-reach")
def poisson_double_exp(bug):
    """Poisson: the model gives rates (exp) and the loss takes them for log-rates, exp
    twice."""
    x, _ = table()
    y = torch.poisson((1.2 + 0.7 * x[:, 0]).exp())
    tl, vl = loaders(x, y)

    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(8, 1)

        def forward(self, x):
            return self.net(x).squeeze(1).exp()

    model = Counts()
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.PoissonNLLLoss(log_input=bug)

    def evaluate():
        model.eval()
        with torch.no_grad():
            off = torch.cat([(model(x) - y).abs() for x, y in vl])
        model.train()
        return {"mae": off.mean().item()}

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=loss_fn,
        evaluate=evaluate,
        task="regression",
    )
