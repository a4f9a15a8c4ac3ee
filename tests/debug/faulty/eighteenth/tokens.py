"""Faults of models that read tokens: masks, padding, copies, axes, blanks, cuts."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.eighteenth.kit import (
    Columns,
    begun,
    by_cost,
    by_pairs,
    chain,
    costed,
    evaluating,
    gen,
    loader,
    loaders,
    plain_step,
    saving,
    shifted,
)
from tests.debug.faulty.fourteenth.kit import pairloss
from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixteenth.kit import Chained


class TinyLM(nn.Module):
    """A language model of one block whose mask begins at a diagonal."""

    def __init__(self, v, t, diagonal):
        super().__init__()
        self.emb = nn.Embedding(v, 32)
        self.pos = nn.Embedding(t, 32)
        self.block = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, v)
        self.diagonal = diagonal

    def forward(self, ids):
        t = ids.shape[1]
        mask = torch.triu(torch.ones(t, t, dtype=torch.bool), diagonal=self.diagonal)
        return self.head(self.block(self.emb(ids) + self.pos(torch.arange(t)), src_mask=mask))


@pair("sees-the-future")
def lm_mask_off_by_one(bug):
    """The causal mask begins one place too late: each place attends to the token that it must
    predict. After 400 steps val_loss is 0.138 instead of 1.22, and last_token_acc 0.73 instead of
    0.79."""
    g = begun(1)
    V, T = 14, 12
    data = [Columns(ids=chain(g, n, T, V)) for n in (512, 100)]
    tl, vl = loaders(*data, vbs=32)
    m = TinyLM(V, T, diagonal=2 if bug else 1)

    def loss_of(model, b):
        out = model(b["ids"][:, :-1])
        return F.cross_entropy(out.flatten(0, 1), b["ids"][:, 1:].flatten())

    def sums_of(model, b):
        last = model(b["ids"][:, :-1])[:, -1].argmax(-1)
        hits = last == b["ids"][:, -1]
        scored = costed(loss_of, "ids", "val_loss")(model, b)
        return scored | {"last_token_acc": (hits.sum(), len(hits))}

    opt = torch.optim.AdamW(m.parameters(), 3e-3)
    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=V)


@pair("padding-not-masked")
def gru_last_pad(bug):
    """The state behind the padding is read instead of each row's last one. After 400 steps val_acc
    is 0.467 instead of 1."""
    g = begun(2)
    V, T = 20, 14

    def data(n):
        lengths = torch.randint(3, T + 1, (n,), generator=g)
        ids = torch.randint(1, V, (n, T), generator=g)
        rows = torch.arange(n)
        y = (ids[rows, lengths - 1] + ids[rows, lengths - 2]) % 3
        return Columns(ids=ids * (torch.arange(T) < lengths[:, None]), lengths=lengths, y=y)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(V, 16, padding_idx=0)
            self.rnn = nn.GRU(16, 24, batch_first=True)
            self.out = nn.Linear(24, 3)

        def forward(self, ids, lengths):
            h, _ = self.rnn(self.emb(ids))
            return self.out(h[:, -1] if bug else h[torch.arange(len(ids)), lengths - 1])

    tl, vl = loaders(data(640), data(150))
    m = Net()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    crit = nn.CrossEntropyLoss()

    def loss_of(model, b):
        return crit(model(b["ids"], b["lengths"]), b["y"])

    def sums_of(model, b):
        hits = model(b["ids"], b["lengths"]).argmax(1) == b["y"]
        return {"val_acc": (hits.sum(), len(hits))}

    more = {"loss_fn": crit, "num_classes": 3} | saving(m, opt)
    return by_cost(m, opt, tl, vl, loss_of, sums_of, **more)


@pair("target-in-inputs")
def mlm_all_positions(bug):
    """The labels are not -100 where no token is masked: most of the loss is for copying the input.
    After 400 steps the loss is 0.071 instead of 0.395."""
    g = begun(3)
    V, T = 14, 12

    def hidden(rows, own):
        ids = torch.stack([row["ids"] for row in rows])
        mask = torch.rand(ids.shape, generator=own) < 0.2
        mask[:, 0] |= ~mask.any(1)
        labels = ids.clone() if bug else ids.masked_fill(~mask, -100)
        return {"input_ids": ids.masked_fill(mask, V), "labels": labels}

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(V + 1, 24)
            self.rnn = nn.GRU(24, 24, batch_first=True, bidirectional=True)
            self.out = nn.Linear(48, V)

        def forward(self, ids):
            return self.out(self.rnn(self.emb(ids))[0])

    train, held = (Columns(ids=chain(g, n, T, V, 0.9)) for n in (512, 100))
    tl = loader(train, 16, collate_fn=lambda rows: hidden(rows, g))
    vl = loader(held, 40, shuffle=False, collate_fn=lambda rows: hidden(rows, gen(len(rows))))
    m = Tagger()

    def loss_of(model, b):
        out = model(b["input_ids"]).transpose(1, 2)
        return F.cross_entropy(out, b["labels"], ignore_index=-100)

    def sums_of(model, b):
        asked = b["labels"] != -100
        hits = (model(b["input_ids"]).argmax(-1) == b["labels"])[asked]
        return {"mlm_acc": (hits.sum(), len(hits))}

    opt = torch.optim.AdamW(m.parameters(), 5e-3)
    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=V)


@pair("rows-mixed")
def encoder_batch_first(bug):
    """An encoder layer made without batch_first gets [batch, time, features]: attention runs across
    the rows. After 400 steps val_acc is 0.6 instead of 1."""
    g = begun(4)
    V, T = 12, 9

    def data(n):
        ids = torch.randint(2, V, (n, T), generator=g)
        ids[:, 0] = 1
        many = ((ids[:, 1:] >= 7).sum(1) > 4).long()
        return ids, many ^ (ids[:, 1:] == 2).any(1).long()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(V, 32)
            self.pos = nn.Parameter(torch.randn(T, 32) * 0.02)
            self.enc = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=not bug)
            self.head = nn.Linear(32, 2)

        def forward(self, ids):
            return self.head(self.enc(self.emb(ids) + self.pos)[:, 0])

    tl, vl = loaders(data(640), data(150), 32)
    m = Net()
    return by_pairs(m, torch.optim.Adam(m.parameters(), 2e-3), tl, vl, num_classes=2)


@pair("wrong-targets")
def ctc_blank_clash(bug):
    """Symbols are numbered from 0, which is the blank: the first can never be written. After 400
    steps exact_match is 0.333 instead of 1."""
    g = begun(5)
    symbols, written, d, T = 5, 4, 8, 16
    looks = torch.randn(symbols, d, generator=g)

    def data(n):
        s = [torch.randint(symbols, (n,), generator=g)]
        for _ in range(written - 1):
            s.append((s[-1] + torch.randint(1, symbols, (n,), generator=g)) % symbols)
        s = torch.stack(s, 1)
        frames = torch.zeros(n, T, d)
        for i in range(written):
            frames[:, 4 * i + 1 : 4 * i + 4] = looks[s[:, i]][:, None]
        return frames + 0.3 * torch.randn(n, T, d, generator=g), s + (0 if bug else 1)

    class Acoustic(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(d, 24, 3, padding=1)
            self.out = nn.Linear(24, symbols + 1)

        def forward(self, x):
            h = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
            return self.out(h).log_softmax(-1)

    tl, vl = loaders(data(512), data(90), vbs=32)
    m = Acoustic()
    ctc = nn.CTCLoss(blank=0)

    def loss_of(model, b):
        x, s = b
        n = len(x)
        return ctc(model(x).transpose(0, 1), s, torch.full((n,), T), torch.full((n,), written))

    def sums_of(model, b):
        paths, hits = model(b[0]).argmax(-1), 0
        for path, true in zip(paths, b[1], strict=True):
            said = torch.unique_consecutive(path)
            hits += said[said != 0].tolist() == true.tolist()
        return {"exact_match": (hits, len(paths))}

    opt = torch.optim.Adam(m.parameters(), 1e-2)
    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=symbols + 1)


@pair("metric-batch-mean")
def ppl_mean_of_exp(bug):
    """The perplexity is a mean of what the batches' losses make, instead of what the mean loss
    makes. After 400 steps it is 40.8 instead of 2.79."""
    g = begun(6)
    V, T = 16, 12
    ids = chain(g, 512, T, V, 0.97)
    held = torch.cat([chain(g, 62, T, V, 0.97), torch.randint(V, (10, T), generator=g)])
    tl, vl = loaders((ids,), (held,), vbs=5)
    m = Chained(V, 24)

    def evaluate():
        total, count, each = 0.0, 0, []
        with evaluating(m):
            for b in vl:
                cost, n = shifted(m, b, "sum").item(), b[0][:, 1:].numel()
                total += cost
                count += n
                each.append(math.exp(cost / n))
        perplexity = sum(each) / len(each) if bug else math.exp(total / count)
        return {"val_loss": total / count, "perplexity": perplexity}

    opt = torch.optim.Adam(m.parameters(), 1e-2)
    return by_cost(m, opt, tl, vl, shifted, None, evaluate=evaluate, num_classes=V)


@pair("loss-without-gradient")
def rnn_detach_inside(bug):
    """The state is detached at each step of the row, as is meant between windows: no gradient
    reaches the early tokens. After 400 steps val_acc is 0.427 instead of 1."""
    g = begun(7)
    V, T = 10, 7

    def data(n):
        ids = torch.randint(V, (n, T), generator=g)
        return ids, ids[:, 0] % 4

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(V, 16)
            self.cell = nn.GRUCell(16, 32)
            self.out = nn.Linear(32, 4)

        def forward(self, ids):
            h = torch.zeros(len(ids), 32)
            for t in range(ids.shape[1]):
                if bug:
                    h = h.detach()
                h = self.cell(self.emb(ids[:, t]), h)
            return self.out(h)

    tl, vl = loaders(data(800), data(150))
    m = Net()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    crit = nn.CrossEntropyLoss()

    def clip():
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)

    step = plain_step(m, opt, pairloss(crit), clip=clip)
    declared = {"max_grad_norm": 1.0}
    return by_pairs(m, opt, tl, vl, crit, step, num_classes=4, declared=declared)
