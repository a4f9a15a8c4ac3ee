"""A twelfth set, by an author who had not read the doctor, with twenty sound programs.

Each relation that a fault of it asked for is tried on other dresses of the fault, and on what only
looks like it.
"""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course.debug import diagnose
from course.debug.probes.session import Session
from course.debug.probes.setup import as_setup
from course.debug.relations import (
    attention,
    cancelled,
    flipped,
    free,
    handed,
    loss,
    model,
    scoring,
    unbounded,
)
from course.debug.relations.program import program_of
from tests.debug.faulty import PAIRS, twelfth
from tests.debug.faulty.twelfth.kit import Columns, G, loader, mean_loss, mlp, pack
from tests.debug.faulty.twelfth.outputs import Boxer, shapes, xyxy
from tests.debug.sound import SOUND
from tests.debug.sound import twelfth as odd
from tests.debug.sound import twelfth_loops as odd_loops
from tests.debug.told import assert_told_apart, cases, said
from tests.sampling import sample

HERE = {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in twelfth.PARTS)}
ODD = [name for name in SOUND if hasattr(odd, name) or hasattr(odd_loops, name)]


def test_all_programs_of_the_twelfth_set_are_tried():
    assert len(HERE) == 40
    assert len(ODD) == 20  # test_diagnose diagnoses them, with the others that are sound


@pytest.mark.parametrize("name", sample([*HERE], 40))
def test_the_fault_is_named_first_and_its_twin_is_left_alone(name):
    assert_told_apart(HERE[name])


def trained(network, batches, loss_of, **more):
    assert torch.isfinite(loss_of(network, next(iter(batches))))  # a step that raises tells nothing
    opt = torch.optim.Adam(network.parameters(), 3e-3)
    return pack(network, opt, batches, loss_of, **more)


class Reader(nn.Module):
    """Reads tokens [B, T] in both directions, or in one."""

    def __init__(self, both, turned=False):
        super().__init__()
        self.e, self.turned = nn.Embedding(20, 16), turned
        self.r = nn.LSTM(16, 16, batch_first=True, bidirectional=both)
        self.o = nn.Linear(32 if both else 16, 20)

    def forward(self, ids):
        out = self.o(self.r(self.e(ids))[0])
        return out.mT if self.turned else out


