"""Faults of models that read tokens or sounds: shifts, masks, axes, padding, blanks."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.fifteenth.kit import Columns, gen, markov, plain_step, seed, set_up
from tests.debug.faulty.kit import pair


@pair("target-in-inputs")
def basket_gru(bug):
    """A next-item GRU whose loss compares logits[t] with item[t] instead of item[t+1], in
    evaluation too: it copies its input. After 150 steps val_ppl is 1.0021 instead of 3.3275."""
    seed(1)
    V = 12
    g = gen(1)
    tr, va = markov(512, 14, V, g), markov(100, 14, V, g)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(V, 24)
            self.r = nn.GRU(24, 32, batch_first=True)
            self.o = nn.Linear(32, V)

        def forward(self, ids):
            return self.o(self.r(self.e(ids))[0])

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 0.01)
    tl = DataLoader(Columns(items=tr), 32, shuffle=True, generator=gen(2))
    vl = DataLoader(Columns(items=va), 32)

    def loss_of(model, b):
        ids = b["items"]
        lo = model(ids)
        if bug:
            return F.cross_entropy(lo.flatten(0, 1), ids.flatten())
        return F.cross_entropy(lo[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    step = plain_step(m, opt, loss_of)

    def evaluate():
        m.eval()
        t = n = 0
        with torch.no_grad():
            for b in vl:
                k = len(b["items"])
                t += loss_of(m, b).item() * k
                n += k
        m.train()
        return {"val_ppl": math.exp(t / n)}

    return set_up(m, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)


@pair("sees-the-future")
def nano_gpt_mask(bug):
    """torch.triu(torch.ones) is handed over as a float attn_mask: it adds 1.0 to the future's
    scores instead of hiding it. After 300 steps val_ppl is 1.2377 instead of 8.2045."""
    seed(2)
    V, T, D = 12, 12, 32
    g = gen(3)
    tr = markov(600, T + 1, V, g, 1.0)
    va = markov(120, T + 1, V, g, 1.0)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
            self.a = nn.MultiheadAttention(D, 2, batch_first=True)
            self.f = nn.Sequential(nn.Linear(D, 64), nn.GELU(), nn.Linear(64, D))

        def forward(self, x):
            t = x.size(1)
            mask = torch.triu(torch.ones(t, t), 1)
            if not bug:
                mask = mask.bool()
            h = self.n1(x)
            x = x + self.a(h, h, h, attn_mask=mask, need_weights=False)[0]
            return x + self.f(self.n2(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.p = nn.Embedding(V, D), nn.Embedding(T, D)
            self.b = nn.Sequential(Block())
            self.n = nn.LayerNorm(D)
            self.o = nn.Linear(D, V)

        def forward(self, x):
            return self.o(self.n(self.b(self.e(x) + self.p(torch.arange(x.size(1))))))

    m = GPT()
    opt = torch.optim.AdamW(m.parameters(), 0.003)

    def ds(z):
        return TensorDataset(z[:, :-1], z[:, 1:])

    tl = DataLoader(ds(tr), 24, shuffle=True, generator=gen(1))
    vl = DataLoader(ds(va), 24)

    def crit(o, y):
        return F.cross_entropy(o.transpose(1, 2), y)

    def step(b):
        m.train()
        x, y = b
        opt.zero_grad()
        loss = crit(m(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        m.eval()
        t = sum(crit(m(x), y).item() * len(x) for x, y in vl)
        m.train()
        return {"val_ppl": math.exp(t / len(va))}

    return set_up(
        m,
        opt,
        tl,
        step,
        val_loader=vl,
        loss_fn=crit,
        evaluate=evaluate,
        declared={"max_grad_norm": 1.0},
    )


@pair("empty-targets")
def pad_is_eos(bug):
    """labels[labels == pad] = -100 where pad is the end sign too: the model never learns to stop.
    After 150 steps p_stop_at_end is 0.0005 instead of 0.9932."""
    seed(3)
    V, EOS = 12, 1
    g = gen(4)

    def make(n):
        rows = []
        for _ in range(n):
            k = int(torch.randint(3, 9, (1,), generator=g))
            body = torch.randint(3, V, (k,), generator=g)
            # a closing bracket comes before the end
            body[-1] = 2
            ids = torch.full((11,), EOS)
            ids[:k] = body
            am = torch.zeros(11, dtype=torch.long)
            am[: k + 1] = 1
            rows.append({"input_ids": ids, "attention_mask": am})
        return rows

    tr, va = make(400), make(90)

    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(V, 16)
            self.r = nn.LSTM(16, 32, batch_first=True)
            self.o = nn.Linear(32, V)

        def forward(self, i):
            return self.o(self.r(self.e(i))[0])

    def collate(rows):
        b = {k: torch.stack([r[k] for r in rows]) for k in rows[0]}
        lab = b["input_ids"].clone()
        if bug:
            lab[lab == EOS] = -100
        else:
            lab[b["attention_mask"] == 0] = -100
        b["labels"] = lab
        return b

    m = LM()
    opt = torch.optim.Adam(m.parameters(), 0.005)
    tl = DataLoader(tr, 20, shuffle=True, collate_fn=collate, generator=gen(2))
    vl = DataLoader(va, 30, collate_fn=collate)

    def loss_of(model, b):
        return F.cross_entropy(
            model(b["input_ids"])[:, :-1].flatten(0, 1),
            b["labels"][:, 1:].flatten(),
            ignore_index=-100,
        )

    def step(b):
        m.train()
        loss = loss_of(m, b)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        m.eval()
        p = n = c = k = 0.0
        for b in vl:
            lo = m(b["input_ids"])
            last = b["attention_mask"].sum(1) - 2
            p += lo[torch.arange(len(last)), last].softmax(-1)[:, EOS].sum().item()
            n += len(last)
            c += F.cross_entropy(
                lo[:, :-1].flatten(0, 1),
                b["labels"][:, 1:].flatten(),
                ignore_index=-100,
                reduction="sum",
            ).item()
            k += (b["labels"][:, 1:] != -100).sum().item()
        m.train()
        return {"val_loss": c / k, "p_stop_at_end": p / n}

    return set_up(m, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)


@pair("rows-mixed")
def encoder_axis(bug):
    """nn.TransformerEncoderLayer is left at batch_first=False and fed [batch, time, dim]: rows
    attend to rows. After 400 steps acc is 0.63 instead of 1."""
    seed(4)
    V, T, D = 6, 6, 24
    g = gen(6)

    def make(n):
        x = torch.randint(1, V, (n, T), generator=g)
        y = (x[:, 0] == x[:, 3]).long()
        h = n // 2
        x[:h, 3] = x[:h, 0]
        y[:h] = 1
        p = torch.randperm(n, generator=g)
        return TensorDataset(x[p], y[p])

    class Clf(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(V, D)
            self.p = nn.Parameter(torch.randn(T, D) * 0.3)
            self.t = nn.TransformerEncoder(
                nn.TransformerEncoderLayer(D, 4, 48, 0.0, batch_first=not bug),
                1,
                enable_nested_tensor=False,
            )
            self.o = nn.Linear(D, 2)

        def forward(self, x):
            return self.o(self.t(self.e(x) + self.p)[:, 0])

    m = Clf()
    opt = torch.optim.Adam(m.parameters(), 0.003)
    tl = DataLoader(make(800), 32, shuffle=True, generator=gen(1))
    vl = DataLoader(make(200), 50)
    ce = nn.CrossEntropyLoss()

    def step(b):
        m.train()
        opt.zero_grad()
        loss = ce(m(b[0]), b[1])
        loss.backward()
        opt.step()
        return float(loss.detach())

    @torch.no_grad()
    def evaluate():
        m.eval()
        r = sum((m(x).argmax(1) == y).sum().item() for x, y in vl)
        m.train()
        return {"acc": r / 200}

    return set_up(m, opt, tl, step, val_loader=vl, loss_fn=ce, num_classes=2, evaluate=evaluate)


@pair("padding-not-masked")
def review_lengths(bug):
    """out[:, -1] of a batch padded on the right: the state after up to 21 pads, not after the last
    word. After 120 steps val_acc is 0.6771 instead of 1."""
    seed(5)
    V = 20
    g = gen(7)

    def make(n):
        rows = []
        for _ in range(n):
            k = int(torch.randint(3, 25, (1,), generator=g))
            x = torch.randint(1, V, (k,), generator=g)
            rows.append((x, int(x[-1] % 4)))
        return rows

    def collate(rows):
        L = torch.tensor([len(x) for x, _ in rows])
        return {
            "tokens": nn.utils.rnn.pad_sequence([x for x, _ in rows], batch_first=True),
            "length": L,
            "stars": torch.tensor([y for _, y in rows]),
        }

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(V, 16, padding_idx=0)
            self.r = nn.GRU(16, 16, batch_first=True)
            self.o = nn.Linear(16, 4)

        def forward(self, tokens, length):
            h = self.r(self.e(tokens))[0]
            return self.o(h[:, -1] if bug else h[torch.arange(len(h)), length - 1])

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 0.005)
    tl = DataLoader(make(480), 24, shuffle=True, collate_fn=collate, generator=gen(1))
    vl = DataLoader(make(96), 24, collate_fn=collate)

    def loss_of(model, b):
        return F.cross_entropy(model(b["tokens"], b["length"]), b["stars"])

    step = plain_step(m, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        m.eval()
        r = sum((m(b["tokens"], b["length"]).argmax(1) == b["stars"]).sum().item() for b in vl)
        m.train()
        return {"val_acc": r / 96}

    return set_up(
        m, opt, tl, step, val_loader=vl, loss_of=loss_of, num_classes=4, evaluate=evaluate
    )


@pair("accum-mean-of-means")
def accum_tokens(bug):
    """Each micro-batch's mean over its tokens is divided by 4: the tokens of short sequences count
    many times. After 150 steps val_token_loss is 1.8117 instead of 1.4121."""
    seed(6)
    V = 14
    g = gen(8)
    P1, P2 = (torch.softmax(3 * torch.randn(V, V, generator=gen(k)), -1) for k in (1, 2))

    def make(n):
        rows = []
        for _ in range(n):
            short = torch.rand((), generator=g) < 0.75
            k = int(torch.randint(*((2, 4) if short else (22, 30)), (1,), generator=g))
            x = [int(torch.randint(1, V, (1,), generator=g))]
            for _ in range(k):
                law = (P1 if short else P2)[x[-1]]
                x.append(max(1, int(torch.multinomial(law, 1, generator=g))))
            rows.append(torch.tensor(x))
        return rows

    def collate(rows):
        rows = sorted(rows, key=len)
        x = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        lab = x[:, 1:].clone()
        lab[lab == 0] = -100
        return {"x": x[:, :-1], "labels": lab}

    class Bi(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(V, 8)
            self.o = nn.Linear(8, V)

        def forward(self, x):
            return self.o(self.e(x))

    m = Bi()
    opt = torch.optim.Adam(m.parameters(), 0.01)
    tl = DataLoader(make(384), 16, shuffle=True, collate_fn=collate, generator=gen(3))
    vl = DataLoader(make(96), 16, collate_fn=collate)

    def loss_of(model, b, reduction="mean"):
        return F.cross_entropy(
            model(b["x"]).flatten(0, 1),
            b["labels"].flatten(),
            ignore_index=-100,
            reduction=reduction,
        )

    def step(b):
        opt.zero_grad()
        total = (b["labels"] != -100).sum()
        out = 0.0
        for i in range(4):
            mb = {k: v.chunk(4)[i] for k, v in b.items()}
            loss = loss_of(m, mb) / 4 if bug else loss_of(m, mb, "sum") / total
            loss.backward()
            out += loss.item()
        opt.step()
        return out

    @torch.no_grad()
    def evaluate():
        t = n = 0
        for b in vl:
            t += loss_of(m, b, "sum").item()
            n += (b["labels"] != -100).sum().item()
        return {"val_token_loss": t / n}

    return set_up(
        m,
        opt,
        tl,
        step,
        val_loader=vl,
        loss_of=loss_of,
        evaluate=evaluate,
        declared={"accumulate": 4},
    )


@pair("missing-log-softmax")
def ctc_raw(bug):
    """nn.CTCLoss is given raw scores instead of log-probabilities: the loss runs below zero. After
    200 steps exact is 0.9219 instead of 1."""
    seed(7)
    C, T = 6, 12
    g = gen(9)
    proto = torch.randn(C, 8, generator=g)

    def make(n):
        X, Y = [], []
        for _ in range(n):
            y = torch.randint(1, C, (3,), generator=g)
            x = torch.zeros(T, 8)
            for j, c in enumerate(y):
                x[4 * j : 4 * j + 3] = proto[c]
            X.append(x + 0.2 * torch.randn(T, 8, generator=g))
            Y.append(y)
        return Columns(audio=torch.stack(X), text=torch.stack(Y))

    m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, C))
    opt = torch.optim.Adam(m.parameters(), 0.005)
    tl = DataLoader(make(320), 16, shuffle=True, generator=gen(1))
    vl = DataLoader(make(64), 16)
    ctc = nn.CTCLoss(blank=0)

    def loss_of(model, b):
        lo = model(b["audio"]).transpose(0, 1)
        n = lo.size(1)
        if not bug:
            lo = lo.log_softmax(-1)
        return ctc(lo, b["text"], torch.full((n,), T), torch.full((n,), 3))

    step = plain_step(m, opt, loss_of)

    @torch.no_grad()
    def evaluate():
        ok = 0
        for b in vl:
            for row, y in zip(m(b["audio"]).argmax(-1), b["text"], strict=True):
                s = [int(v) for v in torch.unique_consecutive(row) if v != 0]
                ok += s == y.tolist()
        return {"exact": ok / 64}

    return set_up(m, opt, tl, step, val_loader=vl, loss_of=loss_of, evaluate=evaluate)
