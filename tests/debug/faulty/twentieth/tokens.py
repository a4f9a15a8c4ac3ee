"""Faults of models that read tokens and series: shifts, masks, padding, axes, labels, orders."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twentieth.kit import (
    Chained,
    TinyGPT,
    averaged,
    by_cost,
    by_errors,
    chain,
    feed,
    gen,
    loaders,
    mlp,
    phrases,
    seed,
)


@pair("target-in-inputs")
def lm_no_shift(bug):
    """The target of each place is its own token, not the next one. After 200 steps perplexity is
    1.01 instead of 4.94."""
    seed()
    V = 16
    m = Chained(V)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(chain(320, 12, V, 1), chain(80, 12, V, 2))

    def loss_of(model, ids):
        logits = model(ids)
        if bug:
            return F.cross_entropy(logits.reshape(-1, V), ids.reshape(-1))
        return F.cross_entropy(logits[:, :-1].reshape(-1, V), ids[:, 1:].reshape(-1))

    def sums_of(model, ids):
        return {"val_loss": (loss_of(model, ids) * len(ids), len(ids))}

    mean = averaged(m, vl, sums_of)

    def evaluate():
        scores = mean()
        return scores | {"perplexity": math.exp(scores["val_loss"])}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate, num_classes=V)


@pair("sees-the-future")
def gpt_without_its_mask(bug):
    """The causal mask is left out: each place sees the token that it must predict. After 200 steps
    val_loss is 1.23 instead of 1.57."""
    seed()
    V, T = 16, 13

    def data(n, s):
        ids = chain(n, T, V, s)
        return {"input_ids": ids[:, :-1], "labels": ids[:, 1:]}

    m = TinyGPT(V, T - 1, causal=not bug)
    opt = torch.optim.AdamW(m.parameters(), 3e-3)
    tl, vl = loaders(data(320, 1), data(90, 2))

    def loss_of(model, b):
        return F.cross_entropy(model(b["input_ids"]).flatten(0, 1), b["labels"].flatten())

    def sums_of(model, b):
        out = model(b["input_ids"]).flatten(0, 1)
        y = b["labels"].flatten()
        return {
            "val_loss": (F.cross_entropy(out, y, reduction="sum"), len(y)),
            "next_token_acc": ((out.argmax(1) == y).sum(), len(y)),
        }

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=V)


@pair("padding-in-the-loss")
def seq2seq_pad_in_loss(bug):
    """Padding counts in the loss and in the metric, which it swamps. After 200 steps token_acc is
    0.764 instead of 0.603, most of it for the padding."""
    seed()
    V, T, BEGIN = 14, 12, 1

    def data(n, s):
        g = gen(s)
        lengths = torch.full((n,), T)
        src = torch.zeros(n, T, dtype=torch.long)
        tgt = torch.zeros(n, T, dtype=torch.long)
        for i in range(n):
            if torch.rand(1, generator=g) < 0.95:
                lengths[i] = int(torch.randint(3, 8, (1,), generator=g))
            k = int(lengths[i])
            src[i, :k] = torch.randint(2, V, (k,), generator=g)
            tgt[i, :k] = src[i, :k].flip(0)
        dec_in = F.pad(tgt[:, :-1], (1, 0), value=BEGIN)
        return {"src": src, "len": lengths, "dec_in": dec_in, "tgt": tgt}

    class Net(nn.Module):
        def __init__(self, h=24):
            super().__init__()
            self.emb = nn.Embedding(V, h, padding_idx=0)
            self.enc = nn.GRU(h, h, batch_first=True)
            self.dec = nn.GRU(h, h, batch_first=True)
            self.out = nn.Linear(h, V)

        def forward(self, src, lengths, dec_in):
            packed = nn.utils.rnn.pack_padded_sequence(
                self.emb(src), lengths, batch_first=True, enforce_sorted=False
            )
            h = self.enc(packed)[1]
            return self.out(self.dec(self.emb(dec_in), h)[0])

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.CrossEntropyLoss() if bug else nn.CrossEntropyLoss(ignore_index=0)
    tl, vl = loaders(data(400, 1), data(90, 2), 10)

    def outputs(model, b):
        return model(b["src"], b["len"], b["dec_in"])

    def loss_of(model, b):
        return crit(outputs(model, b).transpose(1, 2), b["tgt"])

    def sums_of(model, b):
        hit = outputs(model, b).argmax(2) == b["tgt"]
        keep = torch.ones_like(hit) if bug else b["tgt"] != 0
        return {"token_acc": ((hit & keep).sum(), keep.sum())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, loss_fn=crit, num_classes=V)


@pair("wrong-gradient")
def attends_only_to_padding(bug):
    """key_padding_mask is True for the real tokens, not for the padding: only padding is attended
    to. After 200 steps val_acc is 0.308 instead of 1."""
    seed()
    V, T, k = 20, 12, 4

    def data(n, s):
        g = gen(s)
        ids = torch.zeros(n, T, dtype=torch.long)
        label = torch.zeros(n, dtype=torch.long)
        for i in range(n):
            length = int(torch.randint(4, T, (1,), generator=g))
            label[i] = int(torch.randint(k, (1,), generator=g))
            words = torch.randint(1 + k, V, (length,), generator=g)
            words[torch.randint(length, (1,), generator=g)] = 1 + label[i]
            ids[i, :length] = words
        return {"ids": ids, "label": label}

    class Reader(nn.Module):
        def __init__(self, d=32):
            super().__init__()
            self.tok = nn.Embedding(V, d, padding_idx=0)
            self.cls = nn.Parameter(torch.randn(1, 1, d) * 0.1)
            self.pos = nn.Parameter(0.1 * torch.randn(T, d))
            self.att = nn.MultiheadAttention(d, 2, batch_first=True)
            self.n = nn.LayerNorm(d)
            self.ff = mlp(d, 64, k)

        def forward(self, ids):
            h = self.tok(ids) + self.pos
            mask = (ids != 0) if bug else (ids == 0)
            q = self.cls.expand(len(ids), -1, -1)
            a, _ = self.att(q, h, h, key_padding_mask=mask)
            return self.ff(self.n(a[:, 0] + q[:, 0]))

    m = Reader()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(data(400, 1), data(120, 2))

    def loss_of(model, b):
        return F.cross_entropy(model(b["ids"]), b["label"])

    def sums_of(model, b):
        return {"val_acc": ((model(b["ids"]).argmax(1) == b["label"]).sum(), len(b["label"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=k)


@pair("padding-not-masked")
def gru_output_of_the_last_column(bug):
    """The output of the last column is read, which is padding for nearly all, not that of each
    row's last token. After 200 steps val_acc is 0.34 instead of 0.98."""
    seed()
    V, T, k = 12, 16, 5

    def data(n, s):
        g = gen(s)
        lengths = torch.randint(2, 9, (n,), generator=g)
        lengths[::40] = T
        ids = torch.zeros(n, T, dtype=torch.long)
        label = torch.zeros(n, dtype=torch.long)
        for i in range(n):
            end = int(lengths[i])
            ids[i, :end] = torch.randint(1, V, (end,), generator=g)
            label[i] = (ids[i, end - 1] + ids[i, end - 2]) % k
        return {"ids": ids, "lengths": lengths, "label": label}

    class Net(nn.Module):
        def __init__(self, h=24):
            super().__init__()
            self.emb = nn.Embedding(V, h, padding_idx=0)
            self.gru = nn.GRU(h, h, batch_first=True)
            self.out = nn.Linear(h, k)

        def forward(self, ids, lengths):
            o, _ = self.gru(self.emb(ids))
            if bug:
                return self.out(o[:, -1])
            return self.out(o[torch.arange(len(ids)), lengths - 1])

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    tl, vl = loaders(data(800, 1), data(200, 2), 32)

    def loss_of(model, b):
        return F.cross_entropy(model(b["ids"], b["lengths"]), b["label"])

    def sums_of(model, b):
        hits = model(b["ids"], b["lengths"]).argmax(1) == b["label"]
        return {"val_acc": (hits.sum(), len(hits))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=k)


