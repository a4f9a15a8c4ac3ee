"""Small programs for relations on ends of episodes, pairs and branches, faulty and sound."""

import torch
from torch import nn
from torch.nn import functional as F

from course.debug.relations import bootstrapped
from tests.debug.faulty.eleventh.kit import Columns
from tests.debug.faulty.thirteenth.kit import gen, loader, mlp
from tests.debug.faulty.twelfth.kit import pack
from tests.debug.told import cases, said


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
