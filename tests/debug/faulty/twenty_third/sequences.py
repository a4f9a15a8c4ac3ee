"""Faults of models that read tokens and series: places, masks, shifts, states, padding."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import Dataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_third.kit import (
    Recurrent,
    averaged,
    begun,
    by_classes,
    by_cost,
    by_squares,
    chain,
    clipped,
    evaluating,
    feed,
    loaders,
    mlp,
    padded,
    plain_step,
    set_up,
)


class Places(nn.Module):
    """Adds sines and cosines of the place in the sequence, or of the row in the batch."""

    def __init__(self, d, of_rows, most=64):
        super().__init__()
        place = torch.arange(most).unsqueeze(1).float()
        rate = torch.exp(-torch.arange(0, d, 2).float() * 5 / d)
        code = torch.zeros(most, d)
        code[:, 0::2] = torch.sin(place * rate)
        code[:, 1::2] = torch.cos(place * rate)
        self.register_buffer("code", code)
        self.of_rows = of_rows

    def forward(self, x):
        if self.of_rows:
            return x + self.code[: x.size(0)].unsqueeze(1)
        return x + self.code[: x.size(1)].unsqueeze(0)


class Encoder(nn.Module):
    def __init__(self, V, d, of_rows):
        super().__init__()
        self.emb = nn.Embedding(V, d)
        self.places = Places(d, of_rows)
        self.enc = nn.TransformerEncoderLayer(d, 2, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(d, V)

    def forward(self, x):
        return self.out(self.enc(self.places(self.emb(x))).mean(1))


@pair("rows-mixed")
def pos_by_batch(bug):
    """Positions are coded for inputs with time first, but the batch comes first: each row has one
    code at all its places. After 300 steps acc is 0.325 instead of 1."""
    g = begun(1)
    V = 6

    def data(n):
        x = torch.randint(V, (n, 10), generator=g)
        return x, x[:, 2]

    m = Encoder(V, 32, of_rows=bug)
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(data(512), data(200), 32, 64)
    return by_classes(m, opt, tl, vl, V)


class TinyGPT(nn.Module):
    """One block of a transformer, whose attention takes the mask as `mask_of(T)` gives it."""

    def __init__(self, V, T, mask_of, d=24):
        super().__init__()
        self.emb = nn.Embedding(V, d)
        self.pos = nn.Parameter(torch.randn(T, d))
        self.qkv = nn.Linear(d, 3 * d)
        self.proj = nn.Linear(d, d)
        self.out = nn.Linear(d, V)
        self.n1 = nn.LayerNorm(d)
        self.n2 = nn.LayerNorm(d)
        self.mlp = mlp(d, 48, d)
        self.mask_of = mask_of

    def forward(self, x):
        T = x.size(1)
        h = self.emb(x) + self.pos[:T]
        q, k, v = self.qkv(self.n1(h)).chunk(3, -1)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask_of(T))
        h = h + self.proj(a)
        return self.out(h + self.mlp(self.n2(h)))


@pair("sees-the-future")
def float_tril_mask(bug):
    """The causal mask is of floats 0 and 1, which are added to the scores: the future stays
    visible. After 300 steps val_loss is 0.111 instead of 1.17."""
    g = begun(2)
    V, T = 8, 13

    def mask_of(n):
        return torch.tril(torch.ones(n, n, dtype=torch.float if bug else torch.bool))

    m = TinyGPT(V, T, mask_of)
    opt = torch.optim.AdamW(m.parameters(), 5e-3)
    train, held = {"ids": chain(g, 512, T, V, 0.7)}, {"ids": chain(g, 128, T, V, 0.7)}
    tl, vl = loaders(train, held, 32, 64)

    def loss_of(model, b):
        out = model(b["ids"][:, :-1])
        return F.cross_entropy(out.reshape(-1, V), b["ids"][:, 1:].reshape(-1))

    def sums_of(model, b):
        n = b["ids"][:, 1:].numel()
        return {"val_loss": (loss_of(model, b) * n, n)}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=V)


class Shifting(Recurrent):
    """Shifts the labels itself, as many libraries' models do."""

    def forward(self, input_ids, labels=None):
        out, _ = super().forward(input_ids)
        if labels is None:
            return None, out
        ahead = out[:, :-1].reshape(-1, out.shape[-1])
        return F.cross_entropy(ahead, labels[:, 1:].reshape(-1), ignore_index=-100), out


@pair("labels-moved")
def shifted_twice(bug):
    """The data shift the labels, and the model does so again: it learns the token after the next.
    After 300 steps next_token_acc is 0.016 instead of 0.859."""
    g = begun(3)
    V, T = 10, 12

    def data(n):
        ids = chain(g, n, T + 1, V)
        return {"input_ids": ids[:, :-1], "labels": ids[:, 1:] if bug else ids[:, :-1]}

    m = Shifting(V, 24, 32)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    tl, vl = loaders(data(400), data(100), 32)

    def loss_of(model, b):
        return model(b["input_ids"], b["labels"])[0]

    def sums_of(model, b):
        _, out = model(b["input_ids"])
        hits = out[:, :-1].argmax(-1) == b["input_ids"][:, 1:]
        return {"next_token_acc": (hits.sum(), hits.numel())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, **clipped(m, opt, loss_of, 1.0))


