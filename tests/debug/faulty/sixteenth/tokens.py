"""Faults of models that read tokens: shifts, masks, padding, axes, order of labels."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixteenth.kit import (
    Chained,
    by_cost,
    by_pairs,
    chain,
    gen,
    loaders,
    named,
    seed,
    split,
)


@pair("target-in-inputs")
def lm_targets_not_shifted(bug):
    """A GRU language model is scored on the token that it has just read instead of on the next:
    it copies its input. After 300 steps val_nll is 0.0022 instead of 1.51."""
    seed(1)
    tl, vl = loaders(*named(700, input_ids=chain(900, 14, 12, 1)))
    m = Chained(12)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def nll(model, b, reduction="mean"):
        ids = b["input_ids"]
        if bug:
            logits, y = model(ids), ids
        else:
            logits, y = model(ids[:, :-1]), ids[:, 1:]
        cost = F.cross_entropy(logits.reshape(-1, 12), y.reshape(-1), reduction=reduction)
        return cost, y.numel()

    def loss_of(model, b):
        return nll(model, b)[0]

    return by_cost(m, opt, tl, vl, loss_of, lambda model, b: {"val_nll": nll(model, b, "sum")})


class Encoder(nn.Module):
    def __init__(self, V, T, out, d=24, layers=1):
        super().__init__()
        self.tok = nn.Embedding(V, d)
        self.pos = nn.Parameter(torch.randn(T, d) * 0.1)
        layer = nn.TransformerEncoderLayer(d, 2, 48, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(
            layer, layers, norm=nn.LayerNorm(d), enable_nested_tensor=False
        )
        self.out = nn.Linear(d, out)

    def body(self, ids, mask=None, pad=None):
        h = self.tok(ids) + self.pos[: ids.shape[1]]
        return self.enc(h, mask=mask, src_key_padding_mask=pad)


@pair("sees-the-future")
def transformer_without_causal_mask(bug):
    """The attention of a next-token transformer may look at later tokens. After 300 steps val_nll
    is 1.02 instead of 1.48."""
    seed(2)

    class Causal(Encoder):
        def forward(self, ids):
            T = ids.shape[1]
            mask = None if bug else torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
            return self.out(self.body(ids, mask))

    tl, vl = loaders(*named(1000, tokens=chain(1200, 13, 12, 2)))
    m = Causal(12, 12, 12, layers=2)
    opt = torch.optim.AdamW(m.parameters(), 4e-3, weight_decay=0.01)

    def loss_of(model, b, reduction="mean"):
        out = model(b["tokens"][:, :-1]).flatten(0, 1)
        return F.cross_entropy(out, b["tokens"][:, 1:].flatten(), reduction=reduction)

    def sums_of(model, b):
        return {"val_nll": (loss_of(model, b, "sum"), b["tokens"][:, 1:].numel())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Tagger(nn.Module):
    def __init__(self, V, C, h=24):
        super().__init__()
        self.emb = nn.Embedding(V, h, padding_idx=0)
        self.rnn = nn.GRU(h, h, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * h, C)

    def forward(self, ids, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.emb(ids), lengths, batch_first=True, enforce_sorted=False
        )
        h, _ = nn.utils.rnn.pad_packed_sequence(
            self.rnn(packed)[0], batch_first=True, total_length=ids.shape[1]
        )
        return self.out(h)


@pair("padding-in-the-loss")
def tagger_pads_counted(bug):
    """The padding of a tagger's sentences is labelled 0, which is a tag, and counted as targets and
    hits. After 300 steps tag_acc is 0.938 instead of 0.814."""
    seed(3)
    g = gen(3)
    N, T, V, C = 700, 16, 30, 4
    ids = torch.randint(1, V, (N, T), generator=g)
    tag_of = torch.randint(1, C, (V,), generator=g)
    prev = torch.cat([torch.ones(N, 1, dtype=torch.long), ids[:, :-1]], 1)
    tags = torch.where(prev % 3 == 0, torch.zeros_like(ids), tag_of[ids])
    noise = torch.rand(N, T, generator=g) < 0.25
    tags = torch.where(noise, torch.randint(0, C, (N, T), generator=g), tags)
    lengths = torch.randint(3, T // 2, (N,), generator=g)
    lengths[::20] = T
    pad = torch.arange(T)[None] >= lengths[:, None]
    ids = ids.masked_fill(pad, 0)
    tags = tags.masked_fill(pad, 0 if bug else -100)
    tl, vl = loaders(*named(550, ids=ids, tags=tags, lengths=lengths))
    m = Tagger(V, C)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.CrossEntropyLoss() if bug else nn.CrossEntropyLoss(ignore_index=-100)

    def loss_of(model, b):
        return crit(model(b["ids"], b["lengths"]).flatten(0, 1), b["tags"].flatten())

    def sums_of(model, b):
        hits = model(b["ids"], b["lengths"]).argmax(-1) == b["tags"]
        keep = b["tags"] != -100
        return {"tag_acc": (hits[keep].sum(), keep.sum())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("padding-not-masked")
def key_padding_mask_inverted(bug):
    """src_key_padding_mask is true where a token is to be kept, but true means to ignore it:
    attention sees only the padding. After 300 steps acc is 0.5 instead of 1."""
    seed(4)
    g = gen(4)
    N, T, V = 1000, 14, 20
    ids = torch.randint(4, V, (N, T), generator=g)
    lengths = torch.randint(5, T - 1, (N,), generator=g)
    y = torch.randint(0, 2, (N,), generator=g)
    at = 1 + (torch.rand(N, generator=g) * (lengths - 1)).long()
    # the deciding word, and the sign of the beginning whose output is read
    ids[torch.arange(N), at] = 2 + y
    ids[:, 0] = 1
    ids[torch.arange(T)[None] >= lengths[:, None]] = 0

    class Classifier(Encoder):
        def forward(self, ids):
            pad = ids == 0
            return self.out(self.body(ids, pad=~pad if bug else pad)[:, 0])

    tl, vl = loaders(*named(800, input_ids=ids, label=y))
    m = Classifier(V, T, 2)
    opt = torch.optim.Adam(m.parameters(), 4e-3)

    def loss_of(model, b):
        return F.cross_entropy(model(b["input_ids"]), b["label"])

    def sums_of(model, b):
        hits = model(b["input_ids"]).argmax(1) == b["label"]
        return {"acc": (hits.sum(), len(b["label"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=2)


@pair("rows-mixed")
def gru_batch_first_forgotten(bug):
    """Sensors' sequences [batch, time, features] are fed to a GRU that expects the time first:
    examples mix. After 300 steps val_acc is 0.595 instead of 0.97."""
    seed(5)
    g = gen(5)
    x = torch.randn(900, 10, 4, generator=g)
    y = (x[:, :, 0].cumsum(1)[:, -1] + 0.3 * x[:, 2, 1] > 0).long()

    class Sensors(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(4, 24, batch_first=not bug)
            self.head = nn.Linear(24, 2)

        def forward(self, x):
            return self.head(self.rnn(x)[0][:, -1])

    tl, vl = loaders(*split(x, y, val=200))
    m = Sensors()
    return by_pairs(m, torch.optim.Adam(m.parameters(), 5e-3), tl, vl, num_classes=2)


class Masked(Encoder):
    def forward(self, ids):
        return self.out(self.body(ids))


@pair("target-in-inputs")
def mlm_ignore_inverted(bug):
    """labels[masked] = -100 where labels[~masked] = -100 is meant: the loss is taken on the visible
    tokens. After 300 steps mlm_acc is 1 instead of 0.409."""
    seed(6)
    V, T, MASK = 12, 10, 12
    x = chain(1100, T, V, 6)
    # odd places follow from their left neighbour
    x[:, 1::2] = (x[:, 0::2] * 5 + 1) % V

    def collate_with(g):
        def collate(items):
            ids = torch.stack([i["ids"] for i in items])
            masked = torch.rand(ids.shape, generator=g) < 0.2
            masked[:, 1] |= ~masked.any(1)
            labels = ids.clone()
            labels[masked if bug else ~masked] = -100
            return {"input_ids": ids.masked_fill(masked, MASK), "labels": labels}

        return collate

    tr, va = named(900, ids=x)
    tl = DataLoader(tr, 16, shuffle=True, generator=gen(6), collate_fn=collate_with(gen(61)))
    # validation has the same masks each time
    held = collate_with(gen(62))
    vl = [held([va[i] for i in range(a, min(a + 64, len(va)))]) for a in range(0, len(va), 64)]
    m = Masked(V + 1, T, V)
    opt = torch.optim.AdamW(m.parameters(), 4e-3)

    def loss_of(model, b):
        out = model(b["input_ids"]).flatten(0, 1)
        return F.cross_entropy(out, b["labels"].flatten(), ignore_index=-100)

    def sums_of(model, b):
        keep = b["labels"] != -100
        hits = model(b["input_ids"]).argmax(-1) == b["labels"]
        return {"mlm_acc": (hits[keep].sum(), keep.sum())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Packed(nn.Module):
    def __init__(self, V, C, h=24):
        super().__init__()
        self.emb = nn.Embedding(V, h, padding_idx=0)
        self.rnn = nn.GRU(h, h, batch_first=True)
        self.out = nn.Linear(h, C)

    def forward(self, ids, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.emb(ids), lengths, batch_first=True)
        return self.out(self.rnn(packed)[1][-1])


@pair("labels-shuffled")
def collate_sorts_texts_not_labels(bug):
    """collate sorts the texts by length for packing and leaves the labels in the old order. After
    300 steps acc is 0.267 instead of 1."""
    seed(7)
    g = gen(7)
    data = []
    for _ in range(700):
        length = int(torch.randint(3, 12, (1,), generator=g))
        y = int(torch.randint(0, 3, (1,), generator=g))
        words = torch.randint(1, 16, (length,), generator=g)
        words[torch.randint(0, length, (2,), generator=g)] = 16 + y
        data.append((words, y))

    def collate(items):
        ids, ys = zip(*items, strict=True)
        lengths = torch.tensor([len(i) for i in ids])
        order = lengths.argsort(descending=True, stable=True)
        pad = nn.utils.rnn.pad_sequence(ids, batch_first=True)
        y = torch.tensor(ys)
        return pad[order], lengths[order], (y if bug else y[order])

    tl = DataLoader(data[:550], 16, shuffle=True, generator=gen(0), collate_fn=collate)
    vl = DataLoader(data[550:], 32, generator=gen(1), collate_fn=collate)
    m = Packed(20, 3)
    opt = torch.optim.Adam(m.parameters(), 4e-3)

    def loss_of(model, b):
        return F.cross_entropy(model(b[0], b[1]), b[2])

    def sums_of(model, b):
        return {"acc": ((model(b[0], b[1]).argmax(1) == b[2]).sum(), len(b[2]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=3)
