"""Copies that were changed as copies are changed are found; honest splits raise no alarm."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage
from sklearn.datasets import load_digits, load_sample_images

from course.data import check_split, random_split
from course.data.datasets import find_fashion_mnist, load
from course.data.perceptual import grey, look_alikes, perceptual_hash


def digits():
    return load_digits().images / 16


def silhouettes(num=800):
    """Like Fashion-MNIST: 28 × 28, centred, symmetric, shaded, much alike."""
    rng = np.random.default_rng(0)
    width = ndimage.gaussian_filter1d(rng.standard_normal((num, 28)), 3, axis=1) * 8 + 8
    across = np.abs(np.arange(28) - 13.5)
    body = 1 / (1 + np.exp(across[None, None] - width[:, :, None]))
    shade = ndimage.gaussian_filter(rng.standard_normal((num, 28, 28)), (0, 2, 2)) * 1.5
    return (body * (0.6 + 0.2 * rng.standard_normal((num, 1, 1)) + 0.3 * shade)).clip(0, 1)


def photographs():
    """Pieces of 32 × 32 of two photographs, none overlapping, without the flattest (sky)."""
    pieces = [
        image[y : y + 32, x : x + 32].mean(2) / 255
        for image in load_sample_images().images
        for y in range(0, image.shape[0] - 32, 32)
        for x in range(0, image.shape[1] - 32, 32)
    ]
    return np.stack([piece for piece in pieces if piece.std() > 0.05])


def fashion():
    if find_fashion_mnist() is None:
        pytest.skip("Fashion-MNIST is not on this machine")
    data = load("fashion-mnist", num_examples=2000, val_share=0.4)
    return (data.train_inputs * data.std + data.mean)[:, 0].numpy().clip(0, 1)


SETS = {
    "digits": digits,
    "silhouettes": silhouettes,
    "photographs": photographs,
    "fashion": fashion,
}


def compressed(images, quality=75):
    copies = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray((image * 255).round().astype(np.uint8)).save(file, "JPEG", quality=quality)
        copies.append(np.asarray(Image.open(file)) / 255)
    return np.stack(copies)


CHANGES = {
    "darker, less contrast": lambda images: images * 0.7 + 0.15,
    "gamma": lambda images: images**0.8,
    "compressed": compressed,
    "moved": lambda images: np.stack([
        ndimage.shift(image, ((-1) ** number, number % 3 - 1), order=0, mode="nearest")
        for number, image in enumerate(images)
    ]),
    "noisy": lambda images: images + np.random.default_rng(1).normal(0, 0.02, images.shape),
}  # fmt: skip


@pytest.fixture(scope="module", params=SETS)
def images(request):
    return request.param, SETS[request.param]()


def checked(train, val, seed=0):
    sides = ((part[:, None], np.zeros(len(part), dtype=int)) for part in (train, val))
    return check_split(*sides, seed=seed)


@pytest.mark.parametrize("change", CHANGES)
def test_changed_copies_are_found(images, change):
    _, images = images
    train, val = (images[part] for part in random_split(len(images), seed=1))
    planted = max(len(val) // 20, 10)
    chosen = np.random.default_rng(2).choice(len(train), planted, replace=False)
    report = checked(train, np.concatenate([CHANGES[change](train[chosen]), val]))
    found = report.figures["look_alikes"] + report.figures["near_copies"]
    assert found * (planted + len(val)) >= 0.85 * planted
    assert "leak-overlap" in {finding.id for finding in report.findings}


@pytest.mark.slow
def test_honest_splits_raise_no_alarm(images):
    name, images = images
    for seed in range(1 if name == "fashion" else 4):
        report = checked(*(images[part] for part in random_split(len(images), seed=seed)), seed)
        assert report.figures["look_alikes"] <= 0.05  # two pieces of one sky may well be alike
        assert "leak-overlap" not in {finding.id for finding in report.findings}, report


def test_the_pair_is_named_and_a_flat_image_is_like_nothing():
    images = digits()
    unlike, index = look_alikes(np.roll(images[5:9], 1, axis=2), images)
    assert index.tolist() == [5, 6, 7, 8] and unlike.max() < 0.05
    unlike, _ = look_alikes(np.zeros((1, 8, 8)) + 0.3, np.concatenate([images, np.ones((1, 8, 8))]))
    assert unlike.tolist() == [1.0]
    unlike, index = look_alikes(images[:50], images, skip_self=True)
    assert (index != np.arange(50)).all() and unlike.min() > 0


def test_the_hash_knows_neither_brightness_nor_contrast():
    images = silhouettes(50)
    hashes = perceptual_hash(images)
    assert hashes.dtype == np.uint64 and len(np.unique(hashes)) == 50
    assert (perceptual_hash(images * 0.5 + 0.2) == hashes).all()
    differing = np.bitwise_count(hashes[:, None] ^ hashes)
    assert differing.max() <= 63 and np.median(differing) > 15


def test_large_colour_images_are_reduced_to_what_is_seen_from_afar():
    image = load_sample_images().images[1][:256, :256].transpose(2, 0, 1)[None]
    small = grey(image)
    assert small.shape == (1, 32, 32)
    means = image.mean(1).reshape(1, 32, 8, 32, 8).mean((2, 4))  # each pixel's block of 8 × 8
    assert np.corrcoef(small.ravel() / 8, means.ravel())[0, 1] > 0.98
    fine = image + 40 * (np.indices(image.shape).sum(0) % 2)
    assert np.corrcoef(grey(fine).ravel(), small.ravel())[0, 1] > 0.999


def test_colour_copies_are_found():
    photo = load_sample_images().images
    pieces = np.stack([
        image[y : y + 40, x : x + 40].transpose(2, 0, 1) / 255
        for image in photo for y in range(0, 380, 40) for x in range(0, 600, 40)
    ])  # fmt: skip
    pieces = pieces[pieces.std((1, 2, 3)) > 0.05]
    train, val = (pieces[part] for part in random_split(len(pieces), 0.3, seed=2))
    val = np.concatenate([np.roll(train[::10], 1, axis=3) * 0.8, val])
    report = check_split((train, np.zeros(len(train), int)), (val, np.zeros(len(val), int)))
    assert report.figures["look_alikes"] * len(val) >= 0.75 * len(train[::10])
    assert any("shifted, brightened" in finding.message for finding in report.findings)


def test_what_cannot_be_compared_is_said():
    rng = np.random.default_rng(0)
    for shape in ((300, 1, 6, 6), (40, 1, 8, 8), (300, 64)):
        report = check_split(*((rng.random(shape), np.arange(len(rng.random(shape))) % 2),) * 2)
        assert any("look-alikes" in what for what in report.not_checked)