@pair("empty-targets")
def eos_masked_with_pad(bug):
    """The padding is the sign of the end, and leaving padding out of the labels leaves every end
    out: the model never learns to stop. After 300 steps stop_rate is 0 instead of 1."""
    begun(4)
    END, V, T = 9, 10, 12
    rows, labels = [], []
    for first in torch.arange(9).repeat(30).tolist():
        ids = [*range(first, 9), END]
        row = torch.tensor(ids + [END] * (T - len(ids)))
        label = row.clone()
        if bug:
            label[row == END] = -100
        else:
            label[len(ids) :] = -100
        rows.append(row)
        labels.append(label)
    tl = feed({"ids": torch.stack(rows), "labels": torch.stack(labels)}, 27)
    m = Recurrent(V, 16, 32)
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        out = model(b["ids"][:, :-1])[0].transpose(1, 2)
        return F.cross_entropy(out, b["labels"][:, 1:], ignore_index=-100)

    def stops(first):
        x, h = torch.tensor([[first]]), None
        for _ in range(15):
            out, h = m(x, h)
            x = out[:, -1:].argmax(-1)
            if x.item() == END:
                return True
        return False

    def evaluate():
        with evaluating(m):
            return {"stop_rate": sum(stops(first) for first in range(9)) / 9}

    step = plain_step(m, opt, loss_of)
    return set_up(m, opt, tl, step, evaluate=evaluate, loss_of=loss_of, num_classes=V)


class Latest(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x, h=None):
        out, h = self.rnn(x.unsqueeze(-1), h)
        return self.out(out).squeeze(-1), h


@pair("state-carried")
def carried_state_shuffled(bug):
    """The state goes on from batch to batch, as for windows that follow each other; but they are
    shuffled. After 300 steps stream_mse is 0.414 instead of 0.025."""
    g = begun(5)
    R, N, L = 16, 12, 6

    def stream():
        """Each number is the last pulse before it; the n-th windows of all rows come together."""
        is_pulse = torch.rand(R, N * L, generator=g) < 0.12
        pulses = torch.randint(0, 2, (R, N * L), generator=g) * 2.0 - 1
        x = torch.where(is_pulse, pulses, torch.zeros(()))
        y = torch.zeros_like(x)
        last = torch.zeros(R)
        for t in range(N * L):
            last = torch.where(x[:, t] != 0, x[:, t], last)
            y[:, t] = last
        x, y = (a.view(R, N, L).transpose(0, 1).reshape(N * R, L) for a in (x, y))
        return {"x": x, "y": y, "window": torch.arange(N).repeat_interleave(R)}

    m = Latest()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    tl = feed(stream(), R, shuffle=bug)
    vl = feed(stream(), R, shuffle=False)
    state = None

    def step(b):
        nonlocal state
        m.train()
        if b["window"][0] == 0:
            state = None
        opt.zero_grad()
        out, after = m(b["x"], state)
        loss = F.mse_loss(out, b["y"])
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        state = after.detach()
        return loss.item()

    def evaluate():
        h, total, count = None, 0.0, 0
        with evaluating(m):
            for b in vl:
                if b["window"][0] == 0:
                    h = None
                out, h = m(b["x"], h)
                total += F.mse_loss(out, b["y"], reduction="sum").item()
                count += out.numel()
        return {"stream_mse": total / count}

    declared = {"stateful": True, "max_grad_norm": 1.0}
    return set_up(m, opt, tl, step, val_loader=vl, evaluate=evaluate, declared=declared)


class Packed(nn.Module):
    """Sorts rows by their lengths to pack them, and puts the outputs back or does not."""

    def __init__(self, V, k, puts_back):
        super().__init__()
        self.emb = nn.Embedding(V, 16, padding_idx=0)
        self.rnn = nn.GRU(16, 24, batch_first=True)
        self.out = nn.Linear(24, k)
        self.puts_back = puts_back

    def forward(self, x, lengths):
        lengths, order = lengths.sort(descending=True, stable=True)
        packed = pack_padded_sequence(self.emb(x[order]), lengths, batch_first=True)
        out = self.out(self.rnn(packed)[1][-1])
        return out[order.argsort()] if self.puts_back else out


