"""Faults of models that read tokens and series: axes, masks, padding, targets, windows."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_fourth.kit import (
    by_classes,
    by_cost,
    by_squares,
    chain,
    costed,
    gen,
    loaders,
    mlp,
    seed,
)


class LastState(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.rnn = nn.GRU(3, 24, batch_first=batch_first)
        self.fc = nn.Linear(24, 2)

    def forward(self, x):
        return self.fc(self.rnn(x)[0][:, -1])


@pair("rows-mixed")
def gru_runs_over_the_batch(bug):
    """nn.GRU without batch_first gets the batch first and runs over its rows. After 150 steps
    accuracy is 0.605 instead of 0.975."""
    seed(1)

    def data(n):
        x = torch.randn(n, 12, 3)
        return x, (x[:, :, 0].sum(1) > 0).long()

    tl, vl = loaders(data(320), data(200), 32, 64)
    m = LastState(batch_first=not bug)
    return by_classes(m, torch.optim.Adam(m.parameters(), 1e-2), tl, vl, 2)


class TinyGPT(nn.Module):
    """One block of a transformer over tokens, with a causal mask or without."""

    def __init__(self, V, T, causal=True, d=24):
        super().__init__()
        self.tok = nn.Embedding(V, d)
        self.pos = nn.Embedding(T, d)
        self.block = nn.TransformerEncoderLayer(d, 2, 48, dropout=0.0, batch_first=True)
        self.out = nn.Linear(d, V)
        self.causal = causal

    def forward(self, ids):
        T = ids.shape[1]
        h = self.tok(ids) + self.pos(torch.arange(T))
        mask = torch.triu(torch.ones(T, T, dtype=torch.bool), 1) if self.causal else None
        return self.out(self.block(h, src_mask=mask))


def language(m, V, T, shifts=True):
    """A language model in training, whose targets are shifted or not, scored by its loss."""
    train, held = {"input_ids": chain(320, T, V, 1)}, {"input_ids": chain(100, T, V, 2)}
    tl, vl = loaders(train, held, 32)
    opt = torch.optim.AdamW(m.parameters(), 5e-3)

    def loss_of(model, b):
        ids = b["input_ids"]
        out = model(ids)
        if shifts:
            out, ids = out[:, :-1], ids[:, 1:]
        return F.cross_entropy(out.reshape(-1, V), ids.reshape(-1))

    sums_of = costed(loss_of, "input_ids", "val_loss")
    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=V)


@pair("sees-the-future")
def encoder_layer_without_causal_mask(bug):
    """A next-token model calls its encoder layer without the causal mask and reads the answer.
    After 150 steps val_loss is 0.016 instead of 1.19, and 84% of what it writes is right instead
    of all."""
    seed(2)
    return language(TinyGPT(17, 16, causal=not bug), 17, 16)


@pair("target-in-inputs")
def targets_are_the_inputs(bug):
    """The labels are the inputs at the same places: the model learns to copy. After 150 steps
    val_loss is 0.007 instead of 1.19, and 12% of what it writes is right instead of all."""
    seed(3)
    return language(TinyGPT(17, 16), 17, 16, shifts=not bug)


class Tagger(nn.Module):
    def __init__(self, V):
        super().__init__()
        self.emb = nn.Embedding(V, 16, padding_idx=0)
        self.rnn = nn.GRU(16, 24, batch_first=True)
        self.fc = nn.Linear(24, 3)

    def forward(self, ids):
        return self.fc(self.rnn(self.emb(ids))[0])


@pair("padding-in-the-loss")
def tagger_pad_in_loss(bug):
    """Tags are padded with 0, which is a tag too: padding counts in loss and accuracy. After 150
    steps token_accuracy is 0.959 instead of 0.862."""
    seed(4)
    V, T = 20, 24

    def data(n):
        lengths = torch.randint(3, 11, (n,))
        pad = torch.arange(T)[None] >= lengths[:, None]
        ids = torch.randint(1, V, (n, T)).masked_fill(pad, 0)
        before = F.pad(ids, (1, 0))[:, :-1]
        tags = torch.where(ids < 12, 0, torch.where(before > 10, 1, 2))
        # careless annotators
        tags = torch.where(torch.rand(n, T) < 0.25, torch.randint(0, 3, (n, T)), tags)
        return {"ids": ids, "tags": tags.masked_fill(pad, 0 if bug else -100)}

    tl, vl = loaders(data(320), data(100), 32)
    m = Tagger(V)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        return F.cross_entropy(model(b["ids"]).transpose(1, 2), b["tags"])

    def sums_of(model, b):
        is_real = b["tags"] != -100
        is_right = model(b["ids"]).argmax(-1) == b["tags"]
        return {"token_accuracy": ((is_right & is_real).sum(), is_real.sum())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=3)


class Masked(nn.Module):
    """Classes of tokens by the state at the first, with the mask that `mask_of` makes of them."""

    def __init__(self, V, mask_of):
        super().__init__()
        self.emb = nn.Embedding(V, 24, padding_idx=0)
        layer = nn.TransformerEncoderLayer(24, 2, 48, dropout=0.0, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.fc = nn.Linear(24, 2)
        self.mask_of = mask_of

    def forward(self, ids):
        return self.fc(self.enc(self.emb(ids), src_key_padding_mask=self.mask_of(ids))[:, 0])


@pair("inputs-ignored")
def mask_hides_the_tokens(bug):
    """src_key_padding_mask is True at the tokens, as another library has it: the model looks at
    padding only. After 150 steps accuracy is 0.62 instead of 0.995."""
    seed(5)
    V, T, START = 12, 14, 1

    def data(n):
        lengths = torch.randint(6, T, (n,))
        behind = torch.arange(T)[None] >= lengths[:, None]
        ids = torch.randint(2, V, (n, T)).masked_fill(behind, 0)
        ids[:, 0] = START
        low = ((ids == 2) | (ids == 3) | (ids == 4)).sum(1)
        return ids, low.gt((ids > 8).sum(1)).long()

    def mask_of(ids):
        return (ids != 0) if bug else (ids == 0)

    tl, vl = loaders(data(480), data(200), 32, 64)
    m = Masked(V, mask_of)
    return by_classes(m, torch.optim.Adam(m.parameters(), 3e-3), tl, vl, 2)


class Ending(nn.Module):
    """Reads the state at the last place of the batch, or at each row's last real one."""

    def __init__(self, reads_padding):
        super().__init__()
        self.rnn = nn.LSTM(2, 24, batch_first=True)
        self.fc = nn.Linear(24, 1)
        self.reads_padding = reads_padding

    def forward(self, x, lengths):
        out, _ = self.rnn(x)
        last = out[:, -1] if self.reads_padding else out[torch.arange(len(x)), lengths - 1]
        return self.fc(last).squeeze(-1)


