"""Flipped pictures with their boxes, two views of one example, and pairs with an answer."""

import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from course.debug.relations import flips, judged, triplets, views
from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.eleventh.kit import Columns
from tests.debug.faulty.twelfth.kit import loader, mlp, pack
from tests.debug.told import cases, said

SIDE = 12


class Pictures(Dataset):
    """A bright rectangle with numbers that say where it is."""

    def __init__(self, n, seed, flip=None, pixels=False, numbers=None):
        g = gen(seed)
        self.flip, self.width = flip, SIDE if pixels else 1
        size = torch.randint(3, 6, (n, 2), generator=g)
        at = (torch.rand(n, 2, generator=g) * (SIDE - size)).long()
        self.x = torch.randn(n, 1, SIDE, SIDE, generator=g) * 0.2
        for x, (w, h), (i, j) in zip(self.x, size.tolist(), at.tolist(), strict=True):
            x[0, j : j + h, i : i + w] += 1
        corners = torch.cat([at, at + size], 1).float() * self.width / SIDE
        self.numbers = corners if numbers is None else numbers(corners)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x, numbers = self.x[i], self.numbers[i].clone()
        if self.flip and random.random() < 0.5:
            x, numbers = x.flip(-1), self.flip(numbers, self.width)
        return {"x": x, "numbers": numbers}


def kept_places(n, width):
    n[[0, 2]] = width - n[[0, 2]]
    return n


def changed_places(n, width):
    n[[0, 2]] = width - n[[2, 0]]
    return n


def middle_moved(n, width):
    n[0] = width - n[0]
    return n


def from_tail_to_head(corners):
    """The head is on the right of every picture, and above or below."""
    x1, y1, x2, y2 = corners.unbind(1)
    up = torch.rand(len(x1), generator=gen(9)) < 0.5
    return torch.stack([x1, y1.where(up, y2), x2, y2.where(up, y1)], 1)


def on_the_left(corners):
    """The middle is always left of a mark, and the width below the height."""
    x1, y1, x2, y2 = corners.unbind(1)
    return torch.stack([(x1 + x2) / 20, 1 + y1, (x2 - x1) / 9, y2 - y1 + 1], 1)


@cases(
    faulty=["shares", "pixels"],
    sound=["places changed", "places changed, pixels", "tail and head", "middle"],
)
def test_corners_change_places_when_a_picture_is_flipped(kind, is_told):
    torch.manual_seed(0)
    random.seed(0)
    flip = kept_places if is_told or kind == "tail and head" else changed_places
    flip = middle_moved if kind == "middle" else flip
    more = {"pixels": "pixels" in kind}
    more["numbers"] = {"tail and head": from_tail_to_head, "middle": on_the_left}.get(kind)
    tr = loader(Pictures(80, 1, flip, **more), bs=16)
    va = loader(Pictures(60, 2, **more), bs=20, shuffle=False)
    net = nn.Sequential(nn.Flatten(), mlp(SIDE * SIDE, 16, 4))
    setup = pack(net, torch.optim.Adam(net.parameters(), 1e-3), tr,
                 lambda m, b: F.l1_loss(m(b["x"]), b["numbers"]), val_loader=va)  # fmt: skip
    assert bool(said(flips.turned_over, setup)) == is_told


@cases(
    faulty=["one draw"],
    sound=["two draws", "rebuilt", "not drawn", "seen once more by dropout", "weak and strong"],
)
def test_views_that_only_a_batch_is_put_together_of_are_two_draws(kind, is_told):
    torch.manual_seed(0)
    rows = torch.randn(96, 10, generator=gen(1))

    def collate(items):
        x = torch.stack(items)
        one, other = (x + 0.3 * torch.randn(x.shape) for _ in range(2))
        if kind == "not drawn":
            one = x
        if kind == "weak and strong":
            other = one + torch.randn(x.shape)
        elif kind != "two draws":
            other = one
        return {"a": one, "b": other}

    inner = [nn.Dropout(0.2)] if "dropout" in kind else []
    net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), *inner, nn.Linear(16, 10))

    def loss_of(m, b):
        a, b = b["a"], b["b"]
        if kind == "rebuilt":
            return F.mse_loss(m(a), b)
        z = F.normalize(m(torch.cat([a, b])), dim=1)
        like = (z @ z.T / 0.2).fill_diagonal_(-1e9)
        return F.cross_entropy(like, torch.arange(len(z)).roll(len(a)))

    tr = DataLoader(rows, 16, shuffle=True, generator=gen(2), collate_fn=collate)
    setup = pack(net, torch.optim.Adam(net.parameters(), 1e-3), tr, loss_of)
    assert bool(said(views.drawn_apart, setup)) == is_told


