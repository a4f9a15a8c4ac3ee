"""Faults of models that read tokens or series of symbols: labels, masks, axes, blanks."""

import math
import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.faulty.fourteenth.kit import (
    acc,
    columns,
    gen,
    loader,
    mean_eval,
    pairloss,
    plain_step,
    saving,
    seed,
    set_up,
)
from tests.debug.faulty.kit import pair


def affine_seqs(n, T, V, s):
    """x[t+1] = a*x[t]+b mod V with one of 4 laws, told by the first token."""
    g = gen(s)
    law = torch.randint(0, 4, (n,), generator=g)
    A, B = torch.tensor([1, 1, 3, 5]), torch.tensor([1, 4, 2, 1])
    x = torch.randint(0, V, (n,), generator=g)
    out = [law + V]
    for _ in range(T - 1):
        out.append(x)
        x = (A[law] * x + B[law]) % V
    return torch.stack(out, 1)


class Enc(nn.Module):
    def __init__(self, V, T, d=24, heads=2, out=None, layers=1):
        super().__init__()
        self.emb = nn.Embedding(V, d)
        self.pos = nn.Parameter(torch.randn(T, d) * 0.1)
        lay = nn.TransformerEncoderLayer(
            d, heads, 2 * d, dropout=0.0, batch_first=True, norm_first=True
        )
        self.enc = nn.TransformerEncoder(lay, layers, enable_nested_tensor=False)
        self.out = nn.Linear(d, out or V)

    def forward(self, x, mask=None, is_causal=None):
        return self.out(self.enc(self.emb(x) + self.pos[: x.shape[1]], mask=mask))


@pair("target-in-inputs")
def mlm_labels_everywhere(bug):
    """The MLM collate leaves the labels of unmasked tokens in place (should be -100). After 800
    steps the accuracy on masked tokens is 0.41 instead of 0.49."""
    seed(1)
    V, T, MASK = 16, 10, 20

    def collate(rows):
        ids = torch.stack([r["ids"] for r in rows])
        labels = ids.clone()
        m = torch.rand(ids.shape) < 0.15
        m[:, 0] = False
        if not bug:
            labels[~m] = -100
        ids = ids.masked_fill(m, MASK)
        return {"input_ids": ids, "labels": labels}

    tr = columns(bs=20, ids=affine_seqs(512, T, V, 1), s=1, collate_fn=collate)
    va = [collate([{"ids": r} for r in c]) for c in affine_seqs(256, T, V, 2).split(64)]
    model = Enc(21, T, d=20)
    opt = torch.optim.AdamW(model.parameters(), 3e-3)

    def loss_of(m, b):
        return F.cross_entropy(m(b["input_ids"]).transpose(1, 2), b["labels"], ignore_index=-100)

    def right(m, b):
        p = m(b["input_ids"]).argmax(-1)
        k = b["labels"] != -100
        return (p == b["labels"])[k]

    step = plain_step(model, opt, loss_of)
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_of=loss_of,
        evaluate=mean_eval(model, va, {"mlm_acc": right}),
    )


