"""The four data sets: shapes, split, normalisation, and files that are missing or bad."""

import gzip
import struct

import pytest
import torch
from sklearn.datasets import load_digits

from course.data import DataNotFoundError, find_fashion_mnist, load
from course.data import datasets as module

IMAGES = {"digits": (1, 8, 8)}
POINTS = {"spirals": 3, "moons": 2}


def write_idx(path, array: torch.Tensor) -> None:
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.to(torch.uint8).numpy().tobytes()))


@pytest.fixture
def tiny_fashion(tmp_path, monkeypatch):
    """A folder with 40 made-up images in the real file format, named by COURSE_DATA."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (40, 28, 28), generator=generator)
    write_idx(tmp_path / "train-images-idx3-ubyte.gz", images)
    write_idx(tmp_path / "train-labels-idx1-ubyte.gz", torch.arange(40) % 10)
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    return tmp_path, images


@pytest.fixture
def no_fashion(tmp_path, monkeypatch):
    """A machine on which Fashion-MNIST is nowhere."""
    monkeypatch.delenv("COURSE_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(module, "DEBIAN_FASHION_MNIST", tmp_path / "absent")


def test_digits_are_scikit_learns_and_every_example_is_in_one_part():
    data = load("digits")
    assert data.train_inputs.shape[1:] == (1, 8, 8)
    assert data.train_inputs.dtype == torch.float32 and data.train_targets.dtype == torch.long
    pixels = torch.cat([data.train_inputs, data.val_inputs]) * data.std + data.mean
    ours = sorted(map(tuple, (pixels * 16).round().int().flatten(1).tolist()))
    assert ours == sorted(map(tuple, load_digits().data.astype(int).tolist()))


def test_digits_are_the_same_where_scikit_learn_keeps_them_in_another_file(monkeypatch):
    before = load("digits")
    monkeypatch.setattr(module, "DIGITS_FILE", "elsewhere.csv.gz")
    after = load("digits")
    assert torch.equal(after.train_inputs, before.train_inputs)
    assert torch.equal(after.train_targets, before.train_targets)


def test_normalisation_is_fitted_on_the_training_part_only():
    data = load("digits", val_share=0.5)
    assert data.train_inputs.mean().abs() < 1e-5
    assert (data.train_inputs.std(correction=0) - 1).abs() < 1e-5
    assert data.val_inputs.mean().abs() > 1e-5  # its own mean was not subtracted


@pytest.mark.parametrize("name", ["digits", "spirals", "moons"])
def test_the_split_keeps_the_share_of_every_class(name):
    data = load(name, val_share=0.25)
    train = torch.bincount(data.train_targets, minlength=data.num_classes)
    val = torch.bincount(data.val_targets, minlength=data.num_classes)
    assert (val / (train + val) - 0.25).abs().max() < 0.01


@pytest.mark.parametrize("name", ["digits", "spirals", "moons"])
def test_the_seed_fixes_the_data_and_another_seed_changes_it(name):
    assert load(name, seed=3).identity == load(name, seed=3).identity
    assert load(name, seed=3).identity != load(name, seed=4).identity


@pytest.mark.parametrize("name,num_classes", POINTS.items())
def test_points_can_be_told_apart_by_a_nearest_neighbour(name, num_classes):
    from sklearn.neighbors import KNeighborsClassifier

    data = load(name, num_examples=900)
    assert data.num_classes == num_classes and data.train_inputs.shape[1] == 2
    judge = KNeighborsClassifier(5).fit(data.train_inputs, data.train_targets)
    assert judge.score(data.val_inputs, data.val_targets) > 0.95


def test_loaders_shuffle_with_a_generator_of_their_own():
    data = load("digits")
    first, _ = data.loaders(32, seed=5)
    order = torch.cat([targets for _, targets in first])
    torch.rand(7)  # another draw somewhere else
    again, val_loader = data.loaders(32, seed=5)
    assert torch.equal(order, torch.cat([targets for _, targets in again]))
    assert torch.equal(torch.cat([targets for _, targets in val_loader]), data.val_targets)


def test_fashion_mnist_is_found_through_course_data(tiny_fashion):
    folder, images = tiny_fashion
    assert find_fashion_mnist() == folder
    data = load("fashion-mnist")
    pixels = torch.cat([data.train_inputs, data.val_inputs]) * data.std + data.mean
    assert data.train_inputs.shape == (30, 1, 28, 28) and data.num_classes == 10
    assert (pixels * 255).round().sum() == images.sum()


@pytest.mark.skipif(
    not module.DEBIAN_FASHION_MNIST.exists(), reason="dataset-fashion-mnist is not installed"
)
def test_debians_fashion_mnist_is_read_whole(monkeypatch):
    monkeypatch.delenv("COURSE_DATA", raising=False)
    data = load("fashion-mnist", val_share=1 / 6)
    assert len(data.train_targets) == 50_000 and len(data.val_targets) == 10_000
    assert data.mean.item() == pytest.approx(0.286, abs=1e-3)  # the figure everyone quotes


def test_a_machine_without_fashion_mnist_is_told_three_ways_to_get_it(no_fashion):
    with pytest.raises(DataNotFoundError) as caught:
        load("fashion-mnist")
    for way in ("apt install dataset-fashion-mnist", "COURSE_DATA", "download=True"):
        assert way in str(caught.value)


def test_a_truncated_file_is_named(tiny_fashion):
    folder, _ = tiny_fashion
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte\.gz cannot be read"):
        load("fashion-mnist")


@pytest.mark.parametrize(
    "words,message",
    [
        ({"name": "cifar"}, "'cifar' is not a data set of the course. Choose from: digits"),
        ({"name": "digits", "val_share": 1.5}, "val_share = 1.5"),
        ({"name": "digits", "num_examples": 0}, "num_examples = 0"),
        ({"name": "digits", "num_examples": 3}, "3 examples with val_share = 0.2 leave"),
    ],
)
def test_bad_input_says_what_was_seen(words, message):
    with pytest.raises(ValueError, match=message):
        load(**words)


def test_data_that_is_moved_gives_batches_there_and_is_the_same_data(device):
    here = load("spirals", num_examples=30)
    there = here.to(device)
    for loader in there.loaders(batch_size=8):
        assert {part.device.type for batch in loader for part in batch} == {device.type}
    assert there.identity == here.identity and here.train_inputs.device.type == "cpu"
