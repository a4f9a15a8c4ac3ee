"""Faults of sequences: masks, padding, order, shifts, windows, ranks."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_sixth.kit import (
    averaged,
    by_cost,
    by_pairs,
    class_sums,
    feed,
    gen,
    loaders,
    next_sums,
    right,
    sayings,
    seed,
    words,
)


class ConvLM(nn.Module):
    def __init__(self, V, both):
        super().__init__()
        self.emb = nn.Embedding(V, 24)
        self.layers = nn.ModuleList([nn.Conv1d(24, 24, 3, dilation=d) for d in (1, 2)])
        self.head = nn.Linear(24, V)
        self.both = both

    def forward(self, x):
        h = self.emb(x).transpose(1, 2)
        for layer in self.layers:
            d = layer.dilation[0]
            sides = (d, d) if self.both else (2 * d, 0)
            h = h + F.relu(layer(F.pad(h, sides)))
        return self.head(h.transpose(1, 2))


@pair("sees-the-future")
def convolutions_padded_on_both_sides(bug):
    """A language model of dilated convolutions is padded on both sides and sees the token it is
    to predict. After 150 steps the held loss is 0.095 instead of 0.92."""
    seed(41)
    tl, vl = feed(words(320, 16, 20, 411), 16), feed(words(160, 16, 20, 412), 40, shuffle=False)
    m = ConvLM(20, bug)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, x):
        return F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())

    return by_cost(m, opt, tl, vl, loss_of, next_sums, num_classes=20)


class LastWord(nn.Module):
    def __init__(self, bug):
        super().__init__()
        self.emb = nn.Embedding(16, 16, padding_idx=0)
        self.rnn = nn.RNN(16, 24, batch_first=True)
        self.head = nn.Linear(24, 3)
        self.bug = bug

    def forward(self, x):
        h = self.rnn(self.emb(x))[0]
        if self.bug:
            return self.head(h[:, -1])
        return self.head(h[torch.arange(len(x)), (x > 0).sum(1) - 1])


@pair("padding-not-masked", "mask-ignored")
def state_taken_behind_the_padding(bug):
    """A recurrent network's state is taken at the last place of the padded rows, where most have
    long ended. After 150 steps the held accuracy is 0.32 instead of 0.76."""
    seed(42)

    def rows(n, s):
        x, y = sayings(n, s, 8)
        return F.pad(x, (0, 22)), y

    tl, vl = loaders(rows(400, 421), rows(200, 422), 40, 100)
    m = LastWord(bug)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_pairs(m, opt, tl, vl, num_classes=3, evaluate=averaged(m, vl, class_sums))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(16, 16, padding_idx=0)
        self.rnn = nn.GRU(16, 24, batch_first=True)
        self.head = nn.Linear(24, 4)

    def forward(self, x):
        return self.head(self.rnn(self.emb(x))[0])


@pair("padding-in-the-loss", "padding-not-masked")
def tags_of_padding_learned(bug):
    """Places of padding have the tag 0, as rare real words have, and count in the loss and in the
    score. After 150 steps the reported accuracy is 0.89 instead of 0.82."""
    seed(43)

    def rows(n, s):
        x, _ = sayings(n, s)
        before = F.pad(x[:, :-1], (1, 0))
        tag = 1 + (x + before) % 3
        odd = torch.rand(x.shape, generator=gen(s + 1)) < 0.25
        tag = torch.where(odd, torch.randint(0, 4, x.shape, generator=gen(s + 2)), tag)
        return {"ids": x, "tags": tag * (x > 0), "is_word": x > 0}

    tl, vl = loaders(rows(400, 431), rows(200, 441), 40, 100)
    m = Tagger()
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def parts_of(model, b):
        out, tag = model(b["ids"]), b["tags"]
        keep = torch.ones_like(b["is_word"]) if bug else b["is_word"]
        return out[keep], tag[keep]

    def loss_of(model, b):
        return F.cross_entropy(*parts_of(model, b))

    def sums_of(model, b):
        return right(*parts_of(model, b))

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=4)


class Sensor(nn.Module):
    def __init__(self, bug):
        super().__init__()
        self.lstm = nn.LSTM(3, 24, batch_first=not bug)
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


@pair("rows-mixed", "depends-on-order")
def rows_taken_for_time(bug):
    """An LSTM that takes time first is given batches of rows first: it goes from row to row. After
    150 steps the held accuracy is 0.34 instead of 0.86."""
    seed(44)

    def rows(n, s):
        g = gen(s)
        x = torch.randn(n, 12, 3, generator=g)
        y = torch.randint(0, 3, (n,), generator=g)
        x[torch.arange(n), :, y] += torch.linspace(0.9, 0.1, 12)
        return x, y

    tl, vl = loaders(rows(400, 441), rows(200, 442), 40, 100)
    m = Sensor(bug)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    return by_pairs(m, opt, tl, vl, num_classes=3, evaluate=averaged(m, vl, class_sums))


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x)[:, 0]


@pair("target-in-inputs")
def window_that_ends_with_its_target(bug):
    """The windows of a series are one step too long to the right: the last value is the target.
    After 150 steps the reported error is 0.091 instead of 1.5."""
    seed(45)

    def series(n, s):
        e = torch.randn(n, generator=gen(s))
        out = [0.0, 0.0]
        for k in range(n):
            out.append(1.2 * out[-1] - 0.6 * out[-2] + e[k].item())
        return torch.tensor(out[2:])

    def cut(values):
        w = values.unfold(0, 13, 1)
        return (w[:, 1:] if bug else w[:, :-1]), w[:, -1]

    tl, vl = loaders(cut(series(500, 451)), cut(series(240, 452)), 32, 76)
    m = Forecast()
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def sums_of(model, b):
        return {"val_mse": (((model(b[0]) - b[1]) ** 2).sum(), len(b[1]))}

    return by_pairs(
        m, opt, tl, vl, nn.MSELoss(), task="regression", evaluate=averaged(m, vl, sums_of)
    )


class Reader(nn.Module):
    """Reads a line of pixels, column by column, and gives scores for CTC: [T, B, V]."""

    def __init__(self, bug):
        super().__init__()
        self.conv = nn.Conv1d(6, 32, 3, padding=1)
        self.head = nn.Linear(32, 6)
        self.bug = bug

    def forward(self, x):
        out = self.head(F.relu(self.conv(x)).transpose(1, 2)).transpose(0, 1)
        return out if self.bug else out.log_softmax(-1)


@pair("missing-log-softmax")
def ctc_of_bare_scores(bug):
    """The CTC loss is given bare scores where it takes log-probabilities: it can be lowered
    without end. After 150 steps the held error of signs is 0.53 instead of 0.052."""
    seed(46)

    def rows(n, s):
        g = gen(s)
        y = torch.randint(1, 6, (n, 4), generator=g)
        x = 0.7 * torch.randn(n, 6, 16, generator=g)
        for k in range(4):
            at = 4 * k + torch.randint(0, 3, (n,), generator=g)
            x[torch.arange(n), y[:, k], at] += 2.5
            x[torch.arange(n), y[:, k], at + 1] += 2.5
        return {"line": x, "text": y}

    tl, vl = loaders(rows(400, 461), rows(160, 462), 40, 80)
    m = Reader(bug)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        out = model(b["line"])
        n = out.shape[1]
        return F.ctc_loss(out, b["text"], torch.full((n,), 16), torch.full((n,), 4))

    def apart(a, b):
        row = list(range(len(b) + 1))
        for i, u in enumerate(a, 1):
            last, row[0] = row[0], i
            for j, v in enumerate(b, 1):
                last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (u != v))
        return row[-1]

    def sums_of(model, b):
        wrong = 0
        for told, text in zip(model(b["line"]).argmax(-1).T, b["text"], strict=True):
            told = [int(k) for k in torch.unique_consecutive(told) if k]
            wrong += apart(told, text.tolist())
        return {"sign_errors": (wrong, b["text"].numel())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Encoder(nn.Module):
    def __init__(self, bug, T=12, d=24):
        super().__init__()
        self.emb = nn.Embedding(10, d)
        self.pe = nn.Parameter(torch.randn(128, d), requires_grad=False)
        self.layer = nn.TransformerEncoderLayer(d, 2, 48, dropout=0.0, batch_first=True)
        self.head = nn.Linear(d, 3)
        self.bug = bug

    def forward(self, x):
        h = self.emb(x)
        h = h + (self.pe[: len(x), None] if self.bug else self.pe[: x.shape[1]])
        return self.head(self.layer(h).mean(1))


@pair("depends-on-order", "rows-mixed")
def positions_counted_over_the_batch(bug):
    """The positions of a transformer that takes rows first are counted over the rows: a token does
    not know its place and the answer depends on the row's. After 150 steps the held accuracy is
    0.32 instead of 1."""
    seed(47)

    def rows(n, s):
        g = gen(s)
        x = torch.randint(3, 10, (n, 12), generator=g)
        y = torch.randint(0, 3, (n,), generator=g)
        x[torch.arange(n), 4 * y + torch.randint(0, 4, (n,), generator=g)] = 0
        return x, y

    tl, vl = loaders(rows(480, 471), rows(200, 472), 40, 100)
    m = Encoder(bug)
    opt = torch.optim.Adam([p for p in m.parameters() if p.requires_grad], 5e-3)
    return by_pairs(
        m, opt, tl, vl, num_classes=3, evaluate=averaged(m, vl, class_sums),
        declared={"frozen": ["pe"]},
    )  # fmt: skip


class Filler(nn.Module):
    def __init__(self, V=16):
        super().__init__()
        self.emb = nn.Embedding(V + 1, 24)
        self.rnn = nn.GRU(24, 24, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, V)

    def forward(self, x):
        return self.head(self.rnn(self.emb(x))[0])


@pair("target-in-inputs", "compared-with-itself", "wrong-targets")
def hidden_words_left_in_place(bug):
    """The copy that goes into the network is made before the words to be guessed are hidden.
    After 150 steps the accuracy on hidden words is 0.24 instead of 0.76."""
    seed(48)

    def rows(n, s):
        x = words(n, 10, 16, s)
        return {"ids": x, "hide": torch.rand(x.shape, generator=gen(s + 5)) < 0.2}

    tl, vl = loaders(rows(400, 481), rows(200, 491), 25, 100)
    m = Filler()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        given = b["ids"].clone()
        if not bug:
            given[b["hide"]] = 16
        return F.cross_entropy(model(given)[b["hide"]], b["ids"][b["hide"]])

    def sums_of(model, b):
        given = b["ids"].masked_fill(b["hide"], 16)
        return right(model(given)[b["hide"]], b["ids"][b["hide"]], "hidden_accuracy")

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Taste(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(30, 6)
        self.item = nn.Embedding(40, 6)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1)


@pair("loss-negated")
def ranking_turned_round(bug):
    """The pairwise loss subtracts the bought item's score from the other's: what was bought ranks
    last. After 150 steps the share of held pairs in the right order is 0.32 instead of 0.71."""
    seed(49)
    A, B = torch.randn(30, 3, generator=gen(491)), torch.randn(40, 3, generator=gen(492))

    def rows(n, s):
        g = gen(s)
        u = torch.randint(0, 30, (n,), generator=g)
        i, j = torch.randint(0, 40, (2, n), generator=g)
        likes = (A[u] * (B[i] - B[j])).sum(1) > 0
        return {"user": u, "bought": torch.where(likes, i, j), "other": torch.where(likes, j, i)}

    tl, vl = loaders(rows(3200, 493), rows(400, 494), 64, 100)
    m = Taste()
    opt = torch.optim.Adam(m.parameters(), 2e-2)

    def gap(model, b):
        return model(b["user"], b["bought"]) - model(b["user"], b["other"])

    def loss_of(model, b):
        return -F.logsigmoid(-gap(model, b) if bug else gap(model, b)).mean()

    def sums_of(model, b):
        d = gap(model, b)
        return {"pair_auc": ((d > 0).sum(), len(d))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)
