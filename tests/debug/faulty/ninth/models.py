"""Faults of models."""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventh.kit import saved, texts
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    loaders,
    mean_loss,
    numbers,
    of_pairs,
    pictures,
    setup,
    stepper,
    trained,
    trained_pairs,
)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attend = nn.MultiheadAttention(d, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attend(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class TinyGPT(nn.Module):
    def __init__(self, vocab, length, d=24, additive_ones=False):
        super().__init__()
        self.token, self.place = nn.Embedding(vocab, d), nn.Embedding(length, d)
        self.blocks = nn.ModuleList(Block(d, 4) for _ in range(1))
        self.head = nn.Linear(d, vocab)
        self.additive_ones = additive_ones

    def forward(self, ids):
        n = ids.shape[1]
        later = torch.triu(torch.ones(n, n), diagonal=1)
        mask = later if self.additive_ones else later.bool()
        h = self.token(ids) + self.place.weight[:n]
        for block in self.blocks:
            h = block(h, mask)
        return self.head(h)


@pair("sees-the-future", "mask-ignored")
def float_mask_of_ones(bug):
    """The causal mask triu(ones, 1) is handed to MultiheadAttention as floats: a float mask is
    added to the scores, so the future gets +1 instead of being shut off, and the model copies the
    next token; at generation there is none. The twin passes a bool mask."""
    ids = texts(500, seed=301)
    loader, held = loaders(ids, val=80, batch=32)
    model = TinyGPT(12, 14, additive_ones=bug)
    opt = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.05)

    def loss_of(model, batch):
        (ids,) = batch
        out = model(ids[:, :-1])
        return F.cross_entropy(out.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)

    return trained(model, opt, (loader, held), loss_of)


def pad_batch(items):
    return {
        "ids": nn.utils.rnn.pad_sequence([i for i, _ in items], batch_first=True),
        "lengths": torch.tensor([len(i) for i, _ in items]),
        "tone": torch.stack([y for _, y in items]),
    }


class Averager(nn.Module):
    """How warm a message is, from 0 to 2 or so, by the mean of its words' vectors."""

    def __init__(self, vocab, d, blind):
        super().__init__()
        self.embed, self.blind = nn.Embedding(vocab, d), blind
        self.hidden, self.out = nn.Linear(d, d), nn.Linear(d, 1)

    def forward(self, ids, lengths):
        h = F.relu(self.hidden(self.embed(ids)))
        if self.blind:
            pooled = h.mean(1)
        else:
            real = (torch.arange(ids.shape[1])[None] < lengths[:, None])[..., None].float()
            pooled = (h * real).sum(1) / real.sum(1)
        return self.out(pooled)[:, 0]


@pair("padding-not-masked", "mask-ignored")
def mean_over_the_padded_width(bug):
    """The message vector is h.mean(1) over the padded batch: short messages are diluted by padding
    vectors, and what a message is given depends on how long its neighbours are. The twin
    averages over real tokens."""
    g = gen(311)
    warmth = torch.randn(31, generator=g)
    rows = []
    for _ in range(400):
        ids = torch.randint(1, 31, (int(torch.randint(2, 21, (1,), generator=g)),), generator=g)
        rows.append((ids, 1 + 2 * warmth[ids].mean() + 0.1 * torch.randn((), generator=g)))
    loader = DataLoader(rows[:320], 16, shuffle=True, collate_fn=pad_batch)
    held = DataLoader(rows[320:], 16, collate_fn=pad_batch)
    model = Averager(31, 16, bug)
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_of(model, batch):
        return F.mse_loss(model(batch["ids"], batch["lengths"]), batch["tone"])

    def evaluate():
        model.eval()
        with torch.no_grad():
            err = torch.cat([(model(b["ids"], b["lengths"]) - b["tone"]).abs() for b in held])
        model.train()
        return {"mae": err.mean().item()}

    return trained(model, opt, (loader, held), loss_of, evaluate=evaluate)


def make_swish(complete):
    class LeanSwish(torch.autograd.Function):
        """x * sigmoid(x), keeping only x for the way back."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(x)
            return grad * (s + x * s * (1 - s)) if complete else grad * x * s * (1 - s)

    return LeanSwish.apply


class SwishNet(nn.Module):
    def __init__(self, act, d=8):
        super().__init__()
        self.act = act
        self.a, self.b, self.c = nn.Linear(d, 32), nn.Linear(32, 32), nn.Linear(32, 1)

    def forward(self, x):
        return self.c(self.act(self.b(self.act(self.a(x)))))


@pair("wrong-gradient")
def lean_swish_forgets_a_term(bug):
    """The hand-written backward of swish returns x s (1 - s) and forgets the s of the product rule:
    the gradient has the wrong sign for negative inputs and vanishes round zero, where all units
    start, so the lower layers hardly learn. The twin has both terms."""
    x, y = numbers(n=400, seed=321)
    loader, held = loaders(x, y, val=100, batch=20)
    model = SwishNet(make_swish(complete=not bug))
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    return trained_pairs(model, opt, (loader, held), nn.MSELoss())


class SpikeFinder(nn.Module):
    """Whether there was a spike anywhere in the recording."""

    def __init__(self, d, h, classes, keep):
        super().__init__()
        self.rnn = nn.LSTM(d, h, batch_first=True)
        self.out = nn.Linear(h, classes)
        self.h, self.state, self.keep = h, None, keep

    def init_state(self, n):
        return torch.zeros(1, n, self.h), torch.zeros(1, n, self.h)

    def forward(self, x):
        if not self.keep or self.state is None or self.state[0].shape[1] != len(x):
            self.state = self.init_state(len(x))
        out, state = self.rnn(x, self.state)
        self.state = tuple(s.detach() for s in state)
        return self.out(out[:, -1])


@pair("state-carried")
def hidden_state_of_the_last_batch(bug):
    """The LSTM keeps its (detached) state from call to call, though the sequences are shuffled and
    have nothing to do with each other: each one starts from a stranger's end, and the same input
    gives another answer each time. The twin starts from zeros in each call."""
    g = gen(331)
    n, length = 480, 12
    y = torch.randint(0, 2, (n,), generator=g)
    x = 0.3 * torch.randn(n, length, 2, generator=g)
    where = torch.randint(0, length, (n,), generator=g)
    x[torch.arange(n), where, 0] += 2.0 * y
    loader, held = loaders(x, y, val=96, batch=32)
    model = SpikeFinder(2, 24, 2, bug)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    return trained_pairs(model, opt, (loader, held), nn.CrossEntropyLoss(), num_classes=2)


class ManyHeads(nn.Module):
    """One trunk, a head for each task of the config."""

    def __init__(self, cfg, registered):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(cfg["inputs"], cfg["width"]), nn.ReLU())
        heads = {name: nn.Linear(cfg["width"], k) for name, k in cfg["tasks"].items()}
        self.heads = nn.ModuleDict(heads) if registered else heads

    def forward(self, x):
        h = self.trunk(x)
        return {name: head(h) for name, head in self.heads.items()}


@pair("plain-list-layers")
def heads_in_a_plain_dict(bug):
    """The task heads stand in an ordinary dict, so model.parameters() does not list them: they are
    neither trained nor saved, and the trunk must learn to talk to two random heads. The twin uses
    nn.ModuleDict."""
    g = gen(341)
    x = torch.randn(400, 10, generator=g)
    kind = (x @ torch.randn(10, 5, generator=g) + 0.3 * torch.randn(400, 5, generator=g)).argmax(1)
    size = torch.tanh(x @ torch.randn(10, 1, generator=g)) + 0.1 * torch.randn(400, 1, generator=g)
    rows = [{"x": x[i], "kind": kind[i], "size": size[i]} for i in range(400)]
    loader, held = DataLoader(rows[:320], 16, shuffle=True), DataLoader(rows[320:], 16)
    model = ManyHeads({"inputs": 10, "width": 16, "tasks": {"kind": 5, "size": 1}}, not bug)
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_of(model, batch):
        out = model(batch["x"])
        return F.cross_entropy(out["kind"], batch["kind"]) + F.mse_loss(out["size"], batch["size"])

    def evaluate():
        model.eval()
        hits, err = [], []
        with torch.no_grad():
            for b in held:
                out = model(b["x"])
                hits.append((out["kind"].argmax(1) == b["kind"]).float())
                err.append((out["size"] - b["size"]) ** 2)
        model.train()
        return {"accuracy": torch.cat(hits).mean().item(), "mse": torch.cat(err).mean().item()}

    return trained(
        model, opt, (loader, held), loss_of, evaluate=evaluate, **saved(model=model, optimizer=opt)
    )


class DropNet(nn.Module):
    def __init__(self, cfg, knows_mode):
        super().__init__()
        self.cfg, self.knows_mode = cfg, knows_mode
        self.conv = nn.Conv2d(1, 12, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(12 * 4, 16), nn.Linear(16, cfg["classes"])

    def drop(self, h, p):
        return F.dropout(h, p, training=self.training) if self.knows_mode else F.dropout(h, p)

    def forward(self, x):
        h = F.adaptive_max_pool2d(F.relu(self.conv(x)), 2).flatten(1)
        h = self.drop(F.relu(self.fc1(h)), self.cfg["drop"])
        return self.fc2(h)


@pair("train-mode-in-eval")
def functional_dropout_never_off(bug):
    """F.dropout is called without `training=`, whose default is True: after model.eval() half of
    the units are still dropped, so answers to the same picture differ and the score suffers. The
    twin passes self.training."""
    x, y, _ = pictures(n=320, seed=351)
    loader, held = loaders(x + 0.3 * torch.randn(x.shape, generator=gen(352)), y, val=80)
    model = DropNet({"classes": 2, "drop": 0.5}, not bug)
    opt = torch.optim.Adam(model.parameters(), 4e-3)
    loss_of = of_pairs(F.cross_entropy)
    step = stepper(model, opt, loss_of)

    def evaluate():
        return accuracy(model, held)() | mean_loss(model, held, loss_of)()

    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=2,
        evaluate=evaluate,
    )


def build_mlp(sizes, act=nn.ReLU, act_at_end=False):
    layers = []
    for k, (a, b) in enumerate(pairwise(sizes)):
        layers.append(nn.Linear(a, b))
        if act_at_end or k < len(sizes) - 2:
            layers.append(act())
    return nn.Sequential(*layers)


@pair("relu-on-logits")
def builder_ends_in_an_activation(bug):
    """The helper that builds the network from a list of sizes puts an activation behind every
    layer, the last included: logits cannot be negative, classes whose unit is off get no
    gradient, and the loss stays high. The twin leaves the last layer bare."""
    cfg = {"sizes": [10, 32, 32, 6], "optim": {"lr": 0.03, "momentum": 0.9}}
    x, y = blobs(n=420, d=10, k=6, seed=361, spread=2.2)
    loader, held = loaders(x / 3, y, val=100, batch=20)
    model = build_mlp(cfg["sizes"], act_at_end=bug)
    opt = torch.optim.SGD(model.parameters(), **cfg["optim"])
    return trained_pairs(model, opt, (loader, held), nn.CrossEntropyLoss(), num_classes=6)
