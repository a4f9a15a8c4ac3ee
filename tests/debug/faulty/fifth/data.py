"""Bugs of the data: how they are scaled, paired, drawn and ordered."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from tests.debug.faulty.fifth.kit import (
    Flipped,
    LastOf,
    Stateful,
    TinyLM,
    classes,
    counting,
    halves,
    loaders,
    mlp,
    pictures,
    segmenter,
    words,
)
from tests.debug.faulty.kit import pair


@pair("covariate-shift")
def val_not_normalised(bug):
    """Training inputs are standardised, validation inputs are not."""
    x, y = classes()
    x = x * torch.tensor([1.0, 50, 0.1, 5, 10, 1, 2, 30]) + 20
    train, val = x[:64], x[64:]
    mean, std = train.mean(0), train.std(0)
    train, val = (train - mean) / std, val if bug else (val - mean) / std
    tl = DataLoader(TensorDataset(train, y[:64]), 16, shuffle=True)
    vl = DataLoader(TensorDataset(val, y[64:]), 16)
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


@pair("augmentation-mismatch")
def picture_flipped_without_mask(bug):
    """Augmentation flips the picture and leaves its mask."""
    img, mask = pictures()
    tl = DataLoader(Flipped(img[:48], mask[:48], both=not bug), 16, shuffle=True)
    vl = DataLoader([{"image": a, "mask": b} for a, b in zip(img[48:], mask[48:], strict=True)], 16)
    model = segmenter()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_of(m, b):
        return F.binary_cross_entropy_with_logits(m(b["image"]), b["mask"])

    return dict(model=model, optimizer=opt, train_loader=tl, val_loader=vl, loss_of=loss_of)


@pair("labels-shuffled")
def sorted_without_labels(bug):
    """The collate function sorts sequences by length and leaves the labels unsorted."""
    x, lengths = words()
    y = (x == 5).any(1).long() + (x == 7).any(1).long()
    rows = [{"tokens": a[:n], "label": b} for a, n, b in zip(x, lengths, y, strict=True)]

    def collate(rows):
        ordered = sorted(rows, key=lambda r: -len(r["tokens"]))
        labels = rows if bug else ordered
        return {
            "tokens": nn.utils.rnn.pad_sequence([r["tokens"] for r in ordered], batch_first=True),
            "lengths": torch.tensor([len(r["tokens"]) for r in ordered]),
            "label": torch.stack([r["label"] for r in labels]),
        }

    tl = DataLoader(rows[:64], 16, shuffle=True, collate_fn=collate)
    vl = DataLoader(rows[64:], 16, collate_fn=collate)
    model = LastOf()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_of(m, b):
        return F.cross_entropy(m(b["tokens"], b["lengths"]), b["label"])

    return dict(
        model=model, optimizer=opt, train_loader=tl, val_loader=vl, loss_of=loss_of, num_classes=3
    )


@pair("few-examples-drawn")
def sampler_weights_per_class(bug):
    """WeightedRandomSampler gets a weight per class instead of per example: only the first
    rows are ever drawn."""
    x, y = classes(160)
    keep = torch.cat([torch.nonzero(y == k)[: 40 if k < 2 else 12, 0] for k in range(4)])
    keep = keep[torch.randperm(len(keep))]
    x, y = x[keep], y[keep]
    train, val = halves(x, y, val=24)
    per_class = 1.0 / torch.bincount(train.tensors[1]).float()
    weights = per_class if bug else per_class[train.tensors[1]]
    tl = DataLoader(train, 16, sampler=WeightedRandomSampler(weights, len(train)))
    vl = DataLoader(val, 16)
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


@pair("target-in-inputs")
def lm_copies(bug):
    """The language model's targets are its inputs, not shifted by one: it copies."""
    t = counting()
    x, y = t[:, :-1], t[:, :-1] if bug else t[:, 1:]
    tl, vl = loaders(x.contiguous(), y.contiguous())
    model = TinyLM()
    opt = torch.optim.AdamW(model.parameters(), 5e-3)

    def loss_fn(out, y):
        return F.cross_entropy(out.flatten(0, 1), y.flatten())

    return dict(model=model, optimizer=opt, train_loader=tl, val_loader=vl, loss_fn=loss_fn)


@pair("loader-exhausted")
def loader_used_up(bug):
    """The training loader is a generator: after one epoch it is empty and training does
    nothing."""
    x, y = classes()

    def batches():
        for idx in torch.randperm(64).split(16):
            yield x[idx], y[idx]

    class Epochs:
        def __iter__(self):
            return batches()

    loader = batches() if bug else Epochs()
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def train(steps):
        losses = []
        for _ in range(-(-steps // 4)):
            for a, b in loader:
                opt.zero_grad()
                loss = F.cross_entropy(model(a), b)
                loss.backward()
                opt.step()
                losses.append(loss.item())
        return losses

    return dict(
        model=model,
        optimizer=opt,
        train_loader=loader,
        loss_fn=nn.CrossEntropyLoss(),
        train=train,
        val_loader=DataLoader(TensorDataset(x[64:], y[64:]), 16),
        num_classes=4,
    )


@pair("state-carried")
def state_carried_over_shuffled(bug):
    """A GRU carries its state from batch to batch, and the loader shuffles the windows: the
    state is a stranger's."""
    wave = torch.sin(torch.arange(8 * 97) * 0.37) + torch.sin(torch.arange(8 * 97) * 0.051)
    parts = wave.view(8, 97)
    x = parts[:, :-1].reshape(8, 12, 8).transpose(0, 1).reshape(96, 8, 1)
    y = parts[:, 1:].reshape(8, 12, 8).transpose(0, 1).reshape(96, 8, 1)
    tl = DataLoader(TensorDataset(x[:64], y[:64]), 8, shuffle=bug)
    vl = DataLoader(TensorDataset(x[64:], y[64:]), 8)
    model = Stateful()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.MSELoss(),
        task="regression",
    )