class CausalLM(nn.Module):
    """Returns (loss, logits) and shifts the labels itself."""

    def __init__(self, V, d=32):
        super().__init__()
        self.emb = nn.Embedding(V, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.head = nn.Linear(d, V)

    def forward(self, input_ids, labels=None):
        logits = self.head(self.rnn(self.emb(input_ids))[0])
        loss = None
        if labels is not None:
            loss = F.cross_entropy(
                logits[:, :-1].reshape(-1, logits.shape[-1]),
                labels[:, 1:].reshape(-1),
                ignore_index=-100,
            )
        return loss, logits


@pair("labels-moved")
def lm_shifts_twice(bug):
    """The dataset shifts labels by one although the model's own loss shifts them too: it learns to
    skip a token. After 400 steps generation_acc is 0.1892 instead of 1.0."""
    seed(2)
    V, T = 16, 10
    x = affine_seqs(512, T, V, 3)
    v = affine_seqs(200, T, V, 4)

    def cut(z):
        return dict(input_ids=z[:, :-1], labels=z[:, 1:]) if bug else dict(input_ids=z, labels=z)

    tr, va = columns(bs=16, s=2, **cut(x)), columns(bs=64, shuffle=False, **cut(v))
    model = CausalLM(20)
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_of(m, b):
        return m(**b)[0]

    step = plain_step(model, opt, loss_of)

    def evaluate():
        model.eval()
        with torch.no_grad():
            ids = v[:, :4]
            for _ in range(T - 4):
                ids = torch.cat([ids, model(ids)[1][:, -1:].argmax(-1)], 1)
            nll = sum(model(**b)[0].item() * len(b["labels"]) for b in va) / len(v)
        model.train()
        return {"val_loss": nll, "generation_acc": (ids[:, 4:] == v[:, 4:]).float().mean().item()}

    return set_up(model, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate)


class Seq2Seq(nn.Module):
    def __init__(self, V, d=24):
        super().__init__()
        self.encoder = nn.ModuleDict(
            {"emb": nn.Embedding(V, d), "rnn": nn.GRU(d, d, batch_first=True)}
        )
        self.decoder = nn.ModuleDict(
            {
                "emb": nn.Embedding(V + 1, d),
                "rnn": nn.GRU(d, d, batch_first=True),
                "out": nn.Linear(d, V),
            }
        )
        self.sos = V

    def forward(self, src, tgt=None):
        _, h = self.encoder["rnn"](self.encoder["emb"](src))
        B, T = src.shape
        sos = torch.full((B, 1), self.sos)
        if tgt is not None:
            o, _ = self.decoder["rnn"](self.decoder["emb"](torch.cat([sos, tgt[:, :-1]], 1)), h)
            return self.decoder["out"](o)
        y, out = sos, []
        for _ in range(T):
            o, h = self.decoder["rnn"](self.decoder["emb"](y), h)
            logits = self.decoder["out"](o)
            out.append(logits)
            y = logits.argmax(-1)
        return torch.cat(out, 1)


@pair("missing-zero-grad")
def seq2seq_encoder_never_zeroed(bug):
    """Encoder and decoder have an optimizer each; only the decoder's gradients are cleared. After
    500 steps token_acc is 0.6455 instead of 0.9551."""
    seed(3)
    V, T = 8, 4
    X = torch.randint(0, V, (1024, T))
    Y = X.flip(1)
    tr, va = loader(X[:768], Y[:768], bs=16, s=3), loader(X[768:], Y[768:], bs=100, shuffle=False)
    model = Seq2Seq(V)
    eo = torch.optim.Adam(model.encoder.parameters(), 5e-3)
    do = torch.optim.Adam(model.decoder.parameters(), 5e-3)

    def loss_of(m, b):
        return F.cross_entropy(m(b[0], b[1]).flatten(0, 1), b[1].flatten())

    def step(batch):
        model.train()
        if not bug:
            eo.zero_grad()
        do.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        eo.step()
        do.step()
        return loss.item()

    return set_up(
        model,
        [eo, do],
        tr,
        step,
        val_loader=va,
        loss_of=loss_of,
        evaluate=mean_eval(model, va, {"token_acc": lambda m, b: m(b[0]).argmax(-1) == b[1]}),
    )


@pair("sees-the-future")
def lm_float_triu_mask(bug):
    """attn_mask is triu(ones) as float: it adds 1 to the future's scores where it should forbid it.
    After 900 steps prefix_nll is 9.3208 instead of 1.2537."""
    seed(4)
    V, T = 12, 10
    P = torch.softmax(torch.randn(V, V) * 2, 1)

    def chain(n):
        x = [torch.randint(0, V, (n,))]
        for _ in range(T):
            x.append(torch.multinomial(P[x[-1]], 1)[:, 0])
        return torch.stack(x, 1)

    x, v = chain(1000), chain(200)
    tr, va = (
        loader(x[:, :-1], x[:, 1:], bs=24, s=4),
        loader(v[:, :-1], v[:, 1:], bs=64, shuffle=False),
    )

    class LM(Enc):
        def forward(self, x):
            t = x.shape[1]
            m = torch.triu(torch.ones(t, t), 1)
            if not bug:
                m = m.bool()
            return super().forward(x, mask=m)

    model = LM(V, T)
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_fn(o, y):
        return F.cross_entropy(o.transpose(1, 2), y)

    step = plain_step(model, opt, pairloss(loss_fn))

    def stepwise(m, b):
        # as in generation: the model is given the prefix alone
        return torch.stack(
            [
                F.cross_entropy(m(b[0][:, :t])[:, -1], b[1][:, t - 1], reduction="none")
                for t in range(1, T + 1)
            ],
            1,
        )

    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        evaluate=mean_eval(model, va, {"prefix_nll": stepwise}),
    )