@cases(
    faulty=["both", "classes first", "flat"],
    sound=["one way", "one way, classes first", "own position"],
)
def test_the_future_is_seen_where_the_loss_drops_the_last_position(kind, is_told):
    torch.manual_seed(0)
    first = "classes first" in kind

    def loss_of(network, batch):
        out, ids = network(batch[0]), batch[0]
        if kind == "own position":  # an autoencoder that leaves a sign for the start out
            return F.cross_entropy(out[:, 1:].flatten(0, 1), ids[:, 1:].flatten())
        if kind == "flat":
            return F.cross_entropy(out[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        return F.cross_entropy(out[..., :-1] if first else out[:, :-1].mT, ids[:, 1:])

    network = Reader("one way" not in kind, first)
    made = trained(network, loader(torch.randint(20, (128, 12))), loss_of)
    assert bool(said(model.future, made)) == is_told


@cases(
    faulty=["as they are", "as wrong", "as right"],
    sound=["left out", "by row", "whole rows", "few labels"],
)
def test_padding_that_the_loss_hides_is_no_answer(kind, is_told):
    torch.manual_seed(0)
    x, lengths = torch.randint(1, 20, (200, 12)), torch.randint(3, 9, (200,))
    keep = torch.arange(12) < lengths[:, None]
    if kind == "few labels":  # answers are known everywhere, and trained on here and there
        keep = torch.rand(200, 12) < 0.4
    else:
        x = x * keep
    batches = loader(Columns(x=x, y=x % 5, keep=keep.long()), bs=20, shuffle=False)
    network = Reader(both=False)

    def loss_of(network, batch):
        each = F.cross_entropy(network(batch["x"]).mT, batch["y"], reduction="none")
        return (each * batch["keep"]).sum() / batch["keep"].sum()

    def evaluate():
        network.eval()
        with torch.no_grad():
            hits = torch.cat([network(b["x"]).argmax(2) == b["y"] for b in batches])
        ways = {
            "as they are": hits, "few labels": hits, "as wrong": hits & keep,
            "as right": hits | ~keep, "left out": hits[keep],
            "by row": (hits & keep).sum(1) / keep.sum(1), "whole rows": (hits | ~keep).all(1),
        }  # fmt: skip
        return {"val_acc": ways[kind].float().mean().item()}

    made = trained(network, batches, loss_of, val_loader=batches, evaluate=evaluate)
    assert bool(said(scoring.ignored, made)) == is_told


@cases(faulty=["some rows empty", "sigmoids", "thresholds"], sound=["ranked", "one slip", "shares"])
def test_classes_that_share_a_softmax_are_not_asked_for_alone(kind, is_told):
    torch.manual_seed(0)
    x, w = torch.randn(320, 20), torch.randn(20, 6)
    y = ((x @ w) > 1).float()
    if kind != "some rows empty":
        y[torch.arange(320), (x @ w).argmax(1)] = 1
    if kind == "one slip":
        y[7] = 0
    if kind == "shares":
        y = y / y.sum(1, keepdim=True)
    network, batches = mlp(20, 16, 6), loader(x, y)

    def evaluate():
        with torch.no_grad():
            out = torch.cat([network(inputs) for inputs, _ in batches])
        asked = {"sigmoids": lambda: out.sigmoid().round(), "thresholds": lambda: out > 0}
        return {"said": asked.get(kind, lambda: out.topk(2).indices)().float().mean().item()}

    made = trained(network, batches, lambda m, b: F.cross_entropy(m(b[0]), b[1]),
                   evaluate=evaluate)  # fmt: skip
    assert bool(said(loss.shares, made)) == is_told


@cases(
    faulty=["both ways", "unscaled"],
    sound=["two views", "one view, dropped out twice", "only to spread", "masked"],
)
def test_the_positive_of_an_example_is_another_view_of_it(kind, is_told):
    torch.manual_seed(0)
    x = torch.randn(320, 16)
    network = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 8))

    def loss_of(network, batch):
        a, b = (F.normalize(network(t), dim=1) for t in batch)
        own, n = torch.arange(len(a)), len(a)
        if kind == "both ways":
            return F.cross_entropy(a @ a.t() / 0.2, own) + F.cross_entropy((a @ a.t()).t(), own)
        if kind == "only to spread":
            return F.mse_loss(a, b) + 0.1 * F.cross_entropy(b @ b.t() / 0.2, own)
        if kind == "two views":
            return F.cross_entropy(a @ b.t() / 0.2, own)
        if kind == "one view, dropped out twice":
            other = F.normalize(network(batch[0]), dim=1)
            return F.cross_entropy(a @ other.t() / 0.2, own)
        z = torch.cat([a, b]) * (5 if kind == "unscaled" else 1)
        if kind == "unscaled":
            return F.cross_entropy(z @ z.t(), torch.arange(2 * n))
        table = (z @ z.t() / 0.2).masked_fill(torch.eye(2 * n, dtype=torch.bool), -1e9)
        return F.cross_entropy(table, (torch.arange(2 * n) + n) % (2 * n))

    made = trained(network, loader(x, x + 0.1 * torch.randn_like(x)), loss_of)
    assert bool(said(loss.itself, made)) == is_told


class Row(nn.Module):
    def __init__(self, outputs=1):
        super().__init__()
        self.f = mlp(8, 16, outputs)

    def forward(self, x):
        return self.f(x).squeeze(-1)


def apart(a, b):
    return (a - b).abs()


