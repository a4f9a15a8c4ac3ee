"""Sequences: classifying, tagging, language models, forecasts."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from course.engine.loss_of import Loss
from tests.debug.faulty.kit import pair
from tests.debug.faulty.unseen.kit import both, dicts, loader, rows, series, stepper, text, tokens


class TinyLM(nn.Module):
    def __init__(self, words=12, width=24, length=16, causal=True):
        super().__init__()
        self.tok = nn.Embedding(words, width)
        self.pos = nn.Parameter(0.02 * torch.randn(length, width))
        self.block = nn.TransformerEncoderLayer(width, 2, 48, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, words)
        self.causal = causal

    def forward(self, ids):
        h = self.tok(ids) + self.pos[: ids.shape[1]]
        mask = None
        if self.causal:
            mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.block(h, src_mask=mask, is_causal=self.causal))


@pair("target-in-inputs")
def lm_not_shifted(bug):
    """A language model's targets are not shifted: it copies the word that it sees."""
    ids = text()
    if bug:
        items = dicts(input_ids=ids, labels=ids)
    else:
        items = dicts(input_ids=ids[:, :-1], labels=ids[:, 1:])
    train, val = both(items)
    model = TinyLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def loss_of(model, batch):
        logits = model(batch["input_ids"])
        value = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
        return Loss(value, len(logits), logits, batch["labels"])

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_of=loss_of,
        train_step=stepper(model, optimizer, lambda b: loss_of(model, b).value),
    )


@pair("sees-the-future")
def lm_no_causal_mask(bug):
    """No causal mask: a position sees the words that it is to predict."""
    train, val = both(list(text(seed=1)))
    model = TinyLM(causal=not bug)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def cost(ids):
        logits = model(ids[:, :-1])
        return F.cross_entropy(logits.transpose(1, 2), ids[:, 1:])

    @torch.no_grad()
    def evaluate():
        model.eval()
        losses = [cost(ids) for ids in val]
        model.train()
        return {"loss": torch.stack(losses).mean().item()}

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        train_step=stepper(model, optimizer, cost),
        evaluate=evaluate,
    )


class Reader(nn.Module):
    def __init__(self, how, words=20, out=2):
        super().__init__()
        self.emb = nn.Embedding(words, 16, padding_idx=0)
        self.gru = nn.GRU(16, 24, batch_first=True)
        self.head = nn.Linear(24, out)
        self.how = how

    def forward(self, ids, lengths):
        h, _ = self.gru(self.emb(ids))
        if self.how == "last column":
            return self.head(h[:, -1])
        return self.head(h[torch.arange(len(h)), lengths - 1])


@pair("padding-not-masked")
def gru_reads_padding(bug):
    """The state after the padding is read, not the one at the last word."""
    ids, lengths, y = tokens()
    train, val = both(dicts(ids=ids, lengths=lengths, label=y))
    model = Reader("last column" if bug else "by length")
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def loss_of(model, batch):
        logits = model(batch["ids"], batch["lengths"])
        return Loss(F.cross_entropy(logits, batch["label"]), len(logits), logits, batch["label"])

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_of=loss_of,
        num_classes=2,
    )


class Tagger(nn.Module):
    def __init__(self, batch_first=True):
        super().__init__()
        self.rnn = nn.GRU(6, 16, batch_first=batch_first, bidirectional=True)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


def tagging(seed=0, n=512, length=10):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, length, 6, generator=g)
    before = torch.cat([torch.zeros(n, 1), x[:, :-1, 0]], 1)
    score = x[..., 1] + before
    return x, (score > -0.6).long() + (score > 0.6).long()


@pair("rows-mixed")
def gru_batch_second(bug):
    """Batch_first is missing: the net runs along the batch, rows mix."""
    x, tags = tagging()
    train, val = both(rows(x, tags))
    model = Tagger(batch_first=not bug)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=lambda out, y: F.cross_entropy(out.transpose(1, 2), y),
    )


@pair("padding-in-the-loss", "padding-not-masked")
def pad_targets_count(bug):
    """Padded targets count in the loss: no ignore_index."""
    ids, _, _ = tokens(seed=3)
    tags = torch.where(ids == 0, 0, 1 + (ids.roll(1, 1) + ids) % 3)
    train, val = both(rows(ids, tags))
    model = TagByConv()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    crit = nn.CrossEntropyLoss(ignore_index=-100 if bug else 0)

    def cost(batch):
        ids, tags = batch
        return crit(model(ids).flatten(0, 1), tags.flatten())

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=lambda out, y: crit(out.flatten(0, 1), y.flatten()),
        train_step=stepper(model, optimizer, cost),
    )


class TagByConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 24, padding_idx=0)
        self.conv = nn.Conv1d(24, 32, 3, padding=1)
        self.head = nn.Linear(32, 4)

    def forward(self, ids):
        h = self.conv(self.emb(ids).transpose(1, 2)).relu().transpose(1, 2)
        return self.head(h * (ids != 0)[..., None])