@pair("rows-mixed")
def posenc_on_batch_axis(bug):
    """The tutorial's PositionalEncoding (time first) in a batch_first model: pe[:B] is added by row
    of the batch. After 400 steps acc is 0.5467 instead of 1.0."""
    seed(5)
    V, T, d = 10, 8, 24

    class PE(nn.Module):
        def __init__(self, max_len=100):
            super().__init__()
            p = torch.arange(max_len)[:, None]
            w = torch.exp(torch.arange(0, d, 2) * (-math.log(1e4) / d))
            pe = torch.zeros(max_len, 1, d)
            pe[:, 0, 0::2] = torch.sin(p * w)
            pe[:, 0, 1::2] = torch.cos(p * w)
            self.register_buffer("pe", pe)

        def forward(self, x):
            if bug:
                return x + self.pe[: x.size(0)]
            return x + self.pe[: x.size(1)].transpose(0, 1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(V, d)
            self.pe = PE()
            lay = nn.TransformerEncoderLayer(d, 2, 48, dropout=0.0, batch_first=True)
            self.enc = nn.TransformerEncoder(lay, 1, enable_nested_tensor=False)
            self.out = nn.Linear(d, 2)

        def forward(self, x):
            return self.out(self.enc(self.pe(self.emb(x))).mean(1))

    def data(n):  # does token 0 come before token 1?
        x = torch.randint(2, V, (n, T))
        pos = torch.rand(n, T).argsort(1)[:, :2]
        x.scatter_(1, pos[:, :1], 0)
        x.scatter_(1, pos[:, 1:], 1)
        return x, (pos[:, 0] < pos[:, 1]).long()

    tr, v = loader(*data(1000), s=5), data(300)
    va = loader(*v, bs=64, shuffle=False)
    model = Net()
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.CrossEntropyLoss()
    step = plain_step(model, opt, pairloss(loss_fn))
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=loss_fn,
        num_classes=2,
        evaluate=mean_eval(model, va, {"acc": acc}),
        **saving(model, opt),
    )


@pair("accum-mean-of-means")
def accumulation_mean_of_token_means(bug):
    """Four micro-batches of very unequal lengths; each one's token mean is divided by 4 (not by all
    tokens of the update). After 400 steps nll is 0.9456 instead of 0.6582."""
    seed(6)
    V = 13
    n = 640
    L = torch.where(torch.rand(n) < 0.75, torch.randint(2, 4, (n,)), torch.randint(14, 17, (n,)))
    rows = []
    # the short ones count up by 5, the long by 1: a model of one token back chooses by frequency
    for k in L.tolist():
        x = torch.randint(1, V, (1,)).item()
        r = []
        for _ in range(k):
            r.append(x)
            x = (x - 1 + (5 if k < 5 else 1)) % (V - 1) + 1
        rows.append(torch.tensor(r))

    def collate(b):
        b = sorted(b, key=len)
        p = nn.utils.rnn.pad_sequence(b, batch_first=True)
        y = p[:, 1:].clone()
        y[y == 0] = -100
        return {"input_ids": p[:, :-1], "labels": y}

    tr = DataLoader(rows[:512], 16, shuffle=True, generator=gen(6), collate_fn=collate)
    va = DataLoader(rows[512:], 32, collate_fn=collate)
    model = nn.Sequential(
        nn.Embedding(V, 16, padding_idx=0), nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, V)
    )
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def tok(m, b, r):
        return F.cross_entropy(
            m(b["input_ids"]).transpose(1, 2), b["labels"], ignore_index=-100, reduction=r
        )

    def loss_of(m, b):
        return tok(m, b, "mean")

    def step(batch):
        model.train()
        opt.zero_grad()
        total = (batch["labels"] != -100).sum()
        out = 0.0
        for i in range(0, len(batch["labels"]), 4):
            mb = {k: v[i : i + 4] for k, v in batch.items()}
            loss = tok(model, mb, "mean") / 4 if bug else tok(model, mb, "sum") / total
            loss.backward()
            out += loss.item()
        opt.step()
        return out

    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_of=loss_of,
        evaluate=mean_eval(model, va, {"nll": lambda m, b: tok(m, b, "none")[b["labels"] != -100]}),
    )


