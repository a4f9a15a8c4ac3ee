"""Bugs in the model: padding, frozen parts, states, ranges."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Subset

from tests.debug.faulty.fourth.kit import Dicts, accuracy, batches, blobs, sentences
from tests.debug.faulty.kit import pair


@pair("padding-not-masked")
def answer_at_padding(bug):
    """The GRU reads its answer at the last column, which is padding for short sentences."""
    ids, length = sentences(320)
    last = ids[torch.arange(320), length - 1]
    y = (last > 6).long()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(12, 16, padding_idx=0)
            self.rnn = nn.GRU(16, 24, batch_first=True)
            self.out = nn.Linear(24, 2)

        def forward(self, ids, lengths):
            h, _ = self.rnn(self.emb(ids))
            h = h[:, -1] if bug else h[torch.arange(len(h)), lengths - 1]
            return self.out(h)

    model = Net()
    data = Dicts(ids=ids, lengths=length, label=y)
    return dict(
        model=model,
        loss_of=lambda m, b: F.cross_entropy(m(b["ids"], b["lengths"]), b["label"]),
        optimizer=torch.optim.Adam(model.parameters(), 5e-3),
        num_classes=2,
        train_loader=DataLoader(Subset(data, range(256)), batch_size=32, shuffle=True),
        val_loader=DataLoader(Subset(data, range(256, 320)), batch_size=32),
    )


@pair("padding-not-masked")
def padding_mask_inverted(bug):
    """key_padding_mask is True at the real tokens and not at the padding."""
    ids, length = sentences(320, high=13)
    y = ((ids > 6).sum(1) * 2 > length).long()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(12, 16)
            self.pos = nn.Parameter(0.1 * torch.randn(14, 16))
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
            self.out = nn.Linear(16, 2)

        def forward(self, ids, mask):
            h = self.emb(ids) + self.pos
            h = self.layer(h, src_key_padding_mask=(mask == 1) if bug else (mask == 0))
            m = mask.unsqueeze(-1).float()
            return self.out((h * m).sum(1) / m.sum(1))

    model = Net()
    data = Dicts(input_ids=ids, attention_mask=(ids != 0).long(), labels=y)
    return dict(
        model=model,
        loss_of=lambda m, b: F.cross_entropy(m(b["input_ids"], b["attention_mask"]), b["labels"]),
        optimizer=torch.optim.AdamW(model.parameters(), 3e-3),
        num_classes=2,
        train_loader=DataLoader(Subset(data, range(256)), batch_size=32, shuffle=True),
        val_loader=DataLoader(Subset(data, range(256, 320)), batch_size=32),
    )


@pair("frozen-params-drift")
def frozen_batchnorm_moves(bug):
    """The frozen backbone's batch norm goes on updating its running statistics."""
    src, src_y = blobs(256)
    x, y = blobs(384)
    x = x * 1.4 + 0.7

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(
                nn.Linear(10, 24),
                nn.BatchNorm1d(24),
                nn.ReLU(),
                nn.Linear(24, 24),
                nn.BatchNorm1d(24),
                nn.ReLU(),
            )
            self.head = nn.Linear(24, 3)

        def forward(self, x):
            return self.head(self.backbone(x))

        def train(self, mode=True):
            super().train(mode)
            if not bug and getattr(self, "frozen", False):
                self.backbone.eval()
            return self

    model = Net()
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(40):
        opt.zero_grad()
        F.cross_entropy(model(src), src_y).backward()
        opt.step()
    for p in model.backbone.parameters():
        p.requires_grad_(False)
    model.frozen = True
    model.head = nn.Linear(24, 3)
    model.zero_grad()
    model.train()
    opt = torch.optim.Adam(model.head.parameters(), 3e-3)
    val = batches(x[256:], y[256:], shuffle=False)
    return dict(
        model=model,
        loss_fn=nn.CrossEntropyLoss(),
        optimizer=opt,
        num_classes=3,
        val_loader=val,
        train_loader=batches(x[:256], y[:256]),
        evaluate=accuracy(model, val),
    )


@pair("targets-out-of-reach")
def sigmoid_of_standardised(bug):
    """An autoencoder ends in a sigmoid while its inputs are standardised."""
    z = torch.randn(320, 3)
    x = z @ torch.randn(3, 16) + 0.1 * torch.randn(320, 16)
    x = (x - x.mean(0)) / x.std(0)
    layers = [
        nn.Linear(16, 24),
        nn.ReLU(),
        nn.Linear(24, 3),
        nn.Linear(3, 24),
        nn.ReLU(),
        nn.Linear(24, 16),
    ]
    model = nn.Sequential(*layers, *([nn.Sigmoid()] if bug else []))
    return dict(
        model=model,
        loss_of=lambda m, b: F.mse_loss(m(b[0]), b[0]),
        optimizer=torch.optim.Adam(model.parameters(), 5e-3),
        train_loader=batches(x[:256]),
        val_loader=batches(x[256:], shuffle=False),
    )


@pair("state-carried")
def state_carried_shuffled(bug):
    """The LSTM carries its state from batch to batch though the windows are shuffled."""
    t = torch.arange(420.0)
    s = torch.sin(t / 6) + 0.1 * torch.randn(420)
    x = torch.stack([s[i : i + 12] for i in range(384)]).unsqueeze(-1)
    y = torch.stack([s[i + 12 : i + 13] for i in range(384)])

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(1, 16, batch_first=True)
            self.out = nn.Linear(16, 1)
            self.hidden = None

        def forward(self, x):
            old = self.hidden
            if not bug or old is None or old[0].shape[1] != len(x):
                old = (torch.zeros(1, len(x), 16), torch.zeros(1, len(x), 16))
            h, new = self.rnn(x, old)
            self.hidden = tuple(v.detach() for v in new)
            return self.out(h[:, -1])

    model = Net()
    return dict(
        model=model,
        loss_fn=nn.MSELoss(),
        optimizer=torch.optim.Adam(model.parameters(), 5e-3),
        train_loader=batches(x[:288], y[:288], drop_last=True),
        val_loader=batches(x[300:], y[300:], shuffle=False, drop_last=True),
    )
