"""Faults of the network: what it may look at, what it keeps, what is frozen."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    loaders,
    mean_loss,
    mlp,
    numbers,
    of_pairs,
    sentences,
    setup,
)


class Reader(nn.Module):
    """A class token that attends to the words; True in the mask means: leave this place out."""

    def __init__(self, inverted, vocab=12, d=16, k=2):
        super().__init__()
        self.inverted = inverted
        self.embed, self.cls = nn.Embedding(vocab, d), nn.Parameter(torch.randn(1, 1, d))
        self.attend = nn.MultiheadAttention(d, 2, batch_first=True)
        self.head = nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, k))

    def forward(self, x):
        padded = (x != 0) if self.inverted else (x == 0)
        query = self.cls.expand(len(x), -1, -1)
        h = self.embed(x)
        return self.head(query[:, 0] + self.attend(query, h, h, key_padding_mask=padded)[0][:, 0])


@pair("inputs-ignored", "padding-not-masked")
def class_token_reads_padding(bug):
    """The padding mask is inverted: attention sees the padding and not the words."""
    x, _ = sentences(160)
    y = ((x > 6).sum(1) > ((x > 0) & (x <= 6)).sum(1)).long()
    loader, held = loaders(x, y)
    model = Reader(bug)
    return setup(
        model,
        torch.optim.Adam(model.parameters(), 5e-3),
        loader,
        held,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=2,
        evaluate=accuracy(model, held),
    )


class Tagger(nn.Module):
    def __init__(self, along_batch, vocab=12, length=10, d=16):
        super().__init__()
        self.along_batch = along_batch
        self.embed, self.place = nn.Embedding(vocab, d), nn.Parameter(0.5 * torch.randn(64, d))
        self.layer = nn.TransformerEncoderLayer(d, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(d, 2)

    def forward(self, x):
        h = self.embed(x)
        if self.along_batch:
            h = h + self.place[: h.size(0)].unsqueeze(1)
        else:
            h = h + self.place[: h.size(1)]
        return self.head(self.layer(h)).transpose(1, 2)


@pair("rows-mixed", "depends-on-order")
def positions_along_the_batch(bug):
    """The position code runs along the batch and not along the sequence."""
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 12, (128, 10), generator=g)
    y = ((x > 5) == (torch.arange(10) < 5)).long()  # the halves of a sentence count apart
    loader, held = loaders(x, y)
    model = Tagger(bug)
    loss_fn = nn.CrossEntropyLoss()
    return setup(
        model,
        torch.optim.Adam(model.parameters(), 5e-3),
        loader,
        held,
        loss_fn=loss_fn,
        evaluate=mean_loss(model, held, of_pairs(loss_fn)),
    )


class Forecaster(nn.Module):
    def __init__(self, stateful):
        super().__init__()
        self.stateful, self.state = stateful, None
        self.lstm, self.head = nn.LSTM(1, 16, batch_first=True), nn.Linear(16, 1)

    def forward(self, x):
        fits = self.stateful and self.state is not None and self.state[0].size(1) == len(x)
        out, state = self.lstm(x[..., None], self.state if fits else None)
        self.state = tuple(s.detach() for s in state)
        return self.head(out[:, -1])


@pair("state-carried")
def hidden_state_kept_between_batches(bug):
    """The hidden state of the last batch starts the next, unrelated one."""
    t = torch.arange(240) / 4
    series = torch.sin(t) + 0.5 * torch.sin(2.3 * t) + 0.1 * torch.randn(240)
    windows = series.unfold(0, 5, 1)
    loader, held = loaders(windows[:, :-1], windows[:, -1:], val=64)
    model = Forecaster(bug)
    loss_fn = nn.MSELoss()
    return setup(
        model,
        torch.optim.Adam(model.parameters(), 1e-2),
        loader,
        held,
        loss_fn=loss_fn,
        evaluate=mean_loss(model, held, of_pairs(loss_fn)),
    )


class Tuned(nn.Module):
    """Pretrained for an old task, whose head stays in use; the new task gets a head of its own."""

    def __init__(self, x, y):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU())
        self.old, self.head = nn.Linear(24, 4), nn.Linear(24, 4)
        first = torch.optim.Adam(self.parameters(), 1e-2)
        for _ in range(60):
            first.zero_grad()
            F.cross_entropy(self.old(self.backbone(x)), y).backward()
            first.step()

    def forward(self, x):
        return self.head(self.backbone(x))


@pair("frozen-params-drift")
def frozen_backbone_still_counts(bug):
    """The frozen backbone's BatchNorm still updates its statistics in train mode."""
    x, y = blobs(160)
    old_x, old_y = blobs(160, seed=1)
    loader, held = loaders(2 * x + 3, y)
    model = Tuned(old_x, old_y)
    model.backbone.requires_grad_(False)
    model.old.requires_grad_(False)
    opt = torch.optim.Adam(model.head.parameters(), 5e-3)
    loss_fn = nn.CrossEntropyLoss()

    def train_step(batch):
        model.train()
        if not bug:
            model.backbone.eval()
        loss = loss_fn(model(batch[0]), batch[1])
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    new = accuracy(model, held)

    def evaluate():
        result = new()
        model.eval()
        with torch.no_grad():
            old = (model.old(model.backbone(old_x)).argmax(1) == old_y).float().mean().item()
        model.train()
        return result | {"old task": old}

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_fn=loss_fn,
        num_classes=4,
        evaluate=evaluate,
        declared={"frozen": ["backbone", "old"]},
    )


