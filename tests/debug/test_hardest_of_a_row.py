"""The hardest negative of a row: what a mask leaves out must not be the smallest of all."""

import torch
import torch.nn.functional as F

from course.debug.relations import mined
from tests.debug.faulty.fourth.kit import batches, blobs, mlp
from tests.debug.faulty.twelfth.kit import pack
from tests.debug.told import cases, said

NEAREST = {
    "by its product": lambda d, same: (d * ~same).min(1).values,
    "by a number": lambda d, same: ((1 - same.float()) * d).amin(dim=1),
    "in place": lambda d, same: (d + 0).mul_((~same).float()).min(dim=-1)[0],
    "filled with 0": lambda d, same: d.masked_fill(same, 0).min(1).values,
    "of the negated": lambda d, same: -(-d * ~same).max(1).values,
    "three of them": lambda d, same: (d * ~same).topk(3, 1, largest=False).values.mean(1),
    "by its place": lambda d, same: d.gather(1, (d * ~same).argmin(1, keepdim=True))[:, 0],
    "filled": lambda d, same: d.masked_fill(same, torch.inf).min(1).values,
    "moved away": lambda d, same: (d * ~same + 1e6 * same).min(1).values,
    "zeros replaced": lambda d, same: (
        lambda left: torch.where(left == 0, torch.inf, left).min(1).values)(d * ~same),
    "of likeness": lambda d, same: 2 - ((2 - d).clamp_min(0) * ~same).max(1).values,
    "scaled by its range": lambda d, same: (
        lambda left: ((left - left.min(1, keepdim=True).values)
                      / left.max(1, keepdim=True).values).mean(1))(d * ~same),
    "whole rows": lambda d, same: (d * (same.sum(1, keepdim=True) > 3)).min(1).values,
    "but itself": lambda d, same: (d * ~torch.eye(len(d), dtype=torch.bool)).topk(
        3, 1, largest=False).values[:, 1:].mean(1),
}  # fmt: skip


@cases(
    faulty=["by its product", "by a number", "in place", "filled with 0", "of the negated",
            "three of them", "by its place"],
    sound=["filled", "moved away", "zeros replaced", "of likeness", "scaled by its range",
           "whole rows", "but itself"],
)  # fmt: skip
def test_what_is_masked_is_not_picked_as_the_nearest(kind, is_told):
    torch.manual_seed(0)
    x, y = blobs(96)
    model = mlp(10, 16, 4)

    def loss_of(model, batch):
        e, labels = model(batch[0]), batch[1]
        d = (e[:, None] - e[None]).pow(2).sum(2)
        same = labels[:, None] == labels[None]
        return F.relu((d * same).max(1).values - NEAREST[kind](d, same) + 0.5).mean()

    made = pack(model, torch.optim.Adam(model.parameters(), 3e-3), batches(x, y), loss_of=loss_of)
    assert said(mined.smallest, made) == (["wrong-formula"] if is_told else [])


def test_a_weakest_link_may_be_missing_in_most_rows():
    """Evidence that is not there counts 0 on purpose: a row has all of it, or is not believed."""
    torch.manual_seed(0)
    x, _ = blobs(96)
    there = torch.rand(len(x), 4) < 0.7
    model = mlp(10, 16, 4)

    def loss_of(model, batch):
        weakest = (model(batch[0]).sigmoid() * batch[1]).amin(1)
        return F.mse_loss(weakest, batch[1].all(1).float())

    made = pack(model, torch.optim.Adam(model.parameters(), 3e-3), batches(x, there),
                loss_of=loss_of)  # fmt: skip
    assert not said(mined.smallest, made)
