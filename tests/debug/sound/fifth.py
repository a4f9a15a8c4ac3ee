"""Nine of the fifth set: odd data, losses and models, by an author who had not read the doctor."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Sampler, TensorDataset, WeightedRandomSampler

from tests.debug.faulty.fifth.kit import (
    Backboned,
    Flipped,
    classes,
    counting,
    loaders,
    mlp,
    pictures,
    segmenter,
    table,
)
from tests.debug.sound.programs import sound


class PK(Sampler):
    """P classes times K examples a batch."""

    def __init__(self, y, p=4, k=4, batches=5):
        self.rows, self.p, self.k, self.batches = (
            [torch.nonzero(y == c)[:, 0] for c in y.unique()],
            p,
            k,
            batches,
        )

    def __iter__(self):
        for _ in range(self.batches):
            for c in torch.randperm(len(self.rows))[: self.p].tolist():
                yield from self.rows[c][torch.randperm(len(self.rows[c]))[: self.k]].tolist()

    def __len__(self):
        return self.batches * self.p * self.k


@sound
def mixup_and_smoothing():
    """Inputs and losses are mixed in training, and plain in eval mode."""
    x, y = classes()
    tl, vl = loaders(x, y)
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)

    def loss_of(model, batch):
        x, y = batch
        if not model.training:
            return F.cross_entropy(model(x), y)
        lam, other = torch.distributions.Beta(0.4, 0.4).sample().item(), torch.randperm(len(x))
        out = model(lam * x + (1 - lam) * x[other])
        return lam * F.cross_entropy(out, y, label_smoothing=0.1) + (1 - lam) * F.cross_entropy(
            out, y[other], label_smoothing=0.1
        )

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_of=loss_of,
        num_classes=4,
        declared={"label_smoothing": 0.1},
    )


@sound
def masked_language_model():
    """A fifth of the tokens is hidden, the loss is theirs alone, and the output is tied."""
    t = counting()[:, :10] + 1
    tl = DataLoader(TensorDataset(t[:64]), 16, shuffle=True)
    vl = DataLoader(TensorDataset(t[64:]), 16)

    class MLM(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.pos = nn.Embedding(14, 16), nn.Parameter(0.1 * torch.randn(10, 16))
            self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True)
            self.out = nn.Linear(16, 14, bias=False)
            nn.init.normal_(self.emb.weight, std=0.2)
            self.out.weight = self.emb.weight  # tied

        def forward(self, x):
            return self.out(self.block(self.emb(x) + self.pos))

    model = MLM()
    opt = torch.optim.AdamW(model.parameters(), 5e-3)

    def loss_of(model, batch):
        (t,) = batch
        hide = torch.rand(t.shape) < 0.2
        hide[:, 4] = True
        out = model(t.masked_fill(hide, 13))
        return F.cross_entropy(out[hide], t[hide])

    return dict(model=model, optimizer=opt, train_loader=tl, val_loader=vl, loss_of=loss_of)


@sound
def simsiam_stop_gradient():
    """One of two views is detached, and there are no negatives."""
    x, _ = classes(64)
    loader = DataLoader(TensorDataset(x), 16, shuffle=True, drop_last=True)
    net = nn.ModuleDict(
        {
            "f": nn.Sequential(
                nn.Linear(8, 32),
                nn.BatchNorm1d(32),
                nn.ReLU(),
                nn.Linear(32, 8),
                nn.BatchNorm1d(8, affine=False),
            ),
            "h": mlp(8, 8, 8),
        }
    )
    opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)

    def loss_of(net, batch):
        (x,) = batch
        z = [net["f"](x + 0.2 * torch.randn_like(x)) for _ in range(2)]
        p = [net["h"](v) for v in z]
        return -0.5 * sum(
            F.cosine_similarity(a, b.detach()).mean() for a, b in zip(p, reversed(z), strict=True)
        )

    return dict(model=net, optimizer=opt, train_loader=loader, loss_of=loss_of)


@sound
def heteroscedastic():
    """The model gives a mean and a logarithm of the variance for each number."""
    x, y = table(noise=0.5)
    tl, vl = loaders(x, y.squeeze(1))
    model = mlp(8, 2)
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_fn(out, y):
        mean, logvar = out.unbind(1)
        return (0.5 * logvar + 0.5 * (y - mean) ** 2 / logvar.exp()).mean()

    def evaluate():
        model.eval()
        with torch.no_grad():
            off = torch.cat([(model(x)[:, 0] - y) ** 2 for x, y in vl])
        model.train()
        return {"rmse": off.mean().sqrt().item()}

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=loss_fn,
        evaluate=evaluate,
        task="regression",
    )


@sound
def coral_ordinal():
    """Grades are told by thresholds that share one score."""
    x, _ = table()
    y = torch.bucketize(x[:, 0] + 0.5 * x[:, 1], torch.tensor([-0.8, 0.0, 0.8]))
    tl, vl = loaders(x, y)

    class Coral(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.cut = mlp(8, 1), nn.Parameter(torch.tensor([1.0, 0.0, -1.0]))

        def forward(self, x):
            return self.net(x) + self.cut

    model = Coral()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_fn(out, y):
        return F.binary_cross_entropy_with_logits(out, (y[:, None] > torch.arange(3)).float())

    def evaluate():
        with torch.no_grad():
            off = torch.cat([((model(x) > 0).sum(1) - y).abs().float() for x, y in vl])
        return {"mae_grades": off.mean().item()}

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=loss_fn,
        evaluate=evaluate,
    )


@sound
def class_balanced_sampler():
    """A weight for each example, so that classes are drawn alike."""
    x, y = classes(200)
    keep = torch.cat([torch.nonzero(y == k)[: 50 if k == 0 else 14, 0] for k in range(4)])
    keep = keep[torch.randperm(len(keep))]
    x, y = x[keep], y[keep]
    weights = (1.0 / torch.bincount(y[:-24]).float())[y[:-24]]
    tl = DataLoader(
        TensorDataset(x[:-24], y[:-24]), 16, sampler=WeightedRandomSampler(weights, len(weights))
    )
    vl = DataLoader(TensorDataset(x[-24:], y[-24:]), 16)
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
    )


@sound
def frozen_backbone_in_eval():
    """A frozen backbone that train() leaves in eval mode."""
    x, y = classes()
    tl, vl = loaders(x, y)
    model = Backboned(keep_eval=False)
    with torch.no_grad():
        for _ in range(30):
            model.backbone(x[torch.randperm(64)[:32]])
    model.keep_eval = True
    model.backbone.requires_grad_(False)
    model.train()
    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-2)
    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
        declared={"frozen": ["backbone"]},
    )


@sound
def triplets_mined_in_the_batch():
    """Batches of P classes and K examples; the hardest of each are compared."""
    x, y = classes(96, k=6)
    train = TensorDataset(x[:72], y[:72])
    tl = DataLoader(train, 16, sampler=PK(y[:72]))
    vl = DataLoader(TensorDataset(x[72:], y[72:]), 24)
    model = mlp(8, 8)
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_fn(z, y):
        z = F.normalize(z, dim=1)
        far = (z[:, None] - z[None]).pow(2).sum(2)
        same = y[:, None] == y[None]
        hardest = (far * same).max(1).values
        nearest = far.masked_fill(same, 9.0).min(1).values
        return F.relu(hardest - nearest + 0.3).mean()

    return dict(model=model, optimizer=opt, train_loader=tl, val_loader=vl, loss_fn=loss_fn)


@sound
def soft_dice_with_flips():
    """Picture and mask are flipped together; a soft dice and a cross-entropy."""
    img, mask = pictures()
    tl = DataLoader(Flipped(img[:48], mask[:48], both=True), 16, shuffle=True)
    vl = DataLoader([{"image": a, "mask": b} for a, b in zip(img[48:], mask[48:], strict=True)], 16)
    model = segmenter()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_of(m, b):
        out, t = m(b["image"]), b["mask"]
        p = out.sigmoid()
        dice = 1 - (2 * (p * t).sum((1, 2, 3)) + 1) / (p.sum((1, 2, 3)) + t.sum((1, 2, 3)) + 1)
        return dice.mean() + F.binary_cross_entropy_with_logits(out, t)

    def evaluate():
        model.eval()
        with torch.no_grad():
            both = [((model(b["image"]) > 0), b["mask"] > 0) for b in vl]
        model.train()
        said, true = (torch.cat(v) for v in zip(*both, strict=True))
        return {"iou": ((said & true).sum() / (said | true).sum()).item()}

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_of=loss_of,
        evaluate=evaluate,
    )
