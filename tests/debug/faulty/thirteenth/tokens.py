"""Faults of models that read tokens: masks, padding, labels, carried states."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.faulty.kit import pair
from tests.debug.faulty.thirteenth.kit import (
    Block,
    Columns,
    accuracy,
    evaluating,
    gen,
    loader,
    set_up,
    sup_step,
)


def _markov(n, T, V, seed):
    P = torch.softmax(2.0 * torch.randn(V, V, generator=gen(3)), 1)
    g = gen(seed)
    s = [torch.randint(V, (n,), generator=g)]
    for _ in range(T - 1):
        s.append(torch.multinomial(P[s[-1]], 1, generator=g)[:, 0])
    return torch.stack(s, 1)


@pair("sees-the-future")
def decoder_unmasked(bug):
    """Decoder-only LM is built without the causal mask: each position attends to the token it must
    predict. After 300 steps val_nll is 0.117 instead of 1.329."""
    torch.manual_seed(0)
    V, T, d = 10, 14, 32

    class GPT(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = nn.Embedding(V, d)
            s.p = nn.Embedding(T, d)
            s.b = nn.ModuleList([Block(d)])
            s.o = nn.Linear(d, V)

        def forward(s, ids):
            n = ids.shape[1]
            x = s.e(ids) + s.p.weight[:n]
            m = None if bug else torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
            for b in s.b:
                x = b(x, attn_mask=m)
            return s.o(x)

    model = GPT()
    opt = torch.optim.AdamW(model.parameters(), 3e-3)
    tr = loader((_markov(512, T + 1, V, 1),), 12, 1)
    va = loader((_markov(150, T + 1, V, 2),), 32, shuffle=False)

    def loss_of(m, batch):
        ids = batch[0]
        return F.cross_entropy(m(ids[:, :-1]).reshape(-1, V), ids[:, 1:].reshape(-1))

    def step(batch):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        return loss.item()

    def evaluate():
        t = n = 0
        with evaluating(model):
            for b in va:
                t += loss_of(model, b).item() * len(b[0])
                n += len(b[0])
        return {"val_nll": t / n, "val_ppl": math.exp(t / n)}

    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_of=loss_of,
        evaluate=evaluate,
        declared={"max_grad_norm": 1.0},
        num_classes=V,
    )


@pair("padding-not-masked")
def pad_mask_inverted(bug):
    """key_padding_mask gets the mask of real tokens (True = real), where MultiheadAttention hides
    what is True: real tokens see only pads. After 300 steps val_acc is 0.42 instead of 1.0."""
    torch.manual_seed(0)
    V, T, d = 20, 14, 32

    def data(n, seed):
        g = gen(seed)
        L = torch.randint(5, T - 1, (n,), generator=g)
        m = torch.arange(T)[None] < L[:, None]
        ids = torch.randint(3, V, (n, T), generator=g)
        ids[ids == 5] = 6
        y = torch.randint(2, (n,), generator=g)
        for i in range(n):
            if y[i]:
                ids[i, 1 + torch.randint(int(L[i]) - 1, (1,), generator=g)] = 5
        ids[:, 0] = 1
        return Columns(input_ids=ids * m, attention_mask=m.long(), labels=y)

    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = nn.Embedding(V, d, padding_idx=0)
            s.p = nn.Parameter(torch.randn(T, d) * 0.1)
            s.b = nn.ModuleList([Block(d)])
            s.o = nn.Linear(d, 2)

        def forward(s, ids, mask):
            x = s.e(ids) + s.p
            pad = mask.bool() if bug else ~mask.bool()
            for b in s.b:
                x = b(x, pad=pad)
            return s.o(x[:, 0])

    model = Net()
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    tr = loader(data(500, 1), 20, 1)
    va = loader(data(150, 2), 40, shuffle=False)

    def loss_of(m, b):
        return F.cross_entropy(m(b["input_ids"], b["attention_mask"]), b["labels"])

    def step(b):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        ok = n = 0
        with evaluating(model):
            for b in va:
                ok += (
                    (model(b["input_ids"], b["attention_mask"]).argmax(1) == b["labels"])
                    .sum()
                    .item()
                )
                n += len(b["labels"])
        return {"val_acc": ok / n}

    return set_up(
        model, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate, num_classes=2
    )


@pair("padding-in-the-loss")
def pads_in_loss(bug):
    """Tagger: collate pads the tags with 0, which is the real tag 'O', so pads count as correct 'O'
    tokens in loss and accuracy. After 300 steps token_acc is 0.833 instead of 0.668."""
    torch.manual_seed(0)
    V, C = 30, 4
    PAD_TAG = 0 if bug else -100

    def data(n, seed):
        g = gen(seed)
        out = []
        for _ in range(n):
            L = (
                int(torch.randint(3, 9, (1,), generator=g))
                if torch.rand(1, generator=g) < 0.85
                else 16
            )
            ids = torch.randint(2, V, (L,), generator=g)
            prev = torch.cat([torch.tensor([2]), ids[:-1]])
            out.append((ids, (ids + prev) % C))
        return out

    def collate(items):
        a, b = zip(*items, strict=False)
        P = nn.utils.rnn.pad_sequence
        return {
            "ids": P(list(a), True, 0),
            "lengths": torch.tensor([len(x) for x in a]),
            "tags": P(list(b), True, PAD_TAG),
        }

    class Tagger(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = nn.Embedding(V, 24, padding_idx=0)
            s.r = nn.GRU(24, 32, batch_first=True)
            s.o = nn.Linear(32, C)

        def forward(s, ids, L):
            p = nn.utils.rnn.pack_padded_sequence(s.e(ids), L, True, enforce_sorted=False)
            return s.o(
                nn.utils.rnn.pad_packed_sequence(s.r(p)[0], True, total_length=ids.shape[1])[0]
            )

    model = Tagger()
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    tr = DataLoader(data(300, 1), 10, shuffle=True, generator=gen(1), collate_fn=collate)
    va = DataLoader(data(100, 2), 12, collate_fn=collate)

    def loss_of(m, b):
        return F.cross_entropy(m(b["ids"], b["lengths"]).flatten(0, 1), b["tags"].flatten())

    def step(b):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        ok = n = 0
        with evaluating(model):
            for b in va:
                keep = b["tags"] != -100
                ok += ((model(b["ids"], b["lengths"]).argmax(-1) == b["tags"]) & keep).sum().item()
                n += keep.sum().item()
        return {"token_acc": ok / n}

    return set_up(
        model, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate, num_classes=C
    )


@pair("rows-mixed")
def gru_batch_first(bug):
    """GRU built without batch_first=True gets (batch, time, features): it recurs over the examples
    of the batch, not over time. After 300 steps val_loss is 0.583 instead of 0.0."""
    torch.manual_seed(0)
    V, T = 8, 10

    def data(n, seed):  # which of tokens 1 and 2 comes first
        g = gen(seed)
        x = torch.randint(3, V, (n, T), generator=g)
        y = torch.randint(2, (n,), generator=g)
        for i in range(n):
            a, b = sorted(torch.randperm(T, generator=g)[:2].tolist())
            x[i, a], x[i, b] = (1, 2) if y[i] else (2, 1)
        return x, y

    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = nn.Embedding(V, 16)
            s.r = nn.GRU(16, 32, batch_first=not bug)
            s.o = nn.Linear(32, 2)

        def forward(s, x):
            return s.o(s.r(s.e(x))[0][:, -1])

    model = Net()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    ce = nn.CrossEntropyLoss()
    tr = loader(data(500, 1), 20, 1)
    va = loader(data(150, 2), 40, shuffle=False)
    step = sup_step(model, opt, ce)
    return set_up(
        model,
        opt,
        tr,
        step,
        val_loader=va,
        loss_fn=ce,
        evaluate=lambda: accuracy(model, va),
        num_classes=2,
    )


@pair("wrong-targets")
def masks_its_labels(bug):
    """MLM collator: labels = ids (no clone) before ids[mask] = MASK, so the label at each masked
    place is MASK itself. After 300 steps masked_acc is 1.0 instead of 0.473."""
    torch.manual_seed(0)
    V, T, d = 12, 10, 32
    MASK = 11

    def data(n, seed):
        g = gen(seed)
        a = torch.randint(11, (n, 1), generator=g)
        k = torch.randint(1, 4, (n, 1), generator=g)
        return (a + k * torch.arange(T)) % 11

    class Collate:
        def __init__(s, seed, fixed):
            s.seed, s.fixed, s.g = seed, fixed, gen(seed)

        def __call__(s, items):
            idx = [i for i, _ in items]
            g = gen(s.seed + idx[0]) if s.fixed else s.g
            ids = torch.stack([t for _, t in items])
            labels = ids if bug else ids.clone()
            masked = torch.rand(ids.shape, generator=g) < 0.2
            masked[:, 3] |= ~masked.any(1)
            ids[masked] = MASK
            return {"input_ids": ids, "labels": labels, "masked": masked}

    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = nn.Embedding(V, d)
            s.p = nn.Parameter(torch.randn(T, d) * 0.1)
            s.b = nn.ModuleList([Block(d), Block(d)])
            s.o = nn.Linear(d, V)

        def forward(s, ids):
            x = s.e(ids) + s.p
            for b in s.b:
                x = b(x)
            return s.o(x)

    model = Net()
    opt = torch.optim.AdamW(model.parameters(), 3e-3)
    tr = DataLoader(
        list(enumerate(data(400, 1))),
        16,
        shuffle=True,
        generator=gen(1),
        collate_fn=Collate(5, False),
    )
    va = DataLoader(list(enumerate(data(100, 2))), 25, collate_fn=Collate(6, True))

    def loss_of(m, b):
        return F.cross_entropy(m(b["input_ids"])[b["masked"]], b["labels"][b["masked"]])

    def step(b):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        ok = n = 0
        with evaluating(model):
            for b in va:
                k = b["masked"]
                ok += (model(b["input_ids"])[k].argmax(-1) == b["labels"][k]).sum().item()
                n += k.sum().item()
        return {"masked_acc": ok / n}

    return set_up(
        model, opt, tr, step, val_loader=va, loss_of=loss_of, evaluate=evaluate, num_classes=V
    )


@pair("state-carried")
def chunks_shuffled(bug):
    """Truncated BPTT with a carried hidden state, but the loader shuffles the consecutive chunks:
    the state comes from another place of the stream. After 300 steps val_acc is 0.581 instead of
    1.0."""
    torch.manual_seed(0)
    B, T, N = 12, 8, 40

    def stream(seed):  # tokens 0-3 noise, 4-7 commands; target: the command in force
        g = gen(seed)
        x = torch.randint(4, (B, N * T), generator=g)
        c = torch.rand(B, N * T, generator=g) < 0.05
        c[:, 0] = True
        x = torch.where(c, x + 4, x)
        y = torch.zeros_like(x)
        cur = torch.zeros(B, dtype=torch.long)
        for t in range(N * T):
            cur = torch.where(c[:, t], x[:, t] - 4, cur)
            y[:, t] = cur
        return [
            {"chunk": i, "x": x[:, i * T : (i + 1) * T], "y": y[:, i * T : (i + 1) * T]}
            for i in range(N)
        ]

    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = nn.Embedding(8, 16)
            s.r = nn.GRU(16, 32, batch_first=True)
            s.o = nn.Linear(32, 4)

        def forward(s, x, h=None):
            z, h = s.r(s.e(x), h)
            return s.o(z), h

    class Trainer:
        def __init__(s):
            s.model = Net()
            s.opt = torch.optim.Adam(s.model.parameters(), 5e-3)
            s.h = None
            s.tr = DataLoader(stream(1), batch_size=None, shuffle=bug, generator=gen(1))
            s.va = DataLoader(stream(2), batch_size=None)

        def step(s, b):
            s.model.train()
            h = None if b["chunk"] == 0 else s.h
            o, h = s.model(b["x"], h)
            loss = F.cross_entropy(o.flatten(0, 1), b["y"].flatten())
            s.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(s.model.parameters(), 1.0)
            s.opt.step()
            s.h = h.detach()
            return loss.item()

        def evaluate(s):
            ok = n = 0
            h = None
            with evaluating(s.model):
                for b in s.va:
                    o, h = s.model(b["x"], h)
                    ok += (o.argmax(-1) == b["y"]).sum().item()
                    n += b["y"].numel()
            return {"val_acc": ok / n}

    t = Trainer()
    return set_up(
        t.model,
        t.opt,
        t.tr,
        t.step,
        val_loader=t.va,
        evaluate=t.evaluate,
        declared={"max_grad_norm": 1.0, "stateful": True},
        num_classes=4,
    )
