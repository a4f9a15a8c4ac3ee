"""Axes that were exchanged by a shape instead of being moved, in models and in pictures."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_images
from torch import nn
from torch.nn import functional as F

from course.debug.relations import turned
from tests.debug.faulty.kit import Pair
from tests.debug.faulty.sixth.kit import loaders, of_pairs, trained
from tests.debug.told import assert_told_apart, said


class Channels(nn.Module):
    """Takes [B, H, W, C]; brings the channels to the front by the way it is told."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, 2)
        )

    def forward(self, x):
        b, h, w, c = x.shape
        if self.way == "permute":
            x = x.permute(0, 3, 1, 2)
        elif self.way == "flat":
            x = x.reshape(b, h * w, c).transpose(1, 2).reshape(b, c, h, w)
        else:
            x = x.view(b, c, h, w) if self.way == "view" else torch.reshape(x, (b, c, h, w))
        return self.body(x)


def of(x, y, model):
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    return trained(model, optimizer, loaders(x, y), of_pairs(F.cross_entropy))


@pytest.mark.parametrize("way", ["permute", "flat", "view", "reshape"])
def test_a_view_moves_no_axis(way):
    torch.manual_seed(0)
    x, y = torch.randn(128, 9, 10, 3), torch.randint(0, 2, (128,))
    told = ["rows-mixed"] * (way in ("view", "reshape"))
    assert said(turned.viewed, of(x, y, Channels(way))) == told


def crops(size):
    """Pieces of scikit-learn's two photographs [N, H, W, C], and which of them each is of."""
    step = max(size, 40)
    pieces = [
        (image[i : i + size, j : j + size], n)
        for n, image in enumerate(load_sample_images().images)
        for i in range(0, 380, step)
        for j in range(0, 600, step)
    ]
    x = torch.from_numpy(np.stack([piece for piece, _ in pieces])).float() / 255
    return x, torch.tensor([n for _, n in pieces])


@pytest.mark.parametrize("size", [8, 16, 32])
@pytest.mark.parametrize("way", ["permuted", "reshaped", "noise", "shaded"])
def test_photographs_are_smooth_in_their_own_order(size, way):
    torch.manual_seed(0)
    x, y = crops(size)
    if way == "reshaped":
        x = x.reshape(len(x), 3, size, size)
    elif way == "noise":
        x = torch.randn(len(x), 3, size, size)
    elif way == "shaded":
        x = torch.linspace(0, 1, size)[None, None, :, None] * torch.rand(len(x), 3, 1, size)
    else:
        x = x.permute(0, 3, 1, 2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * size * size, 2))
    assert said(turned.torn, of(x, y, model)) == ["rows-mixed"] * (way == "reshaped")


def photographs(bug):
    """Crops of photographs get their channels first by reshape; the twin permutes them."""
    torch.manual_seed(0)
    x, y = crops(16)
    order = torch.randperm(len(x))
    x, y = x[order], y[order]
    x = x.reshape(len(x), 3, 16, 16) if bug else x.permute(0, 3, 1, 2).contiguous()
    body = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(32, 2)
    )
    return of(x, y, body)


def test_the_doctor_tells_photographs_that_were_reshaped():
    assert_told_apart(Pair("photographs", ("rows-mixed",), photographs))