@cases(
    faulty=["weights", "from the loader", "picked", "made elsewhere"],
    sound=["ranks", "energies", "helper", "distances", "bins", "costs"],
)
def test_a_column_meets_a_row_only_where_each_is_to_meet_each(kind, is_told):
    torch.manual_seed(0)
    x, w = torch.randn(256, 8), torch.rand(256)
    y = x[:, 0] - x[:, 1]
    batches = loader(Columns(x=x, y=y, z=2 * x[:, 3], w=w[:, None], column=y[:, None]))

    def column(row):
        return row[:, None] + 1

    def loss_of(network, batch):
        out, y = network(batch["x"]), batch["y"]
        if kind == "picked":
            return (out.gather(1, y.long()[:, None].clamp(0, 2)) - y).square().mean()
        twice, aims = torch.stack([out, 2 * out], 1), torch.stack([y, 2 * y], 1)
        squares = twice.pow(2).sum(1, keepdim=True) + aims.pow(2).sum(1)
        bins = torch.linspace(-2, 2, 32)
        ways = {
            "weights": lambda: F.mse_loss(out, y, reduction="none") * batch["w"],
            "from the loader": lambda: (batch["column"] - out).abs(),
            "made elsewhere": lambda: (column(y) - out).abs(),
            "ranks": lambda: F.relu(0.1 - (out[:, None] - out) * (y[:, None] - y).sign()),
            "energies": lambda: (out[:, None] - y).abs() - 0.5 * (out[:, None] - out).abs(),
            "helper": lambda: apart(out.unsqueeze(1), y) + F.mse_loss(out, y),
            "distances": lambda: squares - 2 * twice @ aims.t(),
            "bins": lambda: F.cross_entropy(
                -((out[:, None] - bins) ** 2), apart(batch["column"], bins).argmin(1)),
            "costs": lambda: F.mse_loss(out, y) + (out[:, None] - batch["z"]).abs().amin(1),
        }  # fmt: skip
        return ways[kind]().mean()

    made = trained(Row(3 if kind == "picked" else 1), batches, loss_of)
    assert bool(said(handed.table, made)) == is_told