@pair("rows-mixed")
def sorted_not_restored(bug):
    """The model sorts rows by length to pack them and leaves its outputs in that order. After 300
    steps acc is 0.367 instead of 0.967."""
    g = begun(6)
    V, T, k = 13, 12, 3

    def data(n):
        y = torch.randint(k, (n,), generator=g)
        lengths = torch.randint(3, T + 1, (n,), generator=g)
        own = 1 + y[:, None] * 4 + torch.randint(4, (n, T), generator=g)
        other = torch.randint(1, V, (n, T), generator=g)
        x = torch.where(torch.rand(n, T, generator=g) < 0.6, own, other)
        return {"tokens": padded(x, lengths), "length": lengths, "label": y}

    m = Packed(V, k, puts_back=not bug)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    tl, vl = loaders(data(300), data(150), 30)

    def loss_of(model, b):
        return F.cross_entropy(model(b["tokens"], b["length"]), b["label"])

    def sums_of(model, b):
        hits = model(b["tokens"], b["length"]).argmax(1) == b["label"]
        return {"acc": (hits.sum(), len(hits))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=k)


class Reader(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.rnn = nn.GRU(k, 24, batch_first=True, bidirectional=True)
        self.out = nn.Linear(48, k + 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0]).log_softmax(-1)


@pair("wrong-targets")
def blank_left_at_a_symbol(bug):
    """An output was added for the blank, but CTCLoss keeps its blank of 0, which is a symbol. After
    300 steps exact is 0.417 instead of 1."""
    g = begun(7)
    k, T = 5, 9
    blank = 0 if bug else k

    def data(n):
        frames, texts = [], []
        for _ in range(n):
            text = torch.randperm(k, generator=g)[:3]
            shown = F.one_hot(text.repeat_interleave(3), k).float()
            frames.append(shown + 0.25 * torch.randn(T, k, generator=g))
            texts.append(text)
        return {"frames": torch.stack(frames), "text": torch.stack(texts)}

    m = Reader(k)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    ctc = nn.CTCLoss(blank=blank)
    tl, vl = loaders(data(160), data(60), 10, 30)

    def loss_of(model, b):
        n = len(b["frames"])
        lengths = torch.full((n,), T), torch.full((n,), 3)
        return ctc(model(b["frames"]).transpose(0, 1), b["text"], *lengths)

    def sums_of(model, b):
        rows = zip(model(b["frames"]).argmax(-1), b["text"], strict=True)
        read = sum(
            [s for s in torch.unique_consecutive(row).tolist() if s != blank] == y.tolist()
            for row, y in rows
        )
        return {"exact": (read, len(b["text"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, **clipped(m, opt, loss_of, 5.0))


class Stretches(Dataset):
    """Stretches of a series, each with the number `ahead` places behind its last."""

    def __init__(self, series, length, ahead):
        self.series = series
        self.length = length
        self.ahead = ahead

    def __len__(self):
        return len(self.series) - self.length

    def __getitem__(self, i):
        end = i + self.length
        at = end - 1 + self.ahead
        return self.series[i:end], self.series[at : at + 1]


@pair("target-in-inputs")
def window_off_by_one(bug):
    """The number to forecast is the last one of the window, not the one behind it. After 300 steps
    mse is 0.0007 instead of 0.0817."""
    g = begun(8)
    length = 12
    noise = 0.3 * torch.randn(700, generator=g)
    series = torch.zeros(700)
    for t in range(1, 700):
        series[t] = 0.95 * series[t - 1] + noise[t]
    m = mlp(length, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    ahead = 0 if bug else 1
    parts = (Stretches(part, length, ahead) for part in (series[:500], series[500:]))
    tl, vl = loaders(*parts, 32, 64)
    return by_squares(m, opt, tl, vl)


class NextTokens(Recurrent):
    """The outputs alone."""

    def forward(self, x):
        return super().forward(x)[0]


@pair("padding-in-the-loss")
def perplexity_counts_pads(bug):
    """Padding counts in the loss and the perplexity, and two thirds of the targets are padding.
    After 300 steps perplexity is 1.41 instead of 2.3."""
    g = begun(9)
    V, T = 11, 20

    def data(n):
        lengths = torch.randint(4, 11, (n,), generator=g)
        ids = padded(chain(g, n, T, V - 1, 0.8, first=1), lengths)
        return {"ids": ids, "length": lengths}

    m = NextTokens(V, 16, 24, pad=0)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    crit = nn.CrossEntropyLoss() if bug else nn.CrossEntropyLoss(ignore_index=0)
    tl, vl = loaders(data(256), data(64), 32)

    def loss_of(model, b):
        return crit(model(b["ids"][:, :-1]).transpose(1, 2), b["ids"][:, 1:])

    def sums_of(model, b):
        targets = b["ids"][:, 1:]
        n = targets.numel() if bug else int((targets != 0).sum())
        return {"loss": (loss_of(model, b).item() * n, n)}

    mean = averaged(m, vl, sums_of)

    def evaluate():
        return {"perplexity": math.exp(mean()["loss"])}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate, num_classes=V)
