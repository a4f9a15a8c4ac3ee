"""Small programs for relations on ends of episodes, pairs and branches, faulty and sound."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from course.debug.relations import bootstrapped, collapsed, recurrent, verified
from tests.debug.faulty.eleventh.kit import Columns
from tests.debug.faulty.thirteenth.kit import gen, loader, mlp
from tests.debug.faulty.twelfth.kit import pack
from tests.debug.told import cases, said
from tests.second_device import second_device


def adam(model):
    return torch.optim.Adam(model.parameters(), 1e-3)


CELLS = 6


class Table(nn.Module):
    """Values of two actions in each of a few cells."""

    def __init__(self):
        super().__init__()
        self.f = mlp(CELLS, 16, 2)

    def forward(self, cell):
        return self.f(F.one_hot(cell, CELLS).float())


def walk(n, kind):
    """Steps to the left and right; behind the last cell an episode ends."""
    own = gen(0)
    s, a = torch.randint(CELLS, (n,), generator=own), torch.randint(2, (n,), generator=own)
    after = s + 2 * a - 1
    done = after >= CELLS
    if kind == "cut by time":
        done = torch.rand(n, generator=own) < 0.15
    if kind == "begins there":
        done = s == 0
    parts = {"s": s, "a": a, "r": done.float(), "after": after.clamp(0, CELLS - 1)}
    parts["done"] = done if kind == "of bools" else done.float()
    if kind == "discounts":
        parts["discount"] = 0.9 * (1 - done.float())
    return Columns(**parts)


@cases(
    faulty=["of floats", "of bools"],
    sound=["masked", "discounts", "cut by time", "begins there"],
)
def test_cells_with_numbers_have_ends_too(kind, is_told):
    torch.manual_seed(0)
    model = Table()

    def loss_of(m, b):
        with torch.no_grad():
            left = m(b["after"]).amax(1)
            left = left * b["discount"] if kind == "discounts" else 0.9 * left
            aim = b["r"] + (left * (1 - b["done"]) if kind == "masked" else left)
        return F.smooth_l1_loss(m(b["s"]).gather(1, b["a"][:, None])[:, 0], aim)

    made = pack(model, adam(model), loader(walk(640, kind), 32), loss_of)
    found = said(bootstrapped.ends, made)
    assert found == ["terminal-bootstrapped"] * is_told


class Both(nn.Module):
    """An encoder of two things, in one call."""

    def __init__(self, kind):
        super().__init__()
        self.f, self.kind = mlp(10, 16, 6), kind

    def forward(self, a, b=None):
        if b is None:
            return self.f(a)
        return (self.f(a), self.f(b)) if self.kind == "two returned" else self.f(torch.cat([a, b]))


@cases(
    faulty=["two calls", "two returned", "joined", "cosine"],
    sound=["as the data say", "1 is different", "far is right"],
)
def test_pairs_that_a_metric_wants_alike_are_drawn_together(kind, is_told):
    torch.manual_seed(0)
    own = gen(1)
    centres, a = torch.randn(12, 10, generator=own), torch.randint(12, (512,), generator=own)
    same = torch.rand(512, generator=own) < 0.5
    other = torch.where(same, a, (a + torch.randint(1, 12, (512,), generator=own)) % 12)
    x, y = (centres[i] + 0.5 * torch.randn(512, 10, generator=own) for i in (a, other))
    answer = ~same if kind == "1 is different" else same
    data = Columns(a=x, b=y, answer=answer.float())
    model = Both(kind)

    def distances(b):
        if kind == "two returned":
            return F.pairwise_distance(*model(b["a"], b["b"]))
        if kind == "joined":
            return F.pairwise_distance(*model(b["a"], b["b"]).chunk(2))
        return F.pairwise_distance(model(b["a"]), model(b["b"]))

    def loss_of(m, b):
        if kind == "cosine":
            return F.cosine_embedding_loss(m(b["a"]), m(b["b"]), 1 - 2 * b["answer"], 0.2)
        apart = 1 - b["answer"] if kind == "as the data say" else b["answer"]
        d = distances(b)
        return ((1 - apart) * d**2 + apart * F.relu(1.5 - d) ** 2).mean()

    held = loader(data, 64, shuffle=False)

    @torch.no_grad()
    def evaluate():
        d = torch.cat([distances(b) for b in held])
        alike = torch.cat([b["answer"] for b in held]) == (0 if kind == "1 is different" else 1)
        if kind == "far is right":  # what counts is that pairs differ, e.g. one and its opposite
            alike = ~alike
        return {"auc": (d[alike][:, None] < d[~alike]).float().mean().item()}

    made = pack(model, adam(model), loader(data, 32), loss_of, evaluate=evaluate, val_loader=held)
    assert said(verified.alike, made) == ["loss-negated"] * is_told


class Views(nn.Module):
    """An encoder with what some methods put behind it."""

    def __init__(self, last):
        super().__init__()
        layers = nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 6)
        self.f = nn.Sequential(*layers, last)
        self.guess, self.white = mlp(6, 12, 6), nn.BatchNorm1d(6, affine=False)
        self.normed = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6))
        self.apart = nn.Sequential(self.normed, self.white)
        self.back, self.head = nn.Linear(6, 10), nn.Linear(6, 3)

    def forward(self, x, both=False):
        z = self.f(x)
        return (z, self.guess(z)) if both else z


def agree(kind, m, slow, b):
    """The loss of both outputs of each row."""
    near = F.cosine_similarity
    if kind.startswith("both given"):
        (z1, p1), (z2, p2) = m(b["one"], both=True), m(b["two"], both=True)
        aims = (z1.detach(), z2.detach()) if "stopped" in kind else (z1, z2)
        return -(near(p1, aims[1]) + near(p2, aims[0])).mean() / 2
    if kind == "joined":
        one, two = m(torch.cat([b["one"], b["two"]])).chunk(2)
    else:
        one, two = m(b["one"]), m(b["two"])
    if kind in ("guessed", "stop-gradient", "slow copy", "normed guess", "normed, stopped"):
        guess = m.normed if "normed" in kind else m.guess
        aims = one, two
        if "stop" in kind:
            aims = one.detach(), two.detach()
        if kind == "slow copy":
            with torch.no_grad():
                aims = slow(b["one"]), slow(b["two"])
        return -(near(guess(one), aims[1]) + near(guess(two), aims[0])).mean() / 2
    if kind == "negatives":
        scores = F.normalize(one, dim=1) @ F.normalize(two, dim=1).T / 0.2
        rows = torch.arange(len(one))
        return (F.cross_entropy(scores, rows) + F.cross_entropy(scores.T, rows)) / 2
    if kind == "whitened":
        return F.mse_loss(m.white(one), m.white(two))
    if kind == "projected, whitened":
        return F.mse_loss(m.apart(one), m.apart(two))
    cost = F.mse_loss(one, two)
    if kind == "spread kept":
        cost = cost + sum(F.relu(1 - z.std(0)).mean() for z in (one, two))
    if kind == "also classified":
        cost = cost + sum(F.cross_entropy(m.head(z), b["y"]) for z in (one, two))
    if kind == "also restored":
        cost = cost + F.mse_loss(m.back(one), b["one"]) + F.mse_loss(m.back(two), b["two"])
    return cost


@cases(
    faulty=["plain", "guessed", "joined", "normed guess", "both given"],
    sound=["stop-gradient", "slow copy", "negatives", "whitened", "normed last", "spread kept",
           "also classified", "also restored", "normed, stopped", "projected, whitened",
           "both given, stopped"],
)  # fmt: skip
def test_two_views_agree_on_more_than_one_point(kind, is_told):
    torch.manual_seed(0)
    own = gen(2)
    inner = torch.randn(320, 4, generator=own) @ torch.randn(4, 10, generator=own)
    one, two = (inner + 0.3 * torch.randn(320, 10, generator=own) for _ in range(2))
    data = Columns(one=one, two=two, y=torch.randint(3, (320,), generator=own))
    model = Views(nn.BatchNorm1d(6, affine=False) if kind == "normed last" else nn.Identity())
    slow = copy.deepcopy(model).requires_grad_(False)
    made = pack(
        model,
        torch.optim.SGD(model.parameters(), 0.05, momentum=0.9),
        loader(data, 32),
        lambda m, b: agree(kind, m, slow, b),
    )
    assert said(collapsed.to_a_point, made) == ["loss-through-target"] * is_told


ROUNDS = 6


class Loop(nn.Module):
    """A layer in a loop, in one of several ways."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.emb = kind, nn.Embedding(8, 12)
        self.cell = nn.LSTMCell(12, 16) if kind == "two states" else nn.GRUCell(12, 16)
        self.from_h, self.from_x = nn.Linear(16, 16), nn.Linear(12, 16)
        self.refine, self.out = nn.Linear(28, 16), nn.Linear(16, 4)

    def forward(self, ids):
        kind = self.kind
        h = c = self.emb.weight.new_zeros(len(ids), 16)
        if kind == "views":  # the last is compared with the others, which are held
            *aims, h = [self.cell(self.emb(ids[:, t]), c) for t in range(3)]
            return self.out(h + sum(a.detach() for a in aims))
        if kind == "refined":  # one input, and only the last round is trained
            for _ in range(3):
                h = torch.tanh(self.refine(torch.cat([self.emb(ids[:, 0]), h.detach()], 1)))
            return self.out(h)
        outputs = []
        for t in range(ROUNDS):
            x = self.emb(ids[:, t])
            if kind in ("each round", "two states", "by hand", "scored in each round"):
                h, c = h.detach(), c.detach()
            if kind == "windows" and t % 2 == 0:
                h = h.detach()
            with torch.set_grad_enabled(kind != "last with a graph" or t == ROUNDS - 1):
                if kind == "two states":
                    h, c = self.cell(x, (h, c))
                elif kind == "by hand":
                    h = torch.tanh(self.from_x(x) + self.from_h(h))
                else:
                    h = self.cell(x, h)
            outputs.append(self.out(h))
        return sum(outputs) if kind == "scored in each round" else outputs[-1]


