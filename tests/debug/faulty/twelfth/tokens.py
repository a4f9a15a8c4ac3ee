"""Faults of sequences: what is seen, padded, pooled, scored and paired."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twelfth.kit import (
    Columns,
    G,
    loader,
    markov,
    mean_loss,
    mlp,
    pack,
    plain_step,
    seed,
)


@pair("sees-the-future")
def lm_no_causal(bug):
    """Decoder-only language model whose self-attention has no causal mask. After 800 steps val_ppl
    is 1.01 instead of 5 and gen_prob is 0.1 instead of 0.465."""
    seed(0)
    g = G(0)
    V, T = 20, 16
    x, P = markov(V, 600, T, g)

    class LM(nn.Module):
        def __init__(self, d=32):
            super().__init__()
            self.tok, self.pos = nn.Embedding(V, d), nn.Parameter(torch.randn(T, d) * 0.1)
            self.qkv, self.proj, self.head = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, V)
            self.n1, self.n2, self.ff = nn.LayerNorm(d), nn.LayerNorm(d), mlp(d, 64, d, nn.GELU)

        def forward(self, ids):
            h = self.tok(ids) + self.pos[: ids.size(1)]
            q, k, v = self.qkv(self.n1(h)).chunk(3, -1)
            h = h + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=not bug))
            return self.head(h + self.ff(self.n2(h)))

    m = LM()
    opt = torch.optim.AdamW(m.parameters(), 4e-3)
    tr, va = loader(x[:500], bs=16), loader(x[500:], bs=50, shuffle=False)

    def loss_of(m, b):
        lo = m(b[0])
        return F.cross_entropy(lo[:, :-1].reshape(-1, V), b[0][:, 1:].reshape(-1))

    def evaluate():
        ppl = math.exp(mean_loss(m, va, loss_of))
        ids = x[500:564, :4].clone()
        with torch.no_grad():
            while ids.size(1) < T:
                ids = torch.cat([ids, m(ids)[:, -1].argmax(-1, keepdim=True)], 1)
        return {"val_ppl": ppl, "gen_prob": P[ids[:, 3:-1], ids[:, 4:]].mean().item()}

    return pack(m, opt, tr, loss_of, val_loader=va, evaluate=evaluate, num_classes=V)


@pair("padding-in-the-loss")
def lm_pad_loss(bug):
    """GRU language model: padding tokens are scored (no ignore_index). After 200 steps val_ppl is
    1.65 instead of 3.58."""
    seed(1)
    g = G(1)
    V, T, PAD = 18, 24, 0
    x, _ = markov(V - 1, 500, T, g)
    x = x + 1
    n = torch.randint(3, 12, (500,), generator=g)
    n[::40] = T
    x[torch.arange(T)[None] >= n[:, None]] = PAD

    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(V, 24, padding_idx=PAD)
            self.r = nn.GRU(24, 32, batch_first=True)
            self.o = nn.Linear(32, V)

        def forward(self, ids):
            return self.o(self.r(self.e(ids))[0])

    m = LM()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.CrossEntropyLoss() if bug else nn.CrossEntropyLoss(ignore_index=PAD)
    tr = loader(Columns(input_ids=x[:400], lengths=n[:400]), bs=16)
    va = loader(Columns(input_ids=x[400:], lengths=n[400:]), bs=50, shuffle=False)

    def loss_of(m, b):
        ids = b["input_ids"]
        return crit(m(ids[:, :-1]).transpose(1, 2), ids[:, 1:])

    return pack(
        m,
        opt,
        tr,
        loss_of,
        val_loader=va,
        evaluate=lambda: {"val_ppl": math.exp(mean_loss(m, va, loss_of))},
    )


@pair("target-in-inputs")
def seq2seq_teacher_leak(bug):
    """Sequence-to-sequence: decoder input is not shifted right, teacher forcing gives the answer
    away. After 200 steps val_loss is 0.00209 instead of 0.535 and greedy_acc is 0.0783 instead of
    0.662."""
    seed(2)
    g = G(2)
    V, L, BOS = 12, 6, 0
    src = torch.randint(1, V, (800, L), generator=g)
    tgt = torch.cat([torch.full((800, 1), BOS), src.flip(1)], 1)

    class S2S(nn.Module):
        def __init__(self, h=48):
            super().__init__()
            self.e = nn.Embedding(V, 16)
            self.enc, self.dec, self.o = (
                nn.GRU(16, h, batch_first=True),
                nn.GRU(16, h, batch_first=True),
                nn.Linear(h, V),
            )

        def forward(self, s, t):
            return self.o(self.dec(self.e(t), self.enc(self.e(s))[1])[0])

        @torch.no_grad()
        def greedy(self, s):
            ids = torch.full((len(s), 1), BOS)
            for _ in range(L):
                ids = torch.cat([ids, self(s, ids)[:, -1].argmax(-1, keepdim=True)], 1)
            return ids[:, 1:]

    m = S2S()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tr = loader(Columns(src=src[:700], tgt=tgt[:700]), bs=32)
    va = loader(Columns(src=src[700:], tgt=tgt[700:]), bs=50, shuffle=False)

    def loss_of(m, b):
        t = b["tgt"]
        return F.cross_entropy(
            m(b["src"], t[:, 1:] if bug else t[:, :-1]).transpose(1, 2), t[:, 1:]
        )

    def evaluate():
        loss = mean_loss(m, va, loss_of)
        return {
            "val_loss": loss,
            "greedy_acc": np.mean(
                [(m.greedy(b["src"]) == b["tgt"][:, 1:]).float().mean().item() for b in va]
            ),
        }

    return pack(m, opt, tr, loss_of, val_loader=va, evaluate=evaluate)


@pair("rows-mixed")
def gru_not_batch_first(bug):
    """Sentiment GRU built without batch_first on (batch, time, features): samples of a batch leak
    into each other. After 200 steps val_acc is 0.645 instead of 0.92."""
    seed(3)
    g = G(3)
    x = torch.randint(0, 30, (800, 12), generator=g)
    y = ((x < 8).sum(1) > (x >= 22).sum(1)).long()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(30, 16)
            self.r = nn.GRU(16, 24, batch_first=not bug)
            self.o = nn.Linear(24, 2)

        def forward(self, t):
            return self.o(self.r(self.e(t))[0][:, -1])

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    lf = nn.CrossEntropyLoss()
    tr, va = loader(x[:600], y[:600]), loader(x[600:], y[600:], bs=100, shuffle=False)

    def evaluate():
        m.eval()
        with torch.no_grad():
            return {
                "val_acc": np.mean([(m(a).argmax(1) == b).float().mean().item() for a, b in va])
            }

    return pack(m, opt, tr, loss_fn=lf, val_loader=va, evaluate=evaluate, num_classes=2)


@pair("padding-not-masked")
def attn_mask_inverted(bug):
    """Encoder with padding: the boolean mask means 'ignore' but scaled_dot_product_attention reads
    it as 'attend'. After 200 steps val_mse is 0.0414 instead of 0.0116."""
    seed(4)
    g = G(4)
    V, T = 30, 14
    n = torch.randint(4, 12, (600,), generator=g)
    x = torch.randint(2, V, (600, T), generator=g)
    x[:, 0] = 1
    x[torch.arange(T)[None] >= n[:, None]] = 0
    y = ((x >= 2) & (x < 12)).sum(1).float() / (n - 1)

    class Enc(nn.Module):
        def __init__(self, d=24):
            super().__init__()
            self.e = nn.Embedding(V, d, padding_idx=0)
            self.qkv = nn.Linear(d, 3 * d)
            self.o = mlp(d, 32, 1)

        def forward(self, ids):
            pad = (ids == 0)[:, None, :]
            q, k, v = self.qkv(self.e(ids)).chunk(3, -1)
            h = F.scaled_dot_product_attention(q, k, v, attn_mask=pad if bug else ~pad)
            return self.o(h[:, 0]).squeeze(-1)  # [CLS]

    m = Enc()
    opt = torch.optim.Adam(m.parameters(), 4e-3)
    tr = loader(Columns(ids=x[:500], score=y[:500]))
    va = loader(Columns(ids=x[500:], score=y[500:]), bs=50, shuffle=False)

    def loss_of(m, b):
        return F.mse_loss(m(b["ids"]), b["score"])

    return pack(
        m, opt, tr, loss_of, val_loader=va, evaluate=lambda: {"val_mse": mean_loss(m, va, loss_of)}
    )


@pair("state-carried")
def stateful_shuffled(bug):
    """Stateful LSTM carries its hidden state from batch to batch, but the loader shuffles the
    chunks. After 600 steps val_nll is 1.27 instead of 1.18."""
    seed(5)
    g = G(5)
    V, B, L, N = 8, 8, 4, 240
    perms = torch.stack([torch.randperm(V, generator=g) for _ in range(3)])
    key = torch.randint(0, 3, (B,), generator=g)
    tok = torch.randint(0, V, (B,), generator=g)
    cols = []
    for _ in range(L * N + 1):
        cols.append(tok)
        sw = torch.rand(B, generator=g) < 0.006
        key = torch.where(sw, torch.randint(0, 3, (B,), generator=g), key)
        r = torch.rand(B, generator=g) < 0.3
        tok = torch.where(r, torch.randint(0, V, (B,), generator=g), perms[key, tok])
    data = torch.stack(cols, 1)
    X = data[:, :-1].reshape(B, N, L).transpose(0, 1).contiguous()
    Y = data[:, 1:].reshape(B, N, L).transpose(0, 1).contiguous()

    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.r, self.o = (
                nn.Embedding(V, 16),
                nn.LSTM(16, 48, batch_first=True),
                nn.Linear(48, V),
            )
            self.state = None

        def forward(self, x):
            h, s = self.r(self.e(x), self.state)
            self.state = tuple(t.detach() for t in s)
            return self.o(h)

    m = LM()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tr = DataLoader(TensorDataset(X[:180], Y[:180]), batch_size=None, shuffle=bug, generator=G(1))
    va = DataLoader(TensorDataset(X[180:], Y[180:]), batch_size=None)

    def loss_of(m, b):
        return F.cross_entropy(m(b[0]).transpose(1, 2), b[1])

    step = plain_step(m, opt, loss_of)

    def train(n):
        out = []
        while len(out) < n:
            m.state = None
            for b in tr:
                out.append(step(b))
                if len(out) == n:
                    break
        return out

    def evaluate():
        keep, m.state = m.state, None
        v = mean_loss(m, va, loss_of)
        m.state = keep
        return {"val_nll": v}

    return pack(m, opt, tr, loss_of, step=step, train=train, val_loader=va, evaluate=evaluate)


@pair("metric-wrong")
def tagger_acc_pads(bug):
    """Tagger: reported accuracy includes padding positions, which are right by construction. After
    200 steps val_acc is 0.933 instead of 0.746."""
    seed(6)
    g = G(6)
    V, T, K = 40, 20, 6
    n = torch.randint(3, 9, (500,), generator=g)
    x = torch.randint(1, V, (500, T), generator=g)
    mask = torch.arange(T)[None] < n[:, None]
    x[~mask] = 0
    nxt = torch.cat([x[:, 1:], torch.zeros(500, 1, dtype=torch.long)], 1)
    y = (x % 5 + (nxt > 20)) % 5 + 1
    y[~mask] = 0
    y = torch.where(
        mask & (torch.rand(500, T, generator=g) < 0.15),
        torch.randint(1, K, y.shape, generator=g),
        y,
    )

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(V, 24, padding_idx=0)
            self.c = nn.Conv1d(24, 48, 3, padding=1)
            self.o = nn.Linear(48, K)

        def forward(self, t):
            return self.o(F.relu(self.c(self.e(t).transpose(1, 2))).transpose(1, 2))

    m = Tagger()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def mk(a, b, **k):
        return loader(Columns(tokens=x[a:b], tags=y[a:b], mask=mask[a:b]), bs=25, **k)

    tr, va = mk(0, 400), mk(400, 500, shuffle=False)

    def loss_of(m, b):
        return F.cross_entropy(m(b["tokens"])[b["mask"]], b["tags"][b["mask"]])

    def evaluate():
        m.eval()
        hit = tot = 0
        with torch.no_grad():
            for b in va:
                pred = m(b["tokens"]).argmax(-1) * b["mask"]
                ok = pred == b["tags"]
                if bug:
                    hit += ok.sum().item()
                    tot += ok.numel()
                else:
                    hit += ok[b["mask"]].sum().item()
                    tot += b["mask"].sum().item()
        return {"val_acc": hit / tot}

    return pack(m, opt, tr, loss_of, val_loader=va, evaluate=evaluate, num_classes=K)


@pair("depends-on-order")
def targets_flatten_mismatch(bug):
    """Time-first LSTM outputs are flattened against batch-first targets: token and target no
    longer match. After 200 steps val_ppl is 13.1 instead of 3.94."""
    seed(7)
    g = G(7)
    V, T = 16, 12
    x, _ = markov(V, 600, T + 1, g)

    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.r, self.o = nn.Embedding(V, 24), nn.LSTM(24, 32), nn.Linear(32, V)

        def forward(self, ids):
            return self.o(self.r(self.e(ids).transpose(0, 1))[0])  # (T, B, V)

    m = LM()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tr, va = (
        loader(x[:500, :-1], x[:500, 1:], bs=25),
        loader(x[500:, :-1], x[500:, 1:], bs=50, shuffle=False),
    )

    def loss_of(m, b):
        t = b[1] if bug else b[1].t()
        return F.cross_entropy(m(b[0]).reshape(-1, V), t.reshape(-1))

    return pack(
        m,
        opt,
        tr,
        loss_of,
        val_loader=va,
        evaluate=lambda: {"val_ppl": math.exp(mean_loss(m, va, loss_of))},
        num_classes=V,
    )


@pair("wrong-formula")
def attn_pool_softmax(bug):
    """Attention pooling takes the softmax over the size-1 last axis: all weights are 1. After 200
    steps val_mse is 4.49 instead of 0.633."""
    seed(8)
    g = G(8)
    T, D = 12, 8
    x = torch.randn(800, T, D, generator=g) * 1.5
    pos = torch.randint(0, T, (800,), generator=g)
    x[:, :, 0] = -1 + 0.3 * torch.randn(800, T, generator=g)
    x[torch.arange(800), pos, 0] = 2.0
    y = x[torch.arange(800), pos, 1:3].sum(1, keepdim=True)

    class MIL(nn.Module):
        def __init__(self):
            super().__init__()
            self.score, self.value = mlp(D, 16, 1, nn.Tanh), nn.Linear(D, 1)

        def forward(self, x):
            w = torch.softmax(self.score(x), dim=-1 if bug else 1)
            return (w * self.value(x)).sum(1)

    m = MIL()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    lf = nn.MSELoss()
    tr, va = loader(x[:600], y[:600]), loader(x[600:], y[600:], bs=100, shuffle=False)
    return pack(
        m,
        opt,
        tr,
        loss_fn=lf,
        val_loader=va,
        evaluate=lambda: {"val_mse": mean_loss(m, va, lambda m, b: lf(m(b[0]), b[1]))},
    )