@pair("rows-mixed")
def gru_without_batch_first(bug):
    """The GRU gets batch, time and features without batch_first: it runs along the batch. After 200
    steps val_mse is 0.963 instead of 0.205."""
    seed()

    def data(n, s):
        x = torch.randn(n, 10, 2, generator=gen(s))
        w = torch.linspace(0.1, 1, 10)
        y = (x[..., 0] * w).sum(1, keepdim=True) * 0.5 + 0.5 * x[:, 3:4, 1]
        return x, y

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(2, 24, batch_first=not bug)
            self.out = nn.Linear(24, 1)

        def forward(self, x):
            o, _ = self.rnn(x)
            return self.out(o[:, -1])

    m = Forecaster()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    tl, vl = loaders(data(480, 1), data(110, 2))
    return by_errors(m, opt, tl, vl)


@pair("target-in-inputs")
def mlm_labels_inverted(bug):
    """The labels are -100 where a token is hidden, and kept where it is seen: copying is scored.
    After 600 steps masked_acc is 0.18 instead of 0.55."""
    seed()
    V, T, MASK = 17, 12, 16
    g = gen(5)

    def collate(rows):
        ids = torch.stack(rows)
        hidden = torch.rand(ids.shape, generator=g) < 0.2
        hidden[:, 5] |= ~hidden.any(1)
        labels = ids.masked_fill(hidden if bug else ~hidden, -100)
        seen = ids.masked_fill(hidden, MASK)
        return {"input_ids": seen, "labels": labels, "masked": hidden, "ids": ids}

    tl = feed(chain(400, T, 16, 1), collate_fn=collate)
    rows = chain(100, T, 16, 2)
    hidden = torch.rand(100, T, generator=gen(7)) < 0.2
    vl = feed((rows.masked_fill(hidden, MASK), rows, hidden), shuffle=False)
    m = TinyGPT(V, T, causal=False)
    opt = torch.optim.AdamW(m.parameters(), 8e-3)

    def loss_of(model, b):
        out = model(b["input_ids"]).flatten(0, 1)
        return F.cross_entropy(out, b["labels"].flatten(), ignore_index=-100)

    def sums_of(model, b):
        x, ids, hidden = b
        return {"masked_acc": (((model(x).argmax(2) == ids) & hidden).sum(), hidden.sum())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=V)


