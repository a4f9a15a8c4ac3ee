"""Tokens and series: turned round, masked, packed, forecast."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader

from tests.debug.sound.odd_kit import G, dl, keeping, mlp, still
from tests.debug.sound.programs import sound


class Seq2Seq(nn.Module):
    def __init__(self, V=12, d=48):
        super().__init__()
        self.emb, self.enc, self.dec, self.out = (
            nn.Embedding(V, d, padding_idx=0),
            nn.GRU(d, d, batch_first=True),
            nn.GRU(d, d, batch_first=True),
            nn.Linear(d, V),
        )

    def encode(self, src, n):
        return self.enc(
            pack_padded_sequence(self.emb(src), n, batch_first=True, enforce_sorted=False)
        )[1]

    def forward(self, src, n, prev):
        return self.out(self.dec(self.emb(prev), self.encode(src, n))[0])


@sound
def numbers_turned_round_with_a_teacher():
    """Seq2seq with teacher forcing, pads out of the loss; greedy decoding for the held tokens."""

    def rows(n, s):
        g = G(s)
        ln = torch.randint(2, 5, (n,), generator=g)
        src = torch.randint(3, 12, (n, 4), generator=g) * (torch.arange(4) < ln[:, None])
        tgt = torch.zeros(n, 6, dtype=torch.long)
        tgt[:, 0] = 1
        for i in range(n):
            m = int(ln[i])
            tgt[i, 1 : m + 1], tgt[i, m + 1] = src[i, :m].flip(0), 2
        return src, ln, tgt

    tl, vl = dl(*rows(1200, 1), bs=60), dl(*rows(200, 2), bs=100, shuffle=False)
    net = Seq2Seq()
    opt = torch.optim.Adam(net.parameters(), 8e-3)

    def loss_of(m, b):
        src, ln, tgt = b
        return F.cross_entropy(
            m(src, ln, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=0
        )

    def evaluate():
        ok = n = 0
        with still(net):
            for src, ln, tgt in vl:
                h, tok = net.encode(src, ln), torch.ones(len(src), 1, dtype=torch.long)
                for t in range(5):
                    o, h = net.dec(net.emb(tok), h)
                    tok = net.out(o).argmax(2)
                    real = tgt[:, t + 1] != 0
                    ok, n = (
                        ok + (tok[:, 0] == tgt[:, t + 1])[real].sum().item(),
                        n + real.sum().item(),
                    )
        return {"greedy_token_accuracy": ok / n}

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "loss_of": loss_of,
        "evaluate": evaluate,
        **keeping(net=net, opt=opt),
    }


class Blocks(nn.Module):
    def __init__(self, V, T, d=32, layers=1, drop=0.0):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, d), nn.Embedding(T, d)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(d, 2, 64, drop, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, V)

    def forward(self, ids, pos=None, mask=None, prefix=None):
        h = self.tok(ids) + self.pos(torch.arange(ids.shape[1]) if pos is None else pos)
        if prefix is not None:
            h = torch.cat([prefix.expand(len(ids), -1, -1), h], 1)
        for layer in self.layers:
            h = layer(h, src_mask=mask)
        return self.out(self.norm(h))


def text(n, V, s, key=3):
    """One stream of tokens by a Markov law with three likely followers each."""
    after = torch.stack([torch.randperm(V, generator=G(key + i))[:3] for i in range(V)]).tolist()
    g = G(s)
    pick = torch.multinomial(
        torch.tensor([0.7, 0.2, 0.1]), n, replacement=True, generator=g
    ).tolist()
    out = [0]
    for k in pick[1:]:
        out.append(after[out[-1]][k])
    return torch.tensor(out)


@sound
def hidden_words_masked_at_each_visit():
    """Masked LM: 20 % of places in the loss, 80/10/10; the held masks are drawn from one seed."""
    rows = text(20000, 18, 1).view(-1, 20) + 1
    tl = DataLoader(rows[:800], 32, shuffle=True, generator=G(2))
    vl = DataLoader(rows[800:], 100)
    net = Blocks(20, 20, layers=1)
    opt = torch.optim.AdamW(net.parameters(), 4e-3)
    MASK = 19

    def hide(ids, g=None):
        u, v = torch.rand(ids.shape, generator=g), torch.rand(ids.shape, generator=g)
        other = torch.randint(1, 19, ids.shape, generator=g)
        pick = u < 0.2
        x = torch.where(pick & (v < 0.8), MASK, torch.where(pick & (v > 0.9), other, ids))
        return x, ids.masked_fill(~pick, -100)

    def loss_of(m, ids):
        x, y = hide(ids)
        return F.cross_entropy(m(x).flatten(0, 1), y.flatten(), ignore_index=-100)

    def evaluate():
        g, total, ok, n = G(77), 0.0, 0, 0
        with still(net):
            for ids in vl:
                x, y = hide(ids, g)
                o = net(x)
                total += F.cross_entropy(
                    o.flatten(0, 1), y.flatten(), ignore_index=-100, reduction="sum"
                ).item()
                ok, n = ok + (o.argmax(2) == y).sum().item(), n + (y >= 0).sum().item()
        return {"mlm_loss": total / n, "mlm_accuracy": ok / n}

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "loss_of": loss_of,
        "evaluate": evaluate,
        **keeping(net=net, opt=opt),
    }


def causal(T):
    return torch.ones(T, T, dtype=torch.bool).triu(1)


@sound
def documents_packed_in_one_row():
    """Causal LM: several documents per row, block-diagonal mask, places begun again, no loss over
    ends."""

    def rows(n, s):
        g, ids = G(s), text(24 * n, 16, s).view(n, 24)
        new = torch.rand(n, 24, generator=g) < 0.12
        new[:, 0] = True
        doc = new.cumsum(1)
        ids = torch.where(new, torch.randint(16, (n, 24), generator=g), ids)
        start = torch.where(new, torch.arange(24), 0).cummax(1).values
        return ids, doc, torch.arange(24) - start

    def parts(b):
        ids, doc, pos = b
        mask = causal(23) | (doc[:, :23, None] != doc[:, None, :23])
        return (
            ids[:, :-1],
            pos[:, :-1],
            mask.repeat_interleave(2, 0),
            ids[:, 1:].masked_fill(doc[:, 1:] != doc[:, :-1], -100),
        )

    tl, vl = dl(*rows(600, 1)), dl(*rows(200, 2), bs=50, shuffle=False)
    net = Blocks(16, 24, layers=1)
    opt = torch.optim.AdamW(net.parameters(), 4e-3)

    def cost(m, b, reduction):
        x, pos, mask, y = parts(b)
        return F.cross_entropy(m(x, pos, mask).flatten(0, 1), y.flatten(), reduction=reduction), (
            y >= 0
        ).sum().item()

    def evaluate():
        with still(net):
            c = [cost(net, b, "sum") for b in vl]
        return {"perplexity": math.exp(sum(a.item() for a, _ in c) / sum(n for _, n in c))}

    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "loss_of": lambda m, b: cost(m, b, "mean")[0],
        "evaluate": evaluate,
    }


@sound
def load_forecast_from_windows():
    """Windows of two days forecast 6 hours; split in time; scaled by the past alone."""
    t = torch.arange(1500.0)
    y = (
        50
        + 10 * torch.sin(t * 6.2832 / 24)
        + 4 * torch.sin(t * 6.2832 / 168)
        + torch.randn(1500, generator=G(1))
    )
    mean, std = y[:1100].mean(), y[:1100].std()
    z = (y - mean) / std

    def windows(a, b):
        i = torch.arange(a, b - 54)
        return z[i[:, None] + torch.arange(48)], z[i[:, None] + 48 + torch.arange(6)]

    tl, vl = dl(*windows(0, 1100), bs=64), dl(*windows(1100, 1500), bs=128, shuffle=False)

    class Linearly(nn.Module):
        """Forecasts the change from the last value of the window."""

        def __init__(self):
            super().__init__()
            self.net = mlp(48, 32, 6)

        def forward(self, x):
            return x[:, -1:] + self.net(x - x[:, -1:])

    net = Linearly()
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    crit = nn.L1Loss()

    def evaluate():
        e = n = 0
        with still(net):
            for x, h in vl:
                e, n = e + (net(x) - h).abs().sum().item(), n + h.numel()
        return {"mae_megawatt": e / n * std.item()}

    return {
        "model": net,
        "loss_fn": crit,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "task": "regression",
        "evaluate": evaluate,
    }


class CharGRU(nn.Module):
    def __init__(self, V):
        super().__init__()
        self.emb, self.rnn, self.out = (
            nn.Embedding(V, 24),
            nn.GRU(24, 48, batch_first=True),
            nn.Linear(48, V),
        )

    def forward(self, ids, h=None):
        o, h = self.rnn(self.emb(ids), h)
        return self.out(o), h


class Lora(nn.Module):
    def __init__(self, lin, r=4):
        super().__init__()
        self.lin = lin.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(r, lin.in_features) / lin.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(lin.out_features, r))

    def forward(self, x):
        return self.lin(x) + x @ self.a.T @ self.b.T * 2.0


def lm_rows(n, s, V=16, T=17, key=3):
    return text(n * T, V, s, key).view(n, T)


def lm_cost(m, ids, reduction="mean", **more):
    T = ids.shape[1] - 1
    return F.cross_entropy(
        m(ids[:, :-1], mask=causal(T), **more).flatten(0, 1),
        ids[:, 1:].flatten(),
        reduction=reduction,
    )


def perplexity(m, vl, cost=lm_cost):
    def evaluate():
        with still(m):
            total = sum(cost(m, b, "sum").item() for b in vl)
        return {"perplexity": math.exp(total / sum(b[:, 1:].numel() for b in vl))}

    return evaluate


@sound
def low_rank_changes_beside_frozen_weights():
    """LoRA: the second factor begins at zero, so that the first has no gradient in the first
    step."""
    net = CharGRU(16)
    warm = torch.optim.Adam(net.parameters(), 1e-2)
    ids = lm_rows(300, 31)

    def cost(m, ids, reduction="mean"):
        return F.cross_entropy(
            m(ids[:, :-1])[0].flatten(0, 1), ids[:, 1:].flatten(), reduction=reduction
        )

    for k in range(40):
        warm.zero_grad()
        cost(net, ids[(k * 30) % 300 :][:30]).backward()
        warm.step()
    net.requires_grad_(False)
    net.out = Lora(net.out)
    tl, vl = (
        DataLoader(lm_rows(400, 32, key=20), 25, shuffle=True, generator=G(1)),
        DataLoader(lm_rows(100, 33, key=20), 50),
    )
    opt = torch.optim.AdamW(
        [p for p in net.parameters() if p.requires_grad], 1e-2, weight_decay=0.0
    )
    return {
        "model": net,
        "optimizer": opt,
        "train_loader": tl,
        "val_loader": vl,
        "loss_of": cost,
        "evaluate": perplexity(net, vl, cost),
        "declared": {"frozen": [n for n, p in net.named_parameters() if not p.requires_grad]},
        **keeping(net=net, opt=opt),
    }
