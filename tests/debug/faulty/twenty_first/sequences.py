"""Faults of sequences: shifted targets, masks, padding, states, axes."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.twenty_first.kit import (
    SmallGPT,
    by_cost,
    by_pairs,
    by_rows,
    chains,
    evaluating,
    gen,
    loaders,
    mean_eval,
    seed,
    whole_batches,
)


class GRULM(nn.Module):
    def __init__(self, V=12, d=32):
        super().__init__()
        self.emb = nn.Embedding(V, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.out = nn.Linear(d, V)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def next_acc(model, seqs):
    """The share of last tokens that are told from those before."""
    with evaluating(model):
        told = model(seqs[:, :-1])[:, -1].argmax(-1)
    return (told == seqs[:, -1]).float().mean().item()


@pair("target-in-inputs")
def gru_lm_unshifted(bug):
    """The labels are the input tokens themselves. After 300 steps next_token_acc is 0.055 instead
    of 0.825."""
    seed(1)
    train, held = chains(512, 12, 12, 1), chains(200, 12, 12, 2)
    tl, vl = loaders((train,), (held,), 16, 64)
    m = GRULM()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def costs(model, batch, reduction="none"):
        x = batch[0]
        x, y = (x, x) if bug else (x[:, :-1], x[:, 1:])
        return F.cross_entropy(model(x).transpose(1, 2), y, reduction=reduction)

    def loss_of(model, batch):
        return costs(model, batch, "mean")

    score = mean_eval(m, vl, {"val_loss": costs})

    def evaluate():
        return score() | {"next_token_acc": next_acc(m, held)}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate, num_classes=12)


@pair("sees-the-future")
def gpt_without_causal_mask(bug):
    """An encoder serves as decoder with no mask, and each position sees its target. After 600 steps
    val_ppl is 1.27 instead of 4.45 and next_token_acc 0.545 instead of 0.665."""
    seed(2)
    train, held = chains(512, 11, 12, 3, 0.7), chains(200, 11, 12, 4, 0.7)
    tl, vl = loaders((train,), (held,), 16, 64)
    m = SmallGPT(causal=not bug)
    opt = torch.optim.AdamW(m.parameters(), 5e-3)

    def costs(model, batch, reduction="none"):
        x = batch[0]
        out = model(x[:, :-1]).transpose(1, 2)
        return F.cross_entropy(out, x[:, 1:], reduction=reduction)

    def loss_of(model, batch):
        return costs(model, batch, "mean")

    score = mean_eval(m, vl, {"val_loss": costs})

    def evaluate():
        return {"val_ppl": math.exp(score()["val_loss"]), "next_token_acc": next_acc(m, held)}

    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate, num_classes=12)


def texts(n, s, T=20):
    """Padded words, a mask of the real ones, and whether most are among the first five."""
    g = gen(s)
    rows = []
    for _ in range(n):
        length = int(torch.randint(4, 16, (1,), generator=g))
        ids = torch.zeros(T, dtype=torch.long)
        ids[:length] = torch.randint(1, 11, (length,), generator=g)
        mask = torch.zeros(T, dtype=torch.long)
        mask[:length] = 1
        label = int((ids[:length] <= 5).float().mean() > 0.5)
        rows.append({"ids": ids, "mask": mask, "label": label})
    return rows


class AttentionPool(nn.Module):
    def __init__(self, is_inverted):
        super().__init__()
        self.emb = nn.Embedding(11, 16)
        self.q = nn.Parameter(torch.randn(1, 1, 16))
        self.att = nn.MultiheadAttention(16, 2, batch_first=True)
        self.out = nn.Linear(16, 2)
        self.is_inverted = is_inverted

    def forward(self, ids, mask):
        h = self.emb(ids)
        ignored = mask.bool() if self.is_inverted else mask == 0
        q = self.q.expand(len(ids), -1, -1)
        return self.out(self.att(q, h, h, key_padding_mask=ignored)[0].squeeze(1))


@pair("padding-not-masked")
def pool_attends_padding(bug):
    """key_padding_mask gets the mask that marks the real words, so that these are left out. After
    300 steps val_acc is 0.547 instead of 1."""
    seed(3)
    tl, vl = loaders(texts(400, 1), texts(150, 2), 32, 64)
    m = AttentionPool(bug)
    opt = torch.optim.Adam(m.parameters(), 1e-2)

    def loss_of(model, b):
        return F.cross_entropy(model(b["ids"], b["mask"]), b["label"])

    def hits(model, b):
        return model(b["ids"], b["mask"]).argmax(1) == b["label"]

    evaluate = mean_eval(m, vl, {"val_acc": hits})
    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate, num_classes=2)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, 12, padding_idx=0)
        self.rnn = nn.GRU(12, 12, batch_first=True, bidirectional=True)
        self.out = nn.Linear(24, 4)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


@pair("padding-in-the-loss")
def tags_of_padding_counted(bug):
    """Tags are padded with 0, which is a tag, and count in the loss and the accuracy. After 300
    steps token_acc is 0.796 instead of 0.749."""
    seed(4)

    def rows(n, s, T=12):
        g = gen(s)
        found = []
        for _ in range(n):
            length = int(torch.randint(3, 8, (1,), generator=g))
            ids = torch.zeros(T, dtype=torch.long)
            ids[:length] = torch.randint(1, 11, (length,), generator=g)
            tags = torch.full((T,), 0 if bug else -100)
            before = torch.cat([torch.zeros(1, dtype=torch.long), ids[: length - 1]])
            is_ruled = torch.rand(length, generator=g) < 0.7
            any_tag = torch.randint(0, 4, (length,), generator=g)
            tags[:length] = torch.where(is_ruled, (ids[:length] + before) % 4, any_tag)
            found.append({"ids": ids, "tags": tags, "length": length})
        return found

    tl, vl = loaders(rows(300, 1), rows(100, 2), 16, 32)
    m = Tagger()
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b):
        return F.cross_entropy(model(b["ids"]).transpose(1, 2), b["tags"], ignore_index=-100)

    def hits(model, b):
        keep = b["tags"] != -100
        return (model(b["ids"]).argmax(-1) == b["tags"])[keep]

    evaluate = mean_eval(m, vl, {"token_acc": hits})
    return by_cost(m, opt, tl, vl, loss_of, None, evaluate=evaluate, num_classes=4)


class Balance(nn.Module):
    def __init__(self, carries):
        super().__init__()
        self.rnn = nn.GRU(1, 24, batch_first=True)
        self.out = nn.Linear(24, 1)
        self.carries = carries
        self.h = None

    def forward(self, x):
        is_fit = self.carries and self.h is not None and self.h.shape[1] == len(x)
        out, h = self.rnn(x, self.h if is_fit else None)
        self.h = h.detach()
        return self.out(out[:, -1]).squeeze(-1)


@pair("state-carried")
def hidden_state_carried(bug):
    """Each batch of unrelated sequences begins with the state of the last one. After 300 steps
    val_mse is 0.282 instead of 0.007."""
    seed(5)
    g = gen(1)
    x = torch.randn(640, 6, 1, generator=g)
    vx = torch.randn(160, 6, 1, generator=g)
    tl, vl = whole_batches((x, x.sum((1, 2))), (vx, vx.sum((1, 2))))
    m = Balance(bug)
    return by_rows(m, torch.optim.Adam(m.parameters(), 5e-3), tl, vl)


class Peak(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.rnn = nn.GRU(3, 20, batch_first=batch_first)
        self.out = nn.Linear(20, 1)

    def forward(self, x):
        out, _ = self.rnn(x)
        return self.out(out[:, -1]).squeeze(-1)


@pair("rows-mixed")
def gru_batch_first_missing(bug):
    """A GRU without batch_first gets batches first: it runs over the rows. After 300 steps val_mae
    is 0.48 instead of 0.074."""
    seed(6)
    x = torch.randn(640, 8, 3, generator=gen(1))
    y = x[..., 0].max(1).values + 0.5 * x[..., 1].mean(1)
    tl, vl = loaders((x[:512], y[:512]), (x[512:], y[512:]), 32)
    m = Peak(not bug)
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    evaluate = mean_eval(m, vl, {"val_mae": lambda m, b: (m(b[0]) - b[1]).abs()})
    return by_pairs(m, opt, tl, vl, nn.SmoothL1Loss(), evaluate=evaluate)
