"""What parts of a batch are for: ends, boxes, codes, ids that pad nothing, orders, counts."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from course.debug.probes.session import FORWARDS, WITHOUT_GRAPH, Session
from course.debug.probes.setup import as_setup
from course.debug.relations import boxes, direction, ended, padding, ties, untaught, weighing, worth
from tests.debug.faulty.thirteenth.kit import Columns, gen
from tests.debug.told import cases, said


def of(model, columns, loss_of, **more):
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    loader = DataLoader(columns, 32)
    return dict(model=model, optimizer=opt, train_loader=loader, loss_of=loss_of, **more)


class Language(nn.Module):
    def __init__(self, words=9):
        super().__init__()
        self.read, self.say = nn.Embedding(words, 8), nn.Linear(8, words)

    def forward(self, ids):
        return self.say(self.read(ids))


@cases(
    faulty=("by token", "ignored by its number", "by token, beside lengths"),
    sound=("by mask", "of its own", "a start sign", "masked prompt", "labels moved before"),
)
def test_the_end_counts_where_padding_is_the_same_sign(kind, is_told):
    torch.manual_seed(0)
    lengths = torch.randint(4, 9, (64,), generator=gen(1))
    ids = torch.randint(3, 9, (64, 10), generator=gen(2))
    real = torch.arange(10) < lengths[:, None]
    ids[torch.arange(64), lengths - 1] = 1
    ids = ids.masked_fill(~real, 0 if kind == "of its own" else 1)
    labels = ids.masked_fill(ids == 1 if "by token" in kind else ~real, -100)
    if kind == "a start sign":
        ids[:, 0], labels[:, 0] = 2, -100
    elif kind == "masked prompt":
        labels[:, :3] = -100
    elif kind == "labels moved before":
        labels = torch.cat([labels[:, 1:], torch.full((64, 1), -100)], 1)
        labels = labels.masked_fill(~real, -100)
    told = {"lengths": lengths} if "lengths" in kind else {"mask": real.long()}

    def loss_of(model, b):
        said, y = model(b["ids"])[:, :-1].transpose(1, 2), b["labels"][:, 1:]
        if kind == "ignored by its number":
            return F.cross_entropy(said, b["ids"][:, 1:], ignore_index=1)
        return F.cross_entropy(said, y)

    made = of(Language(), Columns(ids=ids, labels=labels, **told), loss_of)
    assert said(ended.by_its_sign, made) == ["empty-targets"] * is_told


@cases(
    faulty=("by token", "ignored by its number"),
    sound=("behind the first", "of its own", "by accuracy", "by its class", "rows of one length",
           "share of padding"),
)  # fmt: skip
def test_the_token_that_a_score_waits_for_is_a_target(kind, is_told):
    torch.manual_seed(0)
    lengths = torch.randint(4, 9, (64,), generator=gen(1))
    ids = torch.randint(3, 9, (64, 10), generator=gen(2))
    real = torch.arange(10) < lengths[:, None]
    ids[torch.arange(64), lengths - 1] = 1
    ids = ids.masked_fill(~real, 0 if kind == "of its own" else 1)
    if kind == "rows of one length":
        ids[:, 3:] = torch.randint(3, 9, (64, 7), generator=gen(3))
    if kind == "share of padding":
        ids[0] = torch.randint(3, 9, (10,), generator=gen(3))
    labels = ids.masked_fill(~real if kind == "behind the first" else ids == 1, -100)
    if kind == "of its own":
        labels = ids.masked_fill(~real, -100)
    model = Language()

    def loss_of(model, b):
        said, y = model(b["ids"])[:, :-1].transpose(1, 2), b["labels"][:, 1:]
        if kind == "ignored by its number":
            return F.cross_entropy(said, b["ids"][:, 1:], ignore_index=1)
        return F.cross_entropy(said, y)

    def evaluate():
        with torch.no_grad():
            said = model(ids[:, :4]).argmax(2)
        if kind == "by accuracy":
            return {"accuracy": (said == ids[:, 1:5]).float().mean().item()}
        if kind == "by its class":
            return {"token": said.float().mean().item()}
        return {"stops": sum(1 in row for row in said.tolist()) / 64}

    made = of(model, Columns(ids=ids, labels=labels), loss_of, evaluate=evaluate)
    assert said(ended.by_what_is_scored, made) == ["empty-targets"] * is_told


@cases(faulty=("all places",), sound=("words alone", "by a mask"))
def test_padding_counts_too_where_it_costs_what_words_cost(kind, is_told):
    torch.manual_seed(0)
    ids = torch.randint(1, 9, (64, 12), generator=gen(2))
    ids[torch.arange(12) >= torch.randint(4, 9, (64, 1), generator=gen(1))] = 0
    model = Language()
    for p in model.say.parameters():
        nn.init.zeros_(p)

    def loss_of(model, b):
        said, y = model(b["ids"][:, :-1]).transpose(1, 2), b["ids"][:, 1:]
        if kind == "by a mask":
            return F.cross_entropy(said, y, reduction="none")[y != 0].mean()
        return F.cross_entropy(said, y, ignore_index=-100 if is_told else 0)

    made = of(model, Columns(ids=ids), loss_of)
    assert said(padding.behind, made) == ["padding-in-the-loss"] * is_told


def corners(b):
    return torch.cat([b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2], 1)


def iou(a, b):
    sides = torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])
    both = sides.clamp(min=0).prod(1)
    areas = [(x[:, 2:] - x[:, :2]).clamp(min=0).prod(1) for x in (a, b)]
    return both / (areas[0] + areas[1] - both + 1e-6)


def by_column(a, b):
    w = torch.min(a[:, 2], b[:, 2]) - torch.max(a[:, 0], b[:, 0])
    h = torch.min(a[:, 3], b[:, 3]) - torch.max(a[:, 1], b[:, 1])
    return w.clamp(min=0) * h.clamp(min=0)


@cases(
    faulty=("centres", "columns"),
    sound=("corners of centres", "corners", "sizes alone", "corners by column"),
)
def test_an_overlap_is_of_corners(kind, is_told):
    torch.manual_seed(0)
    t = torch.cat([0.3 + 0.5 * torch.rand(64, 2), 0.1 + 0.3 * torch.rand(64, 2)], 1)
    given = corners(t) if kind.startswith("corners") and "of" not in kind else t

    def loss_of(model, b):
        p, y = model(b["x"]).sigmoid(), b["boxes"]
        if kind == "corners of centres":
            return (1 - iou(corners(p), corners(y))).mean()
        if kind == "sizes alone":  # of shapes, as when anchors are matched
            both = torch.minimum(p[:, 2:], y[:, 2:]).prod(1)
            return F.l1_loss(p, y) - (both / (p[:, 2:].prod(1) + y[:, 2:].prod(1) - both)).mean()
        overlap = by_column if "column" in kind else iou
        return (1 - overlap(p, y)).mean()

    made = of(nn.Linear(6, 4), Columns(x=torch.randn(64, 6), boxes=given), loss_of)
    assert said(boxes.overlap, made) == ["wrong-formula"] * is_told


class Coder(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.enc, self.dec = kind, nn.Linear(24, 8), nn.Linear(4, 24)

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, 1)
        rebuilt = self.dec(mu + torch.randn_like(mu) * (logvar / 2).exp())
        return (rebuilt.sigmoid() if "shares" in self.kind else rebuilt), mu, logvar


@cases(
    faulty=("mean and sum", "shares, mean and sum", "logits, mean and sum"),
    sound=("sums", "shares, sums", "logits, sums", "means", "no code yet", "free bits"),
)
def test_a_code_saves_more_than_it_costs(kind, is_told):
    torch.manual_seed(0)
    x = (torch.randn(64, 3, generator=gen(1)) @ torch.randn(3, 24, generator=gen(2))).sigmoid()
    x = x if "s," in kind else 3 * x - 1.5

    def loss_of(model, b):
        r, mu, v = model(b["x"])
        each = F.mse_loss(r, b["x"], reduction="none")
        if "shares" in kind:
            each = F.binary_cross_entropy(r, b["x"], reduction="none")
        elif "logits" in kind:
            each = F.binary_cross_entropy_with_logits(r, b["x"])[None, None]
            each = each * (1 if is_told else 24)
        error = each.sum(1).mean() if "sums" in kind else each.mean()
        price = -0.5 * (1 + v - mu**2 - v.exp())
        if kind == "means":
            return error + 0.05 * price.mean()
        if kind == "no code yet":  # the weight grows from 0
            return error + 0 * price.sum()
        if kind == "free bits":
            return error + price.mean(0).clamp(min=0.3).sum()
        return error + price.sum(1).mean()

    made = of(Coder(kind), Columns(x=x), loss_of)
    assert said(worth.of_a_code, made) == ["wrong-formula"] * is_told


class Factors(nn.Module):
    def __init__(self, kind):
        super().__init__()
        padded = None if kind == "no padding" else 0
        self.users = nn.Embedding(20, 4)
        self.items = nn.Embedding(12, 4, padding_idx=padded)
        self.extra = nn.Linear(4, 1) if "bias" in kind else None

    def forward(self, user, item):
        u, i = self.users(user), self.items(item)
        i = i.mean(1) if i.dim() > 2 else i
        score = (u * i).sum(1)
        return score + self.extra(u)[:, 0] if self.extra else score


@cases(
    faulty=("one item", "bias of the user"),  # the second is only noted: 0 may stand for no item
    sound=("no padding", "none with 0", "several items", "not counted"),
)
def test_an_id_that_pads_nothing_is_learned(kind, is_told):
    torch.manual_seed(0)
    item = torch.randint(int(kind == "none with 0"), 4, (64,), generator=gen(1))
    if kind == "several items":
        item = torch.stack([item, item.flip(0)], 1)
    user = torch.randint(0, 20, (64,), generator=gen(2))

    def loss_of(model, b):
        each = (model(b["user"], b["item"]) - b["y"]) ** 2
        return each[b["item"] > 0].mean() if kind == "not counted" else each.mean()

    rows = Columns(user=user, item=item, y=torch.randn(64, generator=gen(3)))
    made = of(Factors(kind), rows, loss_of)
    assert said(untaught.by_padding, made) == ["frozen-params"] * is_told
    if is_told:
        (found,) = untaught.by_padding(Session(as_setup(made)))
        assert found.is_alarm == (kind == "one item")


@cases(faulty=("rounded",), sound=("ties shared", "above alone", "shares", "rounded, ties against"))
def test_a_rank_does_not_gain_from_ties(kind, is_told):
    torch.manual_seed(0)
    x, own = torch.randn(64, 6), torch.randint(0, 12, (64,), generator=gen(1))
    model = nn.Linear(6, 12)

    @torch.no_grad()
    def evaluate():
        s = model(x)
        s = (5 * s).round() if "rounded" in kind else s.softmax(1) if kind == "shares" else s
        mine = s.gather(1, own[:, None])
        above, ties_ = (s > mine).sum(1).float(), (s == mine).sum(1).float() - 1
        ranks = above + {"ties shared": ties_ / 2, "rounded, ties against": ties_}.get(kind, 0)
        return {"hit@3": float((ranks < 3).float().mean())}

    made = of(model, Columns(x=x, own=own), lambda m, b: F.cross_entropy(m(b["x"]), b["own"]),
              evaluate=evaluate)  # fmt: skip
    assert said(ties.closer, made) == ["metric-wrong"] * is_told


@cases(
    faulty=("by count", "roots by count"),
    sound=("by class", "roots", "by hand", "held out", "even"),
)
def test_class_weights_are_of_their_own_classes(kind, is_told):
    torch.manual_seed(0)
    y = torch.cat([torch.full((n,), k) for k, n in enumerate((40, 200, 12, 90))])
    y = y[torch.randperm(len(y), generator=gen(1))]
    counts = torch.bincount(y).float()
    if kind == "held out":  # counted before a tenth was held out
        counts = counts * torch.tensor([1.1, 1.12, 1.2, 1.08])
    if is_told:
        counts = counts.sort(descending=True).values
    weight = counts.sqrt().reciprocal() if "roots" in kind else counts.reciprocal()
    if kind == "by hand":  # one class matters most to the author
        weight = torch.tensor([1.0, 1.0, 3.0, 10.0])
    elif kind == "even":
        weight = torch.ones(4)
    model = nn.Linear(5, 4)
    made = dict(model=model, optimizer=torch.optim.Adam(model.parameters()),
                train_loader=DataLoader(TensorDataset(torch.randn(len(y), 5), y), 32),
                loss_fn=nn.CrossEntropyLoss(weight=weight))  # fmt: skip
    assert said(weighing.classes, made) == ["class-weights-inverted"] * is_told


@cases(faulty=("by count",), sound=("by class", "all alike"))
def test_a_sampler_draws_classes_by_their_own_counts(kind, is_told):
    torch.manual_seed(0)
    y = torch.cat([torch.full((n,), k) for k, n in enumerate((40, 200, 12, 90))])
    counts = torch.bincount(y).float()
    counts = counts.sort(descending=True).values if is_told else counts
    each = torch.ones(len(y)) if kind == "all alike" else (1 / counts)[y]
    rows, model = TensorDataset(torch.randn(len(y), 5), y), nn.Linear(5, 4)
    made = dict(model=model, optimizer=torch.optim.Adam(model.parameters()),
                train_loader=DataLoader(rows, 32, sampler=WeightedRandomSampler(each, len(y))),
                loss_fn=nn.CrossEntropyLoss())  # fmt: skip
    assert said(weighing.drawn, made) == ["class-weights-inverted"] * is_told


@cases(faulty=("by count",), sound=("by label", "square roots", "one for all"))
def test_positives_weigh_by_their_own_label(kind, is_told):
    torch.manual_seed(0)
    y = (torch.rand(320, 4) < torch.tensor([0.3, 0.05, 0.15, 0.6])).float()
    yes = y.sum(0).sort(descending=True).values if is_told else y.sum(0)
    weight = (320 - yes) / yes
    weight = weight.sqrt() if kind == "square roots" else weight
    weight = torch.tensor(3.0) if kind == "one for all" else weight
    model = nn.Linear(5, 4)
    made = dict(model=model, optimizer=torch.optim.Adam(model.parameters()),
                train_loader=DataLoader(TensorDataset(torch.randn(320, 5), y), 32),
                loss_fn=nn.BCEWithLogitsLoss(pos_weight=weight))  # fmt: skip
    assert said(weighing.positives, made) == ["class-weights-inverted"] * is_told


@cases(faulty=("no minus",), sound=("minus", "slow"))
def test_a_policy_follows_its_reward(kind, is_told):
    torch.manual_seed(0)
    best, model = torch.randn(6, 3), nn.Linear(6, 3)
    states = torch.randn(100, 6, generator=gen(2))

    def loss_of(model, b):
        law = torch.distributions.Categorical(logits=model(b["s"]))
        action = law.sample()
        reward = ((b["s"] @ best).argmax(1) == action).float()
        loss = (law.log_prob(action) * (reward - reward.mean())).mean()
        return loss if is_told else -loss

    @torch.no_grad()
    def evaluate():
        return {"mean_reward": float(((states @ best).argmax(1) == model(states).argmax(1))
                                     .float().mean())}  # fmt: skip

    made = of(model, Columns(s=torch.randn(400, 6)), loss_of, evaluate=evaluate)
    opt = made["optimizer"] = torch.optim.Adam(model.parameters(), 1e-4 if kind == "slow" else 0.03)

    def train_step(b):
        opt.zero_grad()
        loss = loss_of(model, b)
        loss.backward()
        opt.step()
        return loss.item()

    assert said(direction.follows, {**made, "train_step": train_step}) == ["loss-negated"] * is_told


@pytest.mark.parametrize(("graph", "counted"), [(True, 1), (False, WITHOUT_GRAPH)])
def test_a_forward_without_a_graph_counts_less(graph, counted):
    model = nn.Linear(3, 2)
    session = Session(
        as_setup(of(model, Columns(x=torch.randn(8, 3)), lambda m, b: m(b["x"]).sum()))
    )
    with session.observe(), torch.set_grad_enabled(graph):
        model(torch.randn(1, 3))
    assert session.forwards == counted and not session.is_spent(1 / FORWARDS)