class Pooled(nn.Module):
    """Pools rows [B, T, D] by weights that a softmax makes."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.score, self.value = kind, nn.Linear(8, 1), nn.Linear(8, 1)
        self.query = nn.Parameter(torch.randn(1, 1, 8))

    def forward(self, x):
        one, own = self.score(x).softmax(-1), self.value(x)  # of each row alone: 1
        key = x.mean(1, keepdim=True)
        ways = {
            "times": lambda: (own * one).sum(-2),
            "squeezed": lambda: (one.squeeze(-1).unsqueeze(-1) * own).sum(dim=1),
            "product": lambda: (one.transpose(1, 2) @ own)[:, 0],
            "over rows": lambda: (self.score(x).softmax(1) * own).sum(1),
            "one expert": lambda: (one[..., None] * own[..., None]).sum(2).mean(1),
            "one key": lambda: self.value((x @ key.mT).softmax(-1) @ key).mean(1),
            "one query": lambda: self.value((self.query @ x.mT).softmax(-1) @ x)[:, 0],
        }
        return ways[self.kind]()


@cases(
    faulty=["times", "squeezed", "product"],
    sound=["over rows", "one expert", "one key", "one query"],
)
def test_a_softmax_shares_among_several(kind, is_told):
    torch.manual_seed(0)
    x = torch.randn(128, 12, 8)
    made = trained(Pooled(kind), loader(x, x[:, 3, 1:2]), lambda m, b: F.mse_loss(m(b[0]), b[1]))
    assert bool(said(attention.of_several, made)) == is_told


@cases(
    faulty=["difference", "second pass", "quotient", "distance"],
    sound=["from before", "starts at 0", "detached", "dropped out twice", "frozen copy"],
)
def test_what_is_compared_is_not_one_thing_with_itself(kind, is_told):
    torch.manual_seed(0)
    x, action, gain = torch.randn(256, 6), torch.randint(4, (256,)), torch.randn(256)
    rate = 0.2 if kind == "dropped out twice" else 0.0
    network = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(rate), nn.Linear(16, 4))
    before = copy.deepcopy(network)
    if kind == "starts at 0":
        nn.init.zeros_(network[3].weight)
        nn.init.zeros_(network[3].bias)

    def log_of(network, batch):
        return network(batch[0]).log_softmax(1).gather(1, batch[1][:, None])[:, 0]

    def loss_of(network, batch):
        new = log_of(network, batch)
        with torch.no_grad():
            old = log_of(before, batch)
        if kind == "distance":
            return F.mse_loss(network(batch[0]), network(batch[0])) - new.mean()
        if kind == "dropped out twice":
            return (new - log_of(network, batch)).square().mean() - new.mean()
        ratios = {
            "difference": lambda: (new - log_of(network, batch)).exp(),
            "second pass": lambda: new.exp() / log_of(network, batch).exp(),
            "quotient": lambda: torch.div(new, log_of(network, batch)),
            "detached": lambda: (new - new.detach()).exp(),
        }
        ratio = ratios.get(kind, lambda: (new - old).exp())()
        return -torch.min(ratio * batch[2], ratio.clamp(0.8, 1.2) * batch[2]).mean()

    made = trained(network, loader(x, action, gain, bs=64), loss_of)
    assert bool(said(cancelled.cancelled, made)) == is_told


@cases(
    faulty=["determinant", "double exponential", "softplus", "two heads"],
    sound=["normal", "laplace", "student", "mixture", "quantiles", "two tasks", "utility"],
)
def test_a_likelihood_has_a_least_value(kind, is_told):
    torch.manual_seed(0)
    x = torch.rand(256, 4)
    y = torch.sin(3 * x[:, 0]) + 0.2 * torch.randn(256)

    def cost(out, y):
        a, s = out[:, 0], out[:, 1]
        miss, positive = (y - a).abs(), F.softplus(s) + 1e-3
        quantile = torch.tensor([0.1, 0.5, 0.9])
        over = y[:, None] - out[:, :3]

        def parts():
            return torch.distributions.Normal(out[:, :3], out[:, 3:6].exp()).log_prob(y[:, None])

        ways = {
            "determinant": lambda: miss**2 * (-s).exp() - s,
            "double exponential": lambda: miss * s.exp() + s,
            "softplus": lambda: 0.5 * (miss / positive) ** 2 - positive.log(),
            "two heads": lambda: miss**2 * s.exp() + s,
            "normal": lambda: miss**2 * (-s).exp() + s,
            "laplace": lambda: miss * (-s).exp() + s,
            "student": lambda: -torch.distributions.StudentT(3.0, a, positive).log_prob(y),
            "mixture": lambda: -torch.logsumexp(
                out[:, 6:9].log_softmax(1) + parts(), 1),
            "quantiles": lambda: torch.max(quantile * over, (quantile - 1) * over),
            "two tasks": lambda: miss**2 + F.binary_cross_entropy_with_logits(s, (y > 0).float()),
            "utility": lambda: -y * out.softmax(1)[:, 0],
        }  # fmt: skip
        return ways[kind]().mean()

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.s = nn.Linear(4, 1), nn.Linear(4, 1)

        def forward(self, x):
            return self.a(x), self.s(x)

    network = Heads() if kind == "two heads" else mlp(4, 16, 9 if kind == "mixture" else 3)

    def loss_of(network, batch):
        out = network(batch[0])
        return cost(torch.cat(out, 1) if isinstance(out, tuple) else out, batch[1])

    assert bool(said(unbounded.below, trained(network, loader(x, y), loss_of))) == is_told


@cases(faulty=["spread of the other sign"], sound=["log-shares", "by hand", "in a list"])
def test_shares_are_not_moved_alone(kind, is_told):
    torch.manual_seed(0)
    x = torch.rand(256, 4)
    y = torch.sin(3 * x[:, :1]) + 0.2 * torch.randn(256, 1)

    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp(4, 16, 9)

        def forward(self, x):
            share, mean, log_std = self.body(x).chunk(3, 1)
            by_hand = share - share.logsumexp(1, keepdim=True)
            share = by_hand if kind == "by hand" else share.log_softmax(1)
            return [share, mean, log_std] if kind == "in a list" else (share, mean, log_std)

    def loss_of(network, batch):
        share, mean, s = network(batch[0])
        miss, sign = batch[1] - mean, -1 if is_told else 1
        return -(share - 0.5 * (miss * (-s).exp()) ** 2 - sign * s).logsumexp(1).mean()

    made = trained(Mixture(), loader(x, y), loss_of)
    assert said(unbounded.below, made) == ["wrong-formula"] * is_told


@pytest.mark.parametrize(
    ("column", "by", "may"),
    [(0, 20, True), (0, -20, True), (1, 20, True), (1, -20, False), (2, 20, False), (3, 20, False),
     (3, -20, True), (4, 20, False), (6, 20, False), (7, 20, True)],
)  # fmt: skip
def test_an_output_is_free_as_far_as_weights_reach(column, by, may):
    torch.manual_seed(0)

    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.scale = mlp(4, 16, 7), nn.Parameter(torch.ones(()))

        def forward(self, x):
            a, b, c, d, e, f, g = self.body(x).split(1, 1)
            pair = F.normalize(torch.cat([e, f], 1), dim=1)
            return torch.cat([a, F.softplus(b) + 0.1, 2 * c.sigmoid(), -d.exp(), pair, 0 * a,
                              self.scale * g.tanh()], 1)  # fmt: skip

    made = trained(Joined(), loader(torch.rand(64, 4), torch.rand(64, 1)),
                   lambda m, b: F.mse_loss(m(b[0])[:, :1], b[1]))  # fmt: skip
    assert free.is_free(program_of(Session(as_setup(made))), 0, column, by) == may


@cases(
    faulty=["some rows", "upside down", "masks"],
    sound=["boxes too", "masks too", "classes", "sizes", "not at all"],
)
def test_what_a_step_flips_takes_its_targets_along(kind, is_told):
    torch.manual_seed(0)
    images, masks, centre, size = shapes(200, G(3))
    images, boxes = images.abs(), xyxy(centre, size) / 16
    targets = {"classes": masks.flatten(1).amax(1), "sizes": size[:, None].repeat(1, 4) / 4}
    y = masks if "masks" in kind else targets.get(kind, boxes)
    network = nn.Conv2d(1, 3, 3, padding=1) if "masks" in kind else Boxer()
    whole = y.dtype == torch.long
    train, held = loader(images[:120], y[:120], bs=12), loader(images[120:], y[120:], shuffle=False)

    def loss_of(network, batch):
        x, y = batch
        axis = -2 if kind == "upside down" else -1
        if kind == "some rows":
            rows = torch.rand(len(x)) < 0.5
            x = torch.where(rows[:, None, None, None], x.flip(-1), x)
        elif kind != "not at all" and torch.rand(()) < 0.5:
            x = x.flip(axis)
            if kind == "boxes too":
                y = torch.stack([1 - y[:, 2], y[:, 1], 1 - y[:, 0], y[:, 3]], 1)
            elif kind == "masks too":
                y = y.flip(-1)
        return (F.cross_entropy if whole else F.mse_loss)(network(x), y)

    made = trained(network, train, loss_of, val_loader=held)
    assert bool(said(flipped.in_the_step, made)) == is_told


@pytest.mark.parametrize("every", [1, 50])
def test_an_average_inside_the_model_is_no_layer_left_frozen(every):
    class Averaged(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(8, 16, 3)
            self.mean, self.steps = copy.deepcopy(self.net).requires_grad_(False), 0

        def forward(self, x):
            return self.net(x) if self.training else self.mean(x)

    torch.manual_seed(0)
    x = torch.randn(320, 8)
    network, batches = Averaged(), loader(x[:256], x[:256, :3].argmax(1))
    held = loader(x[256:], x[256:, :3].argmax(1), shuffle=False)
    opt = torch.optim.Adam(network.net.parameters(), 3e-3)

    def loss_of(network, batch):
        return F.cross_entropy(network(batch[0]), batch[1])

    def train_step(batch):
        network.train()
        opt.zero_grad()
        loss_of(network, batch).backward()
        opt.step()
        network.steps += 1
        if network.steps % every == 0:
            with torch.no_grad():
                for mean, new in zip(network.mean.parameters(), network.net.parameters(),
                                     strict=True):  # fmt: skip
                    mean.lerp_(new, 0.05)

    report = diagnose(
        pack(network, opt, batches, loss_of, step=train_step, val_loader=held,
             evaluate=lambda: {"val_loss": mean_loss(network, held, loss_of)})
    )  # fmt: skip
    assert report.ok, str(report)
