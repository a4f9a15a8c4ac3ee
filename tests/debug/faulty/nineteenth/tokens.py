"""Faults of models that read tokens and series: masks, positions, padding, axes, blanks, states."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.faulty.kit import pair
from tests.debug.faulty.nineteenth.kit import (
    Block,
    averaged,
    by_cost,
    by_pairs,
    clipped,
    evaluating,
    gen,
    language,
    loaders,
    markov,
    mlp,
    seed,
    set_up,
)


@pair("sees-the-future")
def lm_causal_diagonal(bug):
    """The causal mask begins at the second diagonal: each place sees the token that it must
    predict. After 240 steps val_loss is 0.0942 instead of 1.28."""
    seed(1)
    V = 12
    tr = markov(384, 17, V, gen(1))
    va = markov(128, 17, V, gen(2))

    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok = nn.Embedding(V, 32)
            self.pos = nn.Embedding(16, 32)
            self.blocks = nn.ModuleList([Block(32)])
            self.norm = nn.LayerNorm(32)
            self.head = nn.Linear(32, V)

        def forward(self, ids):
            T = ids.shape[1]
            blocked = torch.triu(torch.ones(T, T, dtype=torch.bool), diagonal=2 if bug else 1)
            x = self.tok(ids) + self.pos(torch.arange(T))
            for b in self.blocks:
                x = b(x, ~blocked)
            return self.head(self.norm(x))

    m = LM()
    opt = torch.optim.AdamW(m.parameters(), 3e-3, weight_decay=0.01)
    tl, vl = loaders(tr, va, 16, vbs=50)

    return language(m, opt, tl, vl, V)


@pair("rows-mixed")
def pe_on_batch_axis(bug):
    """The code of positions is added along the rows of the batch, not along time. After 240 steps
    val_acc is 0.453 instead of 1."""
    seed(2)

    def data(n, g):
        ids = torch.randint(2, 10, (n, 8), generator=g)
        p = torch.rand(n, 8, generator=g).argsort(1)[:, :2]
        ids.scatter_(1, p[:, :1], 0)
        ids.scatter_(1, p[:, 1:], 1)
        return {"ids": ids, "label": (p[:, 0] < p[:, 1]).long()}

    class PE(nn.Module):
        def __init__(self, d, n=64):
            super().__init__()
            pos = torch.arange(n).unsqueeze(1)
            div = torch.exp(torch.arange(0, d, 2) * (-math.log(100.0) / d))
            pe = torch.zeros(n, 1, d)
            pe[:, 0, 0::2] = torch.sin(pos * div)
            pe[:, 0, 1::2] = torch.cos(pos * div)
            self.register_buffer("pe", pe)

        def forward(self, x):
            return x + self.pe[: x.size(0)] if bug else x + self.pe[: x.size(1)].transpose(0, 1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(10, 32)
            self.pe = PE(32)
            self.b1 = Block(32, 4)
            self.b2 = Block(32, 4)
            self.head = nn.Linear(32, 2)

        def forward(self, ids):
            return self.head(self.b2(self.b1(self.pe(self.emb(ids)))).mean(1))

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(data(512, gen(1)), data(128, gen(2)), 24, vbs=40)

    def loss_of(model, b):
        return F.cross_entropy(model(b["ids"]), b["label"])

    def sums_of(model, b):
        return {"val_acc": ((model(b["ids"]).argmax(1) == b["label"]).sum(), len(b["label"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=2)


@pair("wrong-targets")
def masked_labels_are_the_inputs(bug):
    """The labels are the same tensor as the inputs, and masking it writes the mask's token into
    both. After 240 steps masked_acc is 1 instead of 0.707, all of it for the mask's token."""
    seed(3)
    V, MASK = 11, 11

    def data(n, g):
        a = torch.randint(V, (n, 1), generator=g)
        st = torch.randint(1, 4, (n, 1), generator=g)
        return (a + st * torch.arange(12)) % V

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(V + 1, 32)
            self.pos = nn.Embedding(12, 32)
            self.blocks = nn.ModuleList([Block(32), Block(32)])
            self.norm = nn.LayerNorm(32)
            self.head = nn.Linear(32, V + 1)

        def forward(self, ids):
            x = self.emb(ids) + self.pos.weight
            for b in self.blocks:
                x = b(x)
            return self.head(self.norm(x))

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 3e-3)
    tl, vl = loaders(data(384, gen(1)), data(100, gen(2)), 24, vbs=40)

    def corrupt(ids):
        labels = ids if bug else ids.clone()
        inp = ids if bug else ids.clone()
        mask = torch.rand(ids.shape) < 0.2
        mask[:, 0] |= ~mask.any(1)
        inp[mask] = MASK
        return inp, labels, mask

    def loss_of(model, ids):
        inp, labels, mask = corrupt(ids)
        return F.cross_entropy(model(inp)[mask], labels[mask])

    def sums_of(model, ids):
        inp, labels, mask = corrupt(ids)
        out = model(inp)[mask]
        n = int(mask.sum())
        return {
            "masked_acc": ((out.argmax(-1) == labels[mask]).sum(), n),
            "masked_loss": (F.cross_entropy(out, labels[mask], reduction="sum"), n),
        }

    def evaluate():
        with torch.random.fork_rng():
            torch.manual_seed(5)
            return averaged(m, vl, sums_of)()

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate)


