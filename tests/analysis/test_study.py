"""The small study trains what it says, keeps the split, and repeats itself."""

import pytest
import torch
from torch.nn import functional as F

from course.analysis.study import CHANGES, points, shifted, train
from course.data import load


@pytest.fixture(scope="module")
def data():
    return load("digits", val_share=0.8, num_examples=600)


def test_a_seed_repeats_its_score_and_another_gives_other_weights(data):
    before = torch.get_rng_state()
    assert points(data, 3, epochs=2) == points(data, 3, epochs=2)
    assert torch.equal(torch.get_rng_state(), before)
    one, other = (train(data, seed, epochs=1)[1].weight for seed in (0, 1))
    assert not torch.equal(one, other)


def test_points_are_the_share_of_hits_in_percent(data):
    model = train(data, 0, epochs=5)
    hits = sum(int(model(x[None]).argmax()) == int(y) for x, y in
               zip(data.val_inputs, data.val_targets, strict=True))  # fmt: skip
    assert points(data, 0, epochs=5) == pytest.approx(100 * hits / len(data.val_targets))
    assert not model.training


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_changes_the_run(data, name):
    short = {"epochs": 2} | CHANGES[name]
    changed, plain = (
        train(data, 0, **settings)(data.val_inputs) for settings in (short, {"epochs": 2})
    )
    assert not torch.equal(changed, plain)


def test_a_shift_moves_each_image_by_whole_pixels_and_fills_with_background():
    images = torch.rand(40, 2, 5, 6) + 1
    images[0, 0, 0, 0] = 0.0  # the background
    moved = shifted(images, 1, torch.Generator().manual_seed(0))
    assert moved.shape == images.shape
    seen = set()
    for image, after in zip(images, moved, strict=True):
        padded = F.pad(image, (1, 1, 1, 1), value=0.0)
        fits = [
            (down, right)
            for down in range(3)
            for right in range(3)
            if torch.equal(padded[:, down : down + 5, right : right + 6], after)
        ]
        assert len(fits) == 1
        seen.update(fits)
    assert len(seen) == 9, "not every direction comes"
