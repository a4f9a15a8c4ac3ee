"""Takes are bytes of real images; takes of one object share its label and nearly its pixels."""

import pytest
import torch
from sklearn.datasets import load_digits

from course.data import takes
from course.data.datasets import raw_images


def test_raw_digits_are_scikit_learns_as_bytes():
    images, labels = raw_images("digits")
    known = load_digits()
    assert images.dtype == labels.dtype == torch.uint8
    assert torch.equal((images.float() * 16 / 255).round(), torch.tensor(known.images).float())
    assert labels.tolist() == known.target.tolist()
    with pytest.raises(ValueError, match="has no images"):
        raw_images("moons")


def test_every_object_has_one_to_three_takes_near_its_image():
    project = takes(200, name="digits")
    images, labels = raw_images("digits")
    names, counts = project.groups.unique(return_counts=True)
    assert len(names) == 200 and set(counts.tolist()) == {1, 2, 3}
    assert torch.equal(project.labels, labels[project.groups])
    apart = (project.images.float() - images[project.groups].float()).abs()
    assert apart.mean() < 15 and not torch.equal(project.images, images[project.groups])
    flat = project.images.double().flatten(1)
    near = [int(torch.cdist(row[None], images.double().flatten(1)).argmin()) for row in flat[:50]]
    assert sum(a == b for a, b in zip(near, project.groups[:50].tolist(), strict=True)) >= 48


def test_the_same_seed_repeats_and_skip_shares_no_object():
    first, again = takes(100, name="digits", seed=3), takes(100, name="digits", seed=3)
    assert torch.equal(first.images, again.images) and torch.equal(first.groups, again.groups)
    rest = takes(60, name="digits", seed=3, skip=100)
    assert not set(rest.groups.tolist()) & set(first.groups.tolist())
    with pytest.raises(ValueError, match="1,797 objects in all"):
        takes(1_700, name="digits", skip=100)
