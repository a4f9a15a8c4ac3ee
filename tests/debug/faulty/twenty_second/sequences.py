"""Faults of models that read tokens, speech and series: masks, padding, axes, labels, tables."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_second.kit import (
    Forecaster,
    TinyLM,
    averaged,
    by_classes,
    by_cost,
    by_pairs,
    gen,
    loaders,
    mlp,
    right,
    seed,
    successors,
    topics,
    waves,
)


class BiGRU(nn.Module):
    def __init__(self, is_mixed):
        super().__init__()
        self.emb = nn.Embedding(20, 12)
        self.gru = nn.GRU(12, 16, batch_first=True, bidirectional=True)
        self.out = nn.Linear(32, 4)
        self.is_mixed = is_mixed

    def forward(self, x):
        _, h = self.gru(self.emb(x))
        if self.is_mixed:
            h = h.view(x.size(0), -1)
        else:
            h = h.transpose(0, 1).reshape(x.size(0), -1)
        return self.out(h)


@pair("rows-mixed")
def bigru_view(bug):
    """The last states [2, B, H] of both directions are viewed as [B, 2H] without a transpose. After
    300 steps accuracy is 0.262 instead of 0.98."""
    seed()
    tl, vl = loaders(topics(640, 10, 20, 4, 1), topics(202, 10, 20, 4, 2), 32)
    m = BiGRU(bug)
    return by_classes(m, torch.optim.Adam(m.parameters(), 5e-3), tl, vl, 4)


@pair("sees-the-future")
def prefixes_scored_without_a_mask(bug):
    """A transformer predicts the next token without the causal mask. After 300 steps nll is 0.161
    instead of 1.58, and prefix_accuracy 0.245 instead of 0.685."""
    seed()
    V, T = 12, 13
    m = TinyLM(V, T - 1, causal=not bug)
    opt = torch.optim.AdamW(m.parameters(), 5e-3)
    train = {"input_ids": successors(640, T, V, 1)}
    tl, vl = loaders(train, {"input_ids": successors(200, T, V, 2)}, 24, 32)

    def loss_of(model, b, reduction="mean"):
        ids = b["input_ids"]
        out = model(ids[:, :-1]).flatten(0, 1)
        return F.cross_entropy(out, ids[:, 1:].flatten(), reduction=reduction)

    def sums_of(model, b):
        """The next token is read at the last place of a prefix, as generation reads it."""
        ids = b["input_ids"]
        nll = {"nll": (loss_of(model, b, "sum"), ids[:, 1:].numel())}
        return nll | right(model(ids[:, :6])[:, -1], ids[:, 6], "prefix_accuracy")

    mean = averaged(m, vl, sums_of)

    def evaluate():
        scores = mean()
        return scores | {"perplexity": math.exp(scores["nll"])}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


def padded(n, t, s, low=3, high=None):
    """Tokens [n, t] behind whose lengths [n] is padding, and their classes [n]."""
    x, y = topics(n, t, 20, 3, s)
    lengths = torch.randint(low, (high or t - 1) + 1, (n,), generator=gen(s + 50))
    return x * (torch.arange(t) < lengths[:, None]), lengths, y


class AttentivePool(nn.Module):
    def __init__(self, is_inverted):
        super().__init__()
        self.emb = nn.Embedding(20, 16, padding_idx=0)
        self.q = nn.Parameter(torch.randn(1, 1, 16) * 0.1)
        self.att = nn.MultiheadAttention(16, 2, batch_first=True)
        self.out = mlp(16, 16, 3)
        self.is_inverted = is_inverted

    def forward(self, x):
        mask = (x != 0) if self.is_inverted else (x == 0)
        e = self.emb(x)
        h, _ = self.att(self.q.expand(len(x), -1, -1), e, e, key_padding_mask=mask)
        return self.out(h[:, 0])


@pair("wrong-gradient")
def pool_keeps_only_the_padding(bug):
    """key_padding_mask is True where tokens are real. After 300 steps accuracy is 0.351 instead of
    0.96."""
    seed()
    x, _, y = padded(640, 12, 1)
    vx, _, vy = padded(202, 12, 2)
    m = AttentivePool(bug)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders({"tokens": x, "label": y}, {"tokens": vx, "label": vy}, 32)

    def loss_of(model, b):
        return F.cross_entropy(model(b["tokens"]), b["label"])

    def sums_of(model, b):
        return right(model(b["tokens"]), b["label"])

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=3)


class GRUTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 12, padding_idx=0)
        self.gru = nn.GRU(12, 16, batch_first=True)
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        return self.out(self.gru(self.emb(x))[0])


@pair("padding-in-the-loss")
def padding_tagged_as_class_0(bug):
    """The tags are padded with 0, which is a real tag, and most tokens are padding. After 300 steps
    token_accuracy is 0.894 instead of 0.861."""
    seed()
    behind = torch.tensor(0 if bug else -100)

    def data(n, s):
        g = gen(s)
        x = torch.randint(1, 30, (n, 16), generator=g)
        lengths = torch.randint(3, 8, (n,), generator=g)
        is_real = torch.arange(16) < lengths[:, None]
        before = F.pad(x[:, :-1], (1, 0))
        is_noise = torch.rand(n, 16, generator=g) < 0.15
        noise = torch.randint(0, 4, (n, 16), generator=g)
        tags = torch.where(is_noise, noise, (x + before) % 4)
        return {"ids": x * is_real, "tags": torch.where(is_real, tags, behind)}

    m = GRUTagger()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(data(640, 1), data(202, 2), 32)

    def loss_of(model, b):
        return F.cross_entropy(model(b["ids"]).flatten(0, 1), b["tags"].flatten())

    def sums_of(model, b):
        hits, is_counted = model(b["ids"]).argmax(-1) == b["tags"], b["tags"] != -100
        return {"token_accuracy": ((hits & is_counted).sum(), is_counted.sum())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=4)


class LastState(nn.Module):
    def __init__(self, is_last_column):
        super().__init__()
        self.emb = nn.Embedding(20, 12, padding_idx=0)
        self.rnn = nn.GRU(12, 16, batch_first=True)
        self.out = nn.Linear(16, 3)
        self.is_last_column = is_last_column

    def forward(self, x, lengths):
        h, _ = self.rnn(self.emb(x))
        if self.is_last_column:
            return self.out(h[:, -1])
        return self.out(h[torch.arange(len(x)), lengths - 1])


@pair("padding-not-masked")
def last_state_of_padding(bug):
    """The state of the last column is read, which lies up to 21 places behind the last word. After
    300 steps accuracy is 0.3 instead of 0.947."""
    seed()
    tl, vl = loaders(padded(480, 24, 1, 3, 9), padded(150, 24, 2, 3, 9), 32)
    m = LastState(bug)
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)

    def loss_of(model, b):
        return F.cross_entropy(model(b[0], b[1]), b[2])

    def sums_of(model, b):
        return right(model(b[0], b[1]), b[2])

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=3)


@pair("wrong-targets")
def ctc_blank_is_a_letter(bug):
    """Letters are numbered from 0, which is the blank of ctc_loss and of the decoder. After 300
    steps exact is 0.46 instead of 1."""
    seed()
    C, T = 5, 16

    def data(n, s):
        g = gen(s)
        code = torch.randn(C, 8, generator=gen(3))
        text = torch.randint(1, C, (n, 3), generator=g)
        spoken = torch.zeros(n, T, dtype=torch.long)
        for j in range(3):
            spoken[:, 5 * j : 5 * j + 3] = text[:, j : j + 1]
        frames = code[spoken] + 0.3 * torch.randn(n, T, 8, generator=g)
        return {"frames": frames, "text": text - 1 if bug else text}

    m = mlp(8, 24, C)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    tl, vl = loaders(data(320, 1), data(100, 2), 16)

    def loss_of(model, b):
        out = model(b["frames"]).log_softmax(-1).transpose(0, 1)
        n = len(b["text"])
        return F.ctc_loss(out, b["text"], torch.full((n,), T), torch.full((n,), 3), blank=0)

    def sums_of(model, b):
        hits = 0
        for p, text in zip(model(b["frames"]).argmax(-1), b["text"], strict=True):
            p = torch.unique_consecutive(p)
            hits += p[p != 0].tolist() == text.tolist()
        return {"exact": (hits, len(b["text"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@pair("broadcast-loss")
def forecast_broadcast(bug):
    """Forecasts [B, 1] less targets [B] are a table [B, B]. After 300 steps mae is 0.618 instead of
    0.09."""
    seed()

    def data(n, s):
        x, y = waves(n, s)
        return x, y if bug else y[:, None]

    m = Forecaster()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    tl, vl = loaders(data(640, 1), data(202, 2), 32)

    def crit(p, y):
        return ((p - y) ** 2).mean()

    def sums_of(model, b):
        return {"mae": ((model(b[0]).flatten() - b[1].flatten()).abs().sum(), len(b[1]))}

    return by_pairs(m, opt, tl, vl, crit, evaluate=averaged(m, vl, sums_of))


class Bag(nn.Module):
    def __init__(self, v):
        super().__init__()
        self.emb = nn.Embedding(v, 12)
        self.body = mlp(12, 24, 3)

    def forward(self, x):
        return self.body(self.emb(x).mean(1))


@pair("optimizer-stale-params")
def embedding_grown_after_optimizer(bug):
    """The embedding gets new rows after the optimizer was made, which keeps the old table. After
    300 steps accuracy is 0.351 instead of 1."""
    seed()
    V, NEW = 20, 6

    def data(n, s):
        g = gen(s)
        x = torch.randint(0, V, (n, 6), generator=g)
        special = torch.randint(0, NEW, (n,), generator=g)
        x[:, 0] = V + special
        return {"input_ids": x, "labels": special % 3}

    m = Bag(V)

    def grow():
        old = m.emb.weight.data
        m.emb = nn.Embedding(V + NEW, 12)
        m.emb.weight.data[:V] = old
        m.emb.weight.data[V:] = old.mean(0)

    if not bug:
        grow()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    if bug:
        grow()
    tl, vl = loaders(data(640, 1), data(202, 2), 32)

    def loss_of(model, b):
        return F.cross_entropy(model(b["input_ids"]), b["labels"])

    def sums_of(model, b):
        return right(model(b["input_ids"]), b["labels"])

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=3)


class Positioned(nn.Module):
    """Sines and cosines of the place are added, made for [T, B, D]."""

    def __init__(self, v, is_of_row, d=24):
        super().__init__()
        self.emb = nn.Embedding(v, d)
        place = torch.arange(200.0)[:, None]
        rate = torch.exp(torch.arange(0, d, 2) * (-math.log(1000.0) / d))
        code = torch.zeros(200, 1, d)
        code[:, 0, 0::2] = torch.sin(place * rate)
        code[:, 0, 1::2] = torch.cos(place * rate)
        self.register_buffer("code", code)
        self.att = nn.MultiheadAttention(d, 2, batch_first=True)
        self.out = mlp(d, 32, v)
        self.is_of_row = is_of_row

    def forward(self, x):
        h = self.emb(x) * 0.5
        if self.is_of_row:
            h = h + self.code[: x.size(0)]
        else:
            h = h + self.code[: x.size(1)].transpose(0, 1)
        return self.out(h + self.att(h, h, h, need_weights=False)[0])


@pair("rows-mixed")
def positions_by_row_of_the_batch(bug):
    """The code of a row's number in the batch is added, not that of the place. After 300 steps
    token_accuracy is 0.27 instead of 1."""
    seed()
    V = 8

    def data(n, s):
        """Each place has to name the first token."""
        x = torch.randint(0, V, (n, 8), generator=gen(s))
        return x, x[:, :1] + 0 * x

    m = Positioned(V, bug)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(data(640, 1), data(202, 2), 32)

    def loss_of(model, b):
        return F.cross_entropy(model(b[0]).flatten(0, 1), b[1].flatten())

    def sums_of(model, b):
        return right(model(b[0]), b[1], "token_accuracy")

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=V)