@pair("wrong-targets")
def ctc_blank_is_a_symbol(bug):
    """Labels keep the symbol 0, which CTCLoss takes for the blank (the vocabulary was not moved up
    by one). After 400 steps exact is 0.47 instead of 1.0."""
    seed(7)
    K, d = 5, 6
    proto = torch.randn(K, d) * 1.5

    def data(n):
        y = torch.zeros(n, 4, dtype=torch.long)
        yl = torch.randint(2, 5, (n,))
        x = torch.randn(n, 16, d) * 0.3
        for i in range(n):
            t = 0
            prev = -1
            for j in range(yl[i]):
                c = random.choice([k for k in range(K) if k != prev])
                y[i, j] = prev = c
                t += random.randint(0, 1)
                x[i, t : t + 2] += proto[c]
                t += 2 + random.randint(0, 1)
        return x, y, torch.full((n,), 16), yl

    off = 0 if bug else 1
    A, B = data(400), data(100)
    tr = loader(A[0], A[1] + off, *A[2:], bs=8, s=7)
    va = loader(B[0], B[1] + off, *B[2:], bs=50, shuffle=False)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.Sequential(
                nn.Conv1d(d, 24, 5, padding=2), nn.ReLU(), nn.Conv1d(24, K + off, 3, padding=1)
            )

        def forward(self, x):
            return self.c(x.transpose(1, 2)).transpose(1, 2).log_softmax(-1)

    model = Net()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    ctc = nn.CTCLoss(blank=0)

    def loss_of(m, b):
        return ctc(m(b[0]).transpose(0, 1), b[1], b[2], b[3])

    step = plain_step(model, opt, loss_of)

    def exact(m, b):
        ok = []
        for p, y, size in zip(m(b[0]).argmax(-1), b[1], b[3], strict=True):
            q = [c for c in torch.unique_consecutive(p).tolist() if c != 0]
            ok.append(float(q == y[:size].tolist()))
        return torch.tensor(ok)

    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_of=loss_of,
        evaluate=mean_eval(model, va, {"exact": exact}),
    )


@pair("wrong-formula")
def word2vec_negatives_pulled(bug):
    """Skip-gram with negative sampling: logsigmoid(+score) for negatives too; all vectors go one
    way. After 400 steps rank_acc is 0.5525 instead of 0.9525."""
    seed(8)
    V, topics = 40, 5
    top = torch.arange(V) % topics
    c = torch.randint(0, V, (2000,))
    same = torch.rand(2000) < 0.9
    ctx = torch.where(
        same, top[c] + topics * torch.randint(0, V // topics, (2000,)), torch.randint(0, V, (2000,))
    )
    tr, va = (
        loader(c[:1600], ctx[:1600], bs=64, s=8),
        loader(c[1600:], ctx[1600:], bs=100, shuffle=False),
    )

    class W2V(nn.Module):
        def __init__(self):
            super().__init__()
            self.u = nn.Embedding(V, 12)
            self.v = nn.Embedding(V, 12)

        def forward(self, c, o):
            return (self.u(c) * self.v(o)).sum(-1)

    model = W2V()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_of(m, b):
        neg = torch.randint(0, V, (len(b[0]), 5))
        n = m(b[0][:, None].expand(-1, 5), neg)
        return -(F.logsigmoid(m(b[0], b[1])) + F.logsigmoid(n if bug else -n).sum(1)).mean()

    step = plain_step(model, opt, loss_of)

    def evaluate():
        with torch.no_grad():
            e = F.normalize(model.u.weight, dim=1)
            s = e @ e.T
            s.fill_diagonal_(-2)
            r = mean_eval(
                model, va, {"rank_acc": lambda m, b: m(b[0], b[1]) > m(b[0], (b[1] + 1) % V)}
            )()
        return {"neighbour_same_topic": (top[s.argmax(1)] == top).float().mean().item(), **r}

    return set_up(model, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate)