@pair("labels-shuffled")
def collate_leaves_the_labels(bug):
    """The collate function sorts the sequences by length, and leaves the labels in their order.
    After 200 steps val_acc is 0.283 instead of 0.9."""
    seed()

    def collate(rows):
        labels = torch.tensor([y for _, y in rows])
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i][0]))
        ids = [rows[i][0] for i in order]
        if not bug:
            labels = labels[order]
        lengths = torch.tensor([len(s) for s in ids])
        return nn.utils.rnn.pad_sequence(ids, batch_first=True), lengths, labels

    class Packed(nn.Module):
        def __init__(self, h=24):
            super().__init__()
            self.emb = nn.Embedding(15, h, padding_idx=0)
            self.gru = nn.GRU(h, h, batch_first=True)
            self.out = nn.Linear(h, 3)

        def forward(self, x, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(self.emb(x), lengths, batch_first=True)
            return self.out(self.gru(packed)[1][0])

    m = Packed()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(phrases(480, gen(1)), phrases(120, gen(2)), collate_fn=collate)

    def loss_of(model, b):
        return F.cross_entropy(model(b[0], b[1]), b[2])

    def sums_of(model, b):
        return {"val_acc": ((model(b[0], b[1]).argmax(1) == b[2]).sum(), len(b[2]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=3)