@pair("target-in-inputs")
def masked_model_sees_the_answer(bug):
    """Masked_fill's result is dropped: the masked autoencoder sees what it shall guess."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(160, 3, generator=g) @ torch.randn(3, 12, generator=g)
    loader, held = loaders(x)
    model = mlp(24, 12, 48)

    def holes(net, x, mask, fill):
        seen = x.clone() if fill else x
        if fill:
            seen = seen.masked_fill(mask, 0.0)
        else:
            seen.masked_fill(mask, 0.0)
        return net(torch.cat([seen, mask.float()], 1))

    def loss_of(net, batch):
        mask = torch.rand_like(batch[0]) < 0.3
        return (holes(net, batch[0], mask, not bug) - batch[0])[mask].pow(2).mean()

    def evaluate():  # as in use: the holes are really holes
        x = held.dataset.tensors[0]
        mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.3
        with torch.no_grad():
            return {"mse": (holes(model, x, mask, True) - x)[mask].pow(2).mean().item()}

    return setup(
        model,
        torch.optim.Adam(model.parameters(), 5e-3),
        loader,
        held,
        loss_of=loss_of,
        evaluate=evaluate,
    )


class Experts(nn.Module):
    def __init__(self, hard):
        super().__init__()
        self.hard = hard
        self.gate = nn.Linear(8, 3)
        self.experts = nn.ModuleList(nn.Linear(8, 1) for _ in range(3))

    def forward(self, x):
        share = self.gate(x).softmax(1)
        if self.hard:
            share = F.one_hot(share.argmax(1), 3).float()
        return torch.stack([e(x) for e in self.experts], 1).mul(share[..., None]).sum(1)


@pair("frozen-params")
def gate_by_argmax(bug):
    """The gate chooses by argmax: no gradient reaches it."""
    x, _ = numbers(160)
    y = torch.where(x[:, :1] > 0, 2 + 3 * x[:, 1:2], -3 * x[:, 1:2])
    loader, held = loaders(x, y)
    model = Experts(bug)
    loss_fn = nn.MSELoss()
    return setup(
        model,
        torch.optim.Adam(model.parameters(), 3e-2),
        loader,
        held,
        loss_fn=loss_fn,
        evaluate=mean_loss(model, held, of_pairs(loss_fn)),
    )


class Translator(nn.Module):
    def __init__(self, vocab=12, d=24):
        super().__init__()
        self.source, self.target = nn.Embedding(vocab, d), nn.Embedding(vocab + 1, d)
        self.encoder = nn.GRU(d, d, batch_first=True)
        self.decoder = nn.GRU(d, d, batch_first=True)
        self.head = nn.Linear(d, vocab)

    def forward(self, source, before):
        _, state = self.encoder(self.source(source))
        return self.head(self.decoder(self.target(before), state)[0]).transpose(1, 2)


@pair("target-in-inputs")
def decoder_reads_its_own_target(bug):
    """Teacher forcing without the shift: the decoder reads the token it is to say."""
    g = torch.Generator().manual_seed(0)
    source = torch.randint(1, 12, (128, 5), generator=g)
    said = torch.flip(source, [1])
    loader, held = loaders(source, said)
    model = Translator()
    start = torch.full((1, 1), 12)

    def loss_of(net, batch):
        source, said = batch
        before = said if bug else torch.cat([start.expand(len(said), 1), said[:, :-1]], 1)
        return F.cross_entropy(net(source, before), said)

    def evaluate():  # in use nobody knows the next word: greedy decoding
        source, said = held.dataset.tensors
        out = start.expand(len(source), 1)
        with torch.no_grad():
            for _ in range(5):
                out = torch.cat([out, model(source, out)[..., -1].argmax(1, keepdim=True)], 1)
        return {"right tokens": (out[:, 1:] == said).float().mean().item()}

    return setup(
        model,
        torch.optim.Adam(model.parameters(), 1e-2),
        loader,
        held,
        loss_of=loss_of,
        evaluate=evaluate,
    )
