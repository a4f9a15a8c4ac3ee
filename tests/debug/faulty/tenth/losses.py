"""Faults of losses: shares and arguments exchanged, padding as labels."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import accuracy, blobs, loaders, mlp, setup, stepper, trained


def mixed(model, x, y, bug, *, cost=F.cross_entropy, alpha=0.4):
    lam = float(torch.distributions.Beta(alpha, alpha).sample())
    order = torch.randperm(len(x))
    out = model(lam * x + (1 - lam) * x[order])
    a, b = (y[order], y) if bug else (y, y[order])
    return lam * cost(out, a) + (1 - lam) * cost(out, b)


@pair("wrong-targets")
def mixup_shares_exchanged(bug):
    """Mixup: the picture's share goes to the other one's label."""
    train, held = loaders(*blobs(n=480, d=12, seed=201), val=96)
    model = mlp(12, 4)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    step = stepper(model, opt, lambda m, b: mixed(m, *b, bug))
    return setup(
        model, opt, train, held, step=step, loss_fn=nn.CrossEntropyLoss(), num_classes=4,
        evaluate=accuracy(model, held),
    )  # fmt: skip


@pair("wrong-targets")
def cut_and_pasted_area_for_the_wrong_label(bug):
    """CutMix: lam is the area that was pasted, and weighs the label of what was there before."""
    g = gen(203)
    y = torch.randint(0, 3, (360,), generator=g)
    base = torch.randn(3, 1, 8, 8, generator=g)
    x = base[y] + 0.8 * torch.randn(360, 1, 8, 8, generator=g)
    train, held = loaders(x, y, val=90)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def train_step(batch):
        x, y = batch
        model.train()
        order, rows = torch.randperm(len(x)), int(torch.randint(1, 8, ()))
        x = x.clone()
        x[:, :, :rows] = x[order][:, :, :rows]
        pasted = rows / 8
        hot, other = F.one_hot(y, 3).float(), F.one_hot(y[order], 3).float()
        target = pasted * hot + (1 - pasted) * other
        if not bug:
            target = (1 - pasted) * hot + pasted * other
        loss = F.cross_entropy(model(x), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    return setup(
        model, opt, train, held, step=train_step, num_classes=3, evaluate=accuracy(model, held)
    )


class Scorer(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.net = mlp(d, 1)

    def forward(self, better, worse):
        return self.net(better)[:, 0], self.net(worse)[:, 0]


def preferences(n, seed, d=8):
    g = gen(seed)
    w = torch.randn(d, generator=gen(1))
    a, b = torch.randn(n, d, generator=g), torch.randn(n, d, generator=g)
    first = (a @ w > b @ w)[:, None]
    return TensorDataset(torch.where(first, a, b), torch.where(first, b, a))


def ranked(model, held):
    def evaluate():
        model.eval()
        with torch.no_grad():
            won = [torch.gt(*model(*batch)) for batch in held]
        model.train()
        return {"pair_accuracy": torch.cat(won).float().mean().item()}

    return evaluate


@pair("loss-negated")
def ranking_arguments_exchanged(bug):
    """MarginRankingLoss(worse, better, +1): the worse is to score higher."""
    train = DataLoader(preferences(320, 211), 20, shuffle=True)
    held = DataLoader(preferences(100, 212), 20)
    model = Scorer()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    criterion = nn.MarginRankingLoss(margin=0.5)

    def loss_of(m, batch):
        better, worse = m(*batch)
        one = torch.ones_like(better)
        return criterion(worse, better, one) if bug else criterion(better, worse, one)

    return trained(model, opt, (train, held), loss_of, evaluate=ranked(model, held))


class Shop(nn.Module):
    def __init__(self, users, items, d=8):
        super().__init__()
        self.user, self.item = nn.Embedding(users, d), nn.Embedding(items, d)

    def forward(self, user, item):
        return (self.user(user) * self.item(item)).sum(1) / 2


@pair("loss-negated")
def bought_pushed_below_the_rest(bug):
    """softplus(score of what was bought less that of what was not): pushed the wrong way."""
    g = gen(215)
    taste = torch.randint(0, 4, (30,), generator=g)
    user = torch.randint(0, 30, (1500,), generator=g)
    bought = torch.randint(0, 8, (1500,), generator=g) * 4 + taste[user]
    other = (bought + 1 + torch.randint(0, 3, (1500,), generator=g)) % 32
    rows = TensorDataset(user[:1100], bought[:1100], other[:1100])
    train = DataLoader(rows, 28, shuffle=True)
    held = DataLoader(TensorDataset(user[1100:], bought[1100:], other[1100:]), 28)
    model = Shop(30, 32)
    opt = torch.optim.Adam(model.parameters(), 2e-2)

    def loss_of(m, batch):
        who, yes, no = batch
        apart = m(who, no) - m(who, yes)
        return F.softplus(-apart if bug else apart).mean()

    def evaluate():
        with torch.no_grad():
            won = torch.cat([model(u, i) > model(u, j) for u, i, j in held])
        return {"auc": won.float().mean().item()}

    return trained(model, opt, (train, held), loss_of, evaluate=evaluate)


class Writer(nn.Module):
    def __init__(self, vocab=14, d=24):
        super().__init__()
        self.table = nn.Embedding(vocab, d, padding_idx=0)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.out = nn.Linear(d, vocab)

    def forward(self, ids):
        return self.out(self.rnn(self.table(ids))[0])


def lines(n, seed, vocab=14, length=12):
    g = gen(seed)
    follows = torch.randperm(vocab - 2, generator=gen(3)) + 2
    x = torch.randint(2, vocab, (n, length), generator=g)
    for t in range(1, length):
        keep = torch.rand(n, generator=g) < 0.85
        x[:, t] = torch.where(keep, follows[x[:, t - 1] - 2], x[:, t])
    ends = torch.randint(4, length - 1, (n,), generator=g)
    at = torch.arange(length)[None]
    x[at == ends[:, None]] = 1
    x[at > ends[:, None]] = 0
    return x


@pair("padding-in-the-loss")
def labels_cloned_with_their_padding(bug):
    """labels = ids.clone(), padding and all: most of the loss is for foretelling padding."""
    x, v = lines(280, 221), lines(70, 222)

    def collate(rows):
        ids = torch.stack([row[0] for row in rows])
        labels = ids.clone()
        if not bug:
            labels[ids == 0] = -100
        return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}

    train = DataLoader(TensorDataset(x), 20, shuffle=True, collate_fn=collate)
    held = DataLoader(TensorDataset(v), 20, collate_fn=collate)
    model = Writer()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_of(m, b):
        logits = m(b["input_ids"])
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), b["labels"][:, 1:].flatten())

    def evaluate():
        model.eval()
        with torch.no_grad():
            value = sum(loss_of(model, b).item() for b in held) / len(held)
        model.train()
        return {"val_loss": value}

    return trained(model, opt, (train, held), loss_of, evaluate=evaluate)


class Tagger(nn.Module):
    def __init__(self, vocab=20, d=24, k=5):
        super().__init__()
        self.table = nn.Embedding(vocab, d, padding_idx=0)
        self.out = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, k))

    def forward(self, ids):
        return self.out(self.table(ids))


@pair("padding-in-the-loss")
def tags_of_padding_are_a_class(bug):
    """Tags are padded with 0, which is also a tag, and no position is ignored."""
    g = gen(225)
    of = torch.randint(0, 5, (20,), generator=g)
    ids = torch.randint(1, 20, (320, 14), generator=g)
    ends = torch.randint(4, 15, (320,), generator=g)
    pads = torch.arange(14)[None] >= ends[:, None]
    noise = torch.rand(320, 14, generator=g) < 0.1
    tags = torch.where(noise, torch.randint(0, 5, (320, 14), generator=g), of[ids])
    ids, tags = ids.masked_fill(pads, 0), tags.masked_fill(pads, 0 if bug else -100)
    train, held = loaders(ids, tags, val=64)
    model = Tagger()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loss_of = lambda m, b: F.cross_entropy(m(b[0]).transpose(1, 2), b[1])  # noqa: E731
    return trained(model, opt, (train, held), loss_of)