@cases(
    faulty=["each round", "two states", "by hand"],
    sound=["whole", "windows", "last with a graph", "scored in each round", "refined", "views"],
)
def test_a_loop_of_which_only_the_last_round_learns_is_told(kind, is_told):
    torch.manual_seed(0)
    ids = torch.randint(8, (320, ROUNDS), generator=gen(4))
    model = Loop(kind)
    made = pack(
        model,
        adam(model),
        loader(Columns(ids=ids, y=ids[:, 0] % 4), 32),
        lambda m, b: F.cross_entropy(m(b["ids"]), b["y"]),
    )
    assert said(recurrent.goes_back, made) == ["loss-without-gradient"] * is_told


def test_outputs_on_another_device_are_made_up_there():
    """Views and a loop, with model and batches on a second device."""
    own = gen(5)
    ids = torch.randint(8, (64, ROUNDS), generator=own)
    x, y = torch.randn(2, 64, 10, generator=own)
    y = x + 0.3 * y
    with second_device() as device:
        loop, views = Loop("each round").to(device), Views(nn.Identity()).to(device)
        runs = loader(Columns(ids=ids.to(device), y=ids[:, 0].to(device) % 4), 32)
        pairs = loader(Columns(one=x.to(device), two=y.to(device)), 32)
        told = said(recurrent.goes_back, pack(
            loop, adam(loop), runs, lambda m, b: F.cross_entropy(m(b["ids"]), b["y"])
        ))  # fmt: skip
        told += said(collapsed.to_a_point, pack(
            views, torch.optim.SGD(views.parameters(), 0.1, momentum=0.9), pairs,
            lambda m, b: agree("guessed", m, None, b),
        ))  # fmt: skip
    assert told == ["loss-without-gradient", "loss-through-target"]