def ending(n, g, T=24):
    """Rows of any length, filled up with zeros; the last two real steps tell the class."""
    ln = torch.randint(3, T + 1, (n,), generator=g)
    x = torch.randn(n, T, 4, generator=g)
    y = (x[torch.arange(n), ln - 1, 0] + x[torch.arange(n), ln - 2, 1] > 0).long()
    x[torch.arange(T)[None] >= ln[:, None]] = 0
    return {"x": x, "length": ln, "y": y}


@pair("padding-not-masked")
def gru_reads_padded_end(bug):
    """The state behind the padding is read instead of each row's last one. After 240 steps val_acc
    is 0.687 instead of 0.973."""
    seed(4)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(4, 24, batch_first=True)
            self.head = nn.Linear(24, 2)

        def forward(self, x, ln):
            o, _ = self.rnn(x)
            return self.head(o[:, -1] if bug else o[torch.arange(len(o)), ln - 1])

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(ending(512, gen(1)), ending(150, gen(2)))

    def loss_of(model, b):
        return F.cross_entropy(model(b["x"], b["length"]), b["y"])

    def sums_of(model, b):
        return {"val_acc": ((model(b["x"], b["length"]).argmax(1) == b["y"]).sum(), len(b["y"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=2)


@pair("rows-mixed")
def bigru_hn_view(bug):
    """The last states [2, B, H] are viewed as [B, 2H]: the rows mix examples. After 240 steps
    val_mse is 2.68 instead of 0.0161."""
    seed(5)

    def data(n, g):
        x = torch.randn(n, 10, 3, generator=g)
        return x, (x[:, :, 0].mean(1) * 2 + x[:, 0, 1] - x[:, -1, 2]).unsqueeze(1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(3, 16, batch_first=True, bidirectional=True)
            self.head = nn.Linear(32, 1)

        def forward(self, x):
            _, h = self.rnn(x)
            return self.head(
                h.view(x.size(0), -1) if bug else h.permute(1, 0, 2).reshape(x.size(0), -1)
            )

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    crit = nn.MSELoss()
    tl, vl = loaders(data(512, gen(1)), data(128, gen(2)), vbs=50)

    def sums_of(model, b):
        return {"val_mse": (F.mse_loss(model(b[0]), b[1], reduction="sum"), len(b[0]))}

    return by_pairs(m, opt, tl, vl, crit, evaluate=averaged(m, vl, sums_of))


@pair("logits-reshaped")
def tagger_view_for_transpose(bug):
    """Scores [B, T, C] are viewed as [B, C, T] for the loss, not transposed. After 240 steps
    tag_acc is 0.197 instead of 1."""
    seed(6)
    V, C, T = 14, 5, 12

    def data(n, g):
        ids = torch.randint(1, V, (n, T), generator=g)
        ln = torch.randint(5, T + 1, (n,), generator=g)
        tags = (ids + 2 * torch.roll(ids, 1, 1) * (torch.arange(T) > 0)) % C
        pad = torch.arange(T)[None] >= ln[:, None]
        ids[pad] = 0
        tags[pad] = -100
        return {"ids": ids, "tags": tags}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(V, 24, padding_idx=0)
            self.rnn = nn.GRU(24, 32, batch_first=True)
            self.head = nn.Linear(32, C)

        def forward(self, ids):
            return self.head(self.rnn(self.emb(ids))[0])

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    tl, vl = loaders(data(512, gen(1)), data(120, gen(2)), vbs=50)

    def loss_of(model, b):
        o = model(b["ids"])
        o = o.view(o.size(0), C, -1) if bug else o.transpose(1, 2)
        return F.cross_entropy(o, b["tags"], ignore_index=-100)

    def sums_of(model, b):
        k = b["tags"] != -100
        return {"tag_acc": ((model(b["ids"]).argmax(-1) == b["tags"])[k].sum(), int(k.sum()))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=C)


@pair("wrong-targets")
def ctc_symbol_is_the_blank(bug):
    """The symbols are numbered from 0, which CTC keeps for the blank: one of them can never be
    written. After 240 steps sequence_acc is 0.467 instead of 0.989."""
    seed(7)
    K, T, N = 4, 12, 3
    proto = torch.randn(K, 6, generator=gen(50))

    def data(n, g):
        s = torch.randint(K, (n, N), generator=g)
        x = proto[s].repeat_interleave(T // N, 1)
        x[:, T // N - 1 :: T // N] = 0
        x = x + 0.3 * torch.randn(n, T, 6, generator=g)
        return {
            "x": x,
            "y": s if bug else s + 1,
            "x_len": torch.full((n,), T),
            "y_len": torch.full((n,), N),
        }

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(6, 16, batch_first=True, bidirectional=True)
            self.head = nn.Linear(32, K + 1)

        def forward(self, x):
            return self.head(self.rnn(x)[0]).log_softmax(-1)

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    ctc = nn.CTCLoss(blank=0)
    tl, vl = loaders(data(256, gen(1)), data(90, gen(2)), 16, vbs=40)

    def loss_of(model, b):
        return ctc(model(b["x"]).transpose(0, 1), b["y"], b["x_len"], b["y_len"])

    def sums_of(model, b):
        best = model(b["x"]).argmax(-1).tolist()
        ok = 0
        for p, y in zip(best, b["y"].tolist(), strict=True):
            d = [c for i, c in enumerate(p) if c != 0 and (i == 0 or c != p[i - 1])]
            ok += d == y
        return {"sequence_acc": (ok, len(best))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of, **clipped(m, opt, loss_of, 5.0))


@pair("state-carried")
def stateful_chunks_shuffled(bug):
    """The state goes from batch to batch while the loader shuffles the chunks of the text. After
    240 steps val_acc is 0.737 instead of 1."""
    seed(8)
    B, C, K = 16, 20, 6

    def data(g):
        ev = torch.rand(B, C * K, generator=g)
        on, off = ev < 0.06, ev > 0.94
        x = torch.stack([on, off], -1).float()
        y = torch.zeros(B, C * K)
        st = torch.zeros(B)
        for t in range(C * K):
            st = torch.where(on[:, t], 1.0, torch.where(off[:, t], 0.0, st))
            y[:, t] = st
        parts = zip(x.split(K, 1), y.split(K, 1), torch.arange(C), strict=True)
        return [{"x": x, "y": y, "pos": c} for x, y, c in parts]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(2, 16, batch_first=True)
            self.head = nn.Linear(16, 1)

        def forward(self, x, h=None):
            o, h = self.rnn(x, h)
            return self.head(o).squeeze(-1), h

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    state = None
    tl = DataLoader(data(gen(1)), batch_size=None, shuffle=bug, generator=gen(7))
    vl = DataLoader(data(gen(2)), batch_size=None)

    def step(b):
        nonlocal state
        m.train()
        opt.zero_grad()
        out, h = m(b["x"], None if int(b["pos"]) == 0 else state)
        state = h.detach()
        loss = F.binary_cross_entropy_with_logits(out, b["y"])
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        h = None
        total = hits = n = 0
        with evaluating(m):
            for b in vl:
                out, h = m(b["x"], None if int(b["pos"]) == 0 else h)
                cost = F.binary_cross_entropy_with_logits(out, b["y"], reduction="sum")
                total += cost.item()
                hits += ((out > 0) == (b["y"] > 0.5)).sum().item()
                n += b["y"].numel()
        return {"val_loss": total / n, "val_acc": hits / n}

    return set_up(m, opt, tl, step, val_loader=vl, evaluate=evaluate)


@pair("padding-not-masked")
def padding_row_initialised(bug):
    """The weights' initialiser fills the row of padding again, and the sum over tokens counts it.
    After 240 steps val_loss is 0.206 instead of 0.0589."""
    seed(9)
    V = 40
    w = torch.randn(V, generator=gen(60))
    w[0] = 0

    def data(n, g):
        out = []
        for _ in range(n):
            k = int(torch.randint(2, 25, (1,), generator=g))
            ids = torch.randint(1, V, (k,), generator=g)
            out.append((ids, int(w[ids].sum() > 0)))
        return out

    def collate(b):
        ids, y = zip(*b, strict=True)
        return nn.utils.rnn.pad_sequence(ids, batch_first=True), torch.tensor(y)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(V, 16, padding_idx=0)
            self.net = mlp(16, 16, 2)
            self.apply(self.init)

        def init(self, part):
            if isinstance(part, nn.Embedding):
                nn.init.normal_(part.weight, 0, 1.0)
                if not bug:
                    with torch.no_grad():
                        part.weight[part.padding_idx].zero_()

        def forward(self, ids):
            return self.net(self.emb(ids).sum(1) / (ids != 0).sum(1, keepdim=True))

    m = Net()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    crit = nn.CrossEntropyLoss()
    tl, vl = loaders(data(512, gen(1)), data(150, gen(2)), vbs=50, collate_fn=collate)
    return by_pairs(m, opt, tl, vl, crit, num_classes=2)