@pair("state-carried")
def hidden_state_kept(bug):
    """The hidden state of a batch of shuffled sequences flows into the next batch."""
    x, tags = tagging(seed=4)

    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(6, 16, batch_first=True)
            self.head = nn.Linear(16, 3)
            self.hidden = None

        def forward(self, x):
            start = self.hidden if bug else None
            out, (h, c) = self.rnn(x, start)
            self.hidden = (h.detach(), c.detach())
            return self.head(out)

    train, val = both(rows(x, tags))
    model = Keeps()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def cost(batch):
        x, y = batch
        return F.cross_entropy(model(x).transpose(1, 2), y)

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        train_step=stepper(model, optimizer, cost),
    )


def windows(wave, past=16, ahead=1):
    cut = torch.stack([wave[i : i + past + ahead] for i in range(len(wave) - past - ahead)])
    return cut[:, :past, None], cut[:, past:]


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, 20, batch_first=True)
        self.head = nn.Linear(20, 1)

    def forward(self, x):
        return self.head(self.rnn(x)[1][0])


@pair("leak-overlap")
def windows_split_at_random(bug):
    """Overlapping windows of one series are split at random: validation is seen in training."""
    x, y = windows(series())
    if bug:
        order = torch.randperm(len(x))
        x, y = x[order], y[order]
        train, val = both(rows(x, y))
    else:
        train = loader(rows(x[:-145], y[:-145]))
        val = loader(rows(x[-128:], y[-128:]), shuffle=False)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.MSELoss(),
        train_step=stepper(model, optimizer, lambda b: F.mse_loss(model(b[0]), b[1])),
    )


@pair("clip-misplaced")
def clip_after_step(bug):
    """The gradient is clipped after the step: it does nothing."""
    x, y = windows(20 * series(seed=1))
    train = loader(rows(x[:400], y[:400]))
    val = loader(rows(x[420:], y[420:]), shuffle=False)
    model = Forecaster()
    optimizer = torch.optim.SGD(model.parameters(), lr=5e-3, momentum=0.9)

    def train_step(batch):
        x, y = batch
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        if bug:
            optimizer.step()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        else:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        return loss.item()

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.MSELoss(),
        train_step=train_step,
    )


@pair("target-in-inputs")
def forecast_sees_target(bug):
    """The target is the last step of the input window: the forecast copies what it is given."""
    wave = series(seed=2)
    past = 16
    cut = torch.stack([wave[i : i + past + 1] for i in range(len(wave) - past - 1)])
    x = cut[:, 1:] if bug else cut[:, :-1]
    items = dicts(past=x[..., None], future=cut[:, -1:])
    train = loader(items[:-160])
    val = loader(items[-128:], shuffle=False)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def loss_of(model, batch):
        out = model(batch["past"])
        return Loss(F.mse_loss(out, batch["future"]), len(out), out, batch["future"])

    return dict(
        model=model, optimizer=optimizer, train_loader=train, val_loader=val, loss_of=loss_of
    )


@pair("loader-exhausted")
def generator_runs_out(bug):
    """A generator is handed in as the loader: after one pass there are no more batches."""
    x, tags = tagging(seed=5, n=256)

    def stream():
        order = torch.randperm(len(x))
        for part in order.split(32):
            yield x[part], tags[part]

    class Stream:
        def __iter__(self):
            return stream()

    batches = stream() if bug else Stream()
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def train(n_steps):
        done, epochs, losses = 0, 0, []
        while done < n_steps and epochs < n_steps:
            epochs += 1
            for inputs, targets in batches:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(inputs).transpose(1, 2), targets)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                done += 1
                if done == n_steps:
                    break
        return losses

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=batches,
        train=train,
        loss_fn=lambda out, y: F.cross_entropy(out.transpose(1, 2), y),
    )


@pair("class-weights-inverted")
def weights_inverted(bug):
    """Class weights grow with the class's count, not with its rarity."""
    ids, lengths, y = tokens(n=900, seed=6)
    keep = (y == 0) | (torch.rand(len(y)) < 0.15)
    ids, lengths, y = ids[keep], lengths[keep], y[keep]
    train, val = both(dicts(ids=ids, lengths=lengths, label=y), val=96)
    counts = torch.bincount(y).float()
    weight = counts / counts.sum() if bug else counts.sum() / (2 * counts)
    crit = nn.CrossEntropyLoss(weight=weight)
    model = Reader("by length")
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def cost(batch):
        return crit(model(batch["ids"], batch["lengths"]), batch["label"])

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=crit,
        train_step=stepper(model, optimizer, cost),
        num_classes=2,
    )


@pair("labels-shuffled")
def collate_sorts_inputs_only(bug):
    """Collate puts the padded batch in order of length but not the labels."""
    ids, lengths, y = tokens(seed=7)
    items = [(row[:n], label) for row, n, label in zip(ids, lengths, y, strict=True)]

    def collate(batch):
        seqs = [s for s, _ in batch]
        labels = torch.stack([label for _, label in batch])
        order = sorted(range(len(seqs)), key=lambda i: -len(seqs[i]))
        seqs = [seqs[i] for i in order]
        if not bug:
            labels = labels[order]
        lengths = torch.tensor([len(s) for s in seqs])
        return nn.utils.rnn.pad_sequence(seqs, batch_first=True), lengths, labels

    train = loader(items[:-128], collate_fn=collate)
    val = DataLoader(items[-128:], batch_size=32, collate_fn=collate)
    model = Reader("by length")
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def cost(batch):
        ids, lengths, labels = batch
        return F.cross_entropy(model(ids, lengths), labels)

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        train_step=stepper(model, optimizer, cost),
    )
