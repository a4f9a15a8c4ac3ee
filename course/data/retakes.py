"""Images as in a real project: bytes, with some objects photographed more than once.

    project = takes(600, name="digits")
    project.images[0], project.labels[0], project.groups[0]     # bytes [H, W], a label, an object

The takes of one object differ only in brightness and noise, so a split that separates them puts
into validation what training has seen. `groups` says which belong together.

Source: Lecture 3, "Splits and leakage"; ledger B22, F99, T24.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from course.data.datasets import raw_images

BRIGHTNESS = 0.2
"""A second take is brighter or darker by at most this share: still plainly the same object."""
NOISE = 6.0
"""Standard deviation of a take's noise, in bytes: a fortieth of the range, as of a fair camera."""
CLASS_NAMES = {
    "digits": tuple("0123456789"),
    "fashion-mnist": (
        "T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag",
        "boot",
    ),
}  # fmt: skip
"""What the labels stand for, as the data sets' authors say."""
MOST_TAKES = 3
"""Of one object: about half of all images have a twin somewhere."""


@dataclass(frozen=True, kw_only=True)
class Takes:
    """Raw images with their labels, and the object that each image shows."""

    name: str
    images: Tensor
    """[N, H, W], uint8, 0 to 255."""
    labels: Tensor
    """[N], uint8, 0 to the number of classes minus one, as in the files."""
    groups: Tensor
    """[N], long: the object's number, the same for all its takes."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """What each label stands for."""
        return CLASS_NAMES[self.name]

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        height, width = self.images.shape[1:]
        return (
            f"{self.name}: {len(self):,} images of {height} × {width} bytes, "
            f"{len(self.groups.unique()):,} objects, {len(self.labels.unique())} classes"
        )


def takes(objects: int, *, name: str, skip: int = 0, seed: int = 0) -> Takes:
    """Make one to three takes of each object, in shuffled order.

    Args:
        objects: How many different objects.
        name: `digits` or `fashion-mnist`.
        skip: Objects to leave out first: two calls with the same seed share none if `skip` of the
            second is at least `skip + objects` of the first.
        seed: Seed of the order of the objects and of the variation of their takes.

    Raises:
        ValueError: There are not enough objects.
        DataNotFoundError: Fashion-MNIST is not on this machine.
    """
    images, labels = raw_images(name)
    if objects < 1 or skip < 0 or skip + objects > len(labels):
        raise ValueError(
            f"objects = {objects}, skip = {skip}: {name} has {len(labels):,} objects in all."
        )
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    draws = torch.Generator().manual_seed(seed + skip + 1)
    chosen = order[skip : skip + objects]
    repeats = torch.randint(1, MOST_TAKES + 1, (objects,), generator=draws)
    groups = chosen.repeat_interleave(repeats)
    groups = groups[torch.randperm(len(groups), generator=draws)]
    return Takes(
        name=name,
        images=_taken(images[groups], draws),
        labels=labels[groups],
        groups=groups,
    )


def _taken(images: Tensor, draws: torch.Generator) -> Tensor:
    """Bytes [N, H, W] under another light each, with noise."""
    light = 1 + BRIGHTNESS * (2 * torch.rand(len(images), 1, 1, generator=draws) - 1)
    noise = NOISE * torch.randn(images.shape, generator=draws)
    return (images.float() * light + noise).round().clamp(0, 255).to(torch.uint8)
