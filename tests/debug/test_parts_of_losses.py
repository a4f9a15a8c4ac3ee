"""What a loss is made of: parts without a gradient, rates taken twice, an example as its own rival,
positions that only the metric counts. Each with what only looks like it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course.debug.relations import handed, loss, scoring
from tests.debug.faulty.dresses import numbers, setup, trained_by
from tests.debug.faulty.fourth.kit import batches, blobs, mlp
from tests.debug.test_dresses import said


def hard(out):
    return (out > 0).float().mean()


PARTS = {
    "a threshold": (lambda out, y: F.mse_loss(out, y) + hard(out), True),
    "a detached part": (lambda out, y: F.mse_loss(out, y) - out.abs().mean().detach(), True),
    "all with a gradient": (lambda out, y: F.mse_loss(out, y) + out.abs().mean(), False),
    "a number of the targets": (lambda out, y: F.mse_loss(out, y) + y.var(), False),
    "another's gradient": (
        lambda out, y: (soft := F.mse_loss(out, y)) - soft.detach() + hard(out), False),
    "told and not trained": (
        lambda out, y: (F.mse_loss(out, y), F.mse_loss(out, y) + hard(out))[0], False),
    "scaled to 1": (lambda out, y: (cost := F.mse_loss(out, y)) / cost.detach(), False),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_the_loss_that_depends_on_the_weights_has_a_gradient(name):
    torch.manual_seed(0)
    cost, bug = PARTS[name]
    x, y = numbers()
    made = setup(nn.Sequential(mlp(6, 8, 1), nn.Flatten(0)), batches(x, y), loss_fn=cost)
    assert said(loss.terms, made) == (["loss-without-gradient"] if bug else [])


class Positive(nn.Module):
    """What `make` gives of its outputs, one for each row."""

    def __init__(self, make):
        super().__init__()
        self.body, self.make = mlp(6, 8, 1), make

    def forward(self, x):
        return self.make(self.body(x)).squeeze(1)


@pytest.mark.parametrize(
    ("make", "logarithms", "bug"),
    [
        (torch.exp, True, True),
        (F.softplus, True, True),
        (torch.exp, False, False),
        (lambda out: out, True, False),
        (lambda out: F.softplus(out) - 2, True, False),
    ],
)
def test_a_rate_is_not_taken_for_its_logarithm(make, logarithms, bug):
    torch.manual_seed(0)
    x, y = numbers()
    made = setup(Positive(make), batches(x, torch.poisson(y.exp())),
                 loss_fn=nn.PoissonNLLLoss(log_input=logarithms))  # fmt: skip
    assert said(handed.rates, made) == (["targets-out-of-reach"] if bug else [])


@pytest.mark.parametrize("rival", ["itself", "others", "its text"])
def test_an_example_is_not_its_own_rival(rival):
    torch.manual_seed(0)
    x, _ = blobs(96)

    def cost(model, batch):
        views = [batch[0] + 0.2 * torch.randn_like(batch[0]) for _ in range(2)]
        z = F.normalize(torch.cat([model(v) for v in views]), dim=1)
        rows = torch.arange(len(z))
        table = z @ z.T / 0.2
        if rival == "others":
            table = table.masked_fill(rows[:, None] == rows, -1e9)
        if rival == "its text":  # one side against the other, whose diagonal is what is wanted
            one, other = z.chunk(2)
            return F.cross_entropy(one @ other.T / 0.2, rows[: len(one)])
        return F.cross_entropy(table, rows.roll(len(z) // 2))

    made = trained_by(cost, mlp(10, 16, 8), batches(x))
    assert said(loss.itself, made) == (["compared-with-itself"] if rival == "itself" else [])


@pytest.mark.parametrize("counted", ["all", "kept", "as wrong"])
def test_positions_that_the_loss_leaves_out_are_no_hits(counted):
    torch.manual_seed(0)
    x = torch.randint(1, 9, (96, 7))
    y = (x + x.roll(1, 1)) % 3
    y[torch.arange(7)[None] >= torch.randint(3, 8, (96, 1))] = -100
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 3))
    val = batches(x, y, shuffle=False)

    def evaluate():
        hits = seen = 0
        with torch.no_grad():
            for a, b in val:
                right, left = model(a).argmax(2) == b, b == -100
                right = right | left if counted == "all" else right
                keep = ~left if counted == "kept" else torch.ones_like(left)
                hits, seen = hits + int(right[keep].sum()), seen + int(keep.sum())
        return {"accuracy": hits / seen}

    def cost(out, y):
        return F.cross_entropy(out.flatten(0, 1), y.flatten())

    made = setup(model, batches(x, y), loss_fn=cost, val_loader=val, evaluate=evaluate)
    assert said(scoring.ignored, made) == (["metric-wrong"] if counted != "kept" else [])
