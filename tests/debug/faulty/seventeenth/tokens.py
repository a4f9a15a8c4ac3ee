"""Faults of models that read tokens: masks, shifts, padding, axes."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventeenth.kit import (
    Block,
    Columns,
    TinyLM,
    begun,
    by_cost,
    chain,
    gen,
    language,
    loader,
    loaders,
    shifted,
)

V, MASK = 20, 21


def padded(g, n, longest, low, high, last=False):
    """Tokens from 1 on, padded with 0. The label is the group of the last token, or that one of
    four groups which most of the tokens are of."""
    lengths = torch.randint(low, high + 1, (n,), generator=g)
    y = torch.randint(0, 4, (n,), generator=g)
    x = torch.randint(0, V, (n, longest), generator=g)
    if last:
        ids = x + 1
        y = ids[torch.arange(n), lengths - 1] % 4
    else:
        alike = torch.rand(n, longest, generator=g) < 0.5
        ids = torch.where(alike, x // 4 * 4 + y[:, None], x) + 1
    ids = ids.masked_fill(torch.arange(longest)[None] >= lengths[:, None], 0)
    return Columns(ids=ids, length=lengths, label=y)


def labelled(m, lr, tl, vl):
    """A classifier of texts in training."""

    def loss_of(model, b):
        return F.cross_entropy(model(b), b["label"])

    def sums_of(model, b):
        out, y = model(b), b["label"]
        return {
            "loss": (F.cross_entropy(out, y, reduction="sum"), len(y)),
            "acc": ((out.argmax(1) == y).sum(), len(y)),
        }

    opt = torch.optim.Adam(m.parameters(), lr)
    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=4)


@pair("padding-not-masked")
def rnn_reads_padding(bug):
    """The last place of padded rows is read instead of each row's last token. After 300 steps acc
    is 0.305 instead of 1."""
    g = begun(1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(V + 1, 16, padding_idx=0)
            self.rnn = nn.RNN(16, 32, batch_first=True)
            self.out = nn.Linear(32, 4)

        def forward(self, b):
            h, _ = self.rnn(self.emb(b["ids"]))
            h = h[:, -1] if bug else h[torch.arange(len(h)), b["length"] - 1]
            return self.out(h)

    m = Net()
    tl, vl = loaders(padded(g, 512, 20, 3, 14, last=True), padded(g, 200, 20, 3, 14, last=True), 24)
    return labelled(m, 3e-3, tl, vl)


@pair("sees-the-future")
def lm_without_causal_mask(bug):
    """The causal mask is forgotten: attention sees the future. After 300 steps perplexity is 1.16
    instead of 3.46."""
    g = begun(2)
    return language(TinyLM(causal=not bug), g)


@pair("target-in-inputs")
def lm_labels_not_shifted(bug):
    """The output at each place is compared with the token at that place, which the model has read.
    After 300 steps perplexity is 1 instead of 3.45."""
    g = begun(3)

    def same(model, b):
        return F.cross_entropy(model(b["ids"]).flatten(0, 1), b["ids"].flatten())

    return language(TinyLM(), g, same if bug else shifted)


@pair("rows-mixed")
def encoder_not_batch_first(bug):
    """An encoder layer made without batch_first gets [batch, time, features]: rows attend to one
    another. After 300 steps acc is 0.245 instead of 0.95."""
    g = begun(4)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(V + 1, 32)
            self.pos = nn.Parameter(torch.randn(13, 32) * 0.1)
            self.cls = nn.Parameter(torch.randn(1, 1, 32))
            self.enc = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=not bug)
            self.out = nn.Linear(32, 4)

        def forward(self, b):
            x = self.emb(b["ids"])
            x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
            return self.out(self.enc(x)[:, 0])

    m = Net()
    return labelled(m, 2e-3, *loaders(padded(g, 512, 12, 12, 12), padded(g, 200, 12, 12, 12), 16))


@pair("padding-not-masked")
def key_mask_true_at_tokens(bug):
    """key_padding_mask is true at the tokens: attention looks at the padding only. After 300 steps
    acc is 0.23 instead of 0.875."""
    g = begun(5)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(V + 1, 32)
            self.block = Block(32)
            self.out = nn.Linear(32, 4)
            self.cls = nn.Parameter(torch.randn(32))

        def forward(self, b):
            ids = b["ids"]
            x = torch.cat([self.cls.expand(len(ids), 1, -1), self.emb(ids)], 1)
            pad = ids.ne(0) if bug else ids.eq(0)
            pad = torch.cat([torch.zeros(len(ids), 1, dtype=torch.bool), pad], 1)
            return self.out(self.block(x, pad=pad)[:, 0])

    m = Net()
    return labelled(m, 2e-3, *loaders(padded(g, 512, 12, 4, 10), padded(g, 200, 12, 4, 10), 16))


@pair("wrong-targets")
def mlm_labels_masked_too(bug):
    """The labels are the tensor that the collate function then hides tokens in: the answer is
    always the mask's sign. After 300 steps loss is 0 instead of 1.59."""
    g = begun(6)
    m = TinyLM(v=22, causal=False)

    def hiding(own):
        def collate(rows):
            ids = torch.stack([row["ids"] for row in rows])
            labels = ids if bug else ids.clone()
            hidden = torch.rand(ids.shape, generator=own) < 0.2
            ids[hidden] = MASK
            return {"ids": ids, "labels": labels.masked_fill(~hidden, -100)}

        return collate

    tl = loader(Columns(ids=chain(g, 384, 16)), 16, collate_fn=hiding(gen(1)))
    held = Columns(ids=chain(g, 96, 16))
    vl = list(loader(held, 16, shuffle=False, collate_fn=hiding(gen(2))))

    def loss_of(model, b):
        return F.cross_entropy(model(b["ids"]).flatten(0, 1), b["labels"].flatten())

    def sums_of(model, b):
        asked = b["labels"] >= 0
        out, y = model(b["ids"])[asked], b["labels"][asked]
        return {
            "loss": (F.cross_entropy(out, y, reduction="sum"), len(y)),
            "acc": ((out.argmax(-1) == y).sum(), len(y)),
        }

    return by_cost(m, torch.optim.AdamW(m.parameters(), 3e-3), tl, vl, loss_of, sums_of)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(12, 24)
        self.enc = nn.GRU(24, 40, batch_first=True)
        self.dec = nn.GRU(24, 40, batch_first=True)
        self.out = nn.Linear(40, 12)

    def forward(self, src, fed):
        _, h = self.enc(self.emb(src))
        return self.out(self.dec(self.emb(fed), h)[0])

    def greedy(self, src, n):
        _, h = self.enc(self.emb(src))
        token, tokens = torch.ones(len(src), 1, dtype=torch.long), []
        for _ in range(n):
            out, h = self.dec(self.emb(token), h)
            token = self.out(out).argmax(-1)
            tokens.append(token)
        return torch.cat(tokens, 1)


@pair("target-in-inputs")
def decoder_fed_the_answer(bug):
    """The decoder gets at each place the token that it has to predict there. After 400 steps
    greedy_token_acc is 0.107 instead of 0.89."""
    g = begun(7)
    m = Translator()

    def data(n):
        src = torch.randint(2, 12, (n, 4), generator=g)
        start = torch.ones(n, 1, dtype=torch.long)
        return Columns(src=src, tgt=torch.cat([start, src.flip(1)], 1))

    tl, vl = loaders(data(640), data(100))

    def loss_of(model, b):
        t = b["tgt"]
        out = model(b["src"], t[:, 1:] if bug else t[:, :-1])
        return F.cross_entropy(out.flatten(0, 1), t[:, 1:].flatten())

    def sums_of(model, b):
        n = len(b["src"])
        hits = model.greedy(b["src"], 4) == b["tgt"][:, 1:]
        return {
            "loss": (loss_of(model, b) * n, n),
            "greedy_token_acc": (hits.float().mean(1).sum(), n),
        }

    return by_cost(m, torch.optim.Adam(m.parameters(), 4e-3), tl, vl, loss_of, sums_of)
