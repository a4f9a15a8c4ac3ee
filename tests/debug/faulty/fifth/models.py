"""Bugs of the model: what it reads, mixes, or cannot answer."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.fifth.kit import Backboned, Encoder, classes, loaders, mlp, words
from tests.debug.faulty.kit import pair


@pair("padding-not-masked")
def attends_to_padding_only(bug):
    """Key_padding_mask is inverted: tokens attend to padding only."""
    x, _ = words(128)
    x[:, -1] = 0
    y = (x == 5).any(1).long() + (x == 7).any(1).long()
    tl, vl = loaders(x, y)
    model = Encoder(inverted=bug)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=3,
    )


@pair("rows-mixed")
def gru_over_the_batch(bug):
    """A GRU without batch_first gets [B, T, F]: it runs along the batch and mixes
    examples."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(96, 10, 3, generator=g)
    y = (x[:, :, 0].sum(1) > 0).long()
    tl, vl = loaders(x, y)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.out = nn.GRU(3, 16, batch_first=not bug), nn.Linear(16, 2)

        def forward(self, x):
            return self.out(self.rnn(x)[0].mean(1))

    model = Net()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=2,
    )


@pair("targets-out-of-reach")
def autoencoder_relu_out(bug):
    """The autoencoder ends in ReLU but the data are standardised: negative values cannot be
    given."""
    x, _ = classes()
    x = (x - x[:64].mean(0)) / x[:64].std(0)
    rows = TensorDataset(x[:64], x[:64]), TensorDataset(x[64:], x[64:])
    tl, vl = DataLoader(rows[0], 16, shuffle=True), DataLoader(rows[1], 16)
    layers = [
        nn.Linear(8, 24),
        nn.ReLU(),
        nn.Linear(24, 4),
        nn.Linear(4, 24),
        nn.ReLU(),
        nn.Linear(24, 8),
    ]
    model = nn.Sequential(*layers, *([nn.ReLU()] if bug else []))
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.MSELoss(),
        task="regression",
    )


@pair("frozen-params-drift")
def frozen_bn_drifts(bug):
    """The backbone is frozen, but its BatchNorm stays in train mode: its statistics
    drift."""
    x, y = classes()
    tl, vl = loaders(x * 1.5 + 0.5, y)
    model = Backboned(keep_eval=not bug)
    model.backbone.train()
    with torch.no_grad():
        for _ in range(30):
            model.backbone(torch.randn(32, 8))
    model.backbone.requires_grad_(False)
    model.train()
    opt = torch.optim.Adam(model.head.parameters(), 1e-2)
    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
        declared={"frozen": ["backbone"]},
    )


@pair("rows-mixed")
def weights_over_the_batch(bug):
    """Attention weights are softmaxed over the batch, not over the positions."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(96, 6, 5, generator=g)
    at = x[:, :, 0].argmax(1)
    y = (x[torch.arange(96), at, 1] > 0).long()
    tl, vl = loaders(x, y)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.score, self.out = mlp(5, 1, 16), mlp(5, 2, 16)

        def forward(self, x):
            w = self.score(x).softmax(0 if bug else 1)
            return self.out((w * x).sum(1))

    model = Net()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=2,
    )


@pair("inputs-ignored")
def no_positions(bug):
    """A transformer without positions on a task of order: it cannot tell orders apart."""
    g = torch.Generator().manual_seed(0)
    x = torch.stack([torch.randperm(8, generator=g) + 1 for _ in range(128)])
    y = (x.argmax(1) < x.argmin(1)).long()
    tl, vl = loaders(x, y)
    model = Encoder(positions=not bug, classes=2)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=2,
    )


@pair("ema-decay")
def bn_momentum_of_keras(bug):
    """BatchNorm momentum 0.99, ported from Keras: the running statistics are the last
    batch's."""
    x, y = classes(spread=2.0)
    tl, vl = loaders(x, y, batch=8)
    model = nn.Sequential(
        nn.Linear(8, 32),
        nn.BatchNorm1d(32, momentum=0.99 if bug else 0.01 * 10),
        nn.ReLU(),
        nn.Linear(32, 4),
    )
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
    )