class Distance(nn.Module):
    """How far two rows are from each other, how like they are, or one answer for both."""

    def __init__(self, kind):
        super().__init__()
        self.net, self.out, self.kind = mlp(10, 16, 6), nn.Linear(12, 1), kind

    def forward(self, a, b):
        a, b = self.net(a), self.net(b)
        if self.kind == "cosine":
            return F.cosine_similarity(a, b)
        if "distance" in self.kind:
            return (a - b).pow(2).sum(1).add(1e-6).sqrt()
        logit = self.out(torch.cat([a, b], 1))
        return logit.sigmoid() if self.kind == "shares" else logit[:, 0]


@cases(
    faulty=["distance, reversed", "distance, reversed in the data", "logits, reversed", "uphill"],
    sound=["distance", "distance of others", "cosine", "logits", "shares", "another answer"],
)
def test_what_the_metric_rates_best_is_not_what_costs_most(kind, is_told):
    torch.manual_seed(0)
    g = gen(1)
    a, same = torch.randn(160, 10, generator=g), torch.rand(160, generator=g) < 0.4
    b = a.where(same[:, None], torch.randn(160, 10, generator=g))
    told = ~same if kind in ("distance of others", "distance, reversed in the data") else same
    parts = {"a": a, "b": b, "told": told.float()}
    tr, va = (
        loader(Columns(**{k: v[rows] for k, v in parts.items()}), bs=20, shuffle=first)
        for first, rows in ((True, slice(120)), (False, slice(120, None)))
    )
    net = Distance(kind)

    def loss_of(m, batch):
        o, y = m(batch["a"], batch["b"]), batch["told"]
        if kind == "distance of others":
            y = 1 - y
        if kind in ("distance, reversed", "logits, reversed"):
            y = 1 - y
        if "distance" in kind:
            return (y * o**2 + (1 - y) * (2 - o).clamp_min(0) ** 2).mean()
        if kind == "cosine":
            return F.mse_loss(o, 2 * y - 1)
        if kind == "shares":
            return F.binary_cross_entropy(o[:, 0], y)
        if kind == "uphill":
            return ((2 * y - 1) * o).clamp(-5, 50).mean()
        return F.binary_cross_entropy_with_logits(o, y)

    def evaluate():
        net.eval()
        hits = []
        with torch.no_grad():
            for batch in va:
                o = net(batch["a"], batch["b"]).flatten()
                yes = o < 1 if "distance" in kind else o > (0.5 if kind == "shares" else 0)
                y = batch["told"] > 0.5
                if kind in ("distance of others", "distance, reversed in the data"):
                    y = ~y
                if kind == "another answer":
                    y = batch["a"].sum(1) > 0
                hits.append(yes == y)
        net.train()
        return {"acc": torch.cat(hits).float().mean().item()}

    setup = pack(net, torch.optim.Adam(net.parameters(), 1e-3), tr, loss_of, val_loader=va,
                 evaluate=evaluate)  # fmt: skip
    assert bool(said(judged.alike, setup)) == is_told


class Triplets(Dataset):
    """Each with another of its label, of its person or of any kind, and a third one."""

    def __init__(self, kind):
        self.kind, g = kind, gen(4)
        self.x, self.g = torch.randn(240, 6, generator=g), gen(8)
        classes = 12 if kind == "any of many labels" else 3
        self.y = torch.arange(240) % classes
        self.part = torch.arange(240) // classes % 4  # of a label: one of four persons in it

    def __len__(self):
        return len(self.x)

    def other(self, i, where):
        rows = where.nonzero().flatten()
        rows = rows[rows != i]
        return rows[torch.randint(len(rows), (), generator=self.g)]

    def __getitem__(self, i):
        same = self.y == self.y[i]
        near = same & (self.part == self.part[i]) if self.kind == "persons" else same
        if self.kind == "unlike":
            near = torch.ones_like(same)
        drop = {"other labels": ~same, "persons": ~near, "no push in the loss": same}
        p, n = self.other(i, near), self.other(i, drop.get(self.kind, torch.ones_like(same)))
        return {"a": self.x[i], "p": self.x[p], "n": self.x[n], "y": self.y[i]}


@cases(
    faulty=["any label", "any label, one call"],
    sound=["other labels", "any of many labels", "persons", "unlike", "no push in the loss"],
)
def test_no_pair_is_pulled_together_and_pushed_apart(kind, is_told):
    torch.manual_seed(0)

    def loss_of(model, b):
        if "one call" in kind:
            a, p, n = model(b["a"], b["p"], b["n"])
        else:
            a, p, n = (model(b[name]) for name in "apn")
        if kind == "no push in the loss":
            return F.mse_loss(a, p) + F.mse_loss(a, n)
        return F.triplet_margin_loss(a, p, n, margin=2.0)

    net = mlp(6, 12, 3)
    if "one call" in kind:
        net.forward = lambda *parts: torch.stack([nn.Sequential.forward(net, x) for x in parts])
    data = DataLoader(Triplets(kind), 24, shuffle=True, generator=gen(0))
    setup = pack(net, torch.optim.Adam(net.parameters(), 3e-3), data, loss_of)
    assert said(triplets.contradict, setup) == ["wrong-targets"] * is_told