@pair("padding-not-masked")
def last_step_is_padding(bug):
    """The last place of a padded batch is read: the state after a run of padding. After 150 steps
    mse is 1.96 instead of 0.018."""
    seed(6)
    T = 40

    def data(n):
        lengths = torch.randint(4, 20, (n,))
        x = torch.randn(n, T, 2) * (torch.arange(T)[None] < lengths[:, None])[..., None]
        i = torch.arange(n)
        return {"x": x, "lengths": lengths, "y": x[i, lengths - 1, 0] + x[i, lengths - 2, 1]}

    tl, vl = loaders(data(320), data(100), 32)
    m = Ending(reads_padding=bug)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        return F.mse_loss(model(b["x"], b["lengths"]), b["y"])

    return by_cost(m, opt, tl, vl, loss_of, costed(loss_of, "y", "mse"))


class HandMade(nn.Module):
    """Causal attention whose weights add up to 1 along one dimension of the scores."""

    def __init__(self, dim, V=17, T=16, d=24):
        super().__init__()
        self.tok = nn.Embedding(V, d)
        self.pos = nn.Embedding(T, d)
        self.q = nn.Linear(d, d)
        self.k = nn.Linear(d, d)
        self.v = nn.Linear(d, d)
        self.ln = nn.LayerNorm(d)
        self.out = mlp(d, 64, V)
        self.dim = dim

    def forward(self, ids):
        T = ids.shape[1]
        h = self.tok(ids) + self.pos(torch.arange(T))
        scores = self.q(h) @ self.k(h).transpose(1, 2) / h.shape[-1] ** 0.5
        ahead = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
        weights = scores.masked_fill(ahead, -1e9).softmax(dim=self.dim)
        return self.out(self.ln(h + weights @ self.v(h)))


@pair("sees-the-future")
def attention_softmax_dim(bug):
    """The softmax of causal attention is over the queries, not the keys: later tokens leak back.
    After 150 steps val_loss is 0.986 instead of 1.2."""
    seed(7)
    return language(HandMade(1 if bug else -1), 17, 16)


def series(n, s):
    """A wave and what remains of the shocks before."""
    shocks = torch.randn(n, generator=gen(s))
    x = torch.zeros(n)
    for i in range(1, n):
        x[i] = 0.9 * x[i - 1] + 0.5 * shocks[i]
    return x + torch.sin(torch.arange(n).float() / 7)


@pair("target-in-inputs")
def window_ends_with_the_target(bug):
    """The windows are off by one: the target is the last value in them, not the next. After 150
    steps mse is 0.017 instead of 0.176."""
    seed(8)
    w = 16

    def windows(s):
        x = s.unfold(0, w, 1)[:-1]
        y = s[w - 1 : -1] if bug else s[w:]
        return x.clone(), y.clone()[:, None]

    s = series(700, 3)
    mean, std = s[:500].mean(), s[:500].std()
    tl, vl = loaders(*(windows((part - mean) / std) for part in (s[:500], s[500:])), 32, 64)
    m = mlp(w, 32, 1)
    return by_squares(m, torch.optim.Adam(m.parameters(), 3e-3), tl, vl)


@pair("leak-overlap")
def overlapping_windows_shuffled_apart(bug):
    """Overlapping windows of one series are split at random: each held one has near twins in
    training. After 150 steps mse is 0.928 instead of 1.71."""
    seed(9)
    w, ahead = 12, 8
    s = series(420, 5)
    s = (s - s[:280].mean()) / s[:280].std()
    starts = range(len(s) - w - ahead)
    x = torch.stack([s[i : i + w] for i in starts])
    y = torch.stack([s[i + w : i + w + ahead] for i in starts])
    if bug:
        order = torch.randperm(len(x))
        a, b = order[:280], order[280:]
    else:
        # a gap: no value is shared
        a, b = torch.arange(280 - w - ahead), torch.arange(280, len(x))
    tl, vl = loaders((x[a], y[a]), (x[b], y[b]), 32, 64)
    m = mlp(w, 96, 96, ahead)
    return by_squares(m, torch.optim.Adam(m.parameters(), 3e-3), tl, vl)
