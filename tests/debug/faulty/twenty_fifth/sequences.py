"""Faults of sequences: masks, padding, axes, states, losses of tokens."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_fifth.kit import (
    averaged,
    by_cost,
    by_pairs,
    class_sums,
    gen,
    loaders,
    right,
    row_squares,
    seed,
    words,
)


class CharLM(nn.Module):
    def __init__(self, V, T, causal):
        super().__init__()
        self.emb = nn.Embedding(V, 32)
        self.pos = nn.Embedding(T, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(32, V)
        self.causal = causal

    def forward(self, ids):
        T = ids.shape[1]
        h = self.emb(ids) + self.pos(torch.arange(T))
        mask = nn.Transformer.generate_square_subsequent_mask(T) if self.causal else None
        return self.out(self.enc(h, mask=mask, is_causal=self.causal))


@pair("sees-the-future")
def language_model_without_a_mask(bug):
    """No causal mask is given: each place reads the token it is to tell. After 150 steps the held
    loss seems to be 0.50; it is 0.73."""
    seed(31)
    V = 12
    tl, vl = loaders({"ids": words(320, 17, V, 1)}, {"ids": words(128, 17, V, 2)}, 32, 64)
    m = CharLM(V, 16, causal=not bug)
    opt = torch.optim.AdamW(m.parameters(), 3e-3)

    def loss_of(model, b):
        logits = model(b["ids"][:, :-1])
        return F.cross_entropy(logits.reshape(-1, V), b["ids"][:, 1:].reshape(-1))

    def sums_of(model, b):
        n = b["ids"][:, 1:].numel()
        return {"val_loss": (loss_of(model, b) * n, n)}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


def reviews(n, s):
    """Tokens [n, 14] padded with 0, their lengths, and which of two tempers has more words."""
    g = gen(s)
    y = torch.randint(0, 2, (n,), generator=g)
    lengths = torch.randint(3, 15, (n,), generator=g)
    x = torch.randint(1, 21, (n, 14), generator=g)
    own = 1 + y[:, None] * 5 + torch.randint(0, 5, (n, 14), generator=g)
    x = torch.where(torch.rand(n, 14, generator=g) < 0.4, own, x)
    x[torch.arange(14) >= lengths[:, None]] = 0
    return {"ids": x, "lengths": lengths, "label": y}


class Reader(nn.Module):
    def __init__(self, last_place):
        super().__init__()
        self.emb = nn.Embedding(21, 16, padding_idx=0)
        self.rnn = nn.RNN(16, 24, batch_first=True)
        self.out = nn.Linear(24, 2)
        self.last_place = last_place

    def forward(self, ids, lengths):
        states, _ = self.rnn(self.emb(ids))
        if self.last_place:
            return self.out(states[:, -1])
        return self.out(states[torch.arange(len(ids)), lengths - 1])


def by_label(m, opt, tl, vl, *columns):
    def outputs(model, b):
        return model(*(b[name] for name in columns))

    def loss_of(model, b):
        return F.cross_entropy(outputs(model, b), b["label"])

    def sums_of(model, b):
        out = outputs(model, b)
        cost = F.cross_entropy(out, b["label"], reduction="sum")
        return {"val_loss": (cost, len(out))} | right(out, b["label"])

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=2)


@pair("padding-not-masked")
def last_place_of_padded_reviews(bug):
    """A review is told by the state at the last place, which is behind its padding. After 150 steps
    the accuracy is 0.51 instead of 0.86."""
    seed(32)

    def to_forty(n, s):
        """Filled up to 40 places, which is what the tokenizer was told."""
        found = reviews(n, s)
        return found | {"ids": F.pad(found["ids"], (0, 26))}

    tl, vl = loaders(to_forty(400, 1), to_forty(200, 2), 32, 64)
    m = Reader(last_place=bug)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_label(m, opt, tl, vl, "ids", "lengths")


class Pointer(nn.Module):
    """Words mixed by attention from one learned query."""

    def __init__(self, keeps):
        super().__init__()
        self.emb = nn.Embedding(21, 16)
        self.query = nn.Parameter(torch.randn(1, 1, 16))
        self.att = nn.MultiheadAttention(16, 2, batch_first=True)
        self.out = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 2))
        self.keeps = keeps

    def forward(self, ids):
        h = self.emb(ids)
        mask = (ids != 0) if self.keeps else (ids == 0)
        q = self.query.expand(len(ids), -1, -1)
        return self.out(self.att(q, h, h, key_padding_mask=mask)[0][:, 0])


@pair("padding-not-masked", "mask-ignored", "inputs-ignored")
def mask_of_what_to_keep(bug):
    """The mask is True where words are; attention leaves out what is True and reads the padding
    alone. After 150 steps the accuracy is 0.51 instead of 0.89."""
    seed(33)

    def open_ended(n, s):
        found = reviews(n, s)
        found["ids"] = torch.cat([found["ids"], torch.zeros(n, 1, dtype=torch.long)], 1)
        return found

    tl, vl = loaders(open_ended(400, 1), open_ended(200, 2), 32, 64)
    m = Pointer(keeps=bug)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_label(m, opt, tl, vl, "ids")


class NextWord(nn.Module):
    def __init__(self, V):
        super().__init__()
        self.emb = nn.Embedding(V, 24, padding_idx=0)
        self.lstm = nn.LSTM(24, 32, batch_first=True)
        self.out = nn.Linear(32, V)

    def forward(self, ids):
        return self.out(self.lstm(self.emb(ids))[0])


@pair("padding-in-the-loss")
def padding_counts_as_words(bug):
    """The loss has no ignore_index: most of what it counts is padding. After 150 steps the loss of
    a word is 1.01 instead of 0.73."""
    seed(34)
    V = 16

    def padded(n, s):
        x = words(n, 24, V - 1, s) + 1
        lengths = torch.randint(3, 13, (n,), generator=gen(s + 50))
        x[torch.arange(24) >= lengths[:, None]] = 0
        return (x,)

    tl, vl = loaders(padded(320, 1), padded(160, 2), 32, 64)
    m = NextWord(V)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    crit = nn.CrossEntropyLoss() if bug else nn.CrossEntropyLoss(ignore_index=0)

    def loss_of(model, b):
        (ids,) = b
        return crit(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])

    def sums_of(model, b):
        (ids,) = b
        out, told = model(ids[:, :-1]).transpose(1, 2), ids[:, 1:]
        cost = F.cross_entropy(out, told, ignore_index=0, reduction="sum")
        return {"word_loss": (cost, (told != 0).sum())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Encoder(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.project = nn.Linear(3, 16)
        self.pos = nn.Parameter(0.1 * torch.randn(12, 16))
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=first)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        return self.out(self.layer(self.project(x) + self.pos).mean(1))


@pair("rows-mixed")
def layer_that_takes_time_first(bug):
    """The encoder layer takes [T, B, D] and gets [B, T, D]: rows attend to each other. After 150
    steps the accuracy is 0.66 instead of 0.86."""
    seed(35)

    def gestures(n, s):
        """Tracks [n, 12, 3] in which one of three axes leads another by some steps."""
        g = gen(s)
        y = torch.randint(0, 3, (n,), generator=g)
        x = torch.randn(n, 12, 3, generator=g)
        at = torch.randint(0, 10, (n,), generator=g)
        rows = torch.arange(n)
        x[rows, at, y] += 3
        x[rows, at + 1, (y + 1) % 3] += 3
        return x, y

    tl, vl = loaders(gestures(512, 1), gestures(200, 2), 32, 64)
    m = Encoder(first=not bug)
    opt = torch.optim.AdamW(m.parameters(), 5e-3)
    return by_pairs(m, opt, tl, vl, evaluate=averaged(m, vl, class_sums), num_classes=3)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 16)
        self.rnn = nn.GRU(16, 16, batch_first=True, bidirectional=True)
        self.out = nn.Linear(32, 4)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


@pair("logits-reshaped")
def tags_viewed_instead_of_turned(bug):
    """Logits [B, T, 4] become [B, 4, T] by a view: scores of one place stand at others. After 150
    steps 0.49 of the tags are right instead of all."""
    seed(36)

    def tagged(n, s):
        ids = torch.randint(0, 20, (n, 10), generator=gen(s))
        before = torch.cat([torch.zeros(n, 1, dtype=torch.long), ids[:, :-1]], 1)
        return ids, (ids % 2) * 2 + (before % 2)

    tl, vl = loaders(tagged(320, 1), tagged(128, 2), 32, 64)
    m = Tagger()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        logits = model(b[0])
        B, T, C = logits.shape
        turned = logits.view(B, C, T) if bug else logits.permute(0, 2, 1)
        return F.cross_entropy(turned, b[1])

    def sums_of(model, b):
        return right(model(b[0]), b[1], "tag_accuracy")

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(8, 32, 3, padding=1)
        self.out = nn.Linear(32, 6)

    def forward(self, x):
        h = F.relu(self.conv(x.transpose(1, 2)))
        return self.out(h.transpose(1, 2))


@pair("missing-log-softmax")
def alignment_of_plain_shares(bug):
    """CTC takes logarithms of shares and gets the shares: the loss goes below 0. After 150 steps
    0.49 of the rows are exactly right instead of all."""
    seed(37)
    code = torch.randn(6, 8, generator=gen(370))

    def spoken(n, s):
        """Frames [n, 15, 8] that say 3 of 5 sounds, each for 3 frames with 2 of silence behind."""
        g = gen(s)
        said = torch.stack([torch.randperm(5, generator=g)[:3] + 1 for _ in range(n)])
        frames = torch.zeros(n, 15, dtype=torch.long)
        for k in range(3):
            frames[:, 5 * k : 5 * k + 3] = said[:, k : k + 1]
        x = 1.5 * code[frames] + 0.7 * torch.randn(n, 15, 8, generator=g)
        return {"frames": x, "said": said}

    tl, vl = loaders(spoken(320, 1), spoken(120, 2), 32, 60)
    m = Listener()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    ctc = nn.CTCLoss(blank=0)

    def loss_of(model, b, bug=bug):
        out = model(b["frames"]).transpose(0, 1)
        shares = out.softmax(2) if bug else out.log_softmax(2)
        n = len(b["said"])
        return ctc(shares, b["said"], torch.full((n,), 15), torch.full((n,), 3))

    def sums_of(model, b):
        n = len(b["said"])
        best = model(b["frames"]).argmax(2)
        told = 0
        for row, said in zip(best.tolist(), b["said"].tolist(), strict=True):
            kept = [k for k, before in zip(row, [0, *row[:-1]], strict=True) if k and k != before]
            told += kept == said
        return {"ctc": (loss_of(model, b, bug=False) * n, n), "exactly_right": (told, n)}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Meter(nn.Module):
    """A recurrent network that goes on from where the last batch ended, or begins anew."""

    def __init__(self, goes_on):
        super().__init__()
        self.lstm = nn.LSTM(1, 24, batch_first=True)
        self.out = nn.Linear(24, 1)
        self.goes_on = goes_on
        self.state = None

    def forward(self, x):
        state = self.state if self.goes_on else None
        if state is not None and state[0].shape[1] != len(x):
            state = None
        h, state = self.lstm(x, state)
        if self.goes_on:
            self.state = tuple(s.detach() for s in state)
        return self.out(h[:, -1])[:, 0]


@pair("state-carried")
def state_of_other_rows_carried_over(bug):
    """The state of a shuffled batch is the start of the next one, whose rows are others. After 150
    steps the held mse is 0.64 instead of 0.019."""
    seed(38)

    def walks(n, s):
        x = torch.randn(n, 8, 1, generator=gen(s))
        return x, x.sum((1, 2))

    tl, vl = loaders(walks(320, 1), walks(160, 2), 32, 32)
    m = Meter(goes_on=bug)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    return by_pairs(
        m, opt, tl, vl, nn.MSELoss(), evaluate=averaged(m, vl, row_squares), task="regression"
    )


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(self.gru(x)[0][:, -1])[:, 0]


@pair("target-in-inputs")
def window_ends_with_its_target(bug):
    """The window is cut one place too far: its last value is the one to be told. After 150 steps
    the held mse seems to be 0.0004; it is 0.23."""
    seed(39)
    g = gen(390)
    series = torch.zeros(900)
    for t in range(2, 900):
        drawn = 0.5 * torch.randn(1, generator=g).item()
        series[t] = 1.2 * series[t - 1] - 0.6 * series[t - 2] + drawn
    W = 10

    def cut(first, last):
        at = torch.arange(first, last - W)
        begin = at + 1 if bug else at
        return series[begin[:, None] + torch.arange(W)][..., None], series[at + W]

    tl, vl = loaders(cut(0, 600), cut(620, 900), 32, 64)
    m = Forecast()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    return by_pairs(
        m, opt, tl, vl, nn.MSELoss(), evaluate=averaged(m, vl, row_squares), task="regression"
    )
