"""What outputs can reach, which answers are heard, what a mask hides: sound makes, beside slips."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course.debug.relations import cosines, padding, reach
from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.sixth.kit import blobs, loaders, mlp, numbers, of_pairs, trained
from tests.debug.told import said


def of(loss_of, *columns, model):
    torch.manual_seed(0)
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    return trained(model, opt, loaders(*columns), loss_of)


class Cosines(nn.Module):
    def __init__(self, way, classes=10):
        super().__init__()
        self.body, self.way = mlp(8, 16), way
        self.rows = nn.Parameter(torch.randn(classes, 16))
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.scale = nn.Parameter(torch.ones(1))
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        h = self.body(x)
        bends = {"tanh": nn.Tanh(), "sigmoid": nn.Sigmoid(), "plain": nn.Identity(),
                 "shares": nn.Softmax(1)}  # fmt: skip
        if self.way in bends:
            return bends[self.way](self.head(h))
        cosines = F.normalize(h, dim=1) @ F.normalize(self.rows, dim=1).T
        return {
            "none": lambda: cosines, "fixed": lambda: cosines / 0.07,
            "learned": lambda: cosines * self.scale,
            "learned as a logarithm": lambda: cosines * self.log_scale.exp(),
            "learned as a temperature": lambda: cosines / self.log_scale.exp(),
        }[self.way]()  # fmt: skip


@pytest.mark.parametrize(
    ("way", "classes", "told"),
    [("plain", 10, False), ("fixed", 10, False), ("learned", 10, False), ("none", 2, False),
     ("shares", 10, False),
     ("learned as a logarithm", 10, False), ("learned as a temperature", 10, False),
     ("none", 10, True), ("tanh", 10, True), ("sigmoid", 4, True)],
)  # fmt: skip
def test_logits_come_far_enough_apart(way, classes, told):
    made = of(of_pairs(F.cross_entropy), *blobs(k=classes), model=Cosines(way, classes))
    assert said(cosines.scaled, made) == ["targets-out-of-reach"] * told


class Two(nn.Module):
    """One number for two rows [B, 2, D]."""

    def __init__(self, way):
        super().__init__()
        self.body, self.way = mlp(8, 6), way

    def forward(self, two):
        a, b = self.body(two).unbind(1)
        return {
            "distance": lambda: ((a - b).square().sum(1) + 1e-8).sqrt(),
            "norm": lambda: (a + b).norm(dim=1),
            "cosine": lambda: F.cosine_similarity(a, b),
            "product": lambda: (a * b).sum(1),
            "chance": lambda: (-(a - b).abs().sum(1)).exp(),
            "rate": lambda: F.softplus((a - b).sum(1)),
            "cut off": lambda: (a - b).sum(1).relu(),
        }[self.way]()


def pulled_and_pushed(far, same):
    return (same * far**2 + (1 - same) * F.relu(2 - far) ** 2).mean()


LOSSES = {
    "contrastive": pulled_and_pushed, "squares": F.mse_loss,
    "fourth powers": lambda out, y: (out - y).pow(4).mean(),
}  # fmt: skip


@pytest.mark.parametrize(
    ("loss", "way", "told"),
    [("contrastive", "distance", False), ("contrastive", "norm", False)]
    + [(loss, way, way == "cut off") for loss in ("squares", "fourth powers")
       for way in ("distance", "norm", "cosine", "product", "chance", "rate", "cut off")],
)  # fmt: skip
def test_weights_drawn_at_random_show_no_bound_of_a_distance(loss, way, told):
    """Targets are near 0 or 1 and below 0 where told; equal rows are rare among random ones."""
    x = torch.randn(192, 2, 8, generator=gen(1))
    y = torch.rand(192, generator=gen(2)) - 2 * told
    if loss == "contrastive":
        y = (y > 0.5).float()
    by = LOSSES[loss]
    made = of(of_pairs(by), x, y, model=Two(way)) | {"loss_fn": by}
    found = said(reach.within, made) + said(reach.constant, made)
    assert set(found) == ({"targets-out-of-reach"} if told else set())


@pytest.mark.parametrize(
    ("way", "told"),
    [("answers", False), ("smoothed", False), ("mixed", False), ("rounded", False),
     ("signs", True), ("bytes", True)],
)  # fmt: skip
def test_targets_of_a_binary_cross_entropy_are_shares(way, told):
    x = torch.randn(128, 8, generator=gen(5))
    y = (x[:, :1] > 0).float()
    y = {
        "smoothed": 0.05 + 0.9 * y, "mixed": 0.3 * y + 0.7 * y.flip(0),
        "rounded": y * (1 + 2e-7), "signs": 2 * y - 1, "bytes": 255 * y,
    }.get(way, y)  # fmt: skip
    made = of(of_pairs(F.binary_cross_entropy_with_logits), x, y, model=mlp(8, 1))
    assert said(reach.shares, made) == ["targets-out-of-reach"] * told


@pytest.mark.parametrize(
    ("way", "told"),
    [("both", False), ("signs", False), ("focal", False), ("known rows", False),
     ("censored", False), ("zeros and ones", True), ("half a cross-entropy", True)],
)  # fmt: skip
def test_each_of_two_answers_is_heard(way, told):
    x, z = numbers(160)
    y = (torch.rand(160, 1, generator=gen(6)) < 0.5).float()
    columns = (x, z, y) if way in ("known rows", "censored") else (x, y)

    def loss_of(m, batch):
        s, y = m(batch[0]), batch[-1]
        if way == "both":
            return F.binary_cross_entropy_with_logits(s, y)
        if way == "signs":
            return F.relu(3 - (2 * y - 1) * s).mean()
        if way == "focal":
            p = torch.where(y == 1, s.sigmoid(), 1 - s.sigmoid())
            return -((1 - p).square() * p.log()).mean()
        if way == "known rows":  # what is not known is not learned
            return (y * (s - batch[1]).square()).sum() / y.sum().clamp(min=1)
        if way == "censored":  # time until the end, or until nobody looked any more
            return (s.exp() * batch[1].abs() - y * s).mean()
        if way == "zeros and ones":
            return F.relu(3 - y * s).mean()
        return -(y * F.logsigmoid(s)).mean()

    made = of(loss_of, *columns, model=mlp(8, 1))
    assert said(reach.heard, made) == ["wrong-targets"] * told


class Reader(nn.Module):
    """Rows of ten places, of which the last ones are padding, 0."""

    def __init__(self, way):
        super().__init__()
        padded = 0 if way in ("sum of zeros", "turned, with zeros") else None
        self.embed, self.way = nn.Embedding(12, 16, padding_idx=padded), way
        self.places = nn.Parameter(torch.randn(10, 16))
        self.head = nn.Linear(16, 3)

    def forward(self, ids):
        keep = ids.masked_fill(ids == 0, -100) != -100
        x = self.embed(ids) + (self.places if self.way != "sum of zeros" else 0)
        if self.way == "unmasked":
            return self.head(x.mean(1))
        if self.way in ("sum of zeros", "causal"):
            ahead = torch.ones(10, 10, dtype=torch.bool).triu(1)
            table = (x @ x.transpose(1, 2) / 4).masked_fill(ahead, -torch.inf)
            x = table.softmax(-1) @ x if self.way == "causal" else x
            count = keep.sum(1)
            last = x[torch.arange(len(x)), count - 1]
            return self.head(last if self.way == "causal" else x.sum(1) / count[:, None])
        if self.way in ("first", "turned by sdpa"):
            mask = keep if self.way == "first" else ~keep
            x = F.scaled_dot_product_attention(x, x, x, attn_mask=mask[:, None])
            return self.head(x[:, 0])
        mask = ~keep if self.way == "means of the rest" else keep
        scores = (x @ x[:, :1].transpose(1, 2))[..., 0].masked_fill(mask, -1e9)
        return self.head((scores.softmax(1)[..., None] * x).sum(1))


@pytest.mark.parametrize(
    ("way", "told"),
    [("unmasked", False), ("means of the rest", False), ("first", False), ("causal", False),
     ("sum of zeros", False), ("turned", True), ("turned by sdpa", True),
     ("turned, with zeros", True)],
)  # fmt: skip
def test_a_mask_of_padding_hides_it_where_rows_cannot_be_cut(way, told):
    ids = torch.randint(1, 12, (160, 10), generator=gen(7))
    lengths = torch.randint(2, 10, (160,), generator=gen(8))
    y = ids[:, 0] % 3
    ids[torch.arange(10)[None] >= lengths[:, None]] = 0
    made = of(of_pairs(F.cross_entropy), ids, y, model=Reader(way))
    assert said(padding.embedded, made) == ["padding-not-masked"] * told
